"""How often healthy machines reach a level: an exponential tail.

Peaks over a high threshold are distributed as a generalised Pareto law (Pickands 1975; Balkema
& de Haan 1974); with shape 0 it is the exponential law. Estimates are drawn to what was
known before as if so many events had been seen, so that few hours of recordings change little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import PoissonRegressor

MOST_PEAKS = 100
"""Only the largest ones speak of the tail."""
PRIOR_PEAKS = 10.0
PRIOR_EVENTS = 2.0
PRIOR_ALARMS = 4.0
LEAST_SLOPE, MOST_SLOPE = 0.5, 2.0
"""Bounds of a counted tail's slope as shares of the known one's."""
MOST_POWER = 1.5

Array = NDArray[np.float64]


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


def fit_tail(peaks: Array, hours: float, above: float, prior: Tail) -> Tail:
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


@dataclass(frozen=True, slots=True)
class AlarmTail:
    """``rows ** power * exp(intercept - slope * level)`` alarms an hour in a job of ``rows``.

    With power 1 every row errs by itself; with less, errors are the job's.
    """

    intercept: float
    slope: float
    power: float = 1.0

    def rate(self, level: Array, rows: Array) -> Array:
        """Alarms an hour at thresholds ``level`` in jobs of ``rows``."""
        return np.asarray(rows**self.power * np.exp(self.intercept - self.slope * level))


def count_tail(
    level: Array, rows: Array, hours: Array, counts: NDArray[np.int64], prior: AlarmTail
) -> AlarmTail:
    """The tail of alarms that were counted at several thresholds: Poisson regression.

    ``counts[i]`` alarms came in ``hours[i]`` of a job of ``rows[i]`` at the threshold
    ``level[i]``. What is estimated is the deviation from the prior, which is worth
    `PRIOR_ALARMS` alarms and as many of them for each of the two slopes (ridge).
    """
    known = hours > 0
    if not known.any():
        return prior
    level, log_rows = level[known], np.log(rows[known])
    expected = hours[known] * prior.rate(level, rows[known])
    at = np.array([np.average(level, weights=expected), np.average(log_rows, weights=expected)])
    x = np.vstack([np.stack([level, log_rows], axis=1) - at, np.zeros(2)])
    weight = np.append(expected, PRIOR_ALARMS)
    ratio = np.append(counts[known] / expected, 1.0)
    alpha = PRIOR_ALARMS / float(weight.sum())
    fit = PoissonRegressor(alpha=alpha, solver="newton-cholesky", tol=1e-9)
    change, grows = fit.fit(x, ratio, sample_weight=weight).coef_.tolist()
    slope = min(max(prior.slope - change, LEAST_SLOPE * prior.slope), MOST_SLOPE * prior.slope)
    power = min(max(prior.power + grows, 0.0), MOST_POWER)
    both = np.array([prior.slope - slope, power - prior.power])
    shift = math.log(float((weight * ratio).sum()) / float((weight * np.exp(x @ both)).sum()))
    return AlarmTail(prior.intercept + shift - float(both @ at), slope, power)
