"""Recent ticks and scores of one job, for the page and the report. Bounded by bytes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detect.detector import ScoreFrame
from ingest.ticks import TickBlock


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
    """``scores`` is ``float32 [machine, time]`` (1 = alarm), ``times_ns`` ``int64 [time]``."""

    machines: tuple[str, ...]
    times_ns: NDArray[np.int64]
    scores: NDArray[np.float32]
    phases: tuple[str, ...]


class History:
    """Keeps the newest ticks of a job within ``limit_bytes``.

    Not part of a snapshot and never read by detection.
    """

    def __init__(self, limit_bytes: int):
        self.limit_bytes = limit_bytes
        self._blocks: deque[TickBlock] = deque()
        self._values: deque[NDArray[np.float32]] = deque()
        self._frames: deque[ScoreFrame] = deque()
        self._bytes = 0

    def add(self, block: TickBlock, frames: list[ScoreFrame]) -> None:
        """Append a block and its score frames, dropping the oldest beyond the bound."""
        values = block.machine_panel.values.astype(np.float32)
        # Only the header of the block is kept: its arrays are float64 and may be views.
        self._blocks.append(block)
        self._values.append(values)
        self._frames.extend(frames)
        self._bytes += values.nbytes + sum(f.scores.nbytes for f in frames)
        while self._bytes > self.limit_bytes and len(self._blocks) > 1:
            self._blocks.popleft()
            self._bytes -= self._values.popleft().nbytes
            start = self._blocks[0].start_ns
            while self._frames and self._frames[0].start_ns < start:
                self._bytes -= self._frames.popleft().scores.nbytes

    def metrics(
        self, start_ns: int, end_ns: int, names: tuple[str, ...] | None = None
    ) -> MetricSlice:
        """Values of ``names`` (None = all) for ticks that start within ``[start, end)``."""
        kept = [
            (b, v)
            for b, v in zip(self._blocks, self._values, strict=True)
            if b.start_ns < end_ns and b.start_ns + b.ticks * b.tick_ns > start_ns
        ]
        metrics = names or tuple(sorted({m for b, _ in kept for m in b.machine_panel.metrics}))
        machines = tuple(sorted({m for b, _ in kept for m in b.machines}))
        row = {m: i for i, m in enumerate(machines)}
        parts, times = [], []
        for block, values in kept:
            stamps = block.start_ns + np.arange(block.ticks, dtype=np.int64) * block.tick_ns
            inside = (stamps >= start_ns) & (stamps < end_ns)
            part = np.full((len(metrics), len(machines), int(inside.sum())), np.nan, np.float32)
            rows = [row[m] for m in block.machines]
            for k, metric in enumerate(metrics):
                if metric in block.machine_panel.metrics:
                    source = block.machine_panel.metrics.index(metric)
                    part[k, rows] = values[source][:, inside]
            parts.append(part)
            times.append(stamps[inside])
        shape = (len(metrics), len(machines), 0)
        return MetricSlice(
            metrics,
            machines,
            np.concatenate(times) if times else np.zeros(0, np.int64),
            np.concatenate(parts, axis=2) if parts else np.zeros(shape, np.float32),
        )

    def scores(self, start_ns: int, end_ns: int) -> ScoreSlice:
        """Scores of every machine for ticks that start within ``[start, end)``."""
        frames = [f for f in self._frames if f.start_ns < end_ns]
        machines = tuple(sorted({m for f in frames for m in f.machines}))
        row = {m: i for i, m in enumerate(machines)}
        parts, times, phases = [], [], []
        for frame in frames:
            stamps = frame.start_ns + np.arange(frame.scores.shape[1]) * frame.tick_ns
            inside = (stamps >= start_ns) & (stamps < end_ns)
            if not inside.any():
                continue
            part = np.full((len(machines), int(inside.sum())), np.nan, np.float32)
            part[[row[m] for m in frame.machines]] = frame.scores[:, inside]
            parts.append(part)
            times.append(stamps[inside].astype(np.int64))
            phases.extend([frame.phase] * int(inside.sum()))
        return ScoreSlice(
            machines,
            np.concatenate(times) if times else np.zeros(0, np.int64),
            np.concatenate(parts, axis=1) if parts else np.zeros((len(machines), 0), np.float32),
            tuple(phases),
        )
