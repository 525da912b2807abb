"""The rows and metrics of one panel: samples put into ticks, gaps held, then missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PART = 64
"""Periods are kept in 1/64 ticks, as integers, so that they settle exactly."""

_NEVER = -(2**30)
_LONG = 2**20


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
        self._base = 0
        self._seen = np.zeros((0, 0), dtype=np.int32)
        self._period = np.zeros((0, 0), dtype=np.int32)
        self._typical = np.zeros(0, dtype=np.int32)
        self._unknown = False

    def relayout(self, metrics: tuple[str, ...], rows: NDArray[np.int64]) -> None:
        """Change metrics or rows; what is known of those that stay is kept."""
        shape = (len(metrics), rows.size)
        value = np.full(shape, np.nan)
        seen = np.full(shape, _NEVER, dtype=np.int32)
        period = np.zeros(shape, dtype=np.int32)
        typical = np.zeros(len(metrics), dtype=np.int32)
        stay = [m for m in metrics if m in self.metrics]
        metric_to = np.array([metrics.index(m) for m in stay], dtype=np.intp)
        metric_of = np.array([self.metrics.index(m) for m in stay], dtype=np.intp)
        _, row_of, row_to = np.intersect1d(self.rows, rows, assume_unique=True, return_indices=True)
        to, of = np.ix_(metric_to, row_to), np.ix_(metric_of, row_of)
        value[to], seen[to], period[to] = self._value[of], self._seen[of], self._period[of]
        typical[metric_to] = self._typical[metric_of]
        self.metrics, self.rows = metrics, rows
        self._value, self._seen, self._period, self._typical = value, seen, period, typical
        self._unknown = bool((period == 0).any())

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
        self._base = self._base or first_tick
        full: NDArray[np.bool_] = np.asarray(fresh.all(axis=(0, 2)))
        t = 0
        while t < ticks:
            if full[t] and self._steady(first_tick + t):
                rest = np.flatnonzero(~full[t:])
                t = t + int(rest[0]) if rest.size else ticks
                self._seen[:] = first_tick + t - 1 - self._base
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
            "base": self._base,
            "seen": self._seen.copy(),
            "period": self._period.copy(),
            "typical": self._typical.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.metrics = tuple(state["metrics"])
        self.rows = state["rows"].copy()
        self._value = state["value"].copy()
        self._base = state["base"]
        self._seen = state["seen"].copy()
        self._period = state["period"].copy()
        self._unknown = bool((self._period == 0).any())
        self._typical = state["typical"].copy()

    def _steady(self, now: int) -> bool:
        """Whether every cell was sampled in the tick before (or since) and always is."""
        return bool((self._seen >= now - 1 - self._base).all() and (self._period == PART).all())

    def _advance(
        self,
        out: NDArray[np.float64],
        fresh: NDArray[np.bool_],
        now: int,
        policy: HoldPolicy,
    ) -> None:
        age = np.minimum(now - self._base - self._seen, _LONG)
        age *= PART
        period = self._period
        step = period * 5
        step >>= 1
        np.minimum(age, step, out=step)
        step -= period
        step >>= 3
        # A cell with one sample so far has no period (0), and this leaves it as it is.
        step *= fresh
        period += step
        if self._unknown:
            self._learn_first(fresh, age, policy)
        np.copyto(self._value, out, where=fresh)
        np.copyto(self._seen, now - self._base, where=fresh)
        gaps = np.flatnonzero(~fresh.all(axis=0))
        if gaps.size:
            self._fill(out, fresh, age, gaps if 4 * gaps.size < period.shape[1] else None, policy)

    def _fill(
        self,
        out: NDArray[np.float64],
        fresh: NDArray[np.bool_],
        age: NDArray[np.int32],
        rows: NDArray[np.intp] | None,
        policy: HoldPolicy,
    ) -> None:
        """Put into gaps what is held; ``rows`` are those that have any if these are few."""
        at = slice(None) if rows is None else rows
        period, value, kept = self._period[:, at], out[:, at], fresh[:, at]
        span = period * int(policy.periods * PART)
        span >>= 6
        if self._unknown:
            typical = self._typical[:, None] * int(policy.periods * PART) >> 6
            assumed = np.where(typical > 0, typical, round(policy.first * PART))
            span = np.where(period > 0, span, assumed)
        held = age[:, at] <= np.minimum(span, round(policy.longest * PART))
        np.copyto(value, self._value[:, at], where=held & ~kept)
        np.copyto(value, np.nan, where=~(held | kept))
        if rows is not None:
            out[:, rows] = value

    def _learn_first(
        self, fresh: NDArray[np.bool_], age: NDArray[np.int32], policy: HoldPolicy
    ) -> None:
        """The period of cells that got their second sample."""
        new = fresh & (self._period == 0) & (self._seen > _NEVER)
        if new.any():
            longest = round(policy.longest * PART / policy.periods)
            self._period[new] = np.maximum(np.minimum(age[new], longest), PART)
            for metric in np.flatnonzero(new.any(axis=1)):
                found = self._period[metric]
                self._typical[metric] = int(np.median(found[found > 0]))
            self._unknown = bool((self._period == 0).any())
