"""Distances to the peers: one centre, one's own past, the clocks' slack, missing values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from detect.accumulate import FULL, START
from detect.past import LEVEL_BLOCKS
from detect.residuals import (
    DRIFT,
    FAST,
    LEVEL,
    SHAPE,
    SLOW,
    PeerResiduals,
    Residuals,
)
from detect.snapshot import decode_state, encode_state
from models.evidence_model import MetricScale
from tests.detect_support import noisy

Array = NDArray[np.float64]


def tracker(
    metrics: int, rows: int, tick_seconds: float = 1.0, scale: MetricScale | None = None
) -> PeerResiduals:
    """A fresh tracker of metrics ``m0``.. over rows ``r0``.."""
    made = PeerResiduals(lambda _: scale or MetricScale(), lambda _: 0.0, lambda _: False)
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


def test_what_the_job_did_while_a_row_was_missing_is_no_difference_when_it_is_back() -> None:
    values = noisy(levels([100.0] * 8), 500, 0.005, seed=6)
    values[0, :, 400:440] *= 0.02
    values[0, 7, 395:441] = np.nan
    said = after(tracker(1, 8), values)
    apart = [np.abs(r.z[[FAST, SLOW], 0, 7]).max() for r in said[441:]]
    assert max(apart) < START[SLOW]


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


def wandering(rows: int, ticks: int, size: float, seed: int) -> Array:
    """``[1, rows, ticks]`` around 90 whose noise keeps its value for 15 ticks."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(1.0, size, (1, rows, ticks // 15 + 1))
    return 90.0 * np.repeat(steps, 15, axis=-1)[:, :, :ticks]


@pytest.mark.parametrize("seed", [10, 11])
def test_a_lasting_change_of_a_twentieth_is_found_by_the_drift_test_alone(seed: int) -> None:
    onset, ticks, rows = 1200, 1800, 12
    values = wandering(rows, ticks, 0.04, seed)
    values[0, 4, onset:] *= 0.95
    made, said = tracker(1, rows, scale=MetricScale(floor=0.005)), []
    for k in range(ticks):
        suspect = np.zeros((1, rows), np.bool_)
        suspect[0, 4] = k >= onset
        said.append(made.step(values[:, :, k], suspect).z[:, 0])
    late = np.array(said[onset + 300 :])
    beyond = (np.abs(late) > START[:, None]).mean(axis=0)
    assert beyond[DRIFT, 4] > 0.7
    assert (late[:, DRIFT, 4] < 0).all()
    assert beyond[[FAST, SLOW], 4].max() < 0.25
    assert np.delete(beyond[DRIFT], 4).max() == 0.0


def test_the_drift_test_ignores_a_large_short_burst() -> None:
    values = noisy(levels([90.0] * 8), 700, 0.005, seed=11)
    values[0, 2, 500:545] *= 3.0
    z = np.array([r.z[:, 0, 2] for r in after(tracker(1, 8), values)[500:]])
    assert z[:, FAST].max() > START[FAST]
    assert z[:, SLOW].max() > START[SLOW]
    assert np.abs(z[:, DRIFT]).max() < START[DRIFT]


def test_one_wild_minute_does_not_inflate_the_noise() -> None:
    values = noisy(levels([90.0] * 8), 660, 0.005, seed=12)
    values[:, :, 600:] = noisy(levels([90.0] * 8), 60, 0.2, seed=13)
    made = tracker(1, 8)
    after(made, values[:, :, :600])
    before = {name: made.state[name].copy() for name in ("pool", "own")}
    wild = after(made, values[:, :, 600:])
    assert np.ptp(wild[-1].z[FAST]) > START[FAST]
    for name, noise in before.items():
        assert (made.state[name] <= 1.5 * noise).all()


@settings(max_examples=8, deadline=None, derandomize=True)
@given(at=st.integers(0, 150), factor=st.sampled_from([0.2, 0.5, 2.0, 4.0]))
def test_the_level_test_ignores_one_early_excursion(at: int, factor: float) -> None:
    values = noisy(levels([90.0] * 8), 300, 0.005, seed=14)
    values[0, 5, at : at + 25] *= factor
    said = after(tracker(1, 8), values)
    assert max(float(np.abs(r.z[LEVEL]).max()) for r in said) < START[LEVEL]


def test_the_level_test_speaks_from_eight_blocks_on() -> None:
    values = noisy(levels([90.0] * 9 + [45.0]), 200, 0.005, seed=15)
    z = np.array([r.z[LEVEL, 0, 9] for r in after(tracker(1, 10), values)])
    first = int(np.argmax(z < -START[LEVEL]))
    assert first == 20 * LEVEL_BLOCKS
    assert (z[:first] == 0).all()


@pytest.mark.parametrize(("rows", "alike"), [(5, 2), (12, 3), (20, 5)])
def test_what_several_machines_have_is_a_role(rows: int, alike: int) -> None:
    values = noisy(levels([90.0] * (rows - alike) + [60.0] * alike), 500, 0.005, seed=18)
    assert (np.abs(after(tracker(1, rows), values)[-1].z[LEVEL]) < START[LEVEL]).all()


@pytest.mark.parametrize("apart", [1, 2])
def test_two_of_eighteen_that_always_lay_apart_do_not_widen_what_is_usual(apart: int) -> None:
    values = noisy(levels([90.0] * (18 - apart) + [45.0] * apart), 200, 0.005, seed=19)
    z = after(tracker(1, 18), values)[-1].z[LEVEL, 0]
    assert (z[-apart:] < -FULL[LEVEL]).all()
    assert (np.abs(z[:-apart]) < START[LEVEL]).all()


@pytest.mark.parametrize("gap", [1, 7, 90])
def test_a_gap_does_not_forget_a_lasting_distance(gap: int) -> None:
    values = noisy(levels([90.0] * 9 + [45.0]), 500, 0.005, seed=16)
    # Blocks close every 20 ticks: the last tick of one is among those missing.
    values[0, 9, 399 : 399 + gap] = np.nan
    z = np.array([r.z[LEVEL, 0, 9] for r in after(tracker(1, 10), values)])
    assert (z[399 : 399 + gap] == 0).all()
    assert (z[399 + gap :] < -START[LEVEL]).all()


@pytest.mark.parametrize("at", [3, 130, 333])
def test_a_tracker_restored_from_bytes_goes_on_bit_for_bit(at: int) -> None:
    values = noisy(np.full((2, 6), 90.0), at + 90, 0.01, seed=17)
    values[0, 3, at - 2 :] *= 1.7
    values[1, 1, at // 2 :: 7] = np.nan
    steady, other = (
        tracker(2, 6),
        PeerResiduals(lambda _: MetricScale(), lambda _: 0.0, lambda _: False),
    )
    after(steady, values[:, :, :at])
    stored = encode_state(steady.snapshot())
    other.restore(decode_state(stored))
    assert encode_state(other.snapshot()) == stored
    for one, two in zip(
        after(steady, values[:, :, at:]), after(other, values[:, :, at:]), strict=True
    ):
        assert np.array_equal(one.z, two.z)
    assert encode_state(other.snapshot()) == encode_state(steady.snapshot())


def test_a_violent_moment_is_out_of_step_no_longer_than_a_moderate_one() -> None:
    def seconds_after(factor: float) -> int:
        values = noisy(levels([90.0] * 8), 700, 0.01, seed=16)
        values[0, 5, 600:630] *= factor
        said = after(tracker(1, 8), values)
        assert said[629].z[SHAPE, 0, 5] > START[SHAPE]
        return sum(bool(r.z[SHAPE, 0, 5] > START[SHAPE]) for r in said[630:])

    assert seconds_after(0.01) <= seconds_after(0.5) + 5
