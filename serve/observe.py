"""What the service notices about itself: one object writes the log line and the counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from ingest.samples import Rejected
from serve.lifecycle import Applied
from serve.metrics import Metrics

_log = structlog.stdlib.get_logger("weaklink")


class Event(Protocol):
    """Anything that can be observed."""

    def emit(self, metrics: Metrics) -> None:
        """Write the log line (if any) and the counters."""
        ...


@dataclass(frozen=True, slots=True)
class RowsTaken:
    """Rows have come in, less the values that were ``lost`` by reason; no log line."""

    rows: int
    lost: Mapping[str, int]

    def emit(self, metrics: Metrics) -> None:
        """Count."""
        metrics.rows.inc(self.rows)
        for reason, count in self.lost.items():
            metrics.count_lost(reason, count)


@dataclass(frozen=True, slots=True)
class RowsRejected:
    """Some input could not be used."""

    rejected: Sequence[Rejected]

    def emit(self, metrics: Metrics) -> None:
        """Count each; log one line a reason with an example."""
        counts: Counter[str] = Counter()
        for item in self.rejected:
            counts[item.reason] += item.rows
        for reason, count in counts.items():
            metrics.count_rejected(reason, count)
            example = next(r for r in self.rejected if r.reason == reason)
            _log.warning(
                "rejected",
                reason=reason,
                count=count,
                origin=example.origin,
                detail=example.detail,
            )


@dataclass(frozen=True, slots=True)
class StageFailed:
    """A stage of the worker failed; it is tried again."""

    stage: str
    error: BaseException
    retry_seconds: float

    def emit(self, metrics: Metrics) -> None:
        """Log with the traceback."""
        metrics.stage_failures.labels(stage=self.stage).inc()
        _log.error(
            "stage failed",
            stage=self.stage,
            error=describe(self.error),
            retry_seconds=round(self.retry_seconds, 1),
            exc_info=self.error,
        )


@dataclass(frozen=True, slots=True)
class JobFailed:
    """Detection of one job raised; the job begins anew after a while, others go on."""

    job: str
    error: BaseException
    pause_seconds: float

    def emit(self, metrics: Metrics) -> None:
        """Log with the traceback."""
        metrics.job_failures.inc()
        _log.error(
            "job failed",
            job=self.job,
            error=describe(self.error),
            pause_seconds=self.pause_seconds,
            exc_info=self.error,
        )


@dataclass(frozen=True, slots=True)
class LifeApplied:
    """The life cycle has taken a step."""

    applied: Applied

    def emit(self, metrics: Metrics) -> None:
        """Count decisions, events and notices; one line a notice."""
        for reason, count in self.applied.decisions.items():
            metrics.page_decisions.labels(reason=reason).inc(count)
        for kind, count in self.applied.events.items():
            metrics.events.labels(kind=kind).inc(count)
        for notice in self.applied.notices:
            metrics.notices.labels(kind=notice.kind).inc()
            _log.info(
                "notice",
                kind=notice.kind,
                key=notice.key,
                job=notice.job,
                title=notice.title,
                machines=list(notice.machines[:20]),
            )


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The configuration was read again. ``problem`` says why the last good one stays;
    ``waiting`` names sections whose change waits for a restart."""

    problem: str = ""
    waiting: tuple[str, ...] = ()

    def emit(self, metrics: Metrics) -> None:
        """Count and log."""
        metrics.reloads.labels(outcome="refused" if self.problem else "done").inc()
        metrics.reload_good.set(0 if self.problem else 1)
        if self.problem:
            _log.error("configuration refused; the last good one stays", reason=self.problem)
        else:
            _log.info("configuration reloaded", waits_for_restart=list(self.waiting))


@dataclass(frozen=True, slots=True)
class Swept:
    """Retention has removed rows."""

    deleted: dict[str, int]

    def emit(self, metrics: Metrics) -> None:
        """Count; log what was removed."""
        for table, count in self.deleted.items():
            metrics.deleted_rows.labels(table=table).inc(count)
        removed = {table: count for table, count in self.deleted.items() if count}
        if removed:
            _log.info("retention", removed=removed)


def describe(error: BaseException) -> str:
    """An exception as one line without secrets of statements."""
    text: Any = getattr(error, "orig", None) or error
    first = str(text).strip().splitlines()
    return f"{type(error).__name__}: {first[0] if first else ''}".rstrip(": ")
