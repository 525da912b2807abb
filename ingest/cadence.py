"""How often a job is sampled, found from its first samples.

The answer depends on the *set* of rows in a window of event time, never on their order of
arrival: a window is looked at only once the watermark says that it is complete.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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

MIN_SHARE = 0.25
"""Share of the window's machines whose series must show it."""


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


def established(
    ts: NDArray[np.int64],
    series: NDArray[np.int64],
    machine: NDArray[np.int64],
    present: NDArray[np.bool_],
) -> int | None:
    """Cadence of the fastest metric that enough machines show, or None.

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
    for column in present:
        at = np.flatnonzero(column)
        gaps, owner = _gaps(ts[at], series[at])
        count = np.bincount(owner, minlength=int(series.max()) + 1)
        steady = count >= MIN_SAMPLES - 1
        if np.unique(machine[steady[series]]).size >= max(needed, 1):
            median = float(np.median(gaps[steady[owner]]))
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
