"""Minder: similarity, candidate, continuity, metric order, and when it is called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform

from detect.alert import AlertChange
from detect.minder import MinderScorer, MinderSettings, candidates, minder_detector
from detect.scoring import TickValues
from detect.similarity import distance_sums, distance_zscores
from ingest.catalogue import Catalogue
from ingest.ticks import TickBlock
from models.denoise import registry
from models.minder_model import MINDER_METRICS, MinderModel, shipped_minder_model
from tests.minder_support import PLAIN
from tests.ticks_support import METRICS, SECOND, START_NS, block_of, faulty_values, healthy_values

CATALOGUE = Catalogue.default()


EVERY_TICK = MinderSettings(threshold=3.0, ceiling_share=0.9, call_seconds=None)


def run(
    block: TickBlock, how: MinderSettings, model: MinderModel = PLAIN
) -> list[tuple[str, str | None, float]]:
    """Kind, machine and seconds after the start of each change."""
    return [said(c) for c in minder_detector("job", CATALOGUE, how, model).update(block)]


def said(change: AlertChange) -> tuple[str, str | None, float]:
    return change.kind, change.alert.machine, (change.at_ns - START_NS) / SECOND


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**32))
def test_sums_are_those_of_the_full_distance_matrix(rows: int, width: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(rows, width))
    np.testing.assert_allclose(
        distance_sums(vectors), squareform(pdist(vectors)).sum(axis=1), atol=1e-9
    )


def test_sums_of_many_rows_are_made_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 8))
    whole = distance_sums(vectors)
    monkeypatch.setattr("detect.similarity._BLOCK", 120)
    assert np.array_equal(distance_sums(vectors), whole)


@pytest.mark.parametrize("count", [4, 8, 100])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_one_clean_outlier_scores_the_root_of_n_minus_one_whatever_its_size(
    count: int, size: float
) -> None:
    vectors = np.zeros((count, 8))
    vectors[2] = size
    scores = distance_zscores(vectors)
    assert scores[2] == pytest.approx(np.sqrt(count - 1))
    assert scores.argmax() == 2


def test_equal_machines_score_zero() -> None:
    assert distance_zscores(np.full((6, 8), 0.3)).tolist() == [0.0] * 6


def test_machines_that_differ_by_rounding_only_score_zero() -> None:
    vectors = np.tile(np.random.default_rng(1).normal(size=8), (7, 1))
    vectors[3:] += 5.0
    vectors[:3] -= 5.0
    assert np.abs(distance_zscores(np.vstack([vectors[:3], vectors[4:]]))).max() == 0.0


def test_a_machine_without_data_takes_no_part() -> None:
    vectors = np.random.default_rng(2).normal(size=(9, 8))
    gappy = np.insert(vectors, 4, np.nan, axis=0)
    scores = distance_zscores(gappy)
    assert np.isnan(scores[4])
    assert np.array_equal(np.delete(scores, 4), distance_zscores(vectors))


def test_only_the_largest_score_above_the_threshold_is_a_candidate() -> None:
    found = candidates(np.array([[0.1, 3.5, 3.2, 0.0], [0.1, 2.9, 1.0, 0.0]]), MinderSettings())
    assert found.hits.tolist() == [[False, True, False, False], [False] * 4]
    assert found.shares[0].tolist() == pytest.approx([0.1 / 3, 3.5 / 3, 3.2 / 3, 0.0])


def test_a_scaled_threshold_is_a_share_of_what_n_machines_allow() -> None:
    how = MinderSettings(threshold=3.0, ceiling_share=0.9)
    assert candidates(np.array([1.6, -0.5, -0.5, -0.6]), how).hits[0]
    assert not candidates(np.array([1.5, -0.5, -0.5, -0.5]), how).hits.any()
    many = np.zeros(100)
    many[0] = 3.1
    assert candidates(many, how).hits[0]


@pytest.mark.parametrize("count", [1, 2])
def test_nobody_stands_out_among_fewer_than_three(count: int) -> None:
    how = MinderSettings(threshold=0.1, ceiling_share=0.1)
    assert not candidates(np.ones(count), how).hits.any()


def test_the_published_settings_name_the_machine_at_the_call_after_four_minutes() -> None:
    # Calls fall 400 and 880 s after the start; the fault is 4 minutes old at 441 s.
    block = block_of(faulty_values(12, 900, row=4, onset=200))
    assert run(block, MinderSettings.published()) == [("opened", "m004", 880.0)]


def test_the_published_settings_name_it_at_once_if_the_call_is_late_enough() -> None:
    block = block_of(faulty_values(12, 500, row=4, onset=120))
    assert run(block, MinderSettings.published()) == [("opened", "m004", 400.0)]


def test_judged_at_every_tick_the_alert_comes_right_after_four_minutes() -> None:
    block = block_of(faulty_values(12, 900, row=4, onset=200))
    assert run(block, EVERY_TICK) == [("opened", "m004", 441.0)]


@pytest.mark.parametrize("count", [4, 8, 10])
def test_the_published_threshold_is_dead_below_eleven_machines(count: int) -> None:
    block = block_of(faulty_values(count, 900, row=1, onset=100))
    assert run(block, MinderSettings.published()) == []


def test_the_scaled_threshold_works_with_four_machines() -> None:
    block = block_of(faulty_values(4, 500, row=1, onset=100))
    assert run(block, EVERY_TICK) == [("opened", "m001", 341.0)]


def test_a_healthy_job_is_quiet() -> None:
    block = block_of(healthy_values(16, 900))
    assert run(block, MinderSettings.published()) == []
    assert run(block, EVERY_TICK) == []


def test_a_break_of_one_tick_starts_the_four_minutes_again() -> None:
    # Without noise: a healthy tick makes all machines equal but for the window that passes it.
    values = np.ones((3, 12, 700))
    values[:, 4, 100:] = 0.3
    values[:, 4, 300:312] = 1.0
    assert run(block_of(values), EVERY_TICK) == [("opened", "m004", 553.0)]


def test_the_alert_ends_when_the_machine_is_like_its_peers_again() -> None:
    values = faulty_values(12, 900, row=4, onset=100)
    values[:, :, 500:] = healthy_values(12, 400)
    changes = run(block_of(values), EVERY_TICK)
    assert [c[:2] for c in changes] == [("opened", "m004"), ("resolved", "m004")]
    # 4 minutes after the last window that still saw the fault, or a little later by noise.
    assert 740.0 <= changes[1][2] <= 800.0


def test_the_published_alert_ends_with_the_first_call_that_does_not_find_it() -> None:
    values = faulty_values(12, 2000, row=4, onset=100)
    values[:, :, 500:] = healthy_values(12, 1500)
    assert run(block_of(values), MinderSettings.published()) == [
        ("opened", "m004", 400.0),
        ("resolved", "m004", 1360.0),
    ]


def test_the_first_metric_in_the_learned_order_decides() -> None:
    values = healthy_values(12, 500)
    values[2, 4, 100:] *= 0.3
    values[1, 7, 100:] *= 0.3
    block = block_of(values)
    assert METRICS[1:] == ("gpu_power_watts", "gpu_tensor_active_ratio")
    for order, machine in ((METRICS[1:], "m007"), (METRICS[:0:-1], "m004")):
        model = replace(PLAIN, metrics=order)
        for how in (MinderSettings.published(), EVERY_TICK):
            changes = minder_detector("job", CATALOGUE, how, model).update(block)
            assert [c.alert.machine for c in changes] == [machine]
            assert changes[0].alert.evidence[0].metric == order[0]


def test_the_alert_states_onset_and_evidence_against_the_peers() -> None:
    block = block_of(faulty_values(12, 500, row=4, onset=150))
    (change,) = minder_detector("job", CATALOGUE, EVERY_TICK, PLAIN).update(block)
    alert = change.alert
    assert alert.onset_ns == START_NS + 150 * SECOND
    assert alert.verdict == "machine"
    (evidence,) = alert.evidence
    assert (evidence.metric, evidence.unit, evidence.direction) == (
        "cpu_usage_ratio",
        "ratio",
        "low",
    )
    assert evidence.value == block.machine_panel.values[0, 4, 390]
    others = np.delete(block.machine_panel.values[0, :, 390], 4)
    assert evidence.peer_median == np.median(others)
    assert evidence.share == 1.0


def test_one_alert_a_machine_until_it_clears() -> None:
    block = block_of(faulty_values(12, 1400, row=4, onset=100))
    assert len(run(block, EVERY_TICK)) == 1
    assert len(run(block, MinderSettings.published())) == 1


def test_windows_count_ticks_and_continuity_counts_seconds() -> None:
    values = faulty_values(12, 60, row=4, onset=20)
    block = block_of(values, tick_ns=15 * SECOND)
    # More than 240 s are 17 ticks of 15 s.
    assert run(block, EVERY_TICK) == [("opened", "m004", 37 * 15.0)]


def test_a_job_without_minder_s_metrics_is_judged_on_those_it_has() -> None:
    values = faulty_values(12, 500, row=4, onset=100)
    block = block_of(values, metrics=("a_made_up", "b_made_up", "c_made_up"))
    assert run(block, EVERY_TICK, shipped_minder_model()) == [("opened", "m004", 341.0)]


def test_a_gap_is_filled_and_does_not_break_the_four_minutes() -> None:
    values = faulty_values(12, 500, row=4, onset=100)
    values[:, 4, 200:230] = np.nan
    assert run(block_of(values), EVERY_TICK) == [("opened", "m004", 341.0)]
    assert run(block_of(values), MinderSettings.published()) == [("opened", "m004", 400.0)]


def test_the_latent_can_be_compared_instead_of_the_reconstruction() -> None:
    block = block_of(faulty_values(12, 500, row=4, onset=100))
    how = replace(EVERY_TICK, compare="latent")
    assert [c[1] for c in run(block, how, shipped_minder_model())] == ["m004"]
    with pytest.raises(ValueError, match="'identity' has no latent"):
        minder_detector("job", CATALOGUE, how, PLAIN)


def test_a_denoiser_that_adapts_cannot_be_called_on_overlapping_minutes() -> None:
    online = dict.fromkeys(MINDER_METRICS, registry.denoiser("online"))
    with pytest.raises(ValueError, match="call_seconds=None"):
        minder_detector(
            "job", CATALOGUE, MinderSettings.published(), replace(PLAIN, denoisers=online)
        )


def test_one_job_s_noise_is_not_learned_by_another() -> None:
    model = replace(PLAIN, denoisers=dict.fromkeys(MINDER_METRICS, registry.denoiser("online")))
    before = model.denoisers[METRICS[0]].state()
    minder_detector("job", CATALOGUE, EVERY_TICK, model).update(block_of(healthy_values(4, 100)))
    assert model.denoisers[METRICS[0]].state()["seen"] == before["seen"] == 0


def test_scores_do_not_depend_on_the_unit_a_metric_is_normalised_from() -> None:
    values = np.moveaxis(healthy_values(9, 40), 2, 0)
    ticks = TickValues("job", START_NS, SECOND, METRICS, tuple("abcdefghi"), values)
    wide = replace(PLAIN, limits=dict.fromkeys(MINDER_METRICS, (-3.0, 9_000.0)))
    one = MinderScorer(PLAIN, MinderSettings()).zscores(ticks)
    other = MinderScorer(wide, MinderSettings()).zscores(ticks)
    assert one.shape == (33, 3, 9)
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_the_shipped_model_has_minder_s_seven_metrics() -> None:
    model = shipped_minder_model()
    assert set(model.metrics) == set(MINDER_METRICS)
    assert all(made.name == "lstm_vae" for made in model.denoisers.values())


def test_a_saved_model_gives_the_same_scores(tmp_path: Path) -> None:
    model = shipped_minder_model()
    model.save(tmp_path / "model.npz")
    loaded = MinderModel.load(tmp_path / "model.npz")
    assert (loaded.metrics, loaded.limits) == (model.metrics, model.limits)
    values = np.moveaxis(healthy_values(5, 30), 2, 0)
    ticks = TickValues("job", START_NS, SECOND, METRICS, tuple("abcde"), values)
    assert np.array_equal(
        MinderScorer(loaded, MinderSettings()).zscores(ticks),
        MinderScorer(model, MinderSettings()).zscores(ticks),
    )


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"broken\.npz: not a saved state"):
        MinderModel.load(broken)
    registry.save(registry.denoiser("identity"), tmp_path / "denoiser.npz")
    with pytest.raises(ValueError, match=r"denoiser\.npz: not a version 1 Minder model"):
        MinderModel.load(tmp_path / "denoiser.npz")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"limits": {}}, "no limits"),
        ({"limits": dict.fromkeys(MINDER_METRICS, (1.0, 1.0))}, "must ascend"),
        ({"window": 9}, "another window"),
    ],
)
def test_a_model_that_cannot_work_is_refused(wrong: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(PLAIN, **wrong)  # type: ignore[arg-type]
