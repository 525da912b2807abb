"""The noise that healthy rows show: the job's, each row's own, just now, and the least."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detect.averages import counts, median
from detect.state import PanelState

Vector = NDArray[np.float64]
Array = NDArray[np.float32]
Mask = NDArray[np.bool_]

CHANGES = 3
"""Changes against the own past: fast, slow, drift."""
FLOOR_SHARES = np.array([1.0, 0.75, 0.7])
"""A mean over more seconds differs less by chance, so a smaller difference counts."""
POOL_SECONDS = 300.0
OWN_SECONDS = 1800.0
OWN_LIMIT = 2.0
QUANTILE = 0.6
QUANTILE_SIGMA = 0.84
"""A normal variable's absolute value is below this many standard deviations so often."""
QUANTILE_SPEED = 2.0
YOUNG_SECONDS = 30.0
LEAST_NOISE = 0.1
FEW_ROWS = np.array(
    [1.0, 1.0, 1.0, 1.694, 1.753, 1.557, 1.597, 1.526, 1.546, 1.51, 1.524, 1.503, 1.515, 1.4826]
)
"""Standard deviation / median absolute difference for 0, 1, 2, … normal rows (simulated)."""


class Noise:
    """Quantiles over time: what is wild for some minutes is not remembered as the usual noise.

    What changes slowly is learned every few ticks, for as many ticks at once.
    """

    def __init__(self, state: PanelState) -> None:
        self.state = state
        state.add("pool", "m", 0.0, (CHANGES,))
        state.add("now2", "m", 0.0, (CHANGES,))
        state.add("own", "mr", 0.0, (CHANGES,), dtype=np.float32)
        state.add("pooled_ticks", "m", 0.0)
        state.add("seconds", "mr", 0.0, dtype=np.float32)
        self._floor2: Vector = np.zeros((CHANGES, 0))
        self._least: Vector = np.zeros(0)

    def configure(self, floor: Vector) -> None:
        """``floor`` ``[M]``: the model's least standard deviations."""
        self._floor2 = np.square(FLOOR_SHARES[:, None] * floor)
        self._least = LEAST_NOISE * floor

    def pool2(self) -> Vector:
        """Variance of the job's noise, usual or present: ``[change, M]``."""
        return np.maximum(np.square(self.state["pool"]), self.state["now2"])

    def look(self, e: Array, valid: Mask, every: bool, peers: NDArray[np.int64]) -> None:
        """The present spread over the rows of the first changes, by the median |difference|."""
        self.state["now2"][: len(e)] = spread2(e, valid, every, peers)

    def scale(self, pool2: Vector, span: Vector) -> Array:
        """Standard deviations ``[change, M, 1]`` before each row's own noise counts.

        ``span`` ``[M]``: how far the fast centre moved within the clocks' slack.
        """
        variance = self._floor2 + pool2
        variance[0] += 0.01 * np.square(np.where(np.isfinite(span), span, 0.0))
        return np.asarray(np.sqrt(variance), np.float32)[:, :, None]

    def usual(self, change: int) -> Vector:
        """The job's usual noise in one change, ``[M]``."""
        return np.asarray(np.sqrt(self._floor2[change] + np.square(self.state["pool"][change])))

    def of_rows(self, scale: Array) -> Array:
        """``scale`` of the first changes, or a row's own noise where larger, up to a limit."""
        out = np.maximum(self.state["own"][: len(scale)], scale)
        return np.asarray(np.minimum(out, OWN_LIMIT * scale, out=out))

    def age(self, valid: Mask, every: bool, seconds: float) -> None:
        """Rows grow older; to be called once everything has started."""
        age = self.state["seconds"]
        age += np.float32(seconds) if every else np.float32(seconds) * valid
        np.minimum(age, np.float32(2 * OWN_SECONDS), out=age)

    def learn(self, e: Array, valid: Mask, suspect: Mask, tick_seconds: float, ticks: int) -> None:
        """Follow ``e`` ``[change, M, R]``, on behalf of ``ticks`` ticks."""
        s = self.state
        seconds = ticks * tick_seconds
        enough = counts(valid) >= 3
        young = ticks / (s["pooled_ticks"] + 1.0)
        gain = np.where(enough, np.minimum(np.maximum(seconds / POOL_SECONDS, young), 1.0), 0.0)
        up, down = _factors(gain)
        pool = s["pool"]
        pool *= np.where(np.sqrt(s["now2"]) > pool, up, down)
        np.maximum(pool, self._least, out=pool)
        s["pooled_ticks"] += ticks * enough
        # A row's first minutes, when everything starts, are no past to judge it by.
        age = s["seconds"]
        learn = valid & ~suspect
        learn &= age > 0
        if not learn.any():
            return
        rate = np.clip(age + np.float32(YOUNG_SECONDS), 1.0, OWN_SECONDS)
        np.divide(np.float32(seconds), rate, out=rate)
        rate *= learn
        up, down = _factors(rate)
        up -= down
        least = self._least.astype(np.float32)[:, None] * learn
        for own, away in zip(s["own"], e, strict=True):
            # Arithmetic on masks: choosing element by element stumbles over random outcomes.
            moved = up * (np.abs(away) > np.float32(QUANTILE_SIGMA) * own)
            moved += down
            own *= moved
            np.maximum(own, least, out=own)


def spread2(e: Array, valid: Mask, every: bool, peers: NDArray[np.int64]) -> Vector:
    """Present variance over the rows, by the median absolute difference: ``[..., M]``."""
    away = np.abs(e)
    if not every:
        np.copyto(away, np.nan, where=~valid)
    count = np.minimum(peers, FEW_ROWS.size - 1)
    spread = FEW_ROWS[count] * median(away, peers)
    return np.where(np.isfinite(spread), np.square(spread), 0.0)


def _factors(gain: NDArray[np.floating]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """What a scale below and above the `QUANTILE` is multiplied by (Robbins & Monro, 1951)."""
    return np.exp(QUANTILE_SPEED * QUANTILE * gain), np.exp((QUANTILE - 1) * QUANTILE_SPEED * gain)
