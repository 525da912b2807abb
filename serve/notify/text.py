"""The words of every message, for every receiver: one place.

The first line alone tells job, machine, what, since when and how sure. Then the evidence in
words, what to do, commands to copy, links. Plain text; receivers escape it themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from replay.view.words import (
    alert_headline,
    clock_time,
    evidence_sentence,
    fault_title,
    rate_sentence,
)
from serve.actions import ActionSettings, Command, propose
from serve.notify.note import Note

MAX_EVIDENCE = 6
_LATE_NS = 120_000_000_000

_URL = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")

_TAGS = {
    "corrected": "CORRECTED",
    "acknowledged": "ACKNOWLEDGED",
    "reopened": "BACK AGAIN",
    "storm": "STORM",
    "breaker_open": "PAGING HELD",
    "breaker_closed": "PAGING RESUMED",
    "test": "TEST",
}
_TICKET_TAGS = {"page": "PAGE", "ticket": "TICKET", "info": "INFO"}


@dataclass(frozen=True, slots=True)
class Message:
    """A message in parts; `plain` joins them.

    ``title`` is the first line. ``notes`` are whole sentences, ``evidence`` the strongest
    first, ``links`` pairs of label and URL with the alert's page first.
    """

    title: str
    notes: tuple[str, ...]
    evidence: tuple[str, ...]
    action: str
    commands: tuple[Command, ...]
    links: tuple[tuple[str, str], ...]

    @property
    def plain(self) -> str:
        """All of it as plain text."""
        blocks = [self.title, "\n".join(self.notes)]
        if self.evidence:
            blocks.append("Evidence:\n" + "\n".join(f"  {line}" for line in self.evidence))
        if self.action:
            blocks.append(f"Proposed: {self.action}")
        if self.commands:
            lines = [f"  # {c.purpose}\n  {c.text}" for c in self.commands]
            blocks.append("Commands (nothing has been run):\n" + "\n".join(lines))
        if self.links:
            blocks.append("\n".join(f"{label}: {url}" for label, url in self.links))
        return "\n\n".join(block for block in blocks if block)


def message(note: Note, now_ns: int, actions: ActionSettings | None = None) -> Message:
    """The words for a note that is told at ``now_ns``."""
    over = note.resolves
    alert = note.alert
    proposal = None
    if alert is not None and not over and not _speaks_for_many(note):
        proposal = propose(alert, actions or ActionSettings())
    return Message(
        title=one_line(title(note)),
        notes=tuple(one_line(line) for line in _notes(note, now_ns) if line),
        evidence=() if alert is None or over else _evidence(note, alert),
        action=one_line(proposal.text) if proposal else "",
        commands=proposal.commands if proposal else (),
        links=_links(note),
    )


def title(note: Note) -> str:
    """The first line."""
    tag = _tag(note)
    alert = note.alert
    if alert is None or _speaks_for_many(note):
        return f"[{tag}] {note.title}"
    what = f"{note.job}: {_accused(alert)} since {_moment(alert['onset'], note.at)} UTC"
    if note.resolves:
        return f"[{tag}] {what}, over at {clock_time(note.at)} UTC"
    return f"[{tag}] {what} ({confidence(alert)})"


def confidence(alert: dict[str, Any]) -> str:
    """How rarely a healthy job looks like this: ``0.02 false alarms per job-week``."""
    rate = alert.get("false_alarms_per_job_week")
    if rate is None:
        return "confidence unknown"
    if rate < 1e-4:
        return "under 0.0001 false alarms per job-week"
    return f"{float(f'{rate:.2g}'):g} false alarms per job-week"


def one_line(text: str) -> str:
    """Text without line breaks or control characters, whatever a machine is called."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _tag(note: Note) -> str:
    if note.kind == "test":
        return _TAGS["test"]
    if note.resolves and note.alert is not None:
        return "RESOLVED"
    return _TAGS.get(note.kind) or _TICKET_TAGS[note.severity]


def _accused(alert: dict[str, Any]) -> str:
    line = alert_headline(alert)
    names = alert.get("machines") or []
    if alert["verdict"] == "group" and names:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        return f"{line} [{shown}]"
    return line


def _moment(stamp: str, today: str) -> str:
    return clock_time(stamp) if stamp[:10] == today[:10] else f"{stamp[:10]} {clock_time(stamp)}"


def _notes(note: Note, now_ns: int) -> list[str]:
    alert = note.alert
    lines: list[str] = []
    if note.kind == "test":
        lines.append("This is a test. Nothing is wrong, and nobody has to do anything.")
    if _speaks_for_many(note):
        lines += note.text.splitlines()
    else:
        assert alert is not None
        if note.kind == "corrected":
            lines.append("An earlier message about this incident named something else.")
        if not note.resolves:
            rarity = rate_sentence(alert.get("false_alarms_per_job_week"))
            lines.append(f"Confidence: {rarity}." if rarity else "")
            lines.append(_likely(alert))
        lines += _extra(note, alert)
    if now_ns - note.at_ns > _LATE_NS:
        lines.append(f"This message was decided at {note.at} and is late.")
    return lines


def _likely(alert: dict[str, Any]) -> str:
    """The fault types that detection holds for possible, the likeliest first."""
    types = sorted(alert.get("fault_types") or [], key=lambda item: -item["probability"])
    words = [f"{fault_title(t['type'])} ({t['probability']:.0%})" for t in types[:3]]
    return f"Likely fault: {', '.join(words)}." if words else ""


def _speaks_for_many(note: Note) -> bool:
    return note.alert is None or note.kind == "storm"


def _extra(note: Note, alert: dict[str, Any]) -> list[str]:
    """What the life cycle adds (who acknowledged, earlier incidents) and the message lacks."""
    said = {evidence_sentence(item) for item in alert["evidence"]} | {alert["recommended_action"]}
    return [line for line in note.text.splitlines() if line not in said]


def _evidence(note: Note, alert: dict[str, Any]) -> tuple[str, ...]:
    of = f"{alert['machine'] or alert['verdict']}: " if note.kind == "storm" else ""
    lines = (of + evidence_sentence(item) for item in alert["evidence"][:MAX_EVIDENCE])
    return tuple(one_line(line) for line in lines)


def _links(note: Note) -> tuple[tuple[str, str], ...]:
    links = {**((note.alert or {}).get("links") or {}), **note.links}
    # What is no URL by RFC 3986 would make some receivers refuse the whole message.
    usable = {k: v for k, v in links.items() if _URL.fullmatch(v)}
    order = ("page", "alert", "job", "picture")
    names = sorted(usable, key=lambda k: (order.index(k) if k in order else len(order), k))
    return tuple((name, usable[name]) for name in names)
