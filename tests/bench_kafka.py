"""From Kafka to verdict, rows per second on one core: ``python -m tests.bench kafka``.

A real broker runs on the other core(s). The same telemetry (simulated jobs, 16 metrics a row) is
sent as JSON with one row a message, JSON with 50 rows, and Arrow batches, each in the format that
its topic is configured for, and read by one worker process pinned to one core: decoding,
alignment, the evidence detector, and every turn stored. Beside it: the bare consumption of
kafka-python and of confluent-kafka (installed on demand), two processes instead of one, and
memory and lag over a day of 64 machines (``--day``; alone: ``python -m tests.bench kafka-day``).

Rows per second are given by the wall clock and by the process's CPU time; on a busy machine only
the latter means anything.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import io
import json
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from sqlalchemy import func, select

from detect.registry import make_detector
from ingest.catalogue import Catalogue
from ingest.simulate import JobSpec, simulate
from serve.kafka.outflow import Form, message_values
from serve.kafka.tables import PartitionRow
from serve.store.base import Database
from tests.kafka_support import KafkaUnavailableError, create_topic, start_cluster
from tests.kafka_worker import kafka_worker, settings_for

JOBS = 4
SECOND = 1_000_000_000
SIZES: dict[Form, tuple[int, int]] = {
    "json": (300_000, 1),
    "json-array": (600_000, 50),
    "arrow": (1_500_000, 512),
}
"""Rows in all, and rows a message."""


def telemetry(seconds: int, machines: int, jobs: int = JOBS) -> Iterator[tuple[bytes, pa.Table]]:
    """Minutes of each job in turn; a simulated stretch is repeated as often as needed."""
    stretch = 300
    tables = [
        simulate(JobSpec(job=f"job-{k}", machines=machines, minutes=stretch / 60), seed=k).table
        for k in range(jobs)
    ]
    for start in range(0, seconds, 60):
        for number, table in enumerate(tables):
            ns = table["ts"].cast(pa.int64()).to_numpy()
            at = (ns - ns.min()) // SECOND
            # The last rows may stand a little beyond the stretch: they would be in the future.
            inside = (at < stretch) & (at // 60 == start // 60 % (stretch // 60))
            part = table.filter(pa.array(inside))
            shift = start // stretch * stretch * SECOND
            moved = pa.array(ns[inside] + shift).cast(pa.timestamp("ns", tz="UTC"))
            index = part.column_names.index("ts")
            part = part.set_column(index, "ts", moved)
            yield f"job-{number}".encode(), part.sort_by("ts")


def fill(servers: str, topic: str, form: Form, seconds: int, machines: int) -> int:
    """Send it all; returns the number of rows."""
    rows_a_message = SIZES[form][1]
    create_topic(servers, topic, 4, {"max.message.bytes": str(8 << 20)})
    producer = KafkaProducer(
        bootstrap_servers=servers,
        linger_ms=50,
        batch_size=512 << 10,
        max_request_size=8 << 20,
        compression_type="lz4",
    )
    rows = 0
    for key, table in telemetry(seconds, machines):
        for value, count in message_values(table, form, rows_a_message):
            producer.send(topic, key=key, value=value)
            rows += count
    producer.flush()
    producer.close()
    return rows


# ---------------------------------------------------------------- in a process of its own


def work(
    servers: str, topic: str, messages: int, database: str, owner: str, group: str, profile: bool
) -> Any:
    """A worker until everything of the group is stored; says what it took to the last row."""
    settings = settings_for(
        servers,
        topic,
        topics={topic: "arrow" if "arrow" in topic else "json"},
        group=group,
        snapshot_seconds=30,
        session_timeout_seconds=30,
    )
    store = Database(database, clock=time.time_ns)
    store.migrate()
    catalogue = Catalogue.default()
    worker = kafka_worker(
        settings,
        store,
        owner=owner,
        make_detector=lambda job: make_detector("evidence", job, catalogue=catalogue),
    )
    source: Any = worker.parts.source
    done = _all_stored(store, messages)
    while not source.partitions():
        worker.step(0.2)
    gc.collect()
    gc.freeze()  # as `serve.server` does
    rows = worker.parts.metrics.rows._value
    began, cpu, had = time.monotonic(), time.process_time(), rows.get()
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    seconds = cpu_seconds = 0.0
    reached = [(began, 0.0)]
    while not done():
        before = rows.get()
        worker.step(0.2)
        if rows.get() > before:  # what follows the last row is waiting, not work
            seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu
            reached.append((began + seconds, rows.get() - had))
    profiler.disable()
    stages = {
        s: round(worker.parts.metrics.stage_seconds.labels(stage=s)._sum.get(), 2)
        for s in ("poll", "detect", "store")
    }
    result = {
        "rows": rows.get() - had,
        "reached": reached,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "stages": stages,
        "rejected": {
            sample.labels["reason"]: sample.value
            for metric in worker.parts.metrics.rejected.collect()
            for sample in metric.samples
            if sample.name.endswith("_total") and sample.value
        },
        "ticks": sum(state.ticks for state in worker.parts.pipeline.jobs()),
        "profile": _text(profiler) if profile else "",
    }
    source.close()
    return result


def _all_stored(store: Database, messages: int) -> Callable[[], bool]:
    last = [0.0]

    def done() -> bool:
        if time.monotonic() - last[0] < 0.5:
            return False
        last[0] = time.monotonic()
        return _stored(store) >= messages

    return done


def raw_kafka_python(servers: str, topic: str, messages: int) -> dict[str, float]:
    """Only the client: every message out of its hands."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metrics_enabled=False,
        max_partition_fetch_bytes=4 << 20,
    )
    consumer.assign([TopicPartition(topic, p) for p in range(4)])
    seen, octets = 0, 0
    began, cpu = time.monotonic(), time.process_time()
    while seen < messages:
        for records in consumer.poll(1000, max_records=20_000).values():
            seen += len(records)
            octets += sum(len(r.value) for r in records)
    took = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu}
    consumer.close()
    return took | {"messages": seen, "bytes": octets}


def raw_confluent(servers: str, topic: str, messages: int) -> dict[str, float]:
    """The same with librdkafka's binding."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Partition

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([Partition(topic, p, 0) for p in range(4)])
    seen, octets = 0, 0
    began, cpu = time.monotonic(), time.process_time()
    while seen < messages:
        records = [m for m in consumer.consume(20_000, timeout=0.5) if m.error() is None]
        seen += len(records)
        octets += sum(len(m.value()) for m in records)
    took = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu}
    consumer.close()
    return took | {"messages": seen, "bytes": octets}


def _text(profiler: cProfile.Profile) -> str:
    out = io.StringIO()
    pstats.Stats(profiler, stream=out).sort_stats("tottime").print_stats(30)
    return "\n".join(out.getvalue().splitlines()[6:])


# ---------------------------------------------------------------- the parent


def child(what: str, core: int, path: str = "", **options: Any) -> subprocess.Popen[str]:
    """This module in another process on one core."""
    body = json.dumps({"what": what, "core": core} | options)
    env = dict(os.environ) | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench_kafka", "--child", body],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )


def result_of(process: subprocess.Popen[str]) -> Any:
    """What the child printed last."""
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a child failed with status {process.returncode}")
    return json.loads(out.splitlines()[-1])


def _confluent() -> str:
    """A folder with confluent-kafka, installed for this run only; empty if that fails."""
    folder = tempfile.mkdtemp(prefix="weaklink-bench-")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder]
    done = subprocess.run([*pip, "confluent-kafka"], check=False)
    return folder if done.returncode == 0 else ""


def _rate(count: float, took: dict[str, float]) -> str:
    return f"{count / took['seconds']:>11,.0f} {count / took['cpu_seconds']:>13,.0f}"


def main(argv: Sequence[str] = ()) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="amount of telemetry")
    parser.add_argument("--machines", type=int, default=512, help="of each job")
    parser.add_argument("--forms", nargs="*", default=list(SIZES))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--two", action="store_true", help="also two processes")
    parser.add_argument("--day", action="store_true", help="also a day of 64 machines")
    parser.add_argument("--hours", type=int, choices=range(2, 25), default=24, help="of the day")
    parser.add_argument("--speed", type=float, default=300.0, help="of the day")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.child:
        _be_child(json.loads(arguments.child))
        return
    confluent = _confluent() if arguments.forms else ""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            cluster = start_cluster(1, Path(scratch) / "kafka")
        except KafkaUnavailableError as error:
            print(f"left out: {error}")
            return
        servers = cluster.bootstrap_servers
        try:
            for form in arguments.forms:
                machines = arguments.machines
                minutes = SIZES[form][0] * arguments.scale / (60 * JOBS * machines)
                topic = f"bench-{form}"
                rows = fill(servers, topic, form, 60 * max(1, round(minutes)), machines)
                messages = _end(servers, topic)
                print(
                    f"\n{form}: {JOBS} jobs of {machines} machines, {rows:,} rows in "
                    f"{messages:,} messages"
                )
                print(f"{'':34}{'a second':>11} {'a CPU second':>13}")
                options: dict[str, Any] = {
                    "servers": servers,
                    "topic": topic,
                    "messages": messages,
                }
                one = result_of(
                    child(
                        "work",
                        0,
                        database=f"sqlite:///{scratch}/{form}.db",
                        owner="one",
                        group=f"{topic}-one",
                        profile=arguments.profile,
                        **options,
                    )
                )
                print(f"{'Kafka to verdict, rows':34}{_rate(one['rows'], one)}")
                print(
                    f"  stages (s): {one['stages']}, {one['ticks']:,} ticks, rejected "
                    f"{one['rejected']}, peak memory {one['peak_mb']:.0f} MB"
                )
                print(one["profile"])
                for name, path in (("kafka_python", ""), ("confluent", confluent)):
                    if name == "confluent" and not confluent:
                        print("confluent-kafka could not be installed")
                        continue
                    raw = result_of(child(f"raw_{name}", 0, path, **options))
                    print(f"{name + ' alone, messages':34}{_rate(raw['messages'], raw)}")
                if arguments.two:
                    _two(options, f"sqlite:///{scratch}/{form}-two.db", one)
            if arguments.day:
                _day(servers, f"sqlite:///{scratch}/day.db", arguments.speed, arguments.hours)
        finally:
            cluster.stop()


def _end(servers: str, topic: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=servers)
    parts = [TopicPartition(topic, p) for p in range(4)]
    ends = sum(consumer.end_offsets(parts).values())
    consumer.close()
    return int(ends)


def _two(options: dict[str, Any], database: str, one: dict[str, float]) -> None:
    """Two processes of one group, a core each."""
    pair = [
        child(
            "work",
            core,
            database=database,
            owner=f"w{core}",
            group=f"{options['topic']}-two",
            profile=False,
            **options,
        )
        for core in (0, 1)
    ]
    both = [result_of(process) for process in pair]
    # The first to join reads everything until the second has its share.
    first = max(result["reached"][0][0] for result in both)
    last = min(result["reached"][-1][0] for result in both)
    rate = 0.0
    for result in both:
        times, rows = np.array(result["reached"]).T
        rate += np.ptp(np.interp([first, last], times, rows)) / (last - first)
    ratio = rate / (one["rows"] / one["seconds"])
    cpu = sum(r["cpu_seconds"] for r in both) / sum(r["rows"] for r in both)
    print(
        f"two processes, {last - first:.1f} s at once: {rate:,.0f} rows a second, {ratio:.2f} "
        f"times one; {1e6 * cpu:.1f} instead of {1e6 * one['cpu_seconds'] / one['rows']:.1f} "
        "µs of CPU a row"
    )


def _day(servers: str, database: str, speed: float, hours: int) -> None:
    """A day (or so many ``hours``) of one job of 64 machines as Arrow, ``speed`` times as fast as
    it was, read by a process of its own while it is sent: its memory and lag hour by hour."""
    topic = "bench-day-arrow"
    create_topic(servers, topic, 1, {"max.message.bytes": str(8 << 20)})
    store = Database(database, clock=time.time_ns)
    store.migrate()
    options: dict[str, Any] = {"servers": servers, "topic": topic, "messages": 10**9}
    process = child(
        "work", 0, database=database, owner="day", group="day", profile=False, **options
    )
    producer = KafkaProducer(bootstrap_servers=servers, max_request_size=8 << 20, linger_ms=5)
    sizes, lags = [], []
    sent = 0
    began = time.monotonic()
    try:
        for minute, (key, table) in enumerate(telemetry(3_600 * hours, machines=64, jobs=1)):
            for value, _ in message_values(table, "arrow", 64 * 10):
                producer.send(topic, key=key, value=value)
                sent += 1
            producer.flush()
            time.sleep(max(0.0, began + 60 * (minute + 1) / speed - time.monotonic()))
            if minute % 60 == 59:
                sizes.append(_resident_mb(process.pid))
                lags.append(sent - _stored(store))
                took = time.monotonic() - began
                print(
                    f"hour {len(sizes):2} after {took:4.0f} s: {sizes[-1]:6.1f} MB resident, "
                    f"lag {lags[-1]} messages",
                    flush=True,
                )
        ended = time.monotonic()
        while process.poll() is None and _stored(store) < sent:
            time.sleep(0.1)
        print(f"all {sent:,} messages stored {time.monotonic() - ended:.1f} s after the last")
    finally:
        process.kill()
        process.communicate()
        producer.close()
        store.close()
    after = np.asarray(sizes[1:])
    spread = 100 * (after.max() - after.min()) / (after.max() + after.min())
    print(f"after the first hour: {after.min():.1f} to {after.max():.1f} MB, ± {spread:.1f} %")
    print(
        f"lag, first and second half: {np.mean(lags[: hours // 2]):.1f}, "
        f"{np.mean(lags[hours // 2 :]):.1f} of {sent:,} messages"
    )


def _stored(store: Database) -> int:
    with store.read() as session:
        return session.scalar(select(func.sum(PartitionRow.next_offset))) or 0


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _be_child(options: dict[str, Any]) -> None:
    what, core = options.pop("what"), options.pop("core")
    os.sched_setaffinity(0, {core % (os.cpu_count() or 1)})
    threading.current_thread().name = what
    found: dict[str, Callable[..., Any]] = {
        "work": work,
        "raw_kafka_python": raw_kafka_python,
        "raw_confluent": raw_confluent,
    }
    print(json.dumps(found[what](**options)))


if __name__ == "__main__":
    main(sys.argv[1:])
