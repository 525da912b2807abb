"""Storing how far a partition is, with a snapshot of its jobs when one is due."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.orm import Session

from detect.pipeline import Pipeline
from serve.kafka.checkpoint import save
from serve.kafka.partition import Batch, Partition
from serve.kafka.settings import KafkaSettings

SNAPSHOT_SHARE = 0.05
"""Snapshots take at most about this share of the worker's time."""


def store(
    session: Session,
    partition: Partition,
    batch: Batch,
    pipeline: Pipeline,
    *,
    passed_ns: int | None,
    settings: KafkaSettings,
    now_ns: int,
    monotonic: Callable[[], float],
) -> None:
    """Write the checkpoint after a batch, in the caller's transaction.

    ``passed_ns`` is the time of the wall clock that was passed to the partition's jobs. Raises
    `serve.kafka.checkpoint.FencedError` if another worker has the partition by now. It holds
    once `Partition.committed` is called.
    """
    offset = partition.next_offset if batch.next_offset is None else batch.next_offset
    snapshot = None
    if batch.snapshot_due:
        began = monotonic()
        snapshot = partition.snapshot(pipeline, offset, settings.snapshot_bytes)
        now = monotonic()
        pause = max(settings.snapshot_seconds, (now - began) / SNAPSHOT_SHARE)
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
        now_ns=now_ns,
    )
