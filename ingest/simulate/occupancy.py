"""How long each worker was in each phase up to given instants, and how much work it did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.simulate.phases import STEP_PHASES, Carrier, Phase
from ingest.simulate.timeline import Steps

FloatArray = NDArray[np.float64]

_CARRIER = {
    Phase.LOAD: Carrier.LOAD,
    Phase.COMPUTE: Carrier.COMPUTE,
    Phase.COLLECTIVE: Carrier.COLLECTIVE,
}


@dataclass(frozen=True, slots=True)
class Stopped:
    """When workers cease to take part, ``[R]``, and where they are then.

    ``stays`` holds (workers, phase, from, until): the time after a stop, until the job halts
    (``halt``, ``[R]``), belongs to that phase; after the halt everybody is idle.
    """

    at: FloatArray
    halt: FloatArray
    stays: list[tuple[NDArray[np.int64], Phase, float, float]]


def cumulative(
    steps: Steps, at: FloatArray, stopped: Stopped
) -> tuple[dict[Phase, FloatArray], FloatArray]:
    """Totals up to ``at`` (``[T, R]`` seconds): time in phases, and progress of carriers.

    Returns ``{phase: [T, R]}`` and ``[carrier, T, R]`` in units of steps. Cost: a binary search
    and two gathers a phase for each instant, whatever the number of steps.
    """
    ticks, workers = at.shape
    active = np.minimum(at, np.minimum(stopped.at, stopped.halt))
    index = np.searchsorted(steps.start, active.ravel(), side="right").reshape(at.shape) - 1
    index = np.clip(index, 0, len(steps.start) - 2)
    elapsed = active - steps.start[index]
    column = np.arange(workers)
    flat = index * workers + column
    done = (steps.first + index).astype(np.float64)
    progress = np.empty((len(Carrier), ticks, workers))
    # What goes on beside the step (the next batch is read ahead) takes its usual time, however
    # long this step turns out to be.
    progress[Carrier.STEP] = done + np.clip(elapsed / steps.ahead_s, 0.0, 1.0)
    spent: dict[Phase, FloatArray] = {}
    left = elapsed
    for phase in STEP_PHASES:
        before = steps.before[phase]
        if phase not in steps.spent:
            if before.any():
                spent[phase] = np.broadcast_to(before, at.shape)
            continue
        duration = steps.spent[phase]
        # Sums run from the window's start in step order: how it is cut changes no bit.
        totals = np.add.accumulate(
            np.concatenate((before[None], np.broadcast_to(duration, (len(duration), workers)))),
            axis=0,
        )[:-1]
        lasts = duration[index, 0] if duration.shape[1] == 1 else duration.ravel().take(flat)
        inside = np.clip(left, 0.0, lasts)
        spent[phase] = totals.ravel().take(flat) + inside
        if phase in _CARRIER:
            whole = lasts
            for step, planned in steps.planned.items():
                whole = np.where(index == step - steps.first, planned[phase], whole)
            positive = whole > 0
            share = np.where(positive, inside / np.where(positive, whole, 1.0), left >= 0)
            share = np.minimum(share, 1.0)
            progress[_CARRIER[phase]] = done + share
        left = left - lasts
    if not np.isfinite(steps.start[-1]):  # after a collective that broke off all wait
        stuck = index == len(steps.start) - 2
        spent[Phase.WAIT] = spent[Phase.WAIT] + np.where(stuck, np.maximum(left, 0.0), 0.0)
    _after_stop(spent, at, stopped)
    return spent, progress


def _after_stop(spent: dict[Phase, FloatArray], at: FloatArray, stopped: Stopped) -> None:
    def add(phase: Phase, who: NDArray[np.int64], seconds: FloatArray) -> None:
        if not seconds.any():
            return
        have = spent.get(phase)
        total = np.zeros(at.shape) if have is None else np.array(have)
        total[:, who] += seconds
        spent[phase] = total

    for who, phase, begin, end in stopped.stays:
        add(
            phase, who, np.clip(at[:, who] - begin, 0.0, np.minimum(end, stopped.halt[who]) - begin)
        )
    everyone = np.arange(at.shape[1])
    add(Phase.IDLE, everyone, np.maximum(at - stopped.halt, 0.0))
