"""What alignment says depends on the set of rows alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.align import AlignSettings, JobAligner
from ingest.catalogue import Catalogue
from tests.align_support import SECOND, Outcome, align, arrived, cut, feed, finish, row, table


@dataclass(frozen=True)
class Life:
    """A job's life in a few numbers; `rows` is a function of them."""

    seed: int
    machines: int
    gpus: int
    cadence: float
    samples: int
    jitter: float
    lost: float
    pause: float

    def rows(self) -> pa.Table:
        """Machines with gauges, a counter with resets, GPUs, gaps, leaving and coming back."""
        rng = np.random.default_rng(self.seed)
        out = []
        length = self.cadence * self.samples
        for m in range(self.machines):
            name = f"node-{rng.integers(0, 100):02d}-{m}"
            joins = rng.choice([0.0, length * 0.3])
            away = rng.uniform(0, length, 2) if rng.random() < 0.5 else np.array([0.0, 0.0])
            total = 0.0
            for i in range(self.samples):
                at = i * self.cadence + rng.uniform(0, self.jitter * self.cadence)
                if i >= self.samples // 2:
                    at += self.pause
                total = 0.0 if rng.random() < 0.05 else total + rng.uniform(0, 100)
                if at < joins or away.min() < at < away.max() or rng.random() < self.lost:
                    continue
                late = rng.normal() if i > self.samples // 3 else None
                out.append(row(at, name, a=rng.normal(), c__counter=total, later=late))
                if rng.random() < 0.3:
                    out.append(row(at, name, other=rng.normal()))
                out += [
                    row(at + 0.01, name, g, p=rng.normal(), a=rng.normal())
                    for g in range(self.gpus)
                    if rng.random() > self.lost
                ]
        if not out:
            out.append(row(0.0, "node-0", a=1.0))
        return table(out)


lives = st.builds(
    Life,
    seed=st.integers(0, 2**32 - 1),
    machines=st.integers(1, 6),
    gpus=st.integers(0, 3),
    cadence=st.sampled_from([0.2, 1.0, 2.0, 10.0]),
    samples=st.integers(1, 60),
    jitter=st.sampled_from([0.0, 0.3, 1.0]),
    lost=st.sampled_from([0.0, 0.1, 0.5]),
    pause=st.sampled_from([0.0, 40.0, 900.0]),
)
SETTINGS = AlignSettings(leave_after_seconds=15.0)
sizes = st.lists(st.integers(1, 200), min_size=1, max_size=5)


def in_order(life: Life) -> Outcome:
    rows = life.rows()
    return align([rows.sort_by("ts")], SETTINGS)


def lateness(outcome: Outcome) -> float:
    """The shortest lateness, in seconds, that any tick of the job allows."""
    return max(3.0, 2.5 * min(b.tick_ns for b in outcome.blocks) / SECOND)


@given(lives, sizes)
@settings(max_examples=20, deadline=None)
def test_the_cut_into_batches_changes_nothing(life: Life, batches: list[int]) -> None:
    rows = life.rows().sort_by("ts")
    assert align(cut(rows, batches), SETTINGS).ticks() == in_order(life).ticks()


@given(lives, sizes, st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_arrival_order_within_the_lateness_changes_nothing(
    life: Life, batches: list[int], seed: int
) -> None:
    whole = in_order(life)
    rows = arrived(life.rows(), lateness(whole), seed)
    mixed = align(cut(rows, batches), SETTINGS)
    assert mixed.ticks() == whole.ticks()
    assert mixed.aligner.counters == whole.aligner.counters


@given(lives, sizes, st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_doubled_rows_change_nothing(life: Life, batches: list[int], seed: int) -> None:
    rows, whole = life.rows(), in_order(life)
    again = rows.take(np.random.default_rng(seed).integers(0, len(rows), len(rows)))
    doubled = arrived(pa.concat_tables([rows, again]), lateness(whole), seed)
    outcome = align(cut(doubled, batches), SETTINGS)
    assert outcome.ticks() == whole.ticks()
    assert outcome.aligner.counters["late"] == 0


@given(lives, sizes, st.integers(0, 2**32 - 1), st.integers(0, 30))
@settings(max_examples=25, deadline=None)
def test_a_restored_snapshot_goes_on_as_if_never_interrupted(
    life: Life, batches: list[int], seed: int, stop: int
) -> None:
    parts = cut(arrived(life.rows(), 3.0, seed), batches)
    straight = align(parts, SETTINGS)
    first = align(parts[:stop], SETTINGS, flush=False)
    state = first.aligner.snapshot()
    resumed = Outcome(JobAligner("job", Catalogue.default(), SETTINGS), first.blocks, [])
    resumed.aligner.restore(state)
    for part in parts[:stop]:
        first.aligner.add(part)
    for part in parts[stop:]:
        feed(resumed, part)
    finish(resumed)
    assert resumed.ticks() == straight.ticks()
    assert resumed.aligner.counters == straight.aligner.counters


@given(lives, sizes, st.integers(0, 2**32 - 1), st.sets(st.integers(0, 100), max_size=3))
@settings(max_examples=25, deadline=None)
def test_interruptions_shorter_than_the_idle_time_change_nothing(
    life: Life, batches: list[int], seed: int, stops: set[int]
) -> None:
    parts = cut(arrived(life.rows(), 3.0, seed), batches)
    outcome, wall = align([], SETTINGS, flush=False), 0
    for number, part in enumerate(parts):
        feed(outcome, part)
        for _ in range(30 if number in stops else 0):  # the first look starts the clock
            wall += SECOND
            outcome.blocks += outcome.aligner.idle(wall)
    finish(outcome)
    straight = align(parts, SETTINGS)
    assert outcome.ticks() == straight.ticks()
    assert outcome.aligner.counters == straight.aligner.counters


@given(lives, sizes, st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_the_watermark_never_goes_back(life: Life, batches: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = life.rows()
    outcome = align([], SETTINGS, flush=False)
    reached = 0
    for part in cut(rows.take(rng.permutation(len(rows))), batches):
        feed(outcome, part)
        assert outcome.aligner.watermark_ns >= reached
        reached = outcome.aligner.watermark_ns


@given(lives, sizes, st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_ticks_follow_each_other_within_a_run_whatever_comes_in(
    life: Life, batches: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = life.rows()
    outcome = align(cut(rows.take(rng.permutation(len(rows))), batches), SETTINGS)
    for before, after in zip(outcome.blocks, outcome.blocks[1:], strict=False):
        assert after.run >= before.run
        assert after.roster >= before.roster
        if after.run == before.run:
            assert after.start_ns == before.start_ns + before.ticks * before.tick_ns
    used = outcome.aligner.counters
    assert used["rows"] == len(rows)
