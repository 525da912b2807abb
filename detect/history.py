"""Recent ticks and scores of one job, for the page and the report. Bounded by bytes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from detect.detector import ScoreFrame
from ingest.ticks import TickBlock

JOINED_TICKS, JOINED_BYTES = 64, 1 << 18
"""Pieces of history are put together up to this length, and no longer once they are so large."""


@dataclass(frozen=True, slots=True)
class MetricSlice:
    """Aligned values of the machine panel over some time.

    ``values`` is ``float32 [metric, machine, time]``, ``times_ns`` ``int64 [time]`` (tick
    starts, ascending, gaps possible).
    """

    metrics: tuple[str, ...]
    machines: tuple[str, ...]
    times_ns: NDArray[np.int64]
    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ScoreSlice:
    """``scores`` is ``float32 [machine, time]`` (1 = alarm), ``times_ns`` ``int64 [time]``.

    ``phases`` names the job's phase at each tick, as of the end of the block it came in.
    """

    machines: tuple[str, ...]
    times_ns: NDArray[np.int64]
    scores: NDArray[np.float32]
    phases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Consecutive ticks with one roster: ``data`` is ``float32 [..., machine, time]``.

    ``names`` are the metrics of values ``[metric, machine, time]``, and for scores
    ``[machine, time]`` the one phase.
    """

    start_ns: int
    tick_ns: int
    machines: tuple[str, ...]
    names: tuple[str, ...]
    data: NDArray[np.float32]

    @property
    def end_ns(self) -> int:
        return self.start_ns + int(self.data.shape[-1]) * self.tick_ns

    def stamps(self) -> NDArray[np.int64]:
        """Start of every tick."""
        return self.start_ns + np.arange(self.data.shape[-1], dtype=np.int64) * self.tick_ns

    def within(self, start_ns: int, end_ns: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Stamps and data of the ticks that start within ``[start, end)``."""
        stamps = self.stamps()
        ticks = slice(*np.searchsorted(stamps, (start_ns, end_ns)).tolist())
        return stamps[ticks], self.data[..., ticks]


class _Pieces:
    """Pieces in order of time. A live job comes tick by tick; small ones are put together."""

    def __init__(self) -> None:
        self.kept: deque[_Piece] = deque()
        self.nbytes = 0

    def append(self, piece: _Piece) -> None:
        self.nbytes += piece.data.nbytes
        # Only like sizes are joined, so that a tick is copied six times and not each time.
        while self.kept and _joins(self.kept[-1], piece):
            piece = _joined(self.kept.pop(), piece)
        self.kept.append(piece)

    def drop_oldest(self) -> None:
        self.nbytes -= self.kept.popleft().data.nbytes

    def within(self, start_ns: int, end_ns: int) -> list[_Piece]:
        return [p for p in self.kept if p.start_ns < end_ns and p.end_ns > start_ns]


def _joins(last: _Piece, piece: _Piece) -> bool:
    ticks, more = last.data.shape[-1], piece.data.shape[-1]
    return (
        ticks <= more
        and ticks + more <= JOINED_TICKS
        and last.data.nbytes <= JOINED_BYTES
        and last.end_ns == piece.start_ns
        and last.tick_ns == piece.tick_ns
        and last.machines == piece.machines
        and last.names == piece.names
    )


def _joined(last: _Piece, piece: _Piece) -> _Piece:
    return replace(last, data=np.concatenate((last.data, piece.data), axis=-1))


class History:
    """Keeps the newest ticks of a job within ``limit_bytes``.

    Not part of a snapshot and never read by detection.
    """

    def __init__(self, limit_bytes: int):
        self.limit_bytes = limit_bytes
        self._values = _Pieces()
        self._scores = _Pieces()

    def add(self, block: TickBlock, frames: list[ScoreFrame]) -> None:
        """Append a block and its score frames, dropping the oldest beyond the bound."""
        panel = block.machine_panel
        # A copy, and only of the values: the block's arrays may be views of larger ones.
        values = panel.values.astype(np.float32)
        self._values.append(
            _Piece(block.start_ns, block.tick_ns, block.machines, panel.metrics, values)
        )
        for f in frames:
            self._scores.append(_Piece(f.start_ns, f.tick_ns, f.machines, (f.phase,), f.scores))
        while len(self._values.kept) > 1 and self.nbytes > self.limit_bytes:
            self._values.drop_oldest()
            start = self._values.kept[0].start_ns
            while self._scores.kept and self._scores.kept[0].end_ns <= start:
                self._scores.drop_oldest()

    def forget(self, before_ns: int) -> None:
        """Drop what ends by ``before_ns``; whoever wants it later has stored it elsewhere."""
        for pieces in (self._values, self._scores):
            while pieces.kept and pieces.kept[0].end_ns <= before_ns:
                pieces.drop_oldest()

    @property
    def nbytes(self) -> int:
        """Memory that values and scores take now."""
        return self._values.nbytes + self._scores.nbytes

    def metrics(
        self, start_ns: int, end_ns: int, names: tuple[str, ...] | None = None
    ) -> MetricSlice:
        """Values of ``names`` (None = all) for ticks that start within ``[start, end)``."""
        kept = self._values.within(start_ns, end_ns)
        metrics = names or _all({p.names for p in kept})
        machines = _all({p.machines for p in kept})
        row = {m: i for i, m in enumerate(machines)}
        parts, times = [], []
        for piece in kept:
            stamps, part = piece.within(start_ns, end_ns)
            if piece.names != metrics or piece.machines != machines:
                shape = (len(metrics), len(machines), stamps.size)
                data, part = part, np.full(shape, np.nan, np.float32)
                rows = [row[m] for m in piece.machines]
                for k, metric in enumerate(metrics):
                    if metric in piece.names:
                        part[k, rows] = data[piece.names.index(metric)]
            parts.append(part)
            times.append(stamps)
        shape = (len(metrics), len(machines), 0)
        return MetricSlice(
            metrics,
            machines,
            np.concatenate(times) if times else np.zeros(0, np.int64),
            np.concatenate(parts, axis=2) if parts else np.zeros(shape, np.float32),
        )

    def scores(self, start_ns: int, end_ns: int) -> ScoreSlice:
        """Scores of every machine for ticks that start within ``[start, end)``."""
        kept = self._scores.within(start_ns, end_ns)
        machines = _all({p.machines for p in kept})
        row = {m: i for i, m in enumerate(machines)}
        parts, times = [], []
        phases: list[str] = []
        for piece in kept:
            stamps, data = piece.within(start_ns, end_ns)
            part = np.full((len(machines), stamps.size), np.nan, np.float32)
            part[[row[m] for m in piece.machines]] = data
            parts.append(part)
            times.append(stamps)
            phases.extend(piece.names * stamps.size)
        return ScoreSlice(
            machines,
            np.concatenate(times) if times else np.zeros(0, np.int64),
            np.concatenate(parts, axis=1) if parts else np.zeros((len(machines), 0), np.float32),
            tuple(phases),
        )


def _all(rosters: set[tuple[str, ...]]) -> tuple[str, ...]:
    """Every name of any of them, sorted."""
    if len(rosters) == 1:
        # In order already, as a rule; a set of thousands of names takes ten times as long.
        return tuple(sorted(*rosters))
    return tuple(sorted({name for names in rosters for name in names}))
