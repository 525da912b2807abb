"""One turn of the worker, stage by stage, and what happens when a stage fails."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from detect.alert import AlertChange
from ingest.samples import Decoded, Rejected
from ingest.ticks import TickBlock
from serve.board import Board
from serve.config import AlertSettings, WorkerSettings
from serve.lifecycle import Applied, Lifecycle
from serve.links import Links
from serve.pump import EventPump
from serve.source import Polled, PushFullError, PushSource
from serve.store.history import HistoryStore
from serve.store.tables import AlertRow, HistoryRow, JobRow, WorkerRow
from serve.worker import Worker
from tests.serve_support import (
    SECOND,
    START_NS,
    HandClock,
    KeptOutbox,
    ListSource,
    ThresholdDetector,
    make_worker,
    rows,
)


@pytest.fixture
def clock() -> HandClock:
    clock = HandClock()
    clock.forward(40)
    return clock


def _alerts(worker: Worker) -> list[AlertRow]:
    with worker.parts.database.read() as session:
        return list(session.scalars(select(AlertRow).order_by(AlertRow.id)))


def _turn(worker: Worker, turns: int = 1) -> None:
    for _ in range(turns):
        worker.step(0)


def _value(worker: Worker, name: str, **labels: str) -> float:
    return worker.parts.metrics.registry.get_sample_value(name, labels) or 0.0


def test_a_fault_in_the_samples_becomes_a_stored_alert_and_a_notice(clock: HandClock) -> None:
    source = ListSource(rows(low="m-2"))
    worker = make_worker(source, clock)
    _turn(worker)
    (alert,) = _alerts(worker)
    assert (alert.machine, alert.status) == ("m-2", "open")
    assert isinstance(worker.parts.outbox, KeptOutbox)
    assert [n.kind for n in worker.parts.outbox.notices] == ["opened"]
    assert source.committed == [1]


def test_nothing_is_committed_before_it_is_stored(clock: HandClock) -> None:
    order: list[str] = []

    class Source(ListSource):
        def save(self, session: Session, pipeline: object, polled: Polled) -> None:
            order.append("save")

        def commit(self, position: int) -> None:
            with worker.parts.database.read() as session:
                order.append(f"commit after {len(session.scalars(select(AlertRow)).all())} alert")

    class Rejects:
        def write(self, rejected: Sequence[Rejected]) -> None:
            order.append("rejects")

    late = Rejected("late", "row 1")
    worker = make_worker(Source(Decoded(rows(low="m-2"), [late])), clock, rejects=Rejects())
    _turn(worker)
    assert order == ["rejects", "save", "commit after 1 alert"]


def test_a_database_that_fails_is_tried_again_with_the_same_changes(clock: HandClock) -> None:
    class Flaky(Lifecycle):
        failures = 2

        def apply(
            self, session: Session, changes: Sequence[AlertChange], *, now_ns: int
        ) -> Applied:
            if self.failures:
                self.failures -= 1
                raise OperationalError("insert", {}, Exception("database is away"))
            return super().apply(session, changes, now_ns=now_ns)

    source = ListSource(rows(low="m-2"))
    worker = make_worker(source, clock, lifecycle=Flaky(AlertSettings(), Links("")))
    _turn(worker)
    assert [a.machine for a in _alerts(worker)] == ["m-2"]
    assert source.committed == [1]
    assert _value(worker, "weaklink_stage_failures_total", stage="store") == 2


def test_stopping_during_a_retry_commits_nothing(clock: HandClock) -> None:
    class Down(Lifecycle):
        def apply(self, *_: object, **__: object) -> Applied:
            raise OperationalError("insert", {}, Exception("database is away"))

    source = ListSource(rows(low="m-2"))
    worker = make_worker(source, clock, lifecycle=Down(AlertSettings(), Links("")))
    worker.start()
    assert worker.stop(10)
    assert source.committed == []
    assert source.closed


def test_a_change_that_cannot_be_stored_does_not_stop_another_job(clock: HandClock) -> None:
    class Choosy(Lifecycle):
        def apply(
            self, session: Session, changes: Sequence[AlertChange], *, now_ns: int
        ) -> Applied:
            if any(c.alert.job == "bad" for c in changes):
                raise ValueError("cannot be stored")
            return super().apply(session, changes, now_ns=now_ns)

    both = pa.concat_tables([rows(job="bad", low="m-1"), rows(job="good", low="m-2")])
    source = ListSource(both)
    worker = make_worker(source, clock, lifecycle=Choosy(AlertSettings(), Links("")))
    _turn(worker)
    assert [a.job for a in _alerts(worker)] == ["good"]
    assert source.committed == [1]
    assert _value(worker, "weaklink_job_failures_total") == 1


def test_a_job_whose_detection_raises_does_not_stop_another_job(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ThresholdDetector, "update", _raising_for("bad"))
    both = pa.concat_tables([rows(job="bad"), rows(job="good", low="m-2")])
    worker = make_worker(ListSource(both, rows(job="bad", start=30, ticks=3)), clock)
    _turn(worker, 2)
    assert [a.job for a in _alerts(worker)] == ["good"]
    assert _value(worker, "weaklink_rejected_total", reason="detector_failed") == 1
    assert _value(worker, "weaklink_rejected_total", reason="quarantined") == 1


def _raising_for(job: str) -> Callable[[ThresholdDetector, TickBlock], list[AlertChange]]:
    original = ThresholdDetector.update

    def update(self: ThresholdDetector, block: TickBlock) -> list[AlertChange]:
        if self.job == job:
            raise RuntimeError("the detector stumbles")
        return original(self, block)

    return update


def test_a_failed_job_begins_anew_after_its_pause(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ThresholdDetector, "update", _raising_for("llama"))
        worker = make_worker(
            ListSource(rows(), rows(start=60, low="m-1"), rows(start=120, low="m-1")), clock
        )
        _turn(worker)
    clock.forward(5)
    _turn(worker)
    assert _alerts(worker) == []
    clock.forward(6)
    _turn(worker)
    assert [a.machine for a in _alerts(worker)] == ["m-1"]


def test_a_poll_that_raises_is_counted_and_the_next_one_goes_on(clock: HandClock) -> None:
    worker = make_worker(ListSource(ConnectionError("away"), rows(low="m-2")), clock)
    _turn(worker, 2)
    assert len(_alerts(worker)) == 1
    assert _value(worker, "weaklink_stage_failures_total", stage="poll") == 1


def test_the_same_batches_again_after_a_crash_change_nothing(clock: HandClock) -> None:
    first = make_worker(ListSource(rows(low="m-2")), clock)
    _turn(first)
    before = [(a.id, a.version, a.status) for a in _alerts(first)]
    again = make_worker(ListSource(rows(low="m-2")), clock, database=first.parts.database)
    _turn(again)
    assert [(a.id, a.version, a.status) for a in _alerts(again)] == before
    assert isinstance(again.parts.outbox, KeptOutbox)
    assert again.parts.outbox.notices == []


def test_alert_changes_are_published_once_and_in_order(clock: HandClock) -> None:
    sent: list[str] = []

    class Publisher:
        failures = 1

        def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
            if self.failures:
                self.failures -= 1
                raise ConnectionError("broker away")
            sent.extend(key for key, _ in messages)

    batches = [rows(low="m-2"), rows(start=30), rows(start=60, low="m-1")]
    worker = make_worker(ListSource(*batches), clock)
    pump = EventPump(worker.parts.database, Publisher())
    object.__setattr__(worker.parts, "pump", pump)
    _turn(worker)
    assert sent == []
    clock.forward(6)
    _turn(worker, 4)
    assert sent == ["llama-m-2", "llama-m-2", "llama-m-1"]
    assert EventPump(worker.parts.database, Publisher()).run() == 0


def test_jobs_and_the_workers_life_stand_in_the_database(clock: HandClock) -> None:
    worker = make_worker(ListSource(rows(machines=5)), clock)
    _turn(worker)
    with worker.parts.database.read() as session:
        job = session.scalars(select(JobRow)).one()
        life = session.scalars(select(WorkerRow)).one()
    assert (job.job, job.worker, len(job.body["machines"])) == ("llama", "w1", 5)
    assert job.body["state"] == "running"
    assert (life.id, life.beat_at_ns, life.body["stopped"]) == ("w1", clock(), False)
    assert _value(worker, "weaklink_machines") == 5


def test_a_job_that_the_pipeline_forgot_is_shown_as_ended(clock: HandClock) -> None:
    worker = make_worker(ListSource(rows()), clock)
    _turn(worker)
    worker.parts.pipeline.drop("llama")
    clock.forward(10)
    _turn(worker)
    with worker.parts.database.read() as session:
        assert session.scalars(select(JobRow)).one().body["state"] == "ended"


def test_history_is_stored_once_and_read_with_its_live_end(clock: HandClock) -> None:
    settings = WorkerSettings(id="w1", history_flush_seconds=1000)
    worker = make_worker(
        ListSource(rows(low="m-2"), rows(start=30, low="m-2")), clock, settings=settings
    )
    _turn(worker)  # stores the first part
    _turn(worker)  # leaves the second one live
    with worker.parts.database.read() as session:
        stored = {r.series for r in session.scalars(select(HistoryRow))}
    assert stored == {"", "gpu_power_watts"}
    only_stored = HistoryStore(worker.parts.database).scores("llama", 0, 1 << 62)
    with_live = HistoryStore(worker.parts.database, worker).scores("llama", 0, 1 << 62)
    assert only_stored is not None
    assert with_live is not None
    assert with_live.scores.shape[1] > only_stored.scores.shape[1] > 0
    assert with_live.scores[2, -1] > 1.1
    band = HistoryStore(worker.parts.database, worker).band(
        "llama", "m-2", "gpu_power_watts", START_NS, START_NS + 50 * SECOND
    )
    assert band is not None
    assert band.value[-1] == pytest.approx(20)
    assert band.median[-1] == pytest.approx(300, rel=1e-3)


def test_memory_holds_only_the_history_that_is_not_stored(clock: HandClock) -> None:
    worker = make_worker(ListSource(rows(low="m-2"), rows(start=30, low="m-2")), clock)
    _turn(worker)
    assert worker.live_scores("llama", 0, 1 << 62) is None
    assert worker.live_metric("llama", "gpu_power_watts", 0, 1 << 62) is None
    before = HistoryStore(worker.parts.database, worker).span("llama")
    _turn(worker)
    after = HistoryStore(worker.parts.database, worker).span("llama")
    assert before is not None
    assert after is not None
    assert after[0] == before[0]
    assert after[1] > before[1]


def test_much_history_is_stored_before_its_time(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.worker.MOST_HISTORY_BYTES", 100)
    settings = WorkerSettings(id="w1", history_flush_seconds=1000)
    source = ListSource(rows(low="m-2"), rows(start=30, low="m-2"))
    worker = make_worker(source, clock, settings=settings)
    _turn(worker)
    _turn(worker)
    assert worker.parts.pipeline.history_bytes == 0
    stored = HistoryStore(worker.parts.database).span("llama")
    assert stored is not None
    assert stored[1] - stored[0] > 40 * SECOND


def test_history_survives_a_failed_flush(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = make_worker(ListSource(rows()), clock)
    original, failures = Board.flush, [OperationalError("x", {}, Exception("away"))]

    def flush(*args: Any, **fields: Any) -> dict[str, int]:
        marks = original(*args, **fields)
        if failures:
            raise failures.pop()
        return marks

    monkeypatch.setattr(Board, "flush", flush)
    _turn(worker)
    grid = HistoryStore(worker.parts.database).scores("llama", 0, 1 << 62)
    assert grid is not None
    assert grid.scores.shape[0] == 4
    assert HistoryStore(worker.parts.database).metrics("llama") == ["gpu_power_watts"]


def test_values_that_were_lost_are_counted_by_reason(clock: HandClock) -> None:
    decoded = Decoded(rows(), counts=Counter({"blank": 7, "of a new kind": 2}))
    worker = make_worker(ListSource(decoded), clock)
    _turn(worker)
    assert _value(worker, "weaklink_rows_total") == 120
    assert _value(worker, "weaklink_lost_values_total", reason="blank") == 7
    assert _value(worker, "weaklink_lost_values_total", reason="other") == 2


def test_a_stopped_worker_says_so_and_closes_its_source(clock: HandClock) -> None:
    source = ListSource(rows())
    worker = make_worker(source, clock)
    worker.start()
    deadline = threading.Event()
    while not source.committed and not deadline.wait(0.01):
        pass
    assert worker.stop(10)
    assert source.closed
    assert not worker.running
    with worker.parts.database.read() as session:
        assert session.scalars(select(WorkerRow)).one().body["stopped"] is True


def test_open_alerts_stay_open_when_the_worker_stops(clock: HandClock) -> None:
    source = ListSource(rows(low="m-2"))
    worker = make_worker(source, clock)
    _turn(worker)
    worker.start()
    assert worker.stop(10)
    assert [a.status for a in _alerts(worker)] == ["open"]


def test_a_full_push_queue_refuses_and_takes_nothing() -> None:
    source = PushSource(limit_rows=200)
    source.offer(Decoded(rows()))
    with pytest.raises(PushFullError) as refused:
        source.offer(Decoded(rows()))
    assert refused.value.retry_after_seconds > 0
    assert source.waiting_rows == 120
    assert source.poll(0).decoded.samples.num_rows == 120
    assert source.waiting_rows == 0


def test_one_batch_larger_than_the_queue_is_taken_when_it_is_empty() -> None:
    source = PushSource(limit_rows=10)
    source.offer(Decoded(rows()))
    assert source.poll(0).decoded.samples.num_rows == 120


def test_pushed_batches_with_different_columns_are_joined() -> None:
    source = PushSource()
    source.offer(Decoded(rows(ticks=1)))
    source.offer(Decoded(rows(ticks=1).rename_columns(["ts", "job", "machine", "gpu", "x"])))
    table = source.poll(0).decoded.samples
    assert table.num_rows == 8
    assert table["x"].null_count == 4
