"""From samples to the value of a tick: gaps, counters, GPUs, codes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ingest.align import AlignSettings
from tests.align_support import Row, align, row, table

NAN = math.nan
TICK = AlignSettings(tick_seconds=1.0)


def values(rows: list[Row], metric: str = "a", machine: str = "m") -> list[float]:
    return align([table(rows)], TICK).machine(metric, machine)


def same(got: list[float], wanted: list[float]) -> None:
    np.testing.assert_allclose(got, wanted, rtol=1e-12, equal_nan=True)


def steady(seconds: int, machine: str = "other") -> list[Row]:
    """A machine that keeps every tick alive."""
    return [row(i, machine, a=0.0) for i in range(seconds)]


# -- gaps


def test_a_gap_is_held_for_two_and_a_half_periods_then_missing() -> None:
    rows = [row(i, "m", a=float(i)) for i in range(10)] + [row(20, "m", a=20.0)]
    got = values(rows + steady(25))
    same(got[9:13], [9, 9, 9, NAN])
    same(got[13:20], [NAN] * 7)
    same(got[20:24], [20, 20, 20, NAN])


def test_what_is_held_is_not_fresh() -> None:
    rows = [row(i, "m", a=float(i)) for i in (0, 1, 2, 4)]
    outcome = align([table(rows)], TICK)
    assert outcome.fresh("a", "m") == [True, True, True, False, True]
    same(outcome.machine("a", "m"), [0, 1, 2, 2, 4])


@pytest.mark.parametrize("period", [2, 10, 30])
def test_a_slower_source_is_held_by_its_own_period(period: int) -> None:
    rows = [row(i * period, "m", a=float(i)) for i in range(6)]
    got = values(rows + steady(10 * period))
    assert not np.isnan(got[period : 7 * period]).any()
    assert np.isnan(got[int(7.5 * period) + 1 :]).all()


def test_machines_may_sample_one_metric_at_different_periods() -> None:
    rows = [row(i * 30, "slow", a=1.0) for i in range(10)] + [
        row(i, "m", a=1.0) for i in range(200)
    ]
    outcome = align([table(rows + steady(300))], TICK)
    slow, fast = outcome.machine("a", "slow"), outcome.machine("a", "m")
    assert not np.isnan(slow[30:]).any()
    assert np.isnan(fast[204:]).all()


def test_one_gap_does_not_pass_for_a_slower_source() -> None:
    rows = [row(i, "m", a=1.0) for i in [*range(60), *range(90, 120)]]
    got = values(rows + steady(140))
    assert np.isnan(got[125:]).all()


def test_a_value_is_held_no_longer_than_the_maximum() -> None:
    rows = [row(i * 100, "m", a=1.0) for i in range(6)] + steady(800)
    outcome = align([table(rows)], AlignSettings(tick_seconds=1.0, hold_seconds=20.0))
    got = outcome.machine("a", "m")
    assert np.isnan(got[521:]).all()
    assert not np.isnan(got[500:521]).any()


# -- several samples in a tick


def test_several_samples_in_a_tick_are_averaged() -> None:
    same(values([row(0, "m", a=1.0), row(0.5, "m", a=2.0), row(0.7, "m", a=6.0)]), [3.0])


def test_of_a_sample_given_twice_the_smallest_value_stays() -> None:
    for pair in ((1.0, 2.0), (2.0, 1.0)):
        outcome = align([table([row(0, "m", a=v) for v in pair])], TICK)
        same(outcome.machine("a", "m"), [1.0])
        assert outcome.aligner.counters["duplicate"] == 1


def test_rows_of_one_instant_with_different_columns_are_united() -> None:
    outcome = align([table([row(0, "m", a=1.0), row(0, "m", b=2.0)])], TICK)
    same(outcome.machine("a", "m") + outcome.machine("b", "m"), [1.0, 2.0])
    assert outcome.aligner.counters["duplicate"] == 0


def test_of_a_sticky_code_the_largest_stays_in_a_tick_and_over_gpus() -> None:
    rows = [
        row(0, "m", 0, gpu_xid_error=0.0),
        row(0.5, "m", 0, gpu_xid_error=79.0),
        row(0, "m", 1, gpu_xid_error=13.0),
    ]
    same(values(rows, "gpu_xid_error"), [79.0])


@pytest.mark.parametrize("bad", [math.inf, -math.inf])
def test_infinite_values_are_missing(bad: float) -> None:
    rows = [row(0, "m", a=1.0), row(1, "m", a=bad), row(1.5, "m", a=3.0), row(2, "m", a=bad)]
    same(values(rows), [1.0, 3.0, 3.0])


# -- counters


def test_a_counter_becomes_a_rate_in_the_tick_of_the_later_sample() -> None:
    rows = [row(i * 1.0, "m", c__counter=100.0 * i * i) for i in range(5)]
    same(values(rows + steady(5), "c"), [NAN, 100.0, 300.0, 500.0, 700.0])


def test_a_counter_that_decreases_was_reset() -> None:
    counts = [10.0, 20.0, 30.0, 5.0, 25.0]
    rows = [row(i, "m", c__counter=v) for i, v in enumerate(counts)]
    outcome = align([table(rows)], TICK)
    got = outcome.machine("c", "m")
    same(got, [NAN, 10.0, 10.0, 10.0, 20.0])
    assert outcome.fresh("c", "m")[-2:] == [False, True]
    assert outcome.aligner.counters["counter_reset"] == 1


def test_a_rate_over_a_few_ticks_is_the_mean_over_them() -> None:
    rows = [row(i, "m", c__counter=10.0 * i) for i in (0, 1, 5, 6)]
    same(values(rows + steady(7), "c")[5:], [10.0, 10.0])


def test_a_counter_starts_again_after_a_long_gap() -> None:
    rows = [row(i, "m", c__counter=10.0 * i) for i in (0, 1, 200, 201)]
    got = values(rows + steady(202), "c")
    same(got[1:2] + got[199:], [10.0, NAN, NAN, 10.0])


def test_several_counts_in_a_tick_weigh_by_their_time() -> None:
    counts = {0.0: 0.0, 1.1: 11.0, 1.2: 21.0, 1.9: 28.0}
    rows = [row(at, "m", c__counter=v) for at, v in counts.items()]
    same(values(rows, "c"), [NAN, 28.0 / 1.9])


def test_a_saturating_counter_at_its_maximum_has_no_rate() -> None:
    name = "ib_transmit_wait_per_second:counter"
    counts = [2.0**32 - 30, 2.0**32 - 20, 2.0**32 - 1, 2.0**32 - 1]
    rows = [{**row(i, "m"), name: v} for i, v in enumerate(counts)] + steady(4)
    outcome = align([table(rows)], TICK)
    got = outcome.machine("ib_transmit_wait_per_second", "m")
    same(got, [NAN, 10.0, 10.0, 10.0])
    assert outcome.fresh("ib_transmit_wait_per_second", "m")[-2:] == [False, False]


def test_other_counters_pass_four_billion_as_any_number() -> None:
    counts = [2.0**32 - 11, 2.0**32 - 1, 2.0**32 + 9]
    rows = [row(i, "m", c__counter=v) for i, v in enumerate(counts)]
    same(values(rows + steady(3), "c"), [NAN, 10.0, 10.0])


def test_a_rate_beyond_the_physical_limit_is_missing() -> None:
    name = "cpu_usage_ratio:counter"
    rows = [{**row(i, "m"), name: v} for i, v in enumerate([0.0, 0.5, 900.0, 900.4])]
    got = values(rows + steady(4), "cpu_usage_ratio")
    same(got, [NAN, 0.5, 0.5, 0.4])


def test_counters_of_different_gpus_do_not_mix() -> None:
    rows = [
        row(i, "m", g, c__counter=1000.0 * g + 10 * (g + 1) * i) for i in range(3) for g in (0, 1)
    ]
    panel = align([table(rows)], TICK).blocks[-1].gpu_panel
    assert panel is not None
    assert panel.values[0, :, -1].tolist() == [10.0, 20.0]


def test_a_gauge_wins_over_the_rate_of_a_counter_of_the_same_metric() -> None:
    rows = [row(i, "m", c=5.0, c__counter=10.0 * i) for i in range(3)]
    same(values(rows, "c"), [5.0, 5.0, 5.0])


# -- GPUs


def test_the_machine_has_the_mean_of_its_gpus() -> None:
    rows = [row(i, "m", g, a=float(g)) for i in range(3) for g in range(4)]
    outcome = align([table(rows)], TICK)
    same(outcome.machine("a", "m"), [1.5] * 3)
    panel = outcome.blocks[0].gpu_panel
    assert panel is not None
    assert panel.gpu.tolist() == [0, 1, 2, 3]
    assert panel.machine.tolist() == [0, 0, 0, 0]
    assert panel.values[0, :, 0].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_missing_gpu_does_not_make_the_machine_missing() -> None:
    rows = [row(i, "m", g, a=float(g)) for i in range(20) for g in (0, 1) if g == 0 or i < 5]
    same(values(rows)[-1:], [0.0])


def test_a_value_of_the_machine_itself_wins_over_its_gpus() -> None:
    rows = [row(0, "m", a=9.0), row(0, "m", 0, a=1.0), row(0, "n", 0, a=1.0)]
    outcome = align([table(rows)], TICK)
    same(outcome.machine("a", "m") + outcome.machine("a", "n"), [9.0, 1.0])


def test_machines_without_gpu_rows_have_no_gpu_metrics() -> None:
    rows = [row(0, "m", b=9.0), row(0, "n", 0, a=1.0), row(0, "n", 1, a=2.0)]
    outcome = align([table(rows)], TICK)
    same(outcome.machine("a", "m") + outcome.machine("a", "n"), [NAN, 1.5])
    assert align([table(rows[:1])], TICK).blocks[0].gpu_panel is None


def test_metrics_and_machines_are_sorted_and_arrays_float64() -> None:
    rows = [row(0, m, g, b=1.0, a=2.0) for m in ("z", "a", "k") for g in (1, 0)]
    block = align([table(rows)], TICK).blocks[0]
    assert block.machines == ("a", "k", "z")
    assert block.machine_panel.metrics == ("a", "b")
    assert block.machine_panel.values.dtype == np.float64
    assert block.machine_panel.values.shape == (2, 3, 1)
    assert block.gpu_panel is not None
    assert block.gpu_panel.gpu.tolist() == [0, 1, 0, 1, 0, 1]
