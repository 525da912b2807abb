"""Empties the outbox: one thread a receiver, so that a receiver that hangs delays no other."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from serve.notify.dedup import decide
from serve.notify.events import NotifyEvents
from serve.notify.lanes import (
    Outcome,
    Work,
    claim,
    drop,
    over_rate,
    postpone,
    record,
    something_due,
)
from serve.notify.note import Note
from serve.notify.outbox import give_up_unknown
from serve.notify.pace import SECOND_NS, Backoff
from serve.notify.receiver import Context, Receiver
from serve.notify.result import Delivered, GaveUp, Result
from serve.silences import active_silences, covers
from serve.store.base import Database

SILENCE_RECHECK_SECONDS = 30.0
_UNKNOWN_RECEIVER_SECONDS = 86_400.0


def attempt(receiver: Receiver, note: Note, context: Context) -> Result:
    """One attempt to deliver; the only call of `Receiver.send`, for real alerts and tests.

    A note that a receiver cannot render must not stop the others: it is given up, visibly.
    """
    try:
        return receiver.send(note, context)
    except Exception as error:  # noqa: BLE001
        return GaveUp(f"cannot be rendered: {type(error).__name__}: {error}")


def silenced(session: Session, note: Note, now_ns: int) -> bool:
    """Whether a silence that began after the notice was written covers it."""
    machines = tuple(note.names)
    return any(
        covers(s.job, s.machine, note.job, machines) for s in active_silences(session, now_ns)
    )


@dataclass(slots=True)
class Dispatcher:
    """Delivers what stands in the outbox of ``database``, whose clock it follows.

    Several dispatchers, in threads or processes, may share one database. ``stopwatch``
    measures attempts (seconds, monotonic); ``lease_margin_seconds`` is added to the longest
    time that an attempt can take; `stop` waits up to ``stop_seconds`` for each thread.
    """

    database: Database
    receivers: Mapping[str, Receiver]
    events: NotifyEvents
    poll_seconds: float = 1.0
    lease_margin_seconds: float = 20.0
    stop_seconds: float = 5.0
    backoff: Backoff = field(default_factory=Backoff)
    stopwatch: Callable[[], float] = time.monotonic
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _wake: dict[str, threading.Event] = field(default_factory=dict, init=False)
    _threads: dict[str, threading.Thread] = field(default_factory=dict, init=False)

    def step(self, name: str) -> Outcome | None:
        """Tell one note to one receiver; None if nothing is due.

        The stages in order: what is due (a newer state has replaced the older ones) → silence
        → dedup → rate limit → send → record. Storms are grouped before, by the life cycle.
        A note counts as sent only when the last line has been committed.
        """
        receiver, now_ns = self.receivers[name], self.database.clock()
        with self.database.read() as session:
            if not something_due(session, name, now_ns):
                return None
        with self.database.write() as session:
            work = claim(session, receiver, self.owner, now_ns, self._lease_ns(receiver))
            if work is None:
                return None
            stopped = (
                self._silence(session, work, receiver, now_ns)
                or self._dedup(session, work, receiver, now_ns)
                or self._rate(session, work, receiver, now_ns)
            )
        if stopped:
            self.events.step(work, *stopped)
            return stopped[0]
        started = self.stopwatch()
        result = attempt(receiver, work.note, Context(self.database.clock(), work.told))
        seconds = self.stopwatch() - started
        with self.database.write() as session:
            now_ns = self.database.clock()
            outcome = record(session, work, receiver, result, now_ns, self.backoff)
        reason = result.detail if isinstance(result, Delivered) else result.reason
        self.events.step(work, outcome, reason, seconds)
        return outcome

    def _silence(
        self, session: Session, work: Work, receiver: Receiver, now_ns: int
    ) -> tuple[Outcome, str] | None:
        """Only news is held back: an incident that the receiver knows of is told to its end."""
        if work.told.status or not silenced(session, work.note, now_ns):
            return None
        if work.note.resolves:
            drop(session, work, receiver, "silenced", now_ns)
            return "dropped", "silenced"
        until_ns = now_ns + round(SILENCE_RECHECK_SECONDS * SECOND_NS)
        postpone(session, work, until_ns, "silenced")
        return "held", "silenced"

    def _dedup(
        self, session: Session, work: Work, receiver: Receiver, now_ns: int
    ) -> tuple[Outcome, str] | None:
        decision = decide(
            work.note,
            work.told,
            receiver.traits,
            send_resolved=receiver.settings.send_resolved,
            repeat=work.repeat,
        )
        if decision.send:
            return None
        drop(session, work, receiver, decision.reason, now_ns)
        return "dropped", decision.reason

    def _rate(
        self, session: Session, work: Work, receiver: Receiver, now_ns: int
    ) -> tuple[Outcome, str] | None:
        limited = over_rate(session, work, receiver, now_ns)
        return ("rate_limited", "rate limit") if limited else None

    def _lease_ns(self, receiver: Receiver) -> int:
        longest = receiver.settings.longest_seconds
        return round((longest + self.lease_margin_seconds) * SECOND_NS)

    def drain(self, most: int = 100_000) -> list[Outcome]:
        """Every step that is due now, receiver by receiver, in this thread."""
        outcomes: list[Outcome] = []
        for name in self.receivers:
            while len(outcomes) < most and (outcome := self.step(name)) is not None:
                outcomes.append(outcome)
        return outcomes

    def start(self) -> None:
        """Start the threads; also declares dead what waits for receivers that are gone.

        The latter waits for the next start if the database does not answer: nobody would be
        told of anything any more if deliveries did not begin.
        """
        self.events.expect(self.receivers)
        stop = self._stop = threading.Event()
        for name in self.receivers:
            wake = self._wake[name] = threading.Event()
            thread = threading.Thread(
                target=self._run, args=(name, stop, wake), name=f"notify-{name}", daemon=True
            )
            thread.start()
            self._threads[name] = thread
        try:
            with self.database.write() as session:
                now_ns = self.database.clock()
                before_ns = now_ns - round(_UNKNOWN_RECEIVER_SECONDS * SECOND_NS)
                give_up_unknown(session, set(self.receivers), before_ns, now_ns)
        except Exception as error:  # noqa: BLE001 - see above
            self.events.broken("", error)

    @property
    def ended(self) -> list[str]:
        """Receivers whose thread has ended although nobody stopped it."""
        if self._stop.is_set():
            return []
        return [name for name, thread in list(self._threads.items()) if not thread.is_alive()]

    def wake(self) -> None:
        """Something new stands in the outbox: look now instead of at the next poll."""
        for event in list(self._wake.values()):
            event.set()

    def stop(self) -> None:
        """Stop after the attempts under way; what is unfinished stays in the outbox."""
        self._stop.set()
        self.wake()
        for thread in self._threads.values():
            thread.join(self.stop_seconds)
        self._threads.clear()
        self._wake.clear()

    def reconfigure(self, receivers: Mapping[str, Receiver]) -> None:
        """Go on with other receivers (hot reload); nothing in the outbox is lost."""
        running = bool(self._threads)
        self.stop()
        self.receivers = receivers
        if running:
            self.start()

    def _run(self, name: str, stop: threading.Event, wake: threading.Event) -> None:
        while not stop.is_set():
            try:
                busy = self.step(name) is not None
            except Exception as error:  # noqa: BLE001 - a dead thread would be a silent receiver
                if not stop.is_set():
                    self.events.broken(name, error)
                busy = False
            if not busy:
                wake.wait(self.poll_seconds)
                wake.clear()
