"""Evidence is counted in seconds; no sample, family or phase gives more than its share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from detect.accumulate import CAP, MOST_PATIENCE, EvidenceSums
from detect.residuals import FAST, LEVEL, SHAPE, SLOW, TESTS, Residuals
from models.evidence_model import MetricScale

Array = NDArray[np.float64]
METRICS = ("other", "power_a", "power_b")
ROWS = 5
HOLD = MetricScale().hold_fast


def fresh(low_counts: float = 1.0) -> EvidenceSums:
    """Sums over `METRICS`, the last two of one family, and `ROWS` rows."""
    sums = EvidenceSums(lambda _: MetricScale(low_counts=low_counts), lambda m: m.split("_")[0])
    sums.reindex(METRICS, tuple(f"r{i}" for i in range(ROWS)))
    return sums


def residuals(z: Array | float = 0.0, *, valid: bool = True, established: bool = True) -> Residuals:
    shape = (len(METRICS), ROWS)
    full: Array = np.broadcast_to(np.asarray(z, np.float64), (TESTS, *shape)).copy()
    return Residuals(full, np.full(shape, valid), np.full(shape, established), np.zeros(shape[0]))


def one(metric: int, row: int, z: float, test: int = FAST) -> Array:
    """``[test, M, R]``: one cell stands apart."""
    full = np.zeros((TESTS, len(METRICS), ROWS))
    full[test, metric, row] = z
    return full


def add(sums: EvidenceSums, r: Residuals, seconds: int = 1, trust: float = 1.0) -> EvidenceSums:
    for _ in range(seconds):
        sums.step(r, 1.0, np.full(ROWS, trust), idle=False)
    return sums


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    z=st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20),
    tick=st.sampled_from([0.1, 1.0, 10.0, 60.0]),
    trust=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_no_sample_adds_more_than_its_own_duration(
    z: list[float], tick: float, trust: float
) -> None:
    sums = fresh()
    for value in z:
        before = sums.state["total"].copy()
        sums.step(residuals(value), tick, np.full(ROWS, trust), idle=False)
        # Taking back what spoke for the other direction is no growth.
        grown = np.abs(sums.state["total"]) - np.abs(before)
        assert grown.max() <= tick * trust + 1e-9
        assert grown.max() <= 10.0


def test_a_steady_difference_adds_a_second_a_second_and_remembers_its_direction() -> None:
    sums = add(fresh(), residuals(one(0, 2, -50.0)), 20)
    assert sums.state["total"][FAST, 0, 2] == pytest.approx(-20.0)
    assert not sums.is_high(0, 2)
    assert sums.test_of(0, 2) == FAST
    assert np.count_nonzero(sums.state["total"]) == 1


def test_a_difference_that_healthy_rows_show_takes_evidence_back() -> None:
    sums = add(fresh(), residuals(one(0, 2, 50.0)), 20)
    add(sums, residuals(1.0), 40)
    assert (sums.state["total"] == 0).all()


def test_missing_values_neither_add_nor_take_back() -> None:
    sums = add(fresh(), residuals(one(0, 2, 50.0)), 20)
    before = sums.state["total"].copy()
    for z in (0.0, 50.0, -50.0):
        add(sums, residuals(z, valid=False), 30)
    assert np.array_equal(sums.state["total"], before)


def test_the_other_direction_takes_back_before_it_adds() -> None:
    sums = add(fresh(), residuals(one(0, 2, 50.0)), 10)
    add(sums, residuals(one(0, 2, -50.0)), 15)
    assert sums.state["total"][FAST, 0, 2] == pytest.approx(-5.0)


def test_without_a_past_only_the_level_counts() -> None:
    sums = add(fresh(), residuals(50.0, established=False), 5)
    assert (sums.state["total"][[FAST, SLOW, SHAPE]] == 0).all()
    assert (sums.state["total"][LEVEL] == 5.0).all()


def test_evidence_below_the_peers_counts_as_much_more_as_the_metric_says() -> None:
    low = add(fresh(low_counts=1.5), residuals(-50.0), 4).state["total"]
    high = add(fresh(low_counts=1.5), residuals(50.0), 4).state["total"]
    assert (low == -6.0).all()
    assert (high == 4.0).all()


def test_evidence_is_bounded_so_that_it_can_be_taken_back() -> None:
    sums = add(fresh(), residuals(50.0), 1500)
    assert np.abs(sums.state["total"][FAST]).max() <= CAP * HOLD


def test_an_excursion_that_ended_makes_patient_with_that_row() -> None:
    sums = add(fresh(), residuals(one(0, 2, 50.0)), int(2 * HOLD))
    add(sums, residuals(), int(4 * HOLD))
    needed = sums.state["needed"][FAST]
    assert needed[0, 2] > 2 * HOLD
    needed[0, 2] = HOLD
    assert (needed == HOLD).all()


def test_excursions_of_several_rows_make_patient_with_all() -> None:
    odd = one(0, 2, 50.0) + one(0, 3, 50.0)
    sums = add(fresh(), residuals(odd), int(2 * HOLD))
    add(sums, residuals(), int(4 * HOLD))
    assert (sums.state["needed"][FAST, 0] > HOLD).all()
    assert (sums.state["needed"][FAST, 1] == HOLD).all()


def test_patience_has_an_end() -> None:
    sums = fresh()
    for _ in range(4):
        add(sums, residuals(one(0, 2, 50.0)), int(8 * HOLD))
        add(sums, residuals(), int(20 * HOLD))
    assert sums.state["needed"][FAST].max() == MOST_PATIENCE * HOLD


def test_what_goes_on_never_raises_its_own_bar() -> None:
    sums = add(fresh(), residuals(one(0, 2, 50.0)), int(3 * HOLD))
    assert (sums.state["needed"][FAST] == HOLD).all()


def test_patience_is_forgotten() -> None:
    sums = add(fresh(), residuals(one(0, 2, 50.0)), int(2 * HOLD))
    add(sums, residuals(), int(4 * HOLD))
    before = sums.state["needed"][FAST, 0, 2]
    add(sums, residuals(), 3600)
    assert sums.state["needed"][FAST, 0, 2] == pytest.approx(max(HOLD, before / 2), rel=0.05)


def test_metrics_of_one_family_are_one_witness_and_families_add() -> None:
    sums = fresh()
    same, apart = np.zeros((3, ROWS)), np.zeros((3, ROWS))
    same[1:, 0] = (0.6, 0.9)
    apart[:2, 0] = (0.6, 0.9)
    assert sums.fused(same)[0] == pytest.approx(0.9)
    assert sums.fused(apart)[0] == pytest.approx(1.5)


def test_without_metrics_every_row_scores_nothing() -> None:
    sums = fresh()
    sums.reindex((), ("a", "b"))
    assert sums.fused(np.zeros((0, 2))).tolist() == [0.0, 0.0]


def test_a_row_keeps_its_evidence_when_others_come_and_go() -> None:
    sums = add(fresh(), residuals(one(0, 2, -50.0)), 9)
    sums.reindex(("new", "other"), ("x", "r2"))
    assert sums.state["total"][FAST].tolist() == [[0.0, 0.0], [0.0, -9.0]]
    assert (sums.state["needed"][FAST] > 0).all()
