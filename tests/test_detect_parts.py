"""Small shared parts of the detectors: gaps, peers, open alerts, frames."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from detect.alert_book import AlertBook, Finding
from detect.averages import median, median_of_blocks
from detect.detector import ScoreFrame
from detect.frames import FrameQueue
from detect.gapfill import HoldLast, fill_nearest
from detect.peers import compare_with_peers, largest_differences, masked_median
from detect.snapshot import decode_state, encode_state

NAN = float("nan")


def series(*values: float) -> NDArray[np.float64]:
    """``[T, 1, 1]``."""
    return np.array(values)[:, None, None]


def held(*values: float, limit: int = 2) -> list[float]:
    """One series with gaps held."""
    hold = HoldLast()
    hold.reindex(("m",), ("a",))
    return [float(v) for v in hold.fill(series(*values), limit)[:, 0, 0]]


def test_a_gap_is_held_up_to_its_limit() -> None:
    assert held(NAN, 1.0, NAN, NAN, NAN, 5.0) == pytest.approx(
        [NAN, 1.0, 1.0, 1.0, NAN, 5.0], nan_ok=True
    )


def test_an_infinity_is_a_gap() -> None:
    assert held(1.0, float("inf"), float("-inf")) == [1.0, 1.0, 1.0]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([1.0, 2.0, NAN]), max_size=30), st.integers(0, 30))
def test_holding_goes_on_over_blocks(values: list[float], at: int) -> None:
    hold, whole = HoldLast(), HoldLast()
    for each in (hold, whole):
        each.reindex(("m",), ("a",))
    parts = [hold.fill(series(*values[:at]), 3), hold.fill(series(*values[at:]), 3)]
    assert np.array_equal(np.concatenate(parts), whole.fill(series(*values), 3), equal_nan=True)


def test_a_newcomer_has_nothing_to_hold() -> None:
    hold = HoldLast()
    hold.reindex(("m",), ("a",))
    hold.fill(series(4.0), 5)
    hold.reindex(("m",), ("a", "b"))
    filled = hold.fill(np.full((1, 1, 2), NAN), 5)
    assert filled[0, 0, 0] == 4.0
    assert np.isnan(filled[0, 0, 1])


def test_a_gap_takes_the_nearest_sample_and_the_earlier_of_two() -> None:
    filled = fill_nearest(series(NAN, 1.0, NAN, NAN, NAN, 5.0, NAN))
    assert filled[:, 0, 0].tolist() == [1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0]


def test_a_series_without_any_sample_stays_missing() -> None:
    assert np.isnan(fill_nearest(np.full((4, 2, 3), NAN))).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=1, max_dims=3, max_side=7),
        elements=st.sampled_from([NAN, -1.5, 0.0, 2.0, 7.0]),
    )
)
def test_the_masked_median_is_numpy_s_without_its_warning(values: NDArray[np.float64]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.nanmedian(values, axis=-1)
    np.testing.assert_allclose(masked_median(values), expected)


@pytest.mark.parametrize("rows", [0, 1, 7, 1024, 1025, 2048, 2049, 2500])
@pytest.mark.parametrize("gaps", ["none", "alike", "apart", "whole metrics"])
def test_a_median_knows_about_gaps_however_it_is_found(rows: int, gaps: str) -> None:
    rng = np.random.default_rng(rows)
    values = rng.normal(size=(2, 5, rows)).astype(np.float32)
    missing = np.zeros((5, rows), np.bool_)
    if gaps == "alike":
        missing[:, : rows // 3] = True
    elif gaps == "apart":
        missing = rng.random((5, rows)) < 0.2
    elif gaps == "whole metrics":
        missing[1:3] = True
    values[:, missing] = NAN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # all missing
        expected = np.nanmedian(values, axis=-1)
    found = median(values, np.count_nonzero(~missing, axis=1))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("blocks", range(17))
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_a_median_of_blocks_is_that_of_every_cell(blocks: int, share: float) -> None:
    rng = np.random.default_rng(blocks)
    values = rng.normal(size=(blocks, 3, 40)).astype(np.float32)
    values[rng.random(values.shape) < share] = NAN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # all missing
        expected = np.nanmedian(values, axis=0)
    found, known = median_of_blocks(values)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(known, np.isfinite(values).sum(axis=0))


def test_peers_are_all_others_that_have_a_value() -> None:
    values = np.array([5.0, NAN, 1.0, 2.0, 3.0])
    row = compare_with_peers("m", "W", values, 0, since_ns=7, share=0.5)
    assert (row.value, row.peer_median, row.direction) == (5.0, 2.0, "high")
    assert (row.peer_low, row.peer_high) == pytest.approx((1.2, 2.8))


def test_a_missing_value_is_missing_and_not_low() -> None:
    row = compare_with_peers("m", "W", np.array([NAN, 1.0, 2.0]), 0, since_ns=0, share=1.0)
    assert (row.value, row.direction) == (None, "missing")


def test_without_peers_there_is_nothing_to_compare_with() -> None:
    row = compare_with_peers("m", "W", np.array([4.0]), 0, since_ns=0, share=1.0)
    assert (row.value, row.peer_low, row.peer_median, row.peer_high) == (4.0, None, None, None)


def test_the_largest_differences_come_first_and_share_out_one() -> None:
    values = np.array([[1.0, 1.1, 0.9, 1.0], [9.0, 1.1, 0.9, 1.0], [1.3, 1.1, 0.9, 1.0]])
    rows = largest_differences(("a", "b", "c"), ("", "", ""), values, 0, since_ns=0)
    assert [r.metric for r in rows] == ["b", "c"]
    assert sum(r.share for r in rows) == pytest.approx(1.0)


def finding(machine: str, at: int) -> Finding:
    row = compare_with_peers("m", "W", np.array([9.0, 1.0, 1.0]), 0, since_ns=at - 5, share=1.0)
    return Finding(machine, at - 5, at, (row,))


def test_a_machine_has_one_alert_until_it_clears() -> None:
    book = AlertBook("job", "ratio")
    first = book.open(0, finding("a", 100))
    assert first is not None
    assert book.open(0, finding("a", 110)) is None
    assert [c.kind for c in book.clear(200, 109)] == []
    (gone,) = book.clear(210, 110)
    assert (gone.kind, gone.alert.id, gone.alert.status) == ("resolved", first.alert.id, "resolved")
    again = book.open(0, finding("a", 300))
    assert again is not None
    assert again.alert.id != first.alert.id


def test_an_alert_of_a_machine_that_left_says_so() -> None:
    book = AlertBook("job", "ratio")
    book.open(0, finding("a", 100))
    book.open(0, finding("b", 100))
    (gone,) = book.keep_only(("b", "c"), 120)
    assert gone.alert.machine == "a"
    assert "left" in gone.alert.note
    assert book.machines == ("b",)


def test_open_alerts_survive_a_round_trip_through_bytes() -> None:
    book, other = AlertBook("job", "ratio"), AlertBook("job", "ratio")
    book.open(3, finding("b", 100))
    book.open(3, finding("a", 101))
    other.restore(decode_state(encode_state(book.snapshot())))
    assert other.close(500) == book.close(500)


def frame(at: int, cells: int) -> ScoreFrame:
    return ScoreFrame(at, 1, ("a",), np.zeros((1, cells), np.float32), "unknown")


def test_frames_beyond_the_bound_are_dropped_oldest_first() -> None:
    queue = FrameQueue(limit_cells=10)
    for at in range(5):
        queue.add(frame(at, 4))
    assert [f.start_ns for f in queue.take()] == [3, 4]
    assert queue.take() == []


def test_the_number_of_frames_is_bounded_too() -> None:
    queue = FrameQueue(limit_frames=3)
    for at in range(9):
        queue.add(frame(at, 1))
    assert [f.start_ns for f in queue.take()] == [6, 7, 8]


def test_a_single_frame_beyond_the_bound_is_kept() -> None:
    queue = FrameQueue(limit_cells=10)
    queue.add(frame(0, 50))
    assert len(queue.take()) == 1
