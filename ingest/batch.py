"""A batch of samples as NumPy columns, with the rows that cannot be used set apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
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

    def split(self, span_ns: int) -> tuple[Batch, Batch]:
        """The rows of the first ``span_ns`` of event time, and the rest.

        The rest comes sorted by time, so that splitting on costs little.
        """
        first, last = int(self.ts.min()), int(self.ts.max())
        if last - first < span_ns:
            return self, self.at(slice(0, 0))
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
    arrays = dict(zip(table.column_names, whole.columns, strict=True))
    ts, machine, gpu = arrays["ts"], arrays["machine"], arrays.get("gpu")
    if ts.type.unit != "ns":
        ts = ts.cast(pa.timestamp("ns", tz="UTC"))
    if not pa.types.is_dictionary(machine.type):
        machine = machine.dictionary_encode()
    rows = len(whole)
    if gpu is None or gpu.null_count == rows:
        gpus = np.full(rows, -1, dtype=np.int64)
    else:
        gpus = gpu.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return Batch(
        ts=ts.view(pa.int64()).to_numpy(),
        names=machine.dictionary.to_pylist(),
        name=machine.indices.to_numpy().astype(np.int64),
        gpu=gpus,
        columns=[
            (name, array.to_numpy(zero_copy_only=False))
            for name, array in arrays.items()
            if name not in KEY_COLUMNS and array.null_count < rows
        ],
    )
