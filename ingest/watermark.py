"""How far a job's event time has come, by what a quorum of its machines says.

No clock is read. The frontier is the median of what the active machines last stamped, so one
machine whose clock is hours ahead cannot close ticks for the others. A machine is active while
it keeps up with the others' progress, so machines that stopped cannot hold the rest: progress
is measured as the largest sum of (bounded) steps that any machine has made, which passes like
wall time whatever the order and size of the batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FAR_PAST = -(2**62)

TAKEN_BACK_NS = 60_000_000_000
"""A machine that goes back by more had stamped something wrong before."""


class Quorum:
    """Event-time progress of the machines of one job, indexed by small machine codes.

    ``frontier_ns`` is None before the first sample.
    """

    def __init__(self) -> None:
        self.frontier_ns: int | None = None
        self._progress = 0
        self._known = np.zeros(0, dtype=np.bool_)
        self._claim = np.zeros(0, dtype=np.int64)
        self._best = np.zeros(0, dtype=np.int64)
        self._clock = np.zeros(0, dtype=np.int64)
        self._heard = np.zeros(0, dtype=np.int64)

    def step(
        self, machine: NDArray[np.int64], ts: NDArray[np.int64], *, cap_ns: int, stalled_ns: int
    ) -> NDArray[np.int64]:
        """Take in rows that arrived together; return the claims of the machines still active.

        ``cap_ns`` bounds the progress that one step may prove; a machine silent for
        ``stalled_ns`` of the others' progress no longer counts.
        """
        self._grow(int(machine.max()) + 1)
        came = np.zeros(self._known.size, dtype=np.bool_)
        came[machine] = True
        seen = np.flatnonzero(came)
        before = self._best[seen]
        self._claim[seen] = FAR_PAST
        np.maximum.at(self._claim, machine, ts)
        claim = self._claim[seen]
        step = claim - before
        # New machines start here; a stamp far ahead that its machine took back proves nothing.
        anew = ~self._known[seen] | (step < -TAKEN_BACK_NS)
        step[anew] = 0
        self._best[seen] = np.where(anew, claim, np.maximum(before, claim))
        clock = self._clock[seen] + np.minimum(np.maximum(step, 0), cap_ns)
        clock[~self._known[seen]] = self._progress
        self._progress = max(self._progress, int(clock.max()))
        self._clock[seen] = np.maximum(clock, self._progress - cap_ns)
        self._heard[seen] = self._progress
        self._known[seen] = True
        return self._claim[self._known & (self._heard >= self._progress - stalled_ns)]

    def reach(self, frontier_ns: int, *, binding: bool) -> None:
        """Move the frontier; never back once it is binding, that is once ticks were closed."""
        if self.frontier_ns is None or not binding or frontier_ns > self.frontier_ns:
            self.frontier_ns = frontier_ns

    def stalled(self, stalled_ns: int) -> NDArray[np.int64]:
        """Codes of known machines silent for ``stalled_ns`` of the others' progress."""
        return np.flatnonzero(self._known & (self._heard < self._progress - stalled_ns))

    def forget(self, machines: NDArray[np.int64]) -> None:
        """Drop machines that left; their codes may be given to others."""
        self._known[machines[machines < self._known.size]] = False

    def snapshot(self) -> dict[str, Any]:
        return {
            "frontier_ns": self.frontier_ns,
            "progress": self._progress,
            "known": self._known.copy(),
            "claim": self._claim.copy(),
            "best": self._best.copy(),
            "clock": self._clock.copy(),
            "heard": self._heard.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.frontier_ns = state["frontier_ns"]
        self._progress = state["progress"]
        self._known = state["known"].copy()
        self._claim = state["claim"].copy()
        self._best = state["best"].copy()
        self._clock = state["clock"].copy()
        self._heard = state["heard"].copy()

    def _grow(self, size: int) -> None:
        have = self._known.size
        if size <= have:
            return
        more = max(size, 2 * have, 16) - have
        self._known = np.concatenate([self._known, np.zeros(more, dtype=np.bool_)])
        for name in ("_claim", "_best", "_clock", "_heard"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(more, dtype=np.int64)]))


def median_claim(claims: NDArray[np.int64]) -> int:
    """The lower median: at least half of the active machines have reached it."""
    middle = (claims.size - 1) // 2
    return int(np.partition(claims, middle)[middle])


class Lag:
    """How far behind the frontier rows come in, of late.

    Agents that send ten seconds at once, or a clock that is some seconds behind, are no fault:
    ticks wait for them, within a limit. What is remembered is the largest lag in the current and
    the last span of event time, so that waiting ends when its reason does.
    """

    def __init__(self) -> None:
        self._largest = [0, 0]
        self._since: int | None = None

    @property
    def ns(self) -> int:
        """The largest lag of late."""
        return max(self._largest)

    def note(self, frontier_ns: int, ts: NDArray[np.int64], *, limit_ns: int, span_ns: int) -> None:
        """Rows of times ``ts`` came in; those more than ``limit_ns`` behind are not waited for."""
        if self._since is None or frontier_ns - self._since > span_ns:
            self._since = frontier_ns
            self._largest = [0, self._largest[0]]
        if int(ts.min()) < frontier_ns - self._largest[0]:
            behind = frontier_ns - ts
            self._largest[0] = max(self._largest[0], int(behind[behind <= limit_ns].max(initial=0)))

    def snapshot(self) -> dict[str, Any]:
        return {"largest": list(self._largest), "since": self._since}

    def restore(self, state: dict[str, Any]) -> None:
        self._largest = list(state["largest"])
        self._since = state["since"]
