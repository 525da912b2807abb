"""Parts of training: tails, the split by job, scales."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from detect.residuals import DRIFT, FAST, LEVEL, SHAPE, SLOW, TESTS
from ingest.catalogue import Catalogue
from ingest.recording import Label
from models.evidence_model import HOLDS, EvidenceModel
from replay.healthy import ASKED, Alarms, HealthyMetric, HealthyRecording
from replay.tails import LEAST_SLOPE, AlarmTail, Tail, count_tail, fit_tail
from replay.train import learn_scales, learn_tail, rate_correction, split_by_job

METRIC = "gpu_power_watts"


def _recording(hours: float, peaks: list[float], noise: float = 0.01) -> HealthyRecording:
    metric = HealthyMetric(hours, noise, 0.05, [peaks, [], [], [], []])
    return HealthyRecording(hours, {METRIC: metric})


def _alarms(hours: float, *counts: int) -> HealthyRecording:
    """A recording of one machine with so many alarms at each rate of `ASKED`."""
    base = EvidenceModel(tail_intercept=0.0, tail_slope=5.0)
    found = zip(ASKED, counts, strict=True)
    alarms = {rate: Alarms(base.threshold(1, rate), 1, count, hours) for rate, count in found}
    return HealthyRecording(hours, {}, alarms)


def _with_tail(base: EvidenceModel, tail: AlarmTail) -> EvidenceModel:
    return replace(
        base, tail_intercept=tail.intercept, tail_slope=tail.slope, tail_power=tail.power
    )


def test_a_tail_is_found_again_in_many_peaks() -> None:
    rng = np.random.default_rng(3)
    hours = 10_000.0
    true = Tail(math.log(0.05) + 4.0 * 0.4, 4.0)
    peaks = 0.4 + rng.exponential(1 / 4.0, rng.poisson(0.05 * hours))
    found = fit_tail(peaks, hours, 0.4, Tail(0.0, 9.0))
    assert found.rate(1.0) == pytest.approx(true.rate(1.0), rel=0.5)
    assert found.level(true.rate(1.0)) == pytest.approx(1.0, rel=0.15)


def test_without_data_the_tail_is_the_prior() -> None:
    prior = Tail(0.5, 6.0)
    found = fit_tail(np.zeros(0), 0.0, 0.4, prior)
    assert found.rate(1.2) == pytest.approx(prior.rate(1.2))


def test_quiet_hours_lower_the_rate_and_never_to_nothing() -> None:
    prior = Tail(0.5, 6.0)
    found = fit_tail(np.zeros(0), 1000.0, 0.4, prior)
    assert 0 < found.rate(1.0) < 0.1 * prior.rate(1.0)


def test_a_counted_tail_is_found_again() -> None:
    rng = np.random.default_rng(3)
    true = AlarmTail(0.3, 4.0, 0.4)
    level = np.repeat([0.8, 1.2, 1.7], 40)
    rows = rng.uniform(3.0, 200.0, level.size).round()
    hours = rng.uniform(1000.0, 8000.0, level.size)
    counts = rng.poisson(hours * true.rate(level, rows))
    found = count_tail(level, rows, hours, counts, AlarmTail(1.0, 5.0))
    assert found.slope == pytest.approx(true.slope, rel=0.05)
    assert found.power == pytest.approx(true.power, abs=0.05)
    at = np.array([2.2]), np.array([30.0])
    assert found.rate(*at) == pytest.approx(true.rate(*at), rel=0.1)


def test_a_counted_tail_is_the_prior_where_nothing_or_what_it_says_was_counted() -> None:
    prior = AlarmTail(0.5, 6.0, 0.8)
    nothing = np.zeros(0)
    assert count_tail(nothing, nothing, nothing, np.zeros(0, np.int64), prior) == prior
    level, rows = np.array([0.5, 1.0, 1.5]), np.array([4.0, 30.0, 100.0])
    found = count_tail(level, rows, 20.0 / prior.rate(level, rows), np.array([20] * 3), prior)
    assert found.slope == pytest.approx(prior.slope, rel=1e-4)
    assert found.power == pytest.approx(prior.power, abs=1e-4)
    assert found.intercept == pytest.approx(prior.intercept, abs=1e-3)


def test_one_kind_of_job_tells_nothing_of_other_sizes() -> None:
    prior = AlarmTail(0.5, 4.0, 0.8)
    level, rows = np.array([0.5, 1.0, 1.5]), np.full(3, 30.0)
    hours = 20.0 / prior.rate(level, rows)
    found = count_tail(level, rows, hours, np.array([80, 40, 20]), prior)
    assert found.power == pytest.approx(prior.power, abs=1e-6)
    assert found.slope > prior.slope


def test_a_counted_tail_falls_at_a_slope_within_bounds() -> None:
    prior = AlarmTail(0.0, 4.0)
    level, rows, hours = np.array([0.5, 1.5]), np.ones(2), np.array([1e4, 1e4])
    flat = count_tail(level, rows, hours, np.array([30000, 30000]), prior)
    assert flat.slope == LEAST_SLOPE * prior.slope
    rates = flat.rate(level, rows)
    assert rates[0] > 3.0 > rates[1]


def test_a_learned_tail_gives_a_threshold_for_the_asked_rate() -> None:
    base = EvidenceModel(tail_intercept=0.0, tail_slope=5.0)
    tail = learn_tail([_alarms(500.0, 30, 12, 2)], base)
    model = _with_tail(base, tail)
    level = model.threshold(16, 0.5)
    assert model.false_alarm_rate(level, 16) == pytest.approx(0.5)
    assert model.threshold(16, 0.05) > level


def test_more_alarms_than_asked_for_raise_the_threshold_and_fewer_lower_it() -> None:
    base = EvidenceModel(tail_intercept=0.0, tail_slope=5.0)
    hours = 168.0
    asked = [round(rate * hours / 168.0) for rate in ASKED]

    def threshold(factor: float) -> float:
        tail = learn_tail([_alarms(hours, *(round(factor * n) for n in asked))], base)
        return _with_tail(base, tail).threshold(1, 40)

    assert threshold(1.0) == pytest.approx(base.threshold(1, 40), rel=0.02)
    assert threshold(0.2) < threshold(1.0) < threshold(5.0)


def test_jobs_held_out_correct_the_rate_that_is_stated() -> None:
    assert rate_correction(0, 0.0, 1.0) == 1.0
    assert rate_correction(10, 168.0, 10.0) == 1.0
    assert rate_correction(3, 20.8, 1.0) == pytest.approx(4 / (1 + 20.8 / 168))
    assert rate_correction(0, 1680.0, 1.0) == pytest.approx(1 / 11)


def test_long_healthy_excursions_raise_the_hold() -> None:
    base, catalogue = EvidenceModel(), Catalogue.default()
    usual = base.scale(METRIC, "power").hold_fast
    rng = np.random.default_rng(4)
    long = (1.5 * usual * rng.uniform(0.8, 1.2, 60)).tolist()
    high = learn_scales([_recording(2000.0, long)], base, catalogue)[METRIC].hold_fast
    calm = learn_scales([_recording(2000.0, [2.0, 3.0])], base, catalogue)[METRIC].hold_fast
    assert usual == calm < high


def test_every_test_of_the_detector_has_a_hold_of_its_own() -> None:
    scale = EvidenceModel().scale(METRIC, "power")
    assert tuple(getattr(scale, name) for name in HOLDS) == scale.holds
    assert len(HOLDS) == TESTS
    by_test = {FAST: "fast", SLOW: "slow", DRIFT: "drift", LEVEL: "level", SHAPE: "shape"}
    assert {test: f"hold_{name}" for test, name in by_test.items()} == dict(enumerate(HOLDS))


def test_a_few_minutes_change_little() -> None:
    base, catalogue = EvidenceModel(), Catalogue.default()
    usual = base.scale(METRIC, "power")
    found = learn_scales([_recording(0.5, [100.0], noise=0.5)], base, catalogue)[METRIC]
    assert found.hold_fast == pytest.approx(usual.hold_fast, rel=0.1)
    assert found.floor <= 1.5 * usual.floor


def test_one_job_is_never_on_both_sides() -> None:
    labels: dict[Path, Label | None] = {
        Path(f"r{i}"): Label(f"job{i % 7}", (), None) for i in range(40)
    }
    learn, measure, held_out = split_by_job(labels)
    jobs = [{labels[p].job for p in side} for side in (learn, measure)]  # type: ignore[union-attr]
    assert held_out
    assert jobs[0].isdisjoint(jobs[1])
    assert sorted([*learn, *measure]) == sorted(labels)


def test_the_split_does_not_depend_on_the_order() -> None:
    labels: dict[Path, Label | None] = {Path(f"r{i}"): Label(f"job{i}", ()) for i in range(9)}
    again = dict(reversed(labels.items()))
    assert set(split_by_job(labels)[1]) == set(split_by_job(again)[1])


def test_with_one_job_nothing_is_held_out_and_that_is_said() -> None:
    labels: dict[Path, Label | None] = {Path("a"): Label("j", ()), Path("b"): Label("j", ())}
    assert split_by_job(labels) == ([Path("a"), Path("b")], [Path("a"), Path("b")], False)
