"""Whether people are told of an alert: a pure function that returns its reason.

The reason is stored with the alert, shown on the page, and the label of
``weaklink_page_decisions_total``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reason = Literal[
    "page",
    "corrected",
    "settling",
    "known",
    "replayed",
    "resolved",
    "not_paging",
    "acknowledged",
    "shadow",
    "maintenance",
    "silence",
    "stale",
    "storm",
    "breaker",
]

REASONS: dict[Reason, str] = {
    "page": "people are told",
    "corrected": "people had been told something else of this incident; they are told again",
    "settling": "a correction waits a moment, for the verdict may change again",
    "known": "people have been told of this incident already",
    "replayed": "this change is stored already (seen again after a restart)",
    "resolved": "it is over",
    "not_paging": "detection wants it shown, not paged",
    "acknowledged": "somebody has seen it before it was sent",
    "shadow": "the job is in shadow mode: recorded, not sent",
    "maintenance": "a maintenance window covers it",
    "silence": "a silence covers it",
    "stale": "what it says is older than the age limit (catching up after downtime)",
    "storm": "the job raises many alerts at once; one message speaks for all",
    "breaker": "too many pages in a short time; paging is held and one message said so",
}
"""Every reason and what it means to a person."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that the decision depends on.

    ``told`` are the machines that people were told of in a message about this alert (None:
    in none yet), ``told_ago_ns`` how long ago; ``paged`` also counts a storm's or the
    breaker's message. ``age_ns`` is how far the job's evidence is behind the wall clock;
    ``covered`` is the kind of silence in force.
    """

    pages: bool
    over: bool
    acknowledged: bool
    machines: tuple[str, ...]
    told: tuple[str, ...] | None
    told_ago_ns: int
    settle_ns: int
    paged: bool
    shadow: bool
    covered: Literal["silence", "maintenance"] | None
    age_ns: int
    age_limit_ns: int
    storm: bool
    breaker: bool


def decide(now: Situation) -> Reason:
    """Whether to tell people, and why (not). ``page`` and ``corrected`` send; others do not."""
    if now.over:
        return "resolved"
    if now.told is not None and now.told != now.machines:
        # A page that named the wrong machine is worse than one page too many: a correction
        # passes silences, storms and the breaker.
        return "corrected" if now.told_ago_ns >= now.settle_ns else "settling"
    if now.paged:
        return "known"
    if not now.pages:
        return "not_paging"
    if now.acknowledged:
        return "acknowledged"
    if now.shadow:
        return "shadow"
    if now.covered is not None:
        return now.covered
    if now.age_ns > now.age_limit_ns:
        return "stale"
    if now.breaker:
        return "breaker"
    if now.storm:
        return "storm"
    return "page"


TIMELY: frozenset[Reason] = frozenset(
    {"settling", "shadow", "maintenance", "silence", "stale", "breaker"}
)
"""Reasons that pass with time: such an alert is looked at again while it is open."""
