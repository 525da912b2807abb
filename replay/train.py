"""Learning the default detector's model from recordings, healthy ones above all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed

from ingest.catalogue import Catalogue
from ingest.recording import Label, read_recording
from models.evidence_model import HOLDS, EvidenceModel, MetricScale, ModelError, shipped_model
from models.minder_model import MinderModel
from replay.healthy import (
    ASKED,
    SMALLEST_PEAK_SECONDS,
    HealthyMetric,
    HealthyRecording,
    healthy_alarms,
    healthy_evidence,
)
from replay.runner import ReplayOptions, replay_all
from replay.score import HOURS_PER_WEEK, summarise
from replay.tails import AlarmTail, Tail, count_tail, fit_tail
from replay.train_minder import train_minder

HOLD_MACHINE_HOURS = 200.0
"""A hold is the evidence that a healthy row reaches about once in so many hours."""
PRIOR_HOLD_HOURS = 100.0
MOST_TIMES = 4.0
"""What is learned is at least what was known before, and at most so many times it. Calm recordings
are no promise: shorter holds, and lower floors, gave several times as many false alarms on jobs
held out."""
PRIOR_RECORDINGS = 10.0
FLOOR_QUANTILE = 0.1
HELD_OUT = 0.3
PRIOR_HELD_OUT = 1.0
HOLD_TAIL = 4.0
"""Before data speak, evidence is thought to fall by exp(4) on its way to the hold."""

Progress = Callable[[str, int, int], None]
"""Called with the stage, how many recordings are done and how many there are."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Trained:
    """What training gives; ``minder`` only where a denoiser was asked for."""

    model: EvidenceModel
    minder: MinderModel | None


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """How to learn.

    Attributes
    ----------
    false_alarms_per_job_week
        Accepted rate, written into the model; None = that of ``base``.
    denoiser
        One of `models.denoise.registry.DENOISERS`: a model of the Minder detector is learned
        beside, with it. The default detector itself needs no denoiser; which one serves
        Minder best is measured by `replay.denoisers`.
    base
        What is known before; few recordings change little of it. None = the shipped model.
    workers
        Processes of joblib's current backend.
    labels
        Of recordings that have none of their own (`replay.feedback.label_recordings`).
    """

    false_alarms_per_job_week: float | None = None
    denoiser: str | None = None
    base: EvidenceModel | None = None
    workers: int = 1
    labels: Mapping[Path, Label] = field(default_factory=dict)


def train(
    paths: Sequence[Path],
    options: TrainOptions,
    catalogue: Catalogue | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Learn from recordings; those of about a third of the jobs only measure the result.

    Healthy time teaches: recordings without faulty machines, those without a label, and what
    lies before an onset. With recordings of one job only there is nothing to hold out, and the
    measured quality says so.

    Raises
    ------
    ModelError
        There is no healthy time to learn from.
    ingest.recording.RecordingError
        A recording cannot be read; names file, place and reason.
    """
    catalogue = catalogue or Catalogue.default()
    base = options.base or shipped_model()
    given = options.labels
    labels = {path: read_recording(path, catalogue, given.get(path)).label for path in paths}
    learn, measure, held_out = split_by_job(labels)

    def told(stage: str, results: Iterable[T]) -> Iterator[T]:
        for done, result in enumerate(results, 1):
            if progress is not None:
                progress(stage, done, len(measure if stage == "measuring" else learn))
            yield result

    work = (delayed(healthy_evidence)(path, base, catalogue, labels[path]) for path in learn)
    seen = list(told("evidence", _fan_out(work, options.workers)))
    if not any(m.row_hours > 0 for r in seen for m in r.metrics.values()):
        raise ModelError(
            f"{learn[0]}: no healthy time to learn from in {len(learn)} recordings; give healthy "
            "recordings, or faulty ones with an onset"
        )
    scales = learn_scales(seen, base, catalogue)
    model = replace(base, metrics={**base.metrics, **scales})
    work = (delayed(healthy_alarms)(path, model, catalogue, labels[path]) for path in learn)
    alarms = list(told("alarms", _fan_out(work, options.workers)))
    tail = learn_tail(alarms, base)
    rate = options.false_alarms_per_job_week or base.false_alarms_per_job_week
    model = replace(
        model,
        tail_intercept=tail.intercept,
        tail_slope=tail.slope,
        tail_power=tail.power,
        false_alarms_per_job_week=rate,
        trained_on=_provenance(learn, labels, alarms, base, given),
        quality={},
    )
    how = ReplayOptions(model=model, catalogue=catalogue, labels=given)
    results = replay_all(measure, how, options.workers)
    scores = [result.score for result in told("measuring", results)]
    found = summarise(scores)
    quality: dict[str, Any] = {
        "held_out": held_out,
        "asked_false_alarms_per_job_week": rate,
        **found,
        "unlabelled": sum(labels[path] is None for path in measure),
    }
    if held_out:
        factor = rate_correction(found["false_alarms"], found["healthy_job_hours"], rate)
        quality["rate_corrected_by"] = round(factor, 4)
        model = replace(model, tail_intercept=round(model.tail_intercept + math.log(factor), 4))
    minder = None
    if options.denoiser is not None:
        minder = train_minder(
            learn, denoiser_name=options.denoiser, catalogue=catalogue, labels=given
        )
    return Trained(replace(model, quality=quality), minder)


def split_by_job(labels: dict[Path, Label | None]) -> tuple[list[Path], list[Path], bool]:
    """Recordings to learn from, recordings to measure on, and whether those are others.

    By job, so that no job is on both sides; a recording without a job is one of its own. Which
    side a job falls on depends on its name and on the other jobs' names, never on the order.
    """
    jobs: dict[str, list[Path]] = {}
    for path, label in labels.items():
        jobs.setdefault(label.job if label and label.job else path.name, []).append(path)
    order = sorted(jobs, key=lambda job: (blake2b(job.encode(), digest_size=8).digest(), job))
    out = round(HELD_OUT * len(order))
    if out == 0 or not any(_is_healthy_part(labels[p]) for j in order[out:] for p in jobs[j]):
        return list(labels), list(labels), False
    return (
        [path for job in order[out:] for path in jobs[job]],
        [path for job in order[:out] for path in jobs[job]],
        True,
    )


def _is_healthy_part(label: Label | None) -> bool:
    return label is None or not label.faulty_machines or label.onset_ns is not None


def learn_scales(
    seen: Sequence[HealthyRecording], base: EvidenceModel, catalogue: Catalogue
) -> dict[str, MetricScale]:
    """Each metric's scale: what the recordings show, drawn to what was known before."""
    names = sorted({name for recording in seen for name in recording.metrics})
    return {
        name: _scale(
            [r.metrics[name] for r in seen if name in r.metrics],
            base.scale(name, catalogue.metric(name).family),
        )
        for name in names
        if any(r.metrics[name].row_hours > 0 for r in seen if name in r.metrics)
    }


def _scale(seen: Sequence[HealthyMetric], known: MetricScale) -> MetricScale:
    noise = np.array([m.noise for m in seen if m.noise > 0])
    spread = np.array([m.spread for m in seen if m.spread > 0])
    hours = sum(m.row_hours for m in seen)
    floor = known.floor
    if noise.size:
        found = float(np.quantile(noise, FLOOR_QUANTILE))
        floor = _drawn(found, known.floor, noise.size)
    fleet = known.fleet
    if spread.size:
        found = float(np.sqrt(np.mean(np.square(spread))))
        fleet = _drawn(found, known.fleet, spread.size)
    holds = {}
    for test, name in enumerate(HOLDS):
        usual = getattr(known, name)
        peaks = np.array([p for m in seen for p in m.peaks[test]])
        holds[name] = _hold(peaks, hours, usual)
    return replace(known, floor=floor, fleet=fleet, **holds)


def _hold(peaks: np.ndarray[Any, np.dtype[np.float64]], hours: float, usual: float) -> float:
    """Level reached once in `HOLD_MACHINE_HOURS`, at least a share of the default."""
    slope = HOLD_TAIL / usual
    prior = Tail(HOLD_TAIL - math.log(HOLD_MACHINE_HOURS), slope)
    # Small peaks, of which there are thousands, say little of large ones.
    above = max(SMALLEST_PEAK_SECONDS, 0.05 * usual)
    tail = fit_tail(peaks[peaks >= above], hours, above, prior)
    level = tail.level(1.0 / HOLD_MACHINE_HOURS)
    weight = hours / (hours + PRIOR_HOLD_HOURS)
    found = usual * (max(level, 1e-9) / usual) ** weight
    return round(float(np.clip(found, usual, MOST_TIMES * usual)), 3)


def _drawn(found: float, usual: float, recordings: int) -> float:
    """Geometric mean of what was found and what was known, by how much was seen."""
    weight = recordings / (recordings + PRIOR_RECORDINGS)
    drawn = usual * (found / usual) ** weight
    return float(f"{np.clip(drawn, usual, MOST_TIMES * usual):.4g}")


def learn_tail(seen: Sequence[HealthyRecording], base: EvidenceModel) -> AlarmTail:
    """How the rate of alarms falls with the threshold and grows with the rows of a job."""
    alarms = [one for recording in seen for one in recording.alarms.values()]
    tail = count_tail(
        np.array([one.level for one in alarms]),
        np.array([one.rows for one in alarms]),
        np.array([one.hours for one in alarms]),
        np.array([one.count for one in alarms], np.int64),
        AlarmTail(base.tail_intercept, base.tail_slope, base.tail_power),
    )
    return AlarmTail(round(tail.intercept, 4), round(tail.slope, 4), round(tail.power, 4))


def rate_correction(false_alarms: int, job_hours: float, asked: float) -> float:
    """How many times the ``asked`` false alarms per job-week came in ``job_hours`` held out.

    Thresholds are fitted to the jobs that taught them; jobs that did not say how true that is.
    Above 1 = more alarms than asked for; drawn to 1 as by `PRIOR_HELD_OUT` alarms.
    """
    expected = asked * job_hours / HOURS_PER_WEEK
    return (false_alarms + PRIOR_HELD_OUT) / (expected + PRIOR_HELD_OUT)


def _provenance(
    learn: Sequence[Path],
    labels: dict[Path, Label | None],
    alarms: Sequence[HealthyRecording],
    base: EvidenceModel,
    given: Mapping[Path, Label],
) -> dict[str, Any]:
    """Names only: where recordings lie on somebody's disk is nobody's business."""
    return {
        "base": f"{base.name}-{base.version}",
        "recordings": sorted(path.resolve().name for path in learn),
        "healthy": sum(
            label is not None and not label.faulty_machines
            for label in (labels[path] for path in learn)
        ),
        "unlabelled_taken_as_healthy": sum(labels[path] is None for path in learn),
        "labelled_by_feedback": sum(path in given for path in learn),
        "machine_hours": round(sum(r.machine_hours for r in alarms), 2),
        "alarms_at_asked_rates": {
            f"{rate:g}": sum(r.alarms[rate].count for r in alarms if rate in r.alarms)
            for rate in ASKED
        },
    }


def _fan_out(work: Iterable[Any], workers: int) -> Iterator[Any]:
    """Results in order, by joblib's current backend."""
    return iter(Parallel(n_jobs=workers, return_as="generator", pre_dispatch="2*n_jobs")(work))
