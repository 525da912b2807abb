"""Telemetry from Kafka with exactly-once effect.

What a message leads to - alert changes, notices, and how far the partition is - is stored in
one transaction of the service's database (`serve.kafka.checkpoint`); Kafka's own committed
offset only follows. After a crash or a move the jobs' last snapshot is restored and the
messages since then are read again through the very calls that were made before
(`serve.kafka.journal`), without effect, up to where the checkpoint stands.

One thread does everything, so a slow turn simply fetches less: the client holds at most
``fetch_bytes`` per broker, and Kafka keeps the rest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from kafka import TopicPartition
from kafka.errors import KafkaError
from sqlalchemy.orm import Session

from detect.pipeline import Pipeline
from ingest.samples import Decoded, empty_samples
from serve.kafka.assignment import Assignment
from serve.kafka.checkpoint import FencedError
from serve.kafka.consumer import Connect, Consumer, Moves, connect
from serve.kafka.fetch import FRESH_SECONDS, Messages, batches, wait
from serve.kafka.link import Link
from serve.kafka.membership import Membership
from serve.kafka.partition import Batch, Stage, health_of
from serve.kafka.reader import DecoderFactory, PartitionReader
from serve.kafka.resume import repeat, restore
from serve.kafka.settings import KafkaSettings
from serve.source import Polled, SourceHealth, concat_decoded
from serve.store.base import Database

MARKS_SECONDS = 2.0
"""How often the partitions' watermarks are looked up."""

_log = structlog.stdlib.get_logger("weaklink")


@dataclass(slots=True)
class Turn:
    """`Polled.detail`: what `KafkaSource.prepare` and `KafkaSource.save` do."""

    batches: dict[TopicPartition, Batch] = field(default_factory=dict)


class KafkaSource:
    """See the module; implements `serve.source.Source`.

    ``owner`` names this worker in the checkpoints; ``job_of_machine`` maps machine patterns to
    jobs where samples do not say; ``after_turn`` is told of every turn that is stored.
    ``counts`` holds events by name (`serve.kafka.metrics`).
    """

    name = "kafka"

    def __init__(
        self,
        settings: KafkaSettings,
        database: Database,
        make_decoder: DecoderFactory,
        *,
        owner: str,
        job_of_machine: Mapping[str, str] | None = None,
        after_turn: Callable[[SourceHealth], None] = lambda _health: None,
        connect: Connect = connect,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.settings = settings
        self.database = database
        self.counts: Counter[str] = Counter()
        self._make_decoder = make_decoder
        self._job_of_machine = dict(job_of_machine or {})
        self._after_turn = after_turn
        self._monotonic = monotonic
        moves = Moves(assigned=self._assigned, revoked=self._revoked, lost=self._lost)
        self._link = Link(
            settings, connect, moves, counts=self.counts, monotonic=monotonic, sleep=sleep
        )
        self._assignment = Assignment(
            settings,
            database,
            self._reader,
            owner=owner,
            counts=self.counts,
            monotonic=monotonic,
        )
        self._membership = Membership(settings.group, settings.session_timeout_seconds)
        self._pipeline: Pipeline | None = None
        self._turn = 0
        self._open_turn: int | None = None
        self._advanced_ns: int | None = None
        self._marks_at = 0.0
        self._health = SourceHealth(connected=False, problem=self._link.problem)

    # ------------------------------------------------------------ a turn, in order

    def poll(self, timeout_seconds: float) -> Polled:
        """See `Source`; at most ``poll_messages`` messages."""
        if self._open_turn is not None:
            self._open_turn = None
            self._assignment.give_up(self._link.consumer)
        self._turn += 1
        turn, decoded = Turn(), Decoded(empty_samples())
        consumer = self._link.open(timeout_seconds)
        if consumer is not None:
            records = self._fetch(consumer, timeout_seconds)
            if records is not None:
                decoded = self._read(consumer, records, turn)
        self._open_turn = self._turn
        now = self._monotonic()
        for partition in self._assignment.partitions.values():
            fresh = partition.fresh_at is not None and now - partition.fresh_at <= FRESH_SECONDS
            partition.held = not fresh or partition.stage is not Stage.LIVE
        self._update_health()
        return Polled(decoded, position=self._turn, detail=turn)

    def prepare(self, pipeline: Pipeline, polled: Polled) -> None:
        """See `Source`. Calls made before are made again; what they say is stored already."""
        self._pipeline = pipeline
        self._advanced_ns = pipeline.advanced_ns
        while self._assignment.dropped:
            pipeline.drop(self._assignment.dropped.pop())
        limit = self.settings.snapshot_bytes
        for partition in self._assignment.partitions.values():
            while partition.to_restore:
                job, state = partition.to_restore.popitem()
                self.counts["cold_starts"] += not restore(pipeline, job, state, limit)
                partition.note_restored(job, rests=pipeline.rests(job))
        turn = polled.detail if isinstance(polled.detail, Turn) else Turn()
        for tp, batch in turn.batches.items():
            partition = self._assignment.partitions[tp]
            while batch.replayed:
                call = batch.replayed.pop(0)
                partition.note_jobs(call.samples)
                repeat(pipeline, call, sorted(partition.jobs))
                self.counts["replayed_rows"] += call.samples.num_rows
            if batch.fresh is not None:
                partition.note_jobs(batch.fresh.samples)
        pipeline.held = {
            job for p in self._assignment.partitions.values() if p.held for job in p.jobs
        }
        if self._monotonic() >= self._marks_at:
            self._marks_at = self._monotonic() + MARKS_SECONDS
            self._note_watermarks(pipeline)

    def save(self, session: Session, pipeline: Pipeline, polled: Polled) -> None:
        """See `Source`. Raises `FencedError` if a partition has moved away."""
        turn = polled.detail if isinstance(polled.detail, Turn) else Turn()
        advanced = pipeline.advanced_ns if pipeline.advanced_ns != self._advanced_ns else None
        for tp, batch in turn.batches.items():
            partition = self._assignment.partitions[tp]
            if partition.stage is not Stage.LIVE:
                continue
            passed = None if partition.held or not partition.jobs else advanced
            if batch.next_offset is None and passed is None and not batch.snapshot_due:
                continue
            try:
                self._assignment.store(session, partition, batch, pipeline, passed)
            except FencedError:
                self.counts["fenced"] += 1
                partition.stage = Stage.FENCED
                raise

    def commit(self, position: Any) -> None:
        """See `Source`."""
        if position is None or position != self._open_turn:
            return
        self._open_turn = None
        for partition in self._assignment.partitions.values():
            if partition.committed():
                self.counts["snapshots"] += 1
        news = self._assignment.untold()
        if self._link.commit(news):
            self._assignment.told(news)
        self._after_turn(self._health)

    def health(self) -> SourceHealth:
        """See `Source`."""
        return self._health

    def partitions(self) -> list[dict[str, Any]]:
        """Every assigned partition as it stands, for health and metrics."""
        found: list[dict[str, Any]] = list(self._health.detail.get("partitions", ()))
        return found

    def close(self) -> None:
        """See `Source`. Leaves a snapshot for whoever goes on, if the last turn is stored."""
        consumer = self._link.consumer
        if consumer is None:
            return
        self._link.commit(self._assignment.untold(), last=True)
        self._link.consumer = None
        try:
            consumer.close(autocommit=False, timeout_ms=5_000)
        except (KafkaError, RuntimeError) as error:
            _log.warning("closing the consumer", reason=str(error))

    # ------------------------------------------------------------ reading

    def _fetch(self, consumer: Consumer, timeout_seconds: float) -> Messages | None:
        """New messages; None if the client fails, which costs at most the connection."""
        try:
            self._assignment.take_over(consumer)
            # Partitions that wait to be taken over are not fetched before.
            records = wait(
                consumer,
                timeout_seconds,
                most=self.settings.poll_messages,
                interrupted=self._assignment.waiting,
            )
            # From here on messages are out of the client's hands.
            self._open_turn = self._turn
            self._assignment.take_over(consumer)
        except Exception as error:  # noqa: BLE001 - a client in disorder is replaced
            if self._link.trouble(error):
                self._assignment.lose(list(self._assignment.partitions))
                return None
            # The client may have counted messages as read that it never handed out.
            for tp, partition in self._assignment.reading().items():
                consumer.seek(tp, partition.read_offset)
            return None
        return records

    def _read(self, consumer: Consumer, records: Messages, turn: Turn) -> Decoded:
        reading = self._assignment.reading()
        # Without partitions of its own a worker asks about one of the topic's.
        asked = reading or [TopicPartition(next(iter(self.settings.topics)), 0)]
        ends = self._link.probe([tp for tp in asked if tp not in records])
        now, now_ms = self._monotonic(), self.database.clock() // 1_000_000
        turn.batches = batches(consumer, reading, records, ends, now=now, now_ms=now_ms)
        return concat_decoded([b.fresh for b in turn.batches.values() if b.fresh is not None])

    def _reader(self, tp: TopicPartition) -> PartitionReader:
        return PartitionReader(
            tp.topic,
            tp.partition,
            self._make_decoder,
            self.settings.topics[tp.topic],
            payload_bytes=self.settings.dead_letter_payload_bytes,
            message_bytes=self.settings.message_bytes,
            messages_per_second=self.settings.job_messages_per_second,
            job_of_machine=self._job_of_machine,
        )

    def _note_watermarks(self, pipeline: Pipeline) -> None:
        marks = {state.job: state.watermark_ns or 0 for state in pipeline.jobs()}
        for partition in self._assignment.partitions.values():
            found = max((marks.get(job, 0) for job in partition.jobs), default=0)
            partition.watermark_ns = found or None

    # ------------------------------------------------------------ partitions that move

    def _assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._assignment.assign(assigned, self._link.consumer)

    def _revoked(self, revoked: Collection[TopicPartition]) -> None:
        stored = self._open_turn is None
        self._assignment.revoke(revoked, self._pipeline if stored else None)

    def _lost(self, lost: Collection[TopicPartition]) -> None:
        self._assignment.lose(lost)

    # ------------------------------------------------------------ what others see

    def _update_health(self) -> None:
        consumer = self._link.consumer
        joined = self._membership.look(consumer, self._monotonic())
        self._health = health_of(
            self._assignment.partitions.values(),
            now_ms=self.database.clock() // 1_000_000,
            connected=consumer is not None and not self._link.problem and joined,
            problem=self._link.problem or self._assignment.problem or self._membership.problem,
        )
