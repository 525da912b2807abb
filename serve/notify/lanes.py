"""Leases on lanes, and what an attempt leaves behind.

A lane (one incident at one receiver) is claimed by writing an owner and an end into its row.
PostgreSQL skips rows that another process is claiming (``SKIP LOCKED``); on SQLite the write
transaction itself is the lock. A process that dies keeps its leases until they end; then
another one sends the same message again under the same idempotency key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from serve.notify.note import Note, Told
from serve.notify.outbox import insert_unless_there, locked_lane, pending
from serve.notify.pace import SECOND_NS, Backoff, take_slot
from serve.notify.receiver import Receiver
from serve.notify.result import Delivered, GaveUp, Result, Retry
from serve.notify.tables import LaneRow, OutboxAttemptRow, OutboxRow, ReceiverRow

REPEAT_DAYS = 90
"""An open incident is repeated for at most so long after its last change."""

Outcome = Literal["delivered", "retried", "dead", "lost", "dropped", "held", "rate_limited"]
"""How one step of a delivery ends."""


@dataclass(frozen=True, slots=True)
class Work:
    """One note to tell, under a lease. ``outbox_id`` is None for a repetition."""

    receiver: str
    key: str
    owner: str
    outbox_id: int | None
    note: Note
    told: Told

    @property
    def repeat(self) -> bool:
        """Whether the receiver has accepted this note before."""
        return self.outbox_id is None


def something_due(session: Session, receiver: str, now_ns: int) -> bool:
    """Whether `claim` would find work; takes no lock."""
    if _paused(session, receiver, now_ns):
        return False
    return session.scalar(select(LaneRow.key).where(*_due(receiver, now_ns)).limit(1)) is not None


def claim(
    session: Session, receiver: Receiver, owner: str, now_ns: int, lease_ns: int
) -> Work | None:
    """Lease the lane that has waited longest and pick what to tell in it."""
    name = receiver.settings.name
    while not _paused(session, name, now_ns):
        query = select(LaneRow).where(*_due(name, now_ns)).order_by(LaneRow.next_at_ns).limit(1)
        lane = session.scalars(query.with_for_update(skip_locked=True)).one_or_none()
        if lane is None:
            return None
        rows = pending(session, name, lane.key)
        told = Told(
            lane.told_status,  # type: ignore[arg-type]
            lane.told_sequence,
            lane.told_at_ns,
            dict(lane.labels or {}),
        )
        if rows:
            if receiver.traits.pending == "latest":
                for row in rows[:-1]:
                    _finish(row, "superseded", f"by {lane.key}:{rows[-1].sequence}", now_ns)
                rows = rows[-1:]
            work = Work(name, lane.key, owner, rows[0].id, Note.from_json(rows[0].note), told)
        elif lane.told and _repeats(lane, receiver, now_ns):
            work = Work(name, lane.key, owner, None, Note.from_json(lane.told), told)
        else:
            lane.next_at_ns = None
            session.flush()
            continue
        lane.lease_owner, lane.lease_until_ns = owner, now_ns + lease_ns
        session.flush()
        return work
    return None


def postpone(session: Session, work: Work, until_ns: int, reason: str) -> None:
    """Give the lease back; the note stays pending until then."""
    lane = _leased(session, work)
    if lane is not None:
        lane.next_at_ns = until_ns
        _release(lane, lane.changed_at_ns)
    row = session.get(OutboxRow, work.outbox_id) if work.outbox_id else None
    if row is not None:
        row.reason = reason


def drop(session: Session, work: Work, receiver: Receiver, reason: str, now_ns: int) -> None:
    """Finish the note without telling it."""
    lane = _leased(session, work)
    row = session.get(OutboxRow, work.outbox_id) if work.outbox_id else None
    if row is not None:
        _finish(row, "suppressed", reason, now_ns)
    if lane is not None:
        if work.note.resolves and lane.told_status:
            lane.told_status = "resolved"  # nothing more to repeat
        _move_on(session, lane, receiver, now_ns)


def record(
    session: Session, work: Work, receiver: Receiver, result: Result, now_ns: int, backoff: Backoff
) -> Outcome:
    """Write down what became of an attempt; the last step of a delivery.

    Returns the outcome for the counters: ``delivered``, ``retried``, ``dead`` or ``lost``
    (the lease had ended and somebody else has the lane now; nothing is written).
    """
    lane = _leased(session, work)
    if lane is None:
        return "lost"
    state = _receiver_row(session, work.receiver)
    state.changed_at_ns = now_ns
    row = session.get(OutboxRow, work.outbox_id) if work.outbox_id else None
    given_up = isinstance(result, GaveUp) or (
        row is not None
        and isinstance(result, Retry)
        and now_ns - row.give_up_from_ns >= receiver.settings.give_up_after_seconds * SECOND_NS
    )
    if row is not None:
        row.attempts += 1
        _log_attempt(session, row, result, now_ns)
    if isinstance(result, Delivered):
        if row is not None:
            _finish(row, "sent", result.detail, now_ns)
        _remember(lane, work.note, receiver, now_ns)
        state.failures, state.paused_until_ns = 0, 0
        state.last_delivered_at_ns = now_ns
        _move_on(session, lane, receiver, now_ns)
        return "delivered"
    state.last_error, state.last_error_at_ns = result.reason, now_ns
    lane.failures += 1
    if isinstance(result, Retry):
        _back_off(lane, state, result, now_ns, backoff)
        if not given_up:
            if row is not None:
                row.reason = result.reason
            _release(lane, now_ns)
            return "retried"
    if row is not None:
        _finish(row, "dead", result.reason, now_ns)
    _move_on(session, lane, receiver, now_ns)
    return "retried" if work.repeat else "dead"


def over_rate(session: Session, work: Work, receiver: Receiver, now_ns: int) -> bool:
    """Take one slot of the receiver's rate, or give the lease back and pause the receiver."""
    settings = receiver.settings
    state = _receiver_row(session, settings.name)
    wait_ns, state.next_slot_ns = take_slot(
        state.next_slot_ns, now_ns, settings.rate_limit_per_minute, settings.rate_burst
    )
    if wait_ns == 0:
        return False
    state.paused_until_ns = max(state.paused_until_ns, now_ns + wait_ns)
    lane = _leased(session, work)
    if lane is not None:
        _release(lane, lane.changed_at_ns)
    return True


def _due(receiver: str, now_ns: int) -> tuple[ColumnElement[bool], ...]:
    return (
        LaneRow.receiver == receiver,
        LaneRow.next_at_ns <= now_ns,
        LaneRow.lease_until_ns <= now_ns,
    )


def _paused(session: Session, receiver: str, now_ns: int) -> bool:
    query = select(ReceiverRow.paused_until_ns).where(ReceiverRow.receiver == receiver)
    return (session.scalar(query) or 0) > now_ns


def _receiver_row(session: Session, receiver: str) -> ReceiverRow:
    query = (
        select(ReceiverRow)
        .where(ReceiverRow.receiver == receiver)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    row = session.scalars(query).one_or_none()
    if row is None:
        insert_unless_there(session, ReceiverRow, {"receiver": receiver})
        row = session.scalars(query).one()
    return row


def _leased(session: Session, work: Work) -> LaneRow | None:
    lane = locked_lane(session, work.receiver, work.key)
    return lane if lane is not None and lane.lease_owner == work.owner else None


def _finish(row: OutboxRow, state: str, reason: str, now_ns: int) -> None:
    row.state, row.reason, row.finished_at_ns = state, reason, now_ns


def _log_attempt(session: Session, row: OutboxRow, result: Result, now_ns: int) -> None:
    detail = result.detail if isinstance(result, Delivered) else result.reason
    outcome = {Delivered: "delivered", Retry: "retry", GaveUp: "gave_up"}[type(result)]
    session.add(OutboxAttemptRow(outbox_id=row.id, at_ns=now_ns, outcome=outcome, detail=detail))


def _remember(lane: LaneRow, note: Note, receiver: Receiver, now_ns: int) -> None:
    if note.sequence >= lane.told_sequence:
        lane.told, lane.told_status = note.to_json(), note.status
        lane.told_sequence, lane.labels = note.sequence, receiver.labels(note)
    lane.told_at_ns = now_ns
    lane.failures = 0


def _back_off(
    lane: LaneRow, state: ReceiverRow, result: Retry, now_ns: int, backoff: Backoff
) -> None:
    # In an outage every attempt is another lane's first, so each goes soon after its end. A
    # lane that fails by itself while others are delivered falls behind them.
    failures = state.failures + 1 if result.whole_receiver else lane.failures
    wait = backoff.retry_seconds(failures, result.after_seconds)
    if result.whole_receiver:
        state.failures = failures
        state.paused_until_ns = now_ns + round(wait * SECOND_NS)
        wait = max(wait, backoff.seconds(lane.failures))
    lane.next_at_ns = now_ns + round(wait * SECOND_NS)


def _move_on(session: Session, lane: LaneRow, receiver: Receiver, now_ns: int) -> None:
    """After the lane's note is finished: when is the next thing to be done in it?"""
    session.flush()
    if pending(session, lane.receiver, lane.key):
        lane.next_at_ns = now_ns
        lane.failures = 0
    elif _repeats(lane, receiver, now_ns):
        assert receiver.traits.resend_seconds is not None
        lane.next_at_ns = now_ns + round(receiver.traits.resend_seconds * SECOND_NS)
    else:
        lane.next_at_ns = None
    _release(lane, now_ns)


def _repeats(lane: LaneRow, receiver: Receiver, now_ns: int) -> bool:
    """Whether the incident is open and the receiver wants to hear of it again and again.

    Not for ever: of what has not changed for months nobody knows any more whether it is true.
    """
    open_there = lane.told_status in ("open", "acknowledged")
    recent = now_ns - (lane.told or {}).get("at_ns", 0) < REPEAT_DAYS * 86_400 * SECOND_NS
    return receiver.traits.resend_seconds is not None and open_there and recent


def _release(lane: LaneRow, now_ns: int) -> None:
    lane.lease_owner, lane.lease_until_ns, lane.changed_at_ns = None, 0, now_ns
