"""The seam between aligned ticks and verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from detect.alert import AlertChange
from ingest.ticks import TickBlock

State = dict[str, Any]
"""A detector's or aligner's state: str keys; values are None, bool, int, float, str, NumPy
arrays, or lists/dicts of those. `detect.snapshot` writes and reads it; never pickle."""


@dataclass(frozen=True, slots=True)
class ScoreFrame:
    """Scores of every machine at some ticks, for the heat map.

    ``scores`` is ``float32 [machine, time]``: the share of the alarm threshold reached,
    0 = healthy, 1 = alarm, above 1 = beyond; NaN = no data. Tick *k* starts at
    ``start_ns + k*tick_ns``.
    """

    start_ns: int
    tick_ns: int
    machines: tuple[str, ...]
    scores: NDArray[np.float32]
    phase: str


class JobDetector(Protocol):
    """Judges one job. The pipeline calls `update` with closed ticks in order, from one thread.

    A detector keeps bounded memory, never reads a clock, never changes its input, and its
    output does not depend on how ticks are cut into blocks, nor on the order of machines.
    """

    def update(self, block: TickBlock) -> list[AlertChange]:
        """Take in closed ticks; return what changed, in event-time order."""
        ...

    def finish(self, at_ns: int) -> list[AlertChange]:
        """The job's run has ended: resolve what is open, forget the run."""
        ...

    def take_scores(self) -> list[ScoreFrame]:
        """Scores since the last call (bounded: the oldest are dropped)."""
        ...

    def snapshot(self) -> State:
        """Everything needed to continue exactly as if never interrupted."""
        ...

    def restore(self, state: State) -> None:
        """Continue from `snapshot`; raises ValueError for another version's state."""
        ...
