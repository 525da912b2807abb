"""Draws one fault for a job: where, when, how it shows, how bad, and when the job halts."""

from __future__ import annotations

import numpy as np

from ingest.simulate.randomness import chance, choice, log_uniform, uniform
from ingest.simulate.spec import SHOWS, TELEMETRY_FAULTS, FaultSpec, JobSpec, Manifestation, Pattern
from ingest.simulate.wishes import Wishes

_ONE_GPU = (
    "ecc_error",
    "cuda_execution_error",
    "gpu_execution_error",
    "pcie_downgrading",
    "gpu_card_drop",
    "thermal_throttling",
)


def draw_fault(rng: np.random.Generator, spec: JobSpec, fault: str, wish: Wishes) -> FaultSpec:
    """One fault of a type, within the job's recording."""
    seconds = spec.minutes * 60.0
    early = min(600.0, 0.4 * seconds)
    onset = uniform(rng, early, max(early + 1.0, 0.65 * seconds))
    if fault in TELEMETRY_FAULTS:
        who = (int(rng.integers(spec.machines)),)
        return FaultSpec(fault, who, None, onset, "silent", halt_after_s=None)
    shows = choice(rng, list(SHOWS[fault]), list(SHOWS[fault].values()))
    if wish.manifestation in SHOWS[fault]:
        shows = wish.manifestation
    pattern, ramp = _development(rng, fault, shows, wish)
    from_start = shows == "slow" and fault != "memory_leak" and chance(rng, 0.12)
    if wish.from_start is not None and shows == "slow" and fault != "memory_leak":
        from_start = wish.from_start
    if from_start and pattern == "ramp":
        pattern, ramp = "step", 0.0
    gpu = _gpu(rng, spec, fault, wish)
    # One GPU of several shows less in a machine's mean.
    bad = wish.severity or (0.08 if gpu is None or spec.per_gpu else 0.3, 1.5)
    return FaultSpec(
        type=fault,
        machines=_who(rng, spec, fault),
        gpu=gpu,
        onset_s=None if from_start else onset,
        manifestation=shows,
        pattern=pattern,
        ramp_s=ramp,
        severity=log_uniform(rng, *bad),
        halt_after_s=_halt(rng, shows, seconds if from_start else seconds - onset, ramp),
    )


def _development(
    rng: np.random.Generator, fault: str, shows: Manifestation, wish: Wishes
) -> tuple[Pattern, float]:
    """How a slowdown develops, and over how many seconds it grows."""
    pattern: Pattern = "step"
    if shows in ("slow", "slow_crash"):
        pattern = choice(rng, ("step", "ramp", "intermittent"), (0.6, 0.25, 0.15))
        if fault == "thermal_throttling" and chance(rng, 0.4):
            pattern = "ramp"
        pattern = wish.pattern or pattern
    if fault == "memory_leak":
        return "ramp", log_uniform(rng, 180.0, 600.0)
    low, high = wish.ramp_seconds or (60.0, 1200.0 if shows == "slow" else 240.0)
    return pattern, log_uniform(rng, low, high) if pattern == "ramp" else 0.0


def _who(rng: np.random.Generator, spec: JobSpec, fault: str) -> tuple[int, ...]:
    if fault != "switch_failure":
        return (int(rng.integers(spec.machines)),)
    per = spec.machines_per_switch
    full = max(1, spec.machines // per)
    first = int(rng.integers(full)) * per
    return tuple(range(first, min(first + per, spec.machines)))


def _gpu(rng: np.random.Generator, spec: JobSpec, fault: str, wish: Wishes) -> int | None:
    """Mostly one GPU is at fault where GPUs are seen; else the machine as a whole."""
    if fault not in _ONE_GPU:
        return None
    one = fault == "gpu_card_drop" or chance(rng, 0.75 if spec.per_gpu else 0.3)
    if one if wish.one_gpu is None else wish.one_gpu:
        return int(rng.integers(spec.gpus_per_machine))
    return None


def _halt(rng: np.random.Generator, shows: str, left_s: float, ramp_s: float) -> float | None:
    """Stalled jobs run into a time-out; slow ones may go on."""
    if shows in ("crash", "hang", "silent"):
        # A quick abort of all ranks, or the collective library's time-out.
        quick = chance(rng, 0.15)
        return log_uniform(rng, 60.0, 150.0) if quick else log_uniform(rng, 150.0, 1200.0)
    if shows == "slow_crash":
        return 420.0 + log_uniform(rng, 60.0, 700.0)
    if chance(rng, 0.5):
        return None
    after = ramp_s + log_uniform(rng, 240.0, 1200.0)
    return after if after < left_s - 60.0 else None
