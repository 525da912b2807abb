"""Everything breaks at once, on real Kafka and real PostgreSQL, and nothing is lost or doubled.

Eight jobs (three with a faulty machine) are published at speed, with one message in a hundred
poison, some twice and some late. Meanwhile two ``weaklink serve --role worker`` processes are
killed with SIGKILL twenty times, and one of three brokers is killed and started again. In the
end everything that people and programs see equals what one undisturbed worker makes of the same
topic.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pyarrow.parquet as pq
import pytest
from sqlalchemy import func, select
from sqlalchemy.engine import URL

from ingest.simulate import FaultSpec, JobSpec, simulate
from serve.kafka.outflow import Dirt
from serve.kafka.publish import Published, PublishOptions, publish
from serve.kafka.settings import KafkaSettings
from serve.kafka.tables import PartitionRow
from serve.notify.tables import OutboxRow
from serve.store.base import Database
from serve.store.codec import alert_from_row
from serve.store.events import ALERT_EVENTS
from serve.store.tables import AlertRow, EventRow
from tests.kafka_support import KAFKA_MARKS, KafkaCluster, create_topic, read_all, wait_until

pytestmark = [
    *KAFKA_MARKS,
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]

ROOT = Path(__file__).parent.parent
MINUTES = 9
SPEED = 6.0
KILLS = 20
FAULTS = {
    1: FaultSpec("ecc_error", (3,), onset_s=200.0, manifestation="crash", halt_after_s=None),
    4: FaultSpec("gpu_card_drop", (5,), onset_s=180.0, manifestation="crash", halt_after_s=None),
    6: FaultSpec("machine_unreachable", (0,), onset_s=220.0, halt_after_s=None),
}
TELEMETRY = "chaos.telemetry"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All jobs in one folder, a part each."""
    folder = tmp_path_factory.mktemp("chaos") / "recording"
    folder.mkdir()
    for number in range(8):
        faults = (FAULTS[number],) if number in FAULTS else ()
        spec = JobSpec(job=f"job-{number}", machines=8, minutes=MINUTES, faults=faults)
        table = simulate(spec, seed=100 + number).table
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


@dataclass
class Receiver:
    """A webhook's other end as webhooks ask for: a key that was seen before does nothing.

    ``told`` counts what came, by the kind of event and the alert.
    """

    url: str
    keys: Counter[str] = field(default_factory=Counter)
    told: Counter[tuple[str, str]] = field(default_factory=Counter)


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Listening."""
    found: Receiver

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = self.headers["webhook-id"]
            found.keys[key] += 1
            if found.keys[key] == 1:
                found.told.update((body["type"], name) for name in _alert_ids(body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Receiver(f"http://127.0.0.1:{server.server_port}/hook")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _alert_ids(body: Any) -> set[str]:
    """Ids of every alert in a message, wherever it stands."""
    if isinstance(body, list):
        return {i for item in body for i in _alert_ids(item)}
    if not isinstance(body, dict):
        return set()
    own = {body["id"]} if {"id", "verdict", "job"} <= body.keys() else set()
    return own | {i for item in body.values() for i in _alert_ids(item)}


class Service:
    """``weaklink serve --role worker`` processes of one consumer group on one database.

    On a busy machine publishing waits for the killing longer than a source may be silent before
    its last ticks are closed; one worker that reads the whole topic at once never sees that
    silence. So here silence closes nothing; `tests.test_kafka_source` kills workers around it.
    """

    def __init__(self, folder: Path, servers: str, group: str, url: str, hook: str):
        self.folder = folder
        self.group = group
        self.settings = KafkaSettings(
            bootstrap_servers=tuple(servers.split(",")),
            topics={TELEMETRY: "json"},
            group=group,
            dead_letter_topic=f"{group}.dead",
            alerts_topic=f"{group}.alerts",
        )
        self.database = Database(url, clock=time.time_ns)
        self.database.migrate()
        self.url, self.hook = url, hook
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.began: dict[str, int] = {}

    def start(self, name: str) -> None:
        """Start (again) the worker of this name."""
        kafka = self.settings
        text = f"""
            [http]
            port = 0
            [database]
            url = "{self.url}"
            [source]
            kind = "kafka"
            [kafka]
            bootstrap_servers = "{",".join(kafka.bootstrap_servers)}"
            group = "{self.group}"
            instance_id = "{name}"
            dead_letter_topic = "{kafka.dead_letter_topic}"
            alerts_topic = "{kafka.alerts_topic}"
            session_timeout_seconds = 10
            heartbeat_interval_seconds = 1
            snapshot_seconds = 5
            [kafka.topics]
            "{TELEMETRY}" = "json"
            [align]
            idle_seconds = 3600
            [worker]
            id = "{name}"
            poll_seconds = 0.5
            [alerts]
            age_limit_seconds = 1000000
            settle_seconds = 1
            resolve_hold_seconds = 1
            breaker_pages = 1000
            [log]
            format = "json"
            [[notify.receivers]]
            type = "webhook"
            name = "hook"
            url = "{self.hook}"
            rate_limit_per_minute = 60000
        """
        config = self.folder / f"{name}.toml"
        config.write_text("\n".join(line.strip() for line in text.splitlines()))
        command = [str(Path(sys.executable).with_name("weaklink")), "serve", "--role", "worker"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.began[name] = log.tell()
            self.processes[name] = subprocess.Popen(
                [*command, "--config", str(config)], cwd=ROOT, stdout=log, stderr=log
            )

    def works(self, name: str) -> bool:
        """Whether it has taken partitions over since its start."""
        log = (self.folder / f"{name}.log").read_bytes()
        return b"partition taken over" in log[self.began[name] :]

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.processes[name].kill()
        self.processes[name].wait()

    def stop(self) -> None:
        """End everything, gently first."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.database.close()

    def stored(self) -> int:
        """Messages whose effect is stored."""
        with self.database.read() as session:
            return session.scalar(select(func.sum(PartitionRow.next_offset))) or 0

    def waiting(self) -> int:
        """Messages to people that are not delivered yet."""
        with self.database.read() as session:
            query = select(func.count()).select_from(OutboxRow).where(OutboxRow.state == "pending")
            return session.scalar(query) or 0

    def alerts(self) -> dict[str, Any]:
        """Every stored alert, complete, with its version."""
        with self.database.read() as session:
            rows = session.scalars(select(AlertRow))
            return {row.id: (alert_from_row(row).to_json(), row.version) for row in rows}

    def events(self) -> int:
        """Alert changes in the event log."""
        with self.database.read() as session:
            query = select(func.count()).select_from(EventRow)
            return session.scalar(query.where(EventRow.kind.in_(ALERT_EVENTS))) or 0

    def published(self) -> list[tuple[str, int]]:
        """(id, version) of every message of the alerts topic, in order."""
        records = read_all(",".join(self.settings.bootstrap_servers), self.settings.alerts_topic)
        bodies = [orjson.loads(record.value) for record in records]
        return [(body["id"], body["version"]) for body in bodies]

    def dead_origins(self) -> Counter[str]:
        """Origins of the dead letters that stand for whole messages."""
        topic = self.settings.dead_letter_topic
        records = read_all(",".join(self.settings.bootstrap_servers), topic)
        origins = (dict(r.headers)["origin"].decode() for r in records)
        return Counter(o.split(",")[0] for o in origins if o.startswith(TELEMETRY))

    def wait_settled(self, messages: int, what: str) -> None:
        """Until all is read, nothing more follows from it, and everybody has been told."""
        wait_until(lambda: self.stored() == messages, f"{what}: every message is stored", 600)
        calm_since = [time.monotonic(), -1.0]

        def calm() -> bool:
            now = float(self.events() + 1000 * self.waiting())
            if now != calm_since[1]:
                calm_since[:] = [time.monotonic(), now]
            return self.waiting() == 0 and time.monotonic() - calm_since[0] > 20

        wait_until(calm, f"{what}: nothing changes any more", 300)
        wait_until(lambda: len(self.published()) >= self.events(), f"{what}: published", 120)


@pytest.fixture
def databases(postgres_server: URL) -> Iterator[list[str]]:
    """Two fresh databases on one server."""
    names = ["chaos_disturbed", "chaos_undisturbed"]
    info = postgres_server.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(info, autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}".encode())
    yield [postgres_server.set(database=n).render_as_string(hide_password=False) for n in names]
    with psycopg.connect(info, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_nothing_is_lost_or_doubled_whatever_is_killed(
    kafka_cluster: KafkaCluster, databases: list[str], recording: Path, tmp_path: Path
) -> None:
    servers = kafka_cluster.bootstrap_servers
    create_topic(servers, TELEMETRY, 4, {"message.timestamp.type": "LogAppendTime"})
    with ExitStack() as stack:
        hook, quiet_hook = stack.enter_context(receiver()), stack.enter_context(receiver())
        disturbed = Service(tmp_path, servers, "disturbed", databases[0], hook.url)
        stack.callback(disturbed.stop)
        for name in ("w0", "w1"):
            disturbed.start(name)

        sent: list[Published] = []
        pace = Pace(sum(pq.read_metadata(part).num_rows for part in recording.glob("*.parquet")))
        publisher = threading.Thread(target=lambda: sent.append(_publish(recording, servers, pace)))
        publisher.start()
        _torment(disturbed, kafka_cluster, pace)
        publisher.join()
        messages = len(read_all(servers, TELEMETRY))
        disturbed.wait_settled(messages, "disturbed")

        undisturbed = Service(tmp_path, servers, "undisturbed", databases[1], quiet_hook.url)
        stack.callback(undisturbed.stop)
        undisturbed.start("alone")
        undisturbed.wait_settled(messages, "undisturbed")

        expected = undisturbed.alerts()
        named = {body["job"]: body["machine"] for body, _ in expected.values()}
        assert set(named) >= {f"job-{number}" for number in FAULTS}
        assert disturbed.alerts() == expected
        # The topic of alerts: every change of every alert once, in order.
        published = disturbed.published()
        assert len(published) == len(set(published)) == disturbed.events()
        assert sorted(published) == sorted(undisturbed.published())
        for alert_id in expected:
            versions = [version for name, version in published if name == alert_id]
            assert versions == sorted(versions)
        # The webhook: told of the same changes of the same alerts, each once.
        assert hook.told == quiet_hook.told
        assert {name for _, name in hook.told} == set(expected)
        assert set(hook.told.values()) == {1}
        assert hook.keys.keys() == quiet_hook.keys.keys()
        # Every poison message is a dead letter.
        dead = disturbed.dead_origins()
        assert len(dead) == sent[0].poison
        assert dead.keys() == undisturbed.dead_origins().keys()


@dataclass
class Pace:
    """Lets publishing go on only as far as the killing is, so that neither outlasts the other."""

    rows: int
    sent: int = 0
    killed: int = 0

    def progress(self, published: Published) -> None:
        """So much is sent."""
        self.sent = published.rows

    def sleep(self, seconds: float) -> None:
        """Until the next message is due."""
        time.sleep(seconds)
        while self.killed < KILLS and self.sent / self.rows > (self.killed + 1) / (KILLS + 2):
            time.sleep(0.05)


def _publish(recording: Path, servers: str, pace: Pace) -> Published:
    dirt = Dirt(disorder_seconds=1.0, duplicates=0.01, poison=0.01, seed=11)
    return publish(
        recording,
        KafkaSettings(bootstrap_servers=tuple(servers.split(",")), request_timeout_seconds=60),
        TELEMETRY,
        PublishOptions(speed=SPEED, dirt=dirt),
        now_ns=time.time_ns,
        sleep=pace.sleep,
        progress=pace.progress,
    )


def _torment(service: Service, cluster: KafkaCluster, pace: Pace) -> None:
    """Kill workers at random moments, most while they work, and one broker for a while."""
    chance = random.Random(5)
    for number in range(KILLS):
        if number == KILLS // 3:
            cluster.kill(1)
        elif number == 2 * KILLS // 3:
            cluster.start(1)
        name = chance.choice(["w0", "w1"])
        if chance.random() < 0.85:
            wait_until(lambda name=name: service.works(name), f"{name} works", 600)  # type: ignore[misc]
        time.sleep(chance.uniform(0.0, 4.0))
        service.kill(name)
        service.start(name)
        pace.killed += 1
