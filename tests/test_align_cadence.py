"""The tick of a job follows from its first samples."""

from __future__ import annotations

import numpy as np
import pytest

from ingest.align import AlignSettings
from ingest.cadence import LADDER_NS, snap
from tests.align_support import SECOND, START, Row, align, cut, row, table


def stream(
    cadence: float, seconds: float, *, machines: int = 4, jitter: float = 0.0, lost: float = 0.0
) -> list[Row]:
    """Machines that sample one metric with phases of their own."""
    rng = np.random.default_rng(1)
    out = []
    for m in range(machines):
        phase = rng.uniform(0, cadence)
        for i in range(int(seconds / cadence)):
            if rng.random() >= lost:
                at = i * cadence + phase + rng.uniform(-jitter, jitter) * cadence / 2
                out.append(row(max(at, 0), f"m{m}", a=float(i)))
    return sorted(out, key=lambda r: str(r["ts"]))


@pytest.mark.parametrize("cadence", [ns / SECOND for ns in LADDER_NS])
@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
def test_the_tick_is_the_cadence_but_at_least_a_second(cadence: float, jitter: float) -> None:
    outcome = align([table(stream(cadence, max(20.0, 12 * cadence), jitter=jitter))])
    tick = outcome.aligner.tick_ns
    assert tick is not None
    if jitter < 1.0:
        assert tick == max(cadence, 1.0) * SECOND
    else:
        assert 0.6 * max(cadence, 1) <= tick / SECOND <= 1.6 * max(cadence, 1)


def test_a_third_of_the_samples_lost_does_not_change_the_cadence() -> None:
    outcome = align([table(stream(10.0, 300.0, machines=8, lost=0.3))])
    assert outcome.aligner.tick_ns == 10 * SECOND


@pytest.mark.parametrize(
    ("measured", "rung"), [(0.97, 1), (1.3, 1), (1.6, 2), (14.2, 15), (90, 60)]
)
def test_a_measured_interval_snaps_to_the_nearest_rung(measured: float, rung: int) -> None:
    assert snap(measured * SECOND) == rung * SECOND


def test_the_fastest_of_several_sources_sets_the_tick() -> None:
    rows = [row(i, f"m{m}", a=1.0) for i in range(120) for m in range(3)]
    rows += [row(i * 10 + 0.3, f"m{m}", b=1.0) for i in range(12) for m in range(3)]
    rows += [row(i * 30 + 0.7, f"m{m}", c=1.0) for i in range(4) for m in range(3)]
    assert align([table(rows)]).aligner.tick_ns == SECOND


def test_one_machine_that_samples_faster_than_all_others_does_not_set_the_tick() -> None:
    rows = stream(10.0, 300.0, machines=8) + [row(i * 0.5, "odd", a=1.0) for i in range(600)]
    assert align([table(rows).sort_by("ts")]).aligner.tick_ns == 10 * SECOND


def test_nothing_is_closed_before_the_cadence_is_known() -> None:
    rows = table(stream(1.0, 60.0)).sort_by("ts")
    outcome = align(cut(rows, [4]), flush=False)
    assert outcome.blocks[0].start_ns == START
    before = align(cut(rows.slice(0, 4 * 10), [4]), flush=False)
    assert not before.blocks
    assert before.aligner.tick_ns is None


@pytest.mark.parametrize(("cadence", "wait"), [(1.0, 13), (10.0, 110), (60.0, 480)])
def test_the_first_tick_comes_after_a_bounded_wait(cadence: float, wait: int) -> None:
    rows = [r for r in stream(cadence, 900.0) if int(str(r["ts"])) < START + wait * SECOND]
    assert align(cut(table(rows), [3]), flush=False).blocks


def test_a_single_sample_each_is_a_tick_of_a_second_at_the_end_of_input() -> None:
    outcome = align([table([row(0, "a", x=1.0), row(0.2, "b", x=2.0)])])
    assert [b.ticks for b in outcome.blocks] == [1]
    assert outcome.aligner.tick_ns == SECOND


def test_samples_of_less_than_a_second_are_averaged() -> None:
    rows = [row(i / 10, "m", a=float(i)) for i in range(200)]
    outcome = align([table(rows)])
    assert outcome.machine("a", "m") == [10 * k + 4.5 for k in range(20)]


def test_a_tick_may_be_fixed() -> None:
    outcome = align([table(stream(1.0, 60.0))], AlignSettings(tick_seconds=5.0))
    assert {b.tick_ns for b in outcome.blocks} == {5 * SECOND}
    assert sum(b.ticks for b in outcome.blocks) == 12
