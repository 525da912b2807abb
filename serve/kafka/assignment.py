"""The partitions that Kafka has assigned to this worker: how they come, go and are given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

import structlog
from kafka import TopicPartition
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from detect.pipeline import Pipeline
from serve.kafka.checkpoint import FencedError, PartitionKey
from serve.kafka.consumer import Consumer
from serve.kafka.partition import Batch, Partition, Stage
from serve.kafka.reader import PartitionReader
from serve.kafka.settings import KafkaSettings
from serve.kafka.start import checkpoint_of
from serve.kafka.storing import store
from serve.store.base import Database

_log = structlog.stdlib.get_logger("weaklink")


class Assignment:
    """Kafka's word (`assign`, `revoke`, `lose`) comes in the client's thread, while ours waits
    in a poll; everything else is called in ours.

    ``partitions`` are ours now; ``dropped`` are jobs of partitions that are not (or are to be
    read again), which the pipeline is still to forget. ``problem`` says in one line why a
    checkpoint cannot be read, empty if all is well. ``counts`` gets what happens by name.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        database: Database,
        make_reader: Callable[[TopicPartition], PartitionReader],
        *,
        owner: str,
        counts: Counter[str],
        monotonic: Callable[[], float],
    ):
        self.partitions: dict[TopicPartition, Partition] = {}
        self.dropped: set[str] = set()
        self.problem = ""
        self._settings = settings
        self._database = database
        self._make_reader = make_reader
        self._owner = owner
        self._counts = counts
        self._monotonic = monotonic
        self._told: dict[TopicPartition, int] = {}

    def reading(self) -> dict[TopicPartition, Partition]:
        """Partitions that are read."""
        return {tp: p for tp, p in self.partitions.items() if p.stage in (Stage.RERUN, Stage.LIVE)}

    def waiting(self) -> bool:
        """Whether partitions were assigned that are still to be taken over."""
        return any(p.stage is Stage.TAKEOVER for p in self.partitions.values())

    def untold(self) -> dict[TopicPartition, int]:
        """Stored offsets that Kafka has not been told yet."""
        return {
            tp: p.next_offset
            for tp, p in self.partitions.items()
            if p.stage is Stage.LIVE and self._told.get(tp) != p.next_offset
        }

    def told(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Kafka knows these now."""
        self._told.update(offsets)

    def assign(self, assigned: Collection[TopicPartition], consumer: Consumer | None) -> None:
        """Ours from now on; nothing is fetched before the checkpoint has said from where."""
        self._counts["rebalances"] += 1
        for tp in assigned:
            key = PartitionKey(self._settings.group, tp.topic, tp.partition)
            self.partitions[tp] = Partition(key, self._make_reader(tp))
            if consumer is not None:
                consumer.pause(tp)

    def revoke(self, revoked: Collection[TopicPartition], pipeline: Pipeline | None) -> None:
        """Ours until this returns. ``pipeline`` is None if what it holds is not stored."""
        self._counts["rebalances"] += 1
        for tp in revoked:
            partition = self.partitions.pop(tp, None)
            self._told.pop(tp, None)
            if partition is None:
                continue
            if pipeline is not None and partition.may_snapshot():
                self._hand_over(partition, pipeline)
            self.dropped |= partition.jobs

    def lose(self, lost: Collection[TopicPartition]) -> None:
        """No longer ours, for some time already."""
        self.revoke(lost, None)

    def give_up(self, consumer: Consumer | None) -> None:
        """The last turn was not stored: all go back to their checkpoints."""
        self._counts["rewinds"] += 1
        for tp, partition in self.partitions.items():
            self.dropped |= partition.give_up()
            if consumer is not None:
                consumer.pause(tp)

    def take_over(self, consumer: Consumer) -> None:
        """Read the checkpoints of partitions that were assigned, and go to their offsets."""
        self.problem = ""
        for tp, partition in self.partitions.items():
            if partition.stage is not Stage.TAKEOVER:
                continue
            try:
                found = checkpoint_of(
                    partition,
                    tp,
                    consumer=consumer,
                    database=self._database,
                    owner=self._owner,
                    settings=self._settings,
                    counts=self._counts,
                )
            except FencedError:
                self._counts["fenced"] += 1
                partition.stage = Stage.FENCED
            except SQLAlchemyError as error:
                self.problem = f"{partition.key}: checkpoint: {type(error).__name__}"
                return
            else:
                partition.begin(found)
                partition.snapshot_at = self._monotonic() + self._settings.snapshot_seconds
                consumer.seek(tp, partition.read_offset)
                consumer.resume(tp)
                self._counts["takeovers"] += 1
                _log.info(
                    "partition taken over",
                    partition=str(partition.key),
                    offset=partition.next_offset,
                    read_again=partition.next_offset - partition.read_offset,
                    jobs=len(partition.jobs),
                )

    def store(
        self,
        session: Session,
        partition: Partition,
        batch: Batch,
        pipeline: Pipeline,
        passed_ns: int | None,
    ) -> None:
        """See `serve.kafka.storing.store`."""
        store(
            session,
            partition,
            batch,
            pipeline,
            passed_ns=passed_ns,
            settings=self._settings,
            now_ns=self._database.clock(),
            monotonic=self._monotonic,
        )

    def _hand_over(self, partition: Partition, pipeline: Pipeline) -> None:
        """A snapshot spares the next owner the re-reading; without it nothing is lost."""
        try:
            with self._database.write() as session:
                self.store(session, partition, Batch(snapshot_due=True), pipeline, None)
        except (SQLAlchemyError, FencedError) as error:
            _log.info("no snapshot at handover", partition=str(partition.key), reason=str(error))
