"""The seam between the reference detectors: score ticks, and leave alerts to somebody else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from detect.detector import State


@dataclass(frozen=True, slots=True)
class TickValues:
    """Values of the machine panel, time first, gaps filled with the nearest earlier sample.

    Attributes
    ----------
    job
        The job's name.
    start_ns, tick_ns
        Event time of the first tick that is to be scored, and the cadence.
    metrics, machines
        Length M and N; metrics in the scorer's own order.
    values
        ``float64 [H + T, M, N]``: the H ticks of history that the scorer asked for, then the T
        ticks to score. NaN = nothing to fill with.
    """

    job: str
    start_ns: int
    tick_ns: int
    metrics: tuple[str, ...]
    machines: tuple[str, ...]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TickScores:
    """Scores of T ticks in C channels.

    Attributes
    ----------
    shares
        ``float64 [T, C, N]``: share of the threshold reached, 1 = threshold, higher is worse,
        NaN = no data.
    hits
        ``bool [T, C, N]``: the machine is a candidate at this tick.
    """

    shares: NDArray[np.float64]
    hits: NDArray[np.bool_]


class TickScorer(Protocol):
    """Scores ticks. A detector asks it for candidates and applies continuity.

    `score` is called with ticks in order, from one thread. It must not change its input, and
    the scores of a tick must not depend on which other ticks stand in the same call.

    Attributes
    ----------
    name
        Named in the alert's ``model``.
    history
        Ticks before a tick that its score depends on.
    ordered
        True: the first channel with a lasting candidate decides, the others are then not asked.
    """

    name: str
    history: int
    ordered: bool

    def select(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """Which of the job's metrics are used, in which order. Called when they change."""
        ...

    def channels(self, metrics: tuple[str, ...]) -> tuple[str, ...]:
        """Names of the C channels that `score` gives for the selected metrics."""
        ...

    def score(self, ticks: TickValues) -> TickScores:
        """Scores of the T ticks."""
        ...

    def snapshot(self) -> State:
        """What was learned during the job; empty for a scorer without memory."""
        ...

    def restore(self, state: State) -> None:
        """Inverse of `snapshot`."""
        ...


class BoundsItself:
    """Marks a scorer that bounds its own memory: it is given all ticks at once."""


_CHUNK_VALUES = 2_000_000
"""Values scored at once, history windows included: bounds memory whatever the block."""


def ticks_at_once(ticks: TickValues, history: int) -> int:
    """How many ticks, each with its own ``history`` before it, may be scored in one go."""
    size = len(ticks.metrics) * len(ticks.machines) * (history + 1)
    return max(1, _CHUNK_VALUES // max(size, 1))


def score_in_chunks(scorer: TickScorer, ticks: TickValues) -> TickScores:
    """`TickScorer.score` in pieces of bounded memory; how it is cut changes nothing."""
    if isinstance(scorer, BoundsItself):
        return scorer.score(ticks)
    history = scorer.history
    count = max(len(ticks.values) - history, 0)
    step = ticks_at_once(ticks, history)
    parts = [
        scorer.score(
            replace(
                ticks,
                start_ns=ticks.start_ns + at * ticks.tick_ns,
                values=ticks.values[at : min(at + step, count) + history],
            )
        )
        for at in range(0, count, step)
    ]
    if not parts:
        shape = (0, len(scorer.channels(ticks.metrics)), len(ticks.machines))
        return TickScores(np.zeros(shape), np.zeros(shape, dtype=np.bool_))
    return TickScores(
        np.concatenate([p.shares for p in parts]), np.concatenate([p.hits for p in parts])
    )


class Memoryless:
    """The two snapshot methods of a scorer that learns nothing during a job."""

    def snapshot(self) -> State:
        """Nothing."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing; ValueError if there is something to restore."""
        if state:
            raise ValueError("a state of another scorer")


def preferred(wanted: tuple[str, ...], available: tuple[str, ...]) -> tuple[str, ...]:
    """The wanted metrics that the job has, or all of its metrics if it has none of them."""
    return tuple(m for m in wanted if m in available) or available


def best_share(shares: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest share over the channels, ``[N, T]``, as a score frame has it."""
    if not shares.shape[1]:
        return np.full((shares.shape[2], shares.shape[0]), np.nan, dtype=np.float32)
    largest: NDArray[np.float64] = np.fmax.reduce(shares, axis=1)
    return largest.T.astype(np.float32)
