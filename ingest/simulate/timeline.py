"""Steps of synchronous training: everybody works, waits for the slowest, and communicates.

A step starts for all machines at the same moment (the last collective's end). Between changes
of anybody's speed, whole runs of steps are computed as arrays; a step during which a speed
changes is computed by itself, exactly. Which steps exist never depends on how far ahead was
asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.simulate.cluster import Cluster
from ingest.simulate.effects import Slow, Stop
from ingest.simulate.habits import Habits
from ingest.simulate.pace import Pace, build_pace
from ingest.simulate.phases import Group, Phase
from ingest.simulate.spec import JobSpec
from ingest.simulate.step_luck import BLOCK, StepLuck
from ingest.simulate.workers import Workers

FloatArray = NDArray[np.float64]
_BEFORE_WAIT = (
    Phase.IDLE,
    Phase.INIT,
    Phase.CHECKPOINT,
    Phase.EVALUATE,
    Phase.OPTIMISE,
    Phase.LOAD,
    Phase.STALL,
    Phase.COMPUTE,
)


Plan = dict[Phase, FloatArray]


@dataclass(slots=True)
class Steps:
    """A run of consecutive steps.

    ``start`` is ``[K+1]`` (the last entry is the end, inf in a stall that never ends);
    ``spent`` maps a phase to durations ``[K, R]`` (``[K, 1]`` when equal for all), phases that
    do not occur are absent; ``before`` is ``[phase, R]``, the time spent in each phase before
    the run; ``first`` the index of the first step. Reading the next batch ahead takes
    ``ahead_s``. ``planned`` has, for steps in which a speed changes, how long load, compute and
    collective would have lasted at the speed they began with (``[R]`` or a number): by that
    measure bytes move, so that they do not know the future.
    """

    first: int
    start: FloatArray
    spent: dict[Phase, FloatArray]
    before: FloatArray
    ahead_s: float
    planned: dict[int, Plan]


class Timeline:
    """The job's steps from the beginning, as far as they were asked for."""

    def __init__(self, spec: JobSpec, cluster: Cluster, workers: Workers, seed: int) -> None:
        self._spec = spec
        self._cluster = cluster
        self._workers = workers
        self._habits = Habits(spec, workers, seed)
        self._pace: Pace | None = None
        self._time = self._habits.begin_s
        self._next = 0
        self._first = 0
        self._start: FloatArray = np.asarray([self._time])
        self._spent: dict[Phase, FloatArray] = {}
        self._before: FloatArray = np.zeros((len(Phase), workers.count))
        self._luck = StepLuck(spec, workers, seed)
        step = spec.step
        machine, gpu = workers.machine, np.maximum(workers.gpu, 0)
        self._work: FloatArray = cluster.work[machine]
        if workers.per_gpu:
            self._work[:, 1] *= cluster.gpu_work[machine, gpu]
        self._nominal = step.nominal_s
        self._planned: dict[int, Plan] = {}

    @property
    def time(self) -> float:
        """Where the known steps end."""
        return self._time

    def set_events(self, slows: list[Slow], stops: list[Stop]) -> None:
        """The events that act on speeds from now on (earlier steps stay as they are)."""
        self._pace = build_pace(slows, stops, self._workers)

    def advance(self, until: float, cut: float) -> None:
        """Add steps until one ends after ``until`` or starts at or after ``cut``."""
        starts: list[FloatArray] = [self._start]
        runs: list[dict[Phase, FloatArray]] = [self._spent]
        counts = [len(self._start) - 1]
        while self._time <= until and self._time < cut:
            start, spent = self._run(until, cut)
            self._time = float(start[-1])
            self._next += len(start)
            starts.append(start)
            runs.append(spent)
            counts.append(len(start))
        if len(runs) > 1:
            self._start = np.concatenate(starts)
            self._spent = _join(runs, counts, self._workers.count)

    def forget(self, before: float) -> None:
        """Drop the steps that ended before a time."""
        drop = int(np.searchsorted(self._start[1:], before, side="left"))
        if drop <= 0:
            return
        for phase, spent in self._spent.items():
            total = self._before[phase]
            for row in spent[:drop]:
                total = total + row
            self._before[phase] = total
            self._spent[phase] = spent[drop:]
        self._start = self._start[drop:]
        self._first += drop
        self._planned = {k: p for k, p in self._planned.items() if k >= self._first}

    def rewind(self, now: float) -> None:
        """Drop what has not ended by ``now``, so that a new event can act on it."""
        keep = int(np.searchsorted(self._start[1:], now, side="right"))
        self._start = self._start[: keep + 1]
        self._spent = {p: s[:keep] for p, s in self._spent.items()}
        self._time = float(self._start[-1])
        self._next = self._first + keep
        self._planned = {k: p for k, p in self._planned.items() if k < self._next}

    def add_worker(self, parent: int) -> None:
        """A worker was split off ``parent``: it has lived the same life so far."""
        self._before = np.concatenate((self._before, self._before[:, [parent]]), axis=1)
        self._work = np.concatenate((self._work, self._work[[parent]]))
        for phase, spent in self._spent.items():
            if spent.shape[1] > 1:
                self._spent[phase] = np.concatenate((spent, spent[:, [parent]]), axis=1)
        for plan in self._planned.values():
            for phase, seconds in plan.items():
                if len(seconds) > 1:
                    plan[phase] = np.append(seconds, seconds[parent])

    def steps(self) -> Steps:
        """The known steps that were not forgotten."""
        ahead = 0.85 * self._nominal
        return Steps(self._first, self._start, self._spent, self._before, ahead, self._planned)

    def arrival_s(self) -> FloatArray:
        """Nominal seconds from a step's start until each worker reaches the barrier."""
        step = self._spec.step
        return (
            self._work[:, 0] * step.load_s
            + self._work[:, 1] * step.compute_s
            + self._work[:, 2] * step.optimise_s
        )

    def _run(self, until: float, cut: float) -> tuple[FloatArray, dict[Phase, FloatArray]]:
        """At least one more step: the ends of the steps and the time spent in phases."""
        ahead = math.ceil((min(until, cut) - self._time) / self._nominal) + 1
        count = max(1, min(BLOCK - self._next % BLOCK, ahead))
        pace = self._pace
        if pace is None:
            start, spent = self._uniform(self._nominal_work(count), None, 0)
            end = float("inf")
        else:
            segment, end = pace.segment(self._time)
            if not np.isfinite(pace.slow[:, segment]).all():
                return self._exact(pace)
            start, spent = self._uniform(self._nominal_work(count), pace, segment)
        # Steps that a change of speed would touch are not valid; neither are those that
        # start after the cut, where the list of events is renewed.
        valid = int(np.searchsorted(start, end, side="right"))
        begins = np.concatenate(([self._time], start[:-1]))
        valid = min(valid, int(np.searchsorted(begins, cut, side="left")))
        if valid == 0:
            assert pace is not None
            return self._exact(pace)
        return start[:valid], {p: s[:valid] for p, s in spent.items()}

    def _uniform(
        self, work: dict[Phase, FloatArray], pace: Pace | None, segment: int
    ) -> tuple[FloatArray, dict[Phase, FloatArray]]:
        """Steps at constant speeds."""
        collective = work[Phase.COLLECTIVE]
        if pace is not None:
            slow = pace.slow[:, segment]
            for group, phase in ((Group.LOAD, Phase.LOAD), (Group.COMPUTE, Phase.COMPUTE)):
                work[phase][:, pace.workers] *= slow[group]
            collective = collective * max(1.0, float(slow[Group.COLLECTIVE].max()))
        arrival: FloatArray | None = None
        for phase in _BEFORE_WAIT:
            if phase in work:
                arrival = work[phase] if arrival is None else arrival + work[phase]
        assert arrival is not None
        ready = arrival.max(axis=1)
        work[Phase.WAIT] = ready[:, None] - arrival
        work[Phase.COLLECTIVE] = collective
        ends = np.add.accumulate(np.concatenate(([self._time], ready + collective[:, 0])))[1:]
        return ends, work

    def _exact(self, pace: Pace) -> tuple[FloatArray, dict[Phase, FloatArray]]:
        """One step during which speeds change, or which never ends."""
        work = self._nominal_work(1)
        plan = {p: work[p][0].copy() for p in (Phase.LOAD, Phase.COMPUTE, Phase.COLLECTIVE)}
        self._planned[self._next] = plan
        who = pace.workers
        at = np.full(self._workers.count, self._time)
        for phase in _BEFORE_WAIT:
            if phase not in work:
                continue
            begin = at
            at = begin + work[phase][0]
            if phase in (Phase.LOAD, Phase.COMPUTE):
                group = Group.LOAD if phase is Phase.LOAD else Group.COMPUTE
                with np.errstate(invalid="ignore"):
                    plan[phase][who] *= pace.slow_at(group, begin[who])
                at[who] = pace.finish(group, begin[who], work[phase][0, who])
            with np.errstate(invalid="ignore"):
                work[phase] = np.where(np.isfinite(begin), at - begin, 0.0)[None]
        ready = float(at.max())
        with np.errstate(invalid="ignore"):
            work[Phase.WAIT] = np.where(np.isfinite(at), ready - at, 0.0)[None]
        end = float("inf")
        if math.isfinite(ready):
            collective = work[Phase.COLLECTIVE][0, 0]
            plan[Phase.COLLECTIVE] *= pace.slow_at(Group.COLLECTIVE, np.asarray([ready])).max()
            slowest = pace.finish(
                Group.COLLECTIVE, np.full(len(who), ready), np.full(len(who), collective)
            )
            end = max(ready + float(collective), float(slowest.max()))
            if math.isfinite(end):
                work[Phase.COLLECTIVE] = np.full((1, 1), end - ready)
            else:
                broken = max(ready, pace.stops_s(Group.COLLECTIVE))
                work[Phase.COLLECTIVE] = np.full((1, 1), broken - ready)
        return np.asarray([end]), work

    def _nominal_work(self, count: int) -> dict[Phase, FloatArray]:
        """Durations at nominal speed of the next ``count`` steps (within one random block)."""
        spec = self._spec.step
        row = self._next % BLOCK
        drawn = self._luck.of_block(self._next // BLOCK)
        rows = slice(row, row + count)
        w = self._work
        twin = self._workers.twin
        whole = len(twin) == self._workers.base
        own, tail, pause = (
            x[rows] if whole else x[rows][:, twin] for x in (drawn.own, drawn.tail, drawn.pause)
        )
        common = drawn.common[rows]
        work = {
            Phase.OPTIMISE: np.broadcast_to(w[:, 2] * spec.optimise_s, own.shape).copy(),
            Phase.LOAD: (w[:, 0] * spec.load_s) * (1 - spec.load_tail + spec.load_tail * tail),
            Phase.COMPUTE: (w[:, 1] * spec.compute_s) * own * common[:, :1],
            Phase.COLLECTIVE: spec.collective_s * common[:, 1:],
        }
        if pause.any():
            work[Phase.STALL] = pause
        self._habits.add_to(work, self._next, count)
        return work


def _join(
    runs: list[dict[Phase, FloatArray]], counts: list[int], workers: int
) -> dict[Phase, FloatArray]:
    """Runs one after the other; a phase that is absent from some lasts 0 there."""
    joined: dict[Phase, FloatArray] = {}
    for phase in sorted({p for run in runs for p in run}):
        width = 1 if phase is Phase.COLLECTIVE else workers
        joined[phase] = np.concatenate(
            [
                run[phase] if phase in run else np.zeros((count, width))
                for run, count in zip(runs, counts, strict=True)
            ]
        )
    return joined
