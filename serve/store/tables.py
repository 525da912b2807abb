"""Tables of the life cycle, the event log, the history and the service itself.

Times are nanoseconds since the epoch. Every table has a time by which
`serve.store.retention` bounds it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Text
from sqlalchemy.orm import Mapped, mapped_column

from serve.store.base import Base, BigId, Json


class AlertRow(Base):
    """An alert and where its life stands.

    ``body`` is the alert as detection last said it (see `serve.store.codec`); ``status`` is
    the life cycle's. ``version`` counts changes (the ETag). (``event_at_ns``,
    ``event_ordinal``) is the last change of detection applied: event time, and the how
    manieth of that time. ``paged_at_ns`` is when people were told; ``page_reason`` says how,
    or why not yet; ``settled`` says that time alone cannot change the decision.
    ``told_machines`` is what they were told in a message of its own; None
    if only a storm's or the breaker's message spoke of it. ``resolve_due_ns`` is when they
    will be told of its end, unless it comes back before.
    """

    __tablename__ = "alerts"
    __table_args__ = (
        Index("ix_alerts_order", "detected_at_ns", "id"),
        Index("ix_alerts_job", "job", "detected_at_ns"),
        Index("ix_alerts_status", "status", "detected_at_ns"),
        Index("ix_alerts_changed", "changed_at_ns"),
        Index("ix_alerts_settled", "settled", "status"),
        Index("ix_alerts_due", "resolve_due_ns"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    job: Mapped[str]
    machine: Mapped[str | None]
    verdict: Mapped[str]
    status: Mapped[str]
    detected_at_ns: Mapped[int]
    event_at_ns: Mapped[int]
    event_ordinal: Mapped[int] = mapped_column(default=0)
    body: Mapped[dict[str, Any]] = mapped_column(Json)
    version: Mapped[int] = mapped_column(default=1)
    episode: Mapped[int] = mapped_column(default=1)
    created_at_ns: Mapped[int]
    changed_at_ns: Mapped[int]
    acknowledged_at_ns: Mapped[int | None]
    acknowledged_by: Mapped[str | None]
    resolved_at_ns: Mapped[int | None]
    resolved_by: Mapped[str | None]
    resolve_due_ns: Mapped[int | None]
    page_reason: Mapped[str] = mapped_column(default="")
    settled: Mapped[bool] = mapped_column(default=False)
    paged_at_ns: Mapped[int | None]
    told_machines: Mapped[list[str] | None] = mapped_column(Json)
    notices: Mapped[int] = mapped_column(default=0)
    storm_id: Mapped[str | None]


class AlertMachineRow(Base):
    """Every machine that an alert names, for the filter."""

    __tablename__ = "alert_machines"
    __table_args__ = (Index("ix_alert_machines_machine", "machine"),)

    alert_id: Mapped[str] = mapped_column(
        ForeignKey("alerts.id", ondelete="CASCADE"), primary_key=True
    )
    machine: Mapped[str] = mapped_column(primary_key=True)


class AlertAliasRow(Base):
    """Detection's id of an incident that is kept under an older id."""

    __tablename__ = "alert_aliases"

    id: Mapped[str] = mapped_column(primary_key=True)
    alert_id: Mapped[str] = mapped_column(ForeignKey("alerts.id", ondelete="CASCADE"), index=True)


class EventRow(Base):
    """The event log behind server-sent events and the topic of alerts, in order of ``id``."""

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_at", "at_ns"),
        Index("ix_events_alert", "alert_id", "id"),
        # An id is never given twice, not even after retention has emptied the table.
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    at_ns: Mapped[int]
    kind: Mapped[str]
    job: Mapped[str]
    alert_id: Mapped[str | None]
    body: Mapped[dict[str, Any]] = mapped_column(Json)


class SilenceRow(Base):
    """Machines, jobs (patterns with ``*`` and ``?``) that do not page for a while."""

    __tablename__ = "silences"
    __table_args__ = (Index("ix_silences_end", "ends_at_ns"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    job: Mapped[str]
    machine: Mapped[str]
    starts_at_ns: Mapped[int]
    ends_at_ns: Mapped[int]
    comment: Mapped[str]
    created_by: Mapped[str]
    created_at_ns: Mapped[int]


class FeedbackRow(Base):
    """What people said of an alert; training reads it (`serve.opinions`).

    ``machines``, ``onset_ns`` and ``detected_at_ns`` are what the alert said when they did.
    """

    __tablename__ = "feedback"
    __table_args__ = (Index("ix_feedback_at", "at_ns"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    alert_id: Mapped[str] = mapped_column(index=True)
    job: Mapped[str]
    verdict: Mapped[str]
    machine: Mapped[str | None]
    note: Mapped[str]
    author: Mapped[str]
    at_ns: Mapped[int]
    machines: Mapped[list[str] | None] = mapped_column(Json)
    onset_ns: Mapped[int | None]
    detected_at_ns: Mapped[int | None]


class OffenderRow(Base):
    """How often a host was named; it outlives pods, jobs and alerts."""

    __tablename__ = "offenders"

    machine: Mapped[str] = mapped_column(primary_key=True)
    incidents: Mapped[int]
    first_at_ns: Mapped[int]
    last_at_ns: Mapped[int] = mapped_column(BigInteger, index=True)
    last_alert_id: Mapped[str]


class StormRow(Base):
    """Many alerts of one job within a short time, told as one."""

    __tablename__ = "storms"
    __table_args__ = (Index("ix_storms_job", "job", "last_at_ns"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    job: Mapped[str]
    started_at_ns: Mapped[int]
    last_at_ns: Mapped[int] = mapped_column(BigInteger, index=True)
    alerts: Mapped[int]
    told_alerts: Mapped[int]
    told_at_ns: Mapped[int]
    notices: Mapped[int]
    resolved_at_ns: Mapped[int | None]


class ServiceStateRow(Base):
    """Small facts that must survive a restart (circuit breaker, publishing position)."""

    __tablename__ = "service_state"

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[dict[str, Any]] = mapped_column(Json)
    at_ns: Mapped[int]


class JobRow(Base):
    """A job as its worker last saw it."""

    __tablename__ = "jobs"

    job: Mapped[str] = mapped_column(primary_key=True)
    worker: Mapped[str]
    body: Mapped[dict[str, Any]] = mapped_column(Json)
    updated_at_ns: Mapped[int] = mapped_column(BigInteger, index=True)


class WorkerRow(Base):
    """A worker's sign of life: the dead-man's signal of detection."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(primary_key=True)
    started_at_ns: Mapped[int]
    beat_at_ns: Mapped[int] = mapped_column(BigInteger, index=True)
    body: Mapped[dict[str, Any]] = mapped_column(Json)


class HistoryRow(Base):
    """Compressed scores (``series`` empty) or one metric of one job over a short period."""

    __tablename__ = "history"
    __table_args__ = (
        Index("ix_history_series", "job", "series", "end_ns"),
        Index("ix_history_end", "end_ns"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    job: Mapped[str]
    series: Mapped[str]
    start_ns: Mapped[int]
    end_ns: Mapped[int]
    written_at_ns: Mapped[int] = mapped_column(BigInteger, index=True)
    size_bytes: Mapped[int]
    data: Mapped[bytes]


class TokenRow(Base):
    """An API token: a public id and the hash of its secret."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    scopes: Mapped[list[str]] = mapped_column(Json)
    secret_sha256: Mapped[str]
    created_at_ns: Mapped[int]
    expires_at_ns: Mapped[int | None]
