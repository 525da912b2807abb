"""Kafka in memory: topics, consumers whose assignment the test decides, producers that fail."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.structs import ConsumerGroupMetadata, MemberState, OffsetAndMetadata

from serve.kafka.consumer import Consumer
from serve.kafka.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Record:
    """A message as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class FakeKafka:
    """Partitions of one topic; ``down`` makes every call of a consumer fail."""

    topic: str = "telemetry"
    topic_id: str = "one"
    down: bool = False
    logs: dict[int, list[Record]] = field(default_factory=lambda: defaultdict(list))
    first: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    consumers: list[FakeConsumer] = field(default_factory=list)

    def connect(self, settings: KafkaSettings, counts: Counter[str]) -> Consumer:
        """`serve.kafka.consumer.connect`."""
        if self.down:
            raise KafkaTimeoutError("no broker answers")
        del settings, counts
        consumer = FakeConsumer(self)
        self.consumers.append(consumer)
        return consumer

    def put(self, partition: int, value: bytes | None, **fields: Any) -> None:
        """Append a message."""
        log = self.logs[partition]
        key = fields.pop("key", b"llama")
        log.append(Record(self.first[partition] + len(log), key, value, **fields))

    def delete_before(self, partition: int, offset: int) -> None:
        """What retention does."""
        gone = offset - self.first[partition]
        del self.logs[partition][:gone]
        self.first[partition] = offset

    def end(self, partition: int) -> int:
        """Offset of the next message."""
        return self.first[partition] + len(self.logs[partition])


class FakeConsumer:
    """`serve.kafka.consumer.Consumer` on a `FakeKafka`; `move` decides at the next poll.

    ``broken`` is raised by every call; ``deaf`` lets questions about offsets fail.
    """

    def __init__(self, kafka: FakeKafka):
        self.kafka = kafka
        self.positions: dict[TopicPartition, int] = {}
        self.stopped: set[TopicPartition] = set()
        self.next: tuple[str, set[TopicPartition]] | None = None
        self.closed = False
        self.broken: Exception | None = None
        self.deaf = False
        self.state = MemberState.STABLE
        self.listener: Any = None
        self._cluster = self

    def topic_id(self, topic: str) -> str:
        del topic
        return self.kafka.topic_id

    def move(self, *partitions: int, how: str = "cooperative") -> None:
        """From the next poll on own exactly these; ``how``: cooperative, eager or lost."""
        self.next = (how, {TopicPartition(self.kafka.topic, p) for p in partitions})

    def subscribe(self, topics: Collection[str], *, listener: Any) -> None:
        self.listener = listener

    def poll(self, timeout_ms: float, max_records: int) -> dict[TopicPartition, list[Any]]:
        self._check()
        if self.next is not None:
            how, wanted = self.next
            self.next = None
            self._move(how, wanted)
        found: dict[TopicPartition, list[Any]] = {}
        for tp in sorted(self.positions):
            if tp in self.stopped:
                continue
            position = max(self.positions[tp], self.kafka.first[tp.partition])
            start = position - self.kafka.first[tp.partition]
            records = self.kafka.logs[tp.partition][start : start + max_records]
            if records:
                found[tp] = records
                self.positions[tp] = records[-1].offset + 1
                max_records -= len(records)
        return found

    def _move(self, how: str, wanted: set[TopicPartition]) -> None:
        owned = set(self.positions)
        leaving = owned if how in ("eager", "lost") else owned - wanted
        if leaving:
            tell = self.listener.on_partitions_lost
            if how != "lost":
                tell = self.listener.on_partitions_revoked
            tell(leaving)
        coming = wanted - (owned - leaving)
        for tp in leaving:
            self.positions.pop(tp, None)
            self.stopped.discard(tp)
        self.positions |= dict.fromkeys(coming, 0)
        if coming:
            self.listener.on_partitions_assigned(coming)

    def assignment(self) -> set[TopicPartition]:
        return set(self.positions)

    def pause(self, *partitions: TopicPartition) -> None:
        self.stopped |= set(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.stopped -= set(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def highwater(self, partition: TopicPartition) -> int | None:
        return self.kafka.end(partition.partition)

    def committed(self, partition: TopicPartition, *, timeout_ms: int) -> int | None:
        self._check()
        return self.kafka.committed.get(partition)

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], *, timeout_ms: int
    ) -> dict[TopicPartition, int]:
        self._check()
        if self.deaf:
            raise KafkaTimeoutError("no answer about offsets")
        return {tp: self.kafka.first[tp.partition] for tp in partitions}

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, timeout_ms: int
    ) -> dict[TopicPartition, int]:
        self._check()
        return {tp: self.kafka.end(tp.partition) for tp in partitions}

    def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None:
        self._check()
        self.kafka.committed |= {tp: body.offset for tp, body in offsets.items()}

    def commit_async(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], *, callback: Any
    ) -> None:
        self.commit(offsets, timeout_ms=0)
        callback(offsets, None)

    def group_metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata("group", 1, "member", None, self.state)

    def close(self, *, autocommit: bool, timeout_ms: int) -> None:
        del autocommit
        self.closed = True
        if self.positions:
            self._move("cooperative", set())

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken
        if self.kafka.down:
            raise KafkaTimeoutError("no broker answers")


@dataclass
class FakeProducer:
    """`serve.kafka.producer.Client`: keeps what was sent; ``fail`` breaks the next messages."""

    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    fail: int = 0
    closed: bool = False

    def send(self, topic: str, **message: Any) -> Any:
        if self.fail:
            self.fail -= 1
            return _Future(KafkaTimeoutError("not acknowledged"))
        self.sent.append((topic, message))
        return _Future(None)

    def flush(self, timeout: float | None = None) -> None:
        pass

    def close(self, timeout: float | None = None) -> None:
        self.closed = True


@dataclass
class _Future:
    error: KafkaError | None

    def get(self, timeout: float | None = None) -> None:
        if self.error is not None:
            raise self.error


Opener = Callable[[], FakeProducer]
