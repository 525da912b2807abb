"""No table grows for ever: rows go by age, history also by size."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import ColumnElement, and_, delete, exists, func, select
from sqlalchemy.orm import InstrumentedAttribute

from serve.config import RetentionSettings
from serve.metrics import Metrics
from serve.store.base import Base, Database
from serve.store.history import SCORES
from serve.store.tables import (
    AlertRow,
    EventRow,
    FeedbackRow,
    HistoryRow,
    JobRow,
    OffenderRow,
    ServiceStateRow,
    SilenceRow,
    StormRow,
    TokenRow,
    WorkerRow,
)

DAY_NS = 86_400 * 10**9
HOUR_NS = 3_600 * 10**9
BATCH = 500
"""Rows a transaction: detection never waits long for a sweep."""

KEPT_BEFORE_NS = HOUR_NS // 2
KEPT_AFTER_NS = HOUR_NS // 6
"""Metrics around an alert stay as long as the alert: its story must be told next morning."""

Key = InstrumentedAttribute[str] | InstrumentedAttribute[int]


def sweep(database: Database, settings: RetentionSettings) -> dict[str, int]:
    """Remove what is too old; returns the number of removed rows per table.

    Alerts go by their last change, whatever their status: one that nobody and nothing has
    touched for all that time says nothing about now. Their machines and aliases go with them.
    """
    now = database.clock()
    story = exists().where(
        AlertRow.job == HistoryRow.job,
        AlertRow.detected_at_ns - KEPT_BEFORE_NS < HistoryRow.end_ns,
        AlertRow.detected_at_ns + KEPT_AFTER_NS > HistoryRow.start_ns,
    )
    too_old_metrics = and_(
        HistoryRow.series != SCORES,
        HistoryRow.written_at_ns < now - round(settings.metrics_hours * HOUR_NS),
        ~story,
    )
    too_old_scores = and_(
        HistoryRow.series == SCORES,
        HistoryRow.written_at_ns < now - round(settings.scores_hours * HOUR_NS),
        ~story,
    )

    def before(column: InstrumentedAttribute[int], days: float) -> ColumnElement[bool]:
        return column < now - round(days * DAY_NS)

    expired = and_(TokenRow.expires_at_ns.is_not(None), TokenRow.expires_at_ns < now - DAY_NS)
    rules: list[tuple[Key, ColumnElement[bool]]] = [
        (AlertRow.id, before(AlertRow.changed_at_ns, settings.alerts_days)),
        (EventRow.id, before(EventRow.at_ns, settings.events_days)),
        (SilenceRow.id, before(SilenceRow.ends_at_ns, settings.silences_days)),
        (FeedbackRow.id, before(FeedbackRow.at_ns, settings.feedback_days)),
        (OffenderRow.machine, before(OffenderRow.last_at_ns, settings.offenders_days)),
        (StormRow.id, before(StormRow.last_at_ns, settings.alerts_days)),
        (JobRow.job, before(JobRow.updated_at_ns, settings.jobs_days)),
        (WorkerRow.id, before(WorkerRow.beat_at_ns, settings.jobs_days)),
        (TokenRow.id, expired),
        (HistoryRow.id, too_old_metrics),
        (HistoryRow.id, too_old_scores),
    ]
    deleted: dict[str, int] = {}
    for key, condition in rules:
        name = key.class_.__tablename__
        deleted[name] = deleted.get(name, 0) + _remove(database, key, condition)
    deleted[HistoryRow.__tablename__] += _shrink_history(database, settings.history_bytes)
    return deleted


def measure(database: Database, metrics: Metrics) -> None:
    """Set the gauges of what is stored."""
    with database.read() as session:
        for mapper in Base.registry.mappers:
            table = mapper.local_table
            count = session.scalar(select(func.count()).select_from(table)) or 0
            metrics.table_rows.labels(table=table.name).set(count)  # type: ignore[attr-defined]
        by_status = select(AlertRow.status, func.count()).group_by(AlertRow.status)
        counts: dict[str, int] = dict(session.execute(by_status).all())
        size = session.scalar(select(func.sum(HistoryRow.size_bytes))) or 0
        breaker = session.get(ServiceStateRow, "breaker")
    for status in ("open", "acknowledged", "resolved"):
        metrics.alerts.labels(status=status).set(counts.get(status, 0))
    metrics.history_bytes.set(size)
    metrics.breaker_open.set(bool(breaker and breaker.value.get("open")))


def _remove(database: Database, key: Key, condition: ColumnElement[bool]) -> int:
    removed = 0
    while True:
        with database.write() as session:
            chosen = list(session.scalars(select(key).where(condition).limit(BATCH)))
            if chosen:
                session.execute(delete(key.class_).where(key.in_(chosen)))
        removed += len(chosen)
        if len(chosen) < BATCH:
            return removed


def _shrink_history(database: Database, limit_bytes: int) -> int:
    removed = 0
    while True:
        with database.write() as session:
            size = session.scalar(select(func.sum(HistoryRow.size_bytes))) or 0
            if size <= limit_bytes:
                return removed
            oldest = session.execute(
                select(HistoryRow.id, HistoryRow.size_bytes).order_by(HistoryRow.id).limit(BATCH)
            )
            chosen = []
            for row_id, bytes_ in oldest:
                if size <= limit_bytes:
                    break
                chosen.append(row_id)
                size -= bytes_
            session.execute(delete(HistoryRow).where(HistoryRow.id.in_(chosen)))
        removed += len(chosen)


Sweeper = Callable[[], dict[str, int]]
"""Another area's sweep (notifications, checkpoints); run beside `sweep`."""
