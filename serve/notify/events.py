"""What the dispatcher reports: one object that writes the log line and counts.

======================================== ============================== =====================
metric                                   labels                         counts
======================================== ============================== =====================
``weaklink_notifications_total``         ``receiver``, ``outcome``      ends of a delivery step
``weaklink_notification_dropped_total``  ``receiver``, ``reason``       notes not told, and why
``weaklink_notification_seconds``        ``receiver``                   time of one attempt
``weaklink_notifications_pending``       ``receiver``                   in the outbox now
``weaklink_notifications_dead``          ``receiver``                   given up, kept for replay
``weaklink_notification_oldest_seconds`` ``receiver``                   age of the oldest pending
======================================== ============================== =====================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import get_args

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from serve.notify.lanes import Outcome, Work

DROPPED = ("known", "never_told", "already_over", "over_not_wanted", "silenced")
"""Reasons of ``weaklink_notification_dropped_total``."""


class NotifyEvents:
    """Counts and logs. ``receivers`` exist at zero from the start."""

    def __init__(self, registry: CollectorRegistry, receivers: Iterable[str] = ()) -> None:
        self._log = structlog.get_logger("weaklink.notify")
        self._total = Counter(
            "weaklink_notifications",
            "Ends of a delivery step by outcome",
            ["receiver", "outcome"],
            registry=registry,
        )
        self._dropped = Counter(
            "weaklink_notification_dropped",
            "Notifications that were not sent, by reason",
            ["receiver", "reason"],
            registry=registry,
        )
        self._seconds = Histogram(
            "weaklink_notification_seconds",
            "Duration of one attempt to deliver",
            ["receiver"],
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=registry,
        )
        self._pending, self._dead, self._oldest = (
            Gauge(f"weaklink_{name}", text, ["receiver"], registry=registry)
            for name, text in (
                ("notifications_pending", "Notifications that wait in the outbox"),
                ("notifications_dead", "Notifications that were given up"),
                ("notification_oldest_seconds", "Age of the oldest pending notification"),
            )
        )
        self._receivers: set[str] = set()
        self.expect(receivers)

    def expect(self, receivers: Iterable[str]) -> None:
        """Make every series of these receivers exist."""
        for receiver in receivers:
            for outcome in get_args(Outcome):
                self._total.labels(receiver, outcome)
            for reason in DROPPED:
                self._dropped.labels(receiver, reason)
            self._seconds.labels(receiver)
            for gauge in (self._pending, self._dead, self._oldest):
                gauge.labels(receiver)
            self._receivers.add(receiver)

    def backlog(self, counts: Mapping[str, Mapping[str, int]], now_ns: int) -> None:
        """Show what `serve.notify.outbox.backlog` found."""
        self._receivers |= set(counts)
        for receiver in self._receivers:
            found = counts.get(receiver, {})
            oldest_ns = found.get("oldest_ns", 0)
            self._pending.labels(receiver).set(found.get("pending", 0))
            self._dead.labels(receiver).set(found.get("dead", 0))
            self._oldest.labels(receiver).set((now_ns - oldest_ns) / 1e9 if oldest_ns else 0)

    def step(self, work: Work, outcome: Outcome, reason: str, seconds: float | None = None) -> None:
        """One delivery step has ended."""
        self._total.labels(work.receiver, outcome).inc()
        if outcome == "dropped":
            self._dropped.labels(work.receiver, reason).inc()
        if seconds is not None:
            self._seconds.labels(work.receiver).observe(seconds)
        quiet = work.repeat or outcome in {"rate_limited", "held"}
        level = self._log.debug if quiet else self._log.info
        if outcome in {"retried", "dead", "lost"}:
            level = self._log.warning
        level(
            f"notification {outcome}",
            receiver=work.receiver,
            incident=work.key,
            sequence=work.note.sequence,
            kind=work.note.kind,
            reason=reason,
        )

    def broken(self, receiver: str, error: Exception) -> None:
        """A step could not be carried out (mostly: no database); the dispatcher tries again."""
        self._log.error(
            "outbox unusable", receiver=receiver, error=str(getattr(error, "orig", error))
        )
