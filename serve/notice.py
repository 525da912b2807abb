"""What the life cycle hands to the outbox: one thing that people should hear of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from detect.alert import Alert

NoticeKind = Literal[
    "opened",
    "corrected",
    "acknowledged",
    "resolved",
    "reopened",
    "storm",
    "breaker_open",
    "breaker_closed",
    "test",
]
"""``storm``: many alerts of one job as one message, sent again as it grows.
``breaker_*``: the service has stopped (or goes on) paging machine after machine."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One message to route and deliver; written to the outbox in the alert's transaction.

    Attributes
    ----------
    key
        The incident: an alert's id and episode, a storm's id, or ``breaker``. Receivers
        open, update and close one entry per key (PagerDuty's ``dedup_key``).
    sequence
        Counts up per key from 1. Deliver in this order; ``f"{key}:{sequence}"`` is the
        idempotency key of the message, the same after any crash.
    kind
        What happened.
    alert
        The alert as stored with this change. For a storm the worst of its alerts; None
        only for the breaker.
    title, text
        One line, and a few plain lines, ready to be shown.
    machines
        Every machine concerned (all of a storm's).
    count
        Alerts that this notice stands for (1, or a storm's or the breaker's number).
    at_ns
        Wall clock at which it was decided.
    resolves
        Whether the incident of this key ends with this notice.
    """

    key: str
    sequence: int
    kind: NoticeKind
    alert: Alert | None
    title: str
    text: str
    job: str
    at_ns: int
    machines: tuple[str, ...] = ()
    count: int = 1
    resolves: bool = False
    links: dict[str, str] = field(default_factory=dict)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt to deliver this notice, to whichever receiver."""
        return f"{self.key}:{self.sequence}"
