"""How fast machines work over time, and when a piece of work is done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.simulate.effects import Slow, Stop
from ingest.simulate.phases import Group
from ingest.simulate.shapes import FloatArray
from ingest.simulate.workers import Workers

BEFORE_S = -10_000.0
"""A time before every recording."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Piecewise constant slowdowns of the affected workers.

    ``slow[group, b, a]`` is the slowdown (1 = nominal, inf = stopped) of worker ``workers[a]``
    from ``times[b]`` on; ``done[group, b, a]`` the nominal seconds of work it could have done
    between ``times[0]`` and ``times[b]``.
    """

    workers: NDArray[np.int64]
    times: FloatArray
    slow: FloatArray
    done: FloatArray

    def segment(self, at: float) -> tuple[int, float]:
        """The segment at a time, and when it ends (inf for the last)."""
        index = int(np.searchsorted(self.times, at, side="right")) - 1
        end = float(self.times[index + 1]) if index + 1 < len(self.times) else float("inf")
        return index, end

    def stops_s(self, group: Group) -> float:
        """When the first of them stops for good (inf if nobody does)."""
        stopped = np.isinf(self.slow[group]).any(axis=1)
        return float(self.times[int(stopped.argmax())]) if stopped.any() else float("inf")

    def slow_at(self, group: Group, at: FloatArray) -> FloatArray:
        """Each affected worker's slowdown at a time (``[A]``, or one for all)."""
        index = np.maximum(np.searchsorted(self.times, at, side="right") - 1, 0)
        now: FloatArray = self.slow[group][index, np.arange(len(self.workers))]
        return now

    def finish(self, group: Group, begin: FloatArray, work: FloatArray) -> FloatArray:
        """When each affected worker has done ``work`` nominal seconds begun at ``begin``."""
        columns = np.arange(len(self.workers))
        slow = self.slow[group]
        done = self.done[group]
        index = np.maximum(np.searchsorted(self.times, begin, side="right") - 1, 0)
        arrives = np.isfinite(begin)
        since = np.where(arrives, begin - self.times[index], 0.0)
        goal = done[index, columns] + since / slow[index, columns] + work
        last = np.add.reduce((done <= goal).astype(np.int64), axis=0) - 1
        # Work that ends exactly where the speed changes may not fall before its own begin.
        last = np.maximum(last, index)
        rest = goal - done[last, columns]
        pace = slow[last, columns]
        with np.errstate(invalid="ignore"):
            span = np.where(rest > 0, rest * pace, 0.0)
        end: FloatArray = np.where(arrives, self.times[last] + span, np.inf)
        return np.maximum(end, begin)


def build_pace(slows: list[Slow], stops: list[Stop], workers: Workers) -> Pace | None:
    """The combined pace of all events; None when everybody works at nominal speed."""
    entries: list[tuple[NDArray[np.int64], list[Group], list[float], list[float]]] = []
    for event in slows:
        stairs, values = event.shape.stairs()
        factors = [1.0 + (event.factor - 1.0) * v for v in values]
        affected = workers.of(event.machines, event.gpu)
        entries.append((affected, [event.group], stairs, factors))
    for stop in stops:
        affected = workers.of(stop.machines, stop.gpu)
        entries.append((affected, list(Group), [stop.at_s], [float("inf")]))
    if not entries:
        return None
    ids = np.unique(np.concatenate([e[0] for e in entries]))
    changes = sorted({BEFORE_S, *(t for e in entries for t in e[2])})
    times = np.asarray(changes)
    slow = np.ones((len(Group), len(times), len(ids)))
    for affected, groups, at_s, factors in entries:
        columns = np.searchsorted(ids, affected)
        index = np.searchsorted(np.asarray(at_s), times, side="right") - 1
        factor = np.where(index >= 0, np.asarray(factors)[np.maximum(index, 0)], 1.0)
        for group in groups:
            slow[group][:, columns] *= factor[:, None]
    spans = np.diff(times)[None, :, None] / slow[:, :-1]
    zero = np.zeros((len(Group), 1, len(ids)))
    done = np.concatenate((zero, np.add.accumulate(spans, axis=1)), axis=1)
    return Pace(workers=ids, times=times, slow=slow, done=done)
