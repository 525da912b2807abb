"""The one-line rule that on-call engineers write first: too far from the peers' median."""

from __future__ import annotations

import numpy as np

from detect.peers import masked_median
from detect.scoring import Memoryless, TickScores, TickValues, preferred
from models.minder_model import MINDER_METRICS

MAX_SHARE = 10.0


class RatioScorer(Memoryless):
    """Ratio to the peers' median, up or down; a `detect.scoring.TickScorer`.

    A machine is a candidate on a metric while its value is at least ``factor`` times the median
    of all machines, or at most the median over ``factor``. A metric whose median is not above
    0 has no ratio and is not judged, and neither is a job of fewer than three machines.

    Parameters
    ----------
    factor
        Above 1.
    metrics
        Metrics used; all of the job's if it has none of them.
    """

    name = "ratio"
    history = 0
    ordered = False

    def __init__(self, factor: float = 1.5, metrics: tuple[str, ...] = MINDER_METRICS) -> None:
        if not factor > 1.0:
            raise ValueError(f"factor must be above 1, not {factor}")
        self.factor = factor
        self.metrics = metrics

    def select(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """The wanted metrics."""
        return preferred(self.metrics, available)

    def channels(self, metrics: tuple[str, ...]) -> tuple[str, ...]:
        """One a metric."""
        return metrics

    def score(self, ticks: TickValues) -> TickScores:
        """Logarithm of the ratio over that of the factor: 0 = at the median, 1 = candidate."""
        values = ticks.values
        shares = np.full(values.shape, np.nan)
        if values.shape[2] >= 3:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                median = masked_median(values)[:, :, None]
                ratio = values / median
                sizes = np.abs(np.log(ratio)) / np.log(self.factor)
            judged = (median > 0.0) & (values >= 0.0)
            shares[judged] = np.minimum(sizes[judged], MAX_SHARE)
        return TickScores(shares, shares >= 1.0)
