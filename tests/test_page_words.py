from __future__ import annotations

from typing import Any

import pytest

from ingest.simulate import FAULT_TYPES
from replay.view.words import (
    alert_headline,
    clock_time,
    evidence_sentence,
    fault_sentence,
    fault_title,
    format_value,
    metric_title,
    rate_sentence,
)
from serve.page.filters import delay_words, lag, literal_pattern, path_segment
from tests.page_support import SECOND, made_alert

ONSET = 1_760_000_000 * SECOND


def evidence(**changed: Any) -> dict[str, Any]:
    first = made_alert("m1", ONSET).to_json()["evidence"][0]
    return dict(first) | changed


def alert(**changed: Any) -> dict[str, Any]:
    return made_alert("node-7", ONSET).to_json() | changed


def test_evidence_reads_as_value_peers_and_since() -> None:
    said = evidence_sentence(evidence(since="2026-01-01T12:03:41.000Z"))
    assert said == "tensor activity 0.02, peers 0.55 since 12:03:41"


def test_missing_evidence_says_missing() -> None:
    said = evidence_sentence(
        evidence(value=None, direction="missing", since="2026-01-01T12:03:41.000Z")
    )
    assert said == "tensor activity missing, peers 0.55 since 12:03:41"


def test_evidence_of_one_gpu_names_it() -> None:
    assert evidence_sentence(evidence(gpu=3)).startswith("GPU 3 tensor activity")


def test_evidence_without_peers_leaves_them_out() -> None:
    assert "peers" not in evidence_sentence(evidence(peer_median=None))


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (0.02, "1", "0.02"),
        (0.004, "ratio", "0.004"),
        (0.0, "", "0.00"),
        (1.41e9, "Hz", "1.41 GHz"),
        (4.2e10, "B/s", "42 GB/s"),
        (612.4, "W", "612 W"),
        (83.0, "°C", "83 °C"),
        (0.0, "B/s", "0 B/s"),
        (-2500.0, "B/s", "-2.5 kB/s"),
        (1_234_567.0, "1", "1,234,567"),
        (59.01, "1", "59"),
        (41.74, "1", "41.7"),
        (9.999, "1", "10"),
        (999.9, "W", "1 kW"),
        (99.99, "°C", "100 °C"),
        (0.0049, "s", "4.9 ms"),
        (0.0004, "s", "400 µs"),
        (0.0, "s", "0 s"),
        (3e-8, "s", "0.03 µs"),
        (1234.0, "s", "1,234 s"),
        (0.00123, "1/s", "0.00123 1/s"),
        (None, "W", "missing"),
        (float("nan"), "W", "missing"),
    ],
)
def test_values_have_three_digits_and_a_prefix(value: float | None, unit: str, words: str) -> None:
    assert format_value(value, unit) == words


def test_unknown_metrics_lose_their_unit_and_underscores() -> None:
    assert metric_title("fan_speed_ratio") == "fan speed"
    assert metric_title("_ratio") == "_ratio"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "node-7 is slow"),
        ({"gpu": 3}, "node-7 GPU 3 is slow"),
        ({"manifestation": "silent"}, "node-7 fell silent"),
        ({"manifestation": "new kind"}, "node-7 behaves unlike its peers"),
        (
            {"verdict": "group", "machine": None, "machines": ["a", "b"], "shared": "leaf-3"},
            "2 machines that share leaf-3 are slow",
        ),
        ({"verdict": "job", "machine": None}, "The whole job changed; no machine is to blame"),
        (
            {"verdict": "undetermined", "machine": None},
            "Something is wrong, but no single machine stands out",
        ),
    ],
)
def test_headline_says_what_is_wrong_with_what(changed: dict[str, Any], words: str) -> None:
    assert alert_headline(alert(**changed)) == words


@pytest.mark.parametrize(
    ("rate", "end"),
    [
        (3.0, "about 3 times a week"),
        (1.0, "about once a week"),
        (0.9, "about once a week"),
        (0.1, "about once in 10 weeks"),
        (0.001, "about once in 19 years"),
        (1e-9, "less than once in a million weeks"),
    ],
)
def test_false_alarm_rates_are_said_in_weeks_and_years(rate: float, end: str) -> None:
    assert rate_sentence(rate).endswith(end)


def test_a_time_that_is_none_is_shown_as_it_is() -> None:
    assert clock_time("yesterday") == "yesterday"


def test_delay_is_counted_from_the_onset() -> None:
    assert delay_words(alert()) == "23 s after its estimated onset"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "–"), (-2.0, "0 s"), (1.4, "1 s"), (300.0, "5 min"), (7200.0, "2 h"), (2e5, "2 d")],
)
def test_lag_has_one_unit(seconds: float | None, words: str) -> None:
    assert lag(seconds) == words


def test_names_become_one_path_segment() -> None:
    assert path_segment("a/b?c#d%") == "a%2Fb%3Fc%23d%25"


def test_a_name_as_a_pattern_escapes_brackets() -> None:
    assert literal_pattern("rack[1]") == "rack[[]1]"


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ((), ""),
        ((("thermal_throttling", 0.82), ("ecc_error", 0.1)), "probably thermal throttling (82 %)"),
        (
            (("ecc_error", 0.41), ("cuda_execution_error", 0.33), ("hdfs_error", 0.1)),
            "probably ECC error or CUDA execution error (41 %, 33 %)",
        ),
        (
            (("ecc_error", 0.61), ("cuda_execution_error", 0.22), ("hdfs_error", 0.05)),
            "probably ECC error or CUDA execution error (61 %, 22 %)",
        ),
        (
            (("hdfs_error", 0.2), ("ecc_error", 0.3), ("nic_dropout", 0.09), ("disk_slow", 0.08)),
            "probably ECC error, HDFS error or NIC dropout (30 %, 20 %, 9 %)",
        ),
    ],
)
def test_fault_types_in_a_sentence(types: tuple[tuple[str, float], ...], words: str) -> None:
    alert = {"fault_types": [{"type": t, "probability": p} for t, p in types]}
    assert fault_sentence(alert) == words


def test_every_type_of_fault_has_a_readable_name() -> None:
    assert all("_" not in fault_title(t) and fault_title(t) for t in FAULT_TYPES)
