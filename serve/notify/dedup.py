"""Whether a note tells a receiver anything: a pure function that returns its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from serve.notify.note import Note, Told
from serve.notify.receiver import Traits

Reason = Literal[
    "first",
    "changed",
    "repeat",
    "over",
    "known",
    "never_told",
    "already_over",
    "over_not_wanted",
]

REASONS: dict[Reason, str] = {
    "first": "the receiver has not heard of the incident",
    "changed": "the receiver was told something else before",
    "repeat": "the receiver wants to hear of an open incident again and again",
    "over": "the receiver believes that the incident goes on",
    "known": "the receiver has been told this, or something newer",
    "never_told": "the incident is over and the receiver never heard that it began",
    "already_over": "the receiver knows that the incident is over",
    "over_not_wanted": "the receiver is not told of ends (send_resolved is off)",
}
"""Every reason and what it means to a person; the label of the counters."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to send, and why (not)."""

    send: bool
    reason: Reason


def decide(
    note: Note, told: Told, traits: Traits, *, send_resolved: bool, repeat: bool = False
) -> Decision:
    """Whether the receiver is to be told the note, given what it knows.

    ``repeat`` marks a note that was delivered and is sent again by intention.
    """
    if repeat:
        return Decision(True, "repeat")
    if traits.pending == "latest" and note.sequence <= told.sequence:
        return Decision(False, "known")
    if note.resolves:
        if not send_resolved:
            return Decision(False, "over_not_wanted")
        if not told.status and not traits.past:
            return Decision(False, "never_told")
        if told.status == "resolved" and traits.pending == "latest":
            return Decision(False, "already_over")
        return Decision(True, "over")
    return Decision(True, "changed" if told.status else "first")
