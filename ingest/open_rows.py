"""Rows of ticks that are still open, as columns in one growing array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Rows:
    """Some open rows: time, series id and values ``[column, row]`` (NaN = not measured)."""

    ts: NDArray[np.int64]
    series: NDArray[np.int64]
    values: NDArray[np.float64]


class OpenRows:
    """Append at the end, take what closed; memory follows the largest number of open rows."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.size = 0
        self.latest_ns = -(2**62)
        self._values = np.empty((0, 64), dtype=np.float64)
        self._ts = np.empty(64, dtype=np.int64)
        self._series = np.empty(64, dtype=np.int64)
        self._entered = np.empty(64, dtype=np.int64)

    @property
    def ts(self) -> NDArray[np.int64]:
        return self._ts[: self.size]

    @property
    def series(self) -> NDArray[np.int64]:
        return self._series[: self.size]

    @property
    def entered(self) -> NDArray[np.int64]:
        """The job's frontier when the row came in."""
        return self._entered[: self.size]

    @property
    def values(self) -> NDArray[np.float64]:
        return self._values[:, : self.size]

    def column(self, name: str) -> int:
        """Index of a column, added if new."""
        try:
            return self.columns.index(name)
        except ValueError:
            self.columns.append(name)
            more = np.full((1, self._values.shape[1]), np.nan)
            self._values = np.concatenate([self._values, more])
            return len(self.columns) - 1

    def append(
        self,
        ts: NDArray[np.int64],
        series: NDArray[np.int64],
        columns: Sequence[tuple[int, NDArray[np.float64]]],
        entered: int,
    ) -> None:
        """Add rows; ``columns`` are (index, values) and all others become NaN."""
        start, end = self.size, self.size + ts.size
        if end > self._ts.size:
            self._reserve(end)
        if len(columns) < len(self.columns):
            self._values[:, start:end] = np.nan
        for index, values in columns:
            self._values[index, start:end] = values
        self._ts[start:end] = ts
        self._series[start:end] = series
        self._entered[start:end] = entered
        self.size = end
        self.latest_ns = max(self.latest_ns, int(ts.max()))

    def before(self, end_ns: int) -> tuple[Rows, NDArray[np.bool_]]:
        """Rows before ``end_ns`` (views where possible) and the mask of those that remain."""
        late = self.ts >= end_ns
        kept = int(np.count_nonzero(late))
        if kept == 0:
            return Rows(self.ts, self.series, self.values), late
        first = self.size - kept
        if late[first:].all():
            return Rows(self.ts[:first], self.series[:first], self.values[:, :first]), late
        taken = ~late
        return Rows(self.ts[taken], self.series[taken], self.values[:, taken]), late

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Drop all rows but those of the mask."""
        kept = np.flatnonzero(mask)
        for array in (self._ts, self._series, self._entered):
            array[: kept.size] = array[kept]
        self._values[:, : kept.size] = self._values[:, kept]
        self.size = kept.size
        self.latest_ns = int(self.ts.max()) if self.size else -(2**62)
        if self._ts.size > 4096 and self._ts.size > 8 * max(self.size, 1):
            self._resize(max(2 * self.size, 1024))

    def snapshot(self) -> dict[str, Any]:
        return {
            "columns": list(self.columns),
            "ts": self.ts.copy(),
            "series": self.series.copy(),
            "entered": self.entered.copy(),
            "values": self.values.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.columns = list(state["columns"])
        self._ts = state["ts"].copy()
        self._series = state["series"].copy()
        self._entered = state["entered"].copy()
        self._values = state["values"].copy()
        self.size = self._ts.size
        self.latest_ns = int(self.ts.max()) if self.size else -(2**62)

    def _reserve(self, rows: int) -> None:
        self._resize(max(rows, 2 * self._ts.size))

    def _resize(self, rows: int) -> None:
        used = self.size
        values = np.empty((len(self.columns), rows), dtype=np.float64)
        values[:, :used] = self.values
        self._values = values
        for name in ("_ts", "_series", "_entered"):
            array = np.empty(rows, dtype=np.int64)
            array[:used] = getattr(self, name)[:used]
            setattr(self, name, array)
