"""Filling gaps from the past, with an age limit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.state import PanelState


class HoldLast:
    """Fills a gap with the last sample while it is no older than ``limit_ticks``.

    Minder fills a gap with the nearest sample; a stream has only the past to take it from.
    """

    def __init__(self) -> None:
        self._state = PanelState()
        self._state.add("last", "mr", np.nan)
        self._state.add("age", "mr", 0, dtype=np.int64)

    def reindex(self, metrics: tuple[str, ...], machines: tuple[str, ...]) -> None:
        """Follow the roster; newcomers start with nothing to hold."""
        self._state.reindex(metrics, machines)

    def fill(self, values: NDArray[np.float64], limit_ticks: int) -> NDArray[np.float64]:
        """``[T, M, N]`` with gaps filled, a new array; infinities count as gaps."""
        ticks = len(values)
        if not ticks:
            return values.copy()
        known = np.isfinite(values)
        at = np.arange(ticks).reshape(-1, 1, 1)
        source = np.maximum.accumulate(np.where(known, at, -1), axis=0)
        filled = np.take_along_axis(values, np.maximum(source, 0), axis=0)
        filled = np.where(source >= 0, filled, self._state["last"])
        age = np.where(source >= 0, at - source, self._state["age"] + at + 1)
        filled = np.where(age <= limit_ticks, filled, np.nan)
        self._state["last"] = filled[-1].copy()
        # Capped, so that a machine that never answers does not count up for ever.
        self._state["age"] = np.minimum(age[-1], limit_ticks + 1)
        return filled

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return self._state.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self._state.restore(state)


def fill_nearest(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[T, M, N]`` with every gap filled with the nearest sample in time, a new array.

    The earlier of two equally near samples wins. A series without any sample stays NaN.
    """
    ticks = len(values)
    at = np.arange(ticks).reshape(-1, 1, 1)
    known = np.isfinite(values)
    before = np.maximum.accumulate(np.where(known, at, -ticks), axis=0)
    after = np.minimum.accumulate(np.where(known, at, 2 * ticks)[::-1], axis=0)[::-1]
    source = np.where(at - before <= after - at, before, after)
    empty = (source < 0) | (source >= ticks)
    filled = np.take_along_axis(values, np.where(empty, 0, source), axis=0)
    return np.where(empty, np.nan, filled)
