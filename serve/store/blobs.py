"""Scores and metrics of a short period as compressed bytes, and back.

Scores are a `replay.view.grid.ScoreGrid` in zstd. A metric is an Arrow IPC stream of one row,
whose columns are zstd: ``machines`` a JSON list, and ``planes`` the values ``float32 [machine,
time]`` byte by byte, all first bytes, then all second ones, and so on (like bytes together take a
sixth less, and half the time). The schema's metadata holds ``start_ns`` and ``tick_ns``. Values
keep 12 bits of their fraction (1 in 8,000), which halves what is stored and is finer than any
exporter measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import orjson
import pyarrow as pa
import zstandard
from numpy.typing import NDArray

from replay.view.grid import ScoreGrid, decode_grid

_LIMIT_BYTES = 1 << 30
_DROPPED_BITS = 11
_OCTETS = 4
_SCHEMA = pa.schema({"machines": pa.binary(), "planes": pa.binary()})
_DAMAGE = (zstandard.ZstdError, pa.ArrowException, LookupError, TypeError, AttributeError)


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
    return _compressed(grid.encode())


def decode_scores(data: bytes) -> ScoreGrid:
    """Inverse of `encode_scores`; ValueError if damaged."""
    try:
        raw = _decompressed(data)
    except zstandard.ZstdError as error:
        raise ValueError(f"damaged scores: {error}") from None
    return decode_grid(raw)


def encode_metric(block: MetricBlock) -> bytes:
    """The block as bytes."""
    octets = _rounded(block.values).view(np.uint8).reshape(-1, _OCTETS)
    columns = [_names(block.machines), _compressed(np.ascontiguousarray(octets.T).data)]
    meta = {"start_ns": str(block.start_ns), "tick_ns": str(block.tick_ns)}
    row = pa.record_batch([pa.array([c]) for c in columns], _SCHEMA.with_metadata(meta))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    return bytes(sink.getvalue().to_pybytes())


def decode_metric(data: bytes) -> MetricBlock:
    """Inverse of `encode_metric` (to its precision); ValueError if damaged."""
    try:
        table = pa.ipc.open_stream(data).read_all()
        meta = table.schema.metadata
        times = int(meta[b"start_ns"]), int(meta[b"tick_ns"])
        if "planes" not in table.schema.names:
            return MetricBlock(*times, *_older(table))
        machines = tuple(orjson.loads(_decompressed(table["machines"][0].as_py())))
        octets = np.frombuffer(_decompressed(table["planes"][0].as_py()), np.uint8)
        values = np.ascontiguousarray(octets.reshape(_OCTETS, -1).T).view("<f4")
        return MetricBlock(*times, machines, values.reshape(len(machines), -1))
    except _DAMAGE as error:
        raise ValueError(f"damaged metric block: {error}") from None


def _older(table: pa.Table) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """As stored before: a row a machine, its ``values`` a list of fixed size."""
    values = table["values"].combine_chunks()
    flat = values.flatten().to_numpy(zero_copy_only=False)
    return tuple(table["machine"].to_pylist()), flat.reshape(-1, values.type.list_size)


@lru_cache(maxsize=64)
def _names(machines: tuple[str, ...]) -> bytes:
    return _compressed(orjson.dumps(machines))


def _compressed(data: bytes | memoryview) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(data)


def _decompressed(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=_LIMIT_BYTES)


def _rounded(values: NDArray[np.float32]) -> NDArray[np.float32]:
    # Round to nearest before cutting; infinities and NaN keep their exponent. One layout for all:
    # history comes time by time, and operations across the two are slow.
    values = np.ascontiguousarray(values, "<f4")
    bits = values.view("<u4")
    rounded = bits + np.uint32(1 << (_DROPPED_BITS - 1))
    rounded &= np.uint32(0xFFFFFFFF ^ ((1 << _DROPPED_BITS) - 1))
    np.copyto(rounded, bits, where=~(np.abs(values) < np.float32(3e38)))
    return rounded.view("<f4")
