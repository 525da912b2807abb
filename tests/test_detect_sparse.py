"""Candidates that last are found without scoring every tick, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from detect.mahalanobis import MahalanobisScorer
from detect.minder import MinderSettings, minder_detector
from detect.scoring import Memoryless, TickScores, TickValues, score_in_chunks
from detect.sparse import SparseScorer
from detect.streaming import ContinuitySettings, StreamingDetector
from ingest.catalogue import Catalogue
from models.denoise import registry
from models.minder_model import MINDER_METRICS
from tests.minder_support import PLAIN
from tests.ticks_support import METRICS, SECOND, START_NS, block_of, cut, faulty_values, feed

CATALOGUE = Catalogue.default()


class Scripted(Memoryless):
    """The candidate of each tick is what ``values[:, 0, 0]`` says; -1 = nobody."""

    name = "scripted"
    history = 0
    ordered = True

    def __init__(self) -> None:
        self.asked: list[int] = []

    def select(self, available: tuple[str, ...]) -> tuple[str, ...]:
        return available

    def channels(self, metrics: tuple[str, ...]) -> tuple[str, ...]:
        return metrics[:1]

    def score(self, ticks: TickValues) -> TickScores:
        return self.score_at(ticks, 0, np.arange(len(ticks.values)))

    def score_at(self, ticks: TickValues, channel: int, at: NDArray[np.int64]) -> TickScores:
        self.asked += at.tolist()
        who = ticks.values[at, channel, 0]
        hits = who[:, None] == np.arange(len(ticks.machines))
        return TickScores(hits[:, None].astype(np.float64), hits[:, None])


def script(runs: list[tuple[int, int]]) -> TickValues:
    """Ticks from ``(candidate, length)``, of three machines."""
    who = np.concatenate([np.full(length, name, dtype=np.float64) for name, length in runs])
    values = np.repeat(who[:, None, None], 3, axis=2)
    return TickValues("job", START_NS, SECOND, ("m",), ("a", "b", "c"), values)


def lasting(hits: NDArray[np.bool_], least: int, joined: bool) -> NDArray[np.bool_]:
    """Hits ``[T, N]`` in runs of at least ``least`` ticks, or at an end if ``joined``."""
    out = np.zeros_like(hits)
    for row in range(hits.shape[1]):
        start = None
        for k in range(len(hits) + 1):
            if k < len(hits) and hits[k, row]:
                start = k if start is None else start
            elif start is not None:
                edge = joined and (start == 0 or k == len(hits))
                out[start:k, row] = edge or k - start >= least
                start = None
    return out


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(-1, 2), st.integers(1, 40)), min_size=1, max_size=20),
    st.integers(1, 25),
    st.booleans(),
)
def test_what_lasts_is_told_exactly(runs: list[tuple[int, int]], least: int, joined: bool) -> None:
    ticks = script(runs)
    inner = Scripted()
    sparse = SparseScorer(inner, lambda _: least, joined=joined).score(ticks)
    assert len(inner.asked) == len(set(inner.asked))
    whole = inner.score(ticks)
    expected = lasting(whole.hits[:, 0], least, joined)
    assert np.array_equal(sparse.hits[:, 0], expected)
    assert np.array_equal(sparse.shares[sparse.hits], whole.shares[sparse.hits])


def test_a_quiet_job_is_hardly_looked_at() -> None:
    inner = Scripted()
    SparseScorer(inner, lambda _: 60).score(script([(-1, 500), (1, 20), (-1, 700)]))
    assert len(inner.asked) < 40


def test_a_sparse_scorer_is_given_all_ticks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detect.scoring._CHUNK_VALUES", 10)
    inner = Scripted()
    score_in_chunks(SparseScorer(inner, lambda _: 60), script([(-1, 600)]))
    assert inner.asked == [*range(0, 600, 60), 599]


@pytest.mark.parametrize("how", [MinderSettings.published(), MinderSettings.best()])
@pytest.mark.parametrize("machines", [4, 14])
def test_minder_alerts_alike_when_only_alerts_are_wanted(
    how: MinderSettings, machines: int
) -> None:
    values = faulty_values(machines, 1500, row=2, onset=300)
    values[0, 1, 50:80] *= 0.5
    values[:, :, 900:] = np.random.default_rng(5).normal(0.5, 0.05, values[:, :, 900:].shape)
    values[1, 3, 700:720] = np.nan
    block = block_of(values)
    said = [
        feed(minder_detector("job", CATALOGUE, how, PLAIN, alerts_only=only), cut(block, pieces))
        for only in (False, True)
        for pieces in ([], [100, 3, 250, 61])
    ]
    assert said[0] == said[1] == said[2] == said[3]
    # Four machines never reach the published threshold.
    assert bool(said[0]) == (machines > 4 or how.ceiling_share is not None)


def test_the_mahalanobis_baseline_alerts_alike_when_only_alerts_are_wanted() -> None:
    block = block_of(faulty_values(20, 500, row=7, onset=100))
    usual = ContinuitySettings()
    whole = StreamingDetector("job", MahalanobisScorer(), CATALOGUE, usual)
    sparse = StreamingDetector(
        "job", SparseScorer(MahalanobisScorer(), usual.least_ticks), CATALOGUE, usual
    )
    said = feed(whole, [block])
    assert [c.alert.machine for c in said] == ["m007"]
    assert feed(sparse, cut(block, [90, 170])) == said


def test_a_denoiser_that_adapts_sees_every_tick() -> None:
    model = replace(PLAIN, denoisers=dict.fromkeys(MINDER_METRICS, registry.denoiser("online")))
    block = block_of(faulty_values(6, 400, row=1, onset=60), metrics=METRICS)
    said = [
        feed(
            minder_detector("job", CATALOGUE, MinderSettings.best(), model, alerts_only=only),
            [block],
        )
        for only in (False, True)
    ]
    assert said[0] == said[1]
