"""What the whole job is doing: starting, running, evaluating, idle (checkpoint), stalled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.pace import NOTICED_SECONDS, Pace
from detect.state import PanelState

Array = NDArray[np.float64]

START_SECONDS = 120.0
YOUNG = 0.5
YOUNG_SECONDS = 600.0
LOW = 0.3
LOW_POWER = 0.7
SPINNING_POWER = 0.85
SPINNING = 0.97
LEAST_COMPUTE, LEAST_TALK = 0.02, 1e8
"""Activity, and bytes a second, that are work; processes that only start up show less."""
AT_PACE, AT_POWER = 0.45, 0.75
"""Shares of the usual progress, or power, from which the job goes on."""
STALL_SECONDS = 90.0
SHORTEST_STALL_SECONDS = 30.0
LONGER = 1.3
LONGER_THAN_ONE = 2.0
ONE_STALL_SECONDS = 45.0
LATE_SECONDS = 900.0
LATE_STALL_SECONDS = 60.0
LONGEST_FADES = 0.8
EVALUATION_LIMIT_SECONDS = 240.0
SHORTEST_GAP_SECONDS = 10.0
REFERENCE_SECONDS = 600.0
BACK_SECONDS = 18.0
"""So long after a rest the fast mean remembers what the machines did in it."""
LONG_BACK_SECONDS = 60.0
"""So long after a rest all that take part are back at work."""
HELD_UP_SECONDS = 40.0
"""A healthy machine's slow batch holds the others up for half a minute."""
TALKING = frozenset({"nvlink", "network"})
SPINS = frozenset(
    {"gpu_utilization_ratio", "gpu_graphics_engine_active_ratio", "gpu_sm_active_ratio"}
)
"""Metrics that stay high while a machine only waits in a collective."""
HOST = frozenset({"cpu_usage_ratio"})
HELD = frozenset({"memory_usage_ratio", "gpu_memory_used_bytes"})
"""Like the processor, what falls when the job's process is gone."""
RESTART_SECONDS = 20.0
"""A job that was over for so long does not go on: it starts anew."""
GATHER_SECONDS = 30.0
"""Work after a new start before which some may not have joined, for `START_SECONDS` at most."""
OVER = 0.4
"""When spinning is down to this share, and so is a sign of the processes, the job is over."""
STILL_HELD = 0.9
"""Share of the usual memory in use from which the processes are all there, and only wait."""
ASLEEP = 0.005
"""Activity (0..1) of a GPU that nobody uses, where nothing else tells of the processes."""
ASLEEP_POWER = 0.45
"""Share of the usual power, of a job that shows its power only, above which it is not over."""
BURSTS = frozenset({"pfc_tx_packets_per_second", "pfc_rx_packets_per_second"})


@dataclass(frozen=True, slots=True)
class Moment:
    """What the job does just now, as far as it bears on all evidence alike.

    ``rest_seconds``: so long it has rested, ``stalled``: longer than usual. ``back``: it did a
    moment ago, and means still tell of that. ``past``: see `JobPhase.past`. ``slower_seconds``: so
    long it has run slower than it used to, seen ``noticed_seconds`` after it began.
    """

    rest_seconds: float = 0.0
    stalled: bool = False
    back: bool = False
    past: float = 1.0
    slower_seconds: float = 0.0
    noticed_seconds: float = NOTICED_SECONDS

    @property
    def idle(self) -> bool:
        """Whether it rests."""
        return self.rest_seconds > 0

    @property
    def held_up(self) -> bool:
        """Whether it has run slower for longer than by chance."""
        return self.slower_seconds >= HELD_UP_SECONDS


class JobPhase:
    """Follows the peers' centre of the metrics that show progress, as shares of what is usual.

    ``compute``: work on the GPUs (waiting machines spin, so utilisation and SM activity say
    nothing and are left out); ``talk``: traffic between the machines. Either is 1 as usual and
    falls to 0; what a job does not report follows the other.
    """

    def __init__(self, family: Callable[[str], str]) -> None:
        self.family = family
        self.state = PanelState()
        self.state.add("usual", "m", 0.0)
        self.run_seconds = 0.0
        self.low_seconds = 0.0
        self.back_seconds = LONG_BACK_SECONDS
        """Seconds of work since the last rest, two ticks or `LONG_BACK_SECONDS` at most."""
        self.long_back = True
        """Whether all that take part should be back at work since then."""
        self.gap_seconds = 0.0
        self.usual_gap = 0.0
        self.idle_seen = 0
        self.longest_idle = 0.0
        self.compute = 1.0
        self.talk = 1.0
        self.over = False
        self.over_seconds = 0.0
        self.restarted_seconds = START_SECONDS
        """Seconds of work since the last new start."""
        self.since_over_seconds = START_SECONDS
        """Seconds of any kind since the job was last over for so long that it starts anew."""
        self.pace = Pace()
        self.worked = False
        """Whether it has visibly worked yet."""
        self.blind = False
        """Nothing but the power shows whether the job makes progress."""
        self._compute: NDArray[np.int64] = np.zeros(0, np.int64)
        self._talk: NDArray[np.int64] = np.zeros(0, np.int64)
        self._used: NDArray[np.int64] = np.zeros(0, np.int64)
        self._spins = self._active = 0

    def reindex(self, metrics: tuple[str, ...]) -> None:
        """Follow the metrics."""
        self.state.reindex(metrics, ())
        self._configure()

    def _configure(self) -> None:
        metrics = self.state.metrics
        compute = [
            i for i, m in enumerate(metrics) if self.family(m) == "compute" and m not in SPINS
        ]
        talk = [i for i, m in enumerate(metrics) if self.family(m) in TALKING and m not in BURSTS]
        if not compute + talk:
            # Machines without GPUs talk by TCP.
            talk = [i for i, m in enumerate(metrics) if self.family(m) == "tcp"]
        self.blind = not compute + talk
        if self.blind:
            compute = [i for i, m in enumerate(metrics) if self.family(m) == "power"]
        self._compute = np.array(compute, np.int64)
        self._talk = np.array(talk, np.int64)
        spins = [i for i, m in enumerate(metrics) if m in SPINS]
        host = [i for i, m in enumerate(metrics) if m in HOST]
        held = [i for i, m in enumerate(metrics) if m in HELD]
        self._spins, self._active = len(spins), len(spins + host)
        self._used = np.array(compute + talk + spins + host + held, np.int64)

    def step(self, centre: Array, tick_seconds: float) -> None:
        """``centre`` ``[M]``: the peers' fast centre in canonical units (NaN = unknown)."""
        self.run_seconds += tick_seconds
        if not self.metered:
            return
        gain = max(tick_seconds / REFERENCE_SECONDS, tick_seconds / self.run_seconds)
        # The usual level rises at once and falls slowly: an idle phase is no new normal.
        rises, falls = min(1.0, 10 * gain), min(1.0, 0.2 * gain)
        share: list[float] = []
        # A dozen numbers: Python's own arithmetic, which is the same, costs less than calls.
        usuals = self.state["usual"][self._used].tolist()
        now = centre[self._used].tolist()
        for at, c in enumerate(now):
            usual = usuals[at]
            if math.isfinite(c):
                usual += (rises if c > usual else falls) * (c - usual)
                usuals[at] = usual
            share.append(c / usual if math.isfinite(c) and usual > 0 else math.nan)
        self.state["usual"][self._used] = usuals
        n, k = self._compute.size, self._compute.size + self._talk.size
        compute, talk = _middle(share[:n]), _middle(share[n:k])
        works = max(_known(now[:n]), default=0.0) >= LEAST_COMPUTE
        self.worked |= self.blind or works or max(_known(now[n:k]), default=0.0) >= LEAST_TALK
        spins, process = _known(share[k : k + self._spins]), _known(share[k + self._spins :])
        held = _known(share[k + self._active :])
        # Less power for no less activity: they wait.
        active = _known(share[k : k + self._active])
        waiting = max(active, default=0.0) >= SPINNING
        power = compute if self.blind else None
        if power is not None:
            # A machine that only waits draws less, though far from nothing.
            compute = LOW * power / (SPINNING_POWER if waiting else LOW_POWER)
        self.over = bool(spins or process)
        self.over &= max(spins, default=0.0) < OVER
        if process:
            self.over &= min(process) < OVER and max(held, default=0.0) < STILL_HELD
        else:
            # Waiting without spinning looks alike, but a process that lives leaves a trace.
            self.over &= max(_known(now[k : k + self._spins]), default=0.0) < ASLEEP
        if power is not None:
            self.over &= power < ASLEEP_POWER
        self.compute = compute if compute is not None else talk if talk is not None else 1.0
        self.talk = talk if talk is not None else self.compute
        self._follow(tick_seconds)
        if self.name == "running":
            self.pace.step(0.5 * (self.compute + self.talk), tick_seconds)

    @property
    def moment(self) -> Moment:
        """As the last tick left it."""
        name = self.name
        back = name == "running" and self.back_seconds < BACK_SECONDS
        # Less power alone is no less progress.
        slower = 0.0 if self.blind else self.pace.slower_seconds
        return Moment(
            rest_seconds=self.low_seconds,
            stalled=name == "stalled",
            back=back,
            past=self.past,
            slower_seconds=slower,
            noticed_seconds=self.pace.noticed_seconds,
        )

    def _follow(self, tick_seconds: float) -> None:
        low = max(self.compute, self.talk) < LOW
        if (
            not low
            and self.low_seconds >= SHORTEST_GAP_SECONDS
            and self.run_seconds > START_SECONDS
        ):
            self.idle_seen += 1
            self.longest_idle = max(LONGEST_FADES * self.longest_idle, self.low_seconds)
        self.low_seconds = self.low_seconds + tick_seconds if low else 0.0
        self.over_seconds = self.over_seconds + tick_seconds if low and self.over else 0.0
        if self.over_seconds >= RESTART_SECONDS:
            self.restarted_seconds = self.since_over_seconds = 0.0
        elif not low:
            self.restarted_seconds = min(self.restarted_seconds + tick_seconds, START_SECONDS)
        self.since_over_seconds = min(self.since_over_seconds + tick_seconds, START_SECONDS)
        # Steps may rest as well, each time for as long.
        rests = self.low_seconds > self.longest_gap or self.name in ("evaluating", "over")
        most = max(LONG_BACK_SECONDS, 2 * tick_seconds)
        self.long_back = self.back_seconds >= most
        self.back_seconds = 0.0 if rests else min(self.back_seconds + tick_seconds, most)
        if self.talk < LOW:
            self.gap_seconds += tick_seconds
        elif self.gap_seconds:
            # Steps are many, evaluations few: the mean gap is that of the steps.
            self.usual_gap += 0.1 * (self.gap_seconds - self.usual_gap)
            self.gap_seconds = 0.0

    @property
    def longest_gap(self) -> float:
        """Seconds without traffic that may be part of a step."""
        return max(SHORTEST_GAP_SECONDS, 2 * self.usual_gap)

    @property
    def gathers(self) -> bool:
        """Whether, after the job was over, some may not have joined it again yet: it has hardly
        worked, or works without waiting for them.
        """
        if self.low_seconds == 0:
            return self.restarted_seconds < START_SECONDS
        return self.since_over_seconds < START_SECONDS and self.restarted_seconds < GATHER_SECONDS

    @property
    def at_pace(self) -> bool:
        """Whether the job visibly works, about as usual."""
        if self.name not in ("running", "starting") or not self.worked:
            return False
        if self.blind:
            # Machines that wait draw less, if not as little as at rest.
            goes_on = self.compute >= LOW * AT_POWER / LOW_POWER
            return goes_on and self.pace.slower_seconds == 0
        return 0.5 * (self.compute + self.talk) >= AT_PACE

    @property
    def talks(self) -> bool:
        """Whether traffic between the machines is known, so that `gap_seconds` tells of it."""
        return bool(self._talk.size)

    @property
    def metered(self) -> bool:
        """Whether anything, and be it power, shows what the job does."""
        return bool(self._compute.size + self._talk.size)

    @property
    def past(self) -> float:
        """How much a change counts, in 0..1: some minutes are a short past to have changed from."""
        return YOUNG if self.run_seconds < YOUNG_SECONDS else 1.0

    @property
    def name(self) -> str:
        """``starting``, ``running``, ``evaluating``, ``idle``, ``stalled`` or ``over``."""
        if self.run_seconds < START_SECONDS:
            return "starting"
        if self.low_seconds > 0 and self.over:
            return "over"
        if self.restarted_seconds < START_SECONDS:
            return "starting"
        if self.low_seconds > 0:
            return "stalled" if self.low_seconds >= self._patience() else "idle"
        if self.gap_seconds > self.longest_gap and self.gap_seconds < EVALUATION_LIMIT_SECONDS:
            return "evaluating"
        return "running"

    def _patience(self) -> float:
        """Seconds after which resting is a stall: fewer when the job is seen to rest and go on,
        and when it has worked for long without a rest.
        """
        most = STALL_SECONDS if self.run_seconds < LATE_SECONDS else LATE_STALL_SECONDS
        if self.idle_seen == 0:
            return most
        if self.idle_seen == 1:
            usual = LONGER_THAN_ONE * self.longest_idle
            return max(usual, ONE_STALL_SECONDS) if usual < STALL_SECONDS else most
        return min(max(LONGER * self.longest_idle, SHORTEST_STALL_SECONDS), 2 * STALL_SECONDS)

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return {
            "usual": self.state.snapshot(),
            "run_seconds": self.run_seconds,
            "low_seconds": self.low_seconds,
            "back_seconds": self.back_seconds,
            "gap_seconds": self.gap_seconds,
            "usual_gap": self.usual_gap,
            "idle_seen": self.idle_seen,
            "longest_idle": self.longest_idle,
            "compute": self.compute,
            "talk": self.talk,
            "over": self.over,
            "over_seconds": self.over_seconds,
            "restarted_seconds": self.restarted_seconds,
            "since_over_seconds": self.since_over_seconds,
            "worked": self.worked,
            "long_back": self.long_back,
            "pace": self.pace.snapshot(),
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.state.restore(tree["usual"])
        self.pace.restore(tree["pace"])
        for name in tree.keys() - {"usual", "pace"}:
            setattr(self, name, tree[name])
        self._configure()


def _known(share: list[float]) -> list[float]:
    return [one for one in share if math.isfinite(one)]


def _middle(share: list[float]) -> float | None:
    share = sorted(_known(share))
    n = len(share)
    return 0.5 * (share[(n - 1) // 2] + share[n // 2]) if n else None
