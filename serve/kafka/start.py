"""Where to read a partition from, given its checkpoint and what Kafka still holds."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import structlog
from kafka import TopicPartition

from serve.kafka.checkpoint import Checkpoint, claim, load, replace
from serve.kafka.consumer import Consumer, topic_id
from serve.kafka.partition import Partition
from serve.kafka.settings import KafkaSettings
from serve.store.base import Database

_log = structlog.stdlib.get_logger("weaklink")


def checkpoint_of(
    partition: Partition,
    tp: TopicPartition,
    *,
    consumer: Consumer,
    database: Database,
    owner: str,
    settings: KafkaSettings,
    counts: Counter[str],
) -> Checkpoint:
    """Claim a partition that Kafka has assigned (again, if it is ours already) and settle it.

    Raises
    ------
    FencedError
        It was ours, and another worker has it by now.
    """
    key, now_ns = partition.key, database.clock()
    with database.write() as session:
        if partition.epoch:
            found = load(session, key, epoch=partition.epoch)
        else:
            found = claim(session, key, owner=owner, now_ns=now_ns)
    partition.epoch = found.epoch
    timeout_ms = int(1000 * settings.request_timeout_seconds)
    if settle(consumer, tp, found, start=settings.start, timeout_ms=timeout_ms, counts=counts):
        with database.write() as session:
            replace(session, key, found, now_ns=now_ns)
    return found


def settle(
    consumer: Consumer,
    tp: TopicPartition,
    found: Checkpoint,
    *,
    start: Literal["earliest", "latest"],
    timeout_ms: int,
    counts: Counter[str],
) -> bool:
    """Bring a checkpoint in line with the partition as it is now.

    Afterwards ``found.next_offset`` and ``found.snapshot_offset`` (from where to read) are
    set. Returns whether the checkpoint has changed, so that it must be stored.

    * Nothing stored yet: the group's committed offset, or else ``start``.
    * The topic was deleted and made anew: its jobs begin anew at its beginning.
    * Retention has deleted what was not read yet: it is lost, counted and said.
    * The partition ends before what was read (an unclean election of a leader): from its end.
    """
    first = consumer.beginning_offsets([tp], timeout_ms=timeout_ms)[tp]
    end = consumer.end_offsets([tp], timeout_ms=timeout_ms)[tp]
    identity = topic_id(consumer, tp.topic)
    place = f"{tp.topic}/{tp.partition}"
    changed = found.topic_id != identity
    if found.next_offset is not None:
        other = bool(identity and found.topic_id) and identity != found.topic_id
        unknown = not (identity and found.topic_id) and found.next_offset > end
        if other or unknown:
            counts["topics_made_anew"] += 1
            _log.warning("topic was made anew; its jobs begin anew", partition=place)
            _forget(found, first)
            changed = True
    found.topic_id = identity
    if found.next_offset is None or found.snapshot_offset is None:
        committed = consumer.committed(tp, timeout_ms=timeout_ms)
        inside = committed is not None and first <= committed <= end
        begin = committed if inside else first if start == "earliest" else end
        assert begin is not None
        _forget(found, begin)
        return True
    if found.next_offset > end:
        counts["truncations"] += 1
        _log.warning("partition ends before what was read of it", partition=place, end=end)
        found.next_offset = end
        found.journal = [(min(offset, end), passed) for offset, passed in found.journal]
        found.snapshot_offset = min(found.snapshot_offset, end)
        changed = True
    if found.next_offset < first:
        lost = first - found.next_offset
        counts["lost_messages"] += lost
        _log.error("retention deleted messages before they were read", partition=place, lost=lost)
        found.next_offset = first
        changed = True
    if found.snapshot_offset < first:
        # The states are older than what can be read again; they go on with a gap.
        found.snapshot_offset = min(first, found.next_offset)
        found.journal = [(max(offset, first), passed) for offset, passed in found.journal]
        changed = True
    return changed


def _forget(found: Checkpoint, offset: int) -> None:
    found.next_offset = found.snapshot_offset = offset
    found.journal, found.reader, found.states = [], {}, {}
