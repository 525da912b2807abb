"""The stored outbox: what is to be told stands beside what happened, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from serve.notice import Notice
from serve.notify.config import NotifySettings
from serve.notify.note import note_of
from serve.notify.pace import SECOND_NS
from serve.notify.routing import receivers_for, severity
from serve.notify.tables import LaneRow, OutboxAttemptRow, OutboxRow, ReceiverRow

OPEN_LANES_DAYS = 365
"""So much longer than the rest is kept what a receiver was told and never un-told."""


class NotifyOutbox:
    """Routes notices and stores them for delivery. ``settings`` may be exchanged (reload)."""

    def __init__(self, settings: NotifySettings) -> None:
        self.settings = settings

    def enqueue(self, session: Session, notices: Sequence[Notice]) -> None:
        """Store the notices in the caller's transaction; no network, no commit.

        Whoever was told of an incident, or is about to be, hears of its further changes even
        if the routes have changed since. A notice that is stored already is left alone.
        """
        for notice in notices:
            note = note_of(notice, severity(notice.alert, self.settings.ticket_score))
            for receiver in self._receivers(session, notice):
                values = {
                    "receiver": receiver,
                    "key": notice.key,
                    "sequence": notice.sequence,
                    "kind": notice.kind,
                    "job": notice.job,
                    "note": note.to_json(),
                    "created_at_ns": notice.at_ns,
                    "give_up_from_ns": notice.at_ns,
                }
                if insert_unless_there(session, OutboxRow, values):
                    _hurry(session, receiver, notice.key, notice.at_ns)

    def _receivers(self, session: Session, notice: Notice) -> list[str]:
        known = {r.name for r in self.settings.receivers}
        busy = session.scalars(select(LaneRow.receiver).where(LaneRow.key == notice.key))
        # Always in one order, so that two transactions never wait for each other.
        return sorted({*receivers_for(notice, self.settings), *(known & set(busy))})


def insert_unless_there(session: Session, table: type[Any], values: dict[str, Any]) -> bool:
    """Insert a row unless its key exists; True if it was inserted."""
    postgres = session.get_bind().dialect.name == "postgresql"
    insert: Any = postgresql.insert if postgres else sqlite.insert
    defaults = {
        column.name: column.default.arg
        for column in table.__table__.columns
        if column.default is not None and column.default.is_scalar
    }
    rows = table.__table__
    statement = insert(rows).values({**defaults, **values}).on_conflict_do_nothing()
    # The count of affected rows is not known with every driver; a returned key is.
    return session.execute(statement.returning(*rows.primary_key)).first() is not None


def locked_lane(session: Session, receiver: str, key: str) -> LaneRow | None:
    """The lane as it is now, kept from others until the transaction ends."""
    query = select(LaneRow).where(LaneRow.receiver == receiver, LaneRow.key == key)
    return session.scalars(
        query.with_for_update().execution_options(populate_existing=True)
    ).one_or_none()


def _hurry(session: Session, receiver: str, key: str, at_ns: int) -> None:
    """Let the lane be looked at by ``at_ns``, unless it is waiting after a failure."""
    fresh = {"receiver": receiver, "key": key, "next_at_ns": at_ns, "changed_at_ns": at_ns}
    if insert_unless_there(session, LaneRow, fresh):
        return
    lane = locked_lane(session, receiver, key)
    assert lane is not None
    if lane.failures == 0 or lane.next_at_ns is None:
        lane.next_at_ns = min(at_ns, lane.next_at_ns or at_ns)
    lane.changed_at_ns = at_ns
    session.flush()


def pending(session: Session, receiver: str, key: str) -> list[OutboxRow]:
    """What is still to be told in a lane, in order."""
    query = select(OutboxRow).where(
        OutboxRow.receiver == receiver, OutboxRow.key == key, OutboxRow.state == "pending"
    )
    return list(session.scalars(query.order_by(OutboxRow.sequence)))


def dead(session: Session, limit: int = 200) -> list[OutboxRow]:
    """What was given up, newest first; ``reason`` tells why."""
    query = select(OutboxRow).where(OutboxRow.state == "dead")
    return list(session.scalars(query.order_by(OutboxRow.id.desc()).limit(limit)))


def replay(session: Session, ids: Sequence[int], now_ns: int) -> int:
    """Try dead notices again, under their old idempotency keys; returns how many.

    Ids that are not dead are left alone. A receiver of the newest state alone is not told
    what a newer message has overtaken.
    """
    query = select(OutboxRow).where(OutboxRow.id.in_(ids), OutboxRow.state == "dead")
    rows = list(session.scalars(query.order_by(OutboxRow.id)))
    for row in rows:
        row.state, row.reason = "pending", f"replayed; before: {row.reason}"
        row.attempts, row.finished_at_ns, row.give_up_from_ns = 0, None, now_ns
        session.flush()
        _hurry(session, row.receiver, row.key, now_ns)
    return len(rows)


def give_up_unknown(session: Session, known: set[str], before_ns: int, now_ns: int) -> int:
    """Declare dead what waits since ``before_ns`` for a receiver that no longer exists."""
    done: Any = session.execute(
        update(OutboxRow)
        .where(
            OutboxRow.state == "pending",
            OutboxRow.give_up_from_ns < before_ns,
            OutboxRow.receiver.not_in(known),
        )
        .values(state="dead", reason="no such receiver is configured", finished_at_ns=now_ns)
    )
    return int(done.rowcount)


def prune(session: Session, before_ns: int, limit: int = 2_000) -> int:
    """Retention: forget what was finished, and lanes that came to rest, before a time.

    At most ``limit`` of each, so that nobody waits long for the transaction; call it again
    until it returns 0.
    """
    finished = (
        select(OutboxRow.id)
        .where(OutboxRow.state != "pending", OutboxRow.finished_at_ns < before_ns)
        .limit(limit)
    )
    ids = list(session.scalars(finished))
    session.execute(delete(OutboxAttemptRow).where(OutboxAttemptRow.outbox_id.in_(ids)))
    session.execute(delete(OutboxRow).where(OutboxRow.id.in_(ids)))
    waiting = (
        select(OutboxRow.id)
        .where(OutboxRow.receiver == LaneRow.receiver, OutboxRow.key == LaneRow.key)
        .where(OutboxRow.state == "pending")
        .exists()
    )
    # A receiver that believes an incident open must still hear of its end.
    lost_ns = before_ns - OPEN_LANES_DAYS * 86_400 * SECOND_NS
    at_rest = LaneRow.told_status.in_(("", "resolved")) | (LaneRow.changed_at_ns < lost_ns)
    lanes = list(
        session.scalars(
            select(LaneRow).where(LaneRow.changed_at_ns < before_ns, at_rest, ~waiting).limit(limit)
        )
    )
    for lane in lanes:
        session.delete(lane)
    session.flush()
    return len(ids) + len(lanes)


def backlog(session: Session) -> dict[str, dict[str, int]]:
    """Per receiver: ``pending``, ``dead`` (counts) and ``oldest_ns`` (0 if nothing waits)."""
    query = (
        select(OutboxRow.receiver, OutboxRow.state, func.count(), func.min(OutboxRow.created_at_ns))
        .where(OutboxRow.state.in_(("pending", "dead")))
        .group_by(OutboxRow.receiver, OutboxRow.state)
    )
    found: dict[str, dict[str, int]] = {}
    for receiver, state, count, oldest in session.execute(query):
        entry = found.setdefault(receiver, {"pending": 0, "dead": 0, "oldest_ns": 0})
        entry[state] = count
        if state == "pending":
            entry["oldest_ns"] = oldest
    return found


def receivers(session: Session) -> list[ReceiverRow]:
    """Every receiver that was ever written to: when it last answered, and what it said."""
    return list(session.scalars(select(ReceiverRow).order_by(ReceiverRow.receiver)))
