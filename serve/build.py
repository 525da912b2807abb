"""From the configuration to the parts of a running service; nothing is started here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from prometheus_client.registry import Collector

from detect.detector import JobDetector
from detect.pipeline import DetectorFactory, Pipeline, PipelineSettings
from detect.registry import make_detector
from ingest.catalogue import Catalogue, CatalogueError
from ingest.recording_label import RecordingError, read_topology
from ingest.samples import Rejected
from models.evidence_model import ModelError
from models.registry import load_model
from serve.config import Config, ConfigError
from serve.decoding import FormatDecoder
from serve.rejects import RejectFile
from serve.seams import Publisher, RejectSink
from serve.source import PushSource, Source
from serve.store.base import Database

_log = structlog.stdlib.get_logger("weaklink")


@dataclass(frozen=True, slots=True)
class Sources:
    """A source and what belongs to it."""

    source: Source
    rejects: RejectSink | None = None
    publisher: Publisher | None = None
    collector: Collector | None = None
    """Metrics of its own."""


def build_catalogue(config: Config) -> Catalogue:
    """The shipped catalogue, with the user's entries."""
    shipped = Catalogue.default()
    path = config.detection.catalogue_file
    if path is None:
        return shipped
    try:
        return shipped.extended(path)
    except (CatalogueError, OSError) as error:
        raise ConfigError(f"detection.catalogue_file: {error}") from None


def build_pipeline(config: Config, catalogue: Catalogue) -> Pipeline:
    """All jobs' alignment and detection."""
    detection = config.detection
    settings = PipelineSettings(
        align=config.align.settings(),
        max_jobs=detection.max_jobs,
        forget_after_ns=round(detection.forget_job_seconds * 1e9),
        history_bytes=detection.history_bytes_per_job,
    )
    return Pipeline(catalogue, detector_factory(config, catalogue), settings)


def detector_factory(config: Config, catalogue: Catalogue) -> DetectorFactory:
    """Makes detectors with the configured model and topology."""
    topology = _topology(config)
    name = config.detection.detector
    model = model_of(config.detection.model, name, config.detection.models_dir)

    def make(job: str) -> JobDetector:
        return make_detector(name, job, catalogue=catalogue, model=model, topology=topology)

    make("")  # a detector that cannot be made must fail now, not at the first sample
    return make


def model_of(name: str, detector: str, store: Path | None = None) -> Any:
    """A model by name or folder; None lets the detector take the shipped one."""
    try:
        return load_model(name, detector, store)
    except (ModelError, OSError) as error:
        raise ConfigError(f"detection.model: {error}") from None


def build_sources(config: Config, catalogue: Catalogue, database: Database) -> Sources:
    """The configured source, and where its rejects and the alerts go."""
    path = config.source.reject_file
    rejects = RejectFile(path, config.source.reject_file_bytes, database.clock) if path else None
    if config.source.kind == "kafka":
        return _kafka(config, catalogue, database, rejects)
    source = PushSource(config.source.queue_rows, config.source.batch_rows)
    return Sources(source, rejects)


def build_decoder(config: Config, catalogue: Catalogue) -> FormatDecoder:
    """Decodes what is pushed."""
    telemetry = config.telemetry
    return FormatDecoder(catalogue, telemetry.rules(), telemetry.job_of_machine)


def _topology(config: Config) -> Mapping[str, Mapping[str, Any]] | None:
    path = config.detection.topology_file
    if path is None:
        return None
    if not path.exists():
        raise ConfigError(f"detection.topology_file: {path}: no such file")
    try:
        return read_topology(path)
    except RecordingError as error:
        raise ConfigError(f"detection.topology_file: {error}") from None


def _kafka(
    config: Config, catalogue: Catalogue, database: Database, rejects: RejectSink | None
) -> Sources:
    # Imported only here: without Kafka nothing of it is loaded.
    from ingest.formats.registry import FORMATS, format_of
    from serve.kafka.alerts_topic import AlertsTopic, TopicTail
    from serve.kafka.dead_letter import DeadLetters
    from serve.kafka.heartbeat import Heartbeat
    from serve.kafka.metrics import KafkaCollector
    from serve.kafka.producer import Producer
    from serve.kafka.security import KafkaSetupError, check_client, client_options
    from serve.kafka.source import KafkaSource

    settings = config.kafka
    for topic, form in settings.topics.items():
        if format_of(form) is None:
            known = ", ".join(FORMATS)
            raise ConfigError(f"kafka.topics.{topic}: no format {form!r}; there are {known}")
    try:
        slow = check_client()
        client_options(settings)  # files that cannot be read must be told now
    except KafkaSetupError as error:
        raise ConfigError(str(error)) from None
    for line in slow:
        _log.warning(line)
    decoders = build_decoder(config, catalogue)
    producer = Producer(settings)
    name = config.worker.name
    every = config.worker.heartbeat_seconds
    topic = settings.heartbeat_topic
    heart = Heartbeat(producer, topic, name, every_seconds=every, now_ns=database.clock)
    source = KafkaSource(
        settings,
        database,
        decoders.decoder,
        owner=name,
        job_of_machine=decoders.job_of_machine,
        after_turn=heart.beat,
    )
    dead = DeadLetters(producer, settings.dead_letter_topic)
    return Sources(
        source,
        BothSinks(dead, rejects) if rejects else dead,
        AlertsTopic(producer, TopicTail(settings), settings.alerts_topic),
        KafkaCollector(source),
    )


@dataclass(frozen=True, slots=True)
class BothSinks:
    """Rejects go to two places."""

    first: RejectSink
    second: RejectSink

    def write(self, rejected: Sequence[Rejected]) -> None:
        """See `RejectSink`."""
        self.first.write(rejected)
        self.second.write(rejected)
