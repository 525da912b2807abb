"""How much evidence counts as odd, in a job and on a row that are used to some of it.

What came and went without a fault is measured as it goes: how high evidence rose on each row
before it was taken back, and how many rows lie apart for a while.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.residuals import LEVEL, SLOW, TESTS, Residuals
from detect.state import PanelState

Array = NDArray[np.float32]

PEAK_HALF_LIFE_SECONDS = 3600.0
PEERS_PEAKS = 3.0
OWN_PEAKS = 1.8
IDLE_PEAKS = 1.4
LEAST_TRUST = 0.25
MOST_PATIENCE = 4.0
WANDER_SECONDS = 1200.0
WANDER_LEAST_SECONDS = 600.0
WANDER_USUAL = 0.015
WANDER_MOST = 6.0
"""Share of rows that usually lie apart for a while; of more, patience grows in proportion."""
PATIENCE_TICKS = 10
PEAK_SECONDS = 4.0
"""Highest evidence is looked at so often (in whole ticks)."""


class Patience:
    """Follows the evidence ``total`` of one panel, kept beside it in ``state``."""

    def __init__(self, state: PanelState) -> None:
        self.state = state
        state.add("needed", "mr", 0.0, (TESTS,), dtype=np.float32)
        state.add("highest", "mr", 0.0, (TESTS,), dtype=np.float32)
        state.add("peak", "mr", 0.0, (TESTS,), dtype=np.float32)
        state.add("wander", "m", 0.0)
        state.add("watched", "m", 0.0)
        self._hold: Array = np.zeros((TESTS, 0, 1), np.float32)
        self._ticks = 0

    def configure(self, hold: Array) -> None:
        """``hold`` ``[test, M]``: the model's seconds of evidence that count as odd."""
        self._hold = hold[:, :, None]

    def step(
        self, r: Residuals, apart: float, tick_seconds: float, trust: Array, idle: bool
    ) -> None:
        """One tick; ``apart``: standard deviations of a slow mean from which a row lies apart.

        ``trust`` ``[R]`` is what weighed the evidence of this tick, ``idle`` whether the job rests.
        """
        if self._ticks % PATIENCE_TICKS == 0 and not idle:
            self._learn_wander(r, apart, PATIENCE_TICKS * tick_seconds)
        self._learn_peaks(tick_seconds, trust, idle)

    def _learn_wander(self, r: Residuals, apart: float, seconds: float) -> None:
        """How often rows lie apart for a while, the oddest left out: share of rows ``[M]``.

        Steps about as long as the time between samples do that: a row is sampled at one moment
        of its steps for minutes, and another row at another.
        """
        s = self.state
        odd = np.count_nonzero(np.abs(r.z[SLOW]) >= apart, axis=1)
        rows = np.count_nonzero(r.valid, axis=1)
        share = np.maximum(odd - 1, 0) / np.maximum(rows, 1)
        known = rows >= 3
        s["watched"] += seconds * known
        gain = seconds / np.clip(s["watched"], WANDER_LEAST_SECONDS, WANDER_SECONDS)
        s["wander"] += np.minimum(gain, 1.0) * known * (share - s["wander"])

    def for_wanderers(self) -> Array:
        """Times as much evidence as usual, ``[M, 1]``, for rows that wander."""
        wander = np.clip(self.state["wander"] / WANDER_USUAL, 1.0, WANDER_MOST)
        return np.asarray(wander.astype(np.float32)[:, None])

    def _learn_peaks(self, tick_seconds: float, trust: Array, idle: bool) -> None:
        """How high evidence rises on this row before it is taken back, slowly forgotten.

        Only an excursion that is over teaches, so a fault never raises its own bar. What happens
        while the job rests comes again the same way (who saves checkpoints) and teaches more.
        Evidence that was trusted little teaches what it would have been.
        """
        s = self.state
        if self._ticks % max(1, round(PEAK_SECONDS / tick_seconds)) == 0:
            weight = (IDLE_PEAKS if idle else 1.0) / np.clip(trust, LEAST_TRUST, 1.0)
            for of_test in zip(s["total"], s["highest"], s["peak"], strict=True):
                total, highest, peak = (array.reshape(-1) for array in of_test)
                cells = np.flatnonzero((total != 0) | (highest > 0))
                size = np.abs(total[cells])
                ended = cells[size == 0]
                size *= weight[cells % weight.size]
                highest[cells] = np.maximum(highest[cells], size)
                peak[ended] = np.maximum(peak[ended], highest[ended])
                highest[ended] = 0.0
        self._ticks += 1
        if self._ticks % PATIENCE_TICKS == 0:
            s["peak"] *= np.exp2(-PATIENCE_TICKS * tick_seconds / PEAK_HALF_LIFE_SECONDS)
            self.learn_needed()

    def learn_needed(self) -> None:
        """Seconds of evidence that count as odd: ``[test, M, R]``.

        The model's hold, or more where this job's machines, or this very row, are used to
        longer excursions (imbalanced steps, clocks apart, a nightly cron): what came and went
        on another machine is no fault on this one.
        """
        peak = self.state["peak"]
        needed = np.empty_like(peak)
        needed[:] = self._hold
        grown = (peak != 0).any(axis=2)
        if grown.any():
            needed[grown] = self._beyond(peak[grown], self._hold[grown])
        needed[:LEVEL] *= self.for_wanderers()
        self.state["needed"] = needed

    @staticmethod
    def _beyond(peak: Array, hold: Array) -> Array:
        """`learn_needed` where evidence has ever come and gone, ``[K, R]``; ``hold`` ``[K, 1]``."""
        first = peak.max(axis=1, keepdims=True)
        others = peak.sum(axis=1, keepdims=True) - first
        least = np.maximum(PEERS_PEAKS * others / max(peak.shape[1] - 1, 1), hold)
        is_first = peak >= first
        second = (peak * ~is_first).max(axis=1, keepdims=True)
        needed = np.maximum(OWN_PEAKS * peak, least)
        # The highest of the others.
        np.maximum(needed, first * ~is_first + second * is_first, out=needed)
        return np.asarray(np.minimum(needed, MOST_PATIENCE * hold, out=needed))

    def snapshot(self) -> dict[str, Any]:
        """What is not in the arrays."""
        return {"ticks": self._ticks}

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self._ticks = tree["ticks"]
