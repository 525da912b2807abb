"""Aligned telemetry: what alignment hands to detection.

Everything after this seam is arrays ``[metric, row, time]``; nothing is a dict a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Scope = Literal["machine", "gpu"]


@dataclass(frozen=True, slots=True)
class Panel:
    """Metrics of one scope over comparable rows.

    In the ``machine`` panel row *i* is machine *i*, and a metric that arrives per GPU stands
    there as the mean over the machine's GPUs. In the ``gpu`` panel a row is one GPU of one
    machine.

    Attributes
    ----------
    metrics
        Canonical names, length M, sorted.
    machine
        ``int64 [R]``: index into `TickBlock.machines` of each row.
    gpu
        ``int64 [R]``: GPU index of each row, -1 in the machine panel.
    values
        ``float64 [M, R, T]`` in canonical units; NaN = missing. A gap within the gap policy
        is filled with the last sample, a longer one stays NaN.
    fresh
        ``bool [M, R, T]``: a sample was measured within this very tick (False = held or
        missing).
    """

    scope: Scope
    metrics: tuple[str, ...]
    machine: NDArray[np.int64]
    gpu: NDArray[np.int64]
    values: NDArray[np.float64]
    fresh: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TickBlock:
    """Consecutive closed ticks of one run of one job, with a constant roster.

    Tick *k* of the block covers event time ``[start_ns + k*tick_ns, start_ns + (k+1)*tick_ns)``
    and ``start_ns`` is a whole multiple of ``tick_ns`` since the epoch. How ticks are cut into
    blocks never changes what a detector says.

    ``run`` counts runs of the job (a new one starts after a long silence of all machines);
    ``roster`` increases whenever ``machines``, a panel's rows or its metrics change, so a
    consumer re-indexes its state by name only then. ``machines`` is sorted.
    """

    job: str
    run: int
    roster: int
    start_ns: int
    tick_ns: int
    machines: tuple[str, ...]
    machine_panel: Panel
    gpu_panel: Panel | None

    @property
    def ticks(self) -> int:
        """Number of ticks T in the block."""
        return int(self.machine_panel.values.shape[2])
