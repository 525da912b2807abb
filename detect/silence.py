"""Machines, or single GPUs, that send nothing: a fault only if the job stands still with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from detect.state import PanelState

if TYPE_CHECKING:
    from detect.panel import PanelEvidence
    from detect.phase import JobPhase
    from detect.standing import Standing

SILENT_SECONDS = 45.0
SILENT_TICKS = 3
STANDSTILL_SECONDS = 20.0
STANDSTILL_TICKS = 4
UNSURE_STANDSTILL_SECONDS = 60.0
"""In a job of which little is known yet, or of which power alone shows that it rests."""
YOUNG_SECONDS = 300.0
APART_SECONDS = 5.0
LONGEST_REST_SECONDS = 60.0
LONGER = 1.3
"""Times the longest rest from which a rest is another one."""
BEFORE_SECONDS, LONG_BEFORE_SECONDS = 15.0, 60.0
"""So long before the last traffic a machine that causes the standstill may have fallen silent, or,
if the standstill is a long one (or nothing shows the traffic), before that began."""
AFTER_SECONDS = 20.0
"""So long after it began. Some ticks more."""
SLACK_TICKS = 3
"""A value that is missing counts as missing when it is not bridged any more."""


class Silence:
    """Counts how long each row, a machine or a GPU, has been missing."""

    def __init__(self) -> None:
        self.state = PanelState()
        self.state.add("missing", "r", 0.0)
        self.state.add("seen", "r", False, dtype=np.bool_)

    def reindex(self, rows: tuple[str, ...]) -> None:
        """Follow the roster."""
        self.state.reindex((), rows)

    def step(self, st: Standing, panel: PanelEvidence) -> list[int]:
        """Rows of a panel that fell silent around the time when the job's progress stopped.

        Agents pause for half a minute and jobs go idle for a checkpoint; neither alone, nor
        many machines at once (a collector is down), says anything of a machine.
        """
        s = self.state
        # Masked telemetry faults count as missing too: it is the standstill that makes a fault.
        dark = panel.dark
        s["seen"] |= panel.present
        s["missing"] = np.where(dark & s["seen"], s["missing"] + st.tick_seconds, 0.0)
        standstill = _standstill(st.phase)
        # A rest like those before stands for nothing.
        usual = min(LONGER * st.phase.longest_idle, LONGEST_REST_SECONDS)
        unsure = st.phase.blind or st.phase.run_seconds < YOUNG_SECONDS
        least = UNSURE_STANDSTILL_SECONDS if unsure else STANDSTILL_SECONDS
        if standstill < max(least, STANDSTILL_TICKS * st.tick_seconds, usual):
            return []
        need = max(SILENT_SECONDS, SILENT_TICKS * st.tick_seconds)
        missing = s["missing"]
        # No job goes on for long after one of its machines; one that is over waits for nobody.
        slack = SLACK_TICKS * st.tick_seconds
        lower = st.phase.blind and st.phase.low_seconds == 0
        silent = missing - standstill <= (BEFORE_SECONDS + slack if lower else LONG_BEFORE_SECONDS)
        if st.phase.talks and standstill < UNSURE_STANDSTILL_SECONDS:
            silent = missing - st.phase.gap_seconds <= BEFORE_SECONDS + slack
        after = APART_SECONDS if st.phase.name == "over" else AFTER_SECONDS
        silent &= standstill - missing <= after + slack
        if not (missing[silent] >= need).any():
            return []
        # Who fell silent with the first is named with it.
        silent &= missing >= need - max(APART_SECONDS, st.tick_seconds)
        if silent.sum() * 2 > max(int(s["seen"].sum()), 1):
            return []
        return [int(i) for i in np.flatnonzero(silent)]

    def since_ns(self, st: Standing, row: int) -> int:
        """Event time of the row's last tick with data."""
        return st.at_ns - int(self.state["missing"][row] * 1e9)

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return self.state.snapshot()

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.state.restore(tree)


def _standstill(phase: JobPhase) -> float:
    """Seconds for which the job has stood still.

    Where power alone tells, machines that wait may draw more than is a rest: that it fell, and
    stays so, is all that shows.
    """
    if phase.blind and phase.low_seconds == 0 and phase.pace.slower_seconds > 0:
        return phase.pace.slower_seconds + phase.pace.noticed_seconds
    return phase.low_seconds
