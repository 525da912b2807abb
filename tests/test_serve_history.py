"""Scores and metrics of the past: what was stored is what is read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from detect.detector import ScoreFrame
from detect.history import MetricSlice
from replay.view.grid import ScoreGrid
from serve.store.blobs import MetricBlock, decode_metric, decode_scores, encode_metric
from serve.store.history import (
    HistoryStore,
    TooMuchHistoryError,
    store_metrics,
    store_scores,
)
from tests.serve_support import SECOND, START_NS, memory_database


def _frame(
    at: int, machines: tuple[str, ...], values: list[list[float]], phase: str = "steady"
) -> ScoreFrame:
    return ScoreFrame(START_NS + at * SECOND, SECOND, machines, np.array(values, np.float32), phase)


def _metrics(at: int, machines: tuple[str, ...], values: np.ndarray) -> MetricSlice:
    times = START_NS + (at + np.arange(values.shape[1], dtype=np.int64)) * SECOND
    return MetricSlice(("power",), machines, times, values[None].astype(np.float32))


@given(arrays(np.float32, (3, 5), elements=st.floats(-(2.0**90), 2.0**90, width=32)))
@settings(max_examples=60, deadline=None)
def test_a_metric_comes_back_within_its_precision(values: np.ndarray) -> None:
    block = MetricBlock(START_NS, SECOND, ("a", "b", "c"), values)
    back = decode_metric(encode_metric(block))
    assert (back.start_ns, back.tick_ns, back.machines) == (START_NS, SECOND, ("a", "b", "c"))
    np.testing.assert_allclose(back.values, values, rtol=1 / 4096, atol=1e-37)


def test_missing_values_stay_missing() -> None:
    values = np.array([[np.nan, 1.0, np.nan]], np.float32)
    back = decode_metric(encode_metric(MetricBlock(0, SECOND, ("a",), values)))
    assert np.isnan(back.values).tolist() == [[True, False, True]]


def test_a_metric_as_stored_before_is_still_read() -> None:
    values = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4], pa.float32()), 2)
    table = pa.table({"machine": pa.array(["a", "b"]), "values": values})
    table = table.replace_schema_metadata({"start_ns": "5", "tick_ns": "7"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    back = decode_metric(sink.getvalue().to_pybytes())
    assert (back.start_ns, back.tick_ns, back.machines) == (5, 7, ("a", "b"))
    assert back.values.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("decode", [decode_metric, decode_scores])
def test_damaged_bytes_are_refused(decode: object) -> None:
    with pytest.raises(ValueError, match="damaged"):
        decode(b"nonsense")  # type: ignore[operator]


def test_stored_frames_are_read_as_one_grid() -> None:
    database = memory_database()
    with database.write() as session:
        store_scores(session, "j", [_frame(0, ("a", "b"), [[0.1, 0.2], [0.3, 0.4]])], now_ns=1)
        store_scores(session, "j", [_frame(2, ("b", "c"), [[0.5], [1.5]], "checkpoint")], now_ns=1)
    grid = HistoryStore(database).scores("j", START_NS, START_NS + 60 * SECOND)
    assert grid is not None
    assert (grid.start_ns, grid.step_ns, grid.machines) == (START_NS, SECOND, ("a", "b", "c"))
    expected = [[0.1, 0.2, np.nan], [0.3, 0.4, 0.5], [np.nan, np.nan, 1.5]]
    np.testing.assert_allclose(grid.scores, expected, atol=0.006)
    assert grid.phases == ((START_NS, "steady"), (START_NS + 2 * SECOND, "checkpoint"))


def test_a_range_cuts_both_ends() -> None:
    database = memory_database()
    with database.write() as session:
        store_scores(session, "j", [_frame(0, ("a",), [[k / 10 for k in range(10)]])], now_ns=1)
    grid = HistoryStore(database).scores("j", START_NS + 3 * SECOND, START_NS + 6 * SECOND)
    assert grid is not None
    np.testing.assert_allclose(grid.scores, [[0.3, 0.4, 0.5]], atol=0.006)
    assert HistoryStore(database).scores("j", START_NS + 20 * SECOND, 1 << 62) is None


def test_a_gap_between_frames_stays_a_gap() -> None:
    database = memory_database()
    frames = [_frame(0, ("a",), [[0.1]]), _frame(3, ("a",), [[0.2]])]
    with database.write() as session:
        store_scores(session, "j", frames, now_ns=1)
    grid = HistoryStore(database).scores("j", 0, 1 << 62)
    assert grid is not None
    np.testing.assert_allclose(grid.scores, [[0.1, np.nan, np.nan, 0.2]], atol=0.006)


def test_what_was_stored_twice_counts_as_stored_last() -> None:
    database = memory_database()
    with database.write() as session:
        store_scores(session, "j", [_frame(0, ("a",), [[0.1, 0.1]])], now_ns=1)
        store_scores(session, "j", [_frame(1, ("a",), [[0.9]])], now_ns=2)
    grid = HistoryStore(database).scores("j", 0, 1 << 62)
    assert grid is not None
    np.testing.assert_allclose(grid.scores, [[0.1, 0.9]], atol=0.006)


def test_live_ticks_are_joined_to_the_stored_ones() -> None:
    class Live:
        def live_scores(self, job: str, start_ns: int, end_ns: int) -> ScoreGrid | None:
            assert (job, start_ns <= START_NS, end_ns > START_NS) == ("j", True, True)
            return ScoreGrid("j", START_NS + SECOND, SECOND, ("a",), np.ones((1, 1), np.float32))

        def live_metric(self, *_: object) -> None:
            return None

    database = memory_database()
    with database.write() as session:
        store_scores(session, "j", [_frame(0, ("a",), [[0.5]])], now_ns=1)
    history = HistoryStore(database, Live())
    grid = history.scores("j", 0, 1 << 62)
    assert grid is not None
    np.testing.assert_allclose(grid.scores, [[0.5, 1.0]], atol=0.006)
    assert history.span("j") == (START_NS, START_NS + 2 * SECOND)


def test_too_wide_a_range_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.store.history.MAX_CELLS", 100)
    database = memory_database()
    with database.write() as session:
        store_scores(session, "j", [_frame(0, ("a",), [[0.5]])], now_ns=1)
        store_scores(session, "j", [_frame(1000, ("a",), [[0.5]])], now_ns=1)
    with pytest.raises(TooMuchHistoryError):
        HistoryStore(database).scores("j", 0, 1 << 62)


def test_the_band_is_that_of_the_other_machines() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(100, 5, (12, 30)).astype(np.float32)
    values[4, 10:] = 20
    values[rng.random(values.shape) < 0.2] = np.nan
    values[:, 7] = np.nan
    machines = tuple(f"m{k:02d}" for k in range(12))
    database = memory_database()
    with database.write() as session:
        store_metrics(session, "j", _metrics(0, machines, values), SECOND, now_ns=1)
    band = HistoryStore(database).band("j", "m04", "power", 0, 1 << 62)
    assert band is not None
    peers = np.delete(values, 4, axis=0)
    seen = ~np.isnan(peers).all(axis=0)
    for got, q in ((band.low, 0.1), (band.median, 0.5), (band.high, 0.9)):
        expected = np.nanquantile(peers[:, seen], q, axis=0)
        np.testing.assert_allclose(got[seen], expected, rtol=1e-3)
        assert np.isnan(got[~seen]).all()
    np.testing.assert_allclose(band.value, values[4], rtol=1e-3)
    assert band.peers.tolist() == np.count_nonzero(~np.isnan(peers), axis=0).tolist()


def test_a_lone_machine_has_no_peers() -> None:
    database = memory_database()
    with database.write() as session:
        store_metrics(session, "j", _metrics(0, ("a",), np.ones((1, 3))), SECOND, now_ns=1)
    band = HistoryStore(database).band("j", "a", "power", 0, 1 << 62)
    assert band is not None
    assert band.peers.tolist() == [0, 0, 0]
    assert np.isnan(band.median).all()


def test_unknown_job_machine_or_metric_has_no_band() -> None:
    database = memory_database()
    with database.write() as session:
        store_metrics(session, "j", _metrics(0, ("a",), np.ones((1, 3))), SECOND, now_ns=1)
    history = HistoryStore(database)
    for job, machine, metric in (("x", "a", "power"), ("j", "x", "power"), ("j", "a", "x")):
        assert history.band(job, machine, metric, 0, 1 << 62) is None
    assert history.metrics("j") == ["power"]
