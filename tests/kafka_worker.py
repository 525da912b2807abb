"""A worker on Kafka for the tests, in this process or (``python -m tests.kafka_worker``) in one
of its own that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from detect.pipeline import DetectorFactory, Pipeline
from ingest.catalogue import Catalogue
from ingest.rules import Rules
from serve.config import AlertSettings, LogSettings, WorkerSettings
from serve.decoding import FormatDecoder
from serve.kafka.alerts_topic import AlertsTopic, TopicTail
from serve.kafka.consumer import Moves
from serve.kafka.dead_letter import DeadLetters
from serve.kafka.producer import Producer
from serve.kafka.settings import KafkaSettings
from serve.kafka.source import KafkaSource
from serve.lifecycle import Lifecycle
from serve.links import Links
from serve.logs import configure_logs
from serve.metrics import Metrics
from serve.pump import EventPump
from serve.store.base import Database
from serve.worker import Worker, WorkerParts
from tests.serve_support import KeptOutbox, ThresholdDetector

ROOT = Path(__file__).parent.parent
CATALOGUE = Catalogue.default()
make_decoder = FormatDecoder(CATALOGUE, Rules(), {}).decoder


def settings_for(servers: str, name: str, **changes: Any) -> KafkaSettings:
    """Settings whose topics and group no other test uses; quick timeouts."""
    return KafkaSettings.model_validate(
        {
            "bootstrap_servers": servers,
            "topics": {f"{name}.telemetry": "json"},
            "dead_letter_topic": f"{name}.dead",
            "alerts_topic": f"{name}.alerts",
            "group": name,
            "topic": {"partitions": 4},
            "session_timeout_seconds": 6,
            "heartbeat_interval_seconds": 1,
            "snapshot_seconds": 2,
        }
        | changes
    )


def kafka_worker(
    settings: KafkaSettings,
    database: Database,
    *,
    owner: str = "w",
    make_detector: DetectorFactory = ThresholdDetector,
    **source: Any,
) -> Worker:
    """A worker with everything that it has in production but notifications."""
    producer = Producer(settings)
    publisher = AlertsTopic(producer, TopicTail(settings), settings.alerts_topic)
    parts = WorkerParts(
        source=KafkaSource(settings, database, make_decoder, owner=owner, **source),
        pipeline=Pipeline(CATALOGUE, make_detector),
        database=database,
        lifecycle=Lifecycle(AlertSettings(), Links("http://weaklink")),
        outbox=KeptOutbox(),
        metrics=Metrics("test"),
        settings=WorkerSettings(id=owner, poll_seconds=0.2),
        rejects=DeadLetters(producer, settings.dead_letter_topic),
        pump=EventPump(database, publisher),
    )
    return Worker(parts)


@contextmanager
def worker_process(
    settings: KafkaSettings,
    database: Database,
    owner: str,
    folder: Path,
    *,
    dies_halfway: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process of its own; at the end it is killed if it still runs. With
    ``dies_halfway`` it is killed when it gives partitions up, before it can ask for the round in
    which others would get them."""
    file = folder / f"{owner}.json"
    url = database.engine.url.render_as_string(hide_password=False)
    body = {"kafka": settings.model_dump(mode="json"), "database": url, "owner": owner}
    file.write_text(json.dumps(body | {"dies_halfway": dies_halfway}))
    command = [sys.executable, "-m", "tests.kafka_worker", str(file)]
    with (folder / f"{owner}.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run until SIGTERM; ``argv[1]`` is a JSON file with settings, database and owner."""
    body = json.loads(Path(sys.argv[1]).read_text())
    configure_logs(LogSettings(level="info", format="json"))
    database = Database(body["database"], clock=time.time_ns)
    worker = kafka_worker(KafkaSettings(**body["kafka"]), database, owner=body["owner"])
    if body["dies_halfway"]:
        Moves.on_partitions_revoked = _die  # type: ignore[assignment,method-assign]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    worker.start()
    stop.wait()
    worker.stop()


if __name__ == "__main__":
    main()
