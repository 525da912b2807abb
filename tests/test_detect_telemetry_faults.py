"""Frozen, zeroed and never exported values become missing; what is real stays."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from detect.telemetry_faults import Found, TelemetryFaults
from detect.topology import shared_by
from tests.detect_support import CATALOGUE, family

METRICS = (
    "cpu_usage_ratio",
    "gpu_power_watts",
    "gpu_sm_active_ratio",
    "gpu_tensor_active_ratio",
    "nvlink_tx_bytes_per_second",
)
CPU, POWER, SM, TENSOR, NVLINK = range(5)
ROWS = 6
Array = NDArray[np.float64]


def healthy(ticks: int) -> Array:
    rng = np.random.default_rng(0)
    levels = np.array([0.3, 5000.0, 0.9, 0.5, 1e10])[:, None, None]
    values: Array = levels * rng.normal(1.0, 0.02, (len(METRICS), ROWS, ticks))
    return values


def masked(
    values: Array,
    worst_z: Array | None = None,
    tick_seconds: float = 1.0,
    metrics: tuple[str, ...] = METRICS,
) -> Array:
    """What is left of ``[M, R, T]``; ``worst_z`` is ``[R, T]``."""
    faults = TelemetryFaults(family, lambda metric: CATALOGUE.metric(metric).scope)
    faults.reindex(metrics, tuple(f"m{i}" for i in range(values.shape[1])))
    out = np.empty_like(values)
    for k in range(values.shape[2]):
        calm = np.zeros(values.shape[1]) if worst_z is None else worst_z[:, k]
        out[:, :, k] = faults.mask(values[:, :, k].copy(), calm, tick_seconds)
    return out


def frozen(at: int, ticks: int) -> Array:
    values = healthy(ticks)
    values[:, 1, at:] = values[:, 1, at : at + 1]
    return values


def test_healthy_values_pass_unchanged() -> None:
    values = healthy(60)
    assert np.array_equal(masked(values), values)


def test_an_exporter_that_froze_in_line_with_the_peers_is_missing_within_seconds() -> None:
    left = masked(frozen(30, 60))
    assert np.isfinite(left[:, :, :34]).all()
    assert np.isnan(left[:, 1, 36:]).all()
    assert np.isfinite(left[:, [0, 2, 3, 4, 5]]).all()


def test_the_exporter_of_the_gpus_freezes_while_the_hosts_goes_on() -> None:
    values = frozen(30, 60)
    values[CPU] = healthy(60)[CPU]
    left = masked(values)
    assert np.isnan(left[[POWER, SM, TENSOR, NVLINK], 1, 36:]).all()
    assert np.isfinite(left[CPU]).all()


def test_a_counter_of_a_frozen_exporter_stands_at_a_rate_of_zero() -> None:
    values = frozen(30, 60)
    values[NVLINK, 1, 31:] = 0.0
    assert np.isnan(masked(values)[:, 1, 36:]).all()


def test_values_that_all_fall_to_zero_are_not_frozen() -> None:
    values = healthy(60)
    values[[CPU, SM, TENSOR, NVLINK], 1, 30:] = 0.0
    values[POWER, 1, 30:] *= 0.06
    assert np.isfinite(masked(values)[[CPU, POWER], 1]).all()


def test_a_machine_that_jumped_before_it_stood_still_is_real() -> None:
    values = healthy(60)
    values[:, 1, 30:] = 0.0
    values[POWER, 1, 30:] = 900.0
    z = np.zeros((ROWS, 60))
    z[1, 31:] = 12.0
    assert np.isfinite(masked(values, z)[[CPU, POWER], 1]).all()


def test_a_row_frozen_whole_is_missing_however_odd_it_froze() -> None:
    values = healthy(60)
    values[:, 1, 30:] = 0.3 * values[:, 1, 30:31]
    z = np.zeros((ROWS, 60))
    z[1, 30:] = 12.0
    left = masked(values, z)
    assert np.isnan(left[:, 1, 36:]).all()
    assert np.isfinite(left[:, [0, 2, 3, 4, 5]]).all()
    # What only the GPUs' exporter repeats may be true of GPUs that stand still and send nothing,
    # even if the host's repeats a value now and then.
    values[CPU] = np.round(healthy(60)[CPU], 3)
    assert np.isnan(masked(values, z)[[POWER, SM, TENSOR, NVLINK], 1, 36:]).all()
    values[NVLINK, 1, 30:] = 0.0
    assert np.isfinite(masked(values, z)).all()


def test_a_frozen_row_that_moves_again_is_back() -> None:
    values = frozen(30, 80)
    values[:, 1, 60:] = healthy(80)[:, 1, 60:]
    assert np.isfinite(masked(values)[:, 1, 61:]).all()


def test_metrics_that_most_rows_repeat_say_nothing_of_freezing() -> None:
    values = np.tile(healthy(1), (1, 1, 60))
    assert np.isfinite(masked(values)).all()


@pytest.mark.parametrize(("tick_seconds", "ticks"), [(1.0, 5), (15.0, 3)])
def test_freezing_takes_five_seconds_and_three_ticks(tick_seconds: float, ticks: int) -> None:
    left = masked(frozen(30, 60), tick_seconds=tick_seconds)
    assert int(np.flatnonzero(np.isnan(left[CPU, 1]))[0]) == 30 + ticks


def zeroed(power: float) -> Array:
    values = healthy(40)
    values[[SM, TENSOR, NVLINK], 2, 20:] = 0.0
    values[POWER, 2, 20:] *= power
    return values


def test_profiling_zeros_beside_real_power_are_missing() -> None:
    left = masked(zeroed(power=1.0))
    assert np.isnan(left[[SM, TENSOR, NVLINK], 2, 20:]).all()
    assert np.isfinite(left[[CPU, POWER], 2]).all()


def test_the_drivers_own_fields_go_on_when_profiling_pauses() -> None:
    metrics = (*METRICS[:2], "gpu_memory_copy_ratio", *METRICS[2:])
    values = np.insert(zeroed(power=1.0), 2, healthy(40)[SM], axis=0)
    left = masked(values, metrics=metrics)
    assert np.isnan(left[3:, 2, 20:]).all()
    assert np.isfinite(left[:3, 2]).all()


def test_zeros_of_a_machine_without_power_are_real() -> None:
    values = zeroed(power=0.2)
    assert np.array_equal(masked(values), values)


def test_zeros_that_all_have_are_real_on_a_machine_that_lacks_the_field_that_is_not() -> None:
    values = healthy(40)
    values[[SM, TENSOR], :, 20:] = 0.0
    values[NVLINK, :, 20:] *= 1e-3
    values[NVLINK, 2] = np.nan
    left = masked(values)
    assert np.array_equal(left[[SM, TENSOR]], values[[SM, TENSOR]])


PARTLY = (*METRICS, "nvlink_rx_bytes_per_second", "pcie_tx_bytes_per_second")
PCIE = PARTLY.index("pcie_tx_bytes_per_second")
DARK = [SM, TENSOR, NVLINK, PARTLY.index("nvlink_rx_bytes_per_second")]


def partly_zeroed(power: float, zero: list[int]) -> Array:
    """``[M, R, T]`` over `PARTLY`; row 2 reports nothing in these from tick 20 on."""
    own = healthy(40)
    values = np.concatenate([own, own[[NVLINK, NVLINK]] * [[[1.0]], [[0.1]]]])
    values[zero, 2, 20:] = 0.0
    values[POWER, 2, 20:] *= power
    return values


def test_most_profiling_fields_may_be_zeroed_while_one_goes_on() -> None:
    values = partly_zeroed(1.0, DARK)
    left = masked(values, metrics=PARTLY)
    assert np.isnan(left[DARK, 2, 20:]).all()
    values[DARK, 2, 20:] = np.nan
    assert np.array_equal(left, values, equal_nan=True)


@pytest.mark.parametrize(
    ("power", "zero"),
    [
        (0.2, DARK),
        (1.0, [NVLINK]),
        (1.0, [SM]),
        (1.0, [SM, *DARK[2:]]),
        (1.0, [SM, TENSOR]),
    ],
    ids=[
        "no power either",
        "one link at nothing",
        "one of activity at nothing",
        "some activity left",
        "most of them left",
    ],
)
def test_zeros_beside_live_fields_or_without_power_are_real(power: float, zero: list[int]) -> None:
    values = partly_zeroed(power, zero)
    assert np.array_equal(masked(values, metrics=PARTLY), values)


SENDS = ("gpu_sm_active_ratio", "gpu_tensor_active_ratio", "ib_tx_bytes_per_second")


def without_power(traffic: float) -> Array:
    """``[M, R, T]`` over `SENDS`; row 2's profiling is zero from tick 20, and so is every fifth
    sample of its traffic, of which the rest is a share of the peers'."""
    rng = np.random.default_rng(0)
    levels = np.array([0.9, 0.5, 1e10])[:, None, None]
    values: Array = levels * rng.normal(1.0, 0.02, (len(SENDS), ROWS, 60))
    values[:2, 2, 20:] = 0.0
    values[2, 2, 20:] *= traffic
    values[2, 2, 20::5] = 0.0
    return values


def test_profiling_zeros_beside_usual_traffic_are_missing_where_no_power_is_known() -> None:
    left = masked(without_power(traffic=0.9), metrics=SENDS)
    assert np.isnan(left[:2, 2, 20:]).all()
    assert np.isfinite(left[2, 2]).all()


def test_zeros_of_a_machine_that_sends_nothing_are_real_after_ten_seconds() -> None:
    left = masked(without_power(traffic=0.1), metrics=SENDS)
    assert int(np.flatnonzero(np.isfinite(left[0, 2, 20:]))[0]) == 9
    assert np.isfinite(left[0, 2, 30:]).all()


INLET = ("machine_power_watts", "gpu_power_watts", "gpu_temperature_celsius", "cpu_usage_ratio")


def inlet(**zero: int) -> Array:
    """``[M, R, T]`` over `INLET`; of row 1 these metrics are zero from a tick on."""
    rng = np.random.default_rng(0)
    levels = np.array([6000.0, 5000.0, 60.0, 0.3])[:, None, None]
    values: Array = levels * rng.normal(1.0, 0.02, (len(INLET), ROWS, 60))
    for metric, at in zero.items():
        values[INLET.index(metric), 1, at:] = 0.0
    return values


def test_gpus_without_power_or_traffic_share_what_was_found_of_their_machine() -> None:
    metrics = ("gpu_sm_active_ratio", "gpu_tensor_active_ratio", "gpu_temperature_celsius")
    faults = TelemetryFaults(family, lambda metric: CATALOGUE.metric(metric).scope)
    faults.reindex(metrics, tuple(f"m{i}" for i in range(ROWS)))
    faults.mask(np.tile([[0.9], [0.5], [60.0]], ROWS), np.zeros(ROWS), 1.0)
    x = np.tile([[0.9], [0.5], [60.0]], ROWS)
    x[:2, 1:3] = 0.0
    found = Found(np.arange(ROWS) == 1, np.arange(ROWS) == 3)
    left = faults.mask(x, np.zeros(ROWS), 1.0, found)
    assert np.isnan(left[:2, 1]).all()
    assert np.isnan(left[:, 3]).all()
    assert np.isfinite(left[:, [0, 2, 4, 5]]).all()
    assert faults.found.zeroed.tolist() == found.zeroed.tolist()


def test_a_machine_that_sends_anything_draws_something() -> None:
    left = masked(inlet(machine_power_watts=30), metrics=INLET)
    assert np.isnan(left[0, 1, 30:]).all()
    assert np.isfinite(left[1:]).all()
    assert np.isfinite(left[0, :, :30]).all()


def test_gpus_at_zero_degrees_that_do_nothing_are_their_exporters() -> None:
    left = masked(inlet(gpu_power_watts=30, gpu_temperature_celsius=30), metrics=INLET)
    assert np.isnan(left[1:3, 1, 30:]).all()
    assert np.isfinite(left[[0, 3]]).all()


def test_gpus_that_draw_nothing_at_all_are_their_exporters() -> None:
    values = healthy(60)
    values[1:, 1, 30:] = 0.0
    left = masked(values)
    assert np.isnan(left[1:, 1, 30:]).all()
    assert np.isfinite(left[CPU]).all()


def test_gpus_that_are_warm_may_do_nothing() -> None:
    values = inlet(gpu_power_watts=30)
    assert np.array_equal(masked(values, metrics=INLET), values)


def test_zeros_on_every_machine_are_the_jobs() -> None:
    values = healthy(40)
    values[[SM, TENSOR, NVLINK], :, 20:] = 0.0
    assert np.array_equal(masked(values), values)


def test_a_field_that_one_machine_never_exports_is_missing_there() -> None:
    values = healthy(40)
    values[NVLINK, 3] = 0.0
    left = masked(values)
    assert np.isnan(left[NVLINK, 3]).all()
    assert np.isfinite(np.delete(left, 3, axis=1)).all()


def test_a_field_that_fell_to_zero_is_real() -> None:
    values = healthy(40)
    values[NVLINK, 3, 10:] = 0.0
    assert np.isfinite(masked(values)).all()


def test_a_field_that_is_zero_on_most_machines_is_real() -> None:
    values = healthy(40)
    values[NVLINK, :4] = 0.0
    assert np.isfinite(masked(values)).all()


def test_the_input_is_left_as_it_was() -> None:
    values = zeroed(power=1.0)
    before = values.copy()
    masked(values)
    assert np.array_equal(values, before)


MACHINES = [f"m{i}" for i in range(8)]
TOPOLOGY = {
    m: {"leaf_switch": f"sw{i // 4}", "rack": f"r{i // 2}", "data_rank": i, "cluster": "c"}
    for i, m in enumerate(MACHINES)
}


def test_what_odd_machines_share_is_the_first_physical_thing_that_fits() -> None:
    found = shared_by(MACHINES[4:], TOPOLOGY, MACHINES)
    assert found is not None
    assert (found.name, found.machines) == ("leaf_switch=sw1", frozenset(MACHINES[4:]))


def test_a_part_of_a_switch_may_be_a_rack() -> None:
    found = shared_by(["m2", "m3"], TOPOLOGY, MACHINES)
    assert found is not None
    assert found.name == "rack=r1"


@pytest.mark.parametrize(
    "members",
    [["m0"], ["m0", "m7"], ["m0", "m2", "m4", "m6"], MACHINES],
    ids=["one", "far apart", "every other", "everybody"],
)
def test_machines_that_share_nothing_of_their_own_are_no_group(members: list[str]) -> None:
    assert shared_by(members, TOPOLOGY, MACHINES) is None


@pytest.mark.parametrize(("machines", "odd", "found"), [(5, 3, False), (3, 2, True)])
def test_most_of_those_behind_a_switch_are_odd_or_it_is_not_the_switch(
    machines: int, odd: int, found: bool
) -> None:
    behind = {f"m{i}": {"leaf_switch": "sw0"} for i in range(machines)}
    topology = {**behind, "m8": {"leaf_switch": "sw1"}, "m9": {"leaf_switch": "sw1"}}
    assert (shared_by(list(behind)[:odd], topology, list(topology)) is not None) == found


def test_a_rank_is_never_shared() -> None:
    topology = {m: {"data_rank": i // 2} for i, m in enumerate(MACHINES)}
    assert shared_by(["m0", "m1"], topology, MACHINES) is None


def test_without_topology_nothing_is_shared() -> None:
    assert shared_by(["m0", "m1"], {}, MACHINES) is None
