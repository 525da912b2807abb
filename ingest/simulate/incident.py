"""A simulated incident: samples, the truth about them, and where the machines stand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from ingest.simulate.live import LiveJob
from ingest.simulate.spec import TELEMETRY_FAULTS, FaultSpec, JobSpec


@dataclass(frozen=True, slots=True)
class Incident:
    """``table`` as in `ingest.samples`; ``label`` and ``topology`` as in a recording's JSON.

    ``gpu`` is the GPU that shows the fault by itself, see `LiveJob.gpu`.
    """

    table: pa.Table
    label: dict[str, Any]
    topology: dict[str, Any]
    gpu: int | None = None


def simulate(spec: JobSpec, seed: int) -> Incident:
    """Run a job to the end of its recording. The same arguments give the same bytes.

    Only additions, multiplications and PCG64 draws reach the samples, rounded to each metric's
    resolution, so the result does not hang on a platform's mathematics library.
    """
    job = LiveJob(spec, seed)
    table = job.step(spec.minutes * 60.0)
    return Incident(table, label_of(job), job.cluster.topology, job.gpu)


def label_of(job: LiveJob) -> dict[str, Any]:
    """The truth about a job so far, in the form of ``incident.json``."""
    spec = job.spec
    real = [f for f in job.faults if f.type not in TELEMETRY_FAULTS]
    label: dict[str, Any] = {
        "job": spec.job,
        "faulty_machines": sorted({job.machines[m] for f in real for m in f.machines}),
        "fault_type": real[0].type if real else None,
        "onset": None,
        "halt": None,
        "note": "; ".join(_note(job, f) for f in job.faults) or _healthy_note(spec),
    }
    onsets = [f.onset_s for f in real]
    if onsets and None not in onsets:
        label["onset"] = _stamp(spec, min(o for o in onsets if o is not None))
    if job.halt_s is not None and job.halt_s <= max(job.now_s, spec.minutes * 60.0):
        label["halt"] = _stamp(spec, job.halt_s)
    return label


def _stamp(spec: JobSpec, seconds: float) -> str:
    ms = spec.start_ns // 1_000_000 + round(seconds * 1000.0)
    whole, rest = divmod(ms, 1000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def _note(job: LiveJob, fault: FaultSpec) -> str:
    """What is special about this instance, as ``key=value`` words."""
    if fault.type in TELEMETRY_FAULTS:
        names = ",".join(job.machines[m] for m in fault.machines)
        onset = _stamp(job.spec, fault.onset_s or 0.0)
        return f"simulated; telemetry fault {fault.type} on {names} from {onset}; machines healthy"
    words = [f"simulated; manifestation={fault.shows}"]
    if fault.shows in ("slow", "slow_crash"):
        words.append(f"pattern={fault.pattern}")
        words.append(f"severity={fault.severity:.3g}")
        if fault.ramp_s:
            words.append(f"ramp_seconds={fault.ramp_s:.0f}")
    if fault.gpu is not None:
        words.append(f"gpu={fault.gpu}")
    return " ".join(words)


def _healthy_note(spec: JobSpec) -> str:
    return "simulated; healthy" + ("; the job ends by itself" if spec.end_s is not None else "")
