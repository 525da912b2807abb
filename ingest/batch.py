"""A batch of samples as NumPy columns, with the rows that cannot be used set apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.samples import KEY_COLUMNS


@dataclass(slots=True)
class Batch:
    """``ts`` (ns), index into ``names``, ``gpu`` (-1 = machine level): ``[n]`` each; columns."""

    ts: NDArray[np.int64]
    names: list[str]
    name: NDArray[np.int64]
    gpu: NDArray[np.int64]
    columns: list[tuple[str, NDArray[np.float64]]]

    def at(self, index: slice | NDArray[np.intp]) -> Batch:
        """Some rows of the batch."""
        columns = [(name, values[index]) for name, values in self.columns]
        return Batch(self.ts[index], self.names, self.name[index], self.gpu[index], columns)

    def where(self, mask: NDArray[np.bool_]) -> Batch:
        """The rows of a mask (the batch itself when that is all of them)."""
        return self if mask.all() else self.at(np.flatnonzero(mask))

    def in_time(self, span_ns: int) -> Iterator[Batch]:
        """The rows in slices of at most ``span_ns`` of event time, oldest first."""
        if not self.ts.size:
            return
        first, last = int(self.ts.min()), int(self.ts.max())
        if last - first < span_ns:
            yield self
            return
        batch = self
        if not (self.ts[1:] >= self.ts[:-1]).all():
            batch = self.at(np.argsort(self.ts, kind="stable"))
        start = 0
        while start < batch.ts.size:
            bound = int(batch.ts[start]) + span_ns
            end = int(np.searchsorted(batch.ts, bound))
            yield batch.at(slice(start, end))
            start = end


def read_batch(table: pa.Table) -> Batch:
    """The columns of a table laid out as in `ingest.samples`; null keys are not expected."""
    ts = _single(table, "ts")
    if ts.type.unit != "ns":
        ts = ts.cast(pa.timestamp("ns", tz="UTC"))
    machine = _single(table, "machine")
    if not pa.types.is_dictionary(machine.type):
        machine = machine.dictionary_encode()
    columns = [
        (name, _single(table, name).to_numpy(zero_copy_only=False))
        for name in table.column_names
        if name not in KEY_COLUMNS
    ]
    gpu = np.full(len(table), -1, dtype=np.int64)
    if "gpu" in table.column_names:
        column = _single(table, "gpu")
        if column.null_count < len(column):
            gpu = pc.fill_null(column, -1).to_numpy().astype(np.int64)
    return Batch(
        ts=ts.view(pa.int64()).to_numpy(),
        names=machine.dictionary.to_pylist(),
        name=machine.indices.to_numpy().astype(np.int64),
        gpu=gpu,
        columns=columns,
    )


def _single(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks()
