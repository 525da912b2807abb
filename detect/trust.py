"""How much new evidence counts in what the job, or a machine, is doing just now: 0.15 to 1.5.

Start-up, evaluation and checkpoints are the healthy times in which single machines differ most.
Every discount has an end: a phase that lasts too long is no excuse any more. Only a job that is
over, whose machines all rest, stays discounted until it works again.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from detect.phase import LATE_SECONDS, SHORTEST_GAP_SECONDS, JobPhase
from detect.state import PanelState

STARTING = 0.3
ASIDE = 0.15
FIRST_IDLE = (0.5, 0.6)
LATER_IDLE = 0.9
LATE_FIRST_IDLE = 0.7
BLIND = 0.6
SLOWER = 1.5
STALLED = 1.5
GONE = 1.5
BACK_SECONDS = 18.0
"""So long after a rest the fast mean remembers what the machines did in it."""
WRITING = 0.2
WRITING_LIMIT_SECONDS = 150.0
WRITING_Z = 3.0
WRITES_LITTLE_Z = 1.0
WRITES = frozenset(
    {"disk_write_bytes_per_second", "tcp_tx_bytes_per_second", "pcie_tx_bytes_per_second"}
)
"""What saving state shows in: it leaves the GPUs, then the machine."""


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
    def alive(self) -> NDArray[np.bool_]:
        """Visibly has it."""


class Trust:
    """Weight of new evidence per machine, in 0..1.5."""

    def __init__(self) -> None:
        self.state = PanelState()
        self.state.add("writing", "r", 0.0)
        self.state.add("back", "r", BACK_SECONDS)

    def reindex(self, machines: tuple[str, ...]) -> None:
        """Follow the roster."""
        self.state.reindex((), machines)

    def step(self, phase: JobPhase, signs: Signs, tick_seconds: float) -> NDArray[np.float64]:
        """``[N]`` from the phase, from which machines write much more than their peers, and from
        which seem to have lost the job's process.

        A machine that writes while the others stand still is saving a checkpoint; one that has
        lost its process, or visibly writes nothing, is not.
        """
        seconds = self.state["writing"]
        now = signs.writing & (phase.low_seconds > 0)
        seconds = np.where(now, seconds + tick_seconds, np.maximum(seconds - tick_seconds, 0.0))
        self.state["writing"] = seconds
        name = phase.name
        general = STARTING if name == "starting" else phase.past
        if name == "stalled":
            # Longer than a checkpoint: the job waits for somebody.
            general *= STALLED
        elif name == "running" and phase.moment.held_up:
            # Somebody holds it up; who is odd now is more likely to.
            general *= SLOWER
        if phase.blind:
            general *= BLIND
        trust = general * self._at_rest(phase, signs, tick_seconds)
        excused = (seconds > 0) & (seconds < WRITING_LIMIT_SECONDS)
        trust = np.where(excused, np.minimum(WRITING, trust), trust)
        return trust if name == "over" else np.where(signs.gone, np.maximum(GONE, trust), trust)

    def _at_rest(self, phase: JobPhase, signs: Signs, tick_seconds: float) -> NDArray[np.float64]:
        """``[N]``, less than 1 while the job rests or evaluates and just after."""
        back, name = self.state["back"], phase.name
        if name in ("evaluating", "over") or phase.low_seconds >= SHORTEST_GAP_SECONDS:
            back.fill(0.0)
        else:
            back += tick_seconds
        if name in ("evaluating", "over"):
            # Peers that work without talking, or rest without waiting, do not need the odd one.
            return np.full(back.shape, ASIDE)
        if name == "idle":
            # How this job saves its state is not known at first.
            seen = phase.idle_seen
            idle = FIRST_IDLE[seen] if seen < len(FIRST_IDLE) else LATER_IDLE
            if seen == 0 and phase.run_seconds >= LATE_SECONDS:
                # Who saves state does so sooner, as a rule.
                idle = LATE_FIRST_IDLE
            return np.where(signs.alive & ~signs.writes_little, idle * idle, idle)
        return np.where((name == "stalled") | (back >= BACK_SECONDS), 1.0, ASIDE)
