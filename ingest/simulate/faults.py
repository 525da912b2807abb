"""From a fault to its effects: what stops, what slows down, what the metrics show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.simulate.cluster import Cluster
from ingest.simulate.effects import Effect, Level, Observe, Slow, Stop
from ingest.simulate.phases import Group, Phase
from ingest.simulate.randomness import chance, choice, log_uniform, uniform
from ingest.simulate.shapes import FOREVER, Envelope, blinking, pulse
from ingest.simulate.spec import FaultSpec, JobSpec
from ingest.simulate.workers import Workers

_ALWAYS_S = -500.0


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a fault happens; ``arrival_s`` is each worker's nominal way to the barrier."""

    spec: JobSpec
    cluster: Cluster
    workers: Workers
    arrival_s: NDArray[np.float64]
    fault: FaultSpec
    rng: np.random.Generator

    @property
    def onset_s(self) -> float:
        """When the fault begins, before everything if it is there from the start."""
        return _ALWAYS_S if self.fault.onset_s is None else self.fault.onset_s

    def u(self, low: float, high: float) -> float:
        """A uniform draw of this instance."""
        return uniform(self.rng, low, high)

    def log(self, low: float, high: float) -> float:
        """A log-uniform draw of this instance."""
        return log_uniform(self.rng, low, high)

    def maybe(self, probability: float) -> bool:
        """A coin of this instance."""
        return chance(self.rng, probability)

    def shape(self) -> Envelope:
        """How the fault develops: at once, slowly, or on and off."""
        fault = self.fault
        if fault.pattern == "ramp":
            return pulse(self.onset_s, FOREVER, fault.ramp_s)
        if fault.pattern == "intermittent":
            # At most 500 turns: long enough for any recording.
            mean = self.log(15.0, 90.0)
            return blinking(self.rng, self.onset_s, max(self.onset_s, 0.0) + 500 * mean, mean)
        return pulse(self.onset_s, FOREVER, self.u(0.0, 3.0))

    def level(
        self,
        metric: str,
        shape: Envelope,
        *,
        factor: float = 1.0,
        add: float = 0.0,
        phase: Phase | None = None,
    ) -> Level:
        """A change of a metric on what is faulty."""
        fault = self.fault
        return Level(fault.machines, metric, shape, factor, add, phase, fault.gpu)


def slow_down(scene: Scene, groups: dict[Group, float], shape: Envelope) -> list[Slow]:
    """Slow groups of work so that a step becomes longer by the fault's severity.

    ``groups`` gives the share of the extra time by group. What the faulty machine would have
    waited anyway is used up first, so the severity is what the job feels.
    """
    fault, step = scene.fault, scene.spec.step
    mine = scene.workers.of(fault.machines, fault.gpu)
    slack = float(scene.arrival_s.max()) - float(scene.arrival_s[mine].max())
    extra = fault.severity * step.nominal_s
    seconds = {
        Group.LOAD: step.load_s,
        Group.COMPUTE: step.compute_s,
        Group.COLLECTIVE: step.collective_s,
    }
    before = sum(share for group, share in groups.items() if group is not Group.COLLECTIVE)
    out = []
    for group, share in groups.items():
        more = extra * share
        if group is not Group.COLLECTIVE:
            more += slack * share / before
        factor = 1.0 + more / max(seconds[group], 1e-4)
        out.append(Slow(fault.machines, group, factor, shape, fault.gpu))
    return out


def slow_compute(scene: Scene, shape: Envelope, *, same_cycles: bool = False) -> list[Effect]:
    """Compute takes longer. The same operations are spread over more time, unless the clock
    itself is lower (``same_cycles``): activity ratios count cycles, so they stay."""
    slows = slow_down(scene, {Group.COMPUTE: 1.0}, shape)
    factor = slows[0].factor
    out: list[Effect] = [*slows]
    if same_cycles:
        out.append(scene.level("gpu_sm_clock_hertz", shape, factor=1.0 / factor))
        heat = factor ** -scene.u(0.6, 1.6)
        out.append(
            scene.level("gpu_power_watts", shape, factor=max(heat, 0.3), phase=Phase.COMPUTE)
        )
        return out
    thin = factor ** -scene.u(0.85, 1.0)
    out += [
        scene.level(name, shape, factor=thin, phase=Phase.COMPUTE)
        for name in ("gpu_tensor_active_ratio", "gpu_dram_active_ratio")
    ]
    # Either the same work is done again (power stays), or units stall (power and activity fall).
    stalls = scene.maybe(0.6)
    power = max(factor ** -(scene.u(0.85, 1.1) if stalls else scene.u(-0.05, 0.05)), 0.35)
    out.append(scene.level("gpu_power_watts", shape, factor=power, phase=Phase.COMPUTE))
    if stalls:
        active = max(factor ** -scene.u(0.3, 0.8), 0.3)
        out.append(scene.level("gpu_sm_active_ratio", shape, factor=active, phase=Phase.COMPUTE))
    return out


def crash(scene: Scene, at: float) -> list[Effect]:
    """The processes are gone; the machine idles while its peers spin.

    With one GPU at fault the launcher usually takes the machine's other processes down too.
    """
    fault = scene.fault
    gpu = fault.gpu if fault.gpu is not None and scene.maybe(0.35) else None
    out: list[Effect] = [Stop(fault.machines, at, Phase.IDLE, gpu)]
    if scene.maybe(0.45):  # dumps core, collects logs
        dump = pulse(at, scene.log(5.0, 90.0), 0.5)
        out.append(Level(fault.machines, "cpu_usage_ratio", dump, add=scene.log(0.01, 0.4)))
        out.append(
            Level(fault.machines, "disk_write_bytes_per_second", dump, add=scene.log(1e7, 2e9))
        )
    return out


def hang(scene: Scene, at: float) -> list[Effect]:
    """The process is there but gets nowhere: in a kernel, on the host, or in its input."""
    fault = scene.fault
    where = choice(scene.rng, (Phase.HANG, Phase.STALL, Phase.LOAD), (0.55, 0.3, 0.15))
    gpu = fault.gpu if scene.maybe(0.7) else None
    out: list[Effect] = [Stop(fault.machines, at, where, gpu)]
    # Where peers wait on the host too, only the host can show who is stuck.
    if scene.maybe(0.4) or scene.spec.wait == "host":
        out.append(
            Level(
                fault.machines,
                "cpu_usage_ratio",
                pulse(at),
                factor=choice(scene.rng, (scene.u(0.1, 0.6), scene.u(1.3, 2.5)), (0.6, 0.4)),
            )
        )
    return out


def fall_silent(scene: Scene, at: float) -> list[Effect]:
    """The machine is unreachable: no more samples, and nobody gets past the barrier."""
    fault = scene.fault
    last = at + scene.u(0.0, 2.0)
    return [
        Stop(fault.machines, at, Phase.IDLE),
        Observe(fault.machines, "missing", last, FOREVER),
    ]
