"""Fault types from an alert's evidence."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from detect import open_alerts
from detect.alert import Alert, Direction, Evidence
from detect.fault_types import fault_types, signature
from models.evidence_model import ModelError
from models.signature import CELLS, FEATURES, SignatureModel, shipped_signatures
from replay.fault_examples import Example, Incident, example, read_examples, write_line
from replay.train_fault_types import learn
from tests.detect_support import Scene
from tests.ticks_support import SECOND

CALIBRATED = 0.12


def _evidence(metric: str, direction: Direction, share: float) -> Evidence:
    return Evidence(metric, "", 1.0, 2.0, 1.5, 2.5, direction, 0, share)


def _alert(*evidence: Evidence) -> Alert:
    return Alert(
        "0", "open", "machine", "j", "m", ("m",), None, "fail_slow", 0, 0, 1.0, 0.1,
        evidence, (), "", "test",
    )  # fmt: skip


def _cells(x: NDArray[np.float64]) -> set[str]:
    return {name for name, value in zip(FEATURES[:CELLS], x, strict=False) if value > 0}


HOT = replace(
    _alert(
        _evidence("gpu_temperature_celsius", "high", 0.5),
        _evidence("gpu_sm_clock_hertz", "low", 0.5),
    ),
    detected_at_ns=100 * SECOND,
)


def test_heat_and_a_low_clock_are_thermal_throttling() -> None:
    types = fault_types(HOT)
    assert types
    assert types[0][0] == "thermal_throttling"


def test_probabilities_descend_and_sum_to_at_most_one() -> None:
    chances = [p for _, p in fault_types(HOT)]
    assert chances == sorted(chances, reverse=True)
    assert 0 < sum(chances) <= 1.001


def test_unknown_metrics_say_nothing() -> None:
    assert fault_types(_alert(_evidence("disk_latency", "high", 1.0))) == ()


def test_an_alert_that_names_nobody_has_no_type() -> None:
    assert fault_types(replace(HOT, verdict="undetermined", machine=None, machines=())) == ()


def test_little_confidence_is_silence() -> None:
    assert fault_types(HOT)
    assert fault_types(HOT, replace(shipped_signatures(), confidence=1.01)) == ()


def test_signature_does_not_depend_on_the_scale_of_shares() -> None:
    half = replace(HOT, evidence=tuple(replace(e, share=e.share / 2) for e in HOT.evidence))
    np.testing.assert_allclose(signature(HOT), signature(half))


def test_a_machine_that_answers_nobody_is_unreachable() -> None:
    gone = _alert(_evidence("telemetry", "missing", 1.0))
    types = fault_types(replace(gone, manifestation="silent"))
    assert types
    assert types[0][0] == "machine_unreachable"


def test_evidence_of_a_kind_that_was_never_learned_says_nothing() -> None:
    model = shipped_signatures()
    assert fault_types(HOT, model)
    strange = tuple(c for c in model.learned if not c.startswith(("thermal", "clock")))
    assert fault_types(HOT, replace(model, learned=strange)) == ()


def test_a_value_that_rests_is_another_sign_than_one_a_little_low() -> None:
    low = _evidence("gpu_power_watts", "low", 1.0)
    rests = replace(low, value=0.3, peer_median=1.0)
    little = replace(low, value=0.7, peer_median=1.0)
    cells = [_cells(signature(_alert(e))) for e in (rests, little)]
    assert cells == [{"power:gone"}, {"power:low"}]


def test_a_machine_mean_seven_eighths_of_its_peers_looks_like_one_resting_gpu() -> None:
    eighth = replace(_evidence("gpu_power_watts", "low", 1.0), value=0.875, peer_median=1.0)
    assert signature(_alert(eighth))[FEATURES.index("one_of_eight")] == 1.0


def test_without_a_value_there_is_no_ratio() -> None:
    blank = replace(_evidence("gpu_power_watts", "low", 1.0), value=None, peer_median=0.0)
    assert _cells(signature(_alert(blank))) == {"power:low"}


def test_no_evidence_has_no_type() -> None:
    assert fault_types(_alert()) == ()


def test_a_model_that_knows_no_type_says_nothing() -> None:
    assert fault_types(HOT, SignatureModel.silent()) == ()


def test_a_saved_model_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    model = shipped_signatures()
    model.save(path)
    assert SignatureModel.from_json(path.read_text(), "here") == model


def test_shipped_probabilities_are_calibrated_on_seeds_that_taught_nothing() -> None:
    model = shipped_signatures()
    assert model.quality["all"]["calibration_error"] <= CALIBRATED
    assert not {*model.trained_on["seeds"]} & {*range(*model.quality["seeds"])}


def test_shipped_probabilities_tell_more_than_the_published_shares() -> None:
    quality = shipped_signatures().quality
    assert quality["all"]["log_loss"] < quality["prior"]["log_loss"]
    assert quality["all"]["first_two"] > quality["prior"]["first_two"]


def test_an_alert_carries_its_types_when_it_opens_and_when_its_evidence_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def by_evidence(alert: Alert) -> tuple[tuple[str, float], ...]:
        asked.append(alert)
        return ((f"{alert.evidence[0].metric}", 1.0),)

    monkeypatch.setattr(open_alerts, "fault_types", by_evidence)
    scene = Scene(8)
    scene.level[2] = 1.2
    (opened,) = scene.passes(1)
    assert opened.alert.fault_types == (("gpu_power_watts", 1.0),)
    assert scene.passes(50) == []
    scene.level[2], scene.metric[2] = 3.0, 1
    (updated,) = scene.passes(30)
    assert updated.kind == "updated"
    assert updated.alert.fault_types == (("gpu_tensor_active_ratio", 1.0),)
    assert len(asked) == 2


def test_the_types_follow_from_the_alert_alone() -> None:
    scene = Scene(8)
    scene.level[2] = 1.2
    scene.panel.state["raw"][0, 2] = 1000.0
    (opened,) = scene.passes(1)
    assert opened.alert.fault_types
    assert opened.alert.fault_types == fault_types(opened.alert)
    again = Alert.from_tree(json.loads(json.dumps(asdict(opened.alert))))
    assert (again, fault_types(again)) == (opened.alert, opened.alert.fault_types)


def test_an_incident_is_simulated_the_same_again_and_kept_as_a_line(tmp_path: Path) -> None:
    incident = Incident(101, 0, "cuda_execution_error")
    first = example(incident)
    assert (first.fault, first.outcome) == ("cuda_execution_error", "right")
    assert write_line(first) == write_line(example(incident))
    path = tmp_path / "cache.jsonl"
    path.write_text(write_line(first) + "\n")
    assert read_examples(path) == [first]


def test_learning_finds_what_tells_types_apart_and_keeps_the_shares_where_nothing_does() -> None:
    alerts = {
        "thermal_throttling": HOT,
        "ecc_error": _alert(_evidence("gpu_power_watts", "low", 1.0)),
        "cuda_execution_error": _alert(_evidence("gpu_power_watts", "low", 1.0)),
    }
    found = [
        Example(seed, i, fault, "right", (), (alert,))
        for i, (fault, alert) in enumerate(alerts.items())
        for seed in range(20)
    ]
    model = learn(found)
    assert fault_types(HOT, model)[0][0] == "thermal_throttling"
    same = dict(fault_types(alerts["ecc_error"], model))
    assert same["ecc_error"] > 1.5 * same["cuda_execution_error"] > 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "x"}, "not a model of fault types"),
        ({"format_version": 9}, "format_version"),
        ({"features": ["a"]}, "other features"),
        ({"bias": [0.0]}, "do not fit"),
    ],
)
def test_a_damaged_model_is_one_line(tmp_path: Path, change: dict[str, object], says: str) -> None:
    path = tmp_path / "m.json"
    shipped_signatures().save(path)
    text = json.dumps({**json.loads(path.read_text()), **change})
    with pytest.raises(ModelError, match=says):
        SignatureModel.from_json(text, "here")
