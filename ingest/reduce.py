"""Rows to at most one sample per series and tick, whatever the order they came in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.catalogue import Catalogue
from ingest.open_rows import Rows
from ingest.rates import CounterRates
from ingest.samples import COUNTER_SUFFIX


@dataclass(slots=True)
class Samples:
    """One sample per (series, tick): ``[n]`` each; no two entries share series and tick."""

    tick: NDArray[np.int64]
    series: NDArray[np.int64]
    values: dict[str, NDArray[np.float64]]
    duplicates: int = 0

    def within(self, start: int, end: int) -> Samples:
        """The samples of ticks ``[start, end)``."""
        mask = (self.tick >= start) & (self.tick < end)
        if mask.all():
            return self
        return self.at(mask)

    def at(self, mask: NDArray[np.bool_]) -> Samples:
        """The samples of a mask."""
        values = {name: column[mask] for name, column in self.values.items()}
        return Samples(self.tick[mask], self.series[mask], values)


def reduce_rows(
    rows: Rows,
    columns: Sequence[str],
    catalogue: Catalogue,
    rates: CounterRates,
    *,
    tick_ns: int,
    gap_ns: int,
    capacity: int,
) -> Samples:
    """Average what fell into one tick and turn counters into rates.

    Rows of one series with one stamp are one sample: a value given twice is a duplicate, of
    which the smallest stays, and columns given by different rows are united. Sums run in the
    order of time, so that the result is the same to the last bit for any order of arrival.
    A sticky code is not averaged: the largest stays.
    """
    tick = rows.ts // tick_ns
    counters = [c for c in columns if c.endswith(COUNTER_SUFFIX)]
    if not counters and _unique(tick, rows.series, capacity):
        return Samples(tick, rows.series, dict(zip(columns, rows.values, strict=True)))

    order = np.lexsort((rows.ts, rows.series))
    ts, series = rows.ts[order], rows.series[order]
    values = rows.values[:, order]
    values[~np.isfinite(values)] = np.nan
    stamps = _starts(series, ts)
    duplicates = 0
    if stamps.size < ts.size:
        given = np.add.reduceat(np.isfinite(values), stamps, axis=1, dtype=np.int64)
        duplicates = int((np.maximum(given.max(axis=0), 1) - 1).sum())
        values = np.fmin.reduceat(values, stamps, axis=1)
        ts, series = ts[stamps], series[stamps]
    tick = ts // tick_ns
    cells = _starts(series, tick)
    group = np.zeros(ts.size, dtype=np.int64)
    group[cells[1:]] = 1
    group = np.cumsum(group)

    out: dict[str, NDArray[np.float64]] = {}
    shared = _Shared(cells, ts.size)
    for index, name in enumerate(columns):
        if not name.endswith(COUNTER_SUFFIX):
            out[name] = shared.average(values[index], largest=catalogue.metric(name).sticky)
    for name in counters:
        metric = catalogue.metric(name.removesuffix(COUNTER_SUFFIX))
        counted = values[columns.index(name)]
        at = np.flatnonzero(np.isfinite(counted))
        rate = rates.update(
            name, ts[at], series[at], counted[at], group[at], cells.size,
            capacity=capacity, gap_ns=gap_ns, saturating=metric.saturating,
        )  # fmt: skip
        rate[(rate < metric.lower) | (rate > metric.upper)] = np.nan
        known = out.get(metric.name)
        out[metric.name] = rate if known is None else np.where(np.isnan(known), rate, known)
    return Samples(tick[cells], series[cells], out, duplicates)


class _Shared:
    """The cells into which several rows fell: few, so only these are averaged.

    Cell k holds the rows from ``cells[k]`` to the next cell's, of ``rows`` in all.
    """

    def __init__(self, cells: NDArray[np.int64], rows: int) -> None:
        count = np.diff(cells, append=rows)
        several = count > 1
        self._cells = cells
        self._several = np.flatnonzero(several)
        self._rows = np.flatnonzero(np.repeat(several, count))
        self._starts = np.cumsum(count[several]) - count[several]

    def average(self, values: NDArray[np.float64], *, largest: bool) -> NDArray[np.float64]:
        """One value a cell: the mean of its rows' (the largest of a sticky code's)."""
        out = values[self._cells]
        if self._several.size:
            out[self._several] = _average(values[self._rows], self._starts, largest=largest)
        return out


def _average(
    values: NDArray[np.float64], cells: NDArray[np.int64], *, largest: bool
) -> NDArray[np.float64]:
    if largest:
        return np.asarray(np.fmax.reduceat(values, cells))
    finite = np.isfinite(values)
    count = np.add.reduceat(finite, cells, dtype=np.int64)
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.add.reduceat(np.where(finite, values, 0.0), cells)
        return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def _unique(tick: NDArray[np.int64], series: NDArray[np.int64], capacity: int) -> bool:
    """Whether no series has two rows in one tick."""
    if tick.size <= 1:
        return True
    first = int(tick.min())
    span = int(tick.max()) - first + 1
    cell = (tick - first) * capacity + series
    if (cell[1:] > cell[:-1]).all():
        return True
    if span * capacity <= 8 * cell.size + 4096:
        return int(np.bincount(cell, minlength=1).max()) <= 1
    cell = np.sort(cell)
    return bool((cell[1:] > cell[:-1]).all())


def _starts(major: NDArray[np.int64], minor: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where a new (major, minor) pair begins in sorted arrays."""
    new = np.ones(major.size, dtype=np.bool_)
    new[1:] = (major[1:] != major[:-1]) | (minor[1:] != minor[:-1])
    return np.flatnonzero(new)
