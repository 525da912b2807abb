"""Speed of alignment on one core: ``python tests/bench_align.py``.

Not a test (the suite asserts nothing about time); `main` prints a table.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from ingest.align import JobAligner
from ingest.catalogue import Catalogue

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def rows(
    machines: int,
    seconds: int,
    metrics: int,
    *,
    gpus: int = 0,
    counters: int = 0,
    disorder: bool = False,
    seed: int = 0,
) -> pa.Table:
    """Each second every machine (or each of its GPUs) sends all metrics.

    The last ``counters`` metrics are counters. With ``disorder`` rows come up to 2 s late and a
    tenth of the values is missing; else they are in order and complete.
    """
    rng = np.random.default_rng(seed)
    names = [f"node-{i:05d}" for i in range(machines)]
    per_second = machines * max(gpus, 1)
    jitter = rng.integers(0, SECOND // 20, per_second * seconds)
    ts = (
        START
        + np.repeat(np.arange(seconds), per_second) * SECOND
        + np.sort(jitter.reshape(seconds, per_second), axis=1).reshape(-1)
    )
    index = np.tile(np.repeat(np.arange(machines), max(gpus, 1)), seconds)
    columns: dict[str, pa.Array] = {
        "ts": pa.array(ts, pa.timestamp("ns", tz="UTC")),
        "job": pa.DictionaryArray.from_arrays(np.zeros(ts.size, np.int32), ["job"]).cast("string"),
        "machine": pa.DictionaryArray.from_arrays(index.astype(np.int32), names).cast("string"),
    }
    if gpus:
        columns["gpu"] = pa.array(np.tile(np.arange(gpus), machines * seconds), pa.int32())
    for m in range(metrics):
        values = rng.random(ts.size)
        mask = rng.random(ts.size) < 0.1 if disorder else None
        if m < metrics - counters:
            columns[f"metric_{m:02d}"] = pa.array(values, mask=mask)
        else:
            columns[f"metric_{m:02d}:counter"] = pa.array(np.cumsum(values), mask=mask)
    table = pa.table(columns)
    if disorder:
        table = table.take(np.argsort(ts + rng.integers(0, 2 * SECOND, ts.size)))
    return table


def aligned(table: pa.Table, batch: int) -> tuple[float, int, int]:
    """Seconds of processor time to align a table cut into batches, its ticks and batches.

    What comes before the first closed tick (finding the cadence) is not counted, unless all
    comes at once.
    """
    aligner = JobAligner("job", Catalogue.default())
    parts = [table.slice(i, batch) for i in range(0, len(table), batch)]
    begin, batches, ticks = time.process_time(), 0, 0
    for part in parts:
        known = aligner.tick_ns is not None
        aligner.add(part)
        closed = sum(block.ticks for block in aligner.advance())
        if not known and len(parts) > 100:
            begin, batches, ticks = time.process_time(), 0, 0
        else:
            batches, ticks = batches + 1, ticks + closed
    return time.process_time() - begin, ticks, batches


def main() -> None:
    """Print rows per second and time per tick."""
    print(f"{'case':40} {'rows/s':>12} {'ms/tick':>9} {'us/batch':>9}")
    for label, machines, seconds, gpus, batch, counters, disorder in (
        ("1,000 machines, batches of 100,000", 1000, 600, 0, 100_000, 0, False),
        ("the same, 4 of 16 metrics are counters", 1000, 600, 0, 100_000, 4, False),
        ("the same, out of order and with gaps", 1000, 600, 0, 100_000, 4, True),
        ("1,000 machines, one batch", 1000, 600, 0, 10**9, 0, False),
        ("1,000 machines, batches of 50", 1000, 60, 0, 50, 0, False),
        ("10,000 machines, a batch a second", 10_000, 102, 0, 10_000, 0, False),
        ("125 machines x 8 GPUs, batches of 100,000", 125, 300, 8, 100_000, 0, False),
        ("8 machines, a batch a second", 8, 3600, 0, 8, 0, False),
    ):
        table = rows(machines, seconds, 16, gpus=gpus, counters=counters, disorder=disorder)
        taken, ticks, batches = aligned(table, batch)
        done = ticks * machines * max(gpus, 1)
        print(
            f"{label:40} {done / taken:12,.0f} {1e3 * taken / ticks:9.3f}"
            f" {1e6 * taken / batches:9,.0f}"
        )


if __name__ == "__main__":
    main()
