"""The outbox and the dispatcher, with time moved by hand and receivers made to order."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import create_engine, func, select, text
from sqlalchemy.engine import URL

from serve.notice import NoticeKind
from serve.notify.dispatcher import Dispatcher
from serve.notify.events import NotifyEvents
from serve.notify.lanes import Outcome, claim
from serve.notify.outbox import (
    NotifyOutbox,
    backlog,
    dead,
    give_up_unknown,
    prune,
    receivers,
    replay,
)
from serve.notify.result import Delivered, GaveUp, Retry
from serve.notify.tables import LaneRow, OutboxAttemptRow, OutboxRow, ReceiverRow
from serve.silences import NewSilence, add_silence
from serve.store.base import Base, Clock, Database
from tests.notify_support import (
    FakeReceiver,
    enqueue,
    fake,
    make_dispatcher,
    make_notice,
    settings_of,
)
from tests.serve_support import SECOND, HandClock, memory_database

DAY = 86_400


@pytest.fixture
def clock() -> HandClock:
    clock = HandClock()
    clock.forward(2)
    return clock


@pytest.fixture(scope="module")
def shared_postgres(postgres_server: URL) -> Iterator[str]:
    """One migrated database for all tests here: a new one for each takes longer than they do."""
    name = f"weaklink_{uuid.uuid4().hex[:12]}"
    admin = create_engine(postgres_server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    url = postgres_server.set(database=name).render_as_string(hide_password=False)
    migrated(url, time.time_ns).close()
    yield url
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def postgres(shared_postgres: str, clock: HandClock) -> Iterator[Database]:
    database = Database(shared_postgres, clock=clock)
    with database.write() as session:
        names = ", ".join(t.name for t in Base.metadata.sorted_tables)
        session.execute(text(f"TRUNCATE {names}"))
    yield database
    database.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, clock: HandClock) -> Database:
    if request.param == "sqlite":
        return memory_database(clock)
    found = request.getfixturevalue("postgres")
    assert isinstance(found, Database)
    return found


SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""For the long ones: what they show does not depend on the database."""


def migrated(url: str, clock: Clock) -> Database:
    database = Database(url, clock=clock)
    database.migrate()
    return database


def states(database: Database) -> dict[str, str]:
    """State by ``receiver key:sequence``."""
    with database.read() as session:
        rows = session.scalars(select(OutboxRow).order_by(OutboxRow.id))
        return {f"{r.receiver} {r.key}:{r.sequence}": r.state for r in rows}


def kinds(receiver: FakeReceiver) -> list[str]:
    return [note.kind for note in receiver.told]


# Enqueue


def test_a_rolled_back_change_leaves_no_notification(database: Database) -> None:
    outbox = NotifyOutbox(settings_of({"type": "webhook", "name": "a", "url": "http://x/"}))

    def change_and_fail() -> None:
        with database.write() as session:
            outbox.enqueue(session, [make_notice()])
            raise RuntimeError("the worker's transaction fails")

    with pytest.raises(RuntimeError):
        change_and_fail()
    assert states(database) == {}


def test_a_notice_seen_twice_is_stored_once(database: Database) -> None:
    enqueue(database, make_notice())
    enqueue(database, make_notice())
    assert states(database) == {"fake llama-m-3:1": "pending"}


def test_whoever_was_told_hears_of_the_end_whatever_the_routes_say_then(
    database: Database,
) -> None:
    hook = {"type": "webhook", "url": "http://127.0.0.1:9/"}
    before = settings_of({**hook, "name": "a"}, {**hook, "name": "b"})
    after = settings_of({**hook, "name": "a"}, {**hook, "name": "b"}, routes=[{"receivers": ["b"]}])
    with database.write() as session:
        NotifyOutbox(before).enqueue(session, [make_notice()])
        NotifyOutbox(after).enqueue(session, [make_notice("resolved", sequence=2)])
        NotifyOutbox(after).enqueue(session, [make_notice(machine="m-4")])
    assert list(states(database)) == [
        "a llama-m-3:1",
        "b llama-m-3:1",
        "a llama-m-3:2",
        "b llama-m-3:2",
        "b llama-m-4:1",
    ]


# Delivery, retries, giving up


def test_delivered_is_delivered_once(database: Database) -> None:
    receiver = fake()
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice())
    assert dispatcher.drain() == ["delivered"]
    assert dispatcher.drain() == []
    assert kinds(receiver) == ["opened"]


def test_every_attempt_has_the_same_idempotency_key(database: Database, clock: HandClock) -> None:
    receiver = fake("fake", Retry("a"), Retry("b"), Retry("c"))
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice())
    while not receiver.told:
        dispatcher.drain()
        clock.forward(10)
    assert [n.idempotency_key for n in receiver.tried] == ["llama-m-3:1"] * 4
    with database.read() as session:
        rows = session.scalars(select(OutboxAttemptRow).order_by(OutboxAttemptRow.id))
        assert [(r.outcome, r.detail) for r in rows] == [
            ("retry", "a"),
            ("retry", "b"),
            ("retry", "c"),
            ("delivered", ""),
        ]


@SQLITE
def test_waits_grow_up_to_five_minutes(database: Database, clock: HandClock) -> None:
    receiver = fake("fake", *[Retry("down")] * 12)
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice())
    waits = []
    for _ in range(12):
        assert dispatcher.drain() == ["retried"]
        with database.read() as session:
            lane = session.scalars(select(LaneRow)).one()
            assert lane.next_at_ns is not None
            waits.append((lane.next_at_ns - clock()) / SECOND)
            clock.now_ns = lane.next_at_ns
    longest = [min(300, 2 * 2**n) for n in range(12)]
    assert all(most / 2 <= wait <= most for wait, most in zip(waits, longest, strict=True))


@pytest.mark.parametrize(("asked", "least", "most"), [(40.0, 40, 41), (1e9, 3600, 3601)])
def test_retry_after_is_honoured_within_an_hour(
    database: Database, clock: HandClock, asked: float, least: float, most: float
) -> None:
    receiver = fake("fake", Retry("busy", after_seconds=asked, whole_receiver=True))
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice())
    dispatcher.drain()
    clock.forward(least - 0.1)
    assert dispatcher.drain() == []
    clock.forward(most - least + 0.2)
    assert dispatcher.drain() == ["delivered"]


def test_a_receiver_that_is_down_is_not_tried_for_every_incident(
    database: Database, clock: HandClock
) -> None:
    receiver = fake("fake", Retry("down", whole_receiver=True))
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, *(make_notice(machine=f"m-{n}") for n in range(5)))
    assert dispatcher.drain() == ["retried"]
    clock.forward(3)
    assert dispatcher.drain().count("delivered") == 5


def test_one_message_that_fails_does_not_hold_up_the_others(
    database: Database, clock: HandClock
) -> None:
    receiver = fake("fake", Retry("HTTP 500"))
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice(machine="m-1"), make_notice(machine="m-2"))
    assert sorted(dispatcher.drain()) == ["delivered", "retried"]
    clock.forward(3)
    assert dispatcher.drain() == ["delivered"]


@SQLITE
def test_a_message_that_always_breaks_its_receiver_falls_behind(
    database: Database, clock: HandClock
) -> None:
    class Poisoned(FakeReceiver):
        def send(self, note, context):  # type: ignore[no-untyped-def]
            if note.key == "llama-poison":
                self.tried.append(note)
                return Retry("HTTP 403", whole_receiver=True)
            return super().send(note, context)

    receiver = Poisoned(fake().settings)
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice(machine="poison"))
    for minute in range(15):
        enqueue(database, make_notice(machine=f"m-{minute}", at_ns=clock()))
        for _ in range(12):
            dispatcher.drain()
            clock.forward(5)
    assert len(receiver.told) == 15
    assert len([n for n in receiver.tried if n.key == "llama-poison"]) < 15


def test_what_is_refused_for_good_is_dead_and_frees_its_lane(database: Database) -> None:
    receiver = fake("fake", GaveUp("HTTP 400: no"))
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice(), make_notice("acknowledged", sequence=2))
    assert dispatcher.drain() == ["dead", "delivered"]
    with database.read() as session:
        (row,) = dead(session)
    assert (row.sequence, row.reason, row.attempts) == (1, "HTTP 400: no", 1)


@SQLITE
def test_after_a_day_of_failures_a_message_is_dead(database: Database, clock: HandClock) -> None:
    receiver = fake("fake", *[Retry("down", whole_receiver=True)] * 2_000)
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice())
    outcomes = []
    while "dead" not in outcomes:
        outcomes += dispatcher.drain()
        clock.forward(900)
    assert clock() >= make_notice().at_ns + DAY * SECOND
    assert states(database) == {"fake llama-m-3:1": "dead"}


def test_the_dead_can_be_replayed_under_their_old_key(database: Database, clock: HandClock) -> None:
    receiver = fake("fake", GaveUp("no"))
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice())
    dispatcher.drain()
    clock.forward(10 * DAY)
    with database.write() as session:
        ids = [row.id for row in dead(session)]
        assert replay(session, [*ids, 999], clock()) == 1
        assert replay(session, ids, clock()) == 0
    assert dispatcher.drain() == ["delivered"]
    assert [n.idempotency_key for n in receiver.told] == ["llama-m-3:1"]


def test_a_replayed_message_is_not_told_over_a_newer_state(
    database: Database, clock: HandClock
) -> None:
    receiver = fake("fake", GaveUp("no"), pending="latest")
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice())
    dispatcher.drain()
    enqueue(database, make_notice("corrected", sequence=2))
    dispatcher.drain()
    with database.write() as session:
        replay(session, [row.id for row in dead(session)], clock())
    assert dispatcher.drain() == ["dropped"]
    assert kinds(receiver) == ["corrected"]


def test_a_receiver_that_raises_gives_up_that_message_only(database: Database) -> None:
    class Broken(FakeReceiver):
        def send(self, note, context):  # type: ignore[no-untyped-def]
            if note.key == "llama-m-1":
                raise KeyError("evidence")
            return super().send(note, context)

    dispatcher = make_dispatcher(database, Broken(fake().settings))
    enqueue(database, make_notice(machine="m-1"), make_notice(machine="m-2"))
    assert sorted(dispatcher.drain()) == ["dead", "delivered"]
    with database.read() as session:
        assert dead(session)[0].reason == "cannot be rendered: KeyError: 'evidence'"


# Order and replacement


def test_an_older_message_that_is_stuck_blocks_the_newer_of_its_incident(
    database: Database, clock: HandClock
) -> None:
    receiver = fake("fake", Retry("HTTP 500"), pending="every")
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice(), make_notice("resolved", sequence=2))
    assert dispatcher.drain() == ["retried"]
    clock.forward(3)
    assert dispatcher.drain() == ["delivered", "delivered"]
    assert kinds(receiver) == ["opened", "resolved"]


def test_a_newer_state_replaces_what_is_still_pending(database: Database) -> None:
    receiver = fake(pending="latest")
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice(), make_notice("corrected", sequence=2))
    assert dispatcher.drain() == ["delivered"]
    assert kinds(receiver) == ["corrected"]
    assert list(states(database).values()) == ["superseded", "sent"]


@pytest.mark.parametrize(("past", "expected"), [(True, ["resolved"]), (False, [])])
def test_what_began_and_ended_unheard_is_told_once_or_not_at_all(
    database: Database, past: bool, expected: list[str]
) -> None:
    receiver = fake(pending="latest", past=past)
    enqueue(database, make_notice(), make_notice("resolved", sequence=2))
    make_dispatcher(database, receiver).drain()
    assert kinds(receiver) == expected


def test_ends_are_not_told_where_they_are_not_wanted(database: Database) -> None:
    receiver = fake(send_resolved=False)
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice(), make_notice("resolved", sequence=2))
    assert dispatcher.drain() == ["delivered", "dropped"]
    assert kinds(receiver) == ["opened"]


# Leases


def test_a_leased_lane_is_left_alone_until_the_lease_ends(
    database: Database, clock: HandClock
) -> None:
    other = fake()
    second = make_dispatcher(database, other)

    class Slow(FakeReceiver):
        def send(self, note, context):  # type: ignore[no-untyped-def]
            assert second.drain() == []  # the first is at it
            clock.forward(self.settings.longest_seconds + 21)
            assert second.drain() == ["delivered"]  # the first is believed dead
            return super().send(note, context)

    first = make_dispatcher(database, Slow(fake().settings))
    enqueue(database, make_notice())
    assert first.drain() == ["lost"]
    assert states(database) == {"fake llama-m-3:1": "sent"}
    assert [n.idempotency_key for n in other.told] == ["llama-m-3:1"]


def test_what_is_enqueued_during_an_attempt_is_not_forgotten(database: Database) -> None:
    class Meanwhile(FakeReceiver):
        def send(self, note, context):  # type: ignore[no-untyped-def]
            if note.kind == "opened":
                enqueue(database, make_notice("acknowledged", sequence=2))
            return super().send(note, context)

    receiver = Meanwhile(fake().settings)
    enqueue(database, make_notice())
    assert make_dispatcher(database, receiver).drain() == ["delivered", "delivered"]
    assert kinds(receiver) == ["opened", "acknowledged"]


@pytest.mark.postgres
def test_processes_that_share_postgresql_deliver_each_message_once_in_order(
    postgres: Database, shared_postgres: str
) -> None:
    kinds: tuple[NoticeKind, ...] = ("opened", "acknowledged", "resolved")
    for sequence, kind in enumerate(kinds, 1):
        enqueue(
            postgres,
            *(
                make_notice(kind, sequence=sequence, machine=f"m-{n}", at_ns=time.time_ns())
                for n in range(12)
            ),
        )
    told: list[tuple[str, int]] = []

    class Shared(FakeReceiver):
        def send(self, note, context):  # type: ignore[no-untyped-def]
            told.append((note.key, note.sequence))
            return Delivered()

    settings = fake(rate_limit_per_minute=60_000, rate_burst=1_000).settings
    start = threading.Barrier(4)

    def deliver() -> None:
        own = Database(shared_postgres, clock=time.time_ns)
        start.wait()
        make_dispatcher(own, Shared(settings)).drain()
        own.close()

    threads = [threading.Thread(target=deliver) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    make_dispatcher(postgres, Shared(settings)).drain()
    assert len(told) == 36
    for n in range(12):
        assert [s for key, s in told if key == f"llama-m-{n}"] == [1, 2, 3]


@pytest.mark.postgres
def test_a_lane_that_is_being_claimed_is_skipped_and_not_waited_for(postgres: Database) -> None:
    enqueue(postgres, make_notice(machine="m-1"), make_notice(machine="m-2"))
    now, receiver = time.time_ns(), fake()
    with postgres.write() as one, postgres.write() as two:
        found = [claim(s, receiver, str(s), now, SECOND) for s in (one, two, two)]
        keys = [work.key if work else None for work in found]
    assert sorted(k for k in keys if k) == ["llama-m-1", "llama-m-2"]
    assert keys[2] is None


# Rate limit


def test_the_rate_limit_holds_after_a_burst(database: Database, clock: HandClock) -> None:
    receiver = fake(rate_limit_per_minute=6, rate_burst=3)
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, *(make_notice(machine=f"m-{n}") for n in range(8)))
    dispatcher.drain()
    told = [len(receiver.told)]
    for _ in range(6):
        clock.forward(10)
        dispatcher.drain()
        told.append(len(receiver.told))
    assert told == [3, 4, 5, 6, 7, 8, 8]


def test_two_dispatchers_share_one_rate(database: Database) -> None:
    one, two = (
        fake(rate_limit_per_minute=1, rate_burst=4),
        fake(rate_limit_per_minute=1, rate_burst=4),
    )
    first, second = make_dispatcher(database, one), make_dispatcher(database, two)
    enqueue(database, *(make_notice(machine=f"m-{n}") for n in range(8)))
    first.step("fake")
    second.drain()
    first.drain()
    assert len(one.told) + len(two.told) == 4


# Silences


def silence(database: Database, clock: HandClock, machine: str = "m-3", seconds: int = 600) -> None:
    with database.write() as session:
        new = NewSilence(
            "silence", "*", machine, clock(), clock() + seconds * SECOND, "because", "kim"
        )
        add_silence(session, new, now_ns=clock())


def test_a_silence_holds_what_is_pending_until_it_ends(
    database: Database, clock: HandClock
) -> None:
    receiver = fake()
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice(), make_notice(machine="m-4"))
    silence(database, clock)
    assert sorted(dispatcher.drain()) == ["delivered", "held"]
    clock.forward(570)
    assert dispatcher.drain() == ["held"]
    clock.forward(31)
    assert dispatcher.drain() == ["delivered"]


def test_an_incident_that_ends_while_silenced_is_never_told(
    database: Database, clock: HandClock
) -> None:
    receiver = fake(pending="latest")
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice())
    silence(database, clock)
    assert dispatcher.drain() == ["held"]
    enqueue(database, make_notice("resolved", sequence=2, at_ns=clock()))
    assert dispatcher.drain() == ["dropped"]
    clock.forward(3600)
    assert dispatcher.drain() == []
    assert receiver.told == []


def test_a_silence_does_not_keep_back_the_end_of_what_was_told(
    database: Database, clock: HandClock
) -> None:
    receiver = fake(pending="latest")
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice())
    dispatcher.drain()
    silence(database, clock)
    enqueue(database, make_notice("resolved", sequence=2))
    dispatcher.drain()
    assert kinds(receiver) == ["opened", "resolved"]


# Keeping house


def test_retention_forgets_what_is_finished_and_keeps_what_is_not(
    database: Database, clock: HandClock
) -> None:
    receiver = fake("fake", Delivered(), Delivered(), GaveUp("no"), *[Retry("down")] * 99)
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice(), make_notice("resolved", sequence=2))
    dispatcher.drain()
    enqueue(database, make_notice(machine="refused"))
    dispatcher.drain()
    enqueue(database, make_notice(machine="waits"))
    dispatcher.drain()
    clock.forward(10 * DAY)
    with database.write() as session:
        gone = [prune(session, clock() - 9 * DAY * SECOND, limit=2) for _ in range(3)]
        assert gone == [4, 1, 0]
        assert session.scalar(select(func.count()).select_from(OutboxAttemptRow)) == 1
        assert [lane.key for lane in session.scalars(select(LaneRow))] == ["llama-waits"]
    assert states(database) == {"fake llama-waits:1": "pending"}


def test_a_receiver_hears_of_the_end_of_what_began_long_ago(
    database: Database, clock: HandClock
) -> None:
    receiver = fake(pending="latest", past=False)
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice())
    dispatcher.drain()
    clock.forward(100 * DAY)
    with database.write() as session:
        prune(session, clock() - 14 * DAY * SECOND)
    enqueue(database, make_notice("resolved", sequence=2, at_ns=clock()))
    dispatcher.drain()
    assert kinds(receiver) == ["opened", "resolved"]


def test_what_waits_for_a_receiver_that_is_gone_becomes_visible(
    database: Database, clock: HandClock
) -> None:
    enqueue(database, make_notice(), to=("gone", "fake"))
    clock.forward(2 * DAY)
    with database.write() as session:
        assert give_up_unknown(session, {"fake"}, clock() - DAY * SECOND, clock()) == 1
        assert [r.reason for r in dead(session)] == ["no such receiver is configured"]
    assert states(database)["fake llama-m-3:1"] == "pending"


def test_the_backlog_is_counted(database: Database) -> None:
    receiver = fake("fake", GaveUp("no"), Retry("HTTP 500"))
    enqueue(database, make_notice(machine="m-1"), make_notice(machine="m-2"))
    make_dispatcher(database, receiver).drain()
    with database.read() as session:
        assert backlog(session) == {
            "fake": {"pending": 1, "dead": 1, "oldest_ns": make_notice().at_ns}
        }


def test_the_backlog_is_a_metric_at_zero_from_the_start(
    database: Database, clock: HandClock
) -> None:
    registry = CollectorRegistry()
    events = NotifyEvents(registry, ["fake"])

    def values() -> list[float | None]:
        names = ("notifications_pending", "notifications_dead", "notification_oldest_seconds")
        labels = {"receiver": "fake"}
        return [registry.get_sample_value(f"weaklink_{name}", labels) for name in names]

    assert values() == [0, 0, 0]
    enqueue(database, make_notice())
    clock.forward(9)
    with database.read() as session:
        events.backlog(backlog(session), clock())
    assert values() == [1, 0, 10]
    make_dispatcher(database, fake()).drain()
    with database.read() as session:
        events.backlog(backlog(session), clock())
    assert values() == [0, 0, 0]


def test_a_receivers_trouble_is_on_record(database: Database, clock: HandClock) -> None:
    receiver = fake("fake", Retry("ConnectError", whole_receiver=True))
    dispatcher = make_dispatcher(database, receiver)
    enqueue(database, make_notice())
    dispatcher.drain()
    with database.read() as session:
        (row,) = receivers(session)
    assert (row.failures, row.last_error, row.last_error_at_ns) == (1, "ConnectError", clock())
    assert row.last_delivered_at_ns is None
    clock.forward(5)
    dispatcher.drain()
    with database.read() as session:
        row = session.scalars(select(ReceiverRow)).one()
    assert (row.failures, row.last_delivered_at_ns) == (0, clock())


def test_counters_exist_at_zero_and_count(database: Database) -> None:
    registry = CollectorRegistry()
    receiver = fake("fake", GaveUp("no"))
    dispatcher = make_dispatcher(database, receiver)
    dispatcher.events = NotifyEvents(registry, ["fake"])

    def value(outcome: str) -> float | None:
        labels = {"receiver": "fake", "outcome": outcome}
        return registry.get_sample_value("weaklink_notifications_total", labels)

    assert [value(o) for o in ("delivered", "dead", "retried", "lost")] == [0, 0, 0, 0]
    enqueue(database, make_notice(), make_notice("acknowledged", sequence=2))
    dispatcher.drain()
    assert [value(o) for o in ("delivered", "dead")] == [1, 1]


def test_threads_deliver_and_a_reload_changes_the_receivers(tmp_path: Path) -> None:
    database = migrated(f"sqlite:///{tmp_path}/weaklink.db", time.time_ns)
    arrived = threading.Event()

    class Signals(FakeReceiver):
        def send(self, note, context):  # type: ignore[no-untyped-def]
            result = super().send(note, context)
            arrived.set()
            return result

    old, new = Signals(fake("fake").settings), Signals(fake("new").settings)
    dispatcher = make_dispatcher(database, old, poll_seconds=60)
    dispatcher.start()
    try:
        enqueue(database, make_notice())
        dispatcher.wake()
        assert arrived.wait(10)
        arrived.clear()
        enqueue(database, make_notice(machine="m-4"), to=("new",))
        dispatcher.reconfigure({"new": new})
        assert arrived.wait(10)
    finally:
        dispatcher.stop()
        database.close()
    assert [n.key for n in old.told] == ["llama-m-3"]
    assert [n.key for n in new.told] == ["llama-m-4"]
    assert not [t for t in threading.enumerate() if t.name.startswith("notify-")]


def test_a_step_that_fails_does_not_end_its_thread(tmp_path: Path) -> None:
    database = migrated(f"sqlite:///{tmp_path}/weaklink.db", time.time_ns)
    twice = threading.Event()

    class Failing(Dispatcher):
        failures = 0

        def step(self, name: str) -> Outcome | None:
            Failing.failures += 1
            if Failing.failures >= 2:
                twice.set()
            raise RuntimeError("no database")

    dispatcher = Failing(
        database, {"fake": fake()}, NotifyEvents(CollectorRegistry()), poll_seconds=0.01
    )
    dispatcher.start()
    try:
        assert twice.wait(10)
    finally:
        dispatcher.stop()
        database.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_is_told(tmp_path: Path) -> None:
    database = migrated(f"sqlite:///{tmp_path}/weaklink.db", time.time_ns)

    class Dies(Dispatcher):
        def step(self, name: str) -> Outcome | None:
            raise SystemExit  # the one way in which a thread ends without a word

    dispatcher = Dies(database, {"fake": fake()}, NotifyEvents(CollectorRegistry()))
    assert dispatcher.ended == []
    dispatcher.start()
    try:
        deadline = time.monotonic() + 30
        while dispatcher.ended != ["fake"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert dispatcher.ended == ["fake"]
    finally:
        dispatcher.stop()
        database.close()
    assert dispatcher.ended == []


def test_deliveries_begin_although_the_database_does_not_answer_at_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = migrated(f"sqlite:///{tmp_path}/weaklink.db", time.time_ns)

    def away(*_: object) -> None:
        raise OSError("no database")

    old, new = fake("old"), fake("new")
    dispatcher = make_dispatcher(database, old, poll_seconds=0.01)
    dispatcher.start()
    try:
        monkeypatch.setattr("serve.notify.dispatcher.give_up_unknown", away)
        dispatcher.reconfigure({"new": new})
        enqueue(database, make_notice(), to=("new",))
        deadline = time.monotonic() + 30
        while not new.told and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [n.key for n in new.told] == ["llama-m-3"]
    finally:
        dispatcher.stop()
        database.close()


def test_a_reload_does_not_wait_for_a_receiver_that_hangs(tmp_path: Path) -> None:
    database = migrated(f"sqlite:///{tmp_path}/weaklink.db", time.time_ns)
    hangs, goes_on = threading.Event(), threading.Event()

    class Hangs(FakeReceiver):
        def send(self, note, context):  # type: ignore[no-untyped-def]
            hangs.set()
            goes_on.wait(30)
            return super().send(note, context)

    old, new = Hangs(fake("old").settings), fake("new")
    dispatcher = make_dispatcher(database, old, poll_seconds=0.01, stop_seconds=0.01)
    dispatcher.start()
    try:
        enqueue(database, make_notice(), to=("old",))
        assert hangs.wait(10)
        (straggler,) = (t for t in threading.enumerate() if t.name == "notify-old")
        dispatcher.reconfigure({"new": new})
        enqueue(database, make_notice(machine="m-4"), to=("new",))
        deadline = time.monotonic() + 30
        while states(database)["new llama-m-4:1"] != "sent" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert states(database)["new llama-m-4:1"] == "sent"
        assert straggler.is_alive()
        goes_on.set()
        straggler.join(10)
        assert not straggler.is_alive()
        assert states(database)["old llama-m-3:1"] == "sent"
    finally:
        goes_on.set()
        dispatcher.stop()
        database.close()
