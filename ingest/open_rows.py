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
    """Append at the end, take what closed; memory follows the largest number of open rows.

    The open rows are ``[start, end)`` of the arrays. What closed is mostly a prefix, which is
    dropped by moving the start; the rest moves to the front only when the end has no room.
    """

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.latest_ns = -(2**62)
        self.index: dict[str, int] = {}
        """Place of each column."""
        self._open = slice(0, 0)
        self._values = np.empty((0, 64), dtype=np.float64)
        self._ts = np.empty(64, dtype=np.int64)
        self._series = np.empty(64, dtype=np.int64)
        self._entered = np.empty(64, dtype=np.int64)

    @property
    def size(self) -> int:
        """Number of open rows."""
        return int(self._open.stop - self._open.start)

    @property
    def ts(self) -> NDArray[np.int64]:
        return self._ts[self._open]

    @property
    def series(self) -> NDArray[np.int64]:
        return self._series[self._open]

    @property
    def entered(self) -> NDArray[np.int64]:
        """The job's frontier when the row came in."""
        return self._entered[self._open]

    @property
    def values(self) -> NDArray[np.float64]:
        return self._values[:, self._open]

    def add_column(self, name: str) -> int:
        """Index of a new column."""
        at = self.index[name] = len(self.columns)
        self.columns.append(name)
        more = np.full((1, self._values.shape[1]), np.nan)
        self._values = np.concatenate([self._values, more])
        return at

    def append(
        self,
        ts: NDArray[np.int64],
        series: NDArray[np.int64],
        columns: Sequence[tuple[int, NDArray[np.float64]]],
        entered: int,
    ) -> None:
        """Add rows; ``columns`` are (index, values) and all others become NaN."""
        if self._open.stop + ts.size > self._ts.size:
            self._make_room(ts.size)
        start, end = self._open.stop, self._open.stop + ts.size
        if len(columns) < len(self.columns):
            self._values[:, start:end] = np.nan
        for index, values in columns:
            self._values[index, start:end] = values
        self._ts[start:end] = ts
        self._series[start:end] = series
        self._entered[start:end] = entered
        self._open = slice(self._open.start, end)
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
        begin, end = self._open.start, self._open.stop
        if kept.size and kept[0] != mask.size - kept.size:
            kept += begin
            end = begin + kept.size
            for array in (self._ts, self._series, self._entered):
                array[begin:end] = array[kept]
            self._values[:, begin:end] = self._values[:, kept]
        self._open = slice(end - kept.size, end)
        self.latest_ns = int(self.ts.max()) if kept.size else -(2**62)

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
        self.index = {name: index for index, name in enumerate(self.columns)}
        self._ts = state["ts"].copy()
        self._series = state["series"].copy()
        self._entered = state["entered"].copy()
        self._values = state["values"].copy()
        self._open = slice(0, self._ts.size)
        self.latest_ns = int(self.ts.max()) if self.size else -(2**62)

    def _make_room(self, more: int) -> None:
        """Move the open rows to the front, of larger or smaller arrays if need be."""
        needed = self.size + more
        room = self._ts.size
        resized = needed > room // 2 or needed < room // 16
        if resized:
            room = max(64, 4 * needed)
        for name in ("_values", "_ts", "_series", "_entered"):
            array = getattr(self, name)
            # New memory costs more than the move: what is large enough is used again.
            moved = np.empty((*array.shape[:-1], room), array.dtype) if resized else array
            moved[..., : self.size] = array[..., self._open]
            setattr(self, name, moved)
        self._open = slice(0, self.size)
