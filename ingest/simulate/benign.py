"""Healthy life by the clock: what happens to machines and agents without any fault."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ingest.simulate.effects import Effect, Level, Observe, Slow
from ingest.simulate.metrics import METRICS
from ingest.simulate.phases import Group, Phase
from ingest.simulate.randomness import Key, chance, log_uniform, stream, uniform
from ingest.simulate.shapes import pulse
from ingest.simulate.spec import JobSpec

SLOT_S = 600.0
"""Events are drawn slot by slot, so that a job may last for ever."""

_ABSURD = (
    9.223372036854775807e18,
    140737488355328.0,
    2147483632.0,
    42949672.95,
    8083349.05,
    0.0,
)


def events_of_slot(spec: JobSpec, seed: int, slot: int) -> list[Effect]:
    """Everything that begins within ``[slot, slot+1) * SLOT_S``."""
    life = spec.life
    kinds: tuple[tuple[float, Callable[[JobSpec, np.random.Generator, float], list[Effect]]], ...]
    kinds = (
        (life.cron_per_hour, _cron),
        (life.slow_batch_per_hour, _slow_batch),
        (life.agent_pause_per_hour, _agent_pause),
        (life.frozen_per_hour, _frozen),
        (life.glitch_per_hour, _glitch),
        (life.job_slow_per_hour, _job_slow),
        (life.pfc_burst_per_hour, _pfc_burst),
        (life.clock_dip_per_hour, _clock_dip),
    )
    out: list[Effect] = []
    for kind, (rate, make) in enumerate(kinds):
        rng = stream(seed, Key.BENIGN, slot, kind)
        for _ in range(int(rng.poisson(rate * SLOT_S / 3600.0))):
            start = (slot + float(rng.random())) * SLOT_S
            out += make(spec, rng, start)
    if not life.checkpoint_blocks and life.checkpoint_every_s > 0:
        out += _background_checkpoints(spec, seed, slot)
    return out


def _one(spec: JobSpec, rng: np.random.Generator) -> tuple[int, ...]:
    return (int(rng.integers(spec.machines)),)


def _cron(spec: JobSpec, rng: np.random.Generator, start: float) -> list[Effect]:
    """A burst of host work on one machine, now and then on all of them at once."""
    everywhere = chance(rng, 0.1)
    who = tuple(range(spec.machines)) if everywhere else _one(spec, rng)
    shape = pulse(start, log_uniform(rng, 3.0, 150.0), uniform(rng, 0.1, 3.0))
    out: list[Effect] = [
        Level(who, "cpu_usage_ratio", shape, add=log_uniform(rng, 0.02, 0.45)),
    ]
    if chance(rng, 0.6):
        out.append(Level(who, "disk_read_bytes_per_second", shape, add=log_uniform(rng, 1e6, 8e8)))
    if chance(rng, 0.5):
        out.append(Level(who, "disk_write_bytes_per_second", shape, add=log_uniform(rng, 1e6, 8e8)))
    if chance(rng, 0.3):
        out.append(Level(who, "tcp_tx_bytes_per_second", shape, add=log_uniform(rng, 1e5, 3e8)))
    if chance(rng, 0.3):
        out.append(Level(who, "memory_usage_ratio", shape, add=uniform(rng, 0.005, 0.08)))
    if chance(rng, 0.5):
        out.append(Slow(who, Group.LOAD, uniform(rng, 1.0, 1.6), shape))
    if chance(rng, 0.3):
        out.append(Slow(who, Group.COMPUTE, uniform(rng, 1.0, 1.04), shape))
    return out


def _slow_batch(spec: JobSpec, rng: np.random.Generator, start: float) -> list[Effect]:
    """One machine's input comes late, for a single batch up to about a minute."""
    step = spec.step
    extra = step.nominal_s * log_uniform(rng, 0.1, 3.0)
    seconds = log_uniform(rng, 1.0, 45.0)
    factor = 1.0 + min(extra, 20.0) / max(step.load_s, 1e-3)
    return [Slow(_one(spec, rng), Group.LOAD, factor, pulse(start, seconds))]


def _agent_pause(spec: JobSpec, rng: np.random.Generator, start: float) -> list[Effect]:
    seconds = max(log_uniform(rng, 2.0, 40.0), 1.5 * spec.cadence_seconds)
    return [Observe(_one(spec, rng), "missing", start, start + seconds)]


def _frozen(spec: JobSpec, rng: np.random.Generator, start: float) -> list[Effect]:
    seconds = max(log_uniform(rng, 3.0, 30.0), 2.5 * spec.cadence_seconds)
    return [Observe(_one(spec, rng), "frozen", start, start + seconds)]


def _glitch(spec: JobSpec, rng: np.random.Generator, start: float) -> list[Effect]:
    """One corrupt read of one metric: a blank, an absurd value, or a zero."""
    gpu_metrics = [m.name for m in METRICS if m.scope == "gpu" and m.name in spec.metrics]
    names = gpu_metrics or list(spec.metrics)
    name = names[int(rng.integers(len(names)))]
    value = _ABSURD[int(rng.integers(len(_ABSURD)))]
    gpu = int(rng.integers(spec.gpus_per_machine)) if spec.per_gpu and gpu_metrics else None
    end = start + spec.cadence_seconds
    return [Observe(_one(spec, rng), "corrupt", start, end, (name,), value, gpu)]


def _job_slow(spec: JobSpec, rng: np.random.Generator, start: float) -> list[Effect]:
    """Storage or network is slow for everybody for a while."""
    shape = pulse(start, log_uniform(rng, 20.0, 400.0), uniform(rng, 0.0, 10.0))
    extra = spec.step.nominal_s * uniform(rng, 0.1, 1.5)
    if chance(rng, 0.6):
        factor = 1.0 + extra / max(spec.step.load_s, 1e-3)
        return [Slow(None, Group.LOAD, factor, shape)]
    factor = 1.0 + extra / max(spec.step.collective_s, 1e-3)
    everyone = tuple(range(spec.machines))
    return [
        Slow(None, Group.COLLECTIVE, factor, shape),
        Level(
            everyone,
            "pfc_tx_packets_per_second",
            shape,
            add=log_uniform(rng, 1.0, 1000.0),
            phase=Phase.COLLECTIVE,
        ),
    ]


def _pfc_burst(spec: JobSpec, rng: np.random.Generator, start: float) -> list[Effect]:
    """A short congestion at one machine's port."""
    shape = pulse(start, log_uniform(rng, 1.0, 12.0))
    size = log_uniform(rng, 5.0, 5000.0)
    return [Level(_one(spec, rng), "pfc_tx_packets_per_second", shape, add=size)]


def _clock_dip(spec: JobSpec, rng: np.random.Generator, start: float) -> list[Effect]:
    """A power or heat limit holds a machine back for some seconds."""
    who = _one(spec, rng)
    shape = pulse(start, log_uniform(rng, 2.0, 25.0), 0.5)
    factor = uniform(rng, 1.02, 1.12)
    return [
        Slow(who, Group.COMPUTE, factor, shape),
        Level(who, "gpu_sm_clock_hertz", shape, factor=1.0 / factor),
        Level(who, "gpu_power_watts", shape, factor=1.0 / factor, phase=Phase.COMPUTE),
    ]


def _background_checkpoints(spec: JobSpec, seed: int, slot: int) -> list[Effect]:
    """Checkpoints written beside the training: disks and hosts are busy, steps go on."""
    life = spec.life
    rng = stream(seed, Key.BENIGN, 0, 99)
    at = life.checkpoint_every_s * float(rng.random())
    rate, cpu = log_uniform(rng, 5e7, 3e9), uniform(rng, 0.0, 0.15)
    count = max(1, round(life.checkpoint_writers * spec.machines))
    who = tuple(sorted({i * spec.machines // count for i in range(count)}))
    begin, end = slot * SLOT_S, (slot + 1) * SLOT_S
    number = max(0, int((begin - at) / life.checkpoint_every_s))
    out: list[Effect] = []
    while at + number * life.checkpoint_every_s < end:
        start = at + number * life.checkpoint_every_s
        if start >= begin:
            shape = pulse(start, life.checkpoint_s, 1.0)
            out += [
                Level(who, "disk_write_bytes_per_second", shape, add=rate),
                Level(who, "cpu_usage_ratio", shape, add=cpu),
            ]
        number += 1
    return out
