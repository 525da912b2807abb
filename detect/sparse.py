"""Candidates that last, found without scoring every tick.

A detector with a continuity acts on runs of at least so many ticks. A run that long covers one
of any ticks that lie closer together: where none of those has a candidate, nothing between them
can matter. So a scorer is asked at wide steps first, and between only where a run may still be
long enough (the idea of Boyer & Moore's string search, *CACM* 20, 1977). The alerts are exactly
those of the full scores; most scores are never computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from detect.detector import State
from detect.scoring import BoundsItself, TickScorer, TickScores, TickValues, ticks_at_once

_UNKNOWN, _NOBODY = -2, -1


class AskedScorer(TickScorer, Protocol):
    """A `TickScorer` that names at most one candidate a tick and channel, at ticks of choice."""

    def score_at(self, ticks: TickValues, channel: int, at: NDArray[np.int64]) -> TickScores:
        """Scores ``[K, 1, N]`` of one channel at the ``at`` ``[K]`` -th ticks to score."""
        ...


class SparseScorer(BoundsItself):
    """A `detect.scoring.TickScorer` that tells lasting candidates only.

    ``hits`` of runs of at least ``least`` ticks are those of the inner scorer, and so are their
    ``shares``; runs at either end of a call, which may go on in another one, are told too. All
    other hits are False, and shares NaN where they were not computed.

    Parameters
    ----------
    scorer
        The inner scorer.
    least
        The fewest ticks in a row that matter, by the cadence in nanoseconds.
    joined
        Whether runs go on from one call to the next; False where every call stands alone.
    """

    def __init__(
        self, scorer: AskedScorer, least: Callable[[int], int], *, joined: bool = True
    ) -> None:
        self.scorer = scorer
        self.least = least
        self.joined = joined
        self.name = scorer.name
        self.history = scorer.history
        self.ordered = scorer.ordered

    def select(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """As the inner scorer."""
        return self.scorer.select(available)

    def channels(self, metrics: tuple[str, ...]) -> tuple[str, ...]:
        """As the inner scorer."""
        return self.scorer.channels(metrics)

    def score(self, ticks: TickValues) -> TickScores:
        """Scores and candidates of what lasts."""
        count = max(len(ticks.values) - self.history, 0)
        shape = (count, len(self.channels(ticks.metrics)), len(ticks.machines))
        out = TickScores(np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_))
        if count and shape[2]:
            for channel in range(shape[1]):
                self._search(ticks, channel, out)
        return out

    def _search(self, ticks: TickValues, channel: int, out: TickScores) -> None:
        """Fill one channel of ``out``."""
        count = len(out.hits)
        step = least = max(1, self.least(ticks.tick_ns))
        who = np.full(count, _UNKNOWN, dtype=np.int64)
        at = np.unique(np.append(np.arange(0, count, step), count - 1))
        while True:
            self._ask(ticks, channel, at, who, out.shares)
            inside = _lasting(who, least, self.joined)
            if step == 1:
                break
            step = (step + 1) // 2
            at = np.flatnonzero(inside & (who == _UNKNOWN))
            at = at[at % step == 0]
        kept = np.flatnonzero(inside)
        out.hits[kept, channel, who[kept]] = True

    def _ask(
        self,
        ticks: TickValues,
        channel: int,
        at: NDArray[np.int64],
        who: NDArray[np.int64],
        shares: NDArray[np.float64],
    ) -> None:
        """Candidates and shares of single ticks, in pieces of bounded memory."""
        piece = ticks_at_once(ticks, self.history)
        for start in range(0, len(at), piece):
            some = at[start : start + piece]
            found = self.scorer.score_at(ticks, channel, some)
            shares[some, channel] = found.shares[:, 0]
            hits = found.hits[:, 0]
            who[some] = np.where(hits.any(axis=1), hits.argmax(axis=1), _NOBODY)

    def snapshot(self) -> State:
        """As the inner scorer."""
        return self.scorer.snapshot()

    def restore(self, state: State) -> None:
        """As the inner scorer."""
        self.scorer.restore(state)


def _lasting(who: NDArray[np.int64], least: int, joined: bool) -> NDArray[np.bool_]:
    """Ticks that may belong to a run of one candidate of at least ``least`` ticks.

    Neighbours among the known ticks that agree are one stretch, with all that may belong to it
    on both sides. ``joined``: a stretch at either end has no bound there.
    """
    at = np.flatnonzero(who != _UNKNOWN)
    names = who[at]
    starts = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    ends = np.append(starts[1:], len(names))
    low = np.where(starts == 0, 0, at[starts - 1] + 1)
    high = np.where(ends == len(names), len(who), at[np.minimum(ends, len(at) - 1)])
    long = high - low >= least
    if joined:
        long[0] = long[-1] = True
    long &= names[starts] >= 0
    edges = np.zeros(len(who) + 1, dtype=np.int64)
    np.add.at(edges, low[long], 1)
    np.add.at(edges, high[long], -1)
    inside: NDArray[np.bool_] = np.cumsum(edges[:-1]) > 0
    return inside
