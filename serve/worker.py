"""The worker: source → detection → store → publish → commit, for ever, in one thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from sqlalchemy.orm import Session

from detect.pipeline import Pipeline, PipelineOutput
from ingest.samples import Rejected
from serve.notice import Notice
from serve.source import Polled, Source
from serve.store.base import Database


class Outbox(Protocol):
    """Stores notices for delivery, in the caller's transaction; delivers elsewhere, later."""

    def enqueue(self, session: Session, notices: Sequence[Notice]) -> None:
        """Route and store; must not talk to the network."""
        ...


class Publisher(Protocol):
    """Tells the world of every change of an alert (the topic ``weaklink.alerts``).

    Called after the transaction, with what the event log holds and has not been published
    yet; an exception means "again later", so a message may come twice, never not at all.
    """

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Send (alert id, alert JSON) in order; return when all are safely there."""
        ...


class RejectSink(Protocol):
    """Keeps what could not be used (a file, or the topic ``telemetry.dead-letter``)."""

    def write(self, rejected: Sequence[Rejected]) -> None:
        """Store; called before the source's commit."""
        ...


class Worker:
    """Runs one source through one pipeline. Skeleton; the stages stand in `step`."""

    def __init__(self, *, source: Source, pipeline: Pipeline, database: Database, outbox: Outbox):
        self.source = source
        self.pipeline = pipeline
        self.database = database
        self.outbox = outbox
        self.lock = threading.RLock()

    def step(self, timeout_seconds: float = 1.0) -> None:
        """One turn of the loop."""
        polled: Polled = self.source.poll(timeout_seconds)
        with self.lock:
            self.source.prepare(self.pipeline, polled)
            output: PipelineOutput = self.pipeline.feed(polled.decoded.samples)
        with self.database.write() as session:
            # life cycle: apply(output.changes) -> notices
            self.outbox.enqueue(session, [])
            self.source.save(session, self.pipeline, polled)
        self.source.commit(polled.position)
        del output
