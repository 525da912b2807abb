"""The same seed gives the same bytes, however the work is cut up."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ingest.simulate import FaultSpec, JobSpec, LifeSpec, LiveJob, Wishes, simulate, write_incidents
from tests.simulate_support import ordered, quiet

BUSY = LifeSpec(
    cron_per_hour=40.0,
    slow_batch_per_hour=40.0,
    agent_pause_per_hour=40.0,
    frozen_per_hour=40.0,
    glitch_per_hour=60.0,
    job_slow_per_hour=10.0,
    clock_dip_per_hour=40.0,
    checkpoint_every_s=200.0,
    evaluate_every_s=300.0,
    epoch_every_s=250.0,
    start_s=20.0,
)
CRASH = FaultSpec("ecc_error", (1,), gpu=3, onset_s=400.0, halt_after_s=500.0)
SLOW = FaultSpec(
    "thermal_throttling", (2,), 1, 300.0, "slow", "ramp", 200.0, severity=0.5, halt_after_s=None
)
BLINK = FaultSpec("nic_dropout", (0,), None, 500.0, "slow", "intermittent", halt_after_s=600.0)
GONE = FaultSpec("machine_unreachable", (3,), None, 700.0, "silent", halt_after_s=300.0)

FEW = Wishes(machines=3, minutes=15.0)

JOBS = {
    "busy": JobSpec(machines=4, minutes=20.0, life=BUSY),
    "crash": JobSpec(machines=4, minutes=20.0, life=BUSY, faults=(CRASH,)),
    "per gpu": JobSpec(machines=3, minutes=15.0, life=BUSY, per_gpu=True, faults=(SLOW,)),
    "one gpu in a machine's mean": JobSpec(machines=4, minutes=15.0, faults=(SLOW,)),
    "intermittent": JobSpec(machines=4, minutes=25.0, stages=2, faults=(BLINK,)),
    "silent": JobSpec(machines=4, minutes=20.0, life=BUSY, faults=(GONE,)),
    "two agents": JobSpec(machines=4, minutes=15.0, node_cadence_seconds=10.0, life=BUSY),
    "gauges": JobSpec(machines=4, minutes=40.0, cadence_seconds=10.0, gauge_window_s=0.5),
    "fast": JobSpec(machines=3, minutes=2.0, cadence_seconds=0.1),
    "slow": JobSpec(machines=3, minutes=150.0, cadence_seconds=60.0, life=BUSY),
    "ended": JobSpec(machines=4, minutes=20.0, life=BUSY, end_s=700.0),
}


def in_pieces(spec: JobSpec, seed: int, cuts: list[float]) -> pa.Table:
    job = LiveJob(spec, seed)
    end = spec.minutes * 60.0
    parts = []
    k = 0
    while job.now_s < end:
        parts.append(job.step(min(end, job.now_s + cuts[k % len(cuts)])))
        k += 1
    return ordered(pa.concat_tables(parts))


@pytest.mark.parametrize("name", list(JOBS))
def test_samples_do_not_depend_on_how_time_is_cut(name: str) -> None:
    spec = JOBS[name]
    whole = ordered(simulate(spec, 21).table)
    cuts = [0.5, 7.0, 1.0, 64.0, 333.0, 2.5, 90.0]
    assert in_pieces(spec, 21, cuts).equals(whole)


def digests(folders: list[Path]) -> dict[str, str]:
    return {
        f"{folder.name}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest()
        for folder in folders
        for file in sorted(folder.iterdir())
    }


def test_recordings_are_byte_identical_for_the_same_seed(tmp_path: Path) -> None:
    first = digests(write_incidents(tmp_path / "a", incidents=2, healthy=1, seed=5, wishes=FEW))
    again = digests(write_incidents(tmp_path / "b", incidents=2, healthy=1, seed=5, wishes=FEW))
    assert len(first) == 9
    assert first == again


def test_recordings_do_not_depend_on_processes_nor_on_how_many_there_are(tmp_path: Path) -> None:
    few = digests(write_incidents(tmp_path / "a", incidents=1, healthy=1, seed=6, wishes=FEW))
    many = digests(
        write_incidents(tmp_path / "b", incidents=3, healthy=2, seed=6, wishes=FEW, workers=2)
    )
    assert few.items() <= many.items()


def test_another_seed_gives_another_recording() -> None:
    spec = quiet(noise=1.0, minutes=2.0)
    assert not simulate(spec, 1).table.equals(simulate(spec, 2).table)


def test_an_injected_fault_does_not_change_what_was_before() -> None:
    spec = JobSpec(machines=4, minutes=15.0)
    calm, hit = LiveJob(spec, 31), LiveJob(spec, 31)
    assert hit.step(433.3).equals(calm.step(433.3))
    hit.inject(replace(CRASH, onset_s=None))
    assert not hit.step(600.0).equals(calm.step(600.0))


def test_a_fault_injected_at_once_is_the_fault_of_the_specification() -> None:
    late = LiveJob(JobSpec(machines=4, minutes=20.0), 32)
    late.inject(CRASH)
    early = LiveJob(JobSpec(machines=4, minutes=20.0, faults=(CRASH,)), 32)
    assert late.step(1200.0).equals(early.step(1200.0))


@pytest.mark.parametrize("fault", [CRASH, SLOW, BLINK, GONE], ids=lambda f: f.type)
@pytest.mark.parametrize("per_gpu", [False, True])
def test_injecting_a_fault_is_the_same_as_planning_it(fault: FaultSpec, per_gpu: bool) -> None:
    spec = JobSpec(machines=4, minutes=15.0, per_gpu=per_gpu)
    live = LiveJob(spec, 37)
    parts = [live.step(433.3), live.step(433.9)]
    live.inject(replace(fault, onset_s=None))
    parts.append(live.step(900.0))
    planned = replace(spec, faults=(replace(fault, onset_s=433.9),))
    assert ordered(pa.concat_tables(parts)).equals(ordered(simulate(planned, 37).table))


def test_an_injected_fault_begins_now() -> None:
    job = LiveJob(JobSpec(machines=4), 33)
    job.step(100.0)
    placed = job.inject(FaultSpec("ecc_error", (1,)))
    assert placed.onset_s == 100.0
    assert job.halt_s == 700.0


def test_a_fault_in_the_past_is_refused() -> None:
    job = LiveJob(JobSpec(machines=4), 34)
    job.step(100.0)
    with pytest.raises(ValueError, match="has passed"):
        job.inject(replace(CRASH, onset_s=50.0))


def test_a_live_job_may_run_for_a_day_in_bounded_memory() -> None:
    job = LiveJob(JobSpec(machines=3, metrics=("gpu_power_watts",), cadence_seconds=60.0), 35)
    sizes = []
    for hour in range(1, 25):
        job.step(3600.0 * hour)
        sizes.append(job.held)
    assert max(sizes[12:]) <= 2 * max(sizes[:6])


def test_rows_are_stamped_by_each_machines_own_clock() -> None:
    spec = quiet(clock_offset_s=3.0, machines=8, minutes=2.0)
    table = LiveJob(spec, 36).step(120.0)
    stamps = (table["ts"].cast(pa.int64()).to_numpy() - spec.start_ns) / 1e9
    machine = table["machine"].to_numpy(zero_copy_only=False)
    firsts = np.asarray([stamps[machine == m].min() for m in np.unique(machine)])
    assert firsts.max() - firsts.min() > 1.0
    assert firsts.min() >= -3.0
    assert firsts.max() <= 4.0
