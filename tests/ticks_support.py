"""Blocks of ticks made by hand, and ways to feed them to a detector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from detect.alert import AlertChange
from detect.detector import JobDetector
from ingest.ticks import Panel, TickBlock

SECOND = 1_000_000_000
START_NS = 1_700_000_720 * SECOND
"""80 seconds after a whole multiple of 8 minutes."""

METRICS = ("cpu_usage_ratio", "gpu_power_watts", "gpu_tensor_active_ratio")
LEVELS = (0.3, 5200.0, 0.4)


def block_of(
    values: NDArray[np.float64],
    *,
    metrics: Sequence[str] = METRICS,
    machines: Sequence[str] | None = None,
    start_ns: int = START_NS,
    tick_ns: int = SECOND,
    run: int = 0,
    roster: int = 0,
) -> TickBlock:
    """A block without a GPU panel from ``[M, N, T]`` values; every sample is fresh."""
    count = values.shape[1]
    panel = Panel(
        scope="machine",
        metrics=tuple(metrics),
        machine=np.arange(count, dtype=np.int64),
        gpu=np.full(count, -1, dtype=np.int64),
        values=values,
        fresh=np.isfinite(values),
    )
    names = tuple(machines) if machines is not None else machine_names(count)
    return TickBlock("job", run, roster, start_ns, tick_ns, names, panel, None)


def machine_names(count: int) -> tuple[str, ...]:
    """``m000``, ``m001``, ..."""
    return tuple(f"m{k:03d}" for k in range(count))


def healthy_values(machines: int, ticks: int, seed: int = 0) -> NDArray[np.float64]:
    """``[4, N, T]`` of `METRICS`: a common rhythm, and 1 % noise of each machine's own."""
    rng = np.random.default_rng(seed)
    rhythm = 1.0 + 0.05 * np.sin(2.0 * np.pi * np.arange(ticks) / 23.0)
    noise = rng.normal(1.0, 0.01, (len(METRICS), machines, ticks))
    values: NDArray[np.float64] = np.asarray(LEVELS)[:, None, None] * rhythm * noise
    return values


def faulty_values(
    machines: int, ticks: int, row: int, onset: int, factor: float = 0.3, seed: int = 0
) -> NDArray[np.float64]:
    """`healthy_values` with one machine's values multiplied from a tick on."""
    values = healthy_values(machines, ticks, seed)
    values[:, row, onset:] *= factor
    return values


def cut(block: TickBlock, pieces: Sequence[int]) -> list[TickBlock]:
    """The block in pieces of the given lengths, the rest last."""
    blocks, at = [], 0
    for length in [*pieces, block.ticks]:
        length = min(length, block.ticks - at)
        if length:
            panel = block.machine_panel
            part = replace(
                panel,
                values=panel.values[:, :, at : at + length],
                fresh=panel.fresh[:, :, at : at + length],
            )
            start = block.start_ns + at * block.tick_ns
            blocks.append(replace(block, start_ns=start, machine_panel=part))
        at += length
    return blocks


def feed(detector: JobDetector, blocks: Sequence[TickBlock]) -> list[AlertChange]:
    """All changes of all blocks."""
    return [change for block in blocks for change in detector.update(block)]


def scores_by_machine(detector: JobDetector) -> dict[str, NDArray[np.float32]]:
    """All scores taken now, joined over frames in which the roster is the same."""
    joined: dict[str, list[NDArray[np.float32]]] = {}
    for frame in detector.take_scores():
        for machine, row in zip(frame.machines, frame.scores, strict=True):
            joined.setdefault(machine, []).append(row)
    return {machine: np.concatenate(rows) for machine, rows in joined.items()}


Factory = Callable[[str], JobDetector]
"""Makes a fresh detector for a job."""
