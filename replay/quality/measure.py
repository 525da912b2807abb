"""One incident through several detectors, and what is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from detect.alert import Alert
from detect.registry import make_detector
from ingest.catalogue import Catalogue
from replay.quality.sources import Opened
from replay.quality.workloads import Item
from replay.runner import IncidentResult
from replay.score import Outcome, Score
from replay.together import Maker, replay_together


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one detector on one incident; plain data, one line of the cache.

    ``named_group``: the deciding alert is a group and right. ``named_gpu``: it is right and
    names the GPU at fault; None where no GPU shows the fault by itself (with the processes of
    the whole machine gone, its GPUs look alike). ``hardware_verdicts`` are alerts of any kind
    that page or name a machine.
    """

    id: str
    workload: str
    detector: str
    fault_type: str | None
    faulty: bool
    machines: int
    seconds: float
    compute_seconds: float
    outcome: Outcome | None
    delay_seconds: float | None
    lead_seconds: float | None
    false_alarms: int
    healthy_seconds: float
    named_group: bool
    named_gpu: bool | None
    hardware_verdicts: int

    @property
    def score(self) -> Score:
        """As `replay.score` gave it."""
        return Score(
            self.outcome,
            self.delay_seconds,
            self.false_alarms,
            self.healthy_seconds,
            self.lead_seconds,
        )

    def to_json(self) -> dict[str, Any]:
        """One line of the cache."""
        return asdict(self)


def measure(item: Item, detectors: Sequence[str], data: Path) -> list[Row]:
    """Make and align an incident once, for all detectors.

    A detector is one of `detect.registry.DETECTORS`, or ``NAME@RATE`` with the accepted false
    alarms per job-week.
    """
    catalogue = Catalogue.default()
    opened = item.source.opened(item.id, catalogue, data)
    recording = opened.recording

    def maker(detector: str) -> Maker:
        name, rate = split_rate(detector)
        return partial(
            make_detector,
            name,
            catalogue=catalogue,
            topology=recording.topology,
            false_alarms_per_job_week=rate,
            alerts_only=True,
        )

    results = replay_together(recording, {d: maker(d) for d in detectors}, catalogue)
    return [row(item, detector, opened, results[detector]) for detector in detectors]


def split_rate(detector: str) -> tuple[str, float | None]:
    """``evidence@10`` as name and rate; ValueError if the rate is no positive number."""
    name, _, rate = detector.partition("@")
    if not rate:
        return name, None
    value = float(rate)
    if not value > 0:
        raise ValueError(f"the rate in {detector!r} must be positive")
    return name, value


def row(item: Item, detector: str, opened: Opened, result: IncidentResult) -> Row:
    """What is kept of a result."""
    label = result.label
    right = result.score.outcome == "right"
    first = deciding(result)
    gpu = None
    if opened.gpu is not None:
        gpu = right and first is not None and first.gpu == opened.gpu
    alerts = [c.alert for c in result.changes if c.kind == "opened"]
    return Row(
        id=item.id,
        workload=item.workload,
        detector=detector,
        fault_type=opened.fault_type,
        faulty=bool(label and label.faulty_machines),
        machines=result.machines,
        seconds=result.seconds,
        compute_seconds=round(result.compute_seconds, 3),
        outcome=result.score.outcome,
        delay_seconds=result.score.delay_seconds,
        lead_seconds=result.score.lead_seconds,
        false_alarms=result.score.false_alarms,
        healthy_seconds=result.score.healthy_seconds,
        named_group=right and first is not None and first.verdict == "group",
        named_gpu=gpu,
        hardware_verdicts=sum(a.pages or bool(a.machines) for a in alerts),
    )


def deciding(result: IncidentResult) -> Alert | None:
    """The alert that decided the outcome, as it opened: the first that names somebody in time."""
    onset = result.label.onset_ns if result.label else None
    named = [
        c.alert
        for c in result.changes
        if c.kind == "opened"
        and c.alert.verdict in ("machine", "group")
        and (onset is None or c.alert.detected_at_ns >= onset)
    ]
    return min(named, key=lambda a: a.detected_at_ns, default=None)
