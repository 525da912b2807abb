"""What may be asked of a drawn job, and the named sets that are hard for a detector."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.simulate.spec import (
    FAULT_TYPES,
    TELEMETRY_FAULTS,
    BadSimulationError,
    Manifestation,
    Pattern,
    UnknownFaultError,
)


@dataclass(frozen=True, slots=True)
class Wishes:
    """Constraints on a draw; None leaves the choice to chance.

    ``machines`` is a number or an inclusive range, drawn uniformly in the logarithm; ``fault``
    a type, or several of which one is drawn in their usual proportions; ``severity`` a range.
    ``one_gpu`` asks for a fault of a single GPU (of a type that has such), ``varied`` for a job
    whose machines differ much.
    """

    machines: int | tuple[int, int] | None = None
    fault: str | tuple[str, ...] | None = None
    minutes: float | None = None
    cadence_seconds: float | None = None
    per_gpu: bool | None = None
    manifestation: Manifestation | None = None
    pattern: Pattern | None = None
    severity: tuple[float, float] | None = None
    ramp_seconds: tuple[float, float] | None = None
    from_start: bool | None = None
    one_gpu: bool | None = None
    varied: bool = False

    def __post_init__(self) -> None:
        for name in self.faults:
            if name not in FAULT_TYPES:
                raise UnknownFaultError(name)
        for size in self.sizes or ():
            if not 3 <= size <= 10_000:
                raise BadSimulationError(f"machines must be 3 to 10000, not {size}")
        if self.sizes is not None and self.faults == ("switch_failure",) and self.sizes[1] < 6:
            raise BadSimulationError(
                f"machines must be at least 6 for switch_failure, not {self.sizes[1]}"
            )
        if self.minutes is not None and not 2.0 <= self.minutes <= 100_000.0:
            raise BadSimulationError(f"minutes must be 2 to 100000, not {self.minutes:g}")
        cadence = self.cadence_seconds
        if cadence is not None and not 0.1 <= cadence <= 60.0:
            raise BadSimulationError(f"cadence_seconds must be 0.1 to 60, not {cadence:g}")

    @property
    def faults(self) -> tuple[str, ...]:
        """The fault types to draw from; empty = all."""
        if self.fault is None:
            return ()
        return (self.fault,) if isinstance(self.fault, str) else self.fault

    @property
    def sizes(self) -> tuple[int, int] | None:
        """The smallest and largest number of machines."""
        return (self.machines, self.machines) if isinstance(self.machines, int) else self.machines


_SLOW_TYPES = (
    "ecc_error",
    "pcie_downgrading",
    "nvlink_error",
    "hdfs_error",
    "thermal_throttling",
    "cpu_contention",
    "disk_slow",
)
_ONE_GPU_TYPES = (
    "ecc_error",
    "cuda_execution_error",
    "gpu_execution_error",
    "gpu_card_drop",
    "thermal_throttling",
)

HARD_SETS: dict[str, Wishes] = {
    "small": Wishes(machines=(3, 4)),
    "varied": Wishes(varied=True),
    "fail_slow_under_10_percent": Wishes(
        fault=_SLOW_TYPES, manifestation="slow", severity=(0.04, 0.10)
    ),
    "slow_drift": Wishes(
        fault=_SLOW_TYPES,
        manifestation="slow",
        pattern="ramp",
        severity=(0.08, 0.3),
        ramp_seconds=(480.0, 1200.0),
        from_start=False,
    ),
    "intermittent": Wishes(fault=_SLOW_TYPES, manifestation="slow", pattern="intermittent"),
    "from_start": Wishes(fault=_SLOW_TYPES, manifestation="slow", from_start=True),
    "one_gpu_of_eight": Wishes(fault=_ONE_GPU_TYPES, per_gpu=True, one_gpu=True),
    "group": Wishes(fault="switch_failure"),
    "pcie_and_gpu_execution": Wishes(fault=("pcie_downgrading", "gpu_execution_error")),
    "bad_telemetry": Wishes(fault=TELEMETRY_FAULTS),
}
"""Sets by permanent name, for benchmarks. Machines of ``bad_telemetry`` are healthy."""
