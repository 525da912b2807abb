"""Ticks close when a quorum of machines is past them, whatever single clocks say."""

from __future__ import annotations

import pytest

from detect.snapshot import decode_state, encode_state
from ingest.align import AlignSettings, JobAligner
from ingest.catalogue import Catalogue
from tests.align_support import SECOND, START, Outcome, Row, align, cut, feed, finish, row, table

HOUR = 3600.0


def second(i: float, machines: int = 4) -> list[Row]:
    """One sample of every machine."""
    return [row(i, f"m{m}", a=i + m / 10) for m in range(machines)]


def live(rows: list[list[Row]]) -> Outcome:
    """Each list of rows as a batch, in this order, without flush."""
    return align([table(batch) for batch in rows], flush=False)


def silence(outcome: Outcome, seconds: int, wall_s: int = 10**9) -> list[int]:
    """So many seconds without a row, looked at every second; seconds in which ticks closed."""
    closed = []
    for passed in range(seconds + 1):
        blocks = outcome.aligner.idle((wall_s + passed) * SECOND)
        outcome.blocks += blocks
        closed += [passed] if blocks else []
    return closed


def closed_to(outcome: Outcome) -> float:
    """Seconds after START up to which ticks are closed."""
    return (outcome.aligner.watermark_ns - START) / SECOND


def test_ticks_close_three_seconds_behind_the_quorum() -> None:
    assert closed_to(live([second(i) for i in range(60)])) == 56


def test_the_lateness_grows_with_the_tick() -> None:
    assert closed_to(live([second(i * 20.0) for i in range(60)])) == 59 * 20 - 60


def test_the_lateness_may_be_set() -> None:
    parts = [table(second(i)) for i in range(60)]
    outcome = align(parts, AlignSettings(lateness_seconds=10.0), flush=False)
    assert closed_to(outcome) == 49


def test_rows_behind_the_watermark_are_rejected_and_counted_by_machine() -> None:
    outcome = live([second(i) for i in range(60)])
    late = outcome.aligner.add(table([row(50, "m1", a=1.0), row(51, "m1", a=1.0)]))
    assert [(r.reason, r.origin, r.rows) for r in late] == [("late", "job/m1", 2)]
    assert late[0].detail == (
        "2 rows stamped 2023-11-14T22:14:50.000Z to 2023-11-14T22:14:51.000Z:"
        " ticks before 2023-11-14T22:14:56.000Z are closed"
    )
    assert outcome.aligner.counters["late"] == 2
    assert outcome.aligner.late_by_machine == {"m1": 2}


def test_late_rows_of_many_machines_share_one_line() -> None:
    outcome = live([second(i, 50) for i in range(60)])
    late = outcome.aligner.add(table(second(10, 50)))
    assert [(r.reason, r.origin, r.rows) for r in late] == [("late", "job", 50)]
    assert late[0].detail.startswith("50 rows of 50 machines (m0, m1, m2, ...), stamped 2023-")
    assert len(outcome.aligner.late_by_machine) == 50


def test_agents_that_send_ten_seconds_at_once_are_waited_for() -> None:
    outcome = align([], flush=False)
    for start in range(0, 300, 10):
        for m in range(8):
            feed(outcome, table([row(start + i, f"m{m}", a=1.0) for i in range(10)]))
    assert outcome.aligner.counters["late"] == 0
    finish(outcome)
    assert sum(sum(outcome.fresh("a", f"m{m}")) for m in range(8)) == 8 * 300


def test_a_clock_some_seconds_behind_is_waited_for_after_its_first_loss() -> None:
    batches = [[*second(i), row(i - 8, "behind", a=1.0)] for i in range(300)]
    outcome = live(batches)
    assert outcome.aligner.counters["late"] < 12
    assert closed_to(outcome) == 289


def test_waiting_for_late_rows_ends_with_its_reason() -> None:
    batches = [[*second(i), *([row(i - 8, "m4", a=1.0)] if i < 100 else [])] for i in range(400)]
    assert closed_to(live(batches)) == 396


def test_a_fixed_lateness_stays_fixed() -> None:
    parts = [table([*second(i), row(i - 8, "behind", a=1.0)]) for i in range(100)]
    assert closed_to(align(parts, AlignSettings(lateness_seconds=3.0), flush=False)) == 96


def test_a_row_within_the_lateness_is_used() -> None:
    outcome = live([second(i, 3) for i in range(60)])
    assert not outcome.aligner.add(table([row(57.5, "m3", a=7.0)]))
    finish(outcome)
    assert outcome.machine("a", "m3")[57] == 7.0


def test_a_machine_that_stops_does_not_hold_the_others() -> None:
    outcome = live([second(i, 4 if i < 30 else 3) for i in range(60)])
    assert closed_to(outcome) == 56


def test_most_machines_stopping_holds_the_others_for_half_a_minute_only() -> None:
    outcome = live([second(i, 8 if i < 30 else 2) for i in range(120)])
    assert closed_to(outcome) == 116
    assert not outcome.rejected


def test_one_of_two_machines_stopping_does_not_hold_the_other_for_ever() -> None:
    outcome = live([second(i, 2 if i < 30 else 1) for i in range(120)])
    assert closed_to(outcome) == 116


@pytest.mark.parametrize("machines", [1, 2, 3, 8])
def test_one_stamp_hours_ahead_closes_nothing_and_is_rejected(machines: int) -> None:
    batches = [second(i, machines) for i in range(40)]
    batches += [[row(2 * HOUR, "m0", a=99.0)]]
    batches += [second(i, machines) for i in range(40, 160)]
    outcome = live(batches)
    assert closed_to(outcome) == 156
    assert [(r.reason, r.origin) for r in outcome.rejected] == [("future", "job/m0")]
    assert outcome.aligner.counters["late"] == 0


@pytest.mark.parametrize("machines", [2, 3, 8])
def test_a_clock_hours_ahead_from_the_start_moves_nothing_for_the_others(machines: int) -> None:
    batches = [[row(2 * HOUR + i, "ahead", a=0.0), *second(i, machines)] for i in range(200)]
    outcome = live(batches)
    assert closed_to(outcome) == 196
    assert {b.machines for b in outcome.blocks} == {tuple(f"m{m}" for m in range(machines))}
    assert {r.reason for r in outcome.rejected} == {"future"}
    assert outcome.aligner.open_rows < 100 + 4 * machines


def test_the_very_first_row_hours_ahead_does_not_start_the_job_there() -> None:
    outcome = live([[row(2 * HOUR, "m0", a=99.0)], *[second(i) for i in range(200)]])
    assert outcome.blocks[0].start_ns == START
    assert closed_to(outcome) == 196


def test_stamps_ahead_of_the_quorum_are_used_when_it_gets_there() -> None:
    batches = [second(i) for i in range(40)]
    batches += [[row(110.25, "m0", a=99.0)]]
    batches += [second(i) for i in range(40, 120)]
    outcome = live(batches)
    finish(outcome)
    assert not outcome.rejected
    assert outcome.machine("a", "m0")[110] == pytest.approx((99.0 + 110.0) / 2)


def test_a_clock_hours_behind_loses_its_own_rows_only() -> None:
    batches = [[*second(i), row(i - 2 * HOUR, "behind", a=0.0)] for i in range(200)]
    outcome = live(batches)
    last = outcome.blocks[-1]
    assert last.machines == ("m0", "m1", "m2", "m3")
    assert closed_to(outcome) == 196
    assert set(outcome.aligner.late_by_machine) == {"behind"}
    seen = [v for b in outcome.blocks if b.start_ns >= START for v in b.machines]
    assert "behind" not in seen


def test_clocks_a_few_seconds_apart_lose_nothing() -> None:
    batches = [[row(i + m * 0.9, f"m{m}", a=float(i)) for m in range(4)] for i in range(100)]
    outcome = live(batches)
    assert not outcome.rejected
    finish(outcome)
    assert outcome.aligner.counters["late"] == 0


def test_a_pause_of_all_machines_leaps_ahead_without_loss() -> None:
    outcome = live([second(i) for i in [*range(60), *range(300, 360)]])
    assert not outcome.rejected
    assert closed_to(outcome) == 356


def test_a_lone_machine_may_pause_too() -> None:
    outcome = live([second(i, 1) for i in [*range(60), *range(300, 360)]])
    assert not outcome.rejected
    assert closed_to(outcome) == 356


def test_an_idle_source_does_not_hold_the_last_ticks() -> None:
    outcome = live([second(i) for i in range(60)])
    assert closed_to(outcome) == 56
    assert silence(outcome, 100) == [30]
    assert closed_to(outcome) == 60
    assert outcome.aligner.rests


def test_an_interrupted_source_goes_on_in_the_middle_of_a_tick() -> None:
    rows = [one for i in range(60) for one in second(i)]
    straight = live([[one] for one in rows])
    for stop in range(100, 108):
        outcome = live([[one] for one in rows[:stop]])
        assert silence(outcome, 29) == []
        for one in rows[stop:]:
            feed(outcome, table([one]))
        assert not outcome.rejected
        assert outcome.ticks() == straight.ticks()


def test_time_in_which_nobody_looked_is_no_silence() -> None:
    outcome = live([second(i) for i in range(60)])
    outcome.aligner.idle(0)
    assert not outcome.aligner.idle(3600 * SECOND)
    assert closed_to(outcome) == 56
    assert silence(outcome, 60, wall_s=3601) == [24]


@pytest.mark.parametrize("stop", range(36))
def test_a_snapshot_knows_how_long_the_source_has_been_silent(stop: int) -> None:
    outcome = live([second(i) for i in range(60)])
    closed = silence(outcome, stop)
    state = outcome.aligner.snapshot()
    outcome.aligner = JobAligner("job", Catalogue.default())
    outcome.aligner.restore(decode_state(encode_state(state)))
    closed += [stop + 1 + s for s in silence(outcome, 40, wall_s=10**9 + stop + 1)]
    assert closed == [30]


def test_what_comes_after_an_interruption_is_not_late() -> None:
    outcome = live([second(i) for i in range(60)])
    assert silence(outcome, 600) == [30]
    for i in range(60, 100):
        feed(outcome, table(second(i)))
    assert not outcome.rejected


def test_rows_in_between_start_the_idle_time_anew() -> None:
    outcome = live([second(i) for i in range(60)])
    assert silence(outcome, 20) == []
    feed(outcome, table(second(60)))
    assert silence(outcome, 29, wall_s=10**9 + 21) == []


def test_an_idle_source_of_a_short_job_gives_its_few_ticks() -> None:
    outcome = live([second(i) for i in range(5)])
    assert silence(outcome, 200) == [150]
    assert sum(b.ticks for b in outcome.blocks) == 5


def test_event_time_does_not_run_ahead_of_the_wall_clock() -> None:
    outcome = align([], flush=False)
    for i in range(100):
        outcome.aligner.add(table(second(i + HOUR)), now_ns=START + i * SECOND)
        outcome.blocks += outcome.aligner.advance()
    assert not outcome.blocks


def test_a_large_batch_is_judged_like_single_rows() -> None:
    rows = [r for i in range(200) for r in second(i, 8 if i < 60 else 3)]
    whole = align([table(rows)])
    single = align(cut(table(rows), [1]))
    assert whole.ticks() == single.ticks()
    assert not whole.rejected
    assert not single.rejected
