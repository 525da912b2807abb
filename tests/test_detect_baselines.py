"""The Mahalanobis baseline, the ratio rule, the floors, and the frame they run in."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from detect.floors import NullScorer, RandomScorer
from detect.mahalanobis import MahalanobisScorer, moments
from detect.minder import MinderSettings
from detect.ratio_rule import RatioScorer
from detect.registry import DETECTORS, make_detector
from detect.scoring import TickScorer, TickValues, score_in_chunks
from detect.streaming import ContinuitySettings, StreamingDetector, ticks_beyond
from ingest.catalogue import Catalogue
from models.evidence_model import EvidenceModel
from tests.ticks_support import (
    METRICS,
    SECOND,
    START_NS,
    block_of,
    faulty_values,
    healthy_values,
    machine_names,
)

CATALOGUE = Catalogue.default()


def ticks_of(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> TickValues:
    """``[M, N, T]`` as a scorer gets it."""
    metrics = METRICS[: values.shape[0]]
    machines = machine_names(values.shape[1])
    return TickValues("job", START_NS, SECOND, metrics, machines, np.moveaxis(values, 2, 0))


def alerts(
    scorer: TickScorer, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> list[str]:
    """Machines alerted on a block, in order."""
    detector = StreamingDetector("job", scorer, CATALOGUE)
    changes = detector.update(block_of(values))
    return [c.alert.machine or "" for c in changes if c.kind == "opened"]


def test_the_ratio_rule_names_a_machine_beyond_the_factor_either_way() -> None:
    for factor in (0.6, 1.6):
        assert alerts(RatioScorer(1.5), faulty_values(5, 500, 1, 100, factor)) == ["m001"]
    assert alerts(RatioScorer(1.5), faulty_values(5, 500, 1, 100, 0.8)) == []


def test_the_ratio_rule_waits_longer_than_four_minutes() -> None:
    detector = StreamingDetector("job", RatioScorer(), CATALOGUE)
    (change,) = detector.update(block_of(faulty_values(5, 500, 1, 100)))
    assert (change.at_ns - START_NS) / SECOND == 341.0
    assert {e.metric for e in change.alert.evidence} == set(METRICS)
    assert sum(e.share for e in change.alert.evidence) == pytest.approx(1.0)


def test_the_ratio_share_is_one_at_the_factor_and_zero_at_the_median() -> None:
    values = np.array([[[2.0], [2.0], [3.0], [0.5], [2.0]]])
    shares = RatioScorer(1.5).score(ticks_of(values)).shares[0, 0]
    assert shares.tolist() == pytest.approx([0.0, 0.0, 1.0, np.log(4) / np.log(1.5), 0.0])


def test_a_median_of_zero_has_no_ratio() -> None:
    values = np.zeros((1, 5, 3))
    values[0, 2] = 7.0
    scores = RatioScorer().score(ticks_of(values))
    assert not scores.hits.any()
    assert np.isnan(scores.shares).all()


def test_a_machine_at_zero_is_beyond_any_factor() -> None:
    values = np.ones((1, 5, 2))
    values[0, 2] = 0.0
    assert RatioScorer().score(ticks_of(values)).hits[:, 0, 2].all()


def test_a_factor_that_says_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above 1"):
        RatioScorer(1.0)


def test_moments_are_those_of_scipy() -> None:
    window = np.random.default_rng(0).gamma(2.0, 1e9, (3, 5, 60))
    of_first = moments(window)[2].reshape(3, 4)
    for metric in range(3):
        series = window[metric, 2]
        expected = [series.mean(), series.var(), stats.skew(series), stats.kurtosis(series) + 3.0]
        np.testing.assert_allclose(of_first[metric], expected, rtol=1e-9)


def test_moments_of_a_constant_window_are_its_level_and_zeros() -> None:
    assert moments(np.full((1, 2, 60), 4.0)).tolist() == [[4.0, 0.0, 0.0, 0.0]] * 2


def test_moments_of_a_window_with_a_gap_are_missing() -> None:
    window = np.random.default_rng(0).normal(size=(2, 3, 60))
    window[1, 2, 7] = np.nan
    out = moments(window).reshape(3, 2, 4)
    assert np.isnan(out[2, 1]).all()
    assert np.isfinite(np.delete(out.reshape(6, 4), 5, axis=0)).all()


def test_the_mahalanobis_baseline_names_the_odd_machine_of_a_large_job() -> None:
    assert alerts(MahalanobisScorer(), faulty_values(40, 450, 7, 100)) == ["m007"]


def test_the_mahalanobis_alert_lists_the_metrics_that_differ_most() -> None:
    values = healthy_values(40, 450)
    values[1, 7, 100:] *= 0.2
    detector = StreamingDetector("job", MahalanobisScorer(), CATALOGUE)
    (change,) = detector.update(block_of(values))
    evidence = change.alert.evidence
    assert (evidence[0].metric, evidence[0].direction) == ("gpu_power_watts", "low")
    assert [e.share for e in evidence] == sorted((e.share for e in evidence), reverse=True)


def test_whitened_features_have_unit_variance_in_every_direction() -> None:
    features = np.random.default_rng(3).normal(size=(60, 8)) @ np.diag(
        [1, 1e6, 3, 1, 1, 1e-3, 2, 9]
    )
    white = MahalanobisScorer(components=4)._whitened(features)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(4), atol=1e-9)


def test_the_mahalanobis_baseline_shares_minder_s_threshold() -> None:
    scorer = MahalanobisScorer(MinderSettings(threshold=100.0))
    assert alerts(scorer, faulty_values(40, 450, 7, 100)) == []


def test_the_null_detector_never_alerts() -> None:
    assert alerts(NullScorer(), faulty_values(12, 900, 3, 100, 0.0)) == []


def test_the_random_detector_keeps_its_rate() -> None:
    # A week of minutes at 200 alerts a week: 10 080 draws of 1/50, 200 +- 14.
    ticks = TickValues("job", 0, 60 * SECOND, ("m",), ("a", "b"), np.zeros((10_080, 1, 2)))
    hits = RandomScorer(200.0, seed=1).score(ticks).hits
    assert 150 <= hits.sum() <= 250
    assert hits.sum(axis=2).max() == 1
    assert 60 <= hits[:, 0, 0].sum() <= 140


def test_the_random_detector_depends_on_seed_and_job_alone() -> None:
    def draw(job: str, seed: int) -> list[int]:
        ticks = TickValues(job, 0, 60 * SECOND, ("m",), tuple("abcdef"), np.zeros((2_000, 1, 6)))
        return [int(at) for at in np.flatnonzero(RandomScorer(500.0, seed).score(ticks).hits)]

    assert draw("a", 0) == draw("a", 0)
    assert draw("a", 0) != draw("b", 0)
    assert draw("a", 0) != draw("a", 1)


@pytest.mark.parametrize(
    ("seconds", "tick_ns", "ticks"),
    [(240.0, SECOND, 241), (240.0, 15 * SECOND, 17), (0.0, SECOND, 1), (1.0, SECOND // 10, 11)],
)
def test_continuity_is_more_than_its_seconds(seconds: float, tick_ns: int, ticks: int) -> None:
    assert ticks_beyond(seconds, tick_ns) == ticks


def test_scoring_in_pieces_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = ticks_of(healthy_values(6, 200))
    for scorer in (RatioScorer(), MahalanobisScorer()):
        whole = scorer.score(ticks)
        monkeypatch.setattr("detect.scoring._CHUNK_VALUES", 9_000)
        parts = score_in_chunks(scorer, ticks)
        assert np.array_equal(parts.shares, whole.shares, equal_nan=True)
        assert np.array_equal(parts.hits, whole.hits)


def test_ticks_missing_between_blocks_start_the_continuity_again() -> None:
    values = faulty_values(5, 500, 1, 100)
    detector = StreamingDetector("job", RatioScorer(), CATALOGUE)
    assert detector.update(block_of(values[:, :, :300])) == []
    late = START_NS + 310 * SECOND
    (change,) = detector.update(block_of(faulty_values(5, 300, 1, 0), start_ns=late))
    assert change.at_ns == late + 241 * SECOND


def test_a_new_run_resolves_what_was_open_and_starts_clean() -> None:
    detector = StreamingDetector("job", RatioScorer(), CATALOGUE)
    (opened,) = detector.update(block_of(faulty_values(5, 500, 1, 100)))
    later = START_NS + 9_000 * SECOND
    changes = detector.update(block_of(faulty_values(5, 300, 1, 0), start_ns=later, run=1))
    assert [(c.kind, c.at_ns) for c in changes] == [
        ("resolved", START_NS + 500 * SECOND),
        ("opened", later + 241 * SECOND),
    ]
    assert changes[0].alert.id == opened.alert.id != changes[1].alert.id


def test_the_same_fault_has_the_same_id_in_another_process() -> None:
    ids = set()
    for _ in range(2):
        detector = StreamingDetector("job", RatioScorer(), CATALOGUE)
        ids |= {c.alert.id for c in detector.update(block_of(faulty_values(5, 500, 1, 100)))}
    assert len(ids) == 1


def test_an_alert_clears_only_after_its_hold_time() -> None:
    values = faulty_values(5, 900, 1, 100)
    values[:, :, 450:] = healthy_values(5, 450)
    settings = ContinuitySettings(clear_seconds=100.0)
    changes = StreamingDetector("job", RatioScorer(), CATALOGUE, settings).update(block_of(values))
    assert [(c.kind, (c.at_ns - START_NS) / SECOND) for c in changes] == [
        ("opened", 341.0),
        ("resolved", 550.0),
    ]


def test_an_unknown_detector_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown detector 'mindre'; there are evidence, minder"):
        make_detector("mindre", "job", catalogue=CATALOGUE)


def test_the_model_of_another_detector_is_refused() -> None:
    with pytest.raises(ValueError, match="EvidenceModel is not a MinderModel"):
        make_detector("minder", "job", catalogue=CATALOGUE, model=EvidenceModel())


@pytest.mark.parametrize("name", DETECTORS)
def test_every_registered_detector_can_be_made(name: str) -> None:
    assert make_detector(name, "job", catalogue=CATALOGUE).take_scores() == []
