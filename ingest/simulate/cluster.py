"""The machines of a job: names, places, roles, and how they differ for good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.simulate.metrics import INDEX, METRICS, NAMES
from ingest.simulate.randomness import Key, around_one, chance, log_uniform, stream, uniform
from ingest.simulate.spec import JobSpec

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything about the machines that does not change during the job.

    ``factor`` and ``extra`` are ``[metric, machine]`` in the order of `metrics.METRICS`: a
    multiplier and an addition to what the job's levels say; ``gpu_factor`` is
    ``[metric, machine, gpu]``. ``compute_factor`` changes the compute phase only (pipeline
    stages). ``work`` is ``[machine, 3]``: relative durations of load, compute and optimise.
    ``ambient`` is the inlet temperature in °C.
    """

    names: tuple[str, ...]
    switch: NDArray[np.int64]
    rack: NDArray[np.int64]
    stage: NDArray[np.int64]
    rank: NDArray[np.int64]
    factor: FloatArray
    extra: FloatArray
    compute_factor: FloatArray
    gpu_factor: FloatArray
    work: FloatArray
    gpu_work: FloatArray
    ambient: FloatArray
    clock_s: FloatArray
    drift: FloatArray
    topology: dict[str, Any]


_SPREAD = {
    "gpu_power_watts": (0.008, 0.04),
    "gpu_temperature_celsius": (0.0, 0.0),
    "gpu_sm_clock_hertz": (0.001, 0.012),
    "gpu_utilization_ratio": (0.0, 0.004),
    "gpu_graphics_engine_active_ratio": (0.0, 0.006),
    "gpu_sm_active_ratio": (0.0, 0.01),
    "gpu_tensor_active_ratio": (0.001, 0.012),
    "gpu_dram_active_ratio": (0.001, 0.012),
    "gpu_memory_used_bytes": (0.0, 0.004),
    "cpu_usage_ratio": (0.02, 0.15),
    "memory_usage_ratio": (0.01, 0.06),
    "disk_read_bytes_per_second": (0.01, 0.2),
    "disk_write_bytes_per_second": (0.05, 0.5),
    "pfc_tx_packets_per_second": (0.2, 1.0),
    "tcp_tx_bytes_per_second": (0.05, 0.4),
    "tcp_rx_bytes_per_second": (0.05, 0.4),
}
_STAGE_SENSITIVE = (
    "gpu_power_watts",
    "gpu_tensor_active_ratio",
    "gpu_dram_active_ratio",
    "gpu_sm_active_ratio",
)
_SITES = ("gpu", "node", "worker", "h100-", "dgx", "hgx-")


def build_cluster(spec: JobSpec, seed: int) -> Cluster:
    """Draw the machines of a job."""
    rng = stream(seed, Key.CLUSTER)
    n, g = spec.machines, spec.gpus_per_machine
    names = _names(rng, n)
    per_switch = max(1, spec.machines_per_switch)
    switch = np.arange(n, dtype=np.int64) // per_switch
    per_rack = max(1, min(per_switch, int(rng.integers(2, 9))))
    rack = np.arange(n, dtype=np.int64) // per_rack
    stages = max(1, min(spec.stages, n))
    # Interleaved or in blocks: both layouts are in use.
    index = np.arange(n, dtype=np.int64)
    stage = index % stages if chance(rng, 0.5) else index * stages // n
    rank = np.zeros(n, dtype=np.int64)
    for s in range(stages):
        mine = np.flatnonzero(stage == s)
        rank[mine] = np.arange(len(mine))

    factor = np.ones((len(METRICS), n))
    gpu_factor = np.ones((len(METRICS), n, g))
    extra = np.zeros((len(METRICS), n))
    compute_factor = np.ones((len(METRICS), n))
    for i, metric in enumerate(METRICS):
        low, high = _SPREAD.get(metric.name, (0.0, 0.01))
        sigma = uniform(rng, low, high) * spec.spread
        factor[i] = around_one(rng.standard_normal(n), sigma)
        if metric.scope == "gpu":
            gpu_factor[i] = around_one(rng.standard_normal((n, g)), sigma * 0.7)
    work = np.stack(
        [
            around_one(rng.standard_normal(n), uniform(rng, 0.0, 0.15)),
            around_one(rng.standard_normal(n), uniform(rng, 0.0005, 0.008) * spec.spread),
            around_one(rng.standard_normal(n), 0.01),
        ],
        axis=1,
    )
    gpu_work = around_one(rng.standard_normal((n, g)), uniform(rng, 0.0, 0.004) * spec.spread)
    if spec.slow_machine > 0:
        work[int(rng.integers(n)), 1] *= 1.0 + spec.slow_machine
    _stages(rng, spec, stages, stage, work, compute_factor)
    _roles(rng, stages, stage, factor, extra, work)
    _odd_power(rng, factor, spec.spread)

    ambient = uniform(rng, 22.0, 34.0) + uniform(rng, 0.3, 3.0) * spec.spread * np.clip(
        rng.standard_normal(n), -3, 3
    )
    if chance(rng, 0.3):  # a hot aisle: some racks are warmer, and their clocks a little lower
        hot = np.isin(rack, np.flatnonzero(rng.random(int(rack.max()) + 1) < 0.3))
        ambient = ambient + np.where(hot, uniform(rng, 2.0, 9.0), 0.0)
    clock_s = (rng.random(n) * 2.0 - 1.0) * spec.clock_offset_s
    drift = (rng.random(n) * 2.0 - 1.0) * 2e-6
    topology = {
        "machines": {
            name: {
                "leaf_switch": f"leaf-{switch[i]:03d}",
                "rack": f"rack-{rack[i]:03d}",
                "pipeline_stage": int(stage[i]),
                "data_rank": int(rank[i]),
            }
            for i, name in enumerate(names)
        }
    }
    return Cluster(
        names=names,
        switch=switch,
        rack=rack,
        stage=stage,
        rank=rank,
        factor=factor,
        extra=extra,
        compute_factor=compute_factor,
        gpu_factor=gpu_factor,
        work=work,
        gpu_work=gpu_work,
        ambient=ambient,
        clock_s=clock_s,
        drift=drift,
        topology=topology,
    )


def _names(rng: np.random.Generator, n: int) -> tuple[str, ...]:
    site = _SITES[int(rng.integers(len(_SITES)))]
    numbers = np.sort(rng.choice(max(100, 4 * n), size=n, replace=False))
    width = len(str(int(numbers[-1])))
    return tuple(f"{site}{int(k):0{width}d}" for k in numbers)


def _stages(
    rng: np.random.Generator,
    spec: JobSpec,
    stages: int,
    stage: NDArray[np.int64],
    work: FloatArray,
    compute_factor: FloatArray,
) -> None:
    """Stages hold unequal work; the last one (head and loss) tends to be the longest."""
    if stages == 1:
        return
    share = 1.0 + spec.stage_spread * (rng.random(stages) * 2.0 - 1.0)
    if chance(rng, 0.5):
        share[-1] *= 1.0 + spec.stage_spread * uniform(rng, 0.3, 1.5)
    work[:, 1] *= share[stage]
    for i, name in enumerate(NAMES):
        if name in _STAGE_SENSITIVE or name.startswith(("nvlink", "pcie")):
            by_stage = around_one(rng.standard_normal(stages), spec.stage_spread)
            compute_factor[i] *= by_stage[stage]


def _roles(
    rng: np.random.Generator,
    stages: int,
    stage: NDArray[np.int64],
    factor: FloatArray,
    extra: FloatArray,
    work: FloatArray,
) -> None:
    """Rank 0 logs and evaluates, some hosts load the data, first and last stage touch disks."""
    n = len(stage)
    hosts: list[tuple[NDArray[np.int64], float]] = []
    if chance(rng, 0.6):
        hosts.append((np.asarray([0]), uniform(rng, 0.1, 1.0)))
    if n >= 8 and chance(rng, 0.25):
        many = max(1, int(n * uniform(rng, 0.02, 0.15)))
        hosts.append((rng.choice(n, size=many, replace=False), uniform(rng, 0.3, 2.0)))
    if stages > 1 and chance(rng, 0.4):
        hosts.append((np.flatnonzero(stage == 0), uniform(rng, 0.1, 1.0)))
    for who, strength in hosts:
        work[who, 0] *= 1.0 + 0.3 * strength
        for i, name in enumerate(NAMES):
            if name == "cpu_usage_ratio":
                extra[i, who] += 0.06 * strength
            elif name.startswith(("disk_", "tcp_")):
                factor[i, who] *= 1.0 + strength * log_uniform(rng, 0.3, 3.0)
            elif name == "memory_usage_ratio":
                extra[i, who] += 0.05 * strength


def _odd_power(rng: np.random.Generator, factor: FloatArray, spread: float) -> None:
    """Now and then a machine's meter or firmware is off by 7 to 13 % for good."""
    if not chance(rng, 0.35):
        return
    i = INDEX["gpu_power_watts"]
    odd = rng.random(factor.shape[1]) < 0.08
    size = uniform(rng, 0.07, 0.13) * min(spread, 1.0)
    factor[i] = np.where(odd, factor[i] * (1.0 + size * (1 if chance(rng, 0.5) else -1)), factor[i])
