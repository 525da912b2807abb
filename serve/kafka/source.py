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
from kafka.structs import MemberState
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from detect.pipeline import Pipeline
from ingest.samples import Decoded, empty_samples
from serve.kafka.checkpoint import FencedError, PartitionKey, save
from serve.kafka.consumer import Connect, Consumer, Moves, connect
from serve.kafka.link import Link
from serve.kafka.partition import Batch, Partition, Stage, health_of
from serve.kafka.reader import DecoderFactory, PartitionReader
from serve.kafka.resume import repeat, restore
from serve.kafka.settings import KafkaSettings
from serve.kafka.start import checkpoint_of
from serve.source import Polled, SourceHealth, concat_decoded
from serve.store.base import Database

FRESH_SECONDS = 5.0
"""A partition is up to date if within this time it was seen at its end or brought a message as
young as that; only then does the wall clock say anything about its jobs."""

WAIT_SECONDS = 0.2
"""How long a worker without new messages does not notice that partitions were assigned."""

MOST_CALLS = 2_000
"""Calls between snapshots, at most."""

MARKS_SECONDS = 2.0
"""How often the partitions' watermarks are looked up."""

SNAPSHOT_SHARE = 0.05
"""Snapshots take at most about this share of the worker's time."""

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
        self.owner = owner
        self.counts: Counter[str] = Counter()
        self._make_decoder = make_decoder
        self._job_of_machine = dict(job_of_machine or {})
        self._after_turn = after_turn
        self._monotonic = monotonic
        moves = Moves(assigned=self._assigned, revoked=self._revoked, lost=self._lost)
        self._link = Link(
            settings, connect, moves, counts=self.counts, monotonic=monotonic, sleep=sleep
        )
        self._partitions: dict[TopicPartition, Partition] = {}
        self._pipeline: Pipeline | None = None
        self._dropped: set[str] = set()
        self._turn = 0
        self._open_turn: int | None = None
        self._advanced_ns: int | None = None
        self._told: dict[TopicPartition, int] = {}
        self._problem = ""
        self._marks_at = 0.0
        self._joined_at = float("-inf")
        self._health = SourceHealth(connected=False, problem=self._link.problem)

    # ------------------------------------------------------------ a turn, in order

    def poll(self, timeout_seconds: float) -> Polled:
        """See `Source`; at most ``poll_messages`` messages."""
        if self._open_turn is not None:
            self._give_up()
        self._turn += 1
        turn, decoded = Turn(), Decoded(empty_samples())
        consumer = self._link.open(timeout_seconds)
        if consumer is not None:
            records = self._fetch(consumer, timeout_seconds)
            if records is not None:
                decoded = self._read(consumer, records, turn)
        self._open_turn = self._turn
        now = self._monotonic()
        for partition in self._partitions.values():
            fresh = partition.fresh_at is not None and now - partition.fresh_at <= FRESH_SECONDS
            partition.held = not fresh or partition.stage is not Stage.LIVE
        self._update_health()
        return Polled(decoded, position=self._turn, detail=turn)

    def prepare(self, pipeline: Pipeline, polled: Polled) -> None:
        """See `Source`. Calls made before are made again; what they say is stored already."""
        self._pipeline = pipeline
        self._advanced_ns = pipeline.advanced_ns
        while self._dropped:
            pipeline.drop(self._dropped.pop())
        limit = self.settings.snapshot_bytes
        for partition in self._partitions.values():
            while partition.to_restore:
                job, state = partition.to_restore.popitem()
                self.counts["cold_starts"] += not restore(pipeline, job, state, limit)
                partition.note_restored(job, rests=pipeline.rests(job))
        turn = polled.detail if isinstance(polled.detail, Turn) else Turn()
        for tp, batch in turn.batches.items():
            partition = self._partitions[tp]
            while batch.replayed:
                call = batch.replayed.pop(0)
                partition.note_jobs(call.samples)
                repeat(pipeline, call, sorted(partition.jobs))
                self.counts["replayed_rows"] += call.samples.num_rows
            if batch.fresh is not None:
                partition.note_jobs(batch.fresh.samples)
        pipeline.held = {job for p in self._partitions.values() if p.held for job in p.jobs}
        if self._monotonic() >= self._marks_at:
            self._marks_at = self._monotonic() + MARKS_SECONDS
            self._note_watermarks(pipeline)

    def save(self, session: Session, pipeline: Pipeline, polled: Polled) -> None:
        """See `Source`. Raises `FencedError` if a partition has moved away."""
        turn = polled.detail if isinstance(polled.detail, Turn) else Turn()
        advanced = pipeline.advanced_ns if pipeline.advanced_ns != self._advanced_ns else None
        for tp, batch in turn.batches.items():
            partition = self._partitions[tp]
            if partition.stage is not Stage.LIVE:
                continue
            passed = None if partition.held or not partition.jobs else advanced
            if batch.next_offset is None and passed is None and not batch.snapshot_due:
                continue
            try:
                self._save(session, partition, batch, passed, pipeline)
            except FencedError:
                self.counts["fenced"] += 1
                partition.stage = Stage.FENCED
                raise

    def commit(self, position: Any) -> None:
        """See `Source`."""
        if position is None or position != self._open_turn:
            return
        self._open_turn = None
        for partition in self._partitions.values():
            if partition.committed():
                self.counts["snapshots"] += 1
        news = self._stored_offsets()
        if self._link.commit(news):
            self._told |= news
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
        self._link.commit(self._stored_offsets(), last=True)
        self._link.consumer = None
        try:
            consumer.close(autocommit=False, timeout_ms=5_000)
        except (KafkaError, RuntimeError) as error:
            _log.warning("closing the consumer", reason=str(error))

    # ------------------------------------------------------------ reading

    def _fetch(
        self, consumer: Consumer, timeout_seconds: float
    ) -> dict[TopicPartition, list[Any]] | None:
        """New messages; None if the client fails, which costs at most the connection."""
        try:
            self._take_over(consumer)
            records = self._wait(consumer, timeout_seconds)
            # From here on messages are out of the client's hands.
            self._open_turn = self._turn
            self._take_over(consumer)
        except Exception as error:  # noqa: BLE001 - a client in disorder is replaced
            if self._link.trouble(error):
                self._lost(list(self._partitions))
                return None
            # The client may have counted messages as read that it never handed out.
            for tp, partition in self._active().items():
                consumer.seek(tp, partition.read_offset)
            return None
        return records

    def _wait(self, consumer: Consumer, timeout_seconds: float) -> dict[TopicPartition, list[Any]]:
        """New messages; nothing as soon as partitions were assigned that wait to be taken over,
        as they are not fetched before."""
        waits = max(1, round(timeout_seconds / WAIT_SECONDS))
        records: dict[TopicPartition, list[Any]] = {}
        for _ in range(waits):
            records = consumer.poll(
                1000 * timeout_seconds / waits, max_records=self.settings.poll_messages
            )
            if records or any(p.stage is Stage.TAKEOVER for p in self._partitions.values()):
                break
        return records

    def _active(self) -> dict[TopicPartition, Partition]:
        """Partitions that are read."""
        return {tp: p for tp, p in self._partitions.items() if p.stage in (Stage.RERUN, Stage.LIVE)}

    def _read(
        self, consumer: Consumer, records: dict[TopicPartition, list[Any]], turn: Turn
    ) -> Decoded:
        active = self._active()
        # Without partitions of its own a worker asks about one of the topic's.
        asked = active or [TopicPartition(next(iter(self.settings.topics)), 0)]
        ends = self._link.probe([tp for tp in asked if tp not in records])
        now, now_ms = self._monotonic(), self.database.clock() // 1_000_000
        for tp, partition in active.items():
            messages = records.get(tp, [])
            known = consumer.highwater(tp) if messages else ends.get(tp)
            partition.end_offset = partition.end_offset if known is None else known
            at_end = not messages and tp in ends and partition.lag == 0
            due = now >= partition.snapshot_at or partition.calls >= MOST_CALLS
            turn.batches[tp] = partition.take(messages, snapshot_due=due, at_end=at_end)
            young = bool(messages) and now_ms - messages[-1].timestamp < 1000 * FRESH_SECONDS
            if at_end or young or (messages and partition.lag == 0):
                partition.fresh_at = now
        return concat_decoded([b.fresh for b in turn.batches.values() if b.fresh is not None])

    def _save(
        self,
        session: Session,
        partition: Partition,
        batch: Batch,
        passed_ns: int | None,
        pipeline: Pipeline,
    ) -> None:
        offset = partition.next_offset if batch.next_offset is None else batch.next_offset
        snapshot = None
        if batch.snapshot_due:
            began = self._monotonic()
            snapshot = partition.snapshot(pipeline, offset, self.settings.snapshot_bytes)
            now = self._monotonic()
            pause = max(self.settings.snapshot_seconds, (now - began) / SNAPSHOT_SHARE)
            partition.snapshot_at = now + pause
        journal = partition.pend(offset, passed_ns, snapshot)
        save(
            session,
            partition.key,
            epoch=partition.epoch,
            topic_id=partition.topic_id,
            next_offset=offset,
            journal=journal,
            snapshot=snapshot,
            now_ns=self.database.clock(),
        )

    def _give_up(self) -> None:
        """The last turn was not stored: back to the checkpoints."""
        self._open_turn = None
        self.counts["rewinds"] += 1
        for tp, partition in self._partitions.items():
            self._dropped |= partition.give_up()
            if self._link.consumer is not None:
                self._link.consumer.pause(tp)

    def _note_watermarks(self, pipeline: Pipeline) -> None:
        marks = {state.job: state.watermark_ns or 0 for state in pipeline.jobs()}
        for partition in self._partitions.values():
            found = max((marks.get(job, 0) for job in partition.jobs), default=0)
            partition.watermark_ns = found or None

    # ------------------------------------------------------------ partitions that move

    def _assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.counts["rebalances"] += 1
        for tp in assigned:
            reader = PartitionReader(
                tp.topic,
                tp.partition,
                self._make_decoder,
                self.settings.topics[tp.topic],
                payload_bytes=self.settings.dead_letter_payload_bytes,
                message_bytes=self.settings.message_bytes,
                messages_per_second=self.settings.job_messages_per_second,
                job_of_machine=self._job_of_machine,
            )
            key = PartitionKey(self.settings.group, tp.topic, tp.partition)
            self._partitions[tp] = Partition(key, reader)
            if self._link.consumer is not None:
                # Nothing is fetched before the checkpoint has said from where.
                self._link.consumer.pause(tp)

    def _revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.counts["rebalances"] += 1
        for tp in revoked:
            partition = self._partitions.pop(tp, None)
            if partition is None:
                continue
            self._told.pop(tp, None)
            self._hand_over(partition)
            self._dropped |= partition.jobs

    def _lost(self, lost: Collection[TopicPartition]) -> None:
        self.counts["rebalances"] += 1
        for tp in lost:
            partition = self._partitions.pop(tp, None)
            self._told.pop(tp, None)
            if partition is not None:
                self._dropped |= partition.jobs

    def _hand_over(self, partition: Partition) -> None:
        """A snapshot spares the next owner the re-reading; without it nothing is lost."""
        pipeline = self._pipeline
        if pipeline is None or self._open_turn is not None or not partition.may_snapshot():
            return
        try:
            with self.database.write() as session:
                self._save(session, partition, Batch(snapshot_due=True), None, pipeline)
        except (SQLAlchemyError, FencedError) as error:
            _log.info("no snapshot at handover", partition=str(partition.key), reason=str(error))

    def _take_over(self, consumer: Consumer) -> None:
        """Read the checkpoints of partitions that were assigned, and go to their offsets."""
        self._problem = ""
        for tp, partition in self._partitions.items():
            if partition.stage is not Stage.TAKEOVER:
                continue
            try:
                found = checkpoint_of(
                    partition,
                    tp,
                    consumer=consumer,
                    database=self.database,
                    owner=self.owner,
                    settings=self.settings,
                    counts=self.counts,
                )
            except FencedError:
                self.counts["fenced"] += 1
                partition.stage = Stage.FENCED
            except SQLAlchemyError as error:
                self._problem = f"{partition.key}: checkpoint: {type(error).__name__}"
                return
            else:
                partition.begin(found)
                partition.snapshot_at = self._monotonic() + self.settings.snapshot_seconds
                consumer.seek(tp, partition.read_offset)
                consumer.resume(tp)
                self.counts["takeovers"] += 1
                _log.info(
                    "partition taken over",
                    partition=str(partition.key),
                    offset=partition.next_offset,
                    read_again=partition.next_offset - partition.read_offset,
                    jobs=len(partition.jobs),
                )

    # ------------------------------------------------------------ what others see

    def _stored_offsets(self) -> dict[TopicPartition, int]:
        """Offsets that Kafka has not been told yet."""
        return {
            tp: p.next_offset
            for tp, p in self._partitions.items()
            if p.stage is Stage.LIVE and self._told.get(tp) != p.next_offset
        }

    def _joined(self) -> bool:
        """Whether the group has taken this worker in, as far as it knows."""
        consumer = self._link.consumer
        return consumer is not None and consumer.group_metadata().state is MemberState.STABLE

    def _update_health(self) -> None:
        now = self._monotonic()
        problem = self._link.problem or self._problem
        if self._joined():
            self._joined_at = now
        elif not problem:
            problem = f"joining the group {self.settings.group}"
        # A worker that its group does not take in reads nothing, and nobody would notice.
        joined = now - self._joined_at <= self.settings.session_timeout_seconds
        self._health = health_of(
            self._partitions.values(),
            now_ms=self.database.clock() // 1_000_000,
            connected=self._link.consumer is not None and not self._link.problem and joined,
            problem=problem,
        )
