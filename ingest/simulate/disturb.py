"""What goes wrong between a machine and its reported samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.simulate.effects import Observe
from ingest.simulate.physics import Rows

FloatArray = NDArray[np.float64]


class Disturbances:
    """Applies `Observe` effects to the samples of one source; remembers what is held."""

    def __init__(self, rows: Rows, metrics: tuple[str, ...]) -> None:
        self._rows = rows
        self._metrics = metrics
        self._held: dict[Observe, FloatArray] = {}
        self._last: FloatArray | None = None

    def apply(self, values: FloatArray, at: FloatArray, effects: list[Observe]) -> None:
        """Change ``values`` ``[M, T, R]`` sampled at true times ``at`` ``[T, R]`` in place."""
        last = values[:, -1].copy()
        truth = values
        frozen = [e for e in effects if e.kind == "frozen"]
        self._held = {e: h for e, h in self._held.items() if e in set(frozen)}
        if frozen:
            truth = values.copy()
        for effect in effects:
            rows = self._rows.of(effect.machines, effect.gpu)
            which = self._which(effect)
            if not len(rows) or not len(which):
                continue
            hit = (at[:, rows] >= effect.start_s) & (at[:, rows] < effect.end_s)
            if not hit.any():
                continue
            if effect.kind == "frozen":
                self._freeze(values, truth, hit, rows, which, effect)
                continue
            put = {"missing": np.nan, "zero": 0.0}.get(effect.kind, effect.value)
            for m in which:
                block = values[m][:, rows]
                values[m][:, rows] = np.where(hit, put, block)
        self._last = last

    def _which(self, effect: Observe) -> list[int]:
        if effect.metrics is None:
            return list(range(len(self._metrics)))
        return [i for i, name in enumerate(self._metrics) if name in effect.metrics]

    def _freeze(
        self,
        values: FloatArray,
        truth: FloatArray,
        hit: NDArray[np.bool_],
        rows: NDArray[np.int64],
        which: list[int],
        effect: Observe,
    ) -> None:
        """Hold, per row, the last true sample before the freeze (its first one otherwise)."""
        held = self._held.setdefault(effect, np.full((len(self._metrics), len(rows)), np.nan))
        for r, row in enumerate(rows):
            ticks = np.flatnonzero(hit[:, r])
            if not len(ticks):
                continue
            if np.isnan(held[:, r]).all():
                first = int(ticks[0])
                if first > 0:
                    held[:, r] = truth[:, first - 1, row]
                elif self._last is not None:
                    held[:, r] = self._last[:, row]
                else:
                    held[:, r] = truth[:, 0, row]
            for m in which:
                values[m, ticks, row] = held[m, r]
