"""Machines, GPUs and metrics come and go; a long silence ends a run; everything is bounded."""

from __future__ import annotations

import numpy as np
import pytest

from ingest import blocks, job_run
from ingest.align import AlignSettings, JobAligner
from ingest.catalogue import Catalogue
from tests.align_support import Outcome, Row, align, cut, feed, row, table

TICK = AlignSettings(tick_seconds=1.0, leave_after_seconds=30.0)


def span(machine: str, start: int, end: int, gpu: int | None = None) -> list[Row]:
    return [row(i, machine, gpu, a=float(i)) for i in range(start, end)]


def rosters(outcome: Outcome) -> list[tuple[int, tuple[str, ...], int]]:
    """Roster number, machines and ticks, joined where nothing changed."""
    out: list[tuple[int, tuple[str, ...], int]] = []
    for b in outcome.blocks:
        if out and out[-1][0] == b.roster:
            out[-1] = (b.roster, b.machines, out[-1][2] + b.ticks)
        else:
            out.append((b.roster, b.machines, b.ticks))
    return out


def test_a_machine_joins_with_its_first_sample() -> None:
    outcome = align([table(span("b", 0, 20) + span("a", 7, 20))], TICK)
    assert rosters(outcome) == [(1, ("b",), 7), (2, ("a", "b"), 13)]


def test_a_machine_leaves_when_it_was_silent_too_long() -> None:
    outcome = align([table(span("a", 0, 100) + span("b", 0, 20))], TICK)
    assert rosters(outcome) == [(1, ("a", "b"), 50), (2, ("a",), 50)]


def test_a_machine_comes_back_with_nothing_of_its_past() -> None:
    rows = span("a", 0, 100) + span("b", 0, 20) + span("b", 80, 81)
    outcome = align([table(rows)], TICK)
    assert rosters(outcome) == [(1, ("a", "b"), 50), (2, ("a",), 30), (3, ("a", "b"), 20)]
    assert outcome.machine("a", "b")[80] == 80.0


def test_a_pause_of_all_machines_removes_none() -> None:
    rows = [r for m in "ab" for s in (0, 300) for r in span(m, s, s + 20)]
    outcome = align([table(rows)], TICK)
    assert rosters(outcome) == [(1, ("a", "b"), 320)]
    assert np.isnan(outcome.machine("a", "a")[60:300]).all()


def test_a_gpu_that_appears_later_is_a_row_from_then_on() -> None:
    rows = span("m", 0, 20, 0) + span("m", 10, 20, 1)
    blocks = align([table(rows)], TICK).blocks
    gpus = [b.gpu_panel.gpu.tolist() for b in blocks if b.gpu_panel is not None]
    assert gpus[0] == [0]
    assert gpus[-1] == [0, 1]


def test_a_gpu_that_falls_silent_leaves_while_its_machine_stays() -> None:
    rows = span("m", 0, 100, 0) + span("m", 0, 20, 1)
    last = align([table(rows)], TICK).blocks[-1]
    assert last.machines == ("m",)
    assert last.gpu_panel is not None
    assert last.gpu_panel.gpu.tolist() == [0]


def test_the_gpu_panel_is_none_once_all_gpus_are_gone() -> None:
    rows = span("m", 0, 100) + [row(i, "m", 0, p=1.0) for i in range(20)]
    outcome = align([table(rows)], TICK)
    assert outcome.blocks[0].gpu_panel is not None
    assert outcome.blocks[-1].gpu_panel is None


def test_a_metric_that_appears_later_changes_the_roster_then() -> None:
    rows = span("m", 0, 20) + [row(i, "m", b=1.0) for i in range(12, 20)]
    blocks = align([table(rows)], TICK).blocks
    assert blocks[0].machine_panel.metrics == ("a",)
    assert blocks[-1].machine_panel.metrics == ("a", "b")
    assert sum(b.ticks for b in blocks if b.roster == 1) == 12


def test_a_column_without_any_value_is_no_metric() -> None:
    rows = [{**r, "b": None} for r in span("m", 0, 5)]
    assert align([table(rows)], TICK).blocks[0].machine_panel.metrics == ("a",)


def test_a_long_silence_of_all_ends_the_run_and_the_next_starts_clean() -> None:
    rows = span("a", 0, 20) + span("b", 0, 20) + span("b", 1000, 1060)
    outcome = align(cut(table(rows).sort_by("ts"), [3]), TICK)
    runs = [(b.run, b.machines) for b in outcome.blocks]
    assert runs[0] == (0, ("a", "b"))
    assert runs[-1] == (1, ("b",))
    assert sum(b.ticks for b in outcome.blocks if b.run == 0) == 620
    assert sum(b.ticks for b in outcome.blocks if b.run == 1) == 60
    assert [b.roster for b in outcome.blocks] == sorted(b.roster for b in outcome.blocks)


def test_a_long_silence_costs_no_memory_and_reads_like_any_other_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [r for m in "abc" for s in (0, 500) for r in span(m, s, s + 5)]
    rows += [row(s, "a", 0, p=1.0) for s in (0, 1, 2, 500)]
    straight = align([table(rows)], TICK)
    monkeypatch.setattr(job_run, "_MOST_CELLS", 64)
    monkeypatch.setattr(blocks, "_MOST_CELLS", 64)
    pieces = align([table(rows)], TICK)
    assert pieces.ticks() == straight.ticks()
    assert any(0 in b.machine_panel.values.strides for b in pieces.blocks if b.ticks > 1)


def test_two_machines_of_which_one_is_slower_have_the_faster_ones_tick() -> None:
    rows = [row(i, "fast", a=1.0) for i in range(600)]
    rows += [row(i * 30.0, "slow", a=1.0) for i in range(20)]
    assert align([table(rows).sort_by("ts")]).aligner.tick_ns == 10**9


def test_a_new_run_has_a_cadence_of_its_own() -> None:
    rows = [row(i, m, a=1.0) for i in range(60) for m in "ab"]
    rows += [row(2000 + 10 * i, m, a=1.0) for i in range(40) for m in "ab"]
    outcome = align([table(rows)])
    runs = [(b.run, b.tick_ns // 10**9) for b in outcome.blocks]
    assert (runs[0], runs[-1]) == ((0, 1), (1, 10))


def test_no_rate_spans_two_runs() -> None:
    rows = [row(i, "m", c__counter=10.0 * i, a=0.0) for i in (0, 1, 2, 1000, 1001)]
    outcome = align([table(rows)], AlignSettings(tick_seconds=1.0, hold_seconds=5000.0))
    first = next(b for b in outcome.blocks if b.run == 1)
    assert first.machine_panel.metrics == ("a",)


def test_the_settings_bound_the_machines() -> None:
    aligner = JobAligner("job", Catalogue.default(), AlignSettings(max_machines=2))
    rejected = aligner.add(table([row(0, m, a=1.0) for m in "abcd"]))
    assert [(r.reason, r.origin) for r in rejected] == [
        ("too_many_machines", "job/c"),
        ("too_many_machines", "job/d"),
    ]
    assert aligner.counters["too_many_machines"] == 2


def test_machines_that_left_make_room_for_others() -> None:
    settings = AlignSettings(tick_seconds=1.0, leave_after_seconds=30.0, max_machines=3)
    outcome = align([], settings, flush=False)
    for i in range(1000):
        feed(outcome, table([row(i, "stays", a=1.0), row(i, f"pod-{i // 100}", a=float(i))]))
    assert not outcome.rejected
    assert outcome.blocks[-1].machines == ("pod-9", "stays")


def test_the_settings_bound_the_metrics() -> None:
    aligner = JobAligner("job", Catalogue.default(), AlignSettings(max_metrics=2))
    many = table([row(0, "m", a=1.0, b=1.0, c=1.0)])
    assert [(r.reason, r.detail) for r in aligner.add(many)] == [
        ("too_many_metrics", "c left out: more than 2 metrics")
    ]
    assert not aligner.add(many)


def test_the_settings_bound_the_rows_that_wait() -> None:
    aligner = JobAligner("job", Catalogue.default(), AlignSettings(max_open_rows=100))
    rejected = aligner.add(table([row(i / 1000, "m", a=1.0) for i in range(150)]))
    assert [(r.reason, r.rows) for r in rejected] == [("too_many_rows", 50)]
    assert aligner.open_rows == 100


@pytest.mark.parametrize("gpu", [-2, 128, 2**31 - 1])
def test_a_gpu_index_that_cannot_be_is_rejected(gpu: int) -> None:
    aligner = JobAligner("job", Catalogue.default())
    rejected = aligner.add(table([row(0, "m", gpu, a=1.0), row(0, "m", 0, a=1.0)]))
    assert [(r.reason, r.rows) for r in rejected] == [("bad_gpu", 1)]
    assert aligner.open_rows == 1


def test_rows_that_wait_do_not_grow_with_the_length_of_the_job() -> None:
    outcome = align([], flush=False)
    most = 0
    for i in range(2000):
        feed(outcome, table([row(i, m, a=1.0) for m in "abcd"]))
        outcome.blocks.clear()
        if i > 60:
            most = max(most, outcome.aligner.open_rows)
    assert most <= 4 * 5


def test_a_snapshot_before_advance_is_refused() -> None:
    aligner = JobAligner("job", Catalogue.default(), TICK)
    aligner.add(table(span("m", 0, 60)))
    with pytest.raises(RuntimeError, match="advance"):
        aligner.snapshot()


@pytest.mark.parametrize("change", [{"version": 99}, {"job": "another"}])
def test_a_foreign_snapshot_is_refused(change: dict[str, object]) -> None:
    aligner = JobAligner("job", Catalogue.default())
    with pytest.raises(ValueError, match="not an aligner state of job"):
        aligner.restore({**aligner.snapshot(), **change})


def test_an_empty_table_changes_nothing() -> None:
    aligner = JobAligner("job", Catalogue.default())
    assert aligner.add(table([])) == []
    assert aligner.advance() == []
    assert aligner.flush() == []


def test_a_snapshot_holds_plain_values_only() -> None:
    rows = [
        row(i, m, g, a=1.0, c__counter=float(i)) for i in range(90) for m in "ab" for g in (0, 1)
    ]
    outcome = align([table(rows)], TICK, flush=False)
    outcome.aligner.add(table([row(3, "a", a=1.0)]))
    pending: list[object] = [outcome.aligner.snapshot()]
    seen = 0
    while pending:
        value = pending.pop()
        seen += 1
        if isinstance(value, dict):
            assert all(type(key) is str for key in value)
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        else:
            plain = value is None or type(value) in (bool, int, float, str, np.ndarray)
            assert plain, type(value)
    assert seen > 50
