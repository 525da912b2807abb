"""A notice as it stands in the outbox: what a receiver renders."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from detect.alert import rfc3339
from serve.notice import Notice, NoticeKind

Severity = Literal["page", "ticket", "info"]
ToldStatus = Literal["", "open", "acknowledged", "resolved"]
"""What a receiver was last told about an incident; empty: nothing yet."""


@dataclass(frozen=True, slots=True)
class Note:
    """One stored notice for one receiver; plain data that survives JSON unchanged.

    ``alert`` is the public JSON of the alert (None for the circuit breaker). The other
    fields are those of `serve.notice.Notice`; ``severity`` is what routing derived.
    """

    key: str
    sequence: int
    kind: NoticeKind
    severity: Severity
    alert: dict[str, Any] | None
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
        """Stable over attempts and restarts; the same for every receiver."""
        return f"{self.key}:{self.sequence}"

    @property
    def status(self) -> Literal["open", "acknowledged", "resolved"]:
        """Where the incident stands once the receiver has been told."""
        if self.resolves:
            return "resolved"
        seen = self.kind != "storm" and (self.alert or {}).get("status") == "acknowledged"
        return "acknowledged" if seen or self.kind == "acknowledged" else "open"

    @property
    def at(self) -> str:
        """When it was decided, RFC 3339."""
        return rfc3339(self.at_ns)

    @property
    def names(self) -> tuple[str, ...]:
        """The machines concerned, the accused one first."""
        if self.alert is None:
            return self.machines
        first = [self.alert["machine"]] if self.alert.get("machine") else []
        return tuple(dict.fromkeys([*first, *self.machines, *self.alert.get("machines", [])]))

    def to_json(self) -> dict[str, Any]:
        """As JSON for the database."""
        return {**asdict(self), "machines": list(self.machines)}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Note:
        """The inverse of `to_json`; unknown keys of a newer version are left out."""
        known = {f.name: body[f.name] for f in fields(cls) if f.name in body}
        return cls(**{**known, "machines": tuple(body.get("machines", ()))})


@dataclass(frozen=True, slots=True)
class Told:
    """What a receiver already knows of an incident.

    ``labels`` is whatever the receiver's own `Receiver.labels` returned for the last note
    that was delivered (Alertmanager's label set; empty elsewhere).
    """

    status: ToldStatus = ""
    sequence: int = 0
    at_ns: int = 0
    labels: dict[str, str] = field(default_factory=dict)


def note_of(notice: Notice, severity: Severity) -> Note:
    """The stored form of a notice."""
    return Note(
        key=notice.key,
        sequence=notice.sequence,
        kind=notice.kind,
        severity=severity,
        alert=None if notice.alert is None else notice.alert.to_json(notice.links),
        title=notice.title,
        text=notice.text,
        job=notice.job,
        at_ns=notice.at_ns,
        machines=notice.machines,
        count=notice.count,
        resolves=notice.resolves,
        links=dict(notice.links),
    )
