"""Scores and metrics of a short period as compressed bytes, and back.

Scores are a `replay.view.grid.ScoreGrid` in zstd. A metric is an Arrow IPC stream (buffers
in zstd): column ``machine``, and ``values`` with one ``float32`` a tick; the schema's metadata
holds ``start_ns`` and ``tick_ns``. Values keep 12 bits of their fraction (1 in 8,000), which
halves what is stored and is finer than any exporter measures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import zstandard
from numpy.typing import NDArray

from replay.view.grid import ScoreGrid, decode_grid

_LIMIT_BYTES = 1 << 30
_DROPPED_BITS = 11


@dataclass(frozen=True, slots=True)
class MetricBlock:
    """One metric of all machines: ``values`` is ``float32 [machine, time]``, NaN = missing;
    tick *k* starts at ``start_ns + k*tick_ns``."""

    start_ns: int
    tick_ns: int
    machines: tuple[str, ...]
    values: NDArray[np.float32]


def encode_scores(grid: ScoreGrid) -> bytes:
    """The grid as bytes."""
    return zstandard.ZstdCompressor(level=1).compress(grid.encode())


def decode_scores(data: bytes) -> ScoreGrid:
    """Inverse of `encode_scores`; ValueError if damaged."""
    try:
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=_LIMIT_BYTES)
    except zstandard.ZstdError as error:
        raise ValueError(f"damaged scores: {error}") from None
    return decode_grid(raw)


def encode_metric(block: MetricBlock) -> bytes:
    """The block as bytes."""
    ticks = block.values.shape[1]
    flat = pa.array(_rounded(block.values).ravel(), pa.float32())
    values = pa.FixedSizeListArray.from_arrays(flat, ticks)
    meta = {"start_ns": str(block.start_ns), "tick_ns": str(block.tick_ns)}
    table = pa.table({"machine": pa.array(block.machines, pa.string()), "values": values})
    table = table.replace_schema_metadata(meta)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def decode_metric(data: bytes) -> MetricBlock:
    """Inverse of `encode_metric` (to its precision); ValueError if damaged."""
    try:
        table = pa.ipc.open_stream(data).read_all()
        meta = table.schema.metadata
        values = table["values"].combine_chunks()
        ticks = values.type.list_size
        return MetricBlock(
            int(meta[b"start_ns"]),
            int(meta[b"tick_ns"]),
            tuple(table["machine"].to_pylist()),
            values.flatten().to_numpy(zero_copy_only=False).reshape(-1, ticks),
        )
    except (pa.ArrowException, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"damaged metric block: {error}") from None


def _rounded(values: NDArray[np.float32]) -> NDArray[np.float32]:
    # Round to nearest before cutting; infinities and NaN keep their exponent.
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    finite = np.isfinite(values) & (np.abs(values) < np.float32(3e38))
    half = np.uint32(1 << (_DROPPED_BITS - 1))
    mask = np.uint32(0xFFFFFFFF ^ ((1 << _DROPPED_BITS) - 1))
    return np.where(finite, (bits + half) & mask, bits).view(np.float32)
