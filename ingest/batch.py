"""A batch of samples as NumPy columns, with the rows that cannot be used set apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.samples import KEY_COLUMNS

_FEW = 100
"""Up to so many rows a dictionary of Python is faster than one of Arrow."""


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

    def split(self, span_ns: int) -> tuple[Batch, Batch | None]:
        """The rows of the first ``span_ns`` of event time, and the rest if there is any.

        The rest comes sorted by time, so that splitting on costs little.
        """
        first, last = int(self.ts.min()), int(self.ts.max())
        if last - first < span_ns:
            return self, None
        batch = self
        if not (self.ts[1:] >= self.ts[:-1]).all():
            batch = self.at(np.argsort(self.ts, kind="stable"))
        cut = int(np.searchsorted(batch.ts, first + span_ns))
        return batch.at(slice(0, cut)), batch.at(slice(cut, None))


def read_batch(table: pa.Table) -> Batch:
    """The columns of a table laid out as in `ingest.samples`; its keys have no nulls.

    Columns without any value are left out.
    """
    chunks = table.to_batches()
    whole = chunks[0] if len(chunks) == 1 else table.combine_chunks().to_batches()[0]
    rows = len(whole)
    arrays = dict(zip(whole.schema.names, whole.columns, strict=True))
    ts, gpu = arrays["ts"], arrays.get("gpu")
    if ts.type.unit != "ns":
        ts = ts.cast(pa.timestamp("ns", tz="UTC"))
    names, name = _names(arrays["machine"])
    if gpu is None or gpu.null_count == rows:
        gpus = np.full(rows, -1, dtype=np.int64)
    else:
        gpus = gpu.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    columns = [
        (key, array.to_numpy(zero_copy_only=False))
        for key, array in arrays.items()
        if key not in KEY_COLUMNS and array.null_count < rows
    ]
    stamps = ts.to_numpy(zero_copy_only=False).view(np.int64)
    return Batch(stamps, names, name, gpus, columns)


def _names(machine: pa.Array) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct names, and the index of each row's."""
    if len(machine) <= _FEW and not pa.types.is_dictionary(machine.type):
        index: dict[str, int] = {}
        place = [index.setdefault(name, len(index)) for name in machine.to_pylist()]
        return list(index), np.array(place, dtype=np.int64)
    if not pa.types.is_dictionary(machine.type):
        machine = machine.dictionary_encode()
    return machine.dictionary.to_pylist(), machine.indices.to_numpy().astype(np.int64)
