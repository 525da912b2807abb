"""One run of a job: its roster as it changes, and its closed ticks as blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.catalogue import Catalogue
from ingest.grid import Grid, HoldPolicy
from ingest.panels import Layer, blank, gpu_panel, machine_panel, over_gpus, united
from ingest.reduce import Samples
from ingest.series import SeriesTable
from ingest.ticks import TickBlock

_MOST_CELLS = 4_000_000
"""Cells of a block: a long silence of many machines must not become one huge array."""


class _News:
    """What some samples bring that the roster does not have yet, by the tick of its first one.

    ``joins`` are series ids by tick; the metrics are those new to machine and to GPU rows.
    """

    def __init__(
        self, joins: dict[int, list[int]], own_metrics: dict[str, int], gpu_metrics: dict[str, int]
    ) -> None:
        self.joins = joins
        self.own_metrics = own_metrics
        self.gpu_metrics = gpu_metrics
        self.ticks = {*joins, *own_metrics.values(), *gpu_metrics.values()}

    def after(self, tick: int) -> int:
        """The next tick that changes the roster."""
        return min((t for t in self.ticks if t > tick), default=2**62)


class JobRun:
    """Turns the samples of closed ticks into blocks with a constant roster.

    A series joins at the tick of its first sample and leaves when it sent nothing in
    ``leave_ticks`` ticks *in which the job sent anything*, so a pause of all machines removes
    none of them. Rosters thus change in ticks that hold samples only, and depend on nothing but
    the samples.
    """

    def __init__(
        self,
        job: str,
        run: int,
        roster: int,
        catalogue: Catalogue,
        table: SeriesTable,
        *,
        tick_ns: int,
        leave_ticks: int,
        hold: HoldPolicy,
    ) -> None:
        self.job = job
        self.run = run
        self.roster = roster
        self.tick_ns = tick_ns
        self.next_tick: int | None = None
        self.last_tick: int | None = None
        self._catalogue = catalogue
        self._table = table
        self._leave_ticks = leave_ticks
        self._hold = hold
        self._active = 0
        self._own = Grid()
        self._gpus = Grid()
        self._own_metrics: set[str] = set()
        self._gpu_metrics: set[str] = set()
        self._rostered = np.zeros(0, dtype=np.bool_)
        self._last = np.zeros(0, dtype=np.int64)
        self._row = np.zeros(0, dtype=np.int64)
        self._machines: tuple[str, ...] = ()
        self._gpu_machine = np.zeros(0, dtype=np.int64)
        self._gpu_index = np.zeros(0, dtype=np.int64)
        self._left: set[int] = set()
        self._codes: set[int] = set()

    def close(self, samples: Samples, end: int) -> list[TickBlock]:
        """Blocks of the ticks from the last closed one up to (not including) tick ``end``."""
        self._grow()
        start = int(samples.tick.min()) if self.next_tick is None else self.next_tick
        lit = np.zeros(end - start, dtype=np.bool_)
        lit[samples.tick - start] = True
        active = self._active + np.cumsum(lit)
        news = self._news(samples)
        blocks: list[TickBlock] = []
        at = start
        while at < end:
            now = int(active[at - start])
            changed = False
            if lit[at - start] and self._first_leave() <= now:
                changed = self._leave(samples.within(at, at + 1), now)
                if changed:
                    news = self._news(samples.within(at, end))
            changed |= self._join(news, at, now)
            if changed:
                self._relayout()
            leave = start + int(np.searchsorted(active, self._first_leave()))
            stop = min(news.after(at), max(leave, at + 1), end, at + self._most_ticks())
            part = samples.within(at, stop)
            blocks.append(self._block(part, at, stop))
            if part.tick.size:
                np.maximum.at(self._last, part.series, active[part.tick - start])
                self.last_tick = int(part.tick.max())
            at = stop
        self.next_tick = end
        self._active = int(active[-1]) if active.size else self._active
        return blocks

    def take_left(self) -> NDArray[np.int64]:
        """Codes of machines that left since the last call and have not come back."""
        left, self._left = self._left, set()
        return np.array(sorted(c for c in left if not self.holds(c)), dtype=np.int64)

    def holds(self, code: int) -> bool:
        """Whether a machine is on the roster."""
        return code in self._codes

    def forget(self, series: NDArray[np.int64]) -> None:
        """Series ids that may be given to others."""
        self._rostered[series[series < self._rostered.size]] = False

    def snapshot(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "roster": self.roster,
            "tick_ns": self.tick_ns,
            "next_tick": self.next_tick,
            "last_tick": self.last_tick,
            "active": self._active,
            "own": self._own.snapshot(),
            "gpus": self._gpus.snapshot(),
            "own_metrics": sorted(self._own_metrics),
            "gpu_metrics": sorted(self._gpu_metrics),
            "rostered": self._rostered.copy(),
            "last": self._last.copy(),
            "row": self._row.copy(),
            "machines": list(self._machines),
            "gpu_machine": self._gpu_machine.copy(),
            "gpu_index": self._gpu_index.copy(),
            "left": sorted(self._left),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.run = state["run"]
        self.roster = state["roster"]
        self.tick_ns = state["tick_ns"]
        self.next_tick = state["next_tick"]
        self.last_tick = state["last_tick"]
        self._active = state["active"]
        self._own.restore(state["own"])
        self._gpus.restore(state["gpus"])
        self._own_metrics = set(state["own_metrics"])
        self._gpu_metrics = set(state["gpu_metrics"])
        self._rostered = state["rostered"].copy()
        self._last = state["last"].copy()
        self._row = state["row"].copy()
        self._machines = tuple(state["machines"])
        self._gpu_machine = state["gpu_machine"].copy()
        self._gpu_index = state["gpu_index"].copy()
        self._left = set(state["left"])
        self._codes = set(self._own.rows.tolist())

    def _grow(self) -> None:
        more = self._table.capacity - self._rostered.size
        if more > 0:
            self._rostered = np.concatenate([self._rostered, np.zeros(more, dtype=np.bool_)])
            fill = np.full(more, -1, dtype=np.int64)
            self._last = np.concatenate([self._last, fill])
            self._row = np.concatenate([self._row, fill])

    def _news(self, samples: Samples) -> _News:
        joins: dict[int, list[int]] = {}
        new = ~self._rostered[samples.series]
        if new.any():
            series, tick = samples.series[new], samples.tick[new]
            order = np.lexsort((tick, series))
            ids, first = np.unique(series[order], return_index=True)
            for one, when in zip(ids.tolist(), tick[order][first].tolist(), strict=True):
                joins.setdefault(when, []).append(one)
        own, gpus = self._by_scope(samples)
        return _News(joins, _first(own, self._own_metrics), _first(gpus, self._gpu_metrics))

    def _by_scope(self, samples: Samples) -> tuple[Samples, Samples]:
        """The samples of machine rows and those of GPU rows."""
        none = Samples(samples.tick[:0], samples.series[:0], {})
        if not self._table.has_gpus:
            return samples, none
        of_gpu = self._table.gpu[samples.series] >= 0
        if of_gpu.all():
            return none, samples
        return (samples.at(~of_gpu), samples.at(of_gpu)) if of_gpu.any() else (samples, none)

    def _join(self, news: _News, at: int, active: int) -> bool:
        """Whether anything joined in tick ``at``."""
        if at not in news.ticks:
            return False
        series = news.joins.get(at, [])
        self._rostered[series] = True
        self._last[series] = active
        self._own_metrics |= {m for m, tick in news.own_metrics.items() if tick == at}
        self._gpu_metrics |= {m for m, tick in news.gpu_metrics.items() if tick == at}
        return True

    def _first_leave(self) -> int:
        """The active tick from which some series may leave."""
        last = self._last[self._rostered]
        return int(last.min()) + self._leave_ticks + 1 if last.size else 2**62

    def _leave(self, here: Samples, active: int) -> bool:
        silent = self._rostered & (self._last + self._leave_ticks < active)
        silent[here.series] = False
        if not silent.any():
            return False
        self._rostered[silent] = False
        self._left.update(self._table.machine[np.flatnonzero(silent)].tolist())
        return True

    def _relayout(self) -> None:
        table = self._table
        ids = np.flatnonzero(self._rostered)
        codes = np.unique(table.machine[ids])
        codes = np.array(sorted(codes.tolist(), key=table.names.__getitem__), dtype=np.int64)
        machine_row = np.full(len(table.names), -1, dtype=np.int64)
        machine_row[codes] = np.arange(codes.size)
        of_gpu = table.gpu[ids] >= 0
        cards = ids[of_gpu]
        cards = cards[np.lexsort((table.gpu[cards], machine_row[table.machine[cards]]))]
        self._machines = tuple(table.names[code] for code in codes.tolist())
        self._gpu_machine = machine_row[table.machine[cards]]
        self._gpu_index = table.gpu[cards]
        self._row[:] = -1
        self._row[ids] = machine_row[table.machine[ids]]
        self._row[cards] = np.arange(cards.size)
        self._codes = set(codes.tolist())
        self._own.relayout(tuple(sorted(self._own_metrics)), codes)
        self._gpus.relayout(tuple(sorted(self._gpu_metrics)), cards)
        self.roster += 1

    def _block(self, samples: Samples, start: int, end: int) -> TickBlock:
        ticks, count = end - start, len(self._machines)
        faded = self.last_tick is not None and start > self.last_tick + self._hold.longest
        if samples.tick.size or not faded:
            layer, single = self._layers(samples, start, ticks)
        else:
            single = blank(self._gpus.metrics, ticks, self._gpus.rows.size)
            cards = single[0] if self._gpus.rows.size else ()
            layer = blank(tuple(sorted({*self._own.metrics, *cards})), ticks, count)
        panel = gpu_panel(single, self._gpu_machine, self._gpu_index)
        return TickBlock(
            job=self.job,
            run=self.run,
            roster=self.roster,
            start_ns=start * self.tick_ns,
            tick_ns=self.tick_ns,
            machines=self._machines,
            machine_panel=machine_panel(layer, count),
            gpu_panel=panel if panel.values.size else None,
        )

    def _layers(self, samples: Samples, start: int, ticks: int) -> tuple[Layer, Layer]:
        """Machines, and single GPUs, in ticks that hold samples or values that are held."""
        own_part, gpu_part = self._by_scope(samples)
        layer = self._layer(self._own, own_part, start, ticks)
        single = self._layer(self._gpus, gpu_part, start, ticks)
        if not single[1].size:
            return layer, single
        sticky = {m for m in single[0] if self._catalogue.metric(m).sticky}
        mean = over_gpus(single, self._gpu_machine, len(self._machines), sticky)
        return (united(layer, mean) if layer[0] else mean), single

    def _layer(self, grid: Grid, samples: Samples, start: int, ticks: int) -> Layer:
        row = self._row[samples.series]
        values = grid.place(samples.tick - start, row, samples.values, ticks)
        return grid.metrics, values, grid.hold(values, start, self._hold)

    def _most_ticks(self) -> int:
        """Ticks that a block may have."""
        cells = sum(len(grid.metrics) * grid.rows.size for grid in (self._own, self._gpus))
        return max(1, _MOST_CELLS // max(cells, 1))


def _first(samples: Samples, known: set[str]) -> dict[str, int]:
    """The tick of the first value of each metric that is not known yet."""
    out: dict[str, int] = {}
    for metric in samples.values.keys() - known:
        given = np.isfinite(samples.values[metric])
        if given.any():
            out[metric] = int(samples.tick[given].min())
    return out
