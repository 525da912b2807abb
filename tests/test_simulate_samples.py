"""What agents report: columns, gaps, resolution, and what goes wrong on the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from ingest.catalogue import Catalogue
from ingest.samples import KEY_FIELDS
from ingest.simulate import FaultSpec, JobSpec, LiveJob
from ingest.simulate.benign import events_of_slot
from ingest.simulate.disturb import Disturbances
from ingest.simulate.effects import Effect, Observe
from ingest.simulate.metrics import METRICS, PROFILING, SIXTEEN, Metric
from ingest.simulate.physics import Rows
from tests.simulate_support import NO_LIFE, quiet, series


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_every_metric_is_a_canonical_one_within_its_limits(metric: Metric) -> None:
    known = Catalogue.default().metric(metric.name)
    assert known.known
    assert known.lower <= metric.low
    assert metric.high <= known.upper


def test_a_table_has_the_key_columns_and_the_jobs_metrics() -> None:
    spec = quiet(minutes=1.0)
    table = LiveJob(spec, 1).step(60.0)
    assert list(table.schema)[:4] == list(KEY_FIELDS)
    assert table.column_names[4:] == sorted(SIXTEEN)
    assert table.num_rows == 60 * spec.machines


def test_nothing_is_missing_in_a_job_without_events() -> None:
    table = LiveJob(quiet(noise=1.0, spread=1.0), 2).step(300.0)
    nulls = {name: table[name].null_count for name in table.column_names if name != "gpu"}
    assert set(nulls.values()) == {0}


@pytest.mark.parametrize("machines", [3, 2000])
def test_jobs_of_any_size_can_be_simulated(machines: int) -> None:
    table = LiveJob(JobSpec(machines=machines, minutes=0.5), 3).step(30.0)
    assert len(table["machine"].unique()) == machines
    assert table.num_rows > 0.9 * 30 * machines


def test_one_row_a_gpu_and_one_for_its_machine() -> None:
    table = LiveJob(quiet(per_gpu=True, machines=3), 4).step(10.0)
    gpus = table["gpu"].to_pylist()
    assert gpus.count(None) == 10 * 3
    assert {gpus.count(g) for g in range(8)} == {10 * 3}
    host = table.filter(pa.compute.is_null(table["gpu"]))
    assert host["gpu_power_watts"].null_count == host.num_rows
    assert host["cpu_usage_ratio"].null_count == 0


def test_two_agents_send_their_own_rows_at_their_own_cadence() -> None:
    table = LiveJob(quiet(node_cadence_seconds=10.0, machines=3), 5).step(100.0)
    assert table.num_rows - table["cpu_usage_ratio"].null_count == 10 * 3
    assert table.num_rows - table["gpu_power_watts"].null_count == 100 * 3


@pytest.mark.parametrize("cadence", [0.1, 0.5, 5.0, 60.0])
def test_each_machine_is_sampled_once_a_cadence(cadence: float) -> None:
    seconds = 40 * cadence
    spec = quiet(cadence_seconds=cadence, minutes=seconds / 60.0, machines=3, jitter_s=0.2)
    table = LiveJob(spec, 6).step(seconds)
    stamps = (table["ts"].cast(pa.int64()).to_numpy() - spec.start_ns) / 1e9
    machine = table["machine"].to_numpy(zero_copy_only=False)
    for name in np.unique(machine):
        mine = np.floor(stamps[machine == name] / cadence + 1e-6)
        assert len(mine) == 40
        np.testing.assert_array_equal(np.sort(mine), np.arange(40))


def test_a_mean_over_a_minute_is_the_mean_of_its_seconds() -> None:
    spec = quiet(metrics=("gpu_sm_active_ratio",), minutes=20.0)
    fine, coarse = LiveJob(spec, 7), LiveJob(replace(spec, cadence_seconds=60.0), 7)
    name = fine.machines[0]
    seconds = series(fine.step(1200.0), name, "gpu_sm_active_ratio", 60, 1140, spec.start_ns)
    minutes = series(coarse.step(1200.0), name, "gpu_sm_active_ratio", 60, 1140, spec.start_ns)
    assert float(minutes.mean()) == pytest.approx(float(seconds.mean()), rel=0.005)


def test_values_have_the_resolution_of_their_metric() -> None:
    table = LiveJob(quiet(noise=1.0), 8).step(60.0)
    clock = table["gpu_sm_clock_hertz"].to_numpy() / 15e6
    np.testing.assert_array_equal(clock, np.rint(clock))
    degrees = table["gpu_temperature_celsius"].to_numpy()
    np.testing.assert_array_equal(degrees, np.rint(degrees))


def test_whole_second_stamps_have_no_fraction() -> None:
    table = LiveJob(quiet(whole_second_stamps=True, clock_offset_s=2.0), 9).step(30.0)
    assert not (table["ts"].cast(pa.int64()).to_numpy() % 1_000_000_000).any()


def rows_of_machines(count: int) -> Rows:
    machine = np.arange(count, dtype=np.int64)
    return Rows(machine, machine * 0 - 1, 8)


def disturbed(effects: list[Observe], parts: list[int]) -> NDArray[np.float64]:
    """Values 0, 1, 2, … of one metric on two machines, sampled in parts."""
    agent = Disturbances(rows_of_machines(2), ("gpu_power_watts",))
    out = []
    begin = 0
    for size in parts:
        at = np.arange(begin, begin + size, dtype=np.float64)[:, None] * np.ones(2)
        values = at[None].copy()
        agent.apply(values, at, effects)
        out.append(values[0])
        begin += size
    return np.concatenate(out)


def test_a_frozen_agent_repeats_its_last_value() -> None:
    seen = disturbed([Observe((1,), "frozen", 3.0, 7.0)], [10])
    np.testing.assert_array_equal(seen[:, 1], [0, 1, 2, 2, 2, 2, 2, 7, 8, 9])
    np.testing.assert_array_equal(seen[:, 0], np.arange(10))


def test_a_value_stays_frozen_across_blocks() -> None:
    effect = Observe((1,), "frozen", 3.0, 7.0)
    np.testing.assert_array_equal(disturbed([effect], [3, 1, 2, 4]), disturbed([effect], [10]))


def test_missing_zero_and_corrupt_values_are_put_where_they_belong() -> None:
    effects = [
        Observe((0,), "missing", 1.0, 3.0),
        Observe((0,), "zero", 4.0, 5.0),
        Observe((0,), "corrupt", 6.0, 7.0, None, 4294967295.0),
    ]
    seen = disturbed(effects, [8])[:, 0]
    np.testing.assert_array_equal(seen, [0, np.nan, np.nan, 3, 0, 5, 4294967295.0, 7])


def test_a_silent_machine_sends_nothing_more() -> None:
    fault = FaultSpec("machine_unreachable", (1,), None, 60.0, "silent", halt_after_s=None)
    job = LiveJob(quiet(faults=(fault,)), 10)
    table = job.step(200.0)
    origin = job.spec.start_ns
    counts = [len(series(table, m, "gpu_power_watts", 70, 200, origin)) for m in job.machines]
    assert counts[1] == 0
    assert min(counts[0], counts[2], counts[3]) == 130


def test_zeroed_profiling_fields_leave_power_alone() -> None:
    fault = FaultSpec("profiling_zeroed", (1,), None, 60.0, "silent", halt_after_s=None)
    for seed in range(20):  # zero or missing, drawn by the instance
        job = LiveJob(quiet(faults=(fault,)), seed)
        table = job.step(120.0)
        origin = job.spec.start_ns
        for name in PROFILING:
            if name in table.column_names:
                assert not series(table, job.machines[1], name, 70, 120, origin).any()
        assert series(table, job.machines[1], "gpu_power_watts", 70, 120, origin).min() > 20.0


def test_a_metric_that_some_machines_lack_is_there_on_others() -> None:
    spec = quiet(life=replace(NO_LIFE, lacking=0.5))
    lacking = 0
    for seed in range(10):
        table = LiveJob(spec, seed).step(5.0)
        lacking += sum(0 < table[n].null_count < table.num_rows for n in table.column_names[4:])
    assert lacking > 5


def test_healthy_life_has_the_rates_that_were_asked_for() -> None:
    spec = quiet(life=replace(NO_LIFE, agent_pause_per_hour=12.0))
    events: list[Effect] = []
    for slot in range(600):  # a hundred hours
        events += events_of_slot(spec, 1, slot)
    assert len(events) == pytest.approx(1200, rel=0.1)
    assert all(isinstance(e, Observe) and 2.0 <= e.end_s - e.start_s <= 40.0 for e in events)
