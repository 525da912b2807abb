"""What a row's load explains of its other metrics, where nobody knows what these are.

A disk that serves more requests answers later, and so do all of its kind: what counts is the
latency at the same throughput. The regression of one on the other is that of Lu et al.,
*Perseus: A Fail-Slow Detection Framework for Cloud Storage Systems* (FAST'23, section 4), here of
logarithms, over all rows, followed as time goes by.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from detect.averages import counts, follow, median
from detect.state import PanelState

Array = NDArray[np.float64]

UNKNOWN = "other:"
"""Families of metrics that the catalogue does not know begin so; see `detect.panel`."""
LOADS = frozenset(
    {
        "bandwidth",
        "bw",
        "iops",
        "ops",
        "operations",
        "qps",
        "reads",
        "requests",
        "rps",
        "throughput",
    }
    | {"tps", "writes"}
)
RATES = frozenset({"per", "persec", "ps", "rate", "s", "sec", "second"})
"""Words in the name of a metric that says how much is asked of a row; so does a rate of bytes."""
USUAL_SECONDS = 600.0
"""A row's usual distance from its peers is followed over so long,"""
SLOPE_SECONDS = 1800.0
"""and how the metrics go with the load over so long."""
MOST = 1.0
"""A distance counts no more than this for that, in natural logarithms."""
MOST_LOAD = 2.0
"""Nor does the load explain more than so much of itself."""
STEEPEST = 2.0
LEAST_SPREAD = 5.0
"""Sum of squared distances of the load from which its slopes are known."""


def loads(metrics: Sequence[str], families: Sequence[str]) -> list[bool]:
    """Which ``metrics`` are the load of the other unknown ones; none if there are no others."""
    unknown = [f.startswith(UNKNOWN) for f in families]
    load = [u and _is_load(m) for u, m in zip(unknown, metrics, strict=True)]
    return load if sum(load) < sum(unknown) else [False] * len(load)


def _is_load(metric: str) -> bool:
    words = set(re.split(r"[^a-z0-9]+", metric.lower()))
    return bool(words & LOADS) or ("bytes" in words and bool(words & RATES))


class LoadModel:
    """Follows the slopes of one panel."""

    def __init__(self) -> None:
        self.state = PanelState()
        self.state.add("usual", "mr", np.nan)
        self.state.add("usual_load", "r", np.nan)
        self.state.add("with_load", "m", 0.0)
        self.state.add("spread", "m", 0.0)
        self._loads: NDArray[np.int64] = np.zeros(0, np.int64)
        self._others: NDArray[np.int64] = np.zeros(0, np.int64)

    def reindex(
        self, metrics: tuple[str, ...], families: Sequence[str], rows: tuple[str, ...]
    ) -> None:
        """Follow the roster."""
        self.state.reindex(metrics, rows)
        load = loads(metrics, families)
        self._loads = np.flatnonzero(load)
        others = [f.startswith(UNKNOWN) and not one for f, one in zip(families, load, strict=True)]
        self._others = np.flatnonzero(others)

    def adjusted(self, x: Array, tick_seconds: float) -> Array:
        """``x`` ``[M, R]`` as it would be at the load of the row's peers."""
        if not self._loads.size:
            return x
        s = self.state
        # Their geometric mean; who misses one of several has no load that is known.
        load = _apart(x[self._loads]).mean(axis=0)
        away = _apart(x[self._others])
        self._learn(load, away, tick_seconds)
        known = s["spread"][self._others] >= LEAST_SPREAD
        slope = s["with_load"][self._others] / np.maximum(s["spread"][self._others], LEAST_SPREAD)
        slope = np.where(known, np.clip(slope, 0.0, STEEPEST), 0.0)
        explained = np.clip(np.where(np.isfinite(load), load, 0.0), -MOST_LOAD, MOST_LOAD)
        x = x.copy()
        x[self._others] *= np.exp(-slope[:, None] * explained)
        return x

    def _learn(self, load: Array, away: Array, tick_seconds: float) -> None:
        """Slopes of what moves together within each row: rows may differ for good."""
        s, others = self.state, self._others
        usual = s["usual"][others]
        moved = np.clip(away - usual, -MOST, MOST)
        moved_load = np.clip(load - s["usual_load"], -MOST, MOST)
        known = np.isfinite(moved) & np.isfinite(moved_load)
        moved[~known] = 0.0
        both = np.where(known, moved_load, 0.0)
        kept = np.exp(-tick_seconds / SLOPE_SECONDS)
        for name, products in (("with_load", moved * both), ("spread", both * both)):
            s[name][others] = kept * s[name][others] + products.sum(axis=1)
        gain = min(1.0, tick_seconds / USUAL_SECONDS)
        here = np.isfinite(away)
        s["usual"][others] = follow(usual, np.where(here, away, 0.0), gain, here, False)
        here = np.isfinite(load)[None]
        own = s["usual_load"][None]
        s["usual_load"] = follow(own, np.where(here, load, 0.0), gain, here, False)[0]


def _apart(x: Array) -> Array:
    """Logarithmic distances from the middle row, ``[M, R]``; NaN where not above 0."""
    logs = np.log(np.where(x > 0, x, np.nan))
    return np.asarray(logs - median(logs, counts(np.isfinite(logs)))[:, None])
