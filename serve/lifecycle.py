"""The life of an alert: opened, corrected, acknowledged, resolved, reopened.

Detection says what it sees (`AlertChange`), people say what they know, time passes; this
module keeps the one stored truth of it. Everything happens in the caller's transaction, and
applying the same changes again (after a crash) changes nothing.

An alert ends when detection says that its evidence is gone or a person says so; never
because nothing was heard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import delete, false, or_, select
from sqlalchemy.orm import Session

from detect.alert import Alert, AlertChange
from serve.config import AlertSettings
from serve.links import Links
from serve.notice import Notice
from serve.paging import Reason
from serve.store.base import lock_writers
from serve.store.codec import alert_body, alert_from_row, alert_json
from serve.store.events import append_event
from serve.store.tables import (
    AlertAliasRow,
    AlertMachineRow,
    AlertRow,
    FeedbackRow,
    JobRow,
    OffenderRow,
)
from serve.telling import Telling, nanoseconds

_LOCK_KEY = 0x77656C63  # "welc"

DETECTION = "detection"
"""``resolved_by`` of an alert that ended on evidence."""


class NoSuchAlertError(Exception):
    """There is no alert with this id."""


class AlertOverError(Exception):
    """The alert is resolved; it cannot be acknowledged."""


@dataclass(slots=True)
class Applied:
    """What a step of the life cycle led to. ``events`` counts event kinds."""

    notices: list[Notice] = field(default_factory=list)
    decisions: Counter[Reason] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)


class Lifecycle:
    """Applies detection, people and time to the stored alerts.

    ``settings`` may be exchanged while running (hot reload). Any number of processes may
    share one database: they take turns.
    """

    def __init__(self, settings: AlertSettings, links: Links):
        self.settings = settings
        self.links = links

    def apply(self, session: Session, changes: Sequence[AlertChange], *, now_ns: int) -> Applied:
        """What detection has seen, in order."""
        applied, telling = self._begin(session, now_ns)
        ordinals: Counter[tuple[str, int]] = Counter()
        for change in changes:
            ordinals[change.alert.id, change.at_ns] += 1
            ordinal = ordinals[change.alert.id, change.at_ns]
            self._apply_one(session, change, ordinal, telling, applied)
        return self._end(applied, telling)

    def pass_time(
        self, session: Session, *, now_ns: int, watermarks: Mapping[str, int] | None = None
    ) -> Applied:
        """What the clock alone brings: ended silences, due messages, storms, the breaker.

        ``watermarks`` is how far (event time) this process's jobs are; others are looked up.
        """
        applied, telling = self._begin(session, now_ns)
        unsettled = select(AlertRow).where(
            AlertRow.settled == false(), AlertRow.status != "resolved"
        )
        for row in session.scalars(unsettled.order_by(AlertRow.id)):
            seen = (watermarks or {}).get(row.job) or _stored_watermark(session, row.job)
            telling.consider(row, max(seen, row.event_at_ns), new=False)
        due = select(AlertRow).where(AlertRow.resolve_due_ns <= now_ns).order_by(AlertRow.id)
        for row in session.scalars(due):
            telling.tell_end(row)
        telling.pass_time()
        return self._end(applied, telling)

    def acknowledge(self, session: Session, alert_id: str, *, by: str, now_ns: int) -> Applied:
        """A person is on it. Raises `NoSuchAlertError` or `AlertOverError`."""
        applied, telling = self._begin(session, now_ns)
        row = find_alert(session, alert_id)
        if row.status == "resolved":
            raise AlertOverError
        if row.status == "open":
            row.status, row.acknowledged_at_ns, row.acknowledged_by = "acknowledged", now_ns, by
            telling.tell_acknowledged(row, by)
            self._changed(session, row, "alert.acknowledged", now_ns, applied)
        return self._end(applied, telling)

    def resolve(
        self, session: Session, alert_id: str, *, by: str, now_ns: int, note: str = ""
    ) -> Applied:
        """A person says that it is over; it stays so until detection sees a new one."""
        applied, telling = self._begin(session, now_ns)
        row = find_alert(session, alert_id)
        if row.status != "resolved":
            if note:
                row.body = {**row.body, "note": note}
            row.status, row.resolved_at_ns, row.resolved_by = "resolved", now_ns, by
            telling.tell_end(row)
            self._changed(session, row, "alert.resolved", now_ns, applied)
        return self._end(applied, telling)

    def feedback(
        self,
        session: Session,
        alert_id: str,
        *,
        verdict: Literal["right", "wrong"],
        machine: str | None,
        note: str,
        by: str,
        now_ns: int,
    ) -> Applied:
        """What a person found: right or wrong, and which machine it was. Training reads it."""
        applied, telling = self._begin(session, now_ns)
        row = find_alert(session, alert_id)
        alert = alert_from_row(row)
        session.add(
            FeedbackRow(
                alert_id=row.id,
                job=row.job,
                verdict=verdict,
                machine=machine,
                note=note,
                author=by,
                at_ns=now_ns,
                machines=list(alert.machines),
                onset_ns=alert.onset_ns,
                detected_at_ns=alert.detected_at_ns,
            )
        )
        body = {"alert": row.id, "verdict": verdict, "machine": machine, "note": note, "by": by}
        append_event(session, "alert.feedback", body, at_ns=now_ns, job=row.job, alert_id=row.id)
        applied.events["alert.feedback"] += 1
        return self._end(applied, telling)

    def _begin(self, session: Session, now_ns: int) -> tuple[Applied, Telling]:
        lock_writers(session, _LOCK_KEY)
        return Applied(), Telling(session, self.settings, self.links, now_ns)

    @staticmethod
    def _end(applied: Applied, telling: Telling) -> Applied:
        applied.notices, applied.decisions = telling.notices, telling.decisions
        return applied

    def _apply_one(
        self,
        session: Session,
        change: AlertChange,
        ordinal: int,
        telling: Telling,
        applied: Applied,
    ) -> None:
        alert, now_ns = change.alert, telling.now_ns
        row = _incident(session, change, nanoseconds(self.settings.reopen_seconds))
        if row is None:
            if change.kind == "resolved":
                return  # retention has forgotten it already
            row = self._insert(session, change, ordinal, now_ns)
            telling.consider(row, change.at_ns)
            self._changed(session, row, "alert.opened", now_ns, applied)
            return
        if (change.at_ns, ordinal) <= (row.event_at_ns, row.event_ordinal):
            telling.decisions["replayed"] += 1
            return
        before = alert_from_row(row)
        row.event_at_ns, row.event_ordinal = change.at_ns, ordinal
        row.verdict, row.machine = alert.verdict, alert.machine
        row.body = alert_body(alert)
        moved = (before.verdict, before.machines) != (alert.verdict, alert.machines)
        _set_machines(session, row.id, set(before.machines), set(alert.machines))
        _count_offences(session, row.id, _accused(before), _accused(alert), now_ns)
        kind = "alert.corrected" if moved else "alert.updated"
        if change.kind == "resolved":
            kind = self._ended(row, change, now_ns)
        elif row.status == "resolved" and (row.resolved_by == DETECTION or moved):
            kind = self._reopened(row)
        telling.consider(row, change.at_ns)
        self._changed(session, row, kind, now_ns, applied)

    def _insert(self, session: Session, change: AlertChange, ordinal: int, now_ns: int) -> AlertRow:
        alert = change.alert
        row = AlertRow(
            id=alert.id,
            job=alert.job,
            machine=alert.machine,
            verdict=alert.verdict,
            status="open",
            detected_at_ns=alert.detected_at_ns,
            event_at_ns=change.at_ns,
            event_ordinal=ordinal,
            body=alert_body(alert),
            version=0,
            episode=1,
            created_at_ns=now_ns,
            changed_at_ns=now_ns,
            page_reason="",
            notices=0,
        )
        session.add(row)
        session.flush()
        _set_machines(session, row.id, set(), set(alert.machines))
        _count_offences(session, row.id, set(), _accused(alert), now_ns)
        return row

    def _ended(self, row: AlertRow, change: AlertChange, now_ns: int) -> str:
        already = row.status == "resolved"
        row.status, row.resolved_at_ns, row.resolved_by = "resolved", change.at_ns, DETECTION
        if not already and row.told_machines is not None:
            row.resolve_due_ns = now_ns + nanoseconds(self.settings.resolve_hold_seconds)
        return "alert.updated" if already else "alert.resolved"

    @staticmethod
    def _reopened(row: AlertRow) -> str:
        row.status = "open" if row.acknowledged_at_ns is None else "acknowledged"
        row.resolved_at_ns = row.resolved_by = None
        if row.resolve_due_ns is not None:
            row.resolve_due_ns = None  # nobody was told of the end; nothing to say
        elif row.paged_at_ns is not None:
            # People were told that it is over: what follows is a new message's business.
            row.episode += 1
            row.notices = 0
            row.paged_at_ns = row.told_machines = row.storm_id = None
            row.acknowledged_at_ns = row.acknowledged_by = None
            row.status, row.page_reason = "open", ""
        return "alert.reopened"

    def _changed(
        self, session: Session, row: AlertRow, kind: str, now_ns: int, applied: Applied
    ) -> None:
        row.version += 1
        row.changed_at_ns = now_ns
        session.flush()
        append_event(
            session,
            kind,
            alert_json(row, self.links),
            at_ns=now_ns,
            job=row.job,
            alert_id=row.id,
        )
        applied.events[kind] += 1


def find_alert(session: Session, alert_id: str) -> AlertRow:
    """The alert of this id, or of the incident it was joined to; else `NoSuchAlertError`."""
    row = session.get(AlertRow, alert_id)
    if row is None:
        alias = session.get(AlertAliasRow, alert_id)
        row = session.get(AlertRow, alias.alert_id) if alias else None
    if row is None:
        raise NoSuchAlertError(alert_id)
    return row


def _incident(session: Session, change: AlertChange, reopen_ns: int) -> AlertRow | None:
    """The stored incident that a change belongs to; remembers the id it came under."""
    alert = change.alert
    try:
        return find_alert(session, alert.id)
    except NoSuchAlertError:
        pass
    if change.kind == "resolved":
        return None
    recent = select(AlertRow).where(
        AlertRow.job == alert.job,
        AlertRow.verdict == alert.verdict,
        or_(
            AlertRow.status != "resolved",
            (AlertRow.resolved_by == DETECTION)
            # Event time; when it was resolved may be a person's wall-clock time.
            & (AlertRow.event_at_ns >= change.at_ns - reopen_ns),
        ),
    )
    for row in session.scalars(recent.order_by(AlertRow.event_at_ns.desc(), AlertRow.id)):
        if _same_incident(alert_from_row(row), alert):
            session.add(AlertAliasRow(id=alert.id, alert_id=row.id))
            return row
    return None


def _same_incident(old: Alert, new: Alert) -> bool:
    if new.verdict == "machine":
        return old.machine == new.machine
    if new.verdict == "group":
        shared = len(set(old.machines) & set(new.machines))
        return 2 * shared > max(len(old.machines), len(new.machines))
    return old.machines == new.machines


def _stored_watermark(session: Session, job: str) -> int:
    row = session.get(JobRow, job)
    return int(row.body.get("watermark_ns", 0)) if row else 0


def _accused(alert: Alert) -> set[str]:
    """The machines that an alert blames so surely that people are told."""
    return set(alert.machines) if alert.verdict in {"machine", "group"} and alert.pages else set()


def _set_machines(session: Session, alert_id: str, old: set[str], new: set[str]) -> None:
    """Bring the filter's table in line with the named machines."""
    gone = AlertMachineRow.machine.in_(old - new)
    session.execute(delete(AlertMachineRow).where(AlertMachineRow.alert_id == alert_id, gone))
    session.add_all(AlertMachineRow(alert_id=alert_id, machine=m) for m in sorted(new - old))


def _count_offences(
    session: Session, alert_id: str, old: set[str], new: set[str], now_ns: int
) -> None:
    """Count who is accused now, and take back what was counted of who is no longer."""
    for machine in sorted(old - new):
        offender = session.get(OffenderRow, machine)
        if offender is not None and offender.last_alert_id == alert_id:
            offender.incidents -= 1
    for machine in sorted(new - old):
        offender = session.get(OffenderRow, machine)
        if offender is None:
            offender = OffenderRow(machine=machine, incidents=0, first_at_ns=now_ns)
            session.add(offender)
        offender.incidents += 1
        offender.last_at_ns, offender.last_alert_id = now_ns, alert_id
    session.flush()
