"""Alignment: the rows of one job, in any order, to closed ticks.

Rows wait in `OpenRows` until the watermark closes their tick; then they are reduced to one
sample per series and tick (`reduce_rows`) and put into blocks (`JobRun`). What comes out is a
function of the set of rows alone: neither their order within the allowed lateness, nor
duplicates, nor the cut into batches changes a bit of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest import cadence
from ingest.batch import Batch, read_batch
from ingest.blocks import joined
from ingest.cadence import SECOND
from ingest.catalogue import Catalogue
from ingest.grid import HoldPolicy
from ingest.job_run import JobRun
from ingest.open_rows import OpenRows, Rows
from ingest.rates import CounterRates
from ingest.reduce import reduce_rows
from ingest.samples import Rejected
from ingest.series import SeriesTable
from ingest.ticks import TickBlock
from ingest.watermark import Quorum, median_claim

_REASONS = (
    "rows",
    "late",
    "duplicate",
    "future",
    "counter_reset",
    "bad_gpu",
    "too_many_machines",
    "too_many_metrics",
    "too_many_rows",
)
_STRAY_NS = 600 * SECOND


@dataclass(frozen=True, slots=True)
class AlignSettings:
    """Bounds and policies of alignment; durations in seconds.

    Attributes
    ----------
    tick_seconds
        Fixed tick (at least 1); None finds it from the data.
    lateness_seconds
        How long ticks wait for rows; None is the larger of 3 s and 2.5 ticks.
    future_bound_seconds
        Stamps further ahead of the quorum than this (or 10 ticks) wait in quarantine, and are
        rejected once the quorum has moved on by the same time without coming near.
    leave_after_seconds
        A series without samples for this long leaves the roster.
    silence_seconds
        Silence of all machines (at least 20 ticks) that ends the run.
    hold_periods, hold_seconds
        A missing value is held for this many of its series' periods, at most this long.
    idle_seconds
        Wall-clock time without any row after which `JobAligner.idle` closes the last ticks.
    """

    tick_seconds: float | None = None
    lateness_seconds: float | None = None
    future_bound_seconds: float = 60.0
    leave_after_seconds: float = 300.0
    silence_seconds: float = 600.0
    hold_periods: float = 2.5
    hold_seconds: float = 150.0
    idle_seconds: float = 10.0
    max_machines: int = 20_000
    max_gpus: int = 128
    max_metrics: int = 256
    max_open_rows: int = 4_000_000


class JobAligner:
    """Aligns one job. Single-threaded; reads no clock; memory is bounded by the settings.

    ``counters`` holds how many rows came in (``rows``) and what became of those not used, by
    reason; ``late_by_machine`` the late ones by machine.
    """

    def __init__(
        self, job: str, catalogue: Catalogue, settings: AlignSettings | None = None
    ) -> None:
        self.job = job
        self.catalogue = catalogue
        self.settings = settings or AlignSettings()
        self.counters: Counter[str] = Counter(dict.fromkeys(_REASONS, 0))
        self.late_by_machine: Counter[str] = Counter()
        self._table = SeriesTable(self.settings.max_machines, self.settings.max_gpus)
        self._open = OpenRows()
        self._quorum = Quorum()
        self._rates = CounterRates()
        self._run: JobRun | None = None
        self._runs = 0
        self._roster = 0
        self._closed_ns: int | None = None
        self._ready: list[TickBlock] = []
        self._rejected: list[Rejected] = []
        self._metrics_refused: set[str] = set()
        self._idle_since: int | None = None

    @property
    def tick_ns(self) -> int | None:
        """Length of a tick; None until the cadence is known."""
        return None if self._run is None else self._run.tick_ns

    @property
    def frontier_ns(self) -> int | None:
        """Event time that the quorum has reached; None before the first row."""
        return self._quorum.frontier_ns

    @property
    def watermark_ns(self) -> int | None:
        """Event time before which every tick is closed; never goes back. None: none yet."""
        return self._closed_ns

    @property
    def open_rows(self) -> int:
        """Rows that wait for their tick to close."""
        return self._open.size

    def add(self, table: pa.Table, now_ns: int | None = None) -> list[Rejected]:
        """Take in rows of the job (`ingest.samples`); return those that cannot be used.

        ``now_ns`` (wall clock) additionally bounds how far event time may be ahead of it.
        Rejected rows are reported per reason and machine; `counters` counts single rows.
        """
        self._idle_since = None
        if len(table):
            self.counters["rows"] += len(table)
            for part in read_batch(table).in_time(self._slice_ns()):
                self._take(part, now_ns)
                self._close(final=False)
        return self._take_rejected()

    def advance(self) -> list[TickBlock]:
        """The ticks that were closed since the last call."""
        ready, self._ready = self._ready, []
        return joined(ready)

    def idle(self, now_ns: int) -> list[TickBlock]:
        """Call now and then while nothing arrives: closes the last ticks after `idle_seconds`.

        Ticks close up to what the quorum has reached and no further, so that a source that was
        only interrupted loses nothing that comes after.
        """
        if self._idle_since is None:
            self._idle_since = now_ns
        wait = max(self.settings.idle_seconds * SECOND, self._lateness_ns())
        if now_ns - self._idle_since >= wait and self._run is not None:
            self._close(final=False, lateness_ns=-1)
        return self.advance()

    def flush(self) -> tuple[list[TickBlock], list[Rejected]]:
        """End of input: close everything but stamps in quarantine, which are rejected."""
        self._close(final=True)
        return self.advance(), self._take_rejected()

    # -- taking rows in

    def _take(self, batch: Batch, now_ns: int | None) -> None:
        batch = self._usable(batch)
        if not batch.ts.size:
            return
        codes = self._table.encode(batch.names)
        batch, codes = self._admitted(batch, codes)
        if not batch.ts.size:
            return
        machine = codes[batch.name]
        series = self._table.ids(machine, batch.gpu)
        claims = self._quorum.step(
            machine, batch.ts, cap_ns=self._slice_ns(), stalled_ns=self._stalled_ns()
        )
        reached = self._reached(claims, batch.ts)
        if now_ns is not None:
            reached = min(reached, now_ns + self._future_ns())
        self._quorum.reach(reached, binding=self._closed_ns is not None)
        columns = [
            (self._open.column(name), values)
            for name, values in batch.columns
            if self._allowed(name)
        ]
        self._open.append(batch.ts, series, columns, entered=self.frontier_ns or 0)

    def _usable(self, batch: Batch) -> Batch:
        bad = (batch.gpu < -1) | (batch.gpu >= self.settings.max_gpus)
        if bad.any():
            self._reject("bad_gpu", batch, bad, f"gpu is not in 0..{self.settings.max_gpus - 1}")
            batch = batch.where(~bad)
        if self._closed_ns is not None and batch.ts.size:
            late = batch.ts < self._closed_ns
            if late.any():
                self._reject("late", batch, late, f"before the watermark {self._closed_ns}")
                batch = batch.where(~late)
        room = self.settings.max_open_rows - self._open.size
        if batch.ts.size > room:
            over = np.arange(batch.ts.size) >= room
            self._reject("too_many_rows", batch, over, "too many rows in open ticks")
            batch = batch.where(~over)
        return batch

    def _admitted(self, batch: Batch, codes: NDArray[np.int64]) -> tuple[Batch, NDArray[np.int64]]:
        if (codes < 0).any():
            self._forget(self._quorum.stalled(self._stalled_ns()))
            codes = self._table.encode(batch.names)
            refused = codes[batch.name] < 0
            if refused.any():
                limit = self.settings.max_machines
                self._reject("too_many_machines", batch, refused, f"more than {limit} machines")
                batch = batch.where(~refused)
        return batch, codes

    def _allowed(self, name: str) -> bool:
        if name in self._open.columns or len(self._open.columns) < self.settings.max_metrics:
            return True
        if name not in self._metrics_refused and len(self._metrics_refused) < 1000:
            self._metrics_refused.add(name)
            self.counters["too_many_metrics"] += 1
            detail = f"{name}: more than {self.settings.max_metrics} metrics"
            self._rejected.append(Rejected("too_many_metrics", self.job, detail))
        return False

    def _reached(self, claims: NDArray[np.int64], ts: NDArray[np.int64]) -> int:
        """Where the quorum stands after rows of times ``ts`` came in."""
        reached = median_claim(claims)
        frontier = self.frontier_ns
        if frontier is None or claims.size > 1 or self._closed_ns is None:
            return reached
        bound = frontier + self._future_ns()
        if reached > bound:
            # A lone machine must say so twice before the job leaps ahead with it.
            ahead = np.concatenate([self._open.ts[self._open.ts > bound], ts[ts > bound]])
            if np.unique(ahead).size < 2:
                near = ts[ts <= bound]
                return int(near.max()) if near.size else frontier
        return reached

    # -- closing ticks

    def _close(self, *, final: bool, lateness_ns: int | None = None) -> None:
        while self._open.size or self._run is not None:
            if self._run is None and not self._begin(final):
                break
            run = self._run
            assert run is not None
            frontier = self.frontier_ns
            if frontier is None:
                break
            if final:
                known = self._open.ts[self._open.ts <= frontier + self._future_ns()]
                end = int(known.max()) // run.tick_ns + 1 if known.size else 0
            else:
                wait = self._lateness_ns() if lateness_ns is None else lateness_ns
                end = (frontier - wait) // run.tick_ns
            if not self._close_ticks(run, end):
                break
        self._sweep(final)

    def _begin(self, final: bool) -> bool:
        """Find the cadence and start a run, if the rows so far allow it."""
        tick_ns = self._find_tick(final)
        if tick_ns is None:
            return False
        settings = self.settings
        hold = HoldPolicy(
            periods=settings.hold_periods,
            longest=settings.hold_seconds * SECOND / tick_ns,
            first=max(2.5, min(settings.hold_seconds, 30.0) * SECOND / tick_ns),
        )
        self._run = JobRun(
            self.job, self._runs, self._roster, self.catalogue, self._table,
            tick_ns=tick_ns,
            leave_ticks=max(3, round(settings.leave_after_seconds * SECOND / tick_ns)),
            hold=hold,
        )  # fmt: skip
        self._runs += 1
        return True

    def _find_tick(self, final: bool) -> int | None:
        if self.settings.tick_seconds is not None:
            return round(max(self.settings.tick_seconds, 1.0) * SECOND)
        opened, frontier = self._open, self.frontier_ns
        if not opened.size or frontier is None:
            return None
        self._drop_strays()
        start = int(opened.ts.min())
        full = final or opened.size > self.settings.max_open_rows // 2
        present = np.isfinite(opened.values)
        for window in cadence.WINDOWS_NS:
            if not full and frontier < start + window + cadence.settle_ns(window):
                return None
            inside = opened.ts < start + window
            found = cadence.established(
                opened.ts[inside], opened.series[inside],
                self._table.machine[opened.series[inside]], present[:, inside],
            )  # fmt: skip
            if found is not None:
                return max(found, SECOND)
        inside = opened.ts < start + cadence.WINDOWS_NS[-1]
        found = cadence.guess(opened.ts[inside], opened.series[inside])
        return max(found or SECOND, SECOND) if final or found else cadence.LADDER_NS[-1]

    def _drop_strays(self) -> None:
        """Rows of machines whose clock is far behind most machines' first stamp are late."""
        opened = self._open
        machine = self._table.machine[opened.series]
        first = np.full(int(machine.max()) + 1, 2**62, dtype=np.int64)
        np.minimum.at(first, machine, opened.ts)
        typical = median_claim(first[first < 2**62])
        stray = opened.ts < typical - _STRAY_NS
        if stray.any():
            self._drop("late", stray, "its machine's clock is far behind")

    def _close_ticks(self, run: JobRun, end: int) -> bool:
        """Close the ticks before ``end``; True when the run ended and another may begin."""
        if run.next_tick is not None and end <= run.next_tick:
            return False
        rows, rest = self._open.before(end * run.tick_ns)
        silence = max(20, round(self.settings.silence_seconds * SECOND / run.tick_ns))
        ticks = np.unique(rows.ts // run.tick_ns)
        if run.last_tick is not None:
            ticks = np.concatenate([[run.last_tick], ticks])
        if not ticks.size:
            return False
        gaps = np.flatnonzero(np.diff(ticks) > silence)
        last = int(ticks[gaps[0]]) if gaps.size else int(ticks[-1])
        ended = bool(gaps.size) or end - 1 - last > silence
        if ended:
            end = last + 1 + silence
            if gaps.size:
                rows, rest = self._open.before(end * run.tick_ns)
        self._emit(run, rows, end)
        self._open.keep(rest)
        self._closed_ns = max(self._closed_ns or 0, end * run.tick_ns)
        self._roster = run.roster
        self._forget(run.take_left())
        if ended:
            self._run = None
            self._rates.clear()
        return ended

    def _emit(self, run: JobRun, rows: Rows, end: int) -> None:
        samples = reduce_rows(
            rows, self._open.columns, self.catalogue, self._rates,
            tick_ns=run.tick_ns,
            gap_ns=round(max(self.settings.hold_seconds * SECOND, 2.5 * run.tick_ns)),
            capacity=self._table.capacity,
        )  # fmt: skip
        self.counters["duplicate"] += samples.duplicates
        self.counters["counter_reset"] = self._rates.resets
        self._ready.extend(run.close(samples, end))

    def _sweep(self, final: bool) -> None:
        """Reject quarantined stamps that the quorum did not come near to."""
        frontier = self.frontier_ns
        if not self._open.size or frontier is None or self._run is None:
            return
        bound = self._future_ns()
        future = self._open.ts > frontier + bound
        if not final:
            future &= self._open.entered < frontier - bound
        if future.any():
            self._drop("future", future, f"more than {bound // SECOND} s ahead of the others")

    # -- bookkeeping

    def _forget(self, codes: NDArray[np.int64]) -> None:
        """Free the codes of machines that are neither on the roster nor have open rows."""
        waiting = set(self._table.machine[self._open.series].tolist())
        run = self._run
        free = np.array(
            [c for c in codes.tolist() if c not in waiting and not (run and run.holds(c))],
            dtype=np.int64,
        )
        series = self._table.forget(free)
        self._rates.forget(series)
        self._quorum.forget(free)
        if run is not None:
            run.forget(series)

    def _drop(self, reason: str, mask: NDArray[np.bool_], detail: str) -> None:
        machine = self._table.machine[self._open.series[mask]]
        batch = Batch(self._open.ts[mask], self._table.names, machine, machine[:0], [])
        self._reject(reason, batch, np.ones(machine.size, dtype=np.bool_), detail)
        self._open.keep(~mask)

    def _reject(self, reason: str, batch: Batch, mask: NDArray[np.bool_], detail: str) -> None:
        names, ts = batch.name[mask], batch.ts[mask]
        self.counters[reason] += names.size
        for code in np.unique(names).tolist():
            own = ts[names == code]
            machine = batch.names[code]
            if reason == "late" and (
                machine in self.late_by_machine
                or len(self.late_by_machine) < self.settings.max_machines
            ):
                self.late_by_machine[machine] += own.size
            stamps = f"{own.min()}" if own.size == 1 else f"{own.min()} to {own.max()}"
            text = f"{own.size} rows stamped {stamps}: {detail}"
            self._rejected.append(Rejected(reason, f"{self.job}/{machine}", text))

    def _take_rejected(self) -> list[Rejected]:
        out, self._rejected = self._rejected, []
        return out

    def _lateness_ns(self) -> int:
        if self.settings.lateness_seconds is not None:
            return round(self.settings.lateness_seconds * SECOND)
        return max(3 * SECOND, int(2.5 * (self.tick_ns or SECOND)))

    def _slice_ns(self) -> int:
        return max(8 * SECOND, 4 * (self.tick_ns or SECOND))

    def _stalled_ns(self) -> int:
        return max(30 * SECOND, 6 * (self.tick_ns or 60 * SECOND))

    def _future_ns(self) -> int:
        bound = round(self.settings.future_bound_seconds * SECOND)
        return max(bound, 10 * (self.tick_ns or SECOND))
