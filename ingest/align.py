"""Alignment: the rows of one job, in any order, to closed ticks.

Rows wait in `OpenRows` until the watermark closes their tick; then they are reduced to one
sample per series and tick (`reduce_rows`) and put into blocks (`JobRun`). What comes out is a
function of the set of rows alone: neither their order within the allowed lateness, nor
duplicates, nor the cut into batches changes a bit of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.align_settings import AlignSettings
from ingest.batch import Batch, read_batch
from ingest.blocks import joined
from ingest.cadence import SECOND, CadenceFinder
from ingest.catalogue import Catalogue
from ingest.intake import Intake
from ingest.job_run import JobRun
from ingest.open_rows import Rows
from ingest.rates import CounterRates
from ingest.reduce import reduce_rows
from ingest.samples import Rejected
from ingest.ticks import TickBlock

__all__ = ["AlignSettings", "JobAligner"]

_VERSION = 1

WATCHED_NS = 5 * SECOND
"""Of the time between two looks at a silent source this much counts: in a longer one nobody was
looking (the source was behind, away, or another's), and what it had to say comes next."""


class JobAligner:
    """Aligns one job. Single-threaded; reads no clock; memory is bounded by the settings.

    Per batch call `add`, then `advance`; `idle` from time to time; `flush` at the end of input.
    """

    def __init__(
        self, job: str, catalogue: Catalogue, settings: AlignSettings | None = None
    ) -> None:
        self.job = job
        self.catalogue = catalogue
        self.settings = settings or AlignSettings()
        self._spans = self.settings.spans(None)
        self._intake = Intake(job, self.settings, self._on_roster, self._forget)
        self._cadence = CadenceFinder()
        self._rates = CounterRates()
        self._run: JobRun | None = None
        self._runs = 0
        self._roster = 0
        self._closed_ns: int | None = None
        self._ready: list[TickBlock] = []
        self._idle_ns = 0
        self._looked_ns: int | None = None

    @property
    def counters(self) -> Mapping[str, int]:
        """Rows taken in (``rows``) and, by reason, rows that were not used."""
        return self._intake.ledger.counters

    @property
    def late_by_machine(self) -> Mapping[str, int]:
        """Late rows by machine: the clock of one that stands out is behind."""
        return self._intake.ledger.late_by_machine

    @property
    def tick_ns(self) -> int | None:
        """Length of a tick; None until the cadence is known."""
        return None if self._run is None else self._run.tick_ns

    @property
    def frontier_ns(self) -> int | None:
        """Event time that the quorum has reached; None before the first row."""
        return self._intake.quorum.frontier_ns

    @property
    def watermark_ns(self) -> int:
        """Event time before which every tick is closed; never goes back. 0 before the first."""
        return self._closed_ns or 0

    @property
    def open_rows(self) -> int:
        """Rows that wait for their tick to close."""
        return self._intake.rows.size

    @property
    def rests(self) -> bool:
        """Whether the source has been silent for so long that time alone changes nothing more."""
        return self._idle_ns >= self._spans.idle_ns

    def add(self, table: pa.Table, now_ns: int | None = None) -> list[Rejected]:
        """Take in rows of the job (`ingest.samples`); return those that cannot be used.

        ``now_ns`` (wall clock) additionally bounds how far event time may be ahead of it. There
        is one `Rejected` per reason and machine (or many machines), with its ``rows``. Duplicates
        and counter resets are only counted.
        """
        if len(table):
            self._idle_ns, self._looked_ns = 0, None
            self._intake.ledger.counters["rows"] += len(table)
            rest: Batch | None = read_batch(table)
            while rest is not None:
                part, rest = rest.split(self._spans.slice_ns)
                self._intake.take(part, self._spans, self._closed_ns, now_ns)
                self._close()
        return self.take_rejected()

    def advance(self) -> list[TickBlock]:
        """The ticks that were closed since the last call, in order."""
        ready, self._ready = self._ready, []
        return joined(ready)

    def idle(self, now_ns: int) -> list[TickBlock]:
        """Call now and then while nothing arrives: closes the last ticks after `idle_seconds`.

        Ticks close up to what the quorum has reached and no further. So a source that was
        interrupted for less than that loses nothing at all, and after a longer time only what
        it still had of the ticks that it was in the middle of (as late). Of the time between
        two calls `WATCHED_NS` count at most.
        """
        if not self.rests:
            passed = 0 if self._looked_ns is None else now_ns - self._looked_ns
            self._idle_ns += min(max(passed, 0), WATCHED_NS)
            self._looked_ns = now_ns
        if self.rests:
            self._close(idle=True)
        return self.advance()

    def flush(self) -> list[TickBlock]:
        """End of input: closes everything; stamps still in quarantine are rejected."""
        self._close(final=True)
        return self.advance()

    def take_rejected(self) -> list[Rejected]:
        """What was rejected since the last call; `add` has returned its own already."""
        return self._intake.ledger.take()

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on as if never interrupted; call `advance` first.

        Raises
        ------
        RuntimeError
            Closed ticks were not taken by `advance`; they would be lost.
        """
        if self._ready:
            raise RuntimeError("take closed ticks by advance() before snapshot()")
        return {
            "version": _VERSION,
            "job": self.job,
            "intake": self._intake.snapshot(),
            "cadence": self._cadence.snapshot(),
            "rates": self._rates.snapshot(),
            "run": None if self._run is None else self._run.snapshot(),
            "runs": self._runs,
            "roster": self._roster,
            "closed_ns": self._closed_ns,
            "idle_ns": self._idle_ns,
            "looked_ns": self._looked_ns,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `snapshot`, with the settings it was taken under.

        Raises
        ------
        ValueError
            The state is of another version or of another job.
        """
        if state.get("version") != _VERSION or state.get("job") != self.job:
            found = f"version {state.get('version')} of job {state.get('job')}"
            raise ValueError(f"not an aligner state of {self.job}, version {_VERSION}: {found}")
        self._intake.restore(state["intake"])
        self._cadence.restore(state["cadence"])
        self._rates.restore(state["rates"])
        self._runs = state["runs"]
        self._roster = state["roster"]
        self._closed_ns = state["closed_ns"]
        self._run = None
        self._spans = self.settings.spans(None)
        if state["run"] is not None:
            self._run = self._new_run(state["run"]["tick_ns"])
            self._run.restore(state["run"])
        self._ready = []
        # States of versions before did not hold these.
        self._idle_ns, self._looked_ns = state.get("idle_ns", 0), state.get("looked_ns")

    def _on_roster(self, machine: int) -> bool:
        return self._run is not None and self._run.holds(machine)

    def _forget(self, series: NDArray[np.int64]) -> None:
        self._rates.forget(series)
        if self._run is not None:
            self._run.forget(series)

    def _close(self, *, idle: bool = False, final: bool = False) -> None:
        """Close what the watermark allows, through the end of one run and into the next."""
        rows, frontier = self._intake.rows, self.frontier_ns
        while frontier is not None:
            if self._run is None and not self._begin(frontier, now=idle or final):
                break
            run, spans = self._run, self._spans
            assert run is not None
            if final:
                known = rows.ts[rows.ts <= frontier + spans.future_ns]
                end = int(known.max()) // run.tick_ns + 1 if known.size else 0
            elif idle:
                end = frontier // run.tick_ns + 1
            else:
                end = (frontier - spans.wait_ns(self._intake.lag.ns)) // run.tick_ns
            if not self._close_ticks(run, end):
                break
        self._intake.sweep(self._spans.future_ns, final=final)

    def _begin(self, frontier: int, *, now: bool) -> bool:
        """Start a run if the rows so far tell the cadence."""
        rows, fixed = self._intake.rows, self.settings.tick_seconds
        near = rows.ts <= frontier + self._spans.future_ns
        if not near.any():
            return False
        tick_ns = None if fixed is None else round(max(fixed, 1.0) * SECOND)
        if tick_ns is None:
            now = now or rows.size > self.settings.max_open_rows // 2
            if not now and self._cadence.waits(int(rows.ts.min()), frontier):
                return False
            first = Rows(rows.ts[near], rows.series[near], rows.values[:, near])
            machine = self._intake.table.machine[first.series]
            tick_ns = self._cadence.find(first, machine, frontier, now=now)
        if tick_ns is None:
            return False
        self._run = self._new_run(max(tick_ns, SECOND))
        self._runs += 1
        return True

    def _new_run(self, tick_ns: int) -> JobRun:
        self._spans = self.settings.spans(tick_ns)
        return JobRun(
            self.job, self._runs, self._roster, self.catalogue, self._intake.table,
            tick_ns=tick_ns, leave_ticks=self._spans.leave_ticks, hold=self._spans.hold,
        )  # fmt: skip

    def _close_ticks(self, run: JobRun, end: int) -> bool:
        """Close the ticks before ``end``; True when the run ended, and another may begin."""
        if run.next_tick is not None and end <= run.next_tick:
            return False
        open_rows, silence = self._intake.rows, self._spans.silence_ticks
        rows, rest = open_rows.before(end * run.tick_ns)
        tick = rows.ts // run.tick_ns
        # Rows come nearly in order, so few of them begin another tick.
        ticks = np.unique(tick[np.flatnonzero(np.diff(tick, prepend=-1))])
        if run.last_tick is not None:
            ticks = np.concatenate([[run.last_tick], ticks])
        if not ticks.size:
            return False
        gaps = np.flatnonzero(np.diff(ticks) > silence)
        last = int(ticks[gaps[0]] if gaps.size else ticks[-1])
        ended = bool(gaps.size) or end - 1 - last > silence
        if ended:
            # The silence itself is told, to its limit and always to the same tick.
            end = last + 1 + silence
            rows, rest = open_rows.before(end * run.tick_ns)
        self._emit(run, rows, end)
        open_rows.keep(rest)
        self._closed_ns = max(self._closed_ns or 0, end * run.tick_ns)
        self._roster = run.roster
        self._intake.forget(run.take_left())
        if ended:
            self._run = None
            self._spans = self.settings.spans(None)
            self._rates.clear()
        return ended

    def _emit(self, run: JobRun, rows: Rows, end: int) -> None:
        samples = reduce_rows(
            rows, self._intake.rows.columns, self.catalogue, self._rates,
            tick_ns=run.tick_ns, gap_ns=self._spans.gap_ns, capacity=self._intake.table.capacity,
        )  # fmt: skip
        counters = self._intake.ledger.counters
        counters["duplicate"] += samples.duplicates
        counters["counter_reset"] = self._rates.resets
        self._ready.extend(run.close(samples, end))
