"""What every detector must keep, whatever it looks for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detect.alert import AlertChange
from detect.detector import JobDetector, State
from detect.minder import MinderSettings, minder_detector
from detect.registry import DETECTORS, make_detector
from detect.snapshot import decode_state, encode_state
from ingest.catalogue import Catalogue
from ingest.ticks import TickBlock
from models.denoise import registry
from models.minder_model import MinderModel
from tests.ticks_support import (
    METRICS,
    SECOND,
    START_NS,
    Factory,
    block_of,
    cut,
    faulty_values,
    feed,
    healthy_values,
    machine_names,
    scores_by_machine,
)

CATALOGUE = Catalogue.default()


def registered(name: str) -> Factory:
    """The detector of a registered name, with its shipped model."""
    return lambda job: make_detector(name, job, catalogue=CATALOGUE)


def adapting_minder(job: str) -> JobDetector:
    """Minder on a denoiser that learns during the job, which makes the detector stateful."""
    model = MinderModel(
        name="adapting",
        window=8,
        metrics=METRICS[:1],
        limits={METRICS[0]: (0.0, 1.0)},
        denoisers={METRICS[0]: registry.denoiser("online")},
    )
    return minder_detector(job, CATALOGUE, MinderSettings.best(), model)


FACTORIES: dict[str, Factory] = {
    **{name: registered(name) for name in DETECTORS},
    "minder-adapting": adapting_minder,
}


pytestmark = pytest.mark.parametrize("name", FACTORIES)

BLAMES_ANYBODY = "random"
"""The one detector that does not look at the telemetry."""


def make(name: str) -> JobDetector:
    """A fresh detector for the job of the blocks."""
    return FACTORIES[name]("job")


def stored(state: State) -> State:
    """A state after a round trip through bytes."""
    return decode_state(encode_state(state))


def words(changes: list[AlertChange]) -> list[tuple[str, str, int]]:
    """Kind, id and time of each change."""
    return [(c.kind, c.alert.id, c.at_ns) for c in changes]


TICKS = 450


def fault(ticks: int = TICKS) -> TickBlock:
    """A job of 12 machines whose ``m004`` drops to 30 % at tick 100."""
    return block_of(faulty_values(12, ticks, row=4, onset=100))


def test_the_input_is_not_changed(name: str) -> None:
    block = fault()
    values, fresh = block.machine_panel.values.copy(), block.machine_panel.fresh.copy()
    make(name).update(block)
    assert np.array_equal(block.machine_panel.values, values)
    assert np.array_equal(block.machine_panel.fresh, fresh)


@pytest.mark.parametrize("pieces", [[1] * 150, [7, 1, 250, 2]])
def test_how_ticks_are_cut_into_blocks_changes_nothing(name: str, pieces: list[int]) -> None:
    whole, parts = make(name), make(name)
    changes = whole.update(fault())
    assert feed(parts, cut(fault(), pieces)) == changes
    scores, other = scores_by_machine(whole), scores_by_machine(parts)
    assert scores.keys() == other.keys()
    for machine, row in scores.items():
        assert np.array_equal(row, other[machine], equal_nan=True)


def test_the_order_of_machines_changes_nothing(name: str) -> None:
    if name == BLAMES_ANYBODY:
        pytest.skip("draws a place, not a machine")
    block = fault()
    order = np.random.default_rng(1).permutation(len(block.machines))
    panel = block.machine_panel
    # Machine k is now called by the name at its place in the new order.
    names = np.array(block.machines)
    moved = replace(
        block,
        machine_panel=replace(panel, values=panel.values[:, order], fresh=panel.fresh[:, order]),
    )
    one, other = make(name), make(name)
    said, said_moved = one.update(block), other.update(moved)
    back = {str(names[new]): str(names[old]) for new, old in enumerate(order)}
    first = [(c.kind, c.alert.machine, c.at_ns, c.alert.onset_ns) for c in said]
    second = [(c.kind, back[c.alert.machine or ""], c.at_ns, c.alert.onset_ns) for c in said_moved]
    assert second == first
    scores, moved_scores = scores_by_machine(one), scores_by_machine(other)
    for machine, row in moved_scores.items():
        np.testing.assert_allclose(row, scores[back[machine]], rtol=1e-4, atol=1e-4)


def test_a_restored_detector_goes_on_as_if_never_interrupted(name: str) -> None:
    blocks = cut(fault(), [60, 97, 90, 60, 111])
    steady, first = make(name), make(name)
    feed(steady, blocks[:3])
    feed(first, blocks[:3])
    second = make(name)
    second.restore(stored(first.snapshot()))
    steady.take_scores()
    assert feed(second, blocks[3:]) == feed(steady, blocks[3:])
    scores, other = scores_by_machine(steady), scores_by_machine(second)
    for machine, row in scores.items():
        assert np.array_equal(row, other[machine], equal_nan=True)
    assert second.finish(START_NS) == steady.finish(START_NS)


def test_a_snapshot_does_not_disturb(name: str) -> None:
    blocks = cut(fault(), [50] * 8)
    steady, asked = make(name), make(name)
    for block in blocks:
        expected = steady.update(block)
        assert asked.update(block) == expected
        asked.snapshot()


def test_a_state_can_be_restored_twice(name: str) -> None:
    blocks = cut(fault(), [220])
    first = make(name)
    first.update(blocks[0])
    state = stored(first.snapshot())
    said = []
    for _ in range(2):
        detector = make(name)
        detector.restore(state)
        said.append(detector.update(blocks[1]))
    assert said[0] == said[1]


def test_a_state_of_another_version_is_refused(name: str) -> None:
    detector = make(name)
    detector.update(fault(ticks=20))
    state = {**detector.snapshot(), "version": 999_999}
    with pytest.raises(ValueError, match="version"):
        make(name).restore(state)


def test_an_untouched_detector_can_be_saved(name: str) -> None:
    detector, fresh = make(name), make(name)
    detector.restore(stored(fresh.snapshot()))
    assert detector.update(fault()) == fresh.update(fault())


def test_memory_does_not_grow_with_time(name: str) -> None:
    detector = make(name)
    sizes = []
    for k in range(6):
        values = healthy_values(4, 300, seed=k)
        detector.update(block_of(values, start_ns=START_NS + 300 * k * SECOND))
        detector.take_scores()
        sizes.append(len(encode_state(detector.snapshot())))
    assert max(sizes[3:]) <= 1.25 * max(sizes[1:3]) + 2_000


def test_score_frames_lie_on_the_ticks_and_do_not_overlap(name: str) -> None:
    detector = make(name)
    feed(detector, cut(fault(), [13, 200]))
    at = START_NS
    for frame in detector.take_scores():
        assert frame.tick_ns == SECOND
        assert frame.start_ns >= at
        assert frame.scores.dtype == np.float32
        assert frame.scores.shape[0] == len(frame.machines)
        assert not np.isinf(frame.scores).any()
        at = frame.start_ns + frame.scores.shape[1] * SECOND
    assert at <= START_NS + TICKS * SECOND


def test_changes_come_in_order_of_event_time(name: str) -> None:
    detector = make(name)
    changes = detector.update(fault(ticks=900)) + detector.finish(START_NS + 900 * SECOND)
    times = [c.at_ns for c in changes]
    assert times == sorted(times)


def test_every_alert_that_opens_is_resolved_by_the_end(name: str) -> None:
    detector = make(name)
    changes = detector.update(fault()) + detector.finish(START_NS + TICKS * SECOND)
    opened = {c.alert.id for c in changes if c.kind == "opened"}
    resolved = {c.alert.id for c in changes if c.kind == "resolved"}
    assert resolved == opened
    assert detector.finish(START_NS + TICKS * SECOND) == []


def test_what_ended_does_not_weigh_on_the_next_run(name: str) -> None:
    used, fresh = make(name), make(name)
    used.update(fault())
    end = START_NS + TICKS * SECOND
    used.finish(end)
    used.take_scores()
    later = block_of(healthy_values(12, 400, seed=8), start_ns=end + 7_200 * SECOND, run=1)
    assert [c.kind for c in used.update(later)] == [c.kind for c in fresh.update(later)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_small_jobs_are_taken(name: str, count: int) -> None:
    detector = make(name)
    changes = detector.update(block_of(faulty_values(count, TICKS, row=0, onset=100)))
    assert all(set(c.alert.machines) <= set(machine_names(count)) for c in changes)
    assert detector.take_scores()


def test_a_metric_that_is_all_missing_changes_no_verdict(name: str) -> None:
    block = fault()
    panel = block.machine_panel
    values = np.concatenate([panel.values, np.full((1, 12, TICKS), np.nan)])
    metrics = (*METRICS, "nvlink_tx_bytes_per_second")
    plain, more = make(name), make(name)
    expected = plain.update(block)
    assert words(more.update(block_of(values, metrics=metrics))) == words(expected)


def test_a_constant_metric_changes_no_verdict(name: str) -> None:
    block = fault()
    values = np.concatenate([block.machine_panel.values, np.full((1, 12, TICKS), 5e10)])
    metrics = (*METRICS, "nvlink_tx_bytes_per_second")
    plain, more = make(name), make(name)
    expected = [(c.kind, c.alert.machine) for c in plain.update(block)]
    changes = more.update(block_of(values, metrics=metrics))
    assert [(c.kind, c.alert.machine) for c in changes] == expected


def test_a_job_without_metrics_is_quiet(name: str) -> None:
    detector = make(name)
    block = block_of(np.zeros((0, 4, 300)), metrics=())
    changes = detector.update(block) + detector.finish(START_NS + 300 * SECOND)
    assert [c for c in changes if c.alert.pages and c.alert.verdict == "machine"] == []


def test_a_job_that_is_all_missing_blames_no_machine(name: str) -> None:
    if name == BLAMES_ANYBODY:
        pytest.skip("looks at no telemetry")
    detector = make(name)
    changes = detector.update(block_of(np.full((3, 6, 400), np.nan)))
    blamed = [c.alert.machine for c in changes if c.alert.verdict == "machine"]
    assert blamed == []


def test_a_machine_that_leaves_takes_its_alert_along(name: str) -> None:
    detector = make(name)
    changes = detector.update(fault())
    open_ids = {c.alert.id for c in changes if c.kind == "opened" and c.alert.machine == "m004"}
    open_ids -= {c.alert.id for c in changes if c.kind == "resolved"}
    names = tuple(m for m in machine_names(12) if m != "m004")
    rest = block_of(
        healthy_values(11, TICKS, seed=3),
        machines=names,
        start_ns=START_NS + TICKS * SECOND,
        roster=1,
    )
    resolved = {c.alert.id for c in detector.update(rest) if c.kind == "resolved"}
    assert open_ids <= resolved


def test_machines_and_metrics_come_and_go(name: str) -> None:
    detector = make(name)
    whole = healthy_values(8, 600)
    rosters = [(8, 3), (5, 3), (8, 1), (1, 1), (8, 3), (3, 2)]
    for k, (count, metrics) in enumerate(rosters):
        part = whole[:metrics, :count, k * 100 : (k + 1) * 100].copy()
        block = block_of(
            part, metrics=METRICS[:metrics], start_ns=START_NS + k * 100 * SECOND, roster=k
        )
        changes = detector.update(block)
        assert all(set(c.alert.machines) <= set(machine_names(8)) for c in changes)
        for frame in detector.take_scores():
            assert set(frame.machines) <= set(machine_names(8))


def test_a_block_without_ticks_says_nothing(name: str) -> None:
    detector = make(name)
    assert detector.update(block_of(np.zeros((3, 3, 0)))) == []
    assert detector.update(block_of(healthy_values(3, 10))) == []


@st.composite
def jobs(draw: st.DrawFn) -> list[TickBlock]:
    """A few blocks of anything: rosters, gaps, cadences, runs, magnitudes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    tick_ns = draw(st.sampled_from([SECOND // 10, SECOND, 15 * SECOND, 60 * SECOND]))
    start, run, blocks = START_NS // tick_ns * tick_ns, 0, []
    for roster in range(draw(st.integers(1, 5))):
        count = draw(st.integers(1, 13))
        metrics = tuple(sorted(draw(st.sets(st.sampled_from([*METRICS, "made_up"])))))
        ticks = draw(st.integers(1, 40))
        if draw(st.integers(0, 5)) == 0:
            run, start = run + 1, start + 10_000 * tick_ns
        elif draw(st.integers(0, 5)) == 0:
            start += 3 * tick_ns
        size = draw(st.sampled_from([0.0, 1e-12, 1.0, 1e6, 1e13, 1e150]))
        values = rng.normal(size, size / 7, (len(metrics), count, ticks))
        values *= rng.choice([1.0, 1.0, 1.0, 0.0, 100.0], (len(metrics), count, 1))
        values[rng.random(values.shape) < draw(st.sampled_from([0.0, 0.1, 0.9, 1.0]))] = np.nan
        blocks.append(
            block_of(
                values, metrics=metrics, start_ns=start, tick_ns=tick_ns, run=run, roster=roster
            )
        )
        start += ticks * tick_ns
    return blocks


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(blocks=jobs())
def test_no_telemetry_makes_it_raise(name: str, blocks: list[TickBlock]) -> None:
    detector = make(name)
    for block in blocks:
        changes = detector.update(block)
        known = set(block.machines)
        for change in changes:
            if change.kind == "opened":
                assert set(change.alert.machines) <= known
                assert len(change.alert.evidence) == 0 or change.alert.evidence[0].share > 0.0
                assert sum(e.share for e in change.alert.evidence) <= 1.0 + 1e-9
        for frame in detector.take_scores():
            assert not np.isinf(frame.scores).any()
    detector.finish(blocks[-1].start_ns + blocks[-1].ticks * blocks[-1].tick_ns)
    encode_state(detector.snapshot())
