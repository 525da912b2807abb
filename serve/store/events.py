"""The event log: what happened, in an order that readers can resume from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from serve.store.base import lock_writers
from serve.store.tables import EventRow

_LOCK_KEY = 0x77656576  # "weev"

ALERT_EVENTS = (
    "alert.opened",
    "alert.updated",
    "alert.corrected",
    "alert.acknowledged",
    "alert.resolved",
    "alert.reopened",
)
"""Events whose body is the alert's public JSON form; all of them are published."""

OTHER_EVENTS = ("alert.feedback", "silence.created", "silence.deleted", "storm", "breaker")


def append_event(
    session: Session,
    kind: str,
    body: dict[str, Any],
    *,
    at_ns: int,
    job: str = "",
    alert_id: str | None = None,
) -> None:
    """Write one event in the caller's transaction.

    Ids become visible in ascending order (one transaction at a time writes events), so a
    reader that has seen id n never misses one below n.
    """
    lock_writers(session, _LOCK_KEY)
    session.add(EventRow(kind=kind, at_ns=at_ns, job=job, alert_id=alert_id, body=body))
    session.flush()


def events_after(
    session: Session, after: int, *, limit: int = 200, kinds: Sequence[str] | None = None
) -> list[EventRow]:
    """Events with an id above ``after``, oldest first."""
    query = select(EventRow).where(EventRow.id > after).order_by(EventRow.id).limit(limit)
    if kinds is not None:
        query = query.where(EventRow.kind.in_(kinds))
    return list(session.scalars(query))


def last_event_id(session: Session) -> int:
    """The newest id; 0 for an empty log."""
    return session.scalar(select(func.max(EventRow.id))) or 0
