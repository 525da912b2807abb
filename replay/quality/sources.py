"""Where a workload's incidents come from: simulated in memory, recorded, or recorded and spoiled.

Each source is plain data that says everything about its incident; `opened` makes the samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.catalogue import Catalogue
from ingest.normalise import normalise
from ingest.recording import BATCH_ROWS, Label, Topology, read_recording
from ingest.samples import Decoded
from ingest.simulate import Wishes, incident_spec, simulate
from ingest.timestamps import parse_ns
from replay.runner import Replayable

POWER = "machine_power_watts"
Kind = Literal["dip", "drift", "none"]
WARM_UP_SECONDS = 60.0
"""Cut from the start of a power trace: machines begin with different roles."""
REPEATED_SECONDS = 1500.0
FIRST_ONSET_SECONDS, LAST_ONSET_SECONDS = 500.0, 700.0


@dataclass(frozen=True)
class InMemory:
    """A recording that was never written; see `replay.runner.Replayable`."""

    name: str
    label: Label | None
    table: pa.Table
    catalogue: Catalogue
    topology: Topology = field(default_factory=dict)

    def batches(self) -> Iterator[Decoded]:
        """Canonical samples in the order of time, as a written recording would yield them."""
        decoded = normalise(self.table, self.catalogue, lambda row: f"{self.name} row {row}")
        samples = decoded.samples.sort_by("ts")
        yield Decoded(samples.slice(0, BATCH_ROWS), decoded.rejected, decoded.counts)
        for start in range(BATCH_ROWS, len(samples), BATCH_ROWS):
            yield Decoded(samples.slice(start, BATCH_ROWS))


@dataclass(frozen=True, slots=True)
class Opened:
    """A recording and what its label does not say: the type of fault, the GPU that shows it."""

    recording: Replayable
    fault_type: str | None
    gpu: int | None = None


class Source(Protocol):
    """One incident as data. `opened` gives the same samples every time."""

    def opened(self, name: str, catalogue: Catalogue, data: Path) -> Opened:
        """Make or read the incident; ``data`` is the folder of real recordings."""
        ...

    def available(self, data: Path) -> bool:
        """Whether what it reads is there."""
        ...


@dataclass(frozen=True, slots=True)
class Simulated:
    """The ``index``-th incident of a seed of the simulator."""

    seed: int
    index: int
    healthy: bool = False
    wishes: Wishes | None = None

    def opened(self, name: str, catalogue: Catalogue, data: Path) -> Opened:  # noqa: ARG002
        """See `Source`."""
        spec, own = incident_spec(self.seed, self.index, healthy=self.healthy, wishes=self.wishes)
        incident = simulate(spec, own)
        machines = incident.topology["machines"]
        recording = InMemory(name, _label(incident.label), incident.table, catalogue, machines)
        fault = spec.faults[0] if spec.faults else None
        seen = incident.gpu if spec.per_gpu else None
        return Opened(recording, fault.type if fault else None, seen)

    def available(self, data: Path) -> bool:  # noqa: ARG002
        """Always."""
        return True


@dataclass(frozen=True, slots=True)
class Recorded:
    """A real recording; ``path`` is relative to the data folder."""

    path: str

    def opened(self, name: str, catalogue: Catalogue, data: Path) -> Opened:  # noqa: ARG002
        """See `Source`."""
        recording = read_recording(data / self.path, catalogue)
        label = recording.label
        return Opened(recording, label.fault_type if label else None)

    def available(self, data: Path) -> bool:
        """Whether the folder is there."""
        return (data / self.path).is_dir()


@dataclass(frozen=True, slots=True)
class Injected:
    """The real power of a healthy run's machines, with a fault put into one of them.

    A run of some minutes (without its first one) is repeated end to end until it fills
    `REPEATED_SECONDS`. Then one machine's power is changed from the onset on: ``dip`` falls at
    once to a share, ``drift`` sinks slowly, ``none`` stays.
    """

    path: str
    kind: Kind
    seed: int
    index: int

    def opened(self, name: str, catalogue: Catalogue, data: Path) -> Opened:
        """See `Source`."""
        rng = np.random.default_rng([self.seed, self.index])
        table = _repeated(_power(data / self.path, catalogue))
        ts = table["ts"].to_numpy().astype(np.int64)
        machines = sorted(table["machine"].unique().to_pylist())
        who = machines[int(rng.integers(len(machines)))]
        onset = int(ts[0]) + round(rng.uniform(FIRST_ONSET_SECONDS, LAST_ONSET_SECONDS) * 1e9)
        onset -= onset % 1_000_000
        seconds = np.maximum(ts - onset, 0) / 1e9
        if self.kind == "dip":
            left = 1.0 - rng.uniform(0.25, 0.7) * (seconds > 0)
        elif self.kind == "drift":
            ramp = rng.uniform(240.0, 600.0)
            left = 1.0 - rng.uniform(0.1, 0.3) * np.minimum(seconds / ramp, 1.0)
        else:
            left = np.ones(len(ts))
        power = table[POWER].to_numpy(zero_copy_only=False)
        hit = np.asarray(table["machine"].to_pylist()) == who
        spoiled = np.where(hit, power * left, power)
        at = table.schema.get_field_index(POWER)
        table = table.set_column(at, POWER, pa.array(spoiled, from_pandas=True))
        sick = self.kind != "none"
        fault = f"power_{self.kind}" if sick else None
        label = Label(
            job=str(table["job"][0].as_py()),
            faulty_machines=(who,) if sick else (),
            fault_type=fault,
            onset_ns=onset if sick else None,
        )
        return Opened(InMemory(name, label, table, catalogue), fault)

    def available(self, data: Path) -> bool:
        """Whether the folder is there."""
        return (data / self.path).is_dir()


def _label(given: dict[str, Any]) -> Label:
    """A simulated label as it would be read back."""

    def time(key: str) -> int | None:
        return parse_ns(given[key]) if given[key] is not None else None

    return Label(
        job=given["job"],
        faulty_machines=tuple(given["faulty_machines"]),
        fault_type=given["fault_type"],
        onset_ns=time("onset"),
        halt_ns=time("halt"),
        note=given["note"],
    )


def _power(path: Path, catalogue: Catalogue) -> pa.Table:
    """The power of one run after its first minute, in the order of time."""
    tables = [d.samples for d in read_recording(path, catalogue).batches() if len(d.samples)]
    table = pa.concat_tables(tables).select(["ts", "job", "machine", POWER]).sort_by("ts")
    ts = table["ts"].to_numpy().astype(np.int64)
    return table.filter(pa.array(ts >= ts[0] + round(WARM_UP_SECONDS * 1e9)))


def _repeated(run: pa.Table) -> pa.Table:
    """A run end to end, again and again."""
    ts = run["ts"].to_numpy().astype("datetime64[ns]").astype(np.int64)
    period = int(ts[-1] - ts[0]) + _cadence(ts)
    pieces = []
    for turn in range(math.ceil(REPEATED_SECONDS * 1e9 / period)):
        stamps = pa.array(ts + turn * period, pa.timestamp("ns", tz="UTC"))
        pieces.append(run.set_column(0, "ts", stamps))
    return pa.concat_tables(pieces)


def _cadence(ts: NDArray[np.int64]) -> int:
    """The usual time between two samples of one machine, were they taken in turn."""
    return int(np.median(np.diff(np.unique(ts))))
