"""The default detector's model: thresholds for a stated rate, its file, and the shipped one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.catalogue import Catalogue
from models.evidence_model import EvidenceModel, ModelError, shipped_model


@given(
    st.integers(1, 100_000),
    st.floats(0.01, 1000.0),
    st.floats(0.3, 10.0),
    st.floats(0.0, 1.5),
    st.floats(-5.0, 5.0),
)
def test_the_threshold_is_where_the_stated_rate_is(
    rows: int, rate: float, slope: float, power: float, intercept: float
) -> None:
    model = EvidenceModel(tail_intercept=intercept, tail_slope=slope, tail_power=power)
    level = model.threshold(rows, rate)
    assert model.false_alarm_rate(level, rows) == pytest.approx(rate, rel=1e-6)
    assert model.threshold(rows, rate / 2) > level
    assert model.threshold(rows + 1, rate) >= level


def test_a_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    shipped_model().save(path)
    assert EvidenceModel.load(path) == shipped_model()


def test_a_model_of_before_has_rows_that_err_each_by_itself() -> None:
    tree = EvidenceModel().to_json()
    del tree["tail_power"]
    assert EvidenceModel.from_json(tree, "old").tail_power == 1.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tail_slope", 0.0),
        ("tail_slope", float("nan")),
        ("tail_slope", "steep"),
        ("tail_intercept", float("inf")),
        ("tail_power", -0.1),
        ("false_alarms_per_job_week", float("nan")),
        ("false_alarms_per_job_week", 0.0),
        ("metrics", {"x": {"floor": float("nan")}}),
        ("surplus", 1),
    ],
)
def test_a_senseless_model_is_refused_by_file_and_key(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(EvidenceModel().to_json() | {key: value}))
    with pytest.raises(ModelError, match=f"model.json.*{key}"):
        EvidenceModel.load(path)


def test_the_shipped_model_was_learned_and_says_from_what() -> None:
    model, catalogue = shipped_model(), Catalogue.default()
    assert len(model.metrics) >= 20
    assert all(catalogue.metric(name).known for name in model.metrics)
    assert model.trained_on["healthy"] == len(model.trained_on["recordings"]) > 50
    assert model.trained_on["machine_hours"] > 1000
    assert model.quality["held_out"] is True
    assert model.quality["healthy_job_hours"] > 10
    assert model.quality["asked_false_alarms_per_job_week"] == 1.0
