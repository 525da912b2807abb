"""What the worker calls besides the source: small protocols, each with one caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlalchemy.orm import Session

from ingest.samples import Rejected
from serve.notice import Notice


class Outbox(Protocol):
    """Stores notices for delivery, in the caller's transaction; delivers elsewhere, later."""

    def enqueue(self, session: Session, notices: Sequence[Notice]) -> None:
        """Route and store; must not talk to the network."""
        ...


class Publisher(Protocol):
    """Tells the world of every change of an alert (the topic ``weaklink.alerts``).

    Called by `serve.pump.EventPump` after the transaction, with what the event log holds and
    has not been published yet; an exception means "again later", so a message may come
    twice (it carries the alert's ``version``), never not at all.
    """

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Send (alert id, alert JSON) in order; return when all are safely there."""
        ...


class RejectSink(Protocol):
    """Keeps what could not be used (a file, or the topic ``telemetry.dead-letter``)."""

    def write(self, rejected: Sequence[Rejected]) -> None:
        """Store; called before the source's commit, again after an exception."""
        ...


class Pump(Protocol):
    """`serve.pump.EventPump`."""

    def run(self) -> int:
        """Publish what waits; returns how many."""
        ...
