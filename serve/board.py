"""What a worker tells the other processes through the database: its life, its jobs, history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import orjson
import structlog
from sqlalchemy import update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, StatementError
from sqlalchemy.orm import Session

from detect.detector import ScoreFrame
from detect.pipeline import JobState, Pipeline
from serve.source import SourceHealth
from serve.store.history import store_metrics, store_scores
from serve.store.tables import JobRow, WorkerRow

_BATCH = 500

_log = structlog.stdlib.get_logger(__name__)
T = TypeVar("T")


@dataclass(slots=True)
class Board:
    """Writes a worker's state; called in the worker's thread, in the caller's transaction."""

    worker: str
    started_at_ns: int
    keep_metrics: bool = True
    _flushed_ns: dict[str, int] = field(default_factory=dict)
    _jobs: set[str] = field(default_factory=set)

    def beat(
        self,
        session: Session,
        pipeline: Pipeline,
        health: SourceHealth,
        *,
        now_ns: int,
        stopped: bool = False,
    ) -> None:
        """A sign of life, and every job as it stands."""
        body = {
            "connected": health.connected,
            "problem": health.problem,
            "lag_seconds": health.lag_seconds,
            "lag_messages": health.lag_messages,
            "detail": health.detail,
            "stopped": stopped,
        }
        row = WorkerRow(
            id=self.worker, started_at_ns=self.started_at_ns, beat_at_ns=now_ns, body=body
        )
        session.merge(row)
        states = pipeline.jobs()
        self._write_jobs(session, [_job(s, self.worker, now_ns) for s in states])
        current = {s.job for s in states}
        for job in sorted(self._jobs - current):
            self._left(session, job, now_ns)
        self._jobs = current

    def flush(
        self,
        session: Session,
        pipeline: Pipeline,
        frames: Sequence[tuple[str, ScoreFrame]],
        *,
        now_ns: int,
    ) -> dict[str, int]:
        """Store these scores, and metrics since the last flush.

        Returns how far each job's metrics are stored, for `flushed` after the commit.
        """
        by_job: dict[str, list[ScoreFrame]] = {}
        for job, frame in frames:
            by_job.setdefault(job, []).append(frame)
        marks: dict[str, int] = {}

        def write_scores(jobs: Sequence[str]) -> None:
            for job in jobs:
                store_scores(session, job, by_job[job], now_ns=now_ns)

        def write_metrics(states: Sequence[JobState]) -> None:
            for state in states:
                history = pipeline.history(state.job)
                if history is None or not state.tick_ns or not self.keep_metrics:
                    continue
                since = self._flushed_ns.get(state.job, 0)
                part = history.metrics(since, 1 << 62)
                if not part.times_ns.size:
                    marks[state.job] = since
                    continue
                # Before it is stored: what the database refuses is not tried for ever.
                marks[state.job] = int(part.times_ns[-1]) + state.tick_ns
                store_metrics(session, state.job, part, state.tick_ns, now_ns=now_ns)

        _isolated(session, list(by_job), write_scores)
        _isolated(session, pipeline.jobs(), write_metrics)
        return marks

    def flushed(self, marks: dict[str, int]) -> None:
        """What `flush` stored is committed."""
        self._flushed_ns = marks

    def _write_jobs(self, session: Session, rows: list[dict[str, Any]]) -> None:
        postgres = session.get_bind().dialect.name == "postgresql"

        def write(some: Sequence[dict[str, Any]]) -> None:
            insert = (postgresql if postgres else sqlite).insert(JobRow).values(some)
            new = {k: insert.excluded[k] for k in ("worker", "body", "updated_at_ns")}
            session.execute(insert.on_conflict_do_update(index_elements=["job"], set_=new))

        for at in range(0, len(rows), _BATCH):
            _isolated(session, rows[at : at + _BATCH], write)

    def _left(self, session: Session, job: str, now_ns: int) -> None:
        row = session.get(JobRow, job)
        if row is None or row.worker != self.worker:
            return  # another worker has taken it over
        session.execute(
            update(JobRow)
            .where(JobRow.job == job)
            .values(body=row.body | {"state": "ended"}, updated_at_ns=now_ns)
        )


def _isolated(session: Session, items: Sequence[T], write: Callable[[Sequence[T]], None]) -> None:
    """Write all; what the database refuses is halved until the item alone is left out.

    One job's odd name must not stop the others, and the same turn is never tried for ever.
    """
    try:
        with session.begin_nested():
            write(items)
    except (StatementError, UnicodeError, orjson.JSONEncodeError) as error:
        if isinstance(error, DBAPIError) and not isinstance(error, DataError):
            raise  # the database itself is in trouble
        if len(items) == 1:
            _log.warning("cannot be stored", item=repr(items[0])[:200], error=str(error)[:200])
            return
        middle = len(items) // 2
        _isolated(session, items[:middle], write)
        _isolated(session, items[middle:], write)


def _job(state: JobState, worker: str, now_ns: int) -> dict[str, Any]:
    # Not `asdict`, which would copy every name of a few thousand machines.
    body = {f.name: getattr(state, f.name) for f in fields(state)}
    return {"job": state.job, "worker": worker, "body": body, "updated_at_ns": now_ns}
