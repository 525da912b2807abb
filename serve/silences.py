"""Silences and maintenance windows: who is not paged for, until when."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from detect.alert import Alert, rfc3339
from serve.store.events import append_event
from serve.store.tables import SilenceRow

SilenceKind = Literal["silence", "maintenance"]


@dataclass(frozen=True, slots=True)
class NewSilence:
    """What is to be silenced. ``job`` and ``machine`` are patterns (``*`` any text, ``?``
    one character); an alert is covered when its job matches and *every* machine that it
    names does, so a covered machine never hides an uncovered one."""

    kind: SilenceKind
    job: str
    machine: str
    starts_at_ns: int
    ends_at_ns: int
    comment: str
    created_by: str


def add_silence(session: Session, new: NewSilence, *, now_ns: int) -> SilenceRow:
    """Store a silence; it takes effect with the next decision."""
    row = SilenceRow(
        id=uuid.uuid4().hex,
        kind=new.kind,
        job=new.job,
        machine=new.machine,
        starts_at_ns=new.starts_at_ns,
        ends_at_ns=new.ends_at_ns,
        comment=new.comment,
        created_by=new.created_by,
        created_at_ns=now_ns,
    )
    session.add(row)
    append_event(session, "silence.created", silence_json(row), at_ns=now_ns)
    return row


def end_silence(session: Session, row: SilenceRow, *, now_ns: int, by: str) -> None:
    """End a silence now; what it covered and is still open pages."""
    body = silence_json(row) | {"deleted_by": by}
    session.delete(row)
    append_event(session, "silence.deleted", body, at_ns=now_ns)


def active_silences(session: Session, now_ns: int) -> list[SilenceRow]:
    """Silences in force."""
    query = select(SilenceRow).where(
        SilenceRow.starts_at_ns <= now_ns, SilenceRow.ends_at_ns > now_ns
    )
    return list(session.scalars(query.order_by(SilenceRow.id)))


def covering(silences: list[SilenceRow], alert: Alert) -> SilenceKind | None:
    """The kind of the silence that covers the alert; maintenance before silence."""
    kinds = {s.kind for s in silences if covers(s.job, s.machine, alert.job, alert.machines)}
    if not kinds:
        return None
    return "maintenance" if "maintenance" in kinds else "silence"


def covers(job_pattern: str, machine_pattern: str, job: str, machines: tuple[str, ...]) -> bool:
    """Whether the patterns cover the job and all machines.

    An alert that names no machine is only covered by a pattern for all machines.
    """
    if not fnmatchcase(job, job_pattern):
        return False
    if not machines:
        return machine_pattern == "*"
    return all(fnmatchcase(machine, machine_pattern) for machine in machines)


def silence_json(row: SilenceRow) -> dict[str, Any]:
    """The public form."""
    return {
        "id": row.id,
        "kind": row.kind,
        "job": row.job,
        "machine": row.machine,
        "starts_at": rfc3339(row.starts_at_ns),
        "ends_at": rfc3339(row.ends_at_ns),
        "comment": row.comment,
        "created_by": row.created_by,
        "created_at": rfc3339(row.created_at_ns),
    }
