"""All detectors by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from detect.detector import JobDetector
from ingest.catalogue import Catalogue

Learned = TypeVar("Learned")

DETECTORS: tuple[str, ...] = (
    "evidence",
    "minder",
    "minder-best",
    "mahalanobis",
    "ratio",
    "null",
    "random",
)
"""Every name that `make_detector` knows."""

RANDOM_ALERTS_PER_JOB_WEEK = 100.0
"""Default rate of the random detector."""


def make_detector(
    name: str,
    job: str,
    *,
    catalogue: Catalogue,
    model: Any | None = None,
    topology: Mapping[str, Mapping[str, str]] | None = None,
    false_alarms_per_job_week: float | None = None,
    alerts_only: bool = False,
) -> JobDetector:
    """A fresh detector for one run of a job.

    Parameters
    ----------
    name
        One of `DETECTORS`.
    job
        The job's name.
    catalogue
        Units and limits of metrics.
    model
        What the detector has learned ahead: `EvidenceModel` or `MinderModel`; None takes the
        shipped one. The others learn nothing.
    topology
        ``{machine: {attribute: value}}``; only ``evidence`` uses it.
    false_alarms_per_job_week
        Accepted rate; None = the model's own. Only ``evidence`` is calibrated and can keep it;
        for ``random`` it is the rate of its alerts.
    alerts_only
        Nobody looks at score frames: ``minder``, ``minder-best`` and ``mahalanobis`` give the
        same alerts for a fraction of the work (`detect.sparse`).

    Raises
    ------
    ValueError
        For an unknown name or a model of another detector.
    """
    # Each detector is imported when it is asked for: the reference ones load scikit-learn,
    # SciPy and river, which the service does not otherwise need to start.
    if name == "evidence":
        from detect.evidence import EvidenceDetector
        from models.evidence_model import EvidenceModel, shipped_model

        learned = _of(model, EvidenceModel) or shipped_model()
        return EvidenceDetector(job, catalogue, learned, topology, false_alarms_per_job_week)
    if name in ("minder", "minder-best"):
        from detect.minder import MinderSettings, minder_detector
        from models.minder_model import MinderModel

        best = name == "minder-best"
        settings = MinderSettings.best() if best else MinderSettings.published()
        return minder_detector(
            job, catalogue, settings, _of(model, MinderModel), alerts_only=alerts_only
        )
    return _baseline(name, job, catalogue, false_alarms_per_job_week, alerts_only)


def _baseline(
    name: str,
    job: str,
    catalogue: Catalogue,
    alerts_per_job_week: float | None,
    alerts_only: bool,
) -> JobDetector:
    """The detectors without a model."""
    from detect.floors import NullScorer, RandomScorer
    from detect.mahalanobis import MahalanobisScorer
    from detect.ratio_rule import RatioScorer
    from detect.sparse import SparseScorer
    from detect.streaming import ContinuitySettings, StreamingDetector

    if name == "mahalanobis":
        scorer = MahalanobisScorer()
        if not alerts_only:
            return StreamingDetector(job, scorer, catalogue)
        usual = ContinuitySettings()
        return StreamingDetector(job, SparseScorer(scorer, usual.least_ticks), catalogue, usual)
    if name == "ratio":
        return StreamingDetector(job, RatioScorer(), catalogue)
    at_once = ContinuitySettings(continuity_seconds=0.0, clear_seconds=600.0)
    if name == "null":
        return StreamingDetector(job, NullScorer(), catalogue, at_once)
    if name == "random":
        rate = RANDOM_ALERTS_PER_JOB_WEEK if alerts_per_job_week is None else alerts_per_job_week
        return StreamingDetector(job, RandomScorer(rate), catalogue, at_once)
    raise ValueError(f"unknown detector {name!r}; there are {', '.join(DETECTORS)}")


def _of(model: Any | None, kind: type[Learned]) -> Learned | None:
    """The model, or ValueError if it is one of another detector."""
    if model is not None and not isinstance(model, kind):
        raise ValueError(f"a {type(model).__name__} is not a {kind.__name__}")
    return model
