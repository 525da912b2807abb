"""How much new evidence counts in what the job, or a machine, is doing just now: 0.15 to 1.5.

Start-up, evaluation and checkpoints are the healthy times in which single machines differ most.
Every discount has an end: a phase that lasts too long is no excuse any more. Only a job that is
over, whose machines all rest, stays discounted until it works again.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from detect.phase import LATE_SECONDS, RESTART_SECONDS, JobPhase
from detect.state import PanelState

STARTING = 0.3
ASIDE = 0.15
FIRST_IDLE = (0.5, 0.6)
LATER_IDLE = 0.9
LATE_FIRST_IDLE = 0.7
BLIND, BY_POWER = 0.6, 0.85
"""Where nothing shows what the job does, or its power alone."""
SLOWER = 1.5
STALLED = 1.5
GONE = 1.5
NEEDLESS = 0.3
NEEDLESS_SECONDS, NEEDLESS_FOR_GOOD_SECONDS = 45.0, 120.0
"""So long, while it goes on and while it stands still, the job has done without who rests."""
MOST_NEEDLESS_SECONDS, JOINS = 180.0, 5.0
"""It is kept up to so long, and one second of work takes back so many."""
FIRST_SAVES = 0.7
FIRST_PATIENCE_SECONDS = 120.0
"""The first machine saves and evaluates for all, as a rule, and the others wait for it."""
WRITING = 0.2
WRITING_LIMIT_SECONDS = 150.0
WRITING_Z = 3.0
WRITES_LITTLE_Z = 1.0
WRITES = frozenset(
    {"disk_write_bytes_per_second", "tcp_tx_bytes_per_second", "pcie_tx_bytes_per_second"}
)
"""What saving state shows in: it leaves the GPUs, then the machine."""


class Work(Protocol):
    """What the machines' GPUs do, ``bool [N]`` each."""

    @property
    def rests(self) -> NDArray[np.bool_]:
        """Next to nothing of what the peers' do."""

    @property
    def works(self) -> NDArray[np.bool_]:
        """Visibly something."""

    @property
    def worked(self) -> NDArray[np.bool_]:
        """Of those that rest: more, once."""

    @property
    def aside(self) -> NDArray[np.bool_]:
        """There are none, where most machines have some."""


class Signs(Protocol):
    """What the machines' own values say of them, ``bool [N]`` each."""

    @property
    def writing(self) -> NDArray[np.bool_]:
        """Writes much more than its peers."""

    @property
    def writes_little(self) -> NDArray[np.bool_]:
        """Visibly writes no more than its peers."""

    @property
    def gone(self) -> NDArray[np.bool_]:
        """Has lost the job's process."""

    @property
    def work(self) -> Work:
        """Who takes part in the job."""

    @property
    def dark(self) -> NDArray[np.bool_]:
        """Misses much of what it used to send."""

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Visibly has it."""


class Trust:
    """Weight of new evidence per machine, in 0..1.5."""

    def __init__(self) -> None:
        self.state = PanelState()
        self.state.add("writing", "r", 0.0)
        self.state.add("needless", "r", 0.0)
        self.state.add("spare", "r", False, dtype=np.bool_)
        self.state.add("rested", "r", False, dtype=np.bool_)
        self.state.add("apart", "r", False, dtype=np.bool_)
        self.joined: NDArray[np.bool_] = np.zeros(0, np.bool_)
        """Who of those that the job did without has begun to work, ``bool [N]``."""
        self._first: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def reindex(self, machines: tuple[str, ...]) -> None:
        """Follow the roster."""
        self.state.reindex((), machines)
        first = min(machines, key=_natural, default="")
        self._first = np.array([m == first for m in machines], np.bool_)

    def step(self, phase: JobPhase, signs: Signs, tick_seconds: float) -> NDArray[np.float64]:
        """``[N]`` from the phase, from which machines write much more than their peers, and from
        which seem to have lost the job's process.

        A machine that writes while the others stand still is saving a checkpoint; one that has
        lost its process, or visibly writes nothing, is not.
        """
        seconds = self.state["writing"]
        now = signs.writing & (phase.low_seconds > 0)
        if now.any() or seconds.any():
            seconds = np.where(now, seconds + tick_seconds, np.maximum(seconds - tick_seconds, 0.0))
            self.state["writing"] = seconds
        name = phase.name
        general = STARTING if name == "starting" else phase.past
        if name == "running" and phase.moment.held_up:
            # Somebody holds it up; who is odd now is more likely to.
            general *= SLOWER
        if phase.blind:
            general *= BY_POWER if phase.metered else BLIND
        trust = general * self._at_rest(phase, signs)
        excused = (seconds > 0) & (seconds < WRITING_LIMIT_SECONDS)
        trust = np.where(excused, np.minimum(WRITING, trust), trust)
        if name in ("running", "starting") and not phase.moment.held_up:
            # Its exporters are at fault while the job goes on: so may be what is left of them.
            trust = np.where(signs.dark, ASIDE * trust, trust)
        trust = self._without_the_needless(trust, phase, signs.work, tick_seconds)
        # Who has no GPUs where the others have is compared with nobody; its silence still tells.
        trust = np.where(signs.work.aside, 0.0, trust)
        if name == "over" or phase.gathers:
            # Nobody has a process, or not everybody has one yet.
            return trust
        gone = signs.gone & (trust > 0)
        return np.where(gone, np.maximum(GONE, trust), trust)

    def _without_the_needless(
        self, trust: NDArray[np.float64], phase: JobPhase, work: Work, seconds: float
    ) -> NDArray[np.float64]:
        """``trust`` ``[N]``, little in a machine that rests while the job goes on, and none once it
        has done so for a while: a spare, a data host, one that the job runs on without.

        In synchronous training nothing goes on for longer than a step without a machine. One
        that stops while the others work is another matter.
        """
        s, rests = self.state, work.rests
        self.joined = np.zeros(rests.size, np.bool_)
        if not any(one.any() for one in (rests, s["rested"], s["needless"], s["spare"])):
            return trust
        if phase.over_seconds >= RESTART_SECONDS:
            # Whom it needs when it starts anew is not known yet.
            s["needless"].fill(0.0)
        needless, spare = s["needless"], s["spare"]
        stops = rests & ~s["rested"] & phase.long_back
        s["apart"] = rests & ((s["apart"] | ~s["rested"]) & ~stops | ~work.worked)
        s["rested"] = rests.copy()
        now = rests & s["apart"] & phase.at_pace
        back = work.works & phase.at_pace
        needless = np.where(now, needless + seconds, needless - JOINS * seconds * back)
        s["needless"] = needless = np.clip(needless, 0.0, MOST_NEEDLESS_SECONDS)
        spare |= needless >= NEEDLESS_FOR_GOOD_SECONDS
        self.joined = spare & back & (needless == 0)
        spare &= ~self.joined
        trust = np.where(now & (needless > 0), NEEDLESS * trust, trust)
        limit = NEEDLESS_SECONDS if phase.low_seconds == 0 else NEEDLESS_FOR_GOOD_SECONDS
        return np.where(needless >= limit, 0.0, trust)

    def _at_rest(self, phase: JobPhase, signs: Signs) -> NDArray[np.float64]:
        """``[N]``: less than 1 while the job rests or evaluates, more than 1 when it stalls."""
        name, machines = phase.name, self._first.size
        if name in ("evaluating", "over"):
            # Peers that work without talking, or rest without waiting, do not need the odd one.
            return np.full(machines, ASIDE)
        if name == "idle":
            # How this job saves its state is not known at first.
            seen = phase.idle_seen
            idle = FIRST_IDLE[seen] if seen < len(FIRST_IDLE) else LATER_IDLE
            if seen == 0 and phase.run_seconds >= LATE_SECONDS:
                # Who saves state does so sooner, as a rule.
                idle = LATE_FIRST_IDLE
            trust = np.where(signs.alive & ~signs.writes_little, idle * idle, idle)
            return trust * np.where(self._first, FIRST_SAVES, 1.0)
        if name == "stalled":
            # Longer than a checkpoint: the job waits for somebody.
            patient = self._first & (phase.low_seconds < FIRST_PATIENCE_SECONDS)
            return np.where(patient, 1.0, STALLED)
        return np.ones(machines)


@lru_cache(maxsize=20_000)
def _natural(name: str) -> list[tuple[int, str]]:
    """Order by the numbers in a name, longer ones later, and not by their first digits."""
    parts = re.split(r"([0-9]+)", name)
    numbers = [part.lstrip("0") for part in parts[1::2]]
    return [
        (len(numbers[i // 2]), numbers[i // 2]) if i % 2 else (-1, part)
        for i, part in enumerate(parts)
    ]
