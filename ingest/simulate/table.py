"""Sampled blocks as one Arrow table in the layout of `ingest.samples`."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.samples import KEY_FIELDS
from ingest.simulate.sampler import Sampled
from ingest.simulate.spec import JobSpec

Scalar = TypeVar("Scalar", bound=np.generic)


def schema_of(spec: JobSpec) -> pa.Schema:
    """The key columns, then the job's metrics by name."""
    metrics = [pa.field(name, pa.float64()) for name in sorted(spec.metrics)]
    return pa.schema([*KEY_FIELDS, *metrics])


def to_table(spec: JobSpec, machines: tuple[str, ...], pieces: list[Sampled]) -> pa.Table:
    """One row per machine or GPU and sampling instant; a row without any value is left out."""
    schema = schema_of(spec)
    names = pa.array(machines, pa.string())
    batches = [_batch(spec, names, piece, schema) for piece in pieces]
    return pa.Table.from_batches([b for b in batches if b.num_rows], schema=schema)


def _batch(
    spec: JobSpec, names: pa.StringArray, piece: Sampled, schema: pa.Schema
) -> pa.RecordBatch:
    ticks, rows = piece.stamps_ns.shape
    values = piece.values.reshape(len(piece.metrics), ticks * rows)
    missing = np.isnan(values)
    empty = np.logical_and.reduce(missing, axis=0)
    sent = np.flatnonzero(~empty)
    count = len(sent)
    whole = count == ticks * rows

    def kept(column: NDArray[Scalar]) -> NDArray[Scalar]:
        return column if whole else column[sent]

    stamps = kept(piece.stamps_ns.ravel())
    machine = kept(np.broadcast_to(piece.rows.machine, (ticks, rows)).ravel())
    gpu = kept(np.broadcast_to(piece.rows.gpu, (ticks, rows)).ravel()).astype(np.int32)
    columns: list[pa.Array] = [
        pa.array(stamps, pa.int64()).cast(pa.timestamp("ns", tz="UTC")),
        pa.repeat(pa.scalar(spec.job, pa.string()), count),
        names.take(pa.array(machine)),
        pa.array(gpu, pa.int32(), mask=gpu < 0),
    ]
    have = {name: k for k, name in enumerate(piece.metrics)}
    for field in list(schema)[len(KEY_FIELDS) :]:
        k = have.get(field.name)
        if k is None:
            columns.append(pa.nulls(count, pa.float64()))
        else:
            columns.append(pa.array(kept(values[k]), pa.float64(), mask=kept(missing[k])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
