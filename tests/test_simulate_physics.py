"""What happens in a synchronous job happens in the simulated one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingest.simulate import FaultSpec, JobSpec, LiveJob, StepSpec, simulate
from ingest.simulate.cluster import build_cluster
from ingest.simulate.effects import Slow, Stop
from ingest.simulate.occupancy import Stopped, cumulative
from ingest.simulate.pace import build_pace
from ingest.simulate.phases import Carrier, Group, Phase
from ingest.simulate.shapes import Envelope, pulse
from ingest.simulate.timeline import Timeline
from ingest.simulate.workers import Workers
from tests.simulate_support import NO_LIFE, quiet, series

FAR = 1e9
VARIED = StepSpec(load_s=0.2, compute_s=1.0, collective_s=0.4, common=0.05, imbalance=0.05)


def timeline_of(spec: JobSpec, seed: int, slows: list[Slow], stops: list[Stop]) -> Timeline:
    workers = Workers.create(spec.machines, spec.gpus_per_machine, spec.per_gpu)
    timeline = Timeline(spec, build_cluster(spec, seed), workers, seed)
    timeline.set_events(slows, stops)
    return timeline


def nobody_stops(workers: int) -> Stopped:
    return Stopped(np.full(workers, np.inf), np.full(workers, np.inf), [])


def totals_at(
    timeline: Timeline, workers: int, seconds: float
) -> tuple[dict[Phase, NDArray[np.float64]], NDArray[np.float64]]:
    at = np.full((1, workers), seconds)
    return cumulative(timeline.steps(), at, nobody_stops(workers))


def test_all_machines_leave_the_barrier_at_the_same_moment() -> None:
    spec = quiet(step=VARIED, spread=1.0)
    timeline = timeline_of(spec, 3, [Slow((1,), Group.COMPUTE, 1.5, pulse(100.0))], [])
    timeline.advance(300.0, FAR)
    steps = timeline.steps()
    until_release = sum(
        (d for p, d in steps.spent.items() if p is not Phase.COLLECTIVE),
        np.zeros((len(steps.start) - 1, spec.machines)),
    )
    np.testing.assert_allclose(until_release, until_release[:, :1] * np.ones(spec.machines))
    ends = steps.start[:-1] + until_release[:, 0] + steps.spent[Phase.COLLECTIVE][:, 0]
    np.testing.assert_allclose(ends, steps.start[1:])


def test_every_step_has_somebody_who_does_not_wait() -> None:
    timeline = timeline_of(quiet(step=VARIED, spread=1.0), 4, [], [])
    timeline.advance(200.0, FAR)
    waits = timeline.steps().spent[Phase.WAIT]
    assert waits.min() >= 0.0
    np.testing.assert_array_equal(waits.min(axis=1), 0.0)


def test_all_machines_have_made_the_same_number_of_steps() -> None:
    spec = quiet(step=VARIED, spread=1.0)
    timeline = timeline_of(spec, 5, [Slow((2,), Group.COMPUTE, 2.0, pulse(50.0))], [])
    timeline.advance(400.0, FAR)
    _, progress = totals_at(timeline, 4, 333.3)
    np.testing.assert_array_equal(
        progress[Carrier.STEP], progress[Carrier.STEP][:, :1] * np.ones(4)
    )


@pytest.mark.parametrize("group", [Group.LOAD, Group.COMPUTE])
def test_the_slow_machine_waits_least(group: Group) -> None:
    spec = quiet(step=VARIED, spread=1.0)
    timeline = timeline_of(spec, 6, [Slow((2,), group, 3.0, pulse(0.0))], [])
    timeline.advance(600.0, FAR)
    spent, _ = totals_at(timeline, 4, 600.0)
    waited = spent[Phase.WAIT][0]
    assert waited[2] < 0.2 * np.delete(waited, 2).min()


def test_phases_add_up_to_the_time_that_has_passed() -> None:
    spec = quiet(
        step=VARIED,
        life=replace(NO_LIFE, start_s=30.0, checkpoint_every_s=60.0, evaluate_every_s=90.0),
    )
    stop = Stop((1,), 200.0, Phase.IDLE)
    timeline = timeline_of(spec, 7, [Slow((0,), Group.LOAD, 2.0, pulse(40.0, 30.0))], [stop])
    timeline.advance(500.0, FAR)
    at = np.linspace(0.0, 500.0, 333)[:, None] * np.ones(4)
    gone = np.asarray([np.inf, 200.0, np.inf, np.inf])
    halt = np.asarray([400.0, 401.0, 402.0, 400.5])
    stays = [(np.asarray([1]), Phase.IDLE, 200.0, float("inf"))]
    spent, _ = cumulative(timeline.steps(), at, Stopped(gone, halt, stays))
    np.testing.assert_allclose(sum(spent.values()), at, atol=1e-9)
    for phase, seconds in spent.items():
        assert (np.diff(seconds, axis=0) >= -1e-9).all(), phase


def test_a_machine_that_stops_keeps_all_others_waiting() -> None:
    timeline = timeline_of(quiet(), 8, [], [Stop((1,), 60.0, Phase.IDLE)])
    timeline.advance(FAR, FAR)
    assert timeline.time == float("inf")
    early, _ = totals_at(timeline, 4, 70.0)
    late, _ = totals_at(timeline, 4, 170.0)
    waited = (late[Phase.WAIT] - early[Phase.WAIT])[0]
    np.testing.assert_allclose(np.delete(waited, 1), 100.0)


@settings(max_examples=60, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.floats(0.0, 50.0), st.floats(0.5, 20.0), st.floats(1.0, 6.0)),
        min_size=1,
        max_size=4,
    ),
    begin=st.floats(0.0, 60.0),
    work=st.floats(0.0, 30.0),
)
def test_work_done_until_its_finish_is_the_work_asked_for(
    changes: list[tuple[float, float, float]], begin: float, work: float
) -> None:
    workers = Workers.create(2, 1, False)
    slows = [Slow((1,), Group.COMPUTE, f, pulse(at, last)) for at, last, f in changes]
    pace = build_pace(slows, [], workers)
    assert pace is not None
    end = float(pace.finish(Group.COMPUTE, np.asarray([begin]), np.asarray([work]))[0])
    edges = np.unique(np.concatenate(([begin, end], pace.times[(pace.times > begin)])))
    edges = edges[edges <= end]
    done = sum(
        (b - a) / pace.slow[Group.COMPUTE, pace.segment(a)[0], 0] for a, b in pairwise(edges)
    )
    assert done == pytest.approx(work, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    start=st.floats(-20.0, 20.0),
    seconds=st.floats(1.0, 30.0),
    ramp=st.floats(0.0, 20.0),
    until=st.floats(-30.0, 80.0),
)
def test_an_envelopes_integral_is_the_area_below_it(
    start: float, seconds: float, ramp: float, until: float
) -> None:
    shape = pulse(start, seconds, ramp)
    grid = np.linspace(-40.0, until, 200_001)
    height = np.interp(grid, shape.times, shape.values, left=0.0, right=shape.values[-1])
    area = float(np.trapezoid(height, grid))
    assert float(shape.integral(np.asarray([until]))[0]) == pytest.approx(area, abs=2e-3)


def test_stairs_of_a_ramp_do_the_work_of_the_ramp() -> None:
    times, values = Envelope((0.0, 100.0), (0.0, 1.0)).stairs()
    area = sum(v * (b - a) for (a, b), v in zip(pairwise(times), values, strict=False))
    assert area == pytest.approx(50.0)
    assert values == sorted(values)


def at_rest(job: LiveJob, table: pa.Table, metric: str, start: float, end: float) -> list[float]:
    return [
        float(np.mean(series(table, m, metric, start, end, job.spec.start_ns)))
        for m in job.machines
    ]


def test_the_crashed_machine_is_idle_while_its_peers_spin() -> None:
    fault = FaultSpec("cuda_execution_error", (2,), onset_s=200.0, halt_after_s=300.0)
    job = LiveJob(quiet(faults=(fault,), wait="spin"), 11)
    table = job.step(600.0)
    active = at_rest(job, table, "gpu_sm_active_ratio", 230.0, 490.0)
    power = at_rest(job, table, "gpu_power_watts", 230.0, 490.0)
    tensor = at_rest(job, table, "gpu_tensor_active_ratio", 230.0, 490.0)
    before = at_rest(job, table, "gpu_power_watts", 30.0, 190.0)
    peers = [0, 1, 3]
    assert active[2] < 0.01
    assert min(active[i] for i in peers) > 0.8
    assert power[2] < 0.5 * min(power[i] for i in peers)
    assert all(power[i] < before[i] for i in peers)
    assert max(tensor) < 0.01


def test_after_the_halt_everybody_is_idle() -> None:
    fault = FaultSpec("ecc_error", (0,), onset_s=100.0, halt_after_s=120.0)
    job = LiveJob(quiet(faults=(fault,)), 12)
    table = job.step(400.0)
    assert job.halt_s == pytest.approx(220.0)
    assert max(at_rest(job, table, "gpu_sm_active_ratio", 240.0, 400.0)) < 0.01
    assert max(at_rest(job, table, "ib_tx_bytes_per_second", 240.0, 400.0)) < 1e5


def test_bytes_per_step_stay_the_same_when_steps_become_longer() -> None:
    fault = FaultSpec("ecc_error", (1,), None, 300.0, "slow", severity=1.0, halt_after_s=None)
    job = LiveJob(quiet(faults=(fault,)), 13)
    table = job.step(600.0)
    before = at_rest(job, table, "nvlink_tx_bytes_per_second", 10.0, 290.0)
    after = at_rest(job, table, "nvlink_tx_bytes_per_second", 320.0, 590.0)
    # Twice the step time: half the rate, on the slow machine as on the others.
    np.testing.assert_allclose(np.asarray(after) / np.asarray(before), 0.5, rtol=0.03)


def test_tensor_work_per_step_stays_the_same_when_the_clock_is_lowered() -> None:
    fault = FaultSpec(
        "thermal_throttling", (1,), None, 300.0, "slow", severity=0.4, halt_after_s=None
    )
    job = LiveJob(quiet(faults=(fault,)), 14)
    table = job.step(600.0)
    cycles = np.asarray(at_rest(job, table, "gpu_tensor_active_ratio", 320.0, 590.0))
    clock = np.asarray(at_rest(job, table, "gpu_sm_clock_hertz", 320.0, 590.0))
    work = cycles * clock
    assert clock[1] < 0.9 * clock[0]
    assert work[1] == pytest.approx(work[0], rel=0.1)


def test_temperature_follows_power_slowly() -> None:
    fault = FaultSpec("ecc_error", (0,), onset_s=200.0, halt_after_s=None)
    job = LiveJob(quiet(faults=(fault,)), 15)
    table = job.step(600.0)
    name = job.machines[0]

    def degrees(start: float, end: float) -> float:
        values = series(table, name, "gpu_temperature_celsius", start, end, job.spec.start_ns)
        return float(values.mean())

    hot, soon, cold = degrees(150.0, 200.0), degrees(204.0, 207.0), degrees(550.0, 600.0)
    assert hot > soon > cold
    assert hot - cold > 5.0


def test_one_slow_gpu_makes_its_siblings_wait_like_any_peer() -> None:
    fault = FaultSpec("ecc_error", (1,), 5, 60.0, "slow", severity=1.0, halt_after_s=None)
    job = LiveJob(quiet(faults=(fault,), per_gpu=True, machines=3, wait="host"), 16)
    table = job.step(400.0).to_pydict()
    means: dict[tuple[str, int], list[float]] = {}
    for machine, gpu, value in zip(
        table["machine"], table["gpu"], table["gpu_sm_active_ratio"], strict=True
    ):
        if value is not None:
            means.setdefault((machine, gpu), []).append(value)
    active = {key: float(np.mean(values[100:])) for key, values in means.items()}
    odd = (job.machines[1], 5)
    others = [v for key, v in active.items() if key != odd]
    assert max(others) - min(others) < 0.02
    assert abs(active[odd] - float(np.mean(others))) > 0.05


def test_one_slow_gpu_is_an_eighth_of_its_machines_mean() -> None:
    fault = FaultSpec("ecc_error", (1,), 5, 60.0, "slow", severity=1.0, halt_after_s=None)
    spec = quiet(faults=(fault,), machines=3, wait="host", metrics=("gpu_sm_active_ratio",))
    machines = LiveJob(spec, 16)
    gpus = LiveJob(replace(spec, per_gpu=True), 16)
    seen = at_rest(machines, machines.step(400.0), "gpu_sm_active_ratio", 100.0, 400.0)
    every = at_rest(gpus, gpus.step(400.0), "gpu_sm_active_ratio", 100.0, 400.0)
    np.testing.assert_allclose(seen, every, rtol=0.01)


def test_a_checkpoint_of_some_machines_makes_the_others_wait() -> None:
    life = replace(NO_LIFE, checkpoint_every_s=120.0, checkpoint_s=30.0, checkpoint_writers=0.25)
    spec = quiet(life=life)
    timeline = timeline_of(spec, 17, [], [])
    timeline.advance(600.0, FAR)
    spent, _ = totals_at(timeline, 4, 600.0)
    assert spent[Phase.CHECKPOINT][0, 0] > 60.0
    np.testing.assert_array_equal(spent[Phase.CHECKPOINT][0, 1:], 0.0)
    assert spent[Phase.WAIT][0, 1:].min() > 0.9 * spent[Phase.CHECKPOINT][0, 0]


def test_a_job_that_starts_loads_before_it_computes() -> None:
    spec = quiet(life=replace(NO_LIFE, start_s=60.0))
    job = LiveJob(spec, 18)
    table = job.step(300.0)
    early = at_rest(job, table, "gpu_tensor_active_ratio", 0.0, 40.0)
    late = at_rest(job, table, "gpu_tensor_active_ratio", 150.0, 300.0)
    assert max(early) < 0.1 * min(late)


@pytest.mark.parametrize("seed", range(8))
def test_a_gpu_shows_a_crash_by_itself_unless_the_whole_machine_goes_down(seed: int) -> None:
    fault = FaultSpec("cuda_execution_error", (1,), 2, 60.0, "crash", halt_after_s=None)
    spec = quiet(
        machines=3, minutes=2.0, per_gpu=True, faults=(fault,), metrics=("gpu_utilization_ratio",)
    )
    incident = simulate(spec, seed)
    late = incident.table.sort_by("ts").slice(incident.table.num_rows * 7 // 8)
    faulty = incident.label["faulty_machines"][0]
    rests = {
        row["gpu"]
        for row in late.to_pylist()
        if row["machine"] == faulty and row["gpu_utilization_ratio"] < 0.1
    }
    assert rests == ({2} if incident.gpu == 2 else set(range(8)))
    assert incident.gpu in (2, None)
