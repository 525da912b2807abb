"""Real Apache Kafka for the tests: one broker, or three that can be killed and started.

``KAFKA_BOOTSTRAP_SERVERS`` names a running broker to use instead of starting one (tests that
need TLS or must kill a broker always start their own). Otherwise Kafka's jars come once from
Maven Central into the user's cache and run in KRaft mode on loopback. Where that is not
possible the tests are skipped with the reason in one line; with ``CI=true`` they fail.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import fcntl
import gc
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.net.inet import KafkaNetSocket

KAFKA_VERSION = "4.4.0"
USER = "weaklink"
PASSWORD = "a-password-for-tests"

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>weaklink</groupId><artifactId>kafka-for-tests</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""


class KafkaUnavailableError(Exception):
    """Kafka cannot run here; the message is one line."""


def jars() -> Path:
    """The folder with Kafka's jars, fetched on first use (one process at a time)."""
    for tool in ("java", "mvn", "keytool"):
        if shutil.which(tool) is None:
            raise KafkaUnavailableError(f"{tool} is not installed (needs Java 17+ and Maven)")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weaklink-kafka"
    lib = cache / KAFKA_VERSION
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if lib.is_dir():
            return lib
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            Path(scratch, "pom.xml").write_text(_POM)
            fetched = Path(scratch, "lib")
            done = subprocess.run(
                ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={fetched}"],
                cwd=scratch,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
                raise KafkaUnavailableError(
                    f"Maven could not fetch Kafka {KAFKA_VERSION}: {lines[0]}"
                )
            fetched.rename(lib)
    return lib


def _free_ports(count: int) -> list[int]:
    """Ports below the range from which the system takes those of outgoing connections.

    A broker that was killed must find its port free again, and a client that tries to reach it
    meanwhile must not be connected to itself.
    """
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = random.randrange(20_000, 32_000)
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", port))
                found.append(port)
    return found


@dataclass
class Node:
    """One combined broker and controller."""

    number: int
    folder: Path
    port: int
    secure_port: int
    controller_port: int
    process: subprocess.Popen[bytes] | None = None


@dataclass
class KafkaCluster:
    """Brokers started by `start_cluster`; every method waits until it is true."""

    folder: Path
    session_ms: int
    nodes: list[Node] = field(default_factory=list)

    @property
    def bootstrap_servers(self) -> str:
        """Plaintext listeners."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def secure_servers(self) -> str:
        """SASL_SSL listeners (PLAIN and SCRAM-SHA-512, `USER` and `PASSWORD`)."""
        return ",".join(f"127.0.0.1:{node.secure_port}" for node in self.nodes)

    @property
    def ca_file(self) -> Path:
        """The certificate to trust."""
        return self.folder / "ca.pem"

    def start(self, number: int) -> None:
        """Start one broker (its data is kept from before)."""
        node = self.nodes[number]
        command = [
            *_dies_with_us(),
            *_java(),
            f"-Dorg.slf4j.simpleLogger.defaultLogLevel={os.environ.get('KAFKA_LOG', 'warn')}",
            "kafka.Kafka",
            str(node.folder / "server.properties"),
        ]
        with (node.folder / "log").open("ab") as log:
            node.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def kill(self, number: int) -> None:
        """``kill -9`` one broker."""
        process = self.nodes[number].process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def wait(self, count: int | None = None, timeout_seconds: float = 240.0) -> None:
        """Until ``count`` (default: all) brokers serve, or `KafkaUnavailableError`."""
        want = len(self.nodes) if count is None else count
        deadline = time.monotonic() + timeout_seconds
        cause = ""
        while time.monotonic() < deadline:
            for node in self.nodes:
                if count is None and node.process is not None and node.process.poll() is not None:
                    tail = (node.folder / "log").read_text(errors="replace").splitlines()[-3:]
                    raise KafkaUnavailableError(f"broker {node.number} ended: {' | '.join(tail)}")
            try:
                admin = KafkaAdminClient(
                    bootstrap_servers=self.bootstrap_servers, bootstrap_timeout_ms=2_000
                )
                try:
                    if len(admin.describe_cluster()["brokers"]) >= want:
                        return
                finally:
                    admin.close()
            except KafkaError as error:
                cause = str(error)
            time.sleep(0.2)
        raise KafkaUnavailableError(f"{want} brokers not up in {timeout_seconds:.0f} s: {cause}")

    def stop(self) -> None:
        """Kill everything; safe to call twice."""
        for number in range(len(self.nodes)):
            self.kill(number)


def _java() -> list[str]:
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return ["java", "-Xmx384m", *quick, "-cp", f"{jars()}/*"]


def _dies_with_us() -> list[str]:
    """A prefix that makes a child die with this process even if it is killed."""
    return ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise KafkaUnavailableError(f"{command[0]} failed: {lines[-1]}")


def _properties(cluster: KafkaCluster, node: Node, voters: str) -> str:
    copies = min(3, len(cluster.nodes))
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "process.roles": "broker,controller",
        "node.id": node.number + 1,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": f"PLAINTEXT://127.0.0.1:{node.port},SASL_SSL://127.0.0.1:{node.secure_port},"
        f"CONTROLLER://127.0.0.1:{node.controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,"
        "CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{plain} user_{USER}="{PASSWORD}";',
        "ssl.keystore.location": cluster.folder / "keystore.p12",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "log.dirs": node.folder / "data",
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": min(2, copies),
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": min(2, copies),
        "share.coordinator.state.topic.replication.factor": copies,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1_000,
        "broker.session.timeout.ms": cluster.session_ms,
        # A broker that was killed may register again only once its old session is over.
        "initial.broker.registration.timeout.ms": cluster.session_ms + 60_000,
        "broker.heartbeat.interval.ms": 500,
        "num.network.threads": 2,
        "num.io.threads": 2,
        "log.cleaner.dedupe.buffer.size": 4 << 20,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def start_cluster(brokers: int, folder: Path, session_ms: int = 6_000) -> KafkaCluster:
    """Format, start and wait; the caller stops it (the end of the process does, too).

    A broker not heard of for ``session_ms`` is thought dead.
    """
    cluster = KafkaCluster(folder, session_ms)
    atexit.register(cluster.stop)
    ports = _free_ports(3 * brokers)
    for number in range(brokers):
        home = folder / f"broker-{number}"
        home.mkdir(parents=True)
        port, secure_port, controller_port = ports[3 * number : 3 * number + 3]
        cluster.nodes.append(Node(number, home, port, secure_port, controller_port))
    keystore = str(folder / "keystore.p12")
    secret = ("-storepass", PASSWORD, "-keystore", keystore, "-alias", "broker")
    name = ("-dname", "CN=localhost", "-ext", "SAN=IP:127.0.0.1,DNS:localhost")
    kind = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "30", "-storetype", "PKCS12")
    _run("keytool", "-genkeypair", *kind, *name, *secret)
    _run("keytool", "-exportcert", "-rfc", "-file", str(cluster.ca_file), *secret)
    voters = ",".join(f"{n.number + 1}@127.0.0.1:{n.controller_port}" for n in cluster.nodes)
    identity = _cluster_id()
    for node in cluster.nodes:
        file = node.folder / "server.properties"
        file.write_text(_properties(cluster, node, voters))
        scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
        tool = ("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(file))
        _run(*_java(), *tool, "--add-scram", scram)
    for node in cluster.nodes:
        cluster.start(node.number)
    cluster.wait()
    return cluster


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A", 1)


def _unavailable(reason: str) -> NoReturn:
    line = f"NO REAL KAFKA: {reason}"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(line, pytrace=False)
    pytest.skip(line)


def _started(brokers: int, session_ms: int) -> Iterator[KafkaCluster]:
    folder = Path(tempfile.mkdtemp(prefix="weaklink-kafka-"))
    cluster: KafkaCluster | None = None
    try:
        try:
            cluster = start_cluster(brokers, folder, session_ms)
        except KafkaUnavailableError as error:
            _unavailable(str(error))
        yield cluster
    finally:
        if cluster is not None:
            cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaCluster]:
    """One broker of our own, for the whole session; never thought dead, however starved."""
    yield from _started(1, session_ms=120_000)


@pytest.fixture(scope="module")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Three brokers of which one may be killed."""
    yield from _started(3, session_ms=9_000)


@pytest.fixture(scope="session")
def kafka_servers(request: pytest.FixtureRequest) -> str:
    """``bootstrap.servers`` of a plaintext broker."""
    given = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if given:
        return given
    broker: KafkaCluster = request.getfixturevalue("kafka_broker")
    return broker.bootstrap_servers


def _close_refused_sockets() -> None:
    """kafka-python leaves the socket of a refused connection to the garbage collector; then
    some later test would be blamed for it."""
    connect = KafkaNetSocket.sock_connect

    async def sock_connect(
        self: Any, net: Any, sock: socket.socket, *rest: Any, **more: Any
    ) -> Any:
        try:
            return await connect(self, net, sock, *rest, **more)
        except BaseException:
            sock.close()
            raise

    KafkaNetSocket.sock_connect = sock_connect


_close_refused_sockets()

KAFKA_MARKS = [
    pytest.mark.kafka,
    pytest.mark.usefixtures("kafka_tidy"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
"""Marks of every module that talks to a real broker."""


@pytest.fixture
def kafka_tidy() -> Iterator[None]:
    """Collects what a test has left behind before the next one is blamed for it."""
    yield
    gc.collect()


@pytest.fixture
def kafka_name() -> str:
    """A prefix for topics and groups that no other test uses."""
    return f"t{uuid.uuid4().hex[:12]}"


def create_topic(
    servers: str, topic: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> None:
    """Create a topic and wait for its leaders."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        spec = {"num_partitions": partitions, "replication_factor": -1, "configs": configs or {}}
        admin.create_topics({topic: spec}, wait_for_metadata=True)
    finally:
        admin.close()


def send(servers: str, topic: str, records: list[dict[str, Any]]) -> None:
    """Send records (`KafkaProducer.send` keywords) and wait for every acknowledgement."""
    with KafkaProducer(
        bootstrap_servers=servers, linger_ms=5, max_request_size=16 << 20
    ) as producer:
        futures = [producer.send(topic, **record) for record in records]
        for future in futures:
            future.get(30)


def read_all(servers: str, topic: str) -> list[Any]:
    """Every record of a topic as `ConsumerRecord`, partition by partition."""
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    try:
        parts = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))]
        if not parts:
            return []
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        consumer.seek_to_beginning(*parts)
        found: list[Any] = []
        while any(consumer.position(part) < ends[part] for part in parts):
            for records in consumer.poll(timeout_ms=500, max_records=10_000).values():
                found.extend(records)
        return sorted(found, key=lambda record: (record.partition, record.offset))
    finally:
        consumer.close()


def wait_until(
    condition: Callable[[], bool],
    what: str,
    seconds: float = 120.0,
    state: Callable[[], object] = lambda: "",
) -> None:
    """Poll until true; an AssertionError that names ``what`` and ``state`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what} {state()}")
        time.sleep(0.05)


def trusting_context(cluster: KafkaCluster) -> ssl.SSLContext:
    """A TLS context that trusts the cluster's certificate."""
    return ssl.create_default_context(cafile=str(cluster.ca_file))
