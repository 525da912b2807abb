"""One assigned partition: where it stands, what is stored of it, which jobs live in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from detect.pipeline import Pipeline
from detect.snapshot import encode_state
from ingest.samples import Decoded
from serve.kafka.checkpoint import Checkpoint, JournalEntry, PartitionKey, Snapshot
from serve.kafka.journal import Rerun
from serve.kafka.reader import Message, PartitionReader
from serve.source import SourceHealth, concat_decoded

_log = structlog.stdlib.get_logger("weaklink")


class Stage(Enum):
    """What happens to a partition's messages."""

    TAKEOVER = "takeover"
    """Assigned; its checkpoint is still to be read. Nothing is fetched."""
    RERUN = "rerun"
    """Messages that had their effect before are read again to bring the state back."""
    LIVE = "live"
    """New messages."""
    FENCED = "fenced"
    """Another worker has taken it; waits for Kafka to say so."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One call to detection as it was made before; what it leads to is stored already."""

    samples: pa.Table
    advanced_ns: int | None


@dataclass(slots=True)
class Batch:
    """What one poll brought of one partition: first the calls to repeat, then what is new."""

    replayed: list[Replayed] = field(default_factory=list)
    fresh: Decoded | None = None
    next_offset: int | None = None
    snapshot_due: bool = False


@dataclass(slots=True)
class _Pending:
    """What the transaction in progress stores; in force once it is committed."""

    next_offset: int
    journal: list[JournalEntry]
    snapshot: Snapshot | None


class Partition:
    """State of one partition in this worker. Only the worker's thread (or, while that waits
    in a poll, the client's) calls it.

    ``next_offset`` is stored: everything below it has had its effect. ``end_offset`` is where
    the partition ends as far as known. ``newest_ms`` is when the last message read arrived.
    """

    def __init__(self, key: PartitionKey, reader: PartitionReader):
        self.key = key
        self.reader = reader
        self.stage = Stage.TAKEOVER
        self.epoch = 0
        self.topic_id = ""
        self.next_offset = 0
        self.read_offset = 0
        self.end_offset = 0
        self.newest_ms: int | None = None
        self.fresh_at: float | None = None
        self.watermark_ns: int | None = None
        self.snapshot_at = 0.0
        self.jobs: set[str] = set()
        self.held = True
        self.to_restore: dict[str, bytes] = {}
        self._journal: list[JournalEntry] = []
        self._rerun: Rerun[Message] | None = None
        self._stored_jobs: set[str] = set()
        self._moving: set[str] = set()
        """Jobs that may be others than their stored states say."""
        self._pending: _Pending | None = None

    @property
    def lag(self) -> int:
        """Messages not read yet, as far as known."""
        return max(0, self.end_offset - self.read_offset)

    @property
    def calls(self) -> int:
        """Calls to detection since the last snapshot."""
        return len(self._journal)

    def begin(self, found: Checkpoint) -> None:
        """Continue from a checkpoint that Kafka's partition agrees with."""
        assert found.next_offset is not None
        assert found.snapshot_offset is not None
        self.epoch, self.topic_id = found.epoch, found.topic_id
        self.next_offset, self.read_offset = found.next_offset, found.snapshot_offset
        self.end_offset = max(self.end_offset, found.next_offset)
        self.reader.restore(found.reader)
        self.to_restore = dict(found.states)
        self.jobs = set(found.states)
        self._stored_jobs = set(found.states)
        self._moving = set()
        self._pending = None
        self._journal = list(found.journal)
        self._rerun = Rerun(self.read_offset, found.journal) if found.journal else None
        self.stage = Stage.RERUN if self._rerun else Stage.LIVE
        self.held = True

    def take(self, messages: Sequence[Message], *, snapshot_due: bool, at_end: bool) -> Batch:
        """Read what a poll brought; ``at_end``: there is nothing behind these messages now."""
        batch = Batch()
        if messages:
            self.read_offset = messages[-1].offset + 1
            self.newest_ms = messages[-1].timestamp
        fresh = messages
        if self._rerun is not None:
            for step in self._rerun.add(messages, end=at_end):
                samples = self.reader.read(step.messages).samples
                batch.replayed.append(Replayed(samples, step.advanced_ns))
            if not self._rerun.finished:
                return batch
            fresh = self._rerun.rest()
            self._rerun = None
            self.stage = Stage.LIVE
        if fresh:
            batch.fresh = self.reader.read(fresh)
            batch.next_offset = fresh[-1].offset + 1
        if snapshot_due and (self._journal or fresh):
            held_back = self.reader.flush()
            parts = [batch.fresh] if batch.fresh else []
            batch.fresh = concat_decoded([*parts, held_back])
            batch.snapshot_due = True
        return batch

    def note_jobs(self, samples: pa.Table) -> list[str]:
        """Remember whose samples these are; returns jobs that are new to this partition."""
        if not samples.num_rows:
            return []
        found = set(pc.unique(samples["job"]).to_pylist())
        new = found - self.jobs
        self.jobs |= found
        self._moving |= found
        return sorted(new)

    def note_restored(self, job: str, *, rests: bool) -> None:
        """A job is as its stored state says; unless it ``rests`` the clock changes it now."""
        if not rests:
            self._moving.add(job)

    def snapshot(self, pipeline: Pipeline, offset: int, limit_bytes: int) -> Snapshot:
        """The states of all jobs that may have changed since the last snapshot."""
        present = {state.job for state in pipeline.jobs()} & self.jobs
        changed = {}
        for job in sorted(present):
            if job not in self._moving and job in self._stored_jobs:
                continue
            try:
                changed[job] = encode_state(pipeline.snapshot(job), limit_bytes=limit_bytes)
            except ValueError as error:  # it would begin anew after a restart; others go on
                present.discard(job)
                _log.error("job state not stored", job=job, reason=str(error))
        gone = (self.jobs | self._stored_jobs) - present
        moving = {job for job in changed if not pipeline.rests(job)}
        return Snapshot(offset, changed, gone, self.reader.snapshot(), moving)

    def may_snapshot(self) -> bool:
        """Whether the stored offset and the jobs' states are of the same moment."""
        if self.stage is not Stage.LIVE or not self._journal or self.to_restore:
            return False
        held_back = self.reader.flush()
        return not (held_back.samples.num_rows or held_back.rejected)

    def pend(
        self, offset: int, advanced_ns: int | None, snapshot: Snapshot | None
    ) -> list[JournalEntry]:
        """Note what the transaction in progress stores; returns the journal to store."""
        journal = [] if snapshot else [*self._journal, (offset, advanced_ns)]
        self._pending = _Pending(offset, journal, snapshot)
        return journal

    def committed(self) -> bool:
        """What was pending is stored. True if it held a snapshot."""
        pending, self._pending = self._pending, None
        if pending is None:
            return False
        self.next_offset, self._journal = pending.next_offset, pending.journal
        if pending.snapshot is None:
            return False
        self._stored_jobs -= set(pending.snapshot.gone)
        self.jobs -= set(pending.snapshot.gone)
        self._stored_jobs |= pending.snapshot.changed.keys()
        self._moving = set(pending.snapshot.moving)
        return True

    def give_up(self) -> set[str]:
        """Forget what is not stored; the checkpoint is to be read again. Returns its jobs."""
        jobs, self.jobs = self.jobs, set()
        self._pending = self._rerun = None
        self.to_restore = {}
        self.held = True
        if self.stage is not Stage.FENCED:
            self.stage = Stage.TAKEOVER
        return jobs

    def describe(self) -> dict[str, Any]:
        """For health and metrics."""
        return {
            "topic": self.key.topic,
            "partition": self.key.partition,
            "stage": self.stage.value,
            "next_offset": self.next_offset,
            "end_offset": self.end_offset,
            "lag_messages": self.lag,
            "watermark_seconds": self.watermark_ns and self.watermark_ns / 1e9,
            "up_to_date": not self.held,
            "jobs": len(self.jobs),
        }


def health_of(
    partitions: Collection[Partition], *, now_ms: int, connected: bool, problem: str
) -> SourceHealth:
    """How a source with these partitions is doing; lag is told by the time of arrival."""
    behind = [
        max(0.0, (now_ms - p.newest_ms) / 1000)
        for p in partitions
        if p.lag and p.newest_ms is not None
    ]
    waiting = sum(p.stage is not Stage.LIVE for p in partitions)
    if waiting and not problem:
        problem = f"taking over {waiting} of {len(partitions)} partitions"
    return SourceHealth(
        connected=connected,
        lag_seconds=max(behind, default=0.0),
        lag_messages=sum(p.lag for p in partitions),
        problem=problem,
        detail={"partitions": [p.describe() for p in partitions]},
    )
