"""Out of step: how much more than it used to, and than the others do, a row strays tick by tick.

A slow machine does the same work per step, so its means are the peers', but it computes while
they wait and its pattern is another one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detect.averages import follow, median
from detect.noise import OWN_SECONDS, POOL_SECONDS, spread2
from detect.state import PanelState

Vector = NDArray[np.float64]
Array = NDArray[np.float32]
Mask = NDArray[np.bool_]

SHAPE_SECONDS = 15.0
SHAPE_FLOOR = 0.2
SHAPE_MOST = 12.0
"""Standard deviations beyond which a moment counts no more: it would only be remembered longer."""
YOUNG_TICKS = 20


class Shape:
    """Mean absolute difference over a quarter of a minute, its logarithm, and its past."""

    def __init__(self, state: PanelState) -> None:
        self.state = state
        state.add("stray", "mr", np.nan, dtype=np.float32)
        state.add("stray_base", "mr", 0.0, dtype=np.float32)
        state.add("stray_ticks", "mr", 0.0, dtype=np.float32)
        state.add("stray_pool2", "m", 0.0)
        state.add("stray_most", "mr", np.inf, dtype=np.float32)
        self._floor: Array = np.zeros((0, 1), np.float32)
        self._tick_seconds = 0.0
        self._gain = 1.0

    def configure(self, floor: Vector, tick_seconds: float) -> None:
        """``floor`` ``[M]``: the model's least standard deviations."""
        self._floor = floor.astype(np.float32)[:, None]
        self._tick_seconds = tick_seconds
        self._gain = float(-np.expm1(-tick_seconds / max(SHAPE_SECONDS, 3 * tick_seconds)))

    def follow(self, own: Array, valid: Mask, every: bool, peers: NDArray[np.int64]) -> None:
        """One tick of the rows' values ``own`` ``[M, R]``, each without its lasting offset.

        NaN where not valid; overwritten.
        """
        own -= median(own, peers)[:, None]
        np.abs(own, out=own)
        np.minimum(own, self.state["stray_most"], out=own)
        follow(self.state["stray"], own, self._gain, valid, every)

    def look(
        self,
        valid: Mask,
        every: bool,
        peers: NDArray[np.int64],
        suspect: Mask,
        ticks: int,
    ) -> Array:
        """Standard deviations ``[M, R]``, positive = stranger; learns on behalf of ``ticks``."""
        s = self.state
        age, base = s["stray_ticks"], s["stray_base"]
        change = s["stray"] + self._floor
        np.log(change, out=change)
        change -= base
        if not every:
            np.copyto(change, np.nan, where=~valid)
        e = change - median(change, peers)[:, None]
        if not every:
            np.copyto(e, 0.0, where=~valid)
            np.copyto(change, 0.0, where=~valid)
        now2 = spread2(e, valid, every, peers)
        seconds = ticks * self._tick_seconds
        s["stray_pool2"] += min(1.0, seconds / POOL_SECONDS) * (now2 - s["stray_pool2"])
        sigma2 = SHAPE_FLOOR**2 + np.maximum(s["stray_pool2"], now2)
        sigma = np.sqrt(sigma2).astype(np.float32)[:, None]
        e /= sigma
        learn = valid & ~suspect
        # A mean first, then slowly forgetting; a single outburst moves it little.
        rate = np.divide(np.float32(ticks), age + np.float32(1.0))
        np.maximum(rate, np.float32(seconds / OWN_SECONDS), out=rate)
        np.minimum(rate, np.float32(1.0), out=rate)
        rate *= learn
        old = age > 0
        np.copyto(change, np.clip(change, -1.0, 1.0), where=old)
        change *= rate
        base += change
        age += np.float32(ticks) * learn
        most = np.exp(np.minimum(base + SHAPE_MOST * sigma, 50.0)) - self._floor
        np.copyto(most, np.inf, where=age <= YOUNG_TICKS)
        s["stray_most"] = most
        return np.asarray(np.maximum(e, 0.0, out=e))
