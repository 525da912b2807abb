"""The source against Kafka in memory: exactly-once effect whatever breaks when."""

from __future__ import annotations

from functools import cache
from typing import Any

import orjson
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kafka import TopicPartition
from sqlalchemy import select

from serve.config import WorkerSettings
from serve.kafka.settings import KafkaSettings
from serve.kafka.source import KafkaSource
from serve.kafka.tables import JobStateRow, PartitionRow
from serve.store.tables import EventRow
from serve.worker import Worker
from tests.kafka_fakes import FakeConsumer, FakeKafka
from tests.kafka_worker import make_decoder
from tests.serve_support import START_NS, HandClock, make_worker, memory_database, rows

SETTINGS = KafkaSettings(poll_messages=40, commit_interval_seconds=0)


def messages(job: str = "llama", *, start: int = 0, ticks: int = 30, low: str = "") -> list[bytes]:
    """JSON rows of four machines, one a message."""
    found = []
    for row in rows(job=job, start=start, ticks=ticks, low=low).to_pylist():
        row["ts"] = START_NS // 1_000_000 + (int(row["ts"].timestamp() * 1000) - START_NS // 10**6)
        found.append(orjson.dumps(row))
    return found


class Bench:
    """One database and one Kafka; workers come and go."""

    def __init__(self, **changes: Any):
        self.kafka = FakeKafka()
        self.clock = HandClock()
        self.database = memory_database(self.clock)
        self.settings = SETTINGS.model_copy(update=changes)
        self.monotonic = 0.0

    def worker(self, *partitions: int, owner: str = "w") -> Worker:
        """A new worker that owns these partitions from its second turn on."""
        source = KafkaSource(
            self.settings,
            self.database,
            make_decoder,
            owner=owner,
            connect=self.kafka.connect,
            monotonic=lambda: self.monotonic,
            sleep=lambda seconds: None,
        )
        settings = WorkerSettings(id=owner, poll_seconds=0, history_flush_seconds=1e6)
        worker = make_worker(source, self.clock, database=self.database, settings=settings)
        worker.step(0)
        if self.kafka.consumers:
            self.kafka.consumers[-1].move(*partitions)
        worker.step(0)
        return worker

    def produce(self, values: list[bytes], partition: int = 0, key: bytes = b"llama") -> None:
        """Append messages that arrive now."""
        for value in values:
            self.kafka.put(partition, value, key=key, timestamp=self.clock.now_ns // 1_000_000)

    def turn(self, worker: Worker, turns: int = 1, seconds: float = 1.0) -> None:
        """Turns of the worker; time passes."""
        for _ in range(turns):
            self.pass_time(seconds)
            worker.step(0)

    def pass_time(self, seconds: float) -> None:
        """On every clock."""
        self.clock.forward(seconds)
        self.monotonic += seconds

    def events(self) -> list[tuple[str, str, str]]:
        """Every alert change that was stored: (kind, alert, machine)."""
        with self.database.read() as session:
            found = session.scalars(select(EventRow).order_by(EventRow.id))
            return [(e.kind, e.body["id"], e.body["machine"]) for e in found]

    def partition(self, number: int = 0) -> PartitionRow:
        """Its checkpoint."""
        with self.database.read() as session:
            query = select(PartitionRow).where(PartitionRow.partition == number)
            return session.scalars(query).one()

    def states(self) -> list[str]:
        """Jobs with a stored state."""
        with self.database.read() as session:
            return list(session.scalars(select(JobStateRow.job).order_by(JobStateRow.job)))


def source_of(worker: Worker) -> KafkaSource:
    """The worker's source."""
    assert isinstance(worker.parts.source, KafkaSource)
    return worker.parts.source


def consumer_of(bench: Bench) -> FakeConsumer:
    """The consumer opened last."""
    return bench.kafka.consumers[-1]


def test_a_fault_in_the_messages_becomes_an_alert_and_the_offset_is_stored_with_it() -> None:
    bench = Bench()
    bench.produce(messages(ticks=30) + messages(start=30, ticks=30, low="m-2"))
    worker = bench.worker(0)
    bench.turn(worker, 10)
    assert [event[:2] for event in bench.events()] == [("alert.opened", "llama-m-2")]
    assert bench.partition().next_offset == 240
    assert bench.kafka.committed == {TopicPartition("telemetry", 0): 240}


def test_a_killed_worker_is_continued_from_its_snapshot_without_repeating_an_effect() -> None:
    bench = Bench(snapshot_seconds=3)
    bench.produce(messages(ticks=20))
    worker = bench.worker(0)
    bench.turn(worker, 8)
    bench.produce(messages(start=20, ticks=10, low="m-2"))
    bench.turn(worker, 4, seconds=0.1)
    before = bench.partition()
    assert before.snapshot_offset is not None
    assert before.next_offset is not None
    assert 0 < before.snapshot_offset < before.next_offset
    opened = bench.events()
    assert len(opened) == 1
    again = bench.worker(0, owner="w2")  # the first is never heard of again
    bench.turn(again, 3)
    assert bench.events() == opened
    assert source_of(again).counts["replayed_rows"] > 0
    bench.produce(messages(start=30, ticks=10))
    bench.turn(again, 3)
    assert [event[0] for event in bench.events()] == ["alert.opened", "alert.resolved"]


def _story(bench: Bench, crashes: list[int], idle: list[int]) -> tuple[list[Any], list[Any]]:
    """Two jobs' lives in 24 turns, with a crash in some turns and silence in others."""
    lives = {
        0: (messages("llama", ticks=60) + messages("llama", start=60, ticks=20, low="m-1")),
        1: (messages("qwen", ticks=50, low="m-3") + messages("qwen", start=50, ticks=40)),
    }
    worker = bench.worker(0, 1)
    for turn in range(24):
        for partition, life in lives.items():
            if turn not in idle:
                bench.produce(life[:23], partition, key=b"j%d" % partition)
                del life[:23]
        bench.pass_time(15 if turn in idle else 1)
        if turn in crashes:
            _crash(bench, worker, turn)
            worker = bench.worker(0, 1, owner=f"w{turn}")
        worker.step(0)
    bench.turn(worker, 24, seconds=4)  # catch up, then long enough for the idle time-out
    states = [(s.job, s.ticks, s.watermark_ns, s.run) for s in worker.parts.pipeline.jobs()]
    # Only the order within a job means anything.
    return sorted(bench.events(), key=lambda event: event[1].split("-")[0]), states


def _crash(bench: Bench, worker: Worker, turn: int) -> None:
    """The worker dies at one of the places where it hurts."""

    class Killed(BaseException):
        pass

    def die(*args: object, **options: object) -> None:
        raise Killed

    source: Any = worker.parts.source
    stage = ("prepare", "save", "commit")[turn % 3]
    real = getattr(source, stage)
    setattr(source, stage, die)
    with pytest.raises(Killed):
        worker.step(0)
    setattr(source, stage, real)
    del bench


@cache
def _undisturbed(idle: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    return _story(Bench(snapshot_seconds=1000), [], list(idle))


@settings(max_examples=10, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    crashes=st.lists(st.integers(1, 23), min_size=1, max_size=6, unique=True),
    idle=st.sampled_from([(), (9,), (5, 12, 20)]),
    snapshot_seconds=st.sampled_from([1, 4, 1000]),
)
def test_whenever_it_is_killed_the_outcome_is_that_of_an_undisturbed_run(
    crashes: list[int], idle: tuple[int, ...], snapshot_seconds: int
) -> None:
    expected = _undisturbed(idle)
    assert [event[:2] for event in expected[0]] == [
        ("alert.opened", "llama-m-1"),
        ("alert.opened", "qwen-m-3"),
        ("alert.resolved", "qwen-m-3"),
    ]
    assert _story(Bench(snapshot_seconds=snapshot_seconds), crashes, list(idle)) == expected
