"""Speed and memory on one core: ``python -m tests.bench [PART...]`` (``make bench``).

Not a test (the suite asserts nothing about time); every part prints a table. Detection is also
given as a ratio to a fixed NumPy workload timed in the same run, which holds on any machine.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from detect.detector import JobDetector
from detect.pipeline import Pipeline, PipelineSettings
from detect.registry import make_detector
from ingest.catalogue import Catalogue
from ingest.simulate.metrics import SIXTEEN
from tests import bench_align
from tests.ticks_support import block_of

CATALOGUE = Catalogue.default()
METRICS = tuple(sorted(SIXTEEN))
SIZES = (8, 1_000, 10_000)
WARM_TICKS = 20
SECOND = 1_000_000_000


def reference_seconds() -> float:
    """Processor time of a fixed workload: the median over 1,000 rows, 16 × 20 times."""
    values = np.random.default_rng(0).normal(size=(16, 1_000))
    best = np.inf
    for _ in range(5):
        begin = time.process_time()
        for _ in range(20):
            np.median(values, axis=1)
            np.tanh(values)
        best = min(best, time.process_time() - begin)
    return float(best)


def detection() -> None:
    """Milliseconds per tick at 16 metrics, and how they grow with the number of machines."""
    unit = reference_seconds()
    print(f"\nDetection, {len(METRICS)} metrics; reference workload {1e3 * unit:.2f} ms")
    print(f"{'machines':>10} {'ms/tick':>9} {'reference':>10} {'growth':>8} {'times rows':>11}")
    before: tuple[int, float] | None = None
    for machines in SIZES:
        taken = seconds_per_tick(machines, max(40, 200_000 // (machines + 400)))
        growth = ""
        if before is not None:
            growth = f"{taken / before[1]:8.1f} {machines / before[0]:11.1f}"
        print(f"{machines:10,} {1e3 * taken:9.3f} {taken / unit:10.2f} {growth}")
        before = machines, taken


def seconds_per_tick(machines: int, ticks: int) -> float:
    """Processor time of the evidence detector on a healthy job, after the first ticks."""
    rng = np.random.default_rng(1)
    detector = make_detector("evidence", "job", catalogue=CATALOGUE)
    level = rng.uniform(0.2, 0.8, (len(METRICS), 1, 1))
    spent = 0.0
    done = 0
    while done < WARM_TICKS + ticks:
        count = min(10, WARM_TICKS + ticks - done)
        values = level * rng.normal(1.0, 0.01, (len(METRICS), machines, count))
        block = block_of(values, metrics=METRICS, start_ns=(1_700_000_000 + done) * SECOND)
        begin = time.process_time()
        detector.update(block)
        if done >= WARM_TICKS:
            spent += time.process_time() - begin
        detector.take_scores()
        done += count
    return spent / ticks


def fed(machines: int, seconds: int, chunk_seconds: int = 60) -> float:
    """Processor time of the whole path for a healthy job at 16 metrics and one sample a second."""

    def make(job: str) -> JobDetector:
        return make_detector("evidence", job, catalogue=CATALOGUE)

    pipeline = Pipeline(CATALOGUE, make, PipelineSettings(keep_history=False))
    spent = 0.0
    for start in range(0, seconds, chunk_seconds):
        table = bench_align.rows(machines, chunk_seconds, len(METRICS), seed=start)
        moved = pa.array(table["ts"].to_numpy().astype("int64") + start * SECOND)
        named = table.rename_columns(["ts", "job", "machine", *METRICS])
        named = named.set_column(0, table.field("ts"), moved.cast(table.field("ts").type))
        begin = time.process_time()
        pipeline.feed(named)
        spent += time.process_time() - begin
    begin = time.process_time()
    pipeline.finish()
    return spent + time.process_time() - begin


def replay_speed() -> None:
    """How many times faster than real time a recording of 1,000 machines passes."""
    seconds = 180
    taken = fed(1_000, seconds)
    print(f"\nReplay of 1,000 machines x {len(METRICS)} metrics: {seconds / taken:.0f} x real time")


def memory() -> None:
    """Peak memory of a replay and of one ten times as long, each in its own process."""
    print(f"\nMemory of a replay, 100 machines x {len(METRICS)} metrics")
    print(f"{'event time':>12} {'peak RSS':>10}")
    for seconds in (300, 3_000):
        code = (
            f"import resource, tests.bench as b; b.fed(100, {seconds}, 60); "
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        # Kilobytes on Linux, bytes on macOS.
        peak = int(run.stdout) / (1 << 10 if sys.platform != "darwin" else 1 << 20)
        print(f"{seconds:10,} s {peak:7.0f} MB")


def kafka() -> None:
    """Messages a second from the topic, if that bench is there."""
    print("\nKafka")
    _bench_kafka()


def kafka_day() -> None:
    """Memory and lag over a day of 64 machines through a real broker."""
    print("\nA day through Kafka")
    _bench_kafka("--forms", "--day")


def _bench_kafka(*arguments: str) -> None:
    try:
        bench = importlib.import_module("tests.bench_kafka")
    except ImportError as error:
        print(f"left out ({error})")
        return
    bench.main(arguments)


PARTS: dict[str, Callable[[], None]] = {
    "align": bench_align.main,
    "detect": detection,
    "replay": replay_speed,
    "memory": memory,
    "kafka": kafka,
    "kafka-day": kafka_day,
}
LONG = {"kafka-day"}
"""Only when named."""


def main() -> None:
    """Run the named parts, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "part", nargs="*", help=f"of {', '.join(PARTS)} (all but {', '.join(LONG)} without any)"
    )
    chosen = parser.parse_args().part or [part for part in PARTS if part not in LONG]
    unknown = sorted(set(chosen) - set(PARTS))
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}; known: {', '.join(PARTS)}")
    for name in chosen:
        PARTS[name]()


if __name__ == "__main__":
    main()
