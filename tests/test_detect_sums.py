"""Evidence is counted in seconds; no sample, family or phase gives more than its share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from detect.accumulate import (
    BUSIER,
    CALM_SECONDS,
    CAP,
    ECHO_SECONDS,
    FAR,
    FULL,
    HEAT_MOST,
    HELD_UP_CAP,
    LEAK_SECONDS,
    LINGERS,
    LINGERS_FROM,
    LINGERS_TO,
    MAX_STEP_SHARE,
    REMEMBERED,
    RUNNING,
    SHAPE_LEAK_SECONDS,
    STALL,
    STALL_SECONDS,
    START,
    EvidenceSums,
)
from detect.fuse import (
    HALF_SEEN,
    HOST_ALONE,
    HOST_HELD_UP,
    HOST_OF_WAITING,
    LONG_REST_SECONDS,
    MOST_PER_FAMILY,
    STEP_MOST,
)
from detect.patience import MOST_PATIENCE, OWN_PEAKS, WANDER_MOST, WANDER_USUAL
from detect.phase import Moment
from detect.residuals import DRIFT, FAST, LEVEL, SHAPE, SLOW, TESTS, Residuals
from detect.snapshot import decode_state, encode_state
from models.evidence_model import MetricScale
from tests.detect_support import MODEL

Array = NDArray[np.float64]
METRICS = ("other", "power_a", "power_b")
ROWS = 5
HOLD = MetricScale().hold_fast


def fresh(low_counts: float = 1.0, metrics: tuple[str, ...] = METRICS) -> EvidenceSums:
    """Sums over three metrics (of `METRICS` the last two are one family), and `ROWS` rows."""
    sums = EvidenceSums(lambda _: MetricScale(low_counts=low_counts), lambda m: m.split("_")[0])
    sums.reindex(metrics, tuple(f"r{i}" for i in range(ROWS)))
    return sums


def residuals(z: Array | float = 0.0, *, valid: bool = True, established: bool = True) -> Residuals:
    shape = (len(METRICS), ROWS)
    full = np.broadcast_to(np.asarray(z, np.float32), (TESTS, *shape)).copy()
    return Residuals(full, np.full(shape, valid), np.full(shape, established), np.zeros(shape[0]))


def one(metric: int, row: int, z: float, test: int = FAST) -> Array:
    """``[test, M, R]``: one cell stands apart."""
    full = np.zeros((TESTS, len(METRICS), ROWS))
    full[test, metric, row] = z
    return full


def one_row(z: float) -> Array:
    """``[test, M, R]``: one row stands apart in everything."""
    full = np.zeros((TESTS, len(METRICS), ROWS))
    full[:, :, 2] = z
    return full


def add(sums: EvidenceSums, r: Residuals, seconds: int = 1, trust: float = 1.0) -> EvidenceSums:
    for _ in range(seconds):
        sums.step(r, 1.0, np.full(ROWS, trust), RUNNING)
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
        sums.step(residuals(value), tick, np.full(ROWS, trust), RUNNING)
        # Taking back what spoke for the other direction is no growth.
        grown = np.abs(sums.state["total"]) - np.abs(before)
        assert grown.max() <= tick * trust + 1e-5
        assert grown.max() <= max(10.0, MAX_STEP_SHARE * tick) + 1e-5


@pytest.mark.parametrize(
    ("tick", "seconds"), [(1.0, 1.0), (15.0, 6.0), (60.0, 18.0)], ids=["often", "seldom", "rarely"]
)
def test_a_rare_sample_counts_for_a_share_of_the_time_between_two(
    tick: float, seconds: float
) -> None:
    sums = fresh()
    sums.step(residuals(one(0, 2, 50.0)), tick, np.ones(ROWS), RUNNING)
    assert sums.state["total"][FAST, 0, 2] == pytest.approx(seconds)


def test_a_steady_difference_adds_a_second_a_second_and_remembers_its_direction() -> None:
    sums = add(fresh(), residuals(one(0, 2, -50.0)), 20)
    assert sums.state["total"][FAST, 0, 2] == pytest.approx(-20.0, rel=0.02)
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


def test_what_is_remembered_of_a_rest_hardly_counts() -> None:
    sums = fresh()
    for _ in range(10):
        sums.step(residuals(one(0, 2, 50.0)), 1.0, np.ones(ROWS), Moment(back=True))
    assert sums.state["total"][FAST, 0, 2] == pytest.approx(10 * REMEMBERED, abs=0.1)
    assert REMEMBERED < 0.5


def test_one_that_works_on_while_its_peers_rest_is_given_time() -> None:
    def gathered(z: float, rest: float) -> float:
        sums = fresh()
        for second in range(20):
            moment = Moment(rest_seconds=rest + second)
            sums.step(residuals(one(1, 2, z)), 1.0, np.ones(ROWS), moment)
        return abs(float(sums.state["total"][FAST, 1, 2]))

    assert gathered(50.0, LINGERS_FROM + 1) == pytest.approx(20 * LINGERS, rel=0.05)
    for z, rest in ((-50.0, LINGERS_FROM + 1), (50.0, LINGERS_TO + 1)):
        assert gathered(z, rest) == pytest.approx(20.0, rel=0.05)
    # A rest in every step is shorter.
    begins = LINGERS_FROM + LINGERS * (20.0 - LINGERS_FROM)
    assert gathered(50.0, 1.0) == pytest.approx(begins, rel=0.05)


def test_the_other_direction_takes_back_before_it_adds() -> None:
    sums = add(fresh(), residuals(one(0, 2, 50.0)), 10)
    add(sums, residuals(one(0, 2, -50.0)), 15)
    assert sums.state["total"][FAST, 0, 2] == pytest.approx(-5.0, abs=0.1)


def test_without_a_past_only_the_level_counts() -> None:
    sums = add(fresh(), residuals(50.0, established=False), 5)
    assert (sums.state["total"][[FAST, SLOW, DRIFT, SHAPE]] == 0).all()
    assert (sums.state["total"][LEVEL, 0] == 5.0).all()


def test_evidence_below_the_peers_counts_as_much_more_as_the_metric_says() -> None:
    low = add(fresh(low_counts=1.5), residuals(-50.0), 4).state["total"]
    high = add(fresh(low_counts=1.5), residuals(50.0), 4).state["total"][:, 0]
    assert low == pytest.approx(-6.0, rel=0.01)
    assert high == pytest.approx(4.0, rel=0.01)


def test_more_work_than_the_peers_counts_half_while_nobody_waits() -> None:
    def grown(moment: Moment, z: float = 50.0) -> float:
        sums = fresh()
        for _ in range(10):
            sums.step(residuals(one(1, 2, z)), 1.0, np.ones(ROWS), moment)
        return float(abs(sums.state["total"][FAST, 1, 2]))

    assert grown(RUNNING) == pytest.approx(10.0 * BUSIER, rel=0.01)
    assert grown(RUNNING, -50.0) == pytest.approx(10.0, rel=0.01)
    assert grown(Moment(slower_seconds=1e3)) == pytest.approx(10.0, rel=0.01)
    assert grown(Moment(rest_seconds=5.0)) == pytest.approx(10.0, rel=0.01)


def test_more_load_is_no_fault_and_less_counts_half() -> None:
    def grown(z: float, metrics: tuple[str, ...]) -> float:
        sums = EvidenceSums(lambda _: MetricScale(), lambda m: f"other:{m}")
        sums.reindex(metrics, tuple(f"r{i}" for i in range(ROWS)))
        for _ in range(10):
            sums.step(residuals(one(1, 2, z)), 1.0, np.ones(ROWS), RUNNING)
        return float(sums.state["total"][FAST, 1, 2])

    known = ("disk_latency", "disk_throughput", "queue_depth")
    assert grown(50.0, known) == 0.0
    assert grown(-50.0, known) == pytest.approx(-5.0, rel=0.01)
    # Alone it is what the row achieves.
    assert grown(50.0, ("read_iops", "disk_throughput", "bw")) == pytest.approx(10.0, rel=0.01)


def test_evidence_is_bounded_so_that_it_can_be_taken_back() -> None:
    sums = add(fresh(), residuals(one_row(50.0)), 1500)
    size = np.abs(sums.state["total"]).max(axis=(1, 2))
    most = CAP * MetricScale().holds
    most[LEVEL] *= 2
    assert (size <= most * (1 + 1e-6)).all()
    assert size[FAST] == pytest.approx(CAP[FAST] * HOLD, rel=0.01)


def test_after_a_long_rest_one_kind_of_metric_is_enough() -> None:
    most = {}
    for seconds in (STALL_SECONDS - 1.0, STALL_SECONDS):
        sums = fresh()
        for _ in range(600):
            sums.step(residuals(one_row(50.0)), 1.0, np.ones(ROWS), Moment(rest_seconds=seconds))
        most[seconds] = sums.strength()[FAST].max() / HELD_UP_CAP[FAST]
    assert list(most.values()) == pytest.approx([1.0, STALL], rel=0.01)
    assert STALL > 1.0


def test_a_clock_above_the_others_is_no_evidence() -> None:
    names = ("clock_sm", "power_a", "power_b")
    high = add(fresh(metrics=names), residuals(one_row(50.0)), 10).state["total"]
    assert not high[:, 0].any()
    assert (high[:SHAPE, 1:, 2] > 0).all()
    low = add(fresh(metrics=names), residuals(one(0, 2, -50.0)), 10).state["total"]
    assert low[FAST, 0, 2] == pytest.approx(-10.0, abs=0.1)


@pytest.mark.parametrize(
    ("metrics", "times"),
    [(METRICS, 2.0), (("other", "compute_a", "nvlink_a"), 1.0)],
)
def test_one_kind_of_metric_far_apart_counts_twice_where_little_else_is_reported(
    metrics: tuple[str, ...], times: float
) -> None:
    sums = add(fresh(metrics=metrics), residuals(one(0, 2, 50.0, LEVEL)), 1500)
    assert sums.strength()[LEVEL, 0, 2] == pytest.approx(times * CAP[LEVEL], rel=0.01)


def test_nobody_wanders_who_stands_still() -> None:
    grown = []
    for seconds in (0.0, 5.0):
        sums = fresh()
        sums.state["wander"][:] = WANDER_USUAL * 3.0
        for _ in range(5):
            moment = Moment(rest_seconds=seconds)
            sums.step(residuals(one(0, 2, 50.0)), 1.0, np.ones(ROWS), moment)
        grown.append(float(sums.state["total"][FAST, 0, 2]))
    assert grown == pytest.approx([5.0, 15.0], rel=0.01)


def test_a_lost_process_counts_in_full_where_the_job_rests_or_its_work_shows_it() -> None:
    sums = panel_of(*WIDE, *HOST_FAMILIES)
    full = np.zeros((TESTS, len(WIDE) + len(HOST_FAMILIES), 1))
    full[FAST, len(WIDE)] = 9.0
    gone = np.ones(1, np.bool_)
    assert sums.fused(full, gone)[0] == pytest.approx(HOST_ALONE)
    assert sums.fused(full, gone, Moment(rest_seconds=1.0))[0] == pytest.approx(9.0)
    full[FAST, 0] = HALF_SEEN
    assert sums.fused(full, gone)[0] > 9.0


def test_more_rows_that_lie_apart_now_and_then_make_more_patient() -> None:
    sums = fresh()
    for k in range(1200):
        apart = np.zeros((TESTS, len(METRICS), ROWS))
        apart[SLOW, 0, [k // 40 % ROWS, (k // 40 + 1) % ROWS]] = 5.0
        add(sums, residuals(apart))
    needed = sums.state["needed"]
    assert sums.state["wander"] == pytest.approx([1 / ROWS, 0, 0], abs=0.05)
    assert (needed[FAST, 0] >= WANDER_MOST * HOLD).all()
    assert WANDER_MOST > 2.0
    assert (needed[FAST, 1] == np.float32(HOLD)).all()
    assert (needed[LEVEL, 0] == needed[LEVEL, 1]).all()


def test_a_metric_gathers_more_while_the_job_is_held_up() -> None:
    sums = fresh()
    for _ in range(600):
        sums.step(residuals(one_row(50.0)), 1.0, np.ones(ROWS), Moment(slower_seconds=60.0))
    assert sums.strength()[FAST].max() == pytest.approx(HELD_UP_CAP[FAST], rel=0.01)
    add(sums, residuals(one_row(50.0)))
    assert sums.strength()[FAST].max() == pytest.approx(CAP[FAST], rel=0.01)


def test_a_lasting_difference_alone_needs_to_be_far() -> None:
    sums = fresh()
    r = residuals(one(0, 1, 2 * FAR * FULL[LEVEL], LEVEL) + one(0, 2, FULL[LEVEL], LEVEL))
    add(sums, r, 1500)
    strength = sums.strength()[LEVEL, 0]
    assert strength[1] == pytest.approx(2 * CAP[LEVEL])
    assert strength[2] == pytest.approx(CAP[LEVEL])


def test_heat_alone_gathers_less_than_any_job_asks_for() -> None:
    sums = EvidenceSums(lambda _: MetricScale(), lambda _: "thermal")
    sums.reindex(METRICS, tuple(f"r{i}" for i in range(ROWS)))
    add(sums, residuals(one(0, 2, 50.0)), 600)
    assert 0 < sums.strength().max() <= HEAT_MOST
    assert MODEL.threshold(3) > MOST_PER_FAMILY * HEAT_MOST


def test_an_excursion_that_ended_makes_patient_with_that_row() -> None:
    sums = add(fresh(), residuals(one(0, 2, 50.0)), int(2 * HOLD))
    add(sums, residuals(), int(4 * HOLD))
    needed = sums.state["needed"][FAST]
    assert needed[0, 2] > 2 * HOLD
    assert (needed[1:] == HOLD).all()


def test_what_came_and_went_on_one_row_is_no_fault_on_another() -> None:
    sums = add(fresh(), residuals(one(0, 2, 50.0)), int(2 * HOLD))
    add(sums, residuals(), int(4 * HOLD))
    needed, peak = sums.state["needed"][FAST, 0], sums.state["peak"][FAST, 0, 2]
    assert peak > HOLD
    assert np.delete(needed, 2) == pytest.approx(np.full(4, peak), rel=0.01)
    assert needed[2] == pytest.approx(OWN_PEAKS * peak, rel=0.01)


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


def panel_of(*metrics: str, silent: frozenset[str] = frozenset()) -> EvidenceSums:
    """Sums over one row that has sent all but the silent metrics once.

    A metric's family is its name up to a colon.
    """
    sums = EvidenceSums(lambda _: MetricScale(), lambda m: m.split(":")[0])
    sums.reindex(metrics, ("r",))
    shape = (len(metrics), 1)
    valid = np.array([[m not in silent] for m in metrics])
    nothing = Residuals(np.zeros((TESTS, *shape), np.float32), valid, valid, np.zeros(len(metrics)))
    sums.step(nothing, 1.0, np.ones(1), RUNNING)
    return sums


WIDE = ("compute", "power", "clock", "nvlink")
"""So many families that what they show is not weighed up."""


def fused(
    metrics: tuple[str, ...],
    strength: dict[str, float],
    test: int = FAST,
    silent: frozenset[str] = frozenset(),
) -> float:
    """The score of a row whose metrics show this in one test."""
    sums = panel_of(*metrics, silent=silent)
    full = np.zeros((TESTS, len(metrics), 1))
    for metric, value in strength.items():
        full[test, metrics.index(metric), 0] = value
    return float(sums.fused(full)[0])


def test_metrics_of_one_family_are_one_witness() -> None:
    metrics = (*WIDE, "power:2")
    assert fused(metrics, {"power": 0.6, "power:2": 0.9}) == pytest.approx(0.9)


def test_families_add() -> None:
    assert fused(WIDE, {"power": 0.6, "clock": 0.9}) == pytest.approx(1.5)


def test_heat_is_no_other_witness_than_power() -> None:
    assert fused((*WIDE, "thermal"), {"power": 0.6, "thermal": 0.9}) == pytest.approx(0.9)


def test_out_of_step_in_every_metric_is_one_witness() -> None:
    everywhere = dict.fromkeys(WIDE, 0.9)
    assert fused(WIDE, everywhere, SHAPE) == pytest.approx(0.9)
    assert fused(WIDE, dict.fromkeys(WIDE, 9.0), SHAPE) == pytest.approx(STEP_MOST)


def test_the_same_difference_counts_more_where_fewer_families_are_reported() -> None:
    scores = [fused(WIDE[:n], {"compute": 1.0}) for n in range(1, 5)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[-1] == 1.0


HOST_FAMILIES = ("cpu", "disk", "tcp", "host_memory")


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    host=st.lists(st.floats(0.0, 3.0), min_size=4, max_size=4),
    work=st.floats(0.0, 3.0),
    seen=st.integers(1, 4),
)
def test_what_the_host_alone_shows_adds_little_to_what_the_work_shows(
    host: list[float], work: float, seen: int
) -> None:
    metrics = (*WIDE[:seen], *HOST_FAMILIES)
    alone = dict(zip(HOST_FAMILIES, host, strict=True))
    plain = fused(metrics, {"compute": work})
    both = fused(metrics, {**alone, "compute": work})
    assert plain - 1e-9 <= both <= 2 * plain + HOST_ALONE + 1e-9
    assert fused(metrics, alone) <= HOST_ALONE < MODEL.threshold(3)


def unknown(*metrics: str) -> EvidenceSums:
    """Like `panel_of`; the panel marks a metric that the catalogue does not know by ``other:``."""
    sums = EvidenceSums(lambda _: MetricScale(), lambda m: m)
    sums.reindex(metrics, ("r",))
    valid = np.ones((len(metrics), 1), np.bool_)
    nothing = np.zeros((TESTS, *valid.shape), np.float32)
    sums.step(Residuals(nothing, valid, valid, np.zeros(len(metrics))), 1.0, np.ones(1), RUNNING)
    return sums


def test_what_nobody_knows_adds_little_to_what_the_work_shows() -> None:
    full = np.zeros((TESTS, len(WIDE) + 1, 1))
    full[FAST, -1] = 3.0
    assert unknown(*WIDE, "other:load").fused(full)[0] == pytest.approx(HOST_ALONE)


def test_what_nobody_knows_is_the_work_where_nothing_else_is_reported() -> None:
    full = np.zeros((TESTS, 2, 1))
    full[FAST, 0] = 1.0
    assert unknown("other:latency", "cpu").fused(full)[0] == pytest.approx(MOST_PER_FAMILY)


def test_the_host_counts_more_the_longer_the_job_is_held_up() -> None:
    sums = panel_of(*WIDE, *HOST_FAMILIES)
    full = np.zeros((TESTS, len(WIDE) + len(HOST_FAMILIES), 1))
    full[FAST, len(WIDE)] = 9.0
    scores = [
        float(sums.fused(full, moment=Moment(slower_seconds=s))[0]) for s in (0.0, 60.0, 150.0, 1e4)
    ]
    assert scores[0] == pytest.approx(HOST_ALONE)
    assert scores == sorted(set(scores))
    assert scores[-1] == pytest.approx(HOST_HELD_UP)


def test_a_host_counts_more_in_a_long_standstill_and_twice_if_it_was_not_odd_before() -> None:
    sums = panel_of(*WIDE, "cpu", "disk")
    full = np.zeros((len(WIDE) + 2, 1))
    full[len(WIDE)] = 1.5

    def score(rest: float, *, odd_before: bool) -> float:
        before = np.array([odd_before])
        moment = Moment(rest_seconds=rest, stalled=True)
        return float(
            sums.fusion.score(full.copy(), 0 * full, np.zeros(1, np.bool_), moment, before)[0][0]
        )

    assert score(LONG_REST_SECONDS, odd_before=False) == pytest.approx(HOST_ALONE)
    later = [score(LONG_REST_SECONDS + s, odd_before=False) for s in (30.0, 120.0, 1e4)]
    assert later == sorted(set(later))
    assert later[-1] == pytest.approx(HOST_OF_WAITING * 1.5)
    assert score(1e4, odd_before=True) == pytest.approx(1.5)
    full[len(WIDE) :] = [[0.0], [1.5]]
    assert score(1e4, odd_before=False) == pytest.approx(1.5)


def test_who_was_odd_before_the_job_became_slower_is_remembered_while_it_is() -> None:
    metrics = ("cpu", *WIDE)
    sums = panel_of(*metrics)
    z = np.zeros((TESTS, len(metrics), 1))
    z[FAST, 0] = 50.0
    r = Residuals(
        z.astype(np.float32), np.ones(z.shape[1:], bool), np.ones(z.shape[1:], bool), z[0, :, 0]
    )
    nobody = np.zeros(1, np.bool_)

    def run(ticks: int, moment: Moment) -> bool:
        for _ in range(ticks):
            sums.step(r, 1.0, np.ones(1), moment)
            sums.judge(nobody, moment)
        return bool(sums.state["odd_before"][0])

    assert not run(5, RUNNING)
    assert not run(int(CALM_SECONDS), Moment(slower_seconds=50.0))
    assert not run(int(CALM_SECONDS) - 1, RUNNING)
    assert run(1, RUNNING)
    z[:] = 0.0
    assert run(3, Moment(slower_seconds=50.0))


def test_where_only_hosts_are_watched_they_count_in_full() -> None:
    alone = dict.fromkeys(HOST_FAMILIES, 0.9)
    assert fused(HOST_FAMILIES, alone) == pytest.approx(4 * 0.9)


@pytest.mark.parametrize("watched", [("compute",), HOST_FAMILIES])
def test_metrics_that_never_had_a_value_weigh_nothing(watched: tuple[str, ...]) -> None:
    more = (*watched, *(m for m in WIDE if m not in watched))
    strength = dict.fromkeys(watched, 0.9)
    silent = frozenset(more) - frozenset(watched)
    assert fused(more, strength, silent=silent) == fused(watched, strength)
    assert fused(more, strength) < fused(watched, strength)


def test_a_change_that_gathers_slowly_leaks_away() -> None:
    sums = fresh()
    sums.state["total"][:, 0, 2] = 10.0
    r = residuals(np.broadcast_to(START[:, None, None], (TESTS, len(METRICS), ROWS)))
    add(sums, r, int(LEAK_SECONDS))
    assert sums.state["total"][FAST, 0, 2] == pytest.approx(10.0 / np.e, rel=0.01)
    left = 10.0 * np.exp(-LEAK_SECONDS / SHAPE_LEAK_SECONDS)
    assert sums.state["total"][SHAPE, 0, 2] == pytest.approx(left, rel=0.01)
    assert sums.state["total"][[SLOW, DRIFT, LEVEL], 0, 2] == pytest.approx(10.0)


def test_what_a_mean_remembers_of_an_excursion_that_is_over_is_not_counted_again() -> None:
    sums = add(fresh(), residuals(one(0, 2, FULL[FAST])), 1)
    remembered = residuals(one(0, 2, 50.0, SLOW))
    add(sums, remembered, int(ECHO_SECONDS) - 1)
    assert sums.state["total"][SLOW, 0, 2] == 0.0
    add(sums, remembered, 10)
    assert sums.state["total"][SLOW, 0, 2] == pytest.approx(10.0)


def test_a_slow_change_without_an_excursion_counts_at_once() -> None:
    sums = add(fresh(), residuals(one(0, 2, 50.0, SLOW)), 10)
    assert sums.state["total"][SLOW, 0, 2] == pytest.approx(10.0)


def test_an_excursion_that_goes_on_counts_in_both_means() -> None:
    sums = add(fresh(), residuals(one(0, 2, 50.0) + one(0, 2, 50.0, SLOW)), 10)
    assert sums.state["total"][[FAST, SLOW], 0, 2] == pytest.approx(10.0, rel=0.02)


def test_a_gap_does_not_make_the_memory_of_an_excursion_fade() -> None:
    sums = add(fresh(), residuals(one(0, 2, FULL[FAST])), 1)
    add(sums, residuals(valid=False), int(2 * ECHO_SECONDS))
    add(sums, residuals(one(0, 2, 50.0, SLOW)), 10)
    assert sums.state["total"][SLOW, 0, 2] == 0.0


def test_a_short_past_is_no_reason_to_distrust_the_level() -> None:
    sums = fresh()
    for _ in range(10):
        sums.step(residuals(50.0), 1.0, np.full(ROWS, 0.5), Moment(past=0.5))
    assert sums.state["total"][LEVEL, 0] == pytest.approx(10.0)
    assert sums.state["total"][DRIFT, 0] == pytest.approx(5.0)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), before=st.integers(0, 150))
def test_sums_restored_from_bytes_go_on_bit_for_bit(seed: int, before: int) -> None:
    rng = np.random.default_rng(seed)
    steady, other = fresh(1.5), fresh(1.5)
    for tick in range(before + 60):
        if tick == before:
            stored = encode_state(steady.snapshot())
            other.restore(decode_state(stored))
            assert encode_state(other.snapshot()) == stored
        r = residuals(rng.normal(0.0, 9.0, (TESTS, len(METRICS), ROWS)))
        for sums in (steady, other) if tick >= before else (steady,):
            sums.step(
                r, 1.0, np.full(ROWS, 0.7), Moment(rest_seconds=float(tick % 40 > 30), past=0.5)
            )
    assert encode_state(other.snapshot()) == encode_state(steady.snapshot())


def test_without_metrics_every_row_scores_nothing() -> None:
    sums = fresh()
    sums.reindex((), ("a", "b"))
    assert sums.fused(np.zeros((TESTS, 0, 2))).tolist() == [0.0, 0.0]


def test_a_row_keeps_its_evidence_when_others_come_and_go() -> None:
    sums = add(fresh(), residuals(one(0, 2, -50.0)), 9)
    sums.reindex(("new", "other"), ("x", "r2"))
    total = sums.state["total"][FAST]
    assert total == pytest.approx(np.array([[0.0, 0.0], [0.0, -9.0]]), rel=0.01)
    assert (sums.state["needed"][FAST] > 0).all()
