"""Sends a recorded incident to Kafka as the live cluster would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kafka import KafkaProducer
from kafka.errors import KafkaError

from serve.kafka.outflow import Dirt, Form, letters, span_ns
from serve.kafka.security import KafkaSetupError, client_options
from serve.kafka.settings import KafkaSettings
from serve.kafka.topics import prepare_topics

SECOND = 1_000_000_000
PATIENCE_SECONDS = 600.0
"""So long brokers that are away or slow are waited for."""


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """How to send.

    ``speed`` is event time per wall-clock time; 0 = as fast as possible. Time stamps are
    shifted so that the last one is "now" when it is sent (at speed 1 all are), unless
    ``keep_times``. ``job`` replaces the recorded name.
    """

    speed: float = 1.0
    form: Form = "json"
    rows_per_message: int = 50
    keep_times: bool = False
    job: str | None = None
    dirt: Dirt = field(default_factory=Dirt)


@dataclass(frozen=True, slots=True)
class Published:
    """What was sent (and acknowledged)."""

    messages: int
    rows: int
    poison: int


class Wire(Protocol):
    """What is used of `kafka.KafkaProducer`."""

    def send(self, topic: str, **message: Any) -> Any: ...
    def flush(self, timeout: float | None = None) -> Any: ...
    def close(self, timeout: float | None = None) -> None: ...


def publish(
    path: Path,
    settings: KafkaSettings,
    topic: str,
    options: PublishOptions,
    *,
    now_ns: Callable[[], int],
    sleep: Callable[[float], None],
    open_wire: Callable[[KafkaSettings, str], Wire] | None = None,
    progress: Callable[[Published], None] = lambda _published: None,
) -> Published:
    """Send every row of a recording; returns when all are acknowledged.

    Raises
    ------
    RecordingError
        The recording cannot be read.
    KafkaSetupError
        No broker answers, the topic is missing or too narrow, or a message was not taken.
    """
    first, last = span_ns(path)
    wire = (open_wire or _open)(settings, topic)
    errors: list[BaseException] = []
    count: Counter[str] = Counter()
    begun = now_ns()
    wall_ns = (last - first) / options.speed if options.speed else 0
    # To whole milliseconds, so that a time stamp of the recording stays as short as it is.
    shift = 0 if options.keep_times else round((begun + wall_ns - last) / 1e6) * 1_000_000
    try:
        told = begun
        for letter in letters(
            path,
            form=options.form,
            rows_per_message=options.rows_per_message,
            shift_ns=shift,
            job=options.job,
            dirt=options.dirt,
        ):
            if options.speed:
                ahead = begun + (letter.due_ns - first) / options.speed - now_ns()
                if ahead > 1_000_000:
                    sleep(ahead / 1e9)
            if errors:
                break
            headers = [("content-type", letter.content_type)]
            sent = wire.send(topic, key=letter.key, value=letter.value, headers=headers)
            sent.add_errback(errors.append)
            count.update(messages=1, rows=letter.rows, poison=int(letter.poison))
            if now_ns() - told > SECOND:
                told = now_ns()
                progress(_published(count))
        wire.flush(timeout=PATIENCE_SECONDS)
    except KafkaError as error:
        errors.append(error)
    finally:
        try:
            wire.close(timeout=0 if errors else 10)
        except KafkaError as error:
            errors.append(error)
    if errors:
        raise KafkaSetupError(f"kafka: topic {topic}: {_line(errors[0])}")
    return _published(count)


def _published(count: Counter[str]) -> Published:
    return Published(count["messages"], count["rows"], count["poison"])


def _open(settings: KafkaSettings, topic: str) -> Wire:
    kind = settings.compression
    try:
        prepare_topics(settings, only=topic)
        wire: Wire = KafkaProducer(
            **client_options(settings),
            metrics_enabled=False,
            acks="all",
            enable_idempotence=True,  # a message sent again stands once, and in its place
            delivery_timeout_ms=int(1000 * PATIENCE_SECONDS),
            allow_auto_create_topics=False,
            compression_type=None if kind == "none" else kind,
            linger_ms=20,
            batch_size=256 << 10,
            max_request_size=settings.message_bytes,
            max_block_ms=int(1000 * settings.request_timeout_seconds),
        )
    except KafkaError as error:
        servers = ",".join(settings.bootstrap_servers)
        raise KafkaSetupError(f"kafka: {servers}: {_line(error)}") from None
    return wire


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
