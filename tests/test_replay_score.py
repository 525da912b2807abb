"""How an outcome is scored: every rule on its own."""

from __future__ import annotations

from typing import Any

import pytest

from detect.alert import Alert
from replay.score import Score, Truth, score_incident, summarise

SECOND = 10**9
START = 1_700_000_000 * SECOND
END = START + 3600 * SECOND
FAULTY = Truth(frozenset({"a"}), START + 1000 * SECOND, START + 2000 * SECOND)
HEALTHY = Truth(frozenset(), None, None)


def alert(at_s: float, *machines: str, **changes: Any) -> Alert:
    """An alert that came ``at_s`` seconds after the start; a machine's, or a group's."""
    fields: dict[str, Any] = {
        "id": "x",
        "status": "open",
        "verdict": "machine" if len(machines) == 1 else "group",
        "job": "job",
        "machine": machines[0] if len(machines) == 1 else None,
        "machines": machines,
        "gpu": None,
        "manifestation": "unknown",
        "onset_ns": START,
        "detected_at_ns": START + int(at_s * SECOND),
        "score": 1.0,
        "false_alarms_per_job_week": 0.1,
        "evidence": (),
        "fault_types": (),
        "recommended_action": "",
        "model": "m",
    }
    return Alert(**{**fields, **changes})


def scored(*alerts: Alert, truth: Truth | None = FAULTY) -> Score:
    return score_incident(alerts, truth, START, END)


def test_an_alert_on_the_faulty_machine_is_right_and_its_delay_counts_from_onset() -> None:
    score = scored(alert(1030.5, "a"))
    assert (score.outcome, score.delay_seconds, score.false_alarms) == ("right", 30.5, 0)
    assert score.lead_seconds == 969.5


def test_an_alert_on_another_machine_is_wrong() -> None:
    assert scored(alert(1030, "b")).outcome == "wrong"


def test_no_alert_is_a_miss() -> None:
    score = scored()
    assert (score.outcome, score.delay_seconds) == ("miss", None)


def test_the_first_alert_decides_whatever_comes_later() -> None:
    assert scored(alert(1200, "a"), alert(1100, "b")).outcome == "wrong"
    assert scored(alert(1200, "b"), alert(1100, "a")).outcome == "right"


@pytest.mark.parametrize(("at_s", "outcome"), [(1000, "right"), (1999.9, "right"), (2000, "miss")])
def test_the_onset_counts_and_the_halt_does_not(at_s: float, outcome: str) -> None:
    assert scored(alert(at_s, "a")).outcome == outcome


def test_without_a_halt_any_later_alert_counts() -> None:
    truth = Truth(frozenset({"a"}), START, None)
    assert scored(alert(3000, "a"), truth=truth).outcome == "right"


def test_without_an_onset_the_machine_is_faulty_from_the_first_sample() -> None:
    truth = Truth(frozenset({"a"}), None, None)
    score = scored(alert(40, "a"), truth=truth)
    assert (score.outcome, score.delay_seconds, score.healthy_seconds) == ("right", 40.0, 0.0)


def test_an_alert_before_the_onset_is_a_false_alarm_even_on_the_faulty_machine() -> None:
    score = scored(alert(999.9, "a"), alert(1010, "a"))
    assert (score.outcome, score.false_alarms) == ("right", 1)
    only = scored(alert(999.9, "a"))
    assert (only.outcome, only.false_alarms) == ("miss", 1)


def test_a_group_is_right_when_every_machine_it_names_is_faulty() -> None:
    truth = Truth(frozenset({"a", "b", "c"}), START, None)
    assert scored(alert(10, "a", "b"), truth=truth).outcome == "right"
    assert scored(alert(10, "a", "d"), truth=truth).outcome == "wrong"


@pytest.mark.parametrize("verdict", ["undetermined", "job"])
@pytest.mark.parametrize("pages", [True, False])
def test_undetermined_and_job_verdicts_are_a_miss_on_a_faulty_recording(
    verdict: str, pages: bool
) -> None:
    unsure = alert(1010, "a", verdict=verdict, pages=pages)
    score = scored(unsure)
    assert (score.outcome, score.false_alarms) == ("miss", 0)
    assert scored(unsure, alert(1100, "a")).outcome == "right"


@pytest.mark.parametrize("verdict", ["undetermined", "job"])
def test_they_are_a_false_alarm_on_a_healthy_recording_only_when_they_page(verdict: str) -> None:
    loud = scored(alert(10, verdict=verdict, pages=True), truth=HEALTHY)
    quiet = scored(alert(10, verdict=verdict, pages=False), truth=HEALTHY)
    assert (loud.outcome, loud.false_alarms) == ("false_alarm", 1)
    assert (quiet.outcome, quiet.false_alarms) == ("quiet", 0)


def test_false_alarms_are_one_per_machine_per_ten_minutes() -> None:
    many = [alert(at, name) for name in "ab" for at in (0, 1, 599, 600, 1300)]
    assert scored(*many, truth=HEALTHY).false_alarms == 6


def test_a_group_on_a_healthy_recording_counts_for_each_machine() -> None:
    assert scored(alert(10, "a", "b", "c"), truth=HEALTHY).false_alarms == 3


def test_a_healthy_recording_without_alerts_is_quiet_for_its_whole_length() -> None:
    score = scored(truth=HEALTHY)
    assert (score.outcome, score.healthy_seconds) == ("quiet", 3600.0)


def test_what_lies_before_the_onset_is_healthy_time() -> None:
    assert scored().healthy_seconds == 1000.0
    never = Truth(frozenset({"a"}), END + 10**6 * SECOND, None)
    assert scored(truth=never).healthy_seconds == 3600.0


def test_a_recording_without_a_label_is_not_scored() -> None:
    assert scored(alert(10, "a"), truth=None) == Score(None, None, 0, 0.0)


def test_the_summary_counts_as_written() -> None:
    scores = [
        *[Score("right", float(d), 0, 1800.0) for d in (10, 20, 30)],
        Score("wrong", 5.0, 0, 0.0),
        Score("miss", None, 1, 1800.0),
        Score("false_alarm", None, 1, 3600.0),
        Score(None, None, 0, 0.0),
    ]
    found = summarise(scores)
    assert found["incidents"] == 7
    assert (found["right"], found["wrong"], found["miss"]) == (3, 1, 1)
    assert found["precision"] == pytest.approx(3 / (3 + 1 + 2))
    assert found["recall"] == pytest.approx(3 / 5)
    assert found["f1"] == pytest.approx(2 * 0.5 * 0.6 / 1.1)
    assert (found["delay_seconds_p50"], found["delay_seconds_p90"]) == (20.0, 28.0)
    assert found["healthy_job_hours"] == pytest.approx(3.0)
    assert found["false_alarms"] == 2
    assert found["false_alarms_per_job_week"] == pytest.approx(2 * 168 / 3)


def test_the_delay_of_a_wrong_alert_is_not_averaged() -> None:
    assert summarise([Score("wrong", 5.0, 0, 0.0)])["delay_seconds_p50"] is None


def test_what_has_no_denominator_is_null() -> None:
    found = summarise([])
    for key in ("precision", "recall", "f1", "delay_seconds_p90", "false_alarms_per_job_week"):
        assert found[key] is None


def test_nothing_right_is_an_f1_of_zero() -> None:
    assert summarise([Score("wrong", 5.0, 0, 0.0)])["f1"] == 0.0
