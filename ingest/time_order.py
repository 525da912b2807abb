"""Tables in any order to tables in the order of time, in bounded memory.

Rows that are nearly in order wait in a pool until nothing earlier can follow. Others are split
by time into files that fit in memory, and sorted file by file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.samples import KEY_COLUMNS

BUCKET_ROWS = 250_000
MAX_OPEN_FILES = 128


def in_order(tables: list[pa.Table]) -> pa.Table:
    """All rows by ts, machine, gpu, then by every metric, so that equal sets are equal tables."""
    table = pa.concat_tables(tables, promote_options="default")
    metrics = sorted(set(table.column_names) - set(KEY_COLUMNS))
    table = table.select([*KEY_COLUMNS, *metrics])
    keys = ["ts", "machine", "gpu", "job", *metrics]
    return table.sort_by([(name, "ascending") for name in keys])


def pooled(tables: Iterable[tuple[pa.Table, int | None]]) -> Iterator[pa.Table]:
    """Sort tables that come with the earliest time of all that follow (None: nothing does)."""
    pool: list[pa.Table] = []
    for table, follows in tables:
        pool.append(table)
        if follows is None:
            continue
        ready: list[pa.Table] = []
        wait: list[pa.Table] = []
        for waiting in pool:
            if len(waiting):
                early = pc.less(waiting.column("ts"), _ts(follows))
                ready.append(waiting.filter(early))
                wait.append(waiting.filter(pc.invert(early)))
        pool = [t for t in wait if len(t)]
        if any(len(t) for t in ready):
            yield in_order(ready)
    if any(len(t) for t in pool):
        yield in_order(pool)


def spilled(
    tables: Iterable[pa.Table], times: NDArray[np.int64], rows: int, folder: Path
) -> Iterator[pa.Table]:
    """Sort any number of rows through files in ``folder``.

    ``times`` is a sorted sample of the rows' times, from which the files' spans are chosen;
    a file that still gets too large is split again.
    """
    count = min(MAX_OPEN_FILES, -(-rows // BUCKET_ROWS))
    edges = np.unique(times[np.arange(1, count) * times.size // count]) if times.size else times
    buckets = [_Bucket(folder / f"{index:03d}") for index in range(edges.size + 1)]
    for table in tables:
        stamps = table.column("ts").to_numpy().astype(np.int64)
        into = np.searchsorted(edges, stamps, side="right")
        order = np.argsort(into, kind="stable")
        bounds = np.searchsorted(into[order], np.arange(len(buckets) + 1))
        table = table.take(order)
        for bucket, start, end in zip(buckets, bounds[:-1], bounds[1:], strict=True):
            if end > start:
                bucket.write(table.slice(start, end - start))
    for bucket in buckets:
        bucket.close()
    for bucket in buckets:
        if bucket.rows > 2 * BUCKET_ROWS and edges.size:
            times = bucket.times()
            deeper = folder / f"{bucket.stem.name}-split"
            deeper.mkdir()
            yield from spilled(bucket.read(), times, bucket.rows, deeper)
        elif bucket.rows:
            yield in_order(list(bucket.read()))
        bucket.delete()


class _Bucket:
    """Rows of one span of time in Arrow files, one for each set of columns."""

    def __init__(self, stem: Path) -> None:
        self.stem = stem
        self.rows = 0
        self._writers: dict[tuple[str, ...], Any] = {}
        self._paths: list[Path] = []

    def write(self, table: pa.Table) -> None:
        key = tuple(table.column_names)
        writer = self._writers.get(key)
        if writer is None:
            path = self.stem.with_suffix(f".{len(self._paths)}.arrow")
            self._paths.append(path)
            options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
            writer = self._writers[key] = pa.ipc.new_stream(path, table.schema, options=options)
        writer.write_table(table)
        self.rows += len(table)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def read(self) -> Iterator[pa.Table]:
        for path in self._paths:
            with pa.ipc.open_stream(path) as reader:
                for batch in reader:
                    yield pa.Table.from_batches([batch])

    def times(self) -> NDArray[np.int64]:
        step = max(1, self.rows // (1 << 18))
        parts = [t.column("ts").to_numpy().astype(np.int64)[::step] for t in self.read()]
        return np.sort(np.concatenate(parts))

    def delete(self) -> None:
        for path in self._paths:
            path.unlink()


def _ts(ns: int) -> pa.Scalar:
    return pa.scalar(ns, pa.timestamp("ns", tz="UTC"))
