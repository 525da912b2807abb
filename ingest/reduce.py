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
    if not counters:
        several = _several(tick, rows.series, capacity)
        if not several.any():
            return Samples(tick, rows.series, dict(zip(columns, rows.values, strict=True)))
        if not several.all():
            some = Rows(rows.ts[several], rows.series[several], rows.values[:, several])
            reduced = reduce_rows(
                some, columns, catalogue, rates,
                tick_ns=tick_ns, gap_ns=gap_ns, capacity=capacity,
            )  # fmt: skip
            return _with(reduced, tick, rows, columns, np.flatnonzero(~several))

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

    gauges = [at for at, name in enumerate(columns) if not name.endswith(COUNTER_SUFFIX)]
    names = [columns[at] for at in gauges]
    largest = np.array([catalogue.metric(name).sticky for name in names], dtype=np.bool_)
    out = dict(zip(names, _averages(values[gauges], cells, largest), strict=True))
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


def _averages(
    values: NDArray[np.float64], cells: NDArray[np.int64], largest: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """``[column, cell]``: the mean of a cell's rows, or the largest of a sticky code's.

    ``values`` is ``[column, row]``; cell k holds the rows from ``cells[k]`` to the next cell's.
    """
    out = values[:, cells]
    count = np.diff(cells, append=values.shape[1])
    several = count > 1
    if not several.any():
        return out
    shared = values[:, np.repeat(several, count)]
    starts = np.cumsum(count[several]) - count[several]
    finite = np.isfinite(shared)
    given = np.add.reduceat(finite, starts, axis=1, dtype=np.int64)
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.add.reduceat(np.where(finite, shared, 0.0), starts, axis=1)
        mean = np.where(given > 0, total / np.maximum(given, 1), np.nan)
    if largest.any():
        mean[largest] = np.fmax.reduceat(shared[largest], starts, axis=1)
    out[:, several] = mean
    return out


def _with(
    reduced: Samples,
    tick: NDArray[np.int64],
    rows: Rows,
    columns: Sequence[str],
    alone: NDArray[np.intp],
) -> Samples:
    """Those reduced and, as they are, the rows that are alone in their cell."""
    count = alone.size
    values = np.empty((len(columns), count + reduced.tick.size))
    for out, name, column in zip(values, columns, rows.values, strict=True):
        column.take(alone, out=out[:count], mode="clip")  # else NumPy would buffer it
        out[count:] = reduced.values[name]
    return Samples(
        np.concatenate([tick[alone], reduced.tick]),
        np.concatenate([rows.series[alone], reduced.series]),
        dict(zip(columns, values, strict=True)),
        reduced.duplicates,
    )


def _several(
    tick: NDArray[np.int64], series: NDArray[np.int64], capacity: int
) -> NDArray[np.bool_]:
    """Which rows have another one of their series in the same tick."""
    if tick.size <= 1:
        return np.zeros(tick.size, dtype=np.bool_)
    first = int(tick.min())
    span = int(tick.max()) - first + 1
    cell = (tick - first) * capacity + series
    if (cell[1:] > cell[:-1]).all():
        return np.zeros(tick.size, dtype=np.bool_)
    if span * capacity > 8 * cell.size + 4096:
        cell = np.unique(cell, return_inverse=True)[1]
    return np.asarray(np.bincount(cell)[cell] > 1)


def _starts(major: NDArray[np.int64], minor: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where a new (major, minor) pair begins in sorted arrays."""
    new = np.ones(major.size, dtype=np.bool_)
    new[1:] = (major[1:] != major[:-1]) | (minor[1:] != minor[:-1])
    return np.flatnonzero(new)
