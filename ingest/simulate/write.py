"""Writes simulated incidents as recordings: one folder each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.simulate.draw import draw_spec
from ingest.simulate.incident import Incident, simulate
from ingest.simulate.randomness import Key, derived_seed, stream
from ingest.simulate.spec import FAULT_TYPES, BadSimulationError, JobSpec, UnknownFaultError

Progress = Callable[[int, int, Path], None]
"""Called after each recording with how many are done, how many there will be, and its folder."""


@dataclass(frozen=True, slots=True)
class Request:
    """What `write_incidents` was asked for, common to all recordings."""

    seed: int
    machines: int | None = None
    fault: str | None = None
    minutes: float | None = None
    cadence_seconds: float | None = None
    per_gpu: bool | None = None


def incident_spec(request: Request, index: int, *, healthy: bool) -> tuple[JobSpec, int]:
    """The specification and seed of the index-th faulty or healthy recording."""
    key = Key.HEALTHY if healthy else Key.INCIDENT
    seed = derived_seed(request.seed, key, index)
    spec = draw_spec(
        stream(seed, Key.SPEC),
        healthy=healthy,
        machines=request.machines,
        fault=request.fault,
        minutes=request.minutes,
        cadence_seconds=request.cadence_seconds,
        per_gpu=request.per_gpu,
    )
    return spec, seed


def write_incident(folder: Path, incident: Incident) -> Path:
    """Write one recording; the files' bytes depend on the incident only."""
    folder.mkdir(parents=True, exist_ok=True)
    table = incident.table
    stamps = table.column("ts").cast(pa.timestamp("ms", tz="UTC"))
    table = table.set_column(0, pa.field("ts", stamps.type, nullable=False), stamps)
    table = table.combine_chunks()
    pq.write_table(
        table,
        folder / "telemetry.parquet",
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=3,
        use_dictionary=True,
        write_statistics=True,
        row_group_size=1 << 20,
    )
    _write_json(folder / "incident.json", incident.label)
    _write_json(folder / "topology.json", incident.topology)
    return folder


def write_incidents(
    out_dir: Path | str,
    *,
    incidents: int,
    healthy: int = 0,
    seed: int = 0,
    machines: int | None = None,
    fault: str | None = None,
    minutes: float | None = None,
    cadence_seconds: float | None = None,
    per_gpu: bool | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> list[Path]:
    """Write ``inc-0001-<fault>`` … and ``healthy-0001`` … under ``out_dir``; return the folders.

    Each recording depends on ``seed`` and its number only, not on how many there are nor on
    ``workers`` (processes). Raises ValueError with one line for what cannot be simulated.
    """
    request = Request(seed, machines, fault, minutes, cadence_seconds, per_gpu)
    _check(request, incidents, healthy, workers)
    jobs = [(i, False) for i in range(incidents)] + [(i, True) for i in range(healthy)]
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    work = (joblib.delayed(_one)(out, request, i, well) for i, well in jobs)
    results: Iterator[Path]
    if workers == 1:
        results = (_one(out, request, i, well) for i, well in jobs)
    else:
        results = joblib.Parallel(n_jobs=workers, return_as="generator")(work)
    folders = []
    for folder in results:
        folders.append(folder)
        if progress is not None:
            progress(len(folders), len(jobs), folder)
    return folders


def run_simulate(
    out: Path | str,
    incidents: int,
    seed: int,
    healthy: int = 0,
    machines: int | None = None,
    fault: str | None = None,
    *,
    minutes: float | None = None,
    cadence_seconds: float | None = None,
    per_gpu: bool | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> list[Path]:
    """What ``weaklink simulate`` does; the arguments of `write_incidents`."""
    return write_incidents(
        out,
        incidents=incidents,
        healthy=healthy,
        seed=seed,
        machines=machines,
        fault=fault,
        minutes=minutes,
        cadence_seconds=cadence_seconds,
        per_gpu=per_gpu,
        workers=workers,
        progress=progress,
    )


def _one(out: Path, request: Request, index: int, healthy: bool) -> Path:
    spec, seed = incident_spec(request, index, healthy=healthy)
    name = f"healthy-{index + 1:04d}" if healthy else f"inc-{index + 1:04d}-{spec.faults[0].type}"
    return write_incident(out / name, simulate(spec, seed))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8", newline="\n")


def _check(request: Request, incidents: int, healthy: int, workers: int) -> None:
    if request.fault is not None and request.fault not in FAULT_TYPES:
        raise UnknownFaultError(request.fault)
    lowest = {"seed": 0, "incidents": 0, "healthy": 0}
    given = {"seed": request.seed, "incidents": incidents, "healthy": healthy}
    for name, value in given.items():
        if value < lowest[name]:
            raise BadSimulationError(f"{name} must be at least {lowest[name]}, not {value}")
    if workers == 0:
        raise BadSimulationError("workers must be positive, or -1 for one per core")
    if request.machines is not None and not 3 <= request.machines <= 10_000:
        raise BadSimulationError(f"machines must be 3 to 10000, not {request.machines}")
    if request.minutes is not None and not 2.0 <= request.minutes <= 100_000.0:
        raise BadSimulationError(f"minutes must be 2 to 100000, not {request.minutes:g}")
    cadence = request.cadence_seconds
    if cadence is not None and not 0.1 <= cadence <= 60.0:
        raise BadSimulationError(f"cadence_seconds must be 0.1 to 60, not {cadence:g}")
