"""How an incident and a set of incidents are scored.

By incident, never by window: the first alert at or after onset and before the halt decides. All
functions are pure; times are nanoseconds of event time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from detect.alert import Alert

Outcome = Literal["right", "wrong", "miss", "quiet", "false_alarm"]

TEN_MINUTES_NS = 600 * 10**9
HOURS_PER_WEEK = 168.0


@dataclass(frozen=True, slots=True)
class Truth:
    """What a label says. ``onset_ns`` None = from the first sample; ``halt_ns`` None = never."""

    faulty: frozenset[str]
    onset_ns: int | None
    halt_ns: int | None


@dataclass(frozen=True, slots=True)
class Score:
    """One incident's score. ``outcome`` and ``delay_seconds`` are None without a label."""

    outcome: Outcome | None
    delay_seconds: float | None
    false_alarms: int
    healthy_seconds: float
    lead_seconds: float | None = None


def score_incident(
    alerts: Sequence[Alert], truth: Truth | None, start_ns: int, end_ns: int
) -> Score:
    """Score the alerts of one recording, each as it was when it opened.

    ``lead_seconds`` is how long before the halt the deciding alert came. Healthy time is the
    whole of a healthy recording, or what lies before the onset.
    """
    if truth is None:
        return Score(None, None, 0, 0.0)
    ordered = sorted(alerts, key=lambda a: a.detected_at_ns)
    if not truth.faulty:
        false = count_false_alarms(ordered, start_ns)
        outcome: Outcome = "false_alarm" if false else "quiet"
        return Score(outcome, None, false, (end_ns - start_ns) / 1e9)
    onset = start_ns if truth.onset_ns is None else truth.onset_ns
    early = [a for a in ordered if a.detected_at_ns < onset]
    false = count_false_alarms(early, start_ns)
    healthy = max(0, min(onset, end_ns) - start_ns) / 1e9
    for alert in ordered:
        if alert.detected_at_ns < onset:
            continue
        if truth.halt_ns is not None and alert.detected_at_ns >= truth.halt_ns:
            break
        delay = (alert.detected_at_ns - onset) / 1e9
        if alert.verdict not in ("machine", "group"):
            # Neither right nor wrong. It decides nothing either: a machine may still be named.
            continue
        right = set(alert.machines) <= truth.faulty
        lead = None if truth.halt_ns is None else (truth.halt_ns - alert.detected_at_ns) / 1e9
        return Score("right" if right else "wrong", delay, false, healthy, lead)
    return Score("miss", None, false, healthy)


def count_false_alarms(alerts: Iterable[Alert], start_ns: int) -> int:
    """False alarms: one per machine per ten minutes; what does not page and names none is free."""
    seen = set()
    for alert in alerts:
        if alert.verdict in ("undetermined", "job") and not alert.pages:
            continue
        window = (alert.detected_at_ns - start_ns) // TEN_MINUTES_NS
        for machine in alert.machines or (alert.verdict,):
            seen.add((machine, window))
    return len(seen)


def errors(summary: Mapping[str, Any]) -> int:
    """Wrong verdicts, misses and false alarms of a summary, together."""
    return int(summary["wrong"] + summary["miss"] + summary["false_alarms"])


def summarise(scores: Iterable[Score]) -> dict[str, Any]:
    """The summary of a set of incidents, with the keys of the ``summary`` line.

    precision = right / (right + wrong + false alarms), recall = right / incidents with a fault;
    None where the denominator is 0.
    """
    scores = list(scores)
    right = sum(s.outcome == "right" for s in scores)
    wrong = sum(s.outcome == "wrong" for s in scores)
    miss = sum(s.outcome == "miss" for s in scores)
    false = sum(s.false_alarms for s in scores)
    precision = _ratio(right, right + wrong + false)
    recall = _ratio(right, right + wrong + miss)
    f1 = None
    if precision is not None and recall is not None:
        f1 = _ratio(2 * precision * recall, precision + recall) or 0.0
    delays = [
        s.delay_seconds for s in scores if s.outcome == "right" and s.delay_seconds is not None
    ]
    hours = sum(s.healthy_seconds for s in scores) / 3600.0
    return {
        "incidents": len(scores),
        "right": right,
        "wrong": wrong,
        "miss": miss,
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "delay_seconds_p50": _percentile(delays, 50),
        "delay_seconds_p90": _percentile(delays, 90),
        "false_alarms": false,
        "healthy_job_hours": hours,
        "false_alarms_per_job_week": _ratio(false * HOURS_PER_WEEK, hours),
    }


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None


def _percentile(values: Sequence[float], q: float) -> float | None:
    if not values:
        return None
    result = float(np.percentile(np.asarray(values, np.float64), q))
    return result if math.isfinite(result) else None
