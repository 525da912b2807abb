"""The service on a real broker: formats, rebalances, outages, dirt, TLS."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from kafka import KafkaAdminClient
from sqlalchemy import func, select

from serve.kafka import orphans
from serve.kafka.consumer import Moves, connect
from serve.kafka.orphans import Places, unassigned
from serve.kafka.outflow import CONTENT_TYPES
from serve.kafka.settings import KafkaSettings
from serve.kafka.source import KafkaSource
from serve.kafka.tables import PartitionRow
from serve.store.base import Database
from serve.store.tables import AlertRow
from serve.worker import Worker
from tests.kafka_support import (
    KAFKA_MARKS,
    PASSWORD,
    USER,
    KafkaCluster,
    create_topic,
    read_all,
    send,
    start_cluster,
    wait_until,
)
from tests.kafka_worker import kafka_worker, settings_for, worker_process
from tests.serve_support import START_NS, rows

pytestmark = KAFKA_MARKS


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A file that several workers can share."""
    database = Database(f"sqlite:///{tmp_path}/weaklink.db", clock=time.time_ns)
    database.migrate()
    yield database
    database.close()


@pytest.fixture
def shared_database(postgres_url: str) -> Iterator[Database]:
    """A server, as several workers share it."""
    database = Database(postgres_url, clock=time.time_ns)
    database.migrate()
    yield database
    database.close()


@contextmanager
def running(worker: Worker) -> Iterator[Worker]:
    """The worker's loop in a thread; a wait in vain tells what it says of itself."""
    worker.start()
    _running.append(worker)
    try:
        yield worker
    finally:
        _running.remove(worker)
        worker.stop()


_running: list[Worker] = []


def until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """`wait_until`, with the state of the running workers."""
    wait_until(condition, what, seconds, state=_state)


def _state() -> list[object]:
    return [
        (w.problem, source_of(w).health(), dict(source_of(w).counts), len(w.parts.pipeline.jobs()))
        for w in _running
    ]


def telemetry(settings: KafkaSettings) -> str:
    """The test's telemetry topic."""
    return next(iter(settings.topics))


def json_rows(job: str, *, start: int = 0, ticks: int = 30, low: str = "") -> list[bytes]:
    """JSON rows of four machines."""
    found = []
    for row in rows(job=job, start=start, ticks=ticks, low=low).to_pylist():
        since = (row["ts"].timestamp() - START_NS // 10**9) * 1000
        found.append(orjson.dumps(row | {"ts": START_NS // 10**6 + round(since)}))
    return found


def put(settings: KafkaSettings, job: str, values: list[bytes], **fields: Any) -> None:
    """Send messages keyed by the job."""
    records = [{"key": job.encode(), "value": value} | fields for value in values]
    send(",".join(settings.bootstrap_servers), telemetry(settings), records)


def alerts(database: Database) -> list[tuple[str, str]]:
    """(id, status) of every stored alert."""
    with database.read() as session:
        return [(a.id, a.status) for a in session.scalars(select(AlertRow).order_by(AlertRow.id))]


def published(settings: KafkaSettings) -> list[tuple[str, int, str]]:
    """(id, version, status) of every message of the alerts topic."""
    records = read_all(",".join(settings.bootstrap_servers), settings.alerts_topic)
    bodies = [orjson.loads(record.value) for record in records]
    assert [record.key.decode() for record in records] == [body["id"] for body in bodies]
    return [(body["id"], body["version"], body["status"]) for body in bodies]


def source_of(worker: Worker) -> KafkaSource:
    """The worker's source."""
    assert isinstance(worker.parts.source, KafkaSource)
    return worker.parts.source


def owned(worker: Worker) -> set[int]:
    """Partitions that are read live."""
    return {p["partition"] for p in source_of(worker).partitions() if p["stage"] == "live"}


@contextmanager
def reading(settings: KafkaSettings, database: Database, owner: str = "w") -> Iterator[Worker]:
    """A running worker that has taken over all four partitions."""
    with running(kafka_worker(settings, database, owner=owner)) as worker:
        until(lambda: len(owned(worker)) == 4, "all four partitions are taken over")
        yield worker


def owners(database: Database) -> Counter[str]:
    """How many partitions each worker has taken over."""
    with database.read() as session:
        return Counter(session.scalars(select(PartitionRow.owner)))


def caught_up(*workers: Worker, messages: int) -> Callable[[], bool]:
    """Whether so many messages are stored with their effect."""

    def done() -> bool:
        parts = [p for w in workers for p in source_of(w).partitions()]
        return sum(int(p["next_offset"]) for p in parts if p["stage"] == "live") >= messages

    return done


def test_messages_of_any_format_become_alerts_that_are_published_once(
    kafka_servers: str, kafka_name: str, database: Database
) -> None:
    settings = settings_for(kafka_servers, kafka_name)
    with reading(settings, database):
        bodies = json_rows("a") + json_rows("a", start=30, ticks=10, low="m-1")
        put(settings, "a", bodies)
        lists = json_rows("b") + json_rows("b", start=30, ticks=10, low="m-2")
        arrays = [b"[" + b",".join(lists[k : k + 8]) + b"]" for k in range(0, 160, 8)]
        put(settings, "b", arrays, headers=[("content-type", b"application/json")])
        tables = [rows(job="c"), rows(job="c", start=30, ticks=10, low="m-3")]
        streams = []
        for table in tables:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            streams.append(sink.getvalue().to_pybytes())
        put(settings, "c", streams, headers=[("content-type", CONTENT_TYPES["arrow"])])
        expected = [("a-m-1", "open"), ("b-m-2", "open"), ("c-m-3", "open")]
        until(lambda: alerts(database) == expected, "three alerts")
        until(lambda: len(published(settings)) == 3, "three alerts are published")
    assert sorted(published(settings)) == [(name, 1, "open") for name, _ in expected]


def test_a_join_that_ends_between_two_polls_is_not_forgotten(
    kafka_servers: str, kafka_name: str
) -> None:
    settings = settings_for(kafka_servers, kafka_name)
    consumer = connect(settings, Counter())
    nobody = Moves(assigned=lambda _: None, revoked=lambda _: None, lost=lambda _: None)
    consumer.subscribe(list(settings.topics), listener=nobody)

    def joined() -> bool:
        consumer.poll(1, 10)  # no join is ever over within so little
        time.sleep(0.2)
        return len(consumer.assignment()) == 4

    try:
        wait_until(joined, "all partitions", 30)
    finally:
        consumer.close(autocommit=False, timeout_ms=2_000)


@pytest.mark.postgres
def test_partitions_move_when_a_worker_joins_and_when_it_is_killed(
    kafka_servers: str, kafka_name: str, shared_database: Database, tmp_path: Path
) -> None:
    database = shared_database
    settings = settings_for(kafka_servers, kafka_name)
    jobs = [f"job-{k}" for k in range(12)]
    with reading(settings, database, owner="w1") as first:
        for job in jobs:
            put(settings, job, json_rows(job, ticks=20))
        until(caught_up(first, messages=12 * 80), "all is read")
        with worker_process(settings, database, "w2", tmp_path) as second:
            until(lambda: owners(database) == {"w1": 2, "w2": 2}, "each has two partitions")
            for job in jobs:
                put(settings, job, json_rows(job, start=20, ticks=10, low="m-1"))
            until(lambda: len(alerts(database)) == 12, "an alert of every job")
            second.kill()
            second.wait()
        until(lambda: len(owned(first)) == 4, "the survivor has all partitions", 30)
        for job in jobs:
            put(settings, job, json_rows(job, start=30, ticks=10))
        until(
            lambda: alerts(database) == [(f"{job}-m-1", "resolved") for job in sorted(jobs)],
            "every alert is resolved by whoever has its job",
        )
        until(lambda: len(published(settings)) >= 24, "every change is published")
    # No gap and no false alarm on the way: each job has one run and one alert.
    assert {state.run for state in first.parts.pipeline.jobs()} == {0}
    seen = published(settings)
    assert len(seen) == len(set(seen)) == 24


def test_a_broker_that_goes_away_and_comes_back_is_waited_for(
    tmp_path_factory: pytest.TempPathFactory, kafka_name: str, database: Database
) -> None:
    cluster = start_cluster(1, tmp_path_factory.mktemp("kafka"))
    try:
        settings = settings_for(cluster.bootstrap_servers, kafka_name)
        with reading(settings, database) as worker:
            put(settings, "a", json_rows("a", ticks=20))
            until(caught_up(worker, messages=80), "all is read")
            cluster.kill(0)
            until(lambda: not source_of(worker).health().connected, "the outage is told")
            assert source_of(worker).health().problem
            assert worker.running
            cluster.start(0)
            cluster.wait()
            put(settings, "a", json_rows("a", start=20, ticks=10, low="m-2"))
            until(lambda: alerts(database) == [("a-m-2", "open")], "reading goes on", 90)
            until(lambda: source_of(worker).health().problem == "", "all is well again")
            until(lambda: published(settings) == [("a-m-2", 1, "open")], "it is published")
        assert {state.run for state in worker.parts.pipeline.jobs()} == {0}
    finally:
        cluster.stop()


def test_dirt_goes_to_the_dead_letters_and_stops_nobody(
    kafka_servers: str, kafka_name: str, database: Database
) -> None:
    settings = settings_for(kafka_servers, kafka_name, job_messages_per_second=2_000)
    topic = telemetry(settings)
    with reading(settings, database) as worker:
        good = json_rows("a", ticks=20)
        put(settings, "a", good[:40])
        put(settings, "a", [b"{poison", b"[1, 2", b'{"ts": 1}', b"\xff\xfe"])
        put(settings, "a", [b"?"], headers=[("content-type", b"application/x-unheard-of")])
        send(kafka_servers, topic, [{"key": b"a", "value": None}])
        put(settings, "a", [b'{"job":"a","machine":"' + b"m" * 7_000_000 + b'"}'])
        put(settings, "a", good[40:])
        flood = json_rows("flood", ticks=2_000)
        put(settings, "flood", flood)
        put(settings, "a", json_rows("a", start=20, ticks=10, low="m-1"))
        until(lambda: alerts(database) == [("a-m-1", "open")], "its job goes on")
        until(caught_up(worker, messages=127 + 8_000), "all is read")
    letters = [dict(r.headers) for r in read_all(kafka_servers, settings.dead_letter_topic)]
    by_reason: dict[str, int] = {}
    for letter in letters:
        assert letter["origin"].startswith(topic.encode())
        reason = letter["reason"].decode()
        by_reason[reason] = by_reason.get(reason, 0) + int(letter["rows"])
    assert by_reason["undecodable"] == 3
    assert by_reason["unknown_format"] == 1
    assert by_reason["empty"] == 1
    assert by_reason["flood"] > 0
    assert worker.parts.metrics.rows._value.get() + by_reason["flood"] == 120 + 8_000


def test_thousands_of_short_jobs_pass_through_bounded_memory(
    kafka_servers: str, kafka_name: str, database: Database
) -> None:
    settings = settings_for(kafka_servers, kafka_name)
    with reading(settings, database) as worker:
        records = []
        for number in range(2_000):
            job = f"short-{number}"
            body = b"[" + b",".join(json_rows(job, ticks=3)) + b"]"
            records.append({"key": job.encode(), "value": body})
        send(kafka_servers, telemetry(settings), records)
        put(settings, "a", json_rows("a") + json_rows("a", start=30, ticks=10, low="m-1"))
        until(lambda: alerts(database) == [("a-m-1", "open")], "the long job's alert", 120)
        until(caught_up(worker, messages=2_160), "all is read", 120)
        assert len(worker.parts.pipeline.jobs()) == 2_001
        assert worker.problem == ""


def test_a_restarted_static_member_gets_its_partitions_without_a_rebalance_of_others(
    kafka_servers: str, kafka_name: str, database: Database
) -> None:
    settings = settings_for(kafka_servers, kafka_name, instance_id="pod-1")
    other = settings_for(kafka_servers, kafka_name, instance_id="pod-2")
    with running(kafka_worker(other, database, owner="w2")) as stays:
        with running(kafka_worker(settings, database, owner="w1")) as restarts:
            until(lambda: len(owned(stays)) == len(owned(restarts)) == 2, "each has two partitions")
            had, before = owned(restarts), source_of(stays).counts["rebalances"]
        with running(kafka_worker(settings, database, owner="w1")) as again:
            until(lambda: owned(again) == had, "the same partitions", 30)
            assert source_of(stays).counts["rebalances"] == before


def given_to_nobody(settings: KafkaSettings) -> Places:
    """Partitions of which the broker says so, while the group is at rest."""
    admin = KafkaAdminClient(bootstrap_servers=list(settings.bootstrap_servers))
    try:
        group = admin.describe_groups([settings.group])[settings.group]
    finally:
        admin.close()
    return unassigned(group, [(telemetry(settings), p) for p in range(4)])


def test_partitions_that_a_resting_group_has_given_to_nobody_are_read_again(
    kafka_servers: str,
    kafka_name: str,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(orphans, "LOOK_SECONDS", 3600.0)
    pods = [
        settings_for(kafka_servers, kafka_name, instance_id=f"pod-{n}", session_timeout_seconds=120)
        for n in (1, 2)
    ]
    with ExitStack() as stack:
        dies = stack.enter_context(
            worker_process(pods[0], database, "w1", tmp_path, dies_halfway=True)
        )
        until(lambda: owners(database) == {"w1": 4}, "the first has all partitions")
        second = stack.enter_context(running(kafka_worker(pods[1], database, owner="w2")))
        assert dies.wait(120) == -signal.SIGKILL  # half of them given up, nobody's yet
        first = stack.enter_context(running(kafka_worker(pods[0], database, owner="w1")))
        until(lambda: len(owned(first)) == 2, "it comes back to what it kept")
        for _ in range(5):  # while nobody looks, nothing would ever change
            time.sleep(1)
            assert len(given_to_nobody(pods[0])) == 2
            assert (len(owned(first)), len(owned(second))) == (2, 0)
            assert source_of(first).health().connected
            assert source_of(second).health().connected
        monkeypatch.setattr(orphans, "LOOK_SECONDS", 1.0)
        until(lambda: len(owned(first)) == len(owned(second)) == 2, "all partitions are read")
        assert given_to_nobody(pods[0]) == frozenset()
        assert source_of(first).counts["orphans"] + source_of(second).counts["orphans"] >= 1
        for job in (jobs := [f"job-{k}" for k in range(12)]):
            put(pods[0], job, json_rows(job) + json_rows(job, start=30, ticks=10, low="m-1"))
        expected = [(f"{job}-m-1", "open") for job in sorted(jobs)]
        until(lambda: alerts(database) == expected, "an alert of every job")


def test_a_topic_that_is_missing_is_told_and_waited_for(
    kafka_servers: str, kafka_name: str, database: Database
) -> None:
    settings = settings_for(kafka_servers, kafka_name, topic={"create": False})
    with running(kafka_worker(settings, database)) as worker:
        until(lambda: "no topic" in source_of(worker).health().problem, "it is told")
        for topic in (*settings.topics, settings.dead_letter_topic):
            create_topic(kafka_servers, topic, 2)
        create_topic(kafka_servers, settings.alerts_topic, 1, {"cleanup.policy": "compact"})
        until(lambda: len(owned(worker)) == 2, "it goes on by itself")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_everything_works_over_tls_with_a_password(
    kafka_broker: KafkaCluster, kafka_name: str, database: Database, mechanism: str
) -> None:
    plain = settings_for(kafka_broker.bootstrap_servers, kafka_name)
    settings = settings_for(
        kafka_broker.secure_servers,
        kafka_name,
        tls={"ca_file": str(kafka_broker.ca_file)},
        sasl={"mechanism": mechanism, "username": USER, "password": PASSWORD},
    )
    with reading(settings, database):
        put(plain, "a", [*json_rows("a"), b"{", *json_rows("a", start=30, ticks=10, low="m-1")])
        until(lambda: alerts(database) == [("a-m-1", "open")], "the alert")
        until(lambda: published(plain) == [("a-m-1", 1, "open")], "it is published")
    assert len(read_all(kafka_broker.bootstrap_servers, plain.dead_letter_topic)) == 1


def test_a_wrong_password_is_told_and_does_not_end_the_worker(
    kafka_broker: KafkaCluster, kafka_name: str, database: Database
) -> None:
    settings = settings_for(
        kafka_broker.secure_servers,
        kafka_name,
        tls={"ca_file": str(kafka_broker.ca_file)},
        sasl={"mechanism": "SCRAM-SHA-512", "username": USER, "password": "wrong"},
    )
    with running(kafka_worker(settings, database)) as worker:
        problem = ""

        def told() -> bool:
            nonlocal problem
            problem = source_of(worker).health().problem
            return problem not in ("", "not connected yet")

        until(told, "the refusal is told")
        assert worker.running
        assert "wrong" not in problem


def test_two_publishers_in_turn_publish_each_change_once(
    kafka_servers: str, kafka_name: str, database: Database
) -> None:
    settings = settings_for(kafka_servers, kafka_name)
    with reading(settings, database):
        put(settings, "a", json_rows("a") + json_rows("a", start=30, ticks=10, low="m-1"))
        until(lambda: len(published(settings)) == 1, "it is published")
    from serve.store.tables import ServiceStateRow

    with database.write() as session:  # as if it had died before it noted what it had sent
        session.execute(ServiceStateRow.__table__.delete())  # type: ignore[attr-defined]
    with reading(settings, database):
        put(settings, "a", json_rows("a", start=40, ticks=10))
        until(lambda: len(published(settings)) >= 2, "the end is published")
    assert [(v, s) for _, v, s in published(settings)] == [(1, "open"), (2, "resolved")]


def test_the_group_s_offsets_follow_what_is_stored(
    kafka_servers: str, kafka_name: str, database: Database
) -> None:
    settings = settings_for(kafka_servers, kafka_name)
    with reading(settings, database) as worker:
        put(settings, "a", json_rows("a"))
        until(caught_up(worker, messages=120), "all is read")
    admin = KafkaAdminClient(bootstrap_servers=kafka_servers)
    try:
        found = admin.list_group_offsets(kafka_name)[kafka_name]
    finally:
        admin.close()
    assert sum(entry.offset for entry in found.values()) == 120
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(AlertRow)) == 0
