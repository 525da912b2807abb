"""Writes simulated incidents as recordings: one folder each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.simulate.draw import draw_spec
from ingest.simulate.incident import Incident, simulate
from ingest.simulate.randomness import Key, derived_seed, stream
from ingest.simulate.spec import BadSimulationError, JobSpec
from ingest.simulate.wishes import HARD_SETS, Wishes

Progress = Callable[[int, int, Path], None]
"""Called after each recording with how many are done, how many there will be, and its folder."""


def incident_spec(
    seed: int, index: int, *, healthy: bool = False, wishes: Wishes | None = None
) -> tuple[JobSpec, int]:
    """The specification and own seed of the index-th faulty (or healthy) recording of a seed."""
    own = derived_seed(seed, Key.HEALTHY if healthy else Key.INCIDENT, index)
    return draw_spec(stream(own, Key.SPEC), wishes, healthy=healthy), own


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
    wishes: Wishes | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> list[Path]:
    """Write ``inc-0001-<fault>`` … and ``healthy-0001`` … under ``out_dir``; return the folders.

    Each recording depends on ``seed``, its number and ``wishes`` only, not on how many there
    are nor on ``workers`` (processes). Raises ValueError with one line for bad arguments.
    """
    for name, value in (("incidents", incidents), ("healthy", healthy), ("seed", seed)):
        if value < 0:
            raise BadSimulationError(f"{name} must be at least 0, not {value}")
    if workers == 0:
        raise BadSimulationError("workers must be positive, or -1 for one per core")
    jobs = [(i, False) for i in range(incidents)] + [(i, True) for i in range(healthy)]
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    results: Iterator[Path]
    if workers == 1:
        results = (_one(out, seed, i, well, wishes) for i, well in jobs)
    else:
        work = (joblib.delayed(_one)(out, seed, i, well, wishes) for i, well in jobs)
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
    hard_set: str | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> list[Path]:
    """What ``weaklink simulate`` does: `write_incidents` with wishes from plain arguments.

    ``hard_set`` names one of `wishes.HARD_SETS`; the other arguments override what it wishes.
    """
    if hard_set is not None and hard_set not in HARD_SETS:
        raise BadSimulationError(f"unknown hard set {hard_set!r}; known: {', '.join(HARD_SETS)}")
    usual = HARD_SETS[hard_set] if hard_set is not None else Wishes()
    wishes = replace(
        usual,
        machines=usual.machines if machines is None else machines,
        fault=usual.fault if fault is None else fault,
        minutes=usual.minutes if minutes is None else minutes,
        cadence_seconds=usual.cadence_seconds if cadence_seconds is None else cadence_seconds,
        per_gpu=usual.per_gpu if per_gpu is None else per_gpu,
    )
    return write_incidents(
        out,
        incidents=incidents,
        healthy=healthy,
        seed=seed,
        wishes=wishes,
        workers=workers,
        progress=progress,
    )


def _one(out: Path, seed: int, index: int, healthy: bool, wishes: Wishes | None) -> Path:
    spec, own = incident_spec(seed, index, healthy=healthy, wishes=wishes)
    name = f"healthy-{index + 1:04d}" if healthy else f"inc-{index + 1:04d}-{spec.faults[0].type}"
    return write_incident(out / name, simulate(spec, own))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8", newline="\n")
