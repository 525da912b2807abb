"""Small jobs for the simulator's tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.simulate import JobSpec, LifeSpec, StepSpec

NO_LIFE = LifeSpec(
    cron_per_hour=0.0,
    slow_batch_per_hour=0.0,
    agent_pause_per_hour=0.0,
    frozen_per_hour=0.0,
    glitch_per_hour=0.0,
    job_slow_per_hour=0.0,
    pfc_burst_per_hour=0.0,
    clock_dip_per_hour=0.0,
    checkpoint_every_s=0.0,
)


def quiet(**changes: Any) -> JobSpec:
    """A job without noise, without differences between machines, where nothing happens."""
    spec = JobSpec(
        machines=4,
        minutes=10.0,
        step=StepSpec(
            load_s=0.1,
            compute_s=1.0,
            collective_s=0.4,
            optimise_s=0.05,
            common=0.0,
            imbalance=0.0,
            shift=0.0,
            load_tail=0.0,
            pause_per_hour=0.0,
        ),
        life=NO_LIFE,
        spread=0.0,
        noise=0.0,
        clock_offset_s=0.0,
        jitter_s=0.0,
    )
    return replace(spec, **changes)


def ordered(table: pa.Table) -> pa.Table:
    """Rows by machine, GPU and time, whatever the order they came in."""
    return table.sort_by([("machine", "ascending"), ("gpu", "ascending"), ("ts", "ascending")])


def series(
    table: pa.Table, machine: str, metric: str, start_s: float, end_s: float, origin_ns: int
) -> NDArray[np.float64]:
    """One machine's values of a metric stamped within ``[start_s, end_s)``, nulls left out."""
    stamps = (table["ts"].cast(pa.int64()).to_numpy() - origin_ns) / 1e9
    mine = table["machine"].to_numpy(zero_copy_only=False) == machine
    values = table[metric].to_numpy()
    chosen = values[mine & (stamps >= start_s) & (stamps < end_s)]
    return np.asarray(chosen[~np.isnan(chosen)], dtype=np.float64)
