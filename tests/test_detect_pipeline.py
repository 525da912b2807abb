"""One path from samples to alert changes: jobs apart, runs apart, interrupted or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from detect.alert import AlertChange
from detect.detector import JobDetector
from detect.pipeline import Pipeline, PipelineSettings, by_job
from detect.registry import make_detector
from detect.snapshot import decode_state, encode_state
from ingest.catalogue import Catalogue
from ingest.simulate import FaultSpec, JobSpec, simulate
from tests.ticks_support import SECOND

CATALOGUE = Catalogue.default()
CRASH = FaultSpec("gpu_card_drop", (2,), onset_s=480.0, manifestation="crash", halt_after_s=None)
SPEC = JobSpec(machines=4, gpus_per_machine=2, minutes=10.0, faults=(CRASH,))


def detector(job: str) -> JobDetector:
    return make_detector("evidence", job, catalogue=CATALOGUE)


def pipeline(settings: PipelineSettings | None = None) -> Pipeline:
    return Pipeline(CATALOGUE, detector, settings or PipelineSettings(keep_history=False))


@pytest.fixture(scope="module")
def crash() -> pa.Table:
    """Ten minutes of four machines, one of which crashes after eight."""
    return simulate(SPEC, 5).table.sort_by("ts")


@pytest.fixture(scope="module")
def uninterrupted(crash: pa.Table) -> list[AlertChange]:
    """What is said of it in one piece."""
    return fed(pipeline(), [crash])


def fed(p: Pipeline, tables: Sequence[pa.Table]) -> list[AlertChange]:
    """All changes, to the end."""
    changes = [c for table in tables for c in p.feed(table).changes]
    return changes + p.finish().changes


def pieces(table: pa.Table, rows: int) -> list[pa.Table]:
    return [table.slice(i, rows) for i in range(0, table.num_rows, rows)]


def later(table: pa.Table, seconds: int, job: str | None = None) -> pa.Table:
    """The same samples at another time, or of another job."""
    moved = pc.cast(pc.add(pc.cast(table["ts"], pa.int64()), seconds * SECOND), table["ts"].type)
    table = table.set_column(0, table.field("ts"), moved)
    if job is not None:
        table = table.set_column(1, table.field("job"), pa.array([job] * table.num_rows))
    return table


def named(changes: Sequence[AlertChange]) -> list[str | None]:
    return [c.alert.machine for c in changes if c.kind == "opened"]


def test_the_crashed_machine_is_named(uninterrupted: list[AlertChange]) -> None:
    label = sorted({c.alert.machine for c in uninterrupted if c.kind == "opened"}, key=str)
    assert label == [simulate(replace(SPEC, minutes=0.1), 5).label["faulty_machines"][0]]


def test_how_samples_come_in_batches_changes_nothing(
    crash: pa.Table, uninterrupted: list[AlertChange]
) -> None:
    assert fed(pipeline(), pieces(crash, 237)) == uninterrupted != []


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_snapshot_midway_through_bytes_equals_no_interruption(
    crash: pa.Table, uninterrupted: list[AlertChange], share: float
) -> None:
    cut = int(share * crash.num_rows)
    first = pipeline()
    changes = list(first.feed(crash.slice(0, cut)).changes)
    stored = encode_state(first.snapshot("train"))
    second = pipeline()
    second.restore("train", decode_state(stored))
    assert encode_state(second.snapshot("train")) == stored
    assert changes + fed(second, [crash.slice(cut)]) == uninterrupted


def test_a_job_does_not_notice_the_others(
    crash: pa.Table, uninterrupted: list[AlertChange]
) -> None:
    other = later(crash, 37, job="other")
    both = pa.concat_tables([crash, other]).sort_by("ts")
    changes = fed(pipeline(), pieces(both, 3000))
    assert [c for c in changes if c.alert.job == "train"] == uninterrupted
    assert named([c for c in changes if c.alert.job == "other"]) == named(uninterrupted)


def test_a_new_run_starts_clean(crash: pa.Table, uninterrupted: list[AlertChange]) -> None:
    day = 86_400
    changes = fed(pipeline(), [crash, later(crash, day)])
    first, second = (c for c in changes if c.kind == "opened")
    assert first == uninterrupted[0]
    assert second.at_ns - day * SECOND == first.at_ns
    assert second.alert.evidence[0].value == first.alert.evidence[0].value
    assert second.alert.id != first.alert.id
    ended = next(c for c in changes if c.kind == "resolved")
    assert ended.alert.id == first.alert.id
    assert ended.at_ns < second.at_ns


def test_rows_of_jobs_beyond_the_bound_are_refused_with_their_job(crash: pa.Table) -> None:
    p = pipeline(PipelineSettings(max_jobs=1, keep_history=False))
    few = crash.slice(0, 20)
    p.feed(few)
    (refused,) = p.feed(pa.concat_tables([few, later(few, 0, job="second")])).rejected
    assert (refused.reason, refused.origin) == ("too_many_jobs", "job 'second'")
    assert [j.job for j in p.jobs()] == ["train"]


def test_a_job_silent_by_the_wall_clock_is_forgotten(crash: pa.Table) -> None:
    p = pipeline(PipelineSettings(keep_history=False))
    p.feed(crash.slice(0, 400))
    now = 2_000_000_000 * SECOND
    p.advance(now)
    p.advance(now + 3_500 * SECOND)
    assert [j.state for j in p.jobs()] == ["running"]
    p.advance(now + 3_700 * SECOND)
    assert p.jobs() == []


def test_a_snapshot_of_another_version_is_refused(crash: pa.Table) -> None:
    p = pipeline()
    p.feed(crash.slice(0, 20))
    state = p.snapshot("train")
    with pytest.raises(ValueError, match="version 99"):
        pipeline().restore("train", {**state, "version": 99})
    with pytest.raises(ValueError, match="version 99"):
        pipeline().restore("train", {**state, "detector": {**state["detector"], "version": 99}})


def test_history_holds_the_ticks_and_scores_that_were_judged(crash: pa.Table) -> None:
    p = pipeline(PipelineSettings(keep_history=True))
    for part in pieces(crash.slice(0, 800), 100):
        p.feed(part)
    p.finish()
    history = p.history("train")
    assert history is not None
    ticks = p.jobs()[0].ticks
    assert history.metrics(0, 1 << 62).times_ns.size == ticks > 100
    assert history.scores(0, 1 << 62).times_ns.size == ticks
    assert sum(f.scores.shape[1] for _, f in p.take_frames()) == ticks
    assert p.take_frames() == []


def test_splitting_by_job_keeps_each_jobs_order() -> None:
    rng = np.random.default_rng(0)
    jobs = rng.choice(["c", "a", "b"], 200)
    table = pa.table({"job": jobs.tolist(), "n": np.arange(200)})
    parts = dict(by_job(table))
    assert list(parts) == ["a", "b", "c"]
    for job, part in parts.items():
        assert part["n"].to_pylist() == np.flatnonzero(jobs == job).tolist()
    assert list(by_job(table.slice(0, 0))) == []
