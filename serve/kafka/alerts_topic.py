"""Every change of an alert, to the compacted topic ``weaklink.alerts``; each exactly once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import orjson
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError

from serve.kafka.opening import opened
from serve.kafka.producer import Outgoing, Producer
from serve.kafka.security import client_options
from serve.kafka.settings import KafkaSettings

LOOK_BACK = 5_000
"""Messages at the topic's end that are looked at first; more than a publisher ever sends
before it notes that it has."""


class Tail(Protocol):
    """Reads what others (or we, before a crash) have published."""

    def news(self) -> list[tuple[str, int]]:
        """(alert id, version) of the messages since the last call, at first of the latest."""
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...


class AlertsTopic:
    """Implements `serve.worker.Publisher`: key = alert id, value = the alert's JSON.

    The caller publishes in order, one process at a time, and may come again with messages that
    were sent before it crashed. So before sending, the end of the topic is read, and what
    stands there already - the same alert in the same ``version`` - is left out. The header
    ``version`` repeats the alert's.
    """

    def __init__(self, producer: Producer, tail: Tail, topic: str):
        self._producer = producer
        self._tail = tail
        self._topic = topic
        self._seen: OrderedDict[tuple[str, int], None] = OrderedDict()

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Send (alert id, alert JSON) in order; KafkaError if any is not safely there."""
        for known in self._tail.news():
            self._seen[known] = None
            self._seen.move_to_end(known)
        while len(self._seen) > LOOK_BACK:
            self._seen.popitem(last=False)
        outgoing = []
        for alert_id, body in messages:
            version = version_of(body)
            if version < 0 or (alert_id, version) not in self._seen:
                headers = (
                    ("content-type", b"application/json"),
                    ("version", str(version).encode()),
                )
                outgoing.append(Outgoing(alert_id.encode(), body, headers))
        self._producer.send(self._topic, outgoing)


class TopicTail:
    """`Tail` of the real topic."""

    def __init__(
        self,
        settings: KafkaSettings,
        open_consumer: Callable[[], Any] | None = None,
    ):
        self._topic = settings.alerts_topic
        self._timeout_ms = int(1000 * settings.request_timeout_seconds)
        self._open = open_consumer or (lambda: _consumer(settings))
        self._consumer: Any = None
        self._next: dict[TopicPartition, int] = {}

    def news(self) -> list[tuple[str, int]]:
        """See `Tail`."""
        try:
            return self._read()
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """See `Tail`. What was read stays known."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _read(self) -> list[tuple[str, int]]:
        if self._consumer is None:
            self._consumer = self._open()
        consumer = self._consumer
        parts = [TopicPartition(self._topic, p) for p in consumer.partitions_for_topic(self._topic)]
        ends = consumer.end_offsets(parts, timeout_ms=self._timeout_ms)
        firsts = consumer.beginning_offsets(parts, timeout_ms=self._timeout_ms)
        if set(parts) != consumer.assignment():
            consumer.assign(parts)
        for part in parts:
            start = self._next.get(part, ends[part] - LOOK_BACK)
            self._next[part] = max(min(start, ends[part]), firsts[part])
            consumer.seek(part, self._next[part])
        found: list[tuple[str, int]] = []
        while any(self._next[part] < ends[part] for part in parts):
            moved = False
            brought = consumer.poll(timeout_ms=self._timeout_ms, max_records=LOOK_BACK)
            for part in parts:
                found += [
                    ((record.key or b"").decode(), version_of(record.value))
                    for record in brought.get(part, ())
                    if record.value
                ]
                # The position also passes what compaction took away.
                reached = consumer.position(part, timeout_ms=self._timeout_ms)
                moved |= reached != self._next[part]
                self._next[part] = reached
            if not moved:
                raise KafkaTimeoutError(f"cannot read the end of {self._topic}")
        return found


def version_of(body: bytes) -> int:
    """The alert's ``version`` in its JSON; -1 if it has none."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        return -1
    version = content.get("version", -1) if isinstance(content, dict) else -1
    return version if isinstance(version, int) else -1


def _consumer(settings: KafkaSettings) -> Any:
    return opened(
        KafkaConsumer,
        **client_options(settings),
        metrics_enabled=False,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        allow_auto_create_topics=False,
    )
