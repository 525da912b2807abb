"""All detectors by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from detect.detector import JobDetector
from detect.floors import NullScorer, RandomScorer
from detect.mahalanobis import MahalanobisScorer
from detect.minder import MinderSettings, minder_detector
from detect.ratio_rule import RatioScorer
from detect.streaming import ContinuitySettings, StreamingDetector
from ingest.catalogue import Catalogue
from models.minder_model import MinderModel

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
_AT_ONCE = ContinuitySettings(continuity_seconds=0.0, clear_seconds=600.0)


def make_detector(
    name: str,
    job: str,
    *,
    catalogue: Catalogue,
    model: Any | None = None,
    topology: Mapping[str, Mapping[str, str]] | None = None,
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

    Raises
    ------
    ValueError
        For an unknown name or a model of another detector.
    """
    if name == "evidence":
        # Not at the top: the reference detectors work without it.
        from detect.evidence import EvidenceDetector
        from models.evidence_model import EvidenceModel, shipped_model

        return EvidenceDetector(
            job, catalogue, _of(model, EvidenceModel) or shipped_model(), topology
        )
    if name in ("minder", "minder-best"):
        best = name == "minder-best"
        settings = MinderSettings.best() if best else MinderSettings.published()
        return minder_detector(job, catalogue, settings, _of(model, MinderModel))
    if name == "mahalanobis":
        return StreamingDetector(job, MahalanobisScorer(), catalogue)
    if name == "ratio":
        return StreamingDetector(job, RatioScorer(), catalogue)
    if name == "null":
        return StreamingDetector(job, NullScorer(), catalogue, _AT_ONCE)
    if name == "random":
        scorer = RandomScorer(RANDOM_ALERTS_PER_JOB_WEEK)
        return StreamingDetector(job, scorer, catalogue, _AT_ONCE)
    raise ValueError(f"unknown detector {name!r}; there are {', '.join(DETECTORS)}")


def _of(model: Any | None, kind: type[Learned]) -> Learned | None:
    """The model, or ValueError if it is one of another detector."""
    if model is not None and not isinstance(model, kind):
        raise ValueError(f"a {type(model).__name__} is not a {kind.__name__}")
    return model
