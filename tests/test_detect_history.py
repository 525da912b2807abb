"""History keeps the newest ticks within its bound, however they came."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from detect.detector import ScoreFrame
from detect.history import History
from ingest.ticks import TickBlock
from tests.ticks_support import SECOND, START_NS, block_of, cut, healthy_values

MACHINES = 4
FOREVER = 1 << 62


def frame(block: TickBlock, phase: str = "running") -> ScoreFrame:
    """A score frame that says, per tick, which tick it is."""
    first = (block.start_ns - START_NS) // SECOND
    ticks = np.arange(first, first + block.ticks, dtype=np.float32)
    scores: NDArray[np.float32] = np.tile(ticks, (len(block.machines), 1))
    return ScoreFrame(block.start_ns, block.tick_ns, block.machines, scores, phase)


def kept(history: History, blocks: list[TickBlock]) -> History:
    for block in blocks:
        history.add(block, [frame(block)])
    return history


@settings(max_examples=30, deadline=None, derandomize=True)
@given(pieces=st.lists(st.sampled_from([1, 1, 1, 2, 7, 40, 100]), max_size=60))
def test_how_ticks_come_changes_nothing_of_what_is_read(pieces: list[int]) -> None:
    block = block_of(healthy_values(MACHINES, 300))
    whole = kept(History(1 << 30), [block])
    parts = kept(History(1 << 30), cut(block, pieces))
    start, end = START_NS + 50 * SECOND, START_NS + 170 * SECOND
    for a, b in ((start, end), (0, FOREVER), (end, end + SECOND)):
        one, other = whole.metrics(a, b), parts.metrics(a, b)
        assert np.array_equal(one.times_ns, other.times_ns)
        assert np.array_equal(one.values, other.values)
        assert np.array_equal(whole.scores(a, b).scores, parts.scores(a, b).scores)
        assert whole.scores(a, b).phases == parts.scores(a, b).phases
    assert whole.metrics(start, end).values.shape == (3, MACHINES, 120)


def test_the_newest_ticks_stay_within_the_bound() -> None:
    block = block_of(healthy_values(MACHINES, 2000))
    limit = 4 * MACHINES * (3 + 1) * 500
    history = kept(History(limit), cut(block, [1] * 2000))
    values, scores = history.metrics(0, FOREVER), history.scores(0, FOREVER)
    assert values.values.nbytes + scores.scores.nbytes <= limit
    assert values.times_ns[-1] == scores.times_ns[-1] == START_NS + 1999 * SECOND
    assert 400 <= values.times_ns.size <= 500
    assert set(values.times_ns.tolist()) <= set(scores.times_ns.tolist())
    assert np.array_equal(scores.scores[0], np.arange(2000 - scores.times_ns.size, 2000))


def test_a_block_larger_than_the_bound_is_still_kept() -> None:
    history = kept(History(10), [block_of(healthy_values(MACHINES, 5))])
    assert history.metrics(0, FOREVER).times_ns.size == 5


def test_what_ended_by_a_time_is_forgotten() -> None:
    history = kept(History(1 << 30), cut(block_of(healthy_values(MACHINES, 300)), [1] * 100))
    history.forget(START_NS + 64 * SECOND)
    assert history.metrics(0, FOREVER).times_ns[0] == START_NS + 64 * SECOND
    assert history.scores(0, FOREVER).times_ns[0] == START_NS + 64 * SECOND
    history.forget(FOREVER)
    assert not history.metrics(0, FOREVER).times_ns.size
    assert not history.scores(0, FOREVER).times_ns.size


def test_history_holds_on_to_no_array_of_the_block() -> None:
    block = block_of(healthy_values(MACHINES, 20))
    history = kept(History(1 << 20), [block])
    before = history.metrics(0, FOREVER).values.copy()
    block.machine_panel.values[:] = 0.0
    assert np.array_equal(history.metrics(0, FOREVER).values, before)


def test_machines_and_metrics_that_were_not_there_are_nan() -> None:
    first = block_of(healthy_values(2, 10)[:2], metrics=("a", "b"), machines=("m0", "m1"))
    second = block_of(
        healthy_values(2, 10)[:1],
        metrics=("b",),
        machines=("m1", "m2"),
        start_ns=START_NS + 10 * SECOND,
        roster=1,
    )
    part = kept(History(1 << 20), [first, second]).metrics(0, FOREVER)
    assert (part.metrics, part.machines) == (("a", "b"), ("m0", "m1", "m2"))
    known = np.isfinite(part.values)
    assert known[:, :2, :10].all()
    assert not known[:, 2, :10].any()
    assert known[1, 1:, 10:].all()
    assert not known[0, :, 10:].any()


def test_each_tick_keeps_the_phase_it_had() -> None:
    history = History(1 << 20)
    blocks = cut(block_of(healthy_values(2, 6)), [2, 2, 2])
    for block, phase in zip(blocks, ("starting", "running", "running"), strict=True):
        history.add(block, [frame(block, phase)])
    assert history.scores(0, FOREVER).phases == ("starting",) * 2 + ("running",) * 4


def test_nothing_kept_is_an_empty_answer() -> None:
    history = History(1 << 20)
    assert history.metrics(0, FOREVER).values.shape == (0, 0, 0)
    assert history.scores(0, FOREVER).scores.shape == (0, 0)
