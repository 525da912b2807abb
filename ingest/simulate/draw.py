"""Draws jobs: how large, how fast, how observed, with which habits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingest.simulate.draw_fault import draw_fault
from ingest.simulate.metrics import FOURS, INDEX, NAMES, PROFILING, SEVEN, SIXTEEN
from ingest.simulate.randomness import chance, choice, log_uniform, uniform
from ingest.simulate.spec import FAULT_MIX, FaultSpec, JobSpec, LifeSpec, StepSpec
from ingest.simulate.wishes import Wishes

_EPOCH_S = 1_704_067_200  # 2024-01-01
_JOBS = ("llm-pretrain", "moe", "vision", "rec-sys", "speech", "finetune", "diffusion")
_NETWORK_FAULTS = ("pcie_downgrading", "nic_dropout", "aoc_error", "switch_failure")


def draw_spec(
    rng: np.random.Generator, wishes: Wishes | None = None, *, healthy: bool = False
) -> JobSpec:
    """A random job; what is wished for is kept, everything else is drawn.

    Without a wish the fault is drawn from the published mix. A healthy job has no fault.
    """
    wish = wishes if wishes is not None else Wishes()
    types = wish.faults or tuple(FAULT_MIX)
    # Telemetry faults have no published share.
    fault = choice(rng, types, [FAULT_MIX.get(t, 1.0) for t in types])
    n = _size(rng, wish, healthy or fault != "switch_failure")
    length = wish.minutes if wish.minutes is not None else uniform(rng, 30.0, 60.0)
    cadence = wish.cadence_seconds if wish.cadence_seconds is not None else _cadence(rng)
    gpus = wish.per_gpu if wish.per_gpu is not None else (n <= 64 and chance(rng, 0.2))
    spec = JobSpec(
        job=f"{choice(rng, _JOBS, [1] * len(_JOBS))}-{rng.integers(1000):03d}",
        machines=n,
        gpus_per_machine=8 if gpus or chance(rng, 0.85) else 4,
        per_gpu=gpus,
        minutes=length,
        cadence_seconds=cadence,
        node_cadence_seconds=_node_cadence(rng, cadence),
        gauge_window_s=log_uniform(rng, 0.1, 1.0) if chance(rng, 0.5) else None,
        metrics=_metrics(rng, None if healthy else fault),
        start_ns=(_EPOCH_S + int(rng.integers(2 * 365 * 86_400))) * 1_000_000_000,
        step=_step(rng),
        life=LifeSpec(),
        wait=choice(rng, ("spin", "few_sms", "host"), (0.6, 0.2, 0.2)),
        stages=_stages(rng, n),
        stage_spread=log_uniform(rng, 0.01, 0.15),
        machines_per_switch=_per_switch(rng, n, fault),
        spread=log_uniform(rng, 0.3, 2.0),
        noise=log_uniform(rng, 0.3, 2.5),
        slow_machine=uniform(rng, 0.02, 0.04) if chance(rng, 0.2) else 0.0,
        clock_offset_s=log_uniform(rng, 0.05, 3.0),
        jitter_s=log_uniform(rng, 0.002, 0.2),
        whole_second_stamps=cadence >= 1.0 and chance(rng, 0.15),
    )
    spec = replace(spec, life=_life(rng, spec))
    if wish.varied:
        spec = replace(
            spec,
            stages=max(2, spec.stages),
            stage_spread=log_uniform(rng, 0.08, 0.25),
            spread=log_uniform(rng, 2.0, 4.0),
            slow_machine=uniform(rng, 0.02, 0.04),
        )
    if healthy:
        # A job may end in good health: finished, or cancelled by its owner.
        if chance(rng, 0.12):
            spec = replace(spec, end_s=60.0 * length * uniform(rng, 0.6, 0.97))
        return spec
    drawn = draw_fault(rng, spec, fault, wish)
    drawn, length = _recorded(rng, length, drawn)
    spec = replace(spec, faults=(drawn,), minutes=length)
    if drawn.onset_s is None and spec.life.start_s > 0:
        spec = replace(spec, life=replace(spec.life, start_s=0.0))
    return spec


def _size(rng: np.random.Generator, wish: Wishes, any_size: bool) -> int:
    low, high = wish.sizes if wish.sizes is not None else (3, 200)
    low = low if any_size else max(low, 6)
    return low if low >= high else min(high, int(log_uniform(rng, low, high + 1.0)))


def _recorded(
    rng: np.random.Generator, minutes: float, fault: FaultSpec
) -> tuple[FaultSpec, float]:
    """The recording goes on a little after the halt, and lasts half an hour if it may.

    A fault that would end it earlier begins (or halts the job) later.
    """
    if fault.halt_after_s is None:
        return fault, minutes
    tail = uniform(rng, 30.0, 240.0)
    end = (fault.onset_s or 0.0) + fault.halt_after_s + tail
    lacking = min(60.0 * minutes, 1800.0) - end
    if lacking > 0:
        end += lacking
        if fault.onset_s is None:
            fault = replace(fault, halt_after_s=fault.halt_after_s + lacking)
        else:
            fault = replace(fault, onset_s=fault.onset_s + lacking)
    return fault, min(minutes, end / 60.0)


def _cadence(rng: np.random.Generator) -> float:
    return choice(rng, (1.0, 2.0, 5.0, 10.0), (0.9, 0.04, 0.03, 0.03))


def _node_cadence(rng: np.random.Generator, cadence: float) -> float | None:
    if not chance(rng, 0.15):
        return None
    slower = choice(rng, (5.0, 10.0, 15.0, 30.0), (0.2, 0.5, 0.2, 0.1))
    return slower if slower > cadence else None


def _metrics(rng: np.random.Generator, fault: str | None) -> tuple[str, ...]:
    kind = choice(rng, ("sixteen", "all", "seven", "some", "four"), (0.5, 0.12, 0.15, 0.13, 0.1))
    if kind == "sixteen":
        names = set(SIXTEEN)
    elif kind == "all":
        names = set(NAMES)
    elif kind == "seven":
        names = set(SEVEN)
    elif kind == "four":
        names = set(FOURS[int(rng.integers(len(FOURS)))])
    else:
        names = {n for n in SIXTEEN if chance(rng, 0.55)}
        names |= {"gpu_power_watts", "cpu_usage_ratio"}
        names.add(choice(rng, ("gpu_sm_active_ratio", "gpu_tensor_active_ratio"), (1.0, 1.0)))
    # What nothing recorded can show is no test of anything.
    if fault in _NETWORK_FAULTS and not names & {"pfc_tx_packets_per_second"}:
        names.add("pfc_tx_packets_per_second")
    if fault == "memory_leak":
        names.add("memory_usage_ratio")
    if fault == "profiling_zeroed" and not names & set(PROFILING):
        names.add("gpu_tensor_active_ratio")
    return tuple(sorted(names, key=INDEX.__getitem__))


def _step(rng: np.random.Generator) -> StepSpec:
    total = log_uniform(rng, 0.3, 60.0)
    load = log_uniform(rng, 0.002, 0.15)
    collective = uniform(rng, 0.05, 0.35)
    optimise = uniform(rng, 0.01, 0.06)
    compute = 1.0 - load - collective - optimise
    return StepSpec(
        load_s=total * load,
        compute_s=total * compute,
        collective_s=total * collective,
        optimise_s=total * optimise,
        common=log_uniform(rng, 0.002, 0.08),
        imbalance=log_uniform(rng, 0.001, 0.05),
        shift=log_uniform(rng, 0.0005, 0.008),
        load_tail=uniform(rng, 0.0, 0.8),
        overlap=uniform(rng, 0.0, 0.8),
        pause_per_hour=log_uniform(rng, 0.5, 60.0) if chance(rng, 0.7) else 0.0,
        pause_s=log_uniform(rng, 0.05, 1.5),
    )


def _stages(rng: np.random.Generator, n: int) -> int:
    wanted = choice(rng, (1, 2, 4, 8, 16), (0.55, 0.15, 0.15, 0.1, 0.05))
    most = n if chance(rng, 0.05) else n // 2
    return max(1, min(wanted, most))


def _per_switch(rng: np.random.Generator, n: int, fault: str) -> int:
    size = choice(rng, (4, 8, 16, 32), (0.2, 0.3, 0.3, 0.2))
    # A job behind one switch only has no peers that a failing switch would spare.
    return max(2, min(size, n // 3)) if fault == "switch_failure" else size


def _life(rng: np.random.Generator, spec: JobSpec) -> LifeSpec:
    """Rates grow with the number of machines, less than in proportion."""
    size: float = max(1.0, spec.machines / 8.0) ** uniform(rng, 0.4, 0.8)

    def rate(low: float, high: float) -> float:
        return size * log_uniform(rng, low, high)

    start = chance(rng, 0.25)
    return LifeSpec(
        cron_per_hour=rate(0.5, 6.0),
        slow_batch_per_hour=rate(0.3, 5.0),
        agent_pause_per_hour=rate(0.3, 5.0),
        frozen_per_hour=rate(0.2, 3.0),
        glitch_per_hour=rate(0.3, 6.0),
        job_slow_per_hour=log_uniform(rng, 0.1, 1.0),
        pfc_burst_per_hour=rate(0.5, 8.0),
        clock_dip_per_hour=rate(0.2, 4.0) if chance(rng, 0.6) else 0.0,
        memory_growth_per_hour=uniform(rng, 0.0, 0.08) if chance(rng, 0.3) else 0.0,
        lacking=log_uniform(rng, 0.02, 0.5) if chance(rng, 0.08) else 0.0,
        checkpoint_every_s=log_uniform(rng, 240.0, 2400.0) if chance(rng, 0.85) else 0.0,
        checkpoint_s=log_uniform(rng, 3.0, 90.0),
        checkpoint_writers=1.0 if chance(rng, 0.5) else log_uniform(rng, 0.02, 0.6),
        checkpoint_blocks=chance(rng, 0.7),
        evaluate_every_s=log_uniform(rng, 600.0, 3000.0) if chance(rng, 0.4) else 0.0,
        evaluate_s=log_uniform(rng, 8.0, 120.0),
        epoch_every_s=log_uniform(rng, 400.0, 4000.0) if chance(rng, 0.3) else 0.0,
        epoch_s=log_uniform(rng, 1.0, 30.0),
        restart_every_s=log_uniform(rng, 1200.0, 3600.0) if chance(rng, 0.04) else 0.0,
        start_s=log_uniform(rng, 20.0, 180.0) if start else 0.0,
    )
