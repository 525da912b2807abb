"""Recorded incidents through the very code of the live path."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from joblib import Parallel, delayed

from detect.alert import Alert, AlertChange, rfc3339
from detect.detector import JobDetector
from detect.history import History
from detect.pipeline import Pipeline, PipelineSettings
from detect.registry import make_detector
from ingest.catalogue import Catalogue
from ingest.recording import Label, Topology, read_recording
from ingest.reject import RejectFile
from ingest.samples import Decoded, Rejected
from models.evidence_model import EvidenceModel
from models.minder_model import MinderModel
from replay.score import Score, Truth, score_incident

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How recordings are replayed.

    ``history`` keeps ticks and scores for a report; ``rejects`` names the files
    that take recordings' rejected rows. ``labels`` are those of recordings that have none of
    their own.
    """

    detector: str = "evidence"
    model: EvidenceModel | MinderModel | None = None
    catalogue: Catalogue = field(default_factory=Catalogue.default)
    false_alarms_per_job_week: float | None = None
    history: bool = False
    history_bytes: int = 256 << 20
    rejects: Mapping[Path, Path] = field(default_factory=dict)
    labels: Mapping[Path, Label] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IncidentResult:
    """One replayed recording.

    ``alerts`` in their last state, in the order they opened; ``changes`` all of them.
    ``seconds`` is event time covered, ``compute_seconds`` processor time spent on alignment and
    detection (reading the file excluded).
    """

    incident: str
    job: str
    machines: int
    seconds: float
    alerts: tuple[Alert, ...]
    changes: tuple[AlertChange, ...]
    label: Label | None
    score: Score
    rejected: dict[str, int]
    compute_seconds: float
    histories: Mapping[str, History] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    """What of the label does not fit the recording, one line each."""

    def to_json(self) -> dict[str, Any]:
        """The line of ``--format jsonl``."""
        return {
            "incident": self.incident,
            "job": self.job,
            "machines": self.machines,
            "seconds": self.seconds,
            "alerts": [a.to_json() for a in self.alerts],
            "label": self.label.to_json() if self.label else None,
            "outcome": self.score.outcome,
            "delay_seconds": self.score.delay_seconds,
            "false_alarms": self.score.false_alarms,
            "compute_seconds": round(self.compute_seconds, 3),
        }


class Replayable(Protocol):
    """What can be replayed: a `ingest.recording.Recording`, or one that was never written.

    `replay_recording` calls ``batches`` once and takes each batch before the next is made;
    batches stand in the order of time.
    """

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> Label | None: ...
    @property
    def topology(self) -> Topology: ...
    def batches(self) -> Iterator[Decoded]: ...


def replay_incident(path: Path, options: ReplayOptions) -> IncidentResult:
    """Replay one recording; `ingest.recording.RecordingError` if it cannot be read at all."""
    recording = read_recording(path, options.catalogue, options.labels.get(path))
    return replay_recording(recording, options, options.rejects.get(path))


def replay_recording(
    recording: Replayable, options: ReplayOptions, reject_file: Path | None = None
) -> IncidentResult:
    """Replay what has been opened; `ingest.recording.RecordingError` if it cannot be read."""

    def make(job: str) -> JobDetector:
        return make_detector(
            options.detector,
            job,
            catalogue=options.catalogue,
            model=options.model,
            topology=recording.topology,
            false_alarms_per_job_week=options.false_alarms_per_job_week,
            alerts_only=not options.history,
        )

    settings = PipelineSettings(keep_history=options.history, history_bytes=options.history_bytes)
    pipeline = Pipeline(options.catalogue, make, settings)
    driven = drive(recording, pipeline, reject_file)
    result = driven.result(recording, driven.changes, driven.compute_seconds)
    histories = {
        j.job: history for j in pipeline.jobs() if (history := pipeline.history(j.job)) is not None
    }
    return replace(result, histories=histories)


def replay_all(
    paths: Sequence[Path], options: ReplayOptions, workers: int = 1
) -> Iterator[IncidentResult]:
    """Replay recordings in the given order, by ``workers`` processes of joblib's backend.

    The backend is joblib's current one, so a Dask or Ray cluster is used where
    ``joblib.parallel_config`` names it.
    """
    if workers == 1:
        yield from (replay_incident(path, options) for path in paths)
        return
    tasks = (delayed(replay_incident)(path, options) for path in paths)
    yield from Parallel(n_jobs=workers, return_as="generator", pre_dispatch="2*n_jobs")(tasks)


@dataclass(frozen=True, slots=True)
class Driven:
    """What a recording was, and what its pipeline said.

    ``jobs`` are those of the samples; ``first_ns`` and ``last_ns`` of event time;
    ``compute_seconds`` of processor time within the pipeline.
    """

    jobs: tuple[str, ...]
    changes: tuple[AlertChange, ...]
    rejected: dict[str, int]
    first_ns: int
    last_ns: int
    machines: frozenset[str]
    compute_seconds: float

    def result(
        self, recording: Replayable, changes: Sequence[AlertChange], compute_seconds: float
    ) -> IncidentResult:
        """The result of a detector that said ``changes``."""
        alerts, opened = _alerts(changes)
        truth = _truth(recording.label)
        return IncidentResult(
            incident=recording.name,
            job=(recording.label.job if recording.label else "") or next(iter(self.jobs), ""),
            machines=len(self.machines),
            seconds=(self.last_ns - self.first_ns) / 1e9,
            alerts=tuple(alerts),
            changes=tuple(changes),
            label=recording.label,
            score=score_incident(opened, truth, self.first_ns, self.last_ns),
            rejected=self.rejected,
            compute_seconds=compute_seconds,
            remarks=tuple(self._misfits(recording.label)) if recording.label else (),
        )

    def _misfits(self, label: Label) -> Iterator[str]:
        """What would make the score of a typing error."""
        if label.job and label.job not in self.jobs:
            yield f"job: {label.job!r} is not in the recording, which has {', '.join(self.jobs)}"
        for machine in label.faulty_machines:
            if machine not in self.machines:
                yield f"faulty_machines: {machine!r} is not in the recording"
        if label.onset_ns is not None and not self.first_ns <= label.onset_ns <= self.last_ns:
            span = f"{rfc3339(self.first_ns)} to {rfc3339(self.last_ns)}"
            yield f"onset: is outside the recording, {span}"


def drive(recording: Replayable, pipeline: Pipeline, reject_file: Path | None = None) -> Driven:
    """Feed a recording to a pipeline, to its end; rejected rows go to ``reject_file``."""
    changes: list[AlertChange] = []
    counts: Counter[str] = Counter()
    machines: set[str] = set()
    first, last = 0, 0
    spent = 0.0
    rejects = RejectFile(reject_file) if reject_file else None

    def take(out_rejected: Sequence[Rejected]) -> None:
        for item in out_rejected:
            counts[item.reason] += item.rows
        if rejects is not None:
            rejects.write(out_rejected)

    try:
        for decoded in recording.batches():
            take(decoded.rejected)
            counts.update(decoded.counts)
            table = decoded.samples
            if not table.num_rows:
                continue
            ts = table["ts"].to_numpy().astype("datetime64[ns]").astype("int64")
            first = min(first, int(ts.min())) if machines else int(ts.min())
            last = max(last, int(ts.max()))
            machines.update(table["machine"].unique().to_pylist())
            began = time.process_time()
            out = pipeline.feed(table)
            spent += time.process_time() - began
            changes.extend(out.changes)
            take(out.rejected)
        began = time.process_time()
        out = pipeline.finish()
        spent += time.process_time() - began
        changes.extend(out.changes)
        take(out.rejected)
    finally:
        if rejects is not None:
            rejects.close()
    return Driven(
        tuple(j.job for j in pipeline.jobs()),
        tuple(changes),
        dict(counts),
        first,
        last,
        frozenset(machines),
        spent,
    )


def _alerts(changes: Sequence[AlertChange]) -> tuple[list[Alert], list[Alert]]:
    """Every alert in its last state, and as it was when it opened (a later correction is late)."""
    last: dict[str, Alert] = {}
    opened: list[Alert] = []
    for change in changes:
        if change.kind == "opened":
            opened.append(change.alert)
        last[change.alert.id] = change.alert
    return list(last.values()), opened


def _truth(label: Label | None) -> Truth | None:
    if label is None:
        return None
    return Truth(frozenset(label.faulty_machines), label.onset_ns, label.halt_ns)
