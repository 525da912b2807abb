"""Scores and metrics over time: written by workers, read by the API, bounded by retention.

One design for every role: the worker's thread stores a block per job every few seconds, and
readers join the blocks of a time range. In the all-in-one role the newest, not yet stored
ticks come from the pipeline itself (`LiveHistory`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from detect.detector import ScoreFrame
from detect.history import MetricSlice, ScoreSlice
from replay.band import Band, peer_band
from replay.view.grid import ScoreGrid
from serve.store.base import Database
from serve.store.blobs import (
    MetricBlock,
    decode_metric,
    decode_scores,
    encode_metric,
    encode_scores,
)
from serve.store.tables import HistoryRow

SCORES = ""
"""``series`` of a job's scores; metrics stand under their names."""

MAX_CELLS = 64_000_000
"""Machines × ticks that one answer may hold."""


class TooMuchHistoryError(Exception):
    """The range holds more cells than `MAX_CELLS`; ask for less time."""


class LiveHistory(Protocol):
    """What this process knows and has not stored yet. Callable from any thread."""

    def live_scores(self, job: str, start_ns: int, end_ns: int) -> ScoreGrid | None:
        """Newest scores, if the job runs here."""
        ...

    def live_metric(self, job: str, metric: str, start_ns: int, end_ns: int) -> MetricBlock | None:
        """Newest values of a metric, if the job runs here."""
        ...


class HistoryStore:
    """Reads history for the API."""

    def __init__(self, database: Database, live: LiveHistory | None = None):
        self.database = database
        self.live = live

    def scores(self, job: str, start_ns: int, end_ns: int) -> ScoreGrid | None:
        """Scores of ticks within ``[start, end)``; None if there are none."""
        # The live part first: what is stored in between would else be in neither.
        live = self.live.live_scores(job, start_ns, end_ns) if self.live else None
        parts = [decode_scores(data) for data in self._blobs(job, SCORES, start_ns, end_ns)]
        return _joined([*parts, live] if live else parts, start_ns, end_ns)

    def band(self, job: str, machine: str, metric: str, start_ns: int, end_ns: int) -> Band | None:
        """The machine's metric within ``[start, end)`` and its peers'; None if unknown."""
        live = self.live.live_metric(job, metric, start_ns, end_ns) if self.live else None
        parts = [decode_metric(data) for data in self._blobs(job, metric, start_ns, end_ns)]
        grids = [
            ScoreGrid(job, p.start_ns, p.tick_ns, p.machines, p.values)
            for p in ([*parts, live] if live else parts)
        ]
        grid = _joined(grids, start_ns, end_ns)
        if grid is None or machine not in grid.machines:
            return None
        times = grid.start_ns + np.arange(grid.scores.shape[1], dtype=np.int64) * grid.step_ns
        return peer_band(grid.scores, grid.machines.index(machine), times)

    def metrics(self, job: str) -> list[str]:
        """Names of the metrics with any history."""
        query = select(HistoryRow.series).where(HistoryRow.job == job).distinct()
        with self.database.read() as session:
            return sorted(name for name in session.scalars(query) if name != SCORES)

    def span(self, job: str) -> tuple[int, int] | None:
        """First and last event time with scores; None if there are none."""
        query = select(HistoryRow.start_ns, HistoryRow.end_ns).where(
            HistoryRow.job == job, HistoryRow.series == SCORES
        )
        live = self.live.live_scores(job, 0, 1 << 62) if self.live else None
        with self.database.read() as session:
            newest = session.execute(query.order_by(HistoryRow.end_ns.desc()).limit(1)).first()
            oldest = session.execute(query.order_by(HistoryRow.end_ns).limit(1)).first()
        starts = [oldest.start_ns] if oldest else []
        ends = [newest.end_ns] if newest else []
        if live is not None:
            starts.append(live.start_ns)
            ends.append(live.start_ns + live.step_ns * live.scores.shape[1])
        return (min(starts), max(ends)) if starts else None

    def _blobs(self, job: str, series: str, start_ns: int, end_ns: int) -> list[bytes]:
        query = select(HistoryRow.data).where(
            HistoryRow.job == job,
            HistoryRow.series == series,
            HistoryRow.end_ns > start_ns,
            HistoryRow.start_ns < end_ns,
        )
        with self.database.read() as session:
            # A tick that was stored twice (after a crash) counts as stored last.
            return list(session.scalars(query.order_by(HistoryRow.id)))


def store_scores(session: Session, job: str, frames: Sequence[ScoreFrame], *, now_ns: int) -> None:
    """Append consecutive frames, in the caller's transaction."""
    for grid in _runs_of_frames(job, frames):
        _store(session, job, SCORES, grid.start_ns, _end(grid), encode_scores(grid), now_ns)


def store_metrics(
    session: Session, job: str, part: MetricSlice, tick_ns: int, *, now_ns: int
) -> None:
    """Append a slice of aligned ticks, one row a metric, in the caller's transaction."""
    for start, stop in _even_runs(part.times_ns, tick_ns):
        start_ns = int(part.times_ns[start])
        end_ns = int(part.times_ns[stop - 1]) + tick_ns
        for k, metric in enumerate(part.metrics):
            values = part.values[k, :, start:stop]
            if np.isnan(values).all():
                continue
            data = encode_metric(MetricBlock(start_ns, tick_ns, part.machines, values))
            _store(session, job, metric, start_ns, end_ns, data, now_ns)


def metric_block(part: MetricSlice, tick_ns: int) -> MetricBlock | None:
    """The first metric of a slice on an even grid; None if there is nothing in it."""
    if part.times_ns.size == 0 or not part.metrics or np.isnan(part.values[0]).all():
        return None
    start_ns, values = _even(part.times_ns, part.values[0], tick_ns)
    return MetricBlock(start_ns, tick_ns, part.machines, values)


def score_grid(job: str, part: ScoreSlice, tick_ns: int) -> ScoreGrid | None:
    """A slice of scores on an even grid; None if there is nothing in it."""
    if part.times_ns.size == 0:
        return None
    start_ns, scores = _even(part.times_ns, part.scores, tick_ns)
    phases = _phases(list(zip(part.times_ns.tolist(), part.phases, strict=True)), start_ns)
    return ScoreGrid(job, start_ns, tick_ns, part.machines, scores, phases)


def _even(
    times_ns: NDArray[np.int64], values: NDArray[np.float32], tick_ns: int
) -> tuple[int, NDArray[np.float32]]:
    start_ns = int(times_ns[0])
    columns = (times_ns - start_ns) // tick_ns
    even = np.full((values.shape[0], int(columns[-1]) + 1), np.nan, np.float32)
    even[:, columns] = values
    return start_ns, even


def _store(
    session: Session, job: str, series: str, start_ns: int, end_ns: int, data: bytes, now_ns: int
) -> None:
    session.add(
        HistoryRow(
            job=job,
            series=series,
            start_ns=start_ns,
            end_ns=end_ns,
            written_at_ns=now_ns,
            size_bytes=len(data),
            data=data,
        )
    )


def _even_runs(times_ns: NDArray[np.int64], tick_ns: int) -> list[tuple[int, int]]:
    if times_ns.size == 0:
        return []
    breaks = np.flatnonzero(np.diff(times_ns) != tick_ns) + 1
    edges = [0, *breaks.tolist(), int(times_ns.size)]
    return list(pairwise(edges))


def _runs_of_frames(job: str, frames: Sequence[ScoreFrame]) -> list[ScoreGrid]:
    """Consecutive frames joined; a gap or another cadence begins a new grid."""
    runs: list[list[ScoreGrid]] = []
    for f in frames:
        grid = ScoreGrid(job, f.start_ns, f.tick_ns, f.machines, f.scores, ((f.start_ns, f.phase),))
        if runs and runs[-1][-1].step_ns == f.tick_ns and _end(runs[-1][-1]) == f.start_ns:
            runs[-1].append(grid)
        else:
            runs.append([grid])
    joined = (_joined(run, run[0].start_ns, _end(run[-1])) for run in runs)
    return [grid for grid in joined if grid is not None]


def _joined(parts: Sequence[ScoreGrid], start_ns: int, end_ns: int) -> ScoreGrid | None:
    """One even grid of all parts; later parts win. Parts of an older cadence are left out."""
    if not parts:
        return None
    step = parts[-1].step_ns
    usable = [p for p in parts if p.step_ns == step and p.scores.size]
    # The grid keeps the blocks' own phase, whatever the caller's start is.
    first = max(min((p.start_ns for p in usable), default=0), start_ns // step * step)
    last = min(max((_end(p) for p in usable), default=0), -(-end_ns // step) * step)
    columns = (last - first) // step
    if columns <= 0:
        return None
    rosters = {p.machines for p in usable}
    # One alone is in order already, as a rule; a set of thousands of names takes ten times as long.
    machines = tuple(sorted(*rosters) if len(rosters) == 1 else sorted(set().union(*rosters)))
    if len(machines) * columns > MAX_CELLS:
        raise TooMuchHistoryError(f"{len(machines)} machines over {columns} ticks")
    row = {name: i for i, name in enumerate(machines)}
    rows = {
        names: np.fromiter((row[name] for name in names), np.intp, len(names)) for names in rosters
    }
    scores = np.full((len(machines), columns), np.nan, np.float32)
    phases: list[tuple[int, str]] = []
    for part in usable:
        at = (part.start_ns - first) // step
        low, high = max(0, -at), min(part.scores.shape[1], columns - at)
        if high > low:
            scores[rows[part.machines], at + low : at + high] = part.scores[:, low:high]
        phases += [(start, name) for start, name in part.phases if start < last]
    return ScoreGrid(parts[-1].job, first, step, machines, scores, _phases(phases, first))


def _end(grid: ScoreGrid) -> int:
    return grid.start_ns + grid.step_ns * int(grid.scores.shape[1])


def _phases(starts: list[tuple[int, str]], first_ns: int) -> tuple[tuple[int, str], ...]:
    kept: list[tuple[int, str]] = []
    for start, name in sorted(starts):
        at = max(start, first_ns)
        if kept and kept[-1][0] == at:
            kept.pop()
        if not kept or kept[-1][1] != name:
            kept.append((at, name))
    return tuple(kept)
