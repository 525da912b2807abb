"""The alert: one object from the detector to the page, the topic and the webhook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Status = Literal["open", "acknowledged", "resolved"]
VerdictKind = Literal["machine", "group", "job", "undetermined"]
Manifestation = Literal["fail_stop", "fail_slow", "fail_hang", "silent", "unknown"]
Direction = Literal["high", "low", "missing"]


def rfc3339(ns: int) -> str:
    """Nanoseconds since the epoch as RFC 3339 UTC with milliseconds."""
    seconds, rest = divmod(ns, 1_000_000_000)
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{stamp}.{rest // 1_000_000:03d}Z"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One metric that speaks against the named machine.

    ``value`` and the peers' ``peer_median``, ``peer_low`` (10th percentile) and ``peer_high``
    (90th) are in the metric's ``unit`` at detection; ``share`` is this metric's part of the
    score (the shares of an alert sum to at most 1); ``since_ns`` is event time.
    """

    metric: str
    unit: str
    value: float | None
    peer_median: float | None
    peer_low: float | None
    peer_high: float | None
    direction: Direction
    since_ns: int
    share: float
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """A verdict with its evidence. Times are event time in nanoseconds since the epoch.

    ``score`` is higher for worse and means the same for every job: it is
    ``-log10(expected false alarms per job-week at this evidence)``, so 0 is one false alarm
    a week. ``pages`` tells whether on-call should be woken; what does not page is only shown.
    """

    id: str
    status: Status
    verdict: VerdictKind
    job: str
    machine: str | None
    machines: tuple[str, ...]
    gpu: int | None
    manifestation: Manifestation
    onset_ns: int
    detected_at_ns: int
    score: float
    false_alarms_per_job_week: float
    evidence: tuple[Evidence, ...]
    fault_types: tuple[tuple[str, float], ...]
    recommended_action: str
    model: str
    pages: bool = True
    shared: str | None = None
    note: str = ""

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Alert:
        """From `dataclasses.asdict`, whose tuples may have become lists."""
        fields = dict(tree)
        fields["machines"] = tuple(fields["machines"])
        fields["evidence"] = tuple(Evidence(**row) for row in fields["evidence"])
        fields["fault_types"] = tuple((str(t), float(p)) for t, p in fields["fault_types"])
        return cls(**fields)

    def to_json(self, links: dict[str, str] | None = None) -> dict[str, Any]:
        """The public JSON form (times RFC 3339, strongest evidence first)."""
        evidence = []
        for item in self.evidence:
            row = asdict(item)
            row["since"] = rfc3339(row.pop("since_ns"))
            evidence.append(row)
        return {
            "id": self.id,
            "status": self.status,
            "verdict": self.verdict,
            "job": self.job,
            "machine": self.machine,
            "machines": list(self.machines),
            "gpu": self.gpu,
            "manifestation": self.manifestation,
            "onset": rfc3339(self.onset_ns),
            "detected_at": rfc3339(self.detected_at_ns),
            "score": self.score,
            "false_alarms_per_job_week": self.false_alarms_per_job_week,
            "evidence": evidence,
            "fault_types": [{"type": t, "probability": p} for t, p in self.fault_types],
            "recommended_action": self.recommended_action,
            "model": self.model,
            "pages": self.pages,
            "shared": self.shared,
            "note": self.note,
            "links": links or {},
        }


@dataclass(frozen=True, slots=True)
class AlertChange:
    """One step in an alert's life as detection sees it, in event-time order.

    ``opened`` (first time), ``updated`` (same alert, more or corrected evidence: the verdict
    or machine may change, the id does not), ``resolved`` (the evidence is gone, the machine
    left, or the job ended; ``alert.note`` says which). ``at_ns`` is event time.
    """

    kind: Literal["opened", "updated", "resolved"]
    alert: Alert
    at_ns: int
