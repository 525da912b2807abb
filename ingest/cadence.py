"""How often a job is sampled, found from its first samples.

The answer depends on the *set* of rows in a window of event time, never on their order of
arrival: a window is looked at only once the watermark says that it is complete.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.open_rows import Rows

SECOND = 1_000_000_000

LADDER_NS: tuple[int, ...] = tuple(
    round(seconds * SECOND)
    for seconds in (0.1, 0.2, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 45, 60)
)
"""Cadences that people configure; a measured one is snapped to the nearest in ratio."""

WINDOWS_NS: tuple[int, ...] = tuple(s * SECOND for s in (6, 12, 24, 48, 96, 192))
"""Windows from the first sample on, tried in this order. The last shows 60 s four times."""

MIN_SAMPLES = 4
"""Samples of one series that a window must hold for its cadence to count."""

MIN_INTERVALS = 12
"""Intervals of all series of a metric that a window must hold: fewer are too noisy."""

MIN_SHARE = 0.5
"""More than this share of the window's machines must show it."""


def settle_ns(window_ns: int) -> int:
    """How far the quorum must be past a window before the window counts as complete.

    A window of length w can establish cadences up to w / (MIN_SAMPLES - 1) only, so the
    lateness of whatever tick follows from it is at most 2.5 times that.
    """
    return max(3 * SECOND, int(2.5 * window_ns / (MIN_SAMPLES - 1)))


def snap(interval_ns: float) -> int:
    """The rung of `LADDER_NS` nearest in ratio to a measured interval."""
    rungs = np.asarray(LADDER_NS, dtype=np.float64)
    return LADDER_NS[int(np.argmin(np.abs(np.log(rungs / max(interval_ns, 1.0)))))]


class CadenceFinder:
    """Finds the cadence at the start of a run; asked again and again until it answers."""

    def __init__(self) -> None:
        self._start: int | None = None
        self._tried = 0

    def waits(self, start: int, frontier: int) -> bool:
        """Whether `find` would surely wait, for rows whose first stamp is ``start``."""
        window = WINDOWS_NS[min(self._tried, len(WINDOWS_NS) - 1) if start == self._start else 0]
        return frontier < start + window + settle_ns(window)

    def find(
        self, rows: Rows, machine: NDArray[np.int64], frontier: int, *, now: bool
    ) -> int | None:
        """Cadence in ns from the rows so far, or None while it has to wait.

        ``machine`` is ``[n]``, the machine of each row; ``frontier`` what the quorum has reached.
        ``now`` demands an answer. Where no window has one, it is the median of whatever
        intervals there are; without any, 60 s if the job is older than the longest wait, else 1 s.
        """
        if not rows.ts.size:
            return None
        start = int(rows.ts.min())
        if start != self._start:
            self._start, self._tried = start, 0
        for window in WINDOWS_NS[self._tried :]:
            if not now and frontier < start + window + settle_ns(window):
                return None
            inside = rows.ts < start + window
            present = np.isfinite(rows.values[:, inside])
            found = established(rows.ts[inside], rows.series[inside], machine[inside], present)
            if found is not None:
                return found
            self._tried += 1
        inside = rows.ts < start + WINDOWS_NS[-1]
        old = frontier >= start + WINDOWS_NS[-1] + settle_ns(WINDOWS_NS[-1])
        none = LADDER_NS[-1] if old else SECOND
        return guess(rows.ts[inside], rows.series[inside]) or none

    def snapshot(self) -> dict[str, Any]:
        return {"start": self._start, "tried": self._tried}

    def restore(self, state: dict[str, Any]) -> None:
        self._start, self._tried = state["start"], state["tried"]


def established(
    ts: NDArray[np.int64],
    series: NDArray[np.int64],
    machine: NDArray[np.int64],
    present: NDArray[np.bool_],
) -> int | None:
    """Cadence of the fastest metric that enough machines show, or None.

    A metric's cadence is the median over its series of their median interval.

    Parameters
    ----------
    ts, series, machine
        ``[n]``: time, series and machine of each row of the window.
    present
        ``[C, n]``: whether column c has a value in row i.
    """
    if not ts.size:
        return None
    order = np.lexsort((ts, series))
    ts, series, machine, present = ts[order], series[order], machine[order], present[:, order]
    needed = MIN_SHARE * np.unique(machine).size
    fastest: float | None = None
    for index, column in enumerate(present):
        if index and np.array_equal(column, present[index - 1]):
            continue
        at = np.flatnonzero(column)
        gaps, owner = _gaps(ts[at], series[at])
        owners, first, count = np.unique(owner, return_index=True, return_counts=True)
        steady = count >= MIN_SAMPLES - 1
        if count[steady].sum() < MIN_INTERVALS:
            continue
        if np.unique(machine[np.isin(series, owners[steady])]).size > needed:
            ranked = gaps[np.lexsort((gaps, owner))]
            medians = np.sort(ranked[first[steady] + (count[steady] - 1) // 2])
            # The lower one of two: where half the machines are slower, they are held.
            median = float(medians[(medians.size - 1) // 2])
            fastest = median if fastest is None else min(fastest, median)
    return None if fastest is None else snap(fastest)


def guess(ts: NDArray[np.int64], series: NDArray[np.int64]) -> int | None:
    """Cadence of series too short for `established`: the median of all intervals there are."""
    order = np.lexsort((ts, series))
    gaps, _ = _gaps(ts[order], series[order])
    return snap(float(np.median(gaps))) if gaps.size else None


def _gaps(
    ts: NDArray[np.int64], series: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Times between successive distinct stamps of each series (sorted input), and its series."""
    gaps = np.diff(ts)
    same = (np.diff(series) == 0) & (gaps > 0)
    return gaps[same], series[1:][same]
