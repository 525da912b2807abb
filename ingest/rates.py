"""Monotonic counters to rates per second."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SATURATED = float(2**32 - 1)
"""Where 32-bit port counters stop; at this value the true count is unknown."""

_NONE = -(2**62)


class CounterRates:
    """The last sample of every counter series, and the rates that follow from new ones.

    A rate is the increase between successive samples of one series over the time between
    them, and belongs to the tick of the later sample; several in one tick are weighted by
    their time. A decrease is a reset: no rate for that interval. So is a time between samples
    longer than ``gap_ns``, and a saturating counter at its maximum.
    """

    def __init__(self) -> None:
        self._value: dict[str, NDArray[np.float64]] = {}
        self._ts: dict[str, NDArray[np.int64]] = {}
        self.resets = 0

    def update(
        self,
        name: str,
        ts: NDArray[np.int64],
        series: NDArray[np.int64],
        value: NDArray[np.float64],
        group: NDArray[np.int64],
        groups: int,
        *,
        capacity: int,
        gap_ns: int,
        saturating: bool,
    ) -> NDArray[np.float64]:
        """Rates ``[groups]`` from the samples of one counter, sorted by series, then time.

        ``group`` is the output cell (series and tick) of each sample; series ids are below
        ``capacity``. A cell without a usable interval is NaN.
        """
        last_value, last_ts = self._state(name, capacity)
        first = np.ones(series.size, dtype=np.bool_)
        first[1:] = series[1:] != series[:-1]
        before_value = np.empty_like(value)
        before_ts = np.empty_like(ts)
        before_value[1:], before_ts[1:] = value[:-1], ts[:-1]
        before_value[first] = last_value[series[first]]
        before_ts[first] = last_ts[series[first]]
        passed = ts - before_ts
        grown = value - before_value
        usable = (passed > 0) & (passed <= gap_ns)
        self.resets += int(np.count_nonzero(usable & (grown < 0)))
        usable &= grown >= 0
        if saturating:
            usable &= value != SATURATED
        last = np.ones(series.size, dtype=np.bool_)
        last[:-1] = first[1:]
        last_value[series[last]] = value[last]
        last_ts[series[last]] = ts[last]
        into = group[usable]
        total = np.bincount(into, weights=grown[usable], minlength=groups)
        time = np.bincount(into, weights=passed[usable] / 1e9, minlength=groups)
        out = np.full(groups, np.nan)
        np.divide(total, time, out=out, where=time > 0)
        return out

    def forget(self, series: NDArray[np.int64]) -> None:
        """Drop series whose ids may be given to others."""
        for ts in self._ts.values():
            ts[series[series < ts.size]] = _NONE

    def clear(self) -> None:
        self._value.clear()
        self._ts.clear()

    def snapshot(self) -> dict[str, Any]:
        return {
            "value": {name: array.copy() for name, array in self._value.items()},
            "ts": {name: array.copy() for name, array in self._ts.items()},
            "resets": self.resets,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._value = {name: array.copy() for name, array in state["value"].items()}
        self._ts = {name: array.copy() for name, array in state["ts"].items()}
        self.resets = state["resets"]

    def _state(self, name: str, capacity: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        value = self._value.get(name, np.zeros(0))
        ts = self._ts.get(name, np.zeros(0, dtype=np.int64))
        if value.size < capacity:
            more = capacity - value.size
            value = self._value[name] = np.concatenate([value, np.zeros(more)])
            ts = self._ts[name] = np.concatenate([ts, np.full(more, _NONE, dtype=np.int64)])
        return value, ts
