"""What each metric reads in each phase, and how many bytes a step moves: drawn for a job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.simulate.metrics import NAMES
from ingest.simulate.phases import Carrier, Phase
from ingest.simulate.randomness import Key, chance, log_uniform, stream, uniform
from ingest.simulate.spec import JobSpec

FloatArray = NDArray[np.float64]
_P = Phase


@dataclass(frozen=True, slots=True)
class Levels:
    """``level[metric, phase]`` and ``flow[metric, carrier]`` (bytes a step), canonical units.

    ``base`` is what is there whatever happens; ``temperature_per_watt`` and
    ``temperature_s`` (time constant) drive the temperature.
    """

    level: FloatArray
    flow: FloatArray
    base: FloatArray
    tdp_watts: float
    temperature_per_watt: float
    temperature_s: float
    power_s: float


def build_levels(spec: JobSpec, seed: int) -> Levels:
    """Draw a job's levels. All are drawn whatever subset is recorded, so subsets agree."""
    rng = stream(seed, Key.LEVELS)
    tdp = float(rng.choice(np.asarray([300.0, 400.0, 500.0, 700.0, 1000.0])))
    rows = _gpu_levels(rng, spec, tdp)
    rows.update(_host_levels(rng, spec))
    flows, bases = _flows(rng, spec)
    level = np.zeros((len(NAMES), len(Phase)))
    flow = np.zeros((len(NAMES), len(Carrier)))
    base = np.zeros(len(NAMES))
    for i, name in enumerate(NAMES):
        if name in rows:
            level[i] = rows[name]
        if name in flows:
            flow[i] = flows[name]
        base[i] = bases.get(name, 0.0)
    return Levels(
        level=level,
        flow=flow,
        base=base,
        tdp_watts=tdp,
        temperature_per_watt=uniform(rng, 22.0, 48.0) / tdp,
        temperature_s=log_uniform(rng, 8.0, 60.0),
        power_s=log_uniform(rng, 0.05, 1.0),
    )


def _row(**levels: float) -> FloatArray:
    out = np.zeros(len(Phase))
    for name, value in levels.items():
        out[Phase[name.upper()]] = value
    return out


def _gpu_levels(rng: np.random.Generator, spec: JobSpec, tdp: float) -> dict[str, FloatArray]:

    def u(low: float, high: float) -> float:
        return uniform(rng, low, high)

    if spec.wait == "spin":
        sm, util, engine, power = u(0.85, 1.0), u(0.98, 1.0), u(0.97, 1.0), u(0.36, 0.6)
    elif spec.wait == "few_sms":
        sm, util, engine, power = u(0.08, 0.35), u(0.97, 1.0), u(0.9, 1.0), u(0.25, 0.42)
    else:
        sm, util, engine, power = u(0.0, 0.05), u(0.0, 0.15), u(0.0, 0.1), u(0.15, 0.26)
    compute = u(max(0.62, power + 0.12), 0.98)
    idle = u(0.07, 0.14)
    busy_coll = u(0.01, 0.12)
    eval_power = u(power, compute)
    hang = u(0.2, 0.5)
    if abs(hang - power) < 0.06:  # a stuck kernel is not the collective's waiting loop
        hang = max(0.15, power - u(0.08, 0.16))
    gpu_power = tdp * _row(
        idle=idle,
        init=idle * u(1.2, 1.9),
        checkpoint=u(0.15, 0.27),
        evaluate=eval_power,
        optimise=u(0.35, 0.6),
        load=u(0.17, 0.32),
        stall=u(0.17, 0.32),
        compute=compute,
        wait=power,
        collective=min(power + busy_coll, compute),
        hang=hang,
    )
    load_util = u(0.0, 0.12)
    utilization = _row(
        init=u(0.0, 0.2),
        checkpoint=u(0.0, 0.15),
        evaluate=u(0.85, 1.0),
        optimise=u(0.9, 1.0),
        load=load_util,
        stall=load_util,
        compute=u(0.95, 1.0),
        wait=util,
        collective=max(util, u(0.9, 1.0)),
        hang=1.0,
    )
    graphics = _row(
        init=u(0.0, 0.1),
        checkpoint=u(0.0, 0.1),
        evaluate=u(0.6, 0.95),
        optimise=u(0.8, 1.0),
        load=u(0.0, 0.06),
        stall=u(0.0, 0.06),
        compute=u(0.88, 1.0),
        wait=engine,
        collective=max(engine, u(0.85, 1.0)),
        hang=u(0.9, 1.0),
    )
    sm_active = _row(
        init=u(0.0, 0.03),
        checkpoint=u(0.0, 0.05),
        evaluate=u(0.45, 0.9),
        optimise=u(0.6, 0.95),
        load=u(0.0, 0.03),
        stall=u(0.0, 0.03),
        compute=u(0.68, 0.97),
        wait=sm,
        collective=max(sm, u(0.12, 0.95)),
        hang=u(0.01, 1.0),
    )
    tensor_compute = u(0.18, 0.75)
    tensor = _row(
        evaluate=tensor_compute * u(0.4, 0.95),
        optimise=u(0.0, 0.02),
        compute=tensor_compute,
        wait=u(0.0, 0.004),
        collective=u(0.0, 0.02),
    )
    dram_wait = u(0.002, 0.06)
    dram = _row(
        init=u(0.0, 0.03),
        checkpoint=u(0.0, 0.08),
        evaluate=u(0.15, 0.5),
        optimise=u(0.4, 0.85),
        load=u(0.0, 0.02),
        stall=u(0.0, 0.02),
        compute=u(0.2, 0.6),
        wait=dram_wait,
        collective=dram_wait + u(0.02, 0.3),
        hang=u(0.0, 0.02),
    )
    top = u(1.3e9, 1.98e9)
    loaded = top * u(0.86, 1.0)
    sleepy = u(0.2e9, 0.4e9) if chance(rng, 0.4) else top
    clock = np.full(len(Phase), top)
    clock[[_P.COMPUTE, _P.EVALUATE, _P.OPTIMISE]] = loaded
    clock[_P.IDLE] = sleepy
    memory = 2.0**30 * u(30.0, 76.0)
    used = np.full(len(Phase), memory)
    used[_P.IDLE] = 2.0**30 * u(0.4, 1.2)
    return {
        "gpu_power_watts": gpu_power,
        "gpu_utilization_ratio": utilization,
        "gpu_graphics_engine_active_ratio": graphics,
        "gpu_sm_active_ratio": sm_active,
        "gpu_tensor_active_ratio": tensor,
        "gpu_dram_active_ratio": dram,
        "gpu_sm_clock_hertz": clock,
        "gpu_memory_used_bytes": used,
    }


def _host_levels(rng: np.random.Generator, spec: JobSpec) -> dict[str, FloatArray]:

    def u(low: float, high: float) -> float:
        return uniform(rng, low, high)

    busy = log_uniform(rng, 0.04, 0.55)
    waiting = busy * (u(0.9, 1.15) if spec.wait != "host" else u(0.5, 1.3))
    cpu = _row(
        idle=u(0.004, 0.025),
        init=busy * u(0.6, 1.6),
        checkpoint=busy * u(0.7, 1.6),
        evaluate=busy * u(0.7, 1.3),
        optimise=busy,
        load=busy * u(1.0, 1.5),
        stall=busy * u(0.8, 1.2),
        compute=busy,
        wait=waiting,
        collective=busy * u(0.9, 1.15),
        hang=busy * u(0.6, 1.1),
    )
    in_use = u(0.12, 0.75)
    memory = np.full(len(Phase), in_use)
    memory[_P.IDLE] = in_use * u(0.1, 0.5)
    memory[_P.INIT] = in_use * u(0.5, 0.95)
    # Memory fills and empties in seconds: filtered like a temperature.
    written = log_uniform(rng, 5e7, 4e9)
    return {
        "cpu_usage_ratio": cpu,
        "memory_usage_ratio": memory,
        "disk_write_bytes_per_second": _row(checkpoint=written, init=written * 0.02),
        "disk_read_bytes_per_second": _row(init=log_uniform(rng, 5e7, 3e9)),
        "tcp_tx_bytes_per_second": _row(checkpoint=written * u(0.0, 0.6)),
        "tcp_rx_bytes_per_second": _row(init=log_uniform(rng, 1e6, 1e9)),
        "pfc_tx_packets_per_second": _row(
            collective=log_uniform(rng, 1.0, 3000.0) if chance(rng, 0.45) else 0.0
        ),
    }


def _flows(
    rng: np.random.Generator, spec: JobSpec
) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Bytes a step by carrier; what crosses a link is bounded by the link's speed."""
    step = spec.step
    link = log_uniform(rng, 1.2e10, 4e11)
    sent = link * uniform(rng, 0.3, 0.9) * step.collective_s
    asymmetry = uniform(rng, 0.96, 1.04)
    nvlink = log_uniform(rng, 2e10, 3e11) * (step.compute_s + step.collective_s)
    nvlink_compute = uniform(rng, 0.3, 0.9)
    batch = log_uniform(rng, 2e6, 4e9) * min(1.0, step.nominal_s)
    pcie_link = uniform(rng, 6e9, 4e10)
    loaded = min(batch, pcie_link * max(step.load_s, 1e-3))
    through_pcie = sent / spec.gpus_per_machine if chance(rng, 0.8) else 0.0
    disk = log_uniform(rng, 1e6, 2e9) * step.nominal_s if chance(rng, 0.7) else 0.0
    in_load = uniform(rng, 0.0, 1.0)
    tcp = log_uniform(rng, 1e4, 5e7) * step.nominal_s

    def flow(load: float = 0, compute: float = 0, coll: float = 0, all_: float = 0) -> FloatArray:
        return np.asarray([load, compute, coll, all_], dtype=np.float64)

    early = step.overlap
    # Part of it is read while the step waits for it, no faster than disk and network allow.
    disk_load = min(disk * in_load, 5e9 * step.load_s)
    from_net = tcp + (disk if chance(rng, 0.4) else 0.0)
    net_load = min(from_net * in_load, 1e10 * step.load_s)
    flows = {
        "ib_tx_bytes_per_second": flow(compute=sent * early, coll=sent * (1 - early)),
        "ib_rx_bytes_per_second": flow(
            compute=sent * early * asymmetry, coll=sent * (1 - early) * asymmetry
        ),
        "nvlink_tx_bytes_per_second": flow(
            compute=nvlink * nvlink_compute, coll=nvlink * (1 - nvlink_compute)
        ),
        "nvlink_rx_bytes_per_second": flow(
            compute=nvlink * nvlink_compute, coll=nvlink * (1 - nvlink_compute)
        ),
        "pcie_rx_bytes_per_second": flow(load=loaded, coll=through_pcie),
        "pcie_tx_bytes_per_second": flow(all_=loaded * 0.02, coll=through_pcie),
        "disk_read_bytes_per_second": flow(load=disk_load, all_=disk - disk_load),
        "tcp_rx_bytes_per_second": flow(load=net_load, all_=from_net - net_load),
        "tcp_tx_bytes_per_second": flow(all_=tcp),
    }
    bases = {
        "disk_read_bytes_per_second": log_uniform(rng, 1e3, 3e5),
        "disk_write_bytes_per_second": log_uniform(rng, 5e4, 5e6),
        "tcp_tx_bytes_per_second": log_uniform(rng, 1e4, 1e6),
        "tcp_rx_bytes_per_second": log_uniform(rng, 1e4, 1e6),
    }
    return flows, bases
