"""The source against Kafka in memory: exactly-once effect whatever breaks when."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import orjson
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.structs import MemberState
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError

from detect.alert import AlertChange
from detect.detector import State
from detect.pipeline import DetectorFactory, Pipeline, PipelineSettings
from ingest.align import AlignSettings
from ingest.samples import Rejected
from ingest.ticks import TickBlock
from serve.config import WorkerSettings
from serve.kafka.settings import KafkaSettings
from serve.kafka.source import KafkaSource
from serve.kafka.tables import JobStateRow, PartitionRow
from serve.source import StepLostError
from serve.store.tables import EventRow
from serve.worker import Worker
from tests.kafka_fakes import FakeConsumer, FakeKafka
from tests.kafka_worker import CATALOGUE, make_decoder
from tests.serve_support import (
    SECOND,
    START_NS,
    HandClock,
    KeptOutbox,
    ThresholdDetector,
    make_worker,
    memory_database,
    rows,
)

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

    def __init__(
        self,
        make_detector: DetectorFactory = ThresholdDetector,
        idle_seconds: float = 10.0,
        **changes: Any,
    ):
        self.make_detector = make_detector
        self.align = AlignSettings(idle_seconds=idle_seconds)
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
        worker = make_worker(
            source,
            self.clock,
            database=self.database,
            settings=settings,
            pipeline=Pipeline(CATALOGUE, self.make_detector, PipelineSettings(align=self.align)),
        )
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


class EveryTick(ThresholdDetector):
    """Remembers all that it was ever given, to the last bit, however it was cut into blocks."""

    digest = ""

    def update(self, block: TickBlock) -> list[AlertChange]:
        """See `JobDetector`."""
        values = block.machine_panel.values
        for tick in range(block.ticks):
            seen = hashlib.sha256(self.digest.encode())
            seen.update(repr((block.start_ns + tick * block.tick_ns, block.machines)).encode())
            seen.update(values[:, :, tick].tobytes())
            self.digest = seen.hexdigest()
        return super().update(block)

    def snapshot(self) -> State:
        """See `JobDetector`."""
        return {**super().snapshot(), "digest": self.digest}

    def restore(self, state: State) -> None:
        """See `JobDetector`."""
        super().restore(state)
        self.digest = state["digest"]


def _story_bench(snapshot_seconds: int) -> Bench:
    return Bench(EveryTick, snapshot_seconds=snapshot_seconds, poll_messages=200)


def _story(
    bench: Bench, crashes: Collection[int], silences: Mapping[int, int]
) -> tuple[list[Any], list[Any]]:
    """Two jobs' lives in 24 turns, some after so many seconds in which nobody sends anything.

    ``crashes``: steps of a second in which the worker dies. Most turns end in the middle of a
    tick.
    """
    lives = {
        0: (messages("llama", ticks=60) + messages("llama", start=60, ticks=20, low="m-1")),
        1: (messages("qwen", ticks=50, low="m-3") + messages("qwen", start=50, ticks=40)),
    }
    worker, step = bench.worker(0, 1), 0
    for turn in range(24):
        for left in reversed(range(silences.get(turn, 0) + 1)):
            for partition, life in lives.items():
                if not left:
                    bench.produce(life[:23], partition, key=b"j%d" % partition)
                    del life[:23]
            bench.pass_time(1)
            step += 1
            if step in crashes:
                _crash(bench, worker, step)
                worker = bench.worker(0, 1, owner=f"w{step}")
            worker.step(0)
    bench.turn(worker, 24, seconds=4)  # catch up, then long enough for the idle time-out
    pipeline = worker.parts.pipeline
    states: list[Any] = []
    for s in pipeline.jobs():
        tree = pipeline.snapshot(s.job)
        ledger = tree["aligner"]["intake"]["ledger"]["counters"]
        states.append((s.job, s.ticks, s.watermark_ns, s.run, ledger, tree["detector"]))
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
def _undisturbed(silences: tuple[tuple[int, int], ...]) -> tuple[list[Any], list[Any]]:
    return _story(_story_bench(1000), [], dict(silences))


SHORTER = ((5, 9), (11, 9))
LONGER = ((5, 60), (11, 60))
"""Than the idle time, and what workers that take over miss of it while they read again."""


@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    crashes=st.sets(st.integers(1, 144), min_size=1, max_size=6),
    silences=st.sampled_from([(), SHORTER, LONGER]),
    snapshot_seconds=st.sampled_from([1, 4, 1000]),
)
def test_whenever_it_is_killed_the_outcome_is_that_of_an_undisturbed_run(
    crashes: set[int], silences: tuple[tuple[int, int], ...], snapshot_seconds: int
) -> None:
    expected = _undisturbed(silences)
    assert [event[:2] for event in expected[0]] == [
        ("alert.opened", "llama-m-1"),
        ("alert.opened", "qwen-m-3"),
        ("alert.resolved", "qwen-m-3"),
    ]
    bench = _story_bench(snapshot_seconds)
    assert _story(bench, crashes, dict(silences)) == expected


def test_silence_shorter_than_the_idle_time_changes_no_bit() -> None:
    assert _undisturbed(SHORTER) == _undisturbed(())
    assert _undisturbed(LONGER) != _undisturbed(())  # ticks were closed without their last rows


@pytest.mark.parametrize("snapshot_seconds", [1, 4])
@pytest.mark.parametrize("crash", range(17, 23))
def test_ticks_that_were_closed_because_of_silence_stay_closed_after_a_crash(
    crash: int, snapshot_seconds: int
) -> None:
    bench = _story_bench(snapshot_seconds)
    silence = ((5, 15),)  # rows come again soon after the ticks were closed
    assert _story(bench, {crash}, dict(silence)) == _undisturbed(silence)


def test_what_brokers_bring_after_they_were_away_is_not_late() -> None:
    bench = Bench(idle_seconds=30)
    life = messages(ticks=30)
    bench.produce(life[:79])  # in the middle of a tick
    worker = bench.worker(0)
    bench.turn(worker, 4)
    bench.kafka.down = True
    bench.turn(worker, 120)
    bench.kafka.down = False
    bench.turn(worker, 10)  # producers find their new leaders later than we do
    bench.produce(life[79:])
    bench.turn(worker, 10)
    pipeline = worker.parts.pipeline
    counters = pipeline.snapshot("llama")["aligner"]["intake"]["ledger"]["counters"]
    assert (counters["rows"], counters["late"]) == (120, 0)


def test_a_partition_that_moves_takes_its_jobs_along() -> None:
    bench = Bench(snapshot_seconds=1000)
    bench.produce(messages("llama", ticks=20), 0)
    bench.produce(messages("qwen", ticks=20), 1)
    first = bench.worker(0, 1, owner="w1")
    bench.turn(first, 6)
    consumer_of(bench).move(1)
    bench.turn(first)
    assert [state.job for state in first.parts.pipeline.jobs()] == ["qwen"]
    assert bench.states() == ["llama"]  # handed over with a snapshot, so nothing is read again
    second = bench.worker(0, owner="w2")
    bench.produce(messages("llama", start=20, ticks=10, low="m-1"), 0)
    bench.turn(second, 3)
    assert source_of(second).counts["replayed_rows"] == 0
    assert [event[:2] for event in bench.events()] == [("alert.opened", "llama-m-1")]
    (state,) = second.parts.pipeline.jobs()
    assert (state.job, state.ticks, state.run) == ("llama", 26, 0)


def test_an_eager_rebalance_gives_everything_back_and_takes_it_again() -> None:
    bench = Bench(snapshot_seconds=1000)
    bench.produce(messages(ticks=20))
    worker = bench.worker(0)
    bench.turn(worker, 3)
    consumer_of(bench).move(0, how="eager")
    bench.produce(messages(start=20, ticks=10, low="m-1"))
    bench.turn(worker, 4)
    (state,) = worker.parts.pipeline.jobs()
    assert (state.ticks, state.run) == (26, 0)
    assert [event[:2] for event in bench.events()] == [("alert.opened", "llama-m-1")]
    assert bench.partition().epoch == 2


def test_partitions_lost_without_notice_are_dropped_and_not_stored() -> None:
    bench = Bench(snapshot_seconds=1000)
    bench.produce(messages(ticks=20))
    worker = bench.worker(0)
    bench.turn(worker, 3)
    consumer_of(bench).move(how="lost")
    bench.turn(worker)
    assert worker.parts.pipeline.jobs() == []
    assert bench.states() == []


def test_a_worker_that_was_superseded_stores_nothing_more() -> None:
    bench = Bench(snapshot_seconds=1000)
    bench.produce(messages(ticks=20))
    zombie = bench.worker(0, owner="zombie")
    bench.turn(zombie, 3)
    kept = bench.kafka.consumers[-1]
    heir = bench.worker(0, owner="heir")
    bench.turn(heir, 3)
    bench.produce(messages(start=20, ticks=10, low="m-1"))
    with pytest.raises(StepLostError):
        bench.turn(zombie)
    bench.turn(zombie)
    assert bench.events() == []
    assert zombie.parts.pipeline.jobs() == []
    assert source_of(zombie).health().detail["partitions"][0]["stage"] == "fenced"
    bench.turn(heir, 2)
    assert [event[:2] for event in bench.events()] == [("alert.opened", "llama-m-1")]
    kept.move(how="lost")
    bench.turn(zombie)
    assert source_of(zombie).health().problem == ""


def test_what_retention_deleted_before_it_was_read_is_counted_and_the_rest_goes_on() -> None:
    bench = Bench(snapshot_seconds=1000)
    bench.produce(messages(ticks=20))
    bench.turn(bench.worker(0), 3)
    bench.produce(messages(start=20, ticks=40))
    bench.kafka.delete_before(0, 100)
    worker = bench.worker(0)
    bench.turn(worker, 6)
    assert source_of(worker).counts["lost_messages"] == 20
    assert bench.partition().next_offset == 240


def test_a_topic_made_anew_is_read_from_its_beginning() -> None:
    bench = Bench(snapshot_seconds=1)
    bench.produce(messages(ticks=60))
    bench.turn(bench.worker(0), 8)
    assert bench.states() == ["llama"]
    del bench.kafka.logs[0]
    bench.kafka.topic_id = "two"
    bench.produce(messages("qwen", ticks=30))
    worker = bench.worker(0)
    bench.turn(worker, 4)
    assert source_of(worker).counts["topics_made_anew"] == 1
    assert [state.job for state in worker.parts.pipeline.jobs()] == ["qwen"]
    assert bench.partition().next_offset == 120


def test_a_partition_cut_short_by_its_brokers_is_read_on_from_its_end() -> None:
    bench = Bench(snapshot_seconds=1000)
    bench.produce(messages(ticks=30))
    bench.turn(bench.worker(0), 4)
    del bench.kafka.logs[0][100:]
    worker = bench.worker(0)
    bench.turn(worker, 4)
    bench.produce(messages(start=30, ticks=10, low="m-0"))
    bench.turn(worker, 3)
    assert source_of(worker).counts["truncations"] == 1
    assert bench.partition().next_offset == 140
    assert [event[:2] for event in bench.events()] == [("alert.opened", "llama-m-0")]


def test_a_state_that_cannot_be_read_costs_its_job_only() -> None:
    bench = Bench(snapshot_seconds=1)
    bench.produce(messages("llama", ticks=20), 0)
    bench.produce(messages("qwen", ticks=20), 0)
    bench.turn(bench.worker(0), 8)
    assert bench.states() == ["llama", "qwen"]
    with bench.database.write() as session:
        session.execute(update(JobStateRow).where(JobStateRow.job == "qwen").values(state=b"?"))
    worker = bench.worker(0)
    bench.turn(worker)
    assert source_of(worker).counts["cold_starts"] == 1
    assert [state.job for state in worker.parts.pipeline.jobs()] == ["llama"]


def test_brokers_that_are_away_at_the_start_are_waited_for() -> None:
    bench = Bench()
    bench.kafka.down = True
    worker = bench.worker()
    health = source_of(worker).health()
    assert not health.connected
    assert "no broker answers" in health.problem
    bench.kafka.down = False
    bench.turn(worker, 2, seconds=5)
    assert source_of(worker).health().connected


def test_a_problem_is_over_when_every_partition_brings_messages_again() -> None:
    bench = Bench(poll_messages=8)
    bench.produce(messages(ticks=20))
    worker = bench.worker(0)
    bench.kafka.down = True
    bench.turn(worker)
    assert not source_of(worker).health().connected
    bench.kafka.down = False
    bench.turn(worker, seconds=0.1)  # not yet time to ask where it ends
    health = source_of(worker).health()
    assert (health.connected, health.problem) == (True, "")


def test_a_worker_without_partitions_tells_that_kafka_is_away() -> None:
    bench = Bench()
    worker = bench.worker()
    assert source_of(worker).health().connected
    bench.kafka.down = True
    bench.turn(worker, seconds=5)
    assert not source_of(worker).health().connected
    bench.kafka.down = False
    bench.turn(worker, seconds=5)
    assert source_of(worker).health().connected


def test_a_worker_that_the_group_has_not_taken_in_says_so() -> None:
    bench = Bench()
    worker = bench.worker()
    consumer_of(bench).state = MemberState.REBALANCING
    bench.turn(worker)
    health = source_of(worker).health()
    assert (health.connected, health.problem) == (True, "joining the group weaklink")
    bench.turn(worker, seconds=60)
    assert not source_of(worker).health().connected
    consumer_of(bench).state = MemberState.STABLE
    bench.turn(worker)
    health = source_of(worker).health()
    assert (health.connected, health.problem) == (True, "")


def test_a_client_in_disorder_is_replaced_by_a_new_one() -> None:
    bench = Bench()
    bench.produce(messages(ticks=20))
    worker = bench.worker(0)
    consumer_of(bench).broken = RuntimeError("the event loop has crashed")
    bench.turn(worker)
    assert "crashed" in source_of(worker).health().problem
    assert consumer_of(bench).closed
    bench.turn(worker, seconds=5)
    assert len(bench.kafka.consumers) == 2
    consumer_of(bench).move(0)
    bench.turn(worker, 3)
    assert bench.partition().next_offset == 80


def test_messages_that_came_while_another_partition_s_take_over_failed_are_not_lost() -> None:
    bench = Bench()
    worker = bench.worker(0)
    bench.produce(messages(ticks=10))
    consumer_of(bench).move(0, 1)
    consumer_of(bench).deaf = True
    bench.turn(worker)
    consumer_of(bench).deaf = False
    bench.turn(worker, 2)
    assert worker.parts.metrics.rows._value.get() == 40
    assert bench.partition(1).epoch == 1


def test_silence_because_kafka_is_away_says_nothing_about_the_machines() -> None:
    bench = Bench()
    bench.produce(messages(ticks=20))
    worker = bench.worker(0)
    bench.turn(worker, 3)
    bench.kafka.down = True
    bench.turn(worker, 10, seconds=10)
    (state,) = worker.parts.pipeline.jobs()
    assert state.ticks == 16
    assert worker.parts.pipeline.held == {"llama"}
    assert not source_of(worker).health().connected
    bench.kafka.down = False
    bench.turn(worker, 6, seconds=10)
    (state,) = worker.parts.pipeline.jobs()
    assert state.ticks == 20  # now the source is idle indeed, and the last ticks are closed


def test_a_database_that_is_away_stops_a_take_over_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    bench.produce(messages(ticks=20))
    worker = bench.worker()
    consumer_of(bench).move(0)
    source = source_of(worker)

    def away(*args: object, **options: object) -> None:
        raise OperationalError("select", {}, Exception("connection refused"))

    with monkeypatch.context() as patched:
        patched.setattr("serve.kafka.start.claim", away)
        bench.turn(worker, 3)
        assert "checkpoint" in source.health().problem
    bench.turn(worker, 3)
    assert source.health().problem == ""
    assert bench.partition().next_offset == 80


def test_the_wall_clock_waits_while_old_messages_are_read() -> None:
    bench = Bench(poll_messages=8)
    bench.produce(messages(ticks=20))
    bench.pass_time(3600)
    worker = bench.worker(0)
    bench.turn(worker, 3)
    assert worker.parts.pipeline.held == {"llama"}
    health = source_of(worker).health()
    assert health.lag_messages == 80 - 24
    assert health.lag_seconds is not None
    assert health.lag_seconds > 3600
    bench.turn(worker, 8)
    assert worker.parts.pipeline.held == set()
    assert source_of(worker).health().lag_seconds == 0


def test_what_was_over_before_it_caught_up_is_stored_and_nobody_is_told() -> None:
    bench = Bench()
    bench.produce(messages(ticks=20) + messages(start=20, ticks=10, low="m-1"))
    bench.produce(messages(start=30, ticks=10))
    bench.pass_time(7200)
    worker = bench.worker(0)
    outbox = worker.parts.outbox
    assert isinstance(outbox, KeptOutbox)
    bench.turn(worker, 8)
    assert [event[0] for event in bench.events()] == ["alert.opened", "alert.resolved"]
    assert outbox.notices == []


def test_what_is_still_wrong_when_it_has_caught_up_is_told() -> None:
    bench = Bench()
    bench.produce(messages(ticks=20) + messages(start=20, ticks=10, low="m-1"))
    bench.pass_time(7200)
    worker = bench.worker(0)
    outbox = worker.parts.outbox
    assert isinstance(outbox, KeptOutbox)
    bench.turn(worker, 4)
    assert outbox.notices == []
    now = int(bench.clock.now_ns - START_NS) // SECOND
    for second in range(now, now + 12):
        bench.produce(messages(start=second, ticks=1, low="m-1"))
        bench.turn(worker)
    assert [notice.kind for notice in outbox.notices] == ["opened"]


def test_a_group_without_offsets_may_begin_with_the_newest() -> None:
    bench = Bench(start="latest")
    bench.produce(messages(ticks=20))
    worker = bench.worker(0)
    bench.produce(messages(start=20, ticks=5))
    bench.turn(worker, 2)
    assert bench.partition().next_offset == 100
    assert worker.parts.metrics.rows._value.get() == 20


def test_offsets_committed_by_the_group_count_where_no_checkpoint_does() -> None:
    bench = Bench()
    bench.produce(messages(ticks=20))
    bench.kafka.committed[TopicPartition("telemetry", 0)] = 60
    worker = bench.worker(0)
    bench.turn(worker, 2)
    assert worker.parts.metrics.rows._value.get() == 20


def test_states_of_jobs_that_ended_are_deleted() -> None:
    bench = Bench(snapshot_seconds=1)
    bench.produce(messages(ticks=20))
    worker = bench.worker(0)
    bench.turn(worker, 5)
    assert bench.states() == ["llama"]
    for _ in range(80):
        bench.turn(worker, 1, seconds=60)
    assert worker.parts.pipeline.jobs() == []
    assert bench.states() == []


def test_a_stop_leaves_a_snapshot_and_the_committed_offset() -> None:
    bench = Bench(snapshot_seconds=1000, commit_interval_seconds=1000)
    bench.produce(messages(ticks=20))
    worker = bench.worker(0)
    bench.turn(worker, 4)
    source_of(worker).close()
    assert bench.states() == ["llama"]
    assert bench.kafka.committed == {TopicPartition("telemetry", 0): 80}
    assert consumer_of(bench).closed


def test_a_stop_in_the_middle_of_a_turn_leaves_no_snapshot_of_what_is_not_stored() -> None:
    bench = Bench(snapshot_seconds=1000)
    bench.produce(messages(ticks=20))
    worker = bench.worker(0)
    source = source_of(worker)
    bench.turn(worker, 1)
    source.prepare(worker.parts.pipeline, source.poll(0))
    source.close()
    assert bench.states() == []


def test_a_poison_message_is_rejected_with_its_origin_and_its_neighbours_are_not() -> None:
    bench = Bench()
    good = messages(ticks=5)
    bench.produce([*good[:7], b"{poison", *good[7:]])
    bench.kafka.put(0, b"\x00\x01", headers=(("content-type", b"application/x-unheard-of"),))
    bench.kafka.put(0, None)
    kept: list[Rejected] = []

    class Sink:
        def write(self, rejected: Sequence[Rejected]) -> None:
            kept.extend(rejected)

    worker = bench.worker(0)
    worker.parts = replace(worker.parts, rejects=Sink())
    bench.turn(worker, 3)
    assert {(r.reason, r.origin, r.payload) for r in kept} == {
        ("undecodable", "telemetry/0/7", b"{poison"),
        ("unknown_format", "telemetry/0/21", b"\x00\x01"),
        ("empty", "telemetry/0/22", None),
    }
    assert worker.parts.metrics.rows._value.get() == 20
    assert bench.partition().next_offset == 23


def test_a_job_that_floods_does_not_stop_its_neighbour() -> None:
    bench = Bench(job_messages_per_second=50, poll_messages=1000)
    bench.produce(messages("flood", ticks=100), key=b"flood")
    for second in range(30):
        bench.produce(messages("llama", start=second, ticks=1), key=b"llama")
        bench.clock.forward(1)
    worker = bench.worker(0)
    bench.turn(worker, 2)
    jobs = {state.job: state for state in worker.parts.pipeline.jobs()}
    assert jobs["llama"].ticks == 26
    assert worker.parts.metrics.rows._value.get() == 50 + 120
    refused = worker.parts.metrics.rejected.labels(reason="flood")._value.get()
    assert refused == 400 - 50
