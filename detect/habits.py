"""What came, was told and went by itself: told again only when it is worse."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from detect.standing import Standing

HABIT = 1.25
HABIT_LIMIT = 2.5
HABIT_HALF_LIFE_SECONDS = 3600.0
HABITS = 64


class Habits:
    """Per machine, the score that its last such alert reached, and when it ended."""

    def __init__(self) -> None:
        self.past: dict[str, tuple[float, int]] = {}

    def remember(self, machines: Sequence[str], score: float, st: Standing) -> None:
        """An alert on these machines has gone by itself; what has faded is forgotten."""
        for machine, (top, at_ns) in list(self.past.items()):
            # Too faint to count even if fewer machines lowered the threshold by half.
            if _faded(top, at_ns, st.at_ns) < 0.5 * st.threshold:
                del self.past[machine]
        for machine in machines[:HABITS]:
            self.past[machine] = (score, st.at_ns)

    def expect(self, st: Standing, level: NDArray[np.float64]) -> None:
        """Lower ``level`` ``[N]``, in place, by what is usual of each machine."""
        for machine, (top, at_ns) in self.past.items():
            if machine in st.machines:
                faded = _faded(top, at_ns, st.at_ns)
                level[st.machines.index(machine)] /= min(
                    max(1.0, faded / st.threshold), HABIT_LIMIT
                )

    def snapshot(self) -> list[tuple[str, float, int]]:
        """Machine, score, end."""
        return [(machine, top, at_ns) for machine, (top, at_ns) in self.past.items()]

    def restore(self, rows: Sequence[tuple[str, float, int]]) -> None:
        """Inverse of `snapshot`."""
        self.past = {machine: (top, at_ns) for machine, top, at_ns in rows}


def _faded(top: float, at_ns: int, now_ns: int) -> float:
    """What is left of the score of something that went by itself."""
    return HABIT * top * math.exp2(-(now_ns - at_ns) / 1e9 / HABIT_HALF_LIFE_SECONDS)
