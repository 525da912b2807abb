"""Bounds and policies of alignment."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.cadence import SECOND
from ingest.grid import HoldPolicy


@dataclass(frozen=True, slots=True)
class AlignSettings:
    """What a user may set; durations in seconds.

    Attributes
    ----------
    tick_seconds
        Fixed tick (at least 1); None finds it from the data.
    lateness_seconds
        How long ticks wait for rows. None is the larger of 3 s and 2.5 ticks, and longer, up to
        ``max_lateness_seconds``, while rows do come later than that.
    future_bound_seconds
        Stamps further ahead of the quorum than this (and than 10 ticks) wait in quarantine, and
        are rejected once the quorum has moved on by as much without coming near.
    leave_after_seconds
        A series without samples for this long leaves the roster.
    silence_seconds
        Silence of all machines (at least 20 ticks) that ends the run.
    hold_periods, hold_seconds
        A missing value is held for this many of its series' periods, at most this long. A
        counter's rate spans no longer gap than ``hold_seconds`` either, nor a leave.
    idle_seconds
        Wall-clock time without any row after which the last ticks close. An interruption that is
        shorter changes nothing; 30 s outlast the election of a broker's successor.
    max_open_rows
        Rows that may wait for their tick to close.
    """

    tick_seconds: float | None = None
    lateness_seconds: float | None = None
    max_lateness_seconds: float = 20.0
    future_bound_seconds: float = 60.0
    leave_after_seconds: float = 300.0
    silence_seconds: float = 600.0
    hold_periods: float = 2.5
    hold_seconds: float = 150.0
    idle_seconds: float = 30.0
    max_machines: int = 20_000
    max_gpus: int = 128
    max_metrics: int = 256
    max_open_rows: int = 4_000_000

    def spans(self, tick_ns: int | None) -> Spans:
        """The settings in nanoseconds and ticks; ``tick_ns`` is None before it is known."""
        known = tick_ns or SECOND
        seconds = known / SECOND
        longest = self.hold_seconds / seconds
        leave = max(3, round(self.leave_after_seconds / seconds))
        lateness = max(3.0, 2.5 * seconds)
        longest_lateness = max(lateness, self.max_lateness_seconds)
        if self.lateness_seconds is not None:
            lateness = longest_lateness = self.lateness_seconds
        return Spans(
            lateness_ns=round(lateness * SECOND),
            max_lateness_ns=round(longest_lateness * SECOND),
            slice_ns=max(8 * SECOND, 4 * known),
            stalled_ns=max(30 * SECOND, 6 * (tick_ns or 60 * SECOND)),
            future_ns=max(round(self.future_bound_seconds * SECOND), 10 * known),
            idle_ns=round(max(self.idle_seconds, lateness if tick_ns else 150.0) * SECOND),
            gap_ns=min(max(round(self.hold_seconds * SECOND), 5 * known // 2), leave * known),
            leave_ticks=leave,
            silence_ticks=max(20, round(self.silence_seconds / seconds)),
            hold=HoldPolicy(self.hold_periods, longest, max(2.5, min(longest, 30.0 / seconds))),
        )


@dataclass(frozen=True, slots=True)
class Spans:
    """`AlignSettings` for one length of tick.

    ``slice_ns`` is the event time that is taken in at once: what comes in one large batch is
    thus judged like what comes bit by bit. ``stalled_ns`` is the others' progress after which a
    silent machine no longer holds the watermark; it is at most half of ``future_ns``, so that
    machines which go on alone are not taken for machines that are ahead.
    """

    lateness_ns: int
    max_lateness_ns: int
    slice_ns: int
    stalled_ns: int
    future_ns: int
    idle_ns: int
    gap_ns: int
    leave_ticks: int
    silence_ticks: int
    hold: HoldPolicy

    def wait_ns(self, lag_ns: int) -> int:
        """How long ticks wait when rows come up to ``lag_ns`` behind the others."""
        wanted = lag_ns + lag_ns // 4 + SECOND if lag_ns else 0
        return max(self.lateness_ns, min(wanted, self.max_lateness_ns))
