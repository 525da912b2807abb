"""How often healthy machines reach a level: an exponential tail of peaks over a threshold.

Peaks over a high threshold are distributed as a generalised Pareto law (Pickands 1975; Balkema
& de Haan 1974); with shape 0 it is the exponential law. Both estimates are drawn to what was
known before by conjugate (Gamma) priors, so that few hours of recordings change little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_PEAKS = 100
"""Only the largest ones speak of the tail."""
PRIOR_PEAKS = 10.0
PRIOR_EVENTS = 2.0


@dataclass(frozen=True, slots=True)
class Tail:
    """``exp(intercept - slope * level)`` peaks per hour reach a level."""

    intercept: float
    slope: float

    def rate(self, level: float) -> float:
        """Peaks per hour that reach ``level``."""
        return math.exp(self.intercept - self.slope * level)

    def level(self, rate: float) -> float:
        """The level that is reached ``rate`` times per hour."""
        return (self.intercept - math.log(rate)) / self.slope


def fit_tail(peaks: NDArray[np.float64], hours: float, above: float, prior: Tail) -> Tail:
    """Tail of declustered ``peaks``, all at or above ``above``, seen in ``hours`` row-hours.

    The threshold is ``above``, or higher where more than `MOST_PEAKS` peaks lie above it. The
    slope's prior is worth `PRIOR_PEAKS` peaks, the rate's `PRIOR_EVENTS`.
    """
    ordered = np.sort(peaks)[::-1]
    start = float(ordered[MOST_PEAKS]) if len(ordered) > MOST_PEAKS else above
    over = ordered[ordered > start] - start
    slope = (len(over) + PRIOR_PEAKS) / (float(over.sum()) + PRIOR_PEAKS / prior.slope)
    usual = max(prior.rate(start), 1e-9)
    rate = (len(over) + PRIOR_EVENTS) / (hours + PRIOR_EVENTS / usual)
    return Tail(math.log(rate) + slope * start, slope)
