"""Publishes what the event log holds of alerts, in order, from wherever it stopped last."""

from __future__ import annotations

import orjson
from sqlalchemy import text
from sqlalchemy.orm import Session

from serve.seams import Publisher
from serve.store.base import Database
from serve.store.events import ALERT_EVENTS, events_after
from serve.store.tables import ServiceStateRow

_KEY = "published"
_LOCK_KEY = 0x77657075  # "wepu"


class EventPump:
    """Moves alert events from the log to a `Publisher`.

    The position is stored after the publisher has accepted, so a crash in between sends some
    messages twice (each carries its alert's ``version``) and never loses one. Of several
    processes on one database, one publishes at a time.
    """

    def __init__(self, database: Database, publisher: Publisher):
        self.database = database
        self.publisher = publisher

    def run(self, limit: int = 500) -> int:
        """Publish up to ``limit`` events; returns how many. Raises what the publisher does."""
        if self.database.is_sqlite:
            return self._run_alone(limit)
        with self.database.write() as session:
            free = session.scalar(text("SELECT pg_try_advisory_xact_lock(:k)"), {"k": _LOCK_KEY})
            if not free:
                return 0
            messages, position = _pending(session, limit)
            if messages:
                self.publisher.publish(messages)
                _store(session, position, self.database.clock())
            return len(messages)

    def _run_alone(self, limit: int) -> int:
        # SQLite has one writer at a time: never hold it while talking to the network.
        with self.database.read() as session:
            messages, position = _pending(session, limit)
        if messages:
            self.publisher.publish(messages)
            with self.database.write() as session:
                _store(session, position, self.database.clock())
        return len(messages)


def _pending(session: Session, limit: int) -> tuple[list[tuple[str, bytes]], int]:
    row = session.get(ServiceStateRow, _KEY)
    position = int(row.value["event_id"]) if row else 0
    events = events_after(session, position, limit=limit, kinds=ALERT_EVENTS)
    messages = [(e.alert_id or "", orjson.dumps(e.body)) for e in events]
    return messages, events[-1].id if events else position


def _store(session: Session, position: int, now_ns: int) -> None:
    session.merge(ServiceStateRow(key=_KEY, value={"event_id": position}, at_ns=now_ns))
