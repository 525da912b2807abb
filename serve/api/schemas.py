"""The shapes of answers and bodies, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from serve.api.shared import Instant, Name, Text

Number = float | None


class Evidence(BaseModel):
    """One metric that speaks against the named machine."""

    metric: str
    unit: str
    value: Number
    peer_median: Number
    peer_low: Number
    peer_high: Number
    direction: Literal["high", "low", "missing"]
    since: Instant
    share: Number
    gpu: int | None


class FaultType(BaseModel):
    """A fault type and how probable it is."""

    type: str
    probability: Number


class CommandLine(BaseModel):
    """A command to copy; the service never runs it."""

    purpose: str
    text: str


class AlertView(BaseModel):
    """An alert and where its life stands."""

    id: str
    status: Literal["open", "acknowledged", "resolved"]
    verdict: Literal["machine", "group", "job", "undetermined"]
    job: str
    machine: str | None
    machines: list[str]
    gpu: int | None
    manifestation: Literal["fail_stop", "fail_slow", "fail_hang", "silent", "unknown"]
    onset: Instant
    detected_at: Instant
    score: Number
    false_alarms_per_job_week: Number
    evidence: list[Evidence]
    fault_types: list[FaultType]
    recommended_action: str
    model: str
    links: dict[str, str]
    pages: bool
    shared: str | None
    note: str
    version: int
    episode: int
    page_reason: str
    paged_at: Instant | None
    acknowledged_at: Instant | None
    acknowledged_by: str | None
    resolved_at: Instant | None
    resolved_by: str | None
    storm: str | None
    changed_at: Instant


class AlertDetail(AlertView):
    """An alert with what helps to act on it."""

    commands: list[CommandLine]
    earlier_incidents: dict[str, int]
    feedback: list[FeedbackView]


class AlertPage(BaseModel):
    """Newest first; ``next_cursor`` is null on the last page."""

    items: list[AlertView]
    next_cursor: str | None


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AcknowledgeBody(_Body):
    """Who is on it."""

    by: Annotated[Text, StringConstraints(max_length=100)] = ""


class ResolveBody(AcknowledgeBody):
    """Who says that it is over, and why."""

    note: Annotated[Text, StringConstraints(max_length=2000)] = ""


class FeedbackBody(_Body):
    """Whether the verdict was right; the machine that it was, if another."""

    verdict: Literal["right", "wrong"]
    machine: Name | None = None
    note: Annotated[Text, StringConstraints(max_length=2000)] = ""
    author: Annotated[Text, StringConstraints(max_length=100)] = ""


class FeedbackView(BaseModel):
    """Feedback as kept for training."""

    verdict: Literal["right", "wrong"]
    machine: str | None
    note: str
    author: str
    at: Instant


class SilenceBody(_Body):
    """Whom not to page for, until when. Patterns: ``*`` any text, ``?`` one character."""

    kind: Literal["silence", "maintenance"] = "silence"
    job: Name = "*"
    machine: Name = "*"
    starts_at: Instant | None = None
    ends_at: Instant
    comment: Annotated[Text, StringConstraints(max_length=500)] = ""
    created_by: Annotated[Text, StringConstraints(max_length=100)] = ""


class SilenceView(BaseModel):
    """A silence or maintenance window."""

    id: str
    kind: Literal["silence", "maintenance"]
    job: str
    machine: str
    starts_at: Instant
    ends_at: Instant
    comment: str
    created_by: str
    created_at: Instant


class SilencePage(BaseModel):
    """In the order of their end."""

    items: list[SilenceView]
    next_cursor: str | None


class JobView(BaseModel):
    """A job as its worker last saw it. ``lag_seconds``: wall clock minus watermark."""

    job: str
    state: Literal["waiting", "running", "ended", "unattended"]
    phase: str
    machines: list[str]
    run: int
    tick_seconds: float | None
    watermark: Instant | None
    lag_seconds: float | None
    worker: str
    updated_at: Instant
    rejected: dict[str, int]
    links: dict[str, str]


class JobSummary(BaseModel):
    """A job in the list: ``machines`` is their number."""

    job: str
    state: Literal["waiting", "running", "ended", "unattended"]
    phase: str
    machines: int
    watermark: Instant | None
    lag_seconds: float | None
    worker: str
    updated_at: Instant
    links: dict[str, str]


class JobDetail(JobView):
    """A job with what history there is."""

    metrics: list[str]
    history_start: Instant | None
    history_end: Instant | None


class JobPage(BaseModel):
    """By name."""

    items: list[JobSummary]
    next_cursor: str | None


class ScoresView(BaseModel):
    """``scores[machine][column]`` in parts of the alarm threshold (1 = alarm), null = no data.

    Column *k* starts at ``start`` + *k* · ``step_seconds``.
    """

    job: str
    start: Instant
    step_seconds: float
    machines: list[str]
    phases: list[PhaseView]
    scores: list[list[Number]]


class PhaseView(BaseModel):
    """A phase of the job and when it began."""

    start: Instant
    phase: str


class Series(BaseModel):
    """One machine's metric and its peers' band; all arrays have one length."""

    metric: str
    unit: str
    times_ms: list[int]
    value: list[Number]
    low: list[Number]
    median: list[Number]
    high: list[Number]
    peers: list[int]


class SeriesView(BaseModel):
    """Metrics of one machine against its peers (10th and 90th percentile)."""

    job: str
    machine: str
    series: list[Series]


class RejectedView(BaseModel):
    """Something that could not be used."""

    reason: str
    origin: str
    detail: str


class Taken(BaseModel):
    """What became of a push, counted in rows. ``examples`` holds the first few ``rejected``;
    ``lost_values`` counts single values, by reason, that the rows taken have lost.
    """

    rows: int
    rejected: int
    lost_values: dict[str, int]
    examples: list[RejectedView]


class Health(BaseModel):
    """Whether it works, check by check (empty = well)."""

    status: Literal["ok", "failing"]
    checks: dict[str, str] = Field(default_factory=dict)


AlertDetail.model_rebuild()
ScoresView.model_rebuild()
