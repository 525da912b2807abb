"""The rows and metrics of one panel: samples put into ticks, gaps held, then missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PART = 64
"""Periods are kept in 1/64 ticks, as integers, so that they settle exactly."""

_NEVER = -(2**40)


@dataclass(frozen=True, slots=True)
class HoldPolicy:
    """How long a value stands in for a missing one.

    ``periods`` times the series' own sampling period, at most ``longest`` ticks; ``first``
    ticks for a series whose period is not known yet.
    """

    periods: float
    longest: float
    first: float


class Grid:
    """Held values of ``[metric, row]``; rows are distinct keys, in the owner's order.

    Each cell has its own sampling period: a moving average (weight 1/8) of the ticks between
    its samples, where an interval counts as at most 2.5 periods, so that one gap does not pass
    for a slower source. Sources of 1 s, 10 s and 30 s may thus share a metric.
    """

    def __init__(self) -> None:
        self.metrics: tuple[str, ...] = ()
        self.rows = np.zeros(0, dtype=np.int64)
        self._value = np.zeros((0, 0))
        self._seen = np.zeros((0, 0), dtype=np.int64)
        self._period = np.zeros((0, 0), dtype=np.int64)
        self._typical = np.zeros(0, dtype=np.int64)

    def relayout(self, metrics: tuple[str, ...], rows: NDArray[np.int64]) -> None:
        """Change metrics or rows; what is known of those that stay is kept."""
        shape = (len(metrics), rows.size)
        value = np.full(shape, np.nan)
        seen = np.full(shape, _NEVER, dtype=np.int64)
        period = np.zeros(shape, dtype=np.int64)
        typical = np.zeros(len(metrics), dtype=np.int64)
        stay = [m for m in metrics if m in self.metrics]
        metric_to = np.array([metrics.index(m) for m in stay], dtype=np.intp)
        metric_of = np.array([self.metrics.index(m) for m in stay], dtype=np.intp)
        _, row_of, row_to = np.intersect1d(self.rows, rows, assume_unique=True, return_indices=True)
        to, of = np.ix_(metric_to, row_to), np.ix_(metric_of, row_of)
        value[to], seen[to], period[to] = self._value[of], self._seen[of], self._period[of]
        typical[metric_to] = self._typical[metric_of]
        self.metrics, self.rows = metrics, rows
        self._value, self._seen, self._period, self._typical = value, seen, period, typical

    def place(
        self,
        tick: NDArray[np.int64],
        row: NDArray[np.int64],
        values: dict[str, NDArray[np.float64]],
        ticks: int,
    ) -> NDArray[np.float64]:
        """Samples into a new ``[metric, tick, row]`` array, NaN elsewhere.

        ``tick`` counts from the block's first tick; no two samples share tick and row.
        """
        width = self.rows.size
        cell = tick * width + row
        dense = cell.size == ticks * width and bool((cell[1:] > cell[:-1]).all())
        out = np.empty((len(self.metrics), ticks, width))
        for index, metric in enumerate(self.metrics):
            column = values.get(metric)
            flat = out[index].reshape(-1)
            if column is not None and dense:
                flat[:] = column
                continue
            flat[:] = np.nan
            if column is not None:
                flat[cell] = column
        return out

    def hold(
        self, out: NDArray[np.float64], first_tick: int, policy: HoldPolicy
    ) -> NDArray[np.bool_]:
        """Fill gaps of ``out`` ``[metric, tick, row]`` in place; return what was fresh."""
        fresh = np.isfinite(out)
        ticks = out.shape[1]
        if not out.size:
            return fresh
        full: NDArray[np.bool_] = np.asarray(fresh.all(axis=(0, 2)))
        t = 0
        while t < ticks:
            if full[t] and self._steady(first_tick + t):
                rest = np.flatnonzero(~full[t:])
                t = t + int(rest[0]) if rest.size else ticks
                self._seen[:] = first_tick + t - 1
                self._value[:] = out[:, t - 1]
            else:
                self._advance(out[:, t], fresh[:, t], first_tick + t, policy)
                t += 1
        return fresh

    def snapshot(self) -> dict[str, Any]:
        return {
            "metrics": list(self.metrics),
            "rows": self.rows.copy(),
            "value": self._value.copy(),
            "seen": self._seen.copy(),
            "period": self._period.copy(),
            "typical": self._typical.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.metrics = tuple(state["metrics"])
        self.rows = state["rows"].copy()
        self._value = state["value"].copy()
        self._seen = state["seen"].copy()
        self._period = state["period"].copy()
        self._typical = state["typical"].copy()

    def _steady(self, now: int) -> bool:
        """Whether every cell was sampled in the tick before (or since) and always is."""
        return bool((self._seen >= now - 1).all() and (self._period == PART).all())

    def _advance(
        self,
        out: NDArray[np.float64],
        fresh: NDArray[np.bool_],
        now: int,
        policy: HoldPolicy,
    ) -> None:
        age = (now - self._seen) * PART
        period = self._period
        known = period > 0
        before = self._seen > _NEVER
        learn = fresh & before
        if learn.any():
            longest = int(policy.longest * PART / policy.periods)
            moved = period + ((np.minimum(age, period * 5 // 2) - period) >> 3)
            moved = np.where(known, moved, np.minimum(age, longest))
            self._period = period = np.where(learn, np.maximum(moved, PART), period)
            for metric in np.flatnonzero((learn & ~known).any(axis=1)):
                found = period[metric]
                self._typical[metric] = int(np.median(found[found > 0]))
        if not fresh.all():
            assumed = np.where(self._typical > 0, self._typical, 0)[:, None]
            span = np.where(period > 0, period, assumed) * policy.periods
            span = np.where(span > 0, np.minimum(span, policy.longest * PART), policy.first * PART)
            held = ~fresh & before & (age <= span)
            np.copyto(out, self._value, where=held)
            out[~fresh & ~held] = np.nan
        np.copyto(self._value, out, where=fresh)
        self._seen[fresh] = now
