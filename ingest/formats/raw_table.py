"""Collects rows with differing columns and types into one raw wide Arrow table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.rules import TimeUnit
from ingest.timestamps import UTC_NS, number_to_ns, parse_ns, to_ns

Column: TypeAlias = "pa.Array | NDArray[np.float64]"
"""An array of NumPy is of doubles, where NaN says that there is no value."""


class RawTable:
    """Chunks of columns; a chunk may lack columns that another one has."""

    def __init__(self) -> None:
        self._chunks: list[tuple[int, Mapping[str, Column]]] = []
        self._places: list[tuple[Sequence[str], Sequence[int]]] = []
        self._starts: list[int] = []
        self.rows = 0

    def append(
        self,
        rows: int,
        columns: Mapping[str, Column],
        origins: Sequence[str],
        first: Sequence[int],
    ) -> None:
        """Add ``rows`` rows; the message ``origins[i]`` begins at row ``first[i]`` of them."""
        if rows:
            self._chunks.append((rows, columns))
            self._places.append((origins, first))
            self._starts.append(self.rows)
            self.rows += rows

    def origin(self, row: int) -> str:
        """Names the place of a row."""
        chunk = bisect_right(self._starts, row) - 1
        origins, first = self._places[chunk]
        row -= self._starts[chunk]
        message = bisect_right(first, row) - 1
        end = first[message + 1] if message + 1 < len(first) else self._chunks[chunk][0]
        alone = end - first[message] == 1
        return origins[message] if alone else f"{origins[message]}, row {row - first[message]}"

    def finish(self) -> pa.Table:
        """All chunks as one table; a column whose chunks differ in type becomes text."""
        names = dict.fromkeys(name for _, columns in self._chunks for name in columns)
        return pa.table({n: self._column(n) for n in names} or {"ts": pa.nulls(self.rows)})

    def _column(self, name: str) -> pa.Array | pa.ChunkedArray:
        parts = [columns.get(name) for _, columns in self._chunks]
        floats = [part for part in parts if isinstance(part, np.ndarray)]
        if len(floats) == len(parts):
            return float_column(np.concatenate(floats))
        arrays = [float_column(p) if isinstance(p, np.ndarray) else p for p in parts]
        kinds = {a.type for a in arrays if a is not None and a.type != pa.null()}
        kind = kinds.pop() if len(kinds) == 1 else pa.string() if kinds else pa.null()
        cast = [
            pa.nulls(rows, kind) if array is None else array.cast(kind)
            for (rows, _), array in zip(self._chunks, arrays, strict=True)
        ]
        return pa.chunked_array(cast, kind)


def float_column(values: NDArray[np.float64]) -> pa.Array:
    """Floats as doubles, null where they are NaN."""
    missing = np.isnan(values)
    return pa.array(values, mask=missing if missing.any() else None)


def number_column(values: Sequence[Any]) -> pa.Array:
    """Floats, texts and None as doubles, or as texts if there is a text."""
    try:
        return pa.array(values, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([v if v is None or type(v) is str else repr(v) for v in values])


def text_column(values: Sequence[Any]) -> pa.Array:
    """Texts, numbers and None as texts."""
    try:
        return pa.array(values, pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([v if v is None or type(v) is str else str(v) for v in values])


def time_column(values: Sequence[Any], unit: TimeUnit) -> pa.Array:
    """Numbers and texts as instants, null where they are none."""
    for kind in (pa.int64(), pa.string()):
        try:
            ns, usable = to_ns(pa.array(values, kind), unit)
        except (OverflowError, pa.ArrowInvalid, pa.ArrowTypeError):
            continue
        return pa.array(ns, mask=~usable).view(UTC_NS)
    return pa.array([_instant(v, unit) for v in values], pa.int64()).cast(UTC_NS)


def _instant(value: Any, unit: TimeUnit) -> int | None:
    if isinstance(value, str):
        return parse_ns(value)
    return None if value is None else number_to_ns(value, unit)
