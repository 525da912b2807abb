"""What is simulated: one training job with its habits, and the faults that befall it.

Everything here is plain data in seconds from the start of the recording; what differs from
machine to machine is drawn from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ingest.simulate.metrics import INDEX, SIXTEEN

WaitStyle = Literal["spin", "few_sms", "host"]
Pattern = Literal["step", "ramp", "intermittent"]
Manifestation = Literal["crash", "hang", "slow", "slow_crash", "silent"]

FAULT_MIX: dict[str, float] = {
    "ecc_error": 38.9,
    "cuda_execution_error": 14.6,
    "gpu_execution_error": 7.7,
    "pcie_downgrading": 6.6,
    "machine_unreachable": 6.0,
    "nic_dropout": 5.7,
    "hdfs_error": 5.7,
    "gpu_card_drop": 2.0,
    "nvlink_error": 1.7,
    "aoc_error": 0.9,
    "thermal_throttling": 3.0,
    "cpu_contention": 2.5,
    "disk_slow": 2.0,
    "switch_failure": 1.5,
    "memory_leak": 1.2,
}
"""Percent of incidents by type: the first ten as published for Minder (arXiv 2411.01791,
section 2), the others share the rest."""

TELEMETRY_FAULTS: tuple[str, ...] = ("exporter_frozen", "exporter_missing", "profiling_zeroed")
"""Faults of the measurement only: the machines are healthy and labelled so."""

FAULT_TYPES: tuple[str, ...] = (*FAULT_MIX, *TELEMETRY_FAULTS)

SHOWS: dict[str, dict[Manifestation, float]] = {
    "ecc_error": {"crash": 0.5, "hang": 0.15, "slow": 0.1, "slow_crash": 0.25},
    "cuda_execution_error": {"crash": 0.6, "hang": 0.25, "slow_crash": 0.15},
    "gpu_execution_error": {"hang": 0.5, "crash": 0.25, "slow_crash": 0.25},
    "pcie_downgrading": {"slow": 1.0},
    "machine_unreachable": {"silent": 1.0},
    "nic_dropout": {"crash": 0.6, "slow": 0.4},
    "aoc_error": {"slow": 0.8, "crash": 0.2},
    "hdfs_error": {"hang": 0.5, "slow": 0.3, "crash": 0.2},
    "gpu_card_drop": {"crash": 1.0},
    "nvlink_error": {"slow": 0.5, "crash": 0.3, "slow_crash": 0.2},
    "thermal_throttling": {"slow": 1.0},
    "cpu_contention": {"slow": 1.0},
    "disk_slow": {"slow": 1.0},
    "switch_failure": {"crash": 0.5, "silent": 0.2, "slow": 0.3},
    "memory_leak": {"slow": 1.0},
}
"""How a type of fault shows itself, with the share of each way."""


class UnknownFaultError(ValueError):
    """The named fault type does not exist; the message lists those that do."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown fault {name!r}; known: {', '.join(FAULT_TYPES)}")


class BadSimulationError(ValueError):
    """An argument or specification that cannot be simulated; the message names it."""


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """One fault.

    Attributes
    ----------
    type
        One of `FAULT_TYPES`.
    machines
        Indices of the faulty machines (one; several for ``switch_failure``).
    gpu
        GPU index when one GPU is at fault, None when it is the whole machine.
    onset_s
        Seconds from the start; None = faulty from before the first sample.
    manifestation
        ``crash`` (process gone, machine idle, peers spin), ``hang`` (process stuck), ``slow``
        (still works, peers wait), ``slow_crash``, ``silent`` (no more samples); None = what is
        most usual for the type.
    pattern
        How a slowdown develops; ``ramp`` takes ``ramp_s``.
    severity
        For slowdowns: by which fraction the job's step becomes longer when fully developed.
    halt_after_s
        Seconds from onset until the whole job stops; None = it does not within the recording.
    """

    type: str
    machines: tuple[int, ...]
    gpu: int | None = None
    onset_s: float | None = None
    manifestation: Manifestation | None = None
    pattern: Pattern = "step"
    ramp_s: float = 0.0
    severity: float = 0.3
    halt_after_s: float | None = 600.0

    def __post_init__(self) -> None:
        if self.type not in FAULT_TYPES:
            raise UnknownFaultError(self.type)
        if not self.machines:
            raise BadSimulationError(f"fault {self.type!r} names no machine")

    @property
    def shows(self) -> Manifestation:
        """How the fault shows itself."""
        if self.manifestation is not None:
            return self.manifestation
        shares = SHOWS.get(self.type, {"silent": 1.0})
        return max(shares.items(), key=lambda item: item[1])[0]


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One training step. Durations in seconds on a machine at nominal speed.

    ``common`` is the relative variation of the work shared by all machines (sequence length),
    ``imbalance`` the one that each machine draws for itself, ``shift`` one that stays for a
    while (a heavy part of the data); ``load_tail`` is the share of the load time that is
    exponentially distributed, ``overlap`` the share of the collective's bytes that travel
    during compute.
    """

    load_s: float = 0.05
    compute_s: float = 1.5
    collective_s: float = 0.4
    optimise_s: float = 0.05
    common: float = 0.01
    imbalance: float = 0.01
    shift: float = 0.002
    load_tail: float = 0.3
    overlap: float = 0.3
    pause_per_hour: float = 5.0
    pause_s: float = 0.3

    @property
    def nominal_s(self) -> float:
        """Duration of a step without noise."""
        return self.load_s + self.compute_s + self.collective_s + self.optimise_s


@dataclass(frozen=True, slots=True)
class LifeSpec:
    """Healthy life, rates in events per hour over the whole job (0 = never).

    ``checkpoint_writers`` and ``lacking`` are shares of the machines: those that write, and
    those on which some metrics are not collected. ``checkpoint_blocks`` False writes beside the
    training. Habits with ``every_s`` 0 do not occur; ``start_s`` 0 = the job runs already.
    """

    cron_per_hour: float = 2.0
    slow_batch_per_hour: float = 2.0
    agent_pause_per_hour: float = 2.0
    frozen_per_hour: float = 1.0
    glitch_per_hour: float = 2.0
    job_slow_per_hour: float = 0.3
    pfc_burst_per_hour: float = 2.0
    clock_dip_per_hour: float = 1.0
    memory_growth_per_hour: float = 0.0
    lacking: float = 0.0
    checkpoint_every_s: float = 900.0
    checkpoint_s: float = 20.0
    checkpoint_writers: float = 1.0
    checkpoint_blocks: bool = True
    evaluate_every_s: float = 0.0
    evaluate_s: float = 30.0
    epoch_every_s: float = 0.0
    epoch_s: float = 8.0
    restart_every_s: float = 0.0
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job and how it is observed.

    ``spread`` scales permanent differences between machines; ``slow_machine`` makes one
    healthy machine permanently slower by that fraction; ``node_cadence_seconds`` lets the
    machine-level metrics come from a second agent at its own cadence. ``gauge_window_s`` is
    the time over which power, utilisation and clock are averaged before a sample (None = the
    whole interval). ``end_s`` ends the job in good health (finished or cancelled).
    """

    job: str = "train"
    machines: int = 8
    gpus_per_machine: int = 8
    per_gpu: bool = False
    minutes: float = 45.0
    cadence_seconds: float = 1.0
    node_cadence_seconds: float | None = None
    gauge_window_s: float | None = None
    metrics: tuple[str, ...] = SIXTEEN
    start_ns: int = 1_700_000_000_000_000_000
    step: StepSpec = field(default_factory=StepSpec)
    life: LifeSpec = field(default_factory=LifeSpec)
    wait: WaitStyle = "spin"
    stages: int = 1
    stage_spread: float = 0.05
    machines_per_switch: int = 16
    spread: float = 1.0
    noise: float = 1.0
    slow_machine: float = 0.0
    clock_offset_s: float = 2.0
    jitter_s: float = 0.02
    whole_second_stamps: bool = False
    end_s: float | None = None
    faults: tuple[FaultSpec, ...] = ()

    def __post_init__(self) -> None:
        if self.machines < 1:
            raise BadSimulationError(f"machines must be at least 1, not {self.machines}")
        if not 0.1 <= self.cadence_seconds <= 60.0:
            raise BadSimulationError(
                f"cadence_seconds must be 0.1 to 60, not {self.cadence_seconds:g}"
            )
        if not self.minutes > 0:
            raise BadSimulationError(f"minutes must be positive, not {self.minutes:g}")
        if not self.metrics:
            raise BadSimulationError("a job needs at least one metric")
        for name in self.metrics:
            if name not in INDEX:
                raise BadSimulationError(f"metric {name!r} is not simulated")
        for fault in self.faults:
            if max(fault.machines) >= self.machines or min(fault.machines) < 0:
                raise BadSimulationError(
                    f"{fault.type} on a machine beyond the job's {self.machines}"
                )
