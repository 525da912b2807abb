"""Checkpoints in the service's own database, fenced by epoch.

A worker claims a partition when Kafka assigns it: that raises the partition's epoch. Every
later write names the epoch; a write by a worker that has been superseded (it was paused, or
cut off from Kafka, and its partition moved) finds no row and fails the whole transaction, the
alert changes in it included. So what a partition led to is stored by one worker at a time,
exactly once, together with the offset it led to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.engine import CursorResult
from sqlalchemy.orm import Session

from serve.kafka.tables import JobStateRow, PartitionRow
from serve.source import StepLostError

JournalEntry = tuple[int, int | None]
"""(offset, wall clock): every message below the offset was fed to detection in one call, then
the wall clock (if not None) passed for the partition's jobs."""


class FencedError(StepLostError):
    """Another worker owns the partition by now; nothing was stored."""


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A partition as one consumer group sees it."""

    group: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(slots=True)
class Checkpoint:
    """What was stored of a partition. ``next_offset`` None: nothing yet."""

    epoch: int
    topic_id: str = ""
    next_offset: int | None = None
    snapshot_offset: int | None = None
    journal: list[JournalEntry] = field(default_factory=list)
    reader: dict[str, Any] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Snapshot:
    """The jobs' states at one offset: ``changed`` are written anew, ``gone`` are deleted.

    ``moving`` of them go on changing by the clock alone.
    """

    offset: int
    changed: Mapping[str, bytes]
    gone: Collection[str]
    reader: dict[str, Any]
    moving: Collection[str] = ()


def claim(session: Session, key: PartitionKey, *, owner: str, now_ns: int) -> Checkpoint:
    """Take a partition over from whoever had it; returns where it stands."""
    row = session.execute(
        update(PartitionRow)
        .where(*_is(PartitionRow, key))
        .values(epoch=PartitionRow.epoch + 1, owner=owner, updated_at_ns=now_ns)
        .returning(PartitionRow.epoch)
    ).first()
    if row is None:
        session.add(
            PartitionRow(
                consumer_group=key.group,
                topic=key.topic,
                partition=key.partition,
                epoch=1,
                owner=owner,
                journal=[],
                reader={},
                updated_at_ns=now_ns,
            )
        )
        session.flush()  # a claim by another worker at this very moment fails one of the two
        return Checkpoint(epoch=1)
    return load(session, key, epoch=row.epoch)


def load(session: Session, key: PartitionKey, *, epoch: int) -> Checkpoint:
    """Where a partition of ours stands; `FencedError` if it is no longer ours."""
    row = session.execute(
        select(PartitionRow).where(*_is(PartitionRow, key), PartitionRow.epoch == epoch)
    ).scalar_one_or_none()
    if row is None:
        raise FencedError(f"partition {key} has moved to another worker")
    states = session.execute(
        select(JobStateRow.job, JobStateRow.state).where(*_is(JobStateRow, key))
    )
    return Checkpoint(
        epoch=epoch,
        topic_id=row.topic_id,
        next_offset=row.next_offset,
        snapshot_offset=row.snapshot_offset,
        journal=[(int(offset), advanced) for offset, advanced in row.journal],
        reader=row.reader,
        states={state.job: state.state for state in states},
    )


def save(
    session: Session,
    key: PartitionKey,
    *,
    epoch: int,
    topic_id: str,
    next_offset: int,
    journal: list[JournalEntry],
    snapshot: Snapshot | None,
    now_ns: int,
) -> None:
    """Store how far a partition is, in the transaction of what that led to.

    Raises
    ------
    FencedError
        The partition is no longer ours; the transaction must be rolled back.
    """
    values: dict[str, Any] = {
        "next_offset": next_offset,
        "topic_id": topic_id,
        "journal": journal,
        "updated_at_ns": now_ns,
    }
    if snapshot is not None:
        values |= {"snapshot_offset": snapshot.offset, "reader": snapshot.reader}
    done = session.execute(
        update(PartitionRow)
        .where(*_is(PartitionRow, key), PartitionRow.epoch == epoch)
        .values(values)
        .execution_options(synchronize_session=False)
    )
    assert isinstance(done, CursorResult)
    if done.rowcount != 1:
        raise FencedError(f"partition {key} has moved to another worker")
    if snapshot is None:
        return
    replaced = sorted({*snapshot.gone, *snapshot.changed})
    for start in range(0, len(replaced), 500):
        session.execute(
            delete(JobStateRow)
            .where(*_is(JobStateRow, key), JobStateRow.job.in_(replaced[start : start + 500]))
            .execution_options(synchronize_session=False)
        )
    rows = [
        {
            "consumer_group": key.group,
            "topic": key.topic,
            "partition": key.partition,
            "job": job,
            "state": state,
            "updated_at_ns": now_ns,
        }
        for job, state in sorted(snapshot.changed.items())
    ]
    if rows:
        session.execute(insert(JobStateRow), rows)


def replace(session: Session, key: PartitionKey, checkpoint: Checkpoint, *, now_ns: int) -> None:
    """Store a checkpoint as a whole (states are only ever taken away from it)."""
    assert checkpoint.next_offset is not None
    assert checkpoint.snapshot_offset is not None
    stored = session.scalars(select(JobStateRow.job).where(*_is(JobStateRow, key)))
    gone = set(stored) - checkpoint.states.keys()
    save(
        session,
        key,
        epoch=checkpoint.epoch,
        topic_id=checkpoint.topic_id,
        next_offset=checkpoint.next_offset,
        journal=checkpoint.journal,
        snapshot=Snapshot(checkpoint.snapshot_offset, {}, gone, checkpoint.reader),
        now_ns=now_ns,
    )


def _is(table: type[PartitionRow | JobStateRow], key: PartitionKey) -> tuple[Any, ...]:
    return (
        table.consumer_group == key.group,
        table.topic == key.topic,
        table.partition == key.partition,
    )
