"""Fault types from an alert's evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from detect.alert import Alert, Direction, Evidence
from detect.fault_types import fault_types, signature
from models.evidence_model import ModelError
from models.signature import FEATURES, SignatureModel, features, shipped_signatures


def _evidence(metric: str, direction: Direction, share: float) -> Evidence:
    return Evidence(metric, "", 1.0, 2.0, 1.5, 2.5, direction, 0, share)


def _alert(*evidence: Evidence) -> Alert:
    return Alert(
        "0", "open", "machine", "j", "m", ("m",), None, "fail_slow", 0, 0, 1.0, 0.1,
        evidence, (), "", "test",
    )  # fmt: skip


HOT = _alert(
    _evidence("gpu_temperature_celsius", "high", 0.5),
    _evidence("gpu_sm_clock_hertz", "low", 0.5),
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
    x = signature(HOT)
    assert replace(shipped_signatures(), confidence=1.01).say(x) == ()


def test_signature_does_not_depend_on_the_scale_of_shares() -> None:
    half = replace(HOT, evidence=tuple(replace(e, share=e.share / 2) for e in HOT.evidence))
    np.testing.assert_allclose(signature(HOT), signature(half))  # type: ignore[arg-type]


def test_a_silent_machine_has_a_signature_without_metrics() -> None:
    x = features({("telemetry", "missing"): 1.0}, "silent", group=False, one_gpu=False)
    assert x is not None
    assert x[FEATURES.index("manifestation:silent")] == 1.0


@pytest.mark.xfail(strict=True, reason="calibration error 0.186 on what was left out, 0.15 wanted")
def test_shipped_probabilities_are_calibrated_on_what_was_left_out() -> None:
    assert shipped_signatures().quality["calibration_error"] <= 0.15


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
