"""The store on SQLite and on a real PostgreSQL: schema, transactions, retention, order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import func, inspect, select, text

import serve.kafka.tables
import serve.notify.tables
import serve.store.tables  # noqa: F401 - all tables must be known
from detect.detector import ScoreFrame
from serve.config import AlertSettings, RetentionSettings
from serve.lifecycle import Lifecycle, find_alert
from serve.links import Links
from serve.metrics import Metrics
from serve.notice import Notice
from serve.pump import EventPump
from serve.silences import NewSilence, add_silence
from serve.store.base import Base, Database, DatabaseError
from serve.store.events import append_event, events_after
from serve.store.history import HistoryStore, store_scores
from serve.store.retention import measure, sweep
from serve.store.tables import (
    AlertMachineRow,
    AlertRow,
    EventRow,
    FeedbackRow,
    HistoryRow,
    JobRow,
    WorkerRow,
)
from serve.tokens import create_token
from serve.worker import Worker
from tests.serve_support import (
    SECOND,
    START_NS,
    HandClock,
    KeptOutbox,
    ListSource,
    change,
    make_alert,
    make_worker,
    rows,
)

KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
DAY = 86_400


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=KINDS)
def database(
    request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock
) -> Iterator[Database]:
    """A fresh database of each kind."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'test.db'}"
    else:
        url = request.getfixturevalue("postgres_url")
    database = Database(url, clock=clock)
    database.migrate()
    yield database
    database.close()


def test_the_migrated_schema_is_the_declared_one(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Base.metadata) == []


def test_migrating_again_changes_nothing(database: Database) -> None:
    before = sorted(inspect(database.engine).get_table_names())
    database.migrate()
    assert sorted(inspect(database.engine).get_table_names()) == before


def test_a_failed_transaction_leaves_nothing(database: Database) -> None:
    def fail() -> None:
        with database.write() as session:
            append_event(session, "x", {}, at_ns=1)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        fail()
    with database.read() as session:
        assert events_after(session, 0) == []


def test_events_of_many_writers_become_visible_in_the_order_of_their_ids(
    database: Database,
) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []
    seen: list[int] = []

    def write() -> None:
        try:
            for k in range(25):
                with database.write() as session:
                    append_event(session, "x", {"k": k}, at_ns=k)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    def follow() -> None:
        while not (stop.is_set() and len(seen) >= 100):
            with database.read() as session:
                new = [e.id for e in events_after(session, seen[-1] if seen else 0)]
            seen.extend(new)
            if stop.is_set() and not new:
                return

    reader = threading.Thread(target=follow)
    writers = [threading.Thread(target=write) for _ in range(4)]
    reader.start()
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert errors == []
    assert len(seen) == 100
    assert seen == sorted(seen)


def test_an_alerts_whole_life_is_the_same_on_both(database: Database, clock: HandClock) -> None:
    life = Lifecycle(AlertSettings(), Links("http://wl"))
    with database.write() as session:
        life.apply(session, [change("opened", make_alert())], now_ns=clock())
        life.apply(session, [change("opened", make_alert(id="other"))], now_ns=clock())
    with database.write() as session:
        life.acknowledge(session, "llama-m-3", by="ann", now_ns=clock())
        life.feedback(
            session, "other", verdict="right", machine=None, note="", by="ann", now_ns=clock()
        )
    later = change("resolved", make_alert(), START_NS + 60 * SECOND)
    with database.write() as session:
        life.apply(session, [later], now_ns=clock())
    clock.forward(300)
    with database.write() as session:
        (notice,) = life.pass_time(session, now_ns=clock()).notices
    assert (notice.kind, notice.sequence) == ("resolved", 3)
    with database.read() as session:
        assert find_alert(session, "other").status == "resolved"
        kinds = [e.kind for e in events_after(session, 0)]
    assert kinds == ["alert.opened", "alert.acknowledged", "alert.feedback", "alert.resolved"]


def test_a_worker_works_on_both(database: Database, clock: HandClock) -> None:
    clock.forward(40)
    worker = make_worker(ListSource(rows(low="m-2"), rows(start=30)), clock, database=database)
    for _ in range(3):
        worker.step(0)
        clock.forward(10)
    with database.read() as session:
        (alert,) = session.scalars(select(AlertRow))
        assert (alert.machine, alert.status) == ("m-2", "resolved")
        assert session.scalars(select(JobRow)).one().job == "llama"
    assert HistoryStore(database).metrics("llama") == ["gpu_power_watts"]


def test_two_workers_on_one_database_count_an_alert_once(
    database: Database, clock: HandClock
) -> None:
    clock.forward(40)
    workers = [make_worker(ListSource(rows(low="m-2")), clock, database=database) for _ in range(2)]
    threads = [threading.Thread(target=worker.step, args=(0,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    notices = [n for w in workers for n in _notices(w)]
    assert [n.key for n in notices] == ["llama-m-2"]
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(AlertRow)) == 1


def _notices(worker: Worker) -> list[Notice]:
    assert isinstance(worker.parts.outbox, KeptOutbox)
    return list(worker.parts.outbox.notices)


def test_two_pumps_publish_each_event_once(database: Database) -> None:
    sent: list[str] = []
    lock = threading.Lock()

    class Publisher:
        def publish(self, messages: object) -> None:
            with lock:
                sent.extend(key for key, _ in messages)  # type: ignore[attr-defined]

    with database.write() as session:
        for k in range(40):
            append_event(session, "alert.opened", {"version": 1}, at_ns=k, alert_id=f"a{k}")
        append_event(session, "alert.feedback", {}, at_ns=99, alert_id="a1")
    if database.is_sqlite:
        assert EventPump(database, Publisher()).run() == 40
    else:
        pumps = [EventPump(database, Publisher()) for _ in range(3)]
        threads = [threading.Thread(target=pump.run, args=(15,)) for pump in pumps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while pumps[0].run(15):
            pass
    assert sent == [f"a{k}" for k in range(40)]


def test_retention_keeps_what_is_young_and_removes_what_is_old(
    database: Database, clock: HandClock
) -> None:
    _fill(database, clock)
    clock.forward(400 * DAY)
    with database.write() as session:
        append_event(session, "young", {}, at_ns=clock())
    kept = RetentionSettings(feedback_days=500)
    deleted = sweep(database, kept)
    with database.read() as session:
        counts = {
            table.__tablename__: session.scalar(select(func.count()).select_from(table))
            for table in _FILLED
        }
        assert [e.kind for e in session.scalars(select(EventRow))] == ["young"]
    assert counts == {
        "alerts": 0,
        "alert_machines": 0,
        "events": 1,
        "feedback": 1,
        "history": 0,
        "jobs": 0,
        "workers": 0,
    }
    assert deleted["alerts"] == 1
    assert sum(sweep(database, kept).values()) == 0


_FILLED = (AlertRow, AlertMachineRow, EventRow, FeedbackRow, HistoryRow, JobRow, WorkerRow)


def _fill(database: Database, clock: HandClock) -> None:
    life = Lifecycle(AlertSettings(), Links(""))
    with database.write() as session:
        life.apply(session, [change("opened", make_alert())], now_ns=clock())
        life.feedback(
            session, "llama-m-3", verdict="right", machine=None, note="", by="a", now_ns=clock()
        )
        add_silence(
            session,
            NewSilence("silence", "*", "*", clock(), clock() + SECOND, "", ""),
            now_ns=clock(),
        )
        create_token(session, "t", ["read"], now_ns=clock(), expires_at_ns=clock() + SECOND)
        session.add(JobRow(job="j", worker="w", body={}, updated_at_ns=clock()))
        session.add(WorkerRow(id="w", started_at_ns=clock(), beat_at_ns=clock(), body={}))
        store_scores(session, "llama", [_frame(0)], now_ns=clock())


def _frame(at: int) -> ScoreFrame:
    scores = np.zeros((2, 10), np.float32)
    return ScoreFrame(START_NS + at * SECOND, SECOND, ("a", "b"), scores, "steady")


def test_nothing_young_is_removed(database: Database, clock: HandClock) -> None:
    _fill(database, clock)
    assert sum(sweep(database, RetentionSettings()).values()) == 0


def test_history_around_an_alert_is_kept_as_long_as_the_alert(
    database: Database, clock: HandClock
) -> None:
    life = Lifecycle(AlertSettings(), Links(""))
    with database.write() as session:
        life.apply(session, [change("opened", make_alert())], now_ns=clock())
        for job, at in (("llama", 0), ("llama", 7200), ("other", 0)):
            store_scores(session, job, [_frame(at)], now_ns=clock())
    clock.forward(10 * DAY)
    assert sweep(database, RetentionSettings())["history"] == 2
    grid = HistoryStore(database).scores("llama", 0, 1 << 62)
    assert grid is not None
    assert grid.start_ns == START_NS


def test_history_beyond_its_bytes_goes_oldest_first(database: Database, clock: HandClock) -> None:
    with database.write() as session:
        for k in range(20):
            session.add(
                HistoryRow(
                    job="j",
                    series="x",
                    start_ns=k,
                    end_ns=k + 1,
                    written_at_ns=clock(),
                    size_bytes=1 << 18,
                    data=b"",
                )
            )
    assert sweep(database, RetentionSettings(history_bytes=1 << 20))["history"] == 16
    with database.read() as session:
        assert list(session.scalars(select(HistoryRow.start_ns))) == [16, 17, 18, 19]


def test_ids_of_events_are_never_given_twice(database: Database, clock: HandClock) -> None:
    with database.write() as session:
        append_event(session, "x", {}, at_ns=clock())
    clock.forward(100 * DAY)
    sweep(database, RetentionSettings())
    with database.write() as session:
        append_event(session, "y", {}, at_ns=clock())
    with database.read() as session:
        assert session.scalars(select(EventRow)).one().id == 2


def test_what_is_stored_is_measured(database: Database, clock: HandClock) -> None:
    _fill(database, clock)
    metrics = Metrics()
    measure(database, metrics)
    value = metrics.registry.get_sample_value
    assert value("weaklink_alerts", {"status": "open"}) == 1
    assert value("weaklink_alerts", {"status": "resolved"}) == 0
    assert value("weaklink_store_rows", {"table": "jobs"}) == 1
    assert (value("weaklink_history_bytes") or 0) > 0


@pytest.mark.postgres
def test_starting_several_processes_at_once_migrates_once(postgres_url: str) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        database = Database(postgres_url, clock=HandClock())
        try:
            database.migrate()
        except Exception as error:  # noqa: BLE001
            errors.append(error)
        finally:
            database.close()

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_an_unreachable_database_is_one_line_without_the_password() -> None:
    database = Database("postgresql://ann:secret@127.0.0.1:1/none", clock=HandClock())
    with pytest.raises(DatabaseError) as refused:
        database.ping()
    assert "\n" not in str(refused.value)
    assert "127.0.0.1:1" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["mysql://h/d", "nonsense", "sqlite+nothing:///x", ""])
def test_an_unusable_url_is_refused(url: str) -> None:
    with pytest.raises(DatabaseError):
        Database(url, clock=HandClock())


def test_sqlite_keeps_a_write_ahead_log_and_checks_keys(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'x.db'}", clock=HandClock())
    with database.read() as session:
        assert session.scalar(text("PRAGMA journal_mode")) == "wal"
        assert session.scalar(text("PRAGMA foreign_keys")) == 1
    database.close()


def test_readers_of_sqlite_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'x.db'}", clock=HandClock())
    database.migrate()
    with database.write() as writer:
        append_event(writer, "x", {}, at_ns=1)
        with database.read() as reader:
            assert events_after(reader, 0) == []
    with database.read() as reader:
        assert len(events_after(reader, 0)) == 1
    database.close()


def test_migrations_stand_in_one_line() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "serve/store/migrations")
    script = ScriptDirectory.from_config(config)
    assert len(script.get_heads()) == 1
    assert script.get_base() == "0001"
