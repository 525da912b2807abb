"""Whether the stated false-alarm rate is true: asked against measured, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from models.evidence_model import shipped_model
from replay.quality.measure import Row, split_rate
from replay.score import HOURS_PER_WEEK

RATE_DETECTORS = ("evidence@10", "evidence@1", "evidence@0.1")
"""Separate passes: what is near the threshold does not teach, so scores depend on it."""
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class StatedRate:
    """One asked rate on one set of healthy time; rates per job-week.

    ``low`` and ``high`` bound measured over asked with `CONFIDENCE`.
    """

    asked: float
    hours: float
    false_alarms: int
    measured: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """Measured over asked; 1 = true."""
        return self.measured / self.asked


def stated_rate(rows: Sequence[Row], detector: str) -> StatedRate | None:
    """The rate that ``rows`` of one detector show; None if it states none or nothing is healthy.

    The interval is Garwood's (*Biometrika* 28, 1936) for a Poisson count, widened where false
    alarms come in clusters: by the variance over the mean of the counts of recordings.
    """
    name, asked = split_rate(detector)
    if name != "evidence":
        return None
    asked = shipped_model().false_alarms_per_job_week if asked is None else asked
    hours = np.array([row.healthy_seconds for row in rows]) / 3600.0
    counts = np.array([row.false_alarms for row in rows], dtype=np.float64)
    total = float(hours.sum())
    if not total > 0.0:
        return None
    expected = hours * counts.sum() / total
    known = expected > 0.0
    clusters = 1.0
    if known.sum() > 1:
        chi = float(((counts - expected)[known] ** 2 / expected[known]).sum())
        clusters = max(1.0, chi / (int(known.sum()) - 1))
    events, tail = float(counts.sum()) / clusters, (1.0 - CONFIDENCE) / 2.0
    low = clusters * float(chi2.ppf(tail, 2.0 * events)) / 2.0 if events else 0.0
    high = clusters * float(chi2.ppf(1.0 - tail, 2.0 * (events + 1.0))) / 2.0
    unit = asked * total / HOURS_PER_WEEK
    measured = float(counts.sum()) * HOURS_PER_WEEK / total
    return StatedRate(asked, total, int(counts.sum()), measured, low / unit, high / unit)
