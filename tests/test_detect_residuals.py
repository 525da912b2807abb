"""Distances to the peers: one centre, one's own past, the clocks' slack, missing values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from detect.accumulate import START
from detect.residuals import FAST, LEVEL, SHAPE, SLOW, PeerResiduals, Residuals
from models.evidence_model import MetricScale
from tests.detect_support import noisy

Array = NDArray[np.float64]


def tracker(metrics: int, rows: int, tick_seconds: float = 1.0) -> PeerResiduals:
    """A fresh tracker of metrics ``m0``.. over rows ``r0``.."""
    made = PeerResiduals(lambda _: MetricScale(), lambda _: 0.0)
    made.reindex(
        tuple(f"m{i}" for i in range(metrics)), tuple(f"r{i}" for i in range(rows)), tick_seconds
    )
    return made


def after(made: PeerResiduals, values: Array) -> list[Residuals]:
    """What it says at each tick of ``[M, R, T]``."""
    nobody = np.zeros(values.shape[:2], np.bool_)
    return [made.step(values[:, :, k], nobody) for k in range(values.shape[2])]


def levels(rows: Sequence[float]) -> Array:
    return np.array([rows])


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    rows=st.integers(3, 20), odd=st.integers(0, 19), factor=st.sampled_from([0.3, 0.7, 1.4, 5.0])
)
def test_one_odd_row_of_any_number_stands_first(rows: int, odd: int, factor: float) -> None:
    odd %= rows
    values = noisy(levels([100.0] * rows), 150, 0.005, seed=rows)
    values[0, odd, 130:] *= factor
    last = after(tracker(1, rows), values)[-1]
    assert int(np.argmax(np.abs(last.z[FAST, 0]))) == odd
    assert (last.z[FAST, 0, odd] > 0) == (factor > 1)
    assert abs(last.z[FAST, 0, odd]) > START[FAST]


def test_a_fleet_of_two_kinds_has_one_centre() -> None:
    values = noisy(levels([100.0] * 5 + [300.0] * 5), 400, 0.005, seed=1)
    said = after(tracker(1, 10), values)
    worst = max(float(np.abs(r.z[[FAST, SLOW], 0]).max()) for r in said[100:])
    assert worst < START[FAST]


def test_a_change_within_one_of_two_kinds_is_seen() -> None:
    values = noisy(levels([100.0] * 5 + [300.0] * 5), 460, 0.005, seed=1)
    values[0, 7, 440:] *= 0.5
    assert int(np.argmax(np.abs(after(tracker(1, 10), values)[-1].z[FAST, 0]))) == 7


def test_clocks_that_differ_by_seconds_do_not_look_odd_at_every_change() -> None:
    ticks = np.arange(600)
    offsets = (0, 0, 1, 2, 3, 4)
    values = np.array([[np.where((ticks - o) // 30 % 2, 20.0, 100.0) for o in offsets]])
    values *= np.random.default_rng(3).normal(1.0, 0.01, values.shape)
    said = after(tracker(1, len(offsets)), values)
    odd = np.mean([np.abs(r.z[FAST, 0]) > START[FAST] for r in said[300:]])
    assert odd < 0.02


def test_a_row_that_always_lay_apart_is_seen_by_the_level_test_only() -> None:
    values = noisy(levels([100.0] * 9 + [50.0]), 600, 0.005, seed=2)
    last = after(tracker(1, 10), values)[-1]
    assert last.z[LEVEL, 0, 9] < -START[LEVEL]
    assert abs(last.z[FAST, 0, 9]) < START[FAST]


def test_a_row_out_of_step_with_the_same_mean_is_seen_by_its_shape() -> None:
    ticks = np.arange(500)
    values = np.tile(100.0 + 20.0 * np.sin(ticks / 2.0), (1, 8, 1))
    values *= np.random.default_rng(4).normal(1.0, 0.01, values.shape)
    values[0, 2, 400:] = 100.0 - 20.0 * np.sin(ticks[400:] / 2.0)
    z = after(tracker(1, 8), values)[440].z[SHAPE, 0]
    assert int(np.argmax(z)) == 2
    assert z[2] > START[SHAPE]
    assert (z >= 0).all()


def test_nothing_is_said_of_missing_values_nor_of_fewer_than_three_rows() -> None:
    values = noisy(np.full((3, 6), 100.0), 200, 0.01, seed=5)
    values[0, 3, 100:] = np.nan
    values[1] = np.nan
    values[2, 2:] = np.nan
    said = after(tracker(3, 6), values)
    for r in said:
        assert np.isfinite(r.z).all()
        assert (r.z[:, ~r.valid] == 0).all()
    assert said[-1].valid.tolist() == [[True] * 3 + [False] + [True] * 2, [False] * 6, [False] * 6]
    assert np.isnan(said[-1].centre[1])


def test_a_row_that_comes_back_is_compared_with_its_own_past() -> None:
    values = noisy(levels([100.0] * 7 + [150.0]), 460, 0.005, seed=6)
    values[0, 7, 400:440] = np.nan
    said = after(tracker(1, 8), values)
    assert max(abs(r.z[FAST, 0, 7]) for r in said[440:]) < START[FAST]


def test_a_larger_reference_re_expresses_what_was_learned_without_a_jump() -> None:
    growth = np.exp(np.linspace(0.0, np.log(32.0), 400))
    values = noisy(levels([100.0] * 7 + [140.0]), 700, 0.002, seed=7)
    values[0, :, 300:] *= growth
    made = tracker(1, 8)
    nobody = np.zeros((1, 8), np.bool_)
    moves, before = 0, None
    for k in range(700):
        reference = float(made.state["ref"][0])
        known = np.sinh(made.state["y"][FAST, 0]) * reference
        z = made.step(values[:, :, k], nobody).z[FAST, 0]
        if k > 300 and made.state["ref"][0] != reference:
            moves += 1
            assert before is not None
            assert (np.abs(z - before) <= 0.5 + 0.25 * np.abs(before)).all()
            now = np.sinh(made.state["y"][FAST, 0]) * made.state["ref"][0]
            assert now == pytest.approx(known, rel=0.2)
        before = z
    assert moves >= 3


def test_what_was_flagged_is_not_learned_from() -> None:
    values = noisy(levels([100.0] * 8), 900, 0.005, seed=8)
    values[0, 5, 320:] *= 0.8
    learns, told = tracker(1, 8), tracker(1, 8)
    suspect = np.zeros((1, 8), np.bool_)
    for k in range(900):
        suspect[0, 5] = k >= 325
        learnt = learns.step(values[:, :, k], np.zeros_like(suspect))
        kept = told.step(values[:, :, k], suspect)
    assert kept.z[SLOW, 0, 5] < learnt.z[SLOW, 0, 5] < 0
    assert told.state["base"][0, 5] > learns.state["base"][0, 5] + 0.01


@pytest.mark.parametrize("tick_seconds", [0.1, 1.0, 15.0, 60.0])
def test_any_cadence_is_taken(tick_seconds: float) -> None:
    values = noisy(levels([100.0] * 6), 60, 0.01, seed=9)
    values[0, 1, 50:] *= 0.2
    last = after(tracker(1, 6, tick_seconds), values)[-1]
    assert int(np.argmin(last.z[FAST, 0])) == 1
