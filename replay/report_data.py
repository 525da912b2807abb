"""From a replayed incident to what its report shows."""

from __future__ import annotations

import numpy as np

from detect.alert import Alert
from detect.history import History
from ingest.catalogue import Catalogue
from replay.band import peer_band
from replay.report import MetricSeries, ReportData
from replay.runner import IncidentResult

BEFORE_NS = 600 * 10**9
AFTER_NS = 600 * 10**9
"""Time shown before the onset and after the alert."""


def report_data(result: IncidentResult, catalogue: Catalogue) -> ReportData:
    """What the report of a recording replayed with ``ReplayOptions.history`` shows."""
    history = result.histories.get(result.job) or History(0)
    scores = history.scores(0, 1 << 62)
    return ReportData(
        incident=result.incident,
        job=result.job,
        machines=scores.machines,
        times_ns=scores.times_ns,
        scores=scores.scores,
        alerts=result.alerts,
        series={alert.id: _series(alert, history, catalogue) for alert in result.alerts},
        label=result.label.to_json() if result.label else None,
        outcome=result.score.outcome,
        delay_seconds=result.score.delay_seconds,
        phases=scores.phases,
    )


def _series(alert: Alert, history: History, catalogue: Catalogue) -> list[MetricSeries]:
    machine = alert.machine or (alert.machines[0] if alert.machines else None)
    names = tuple(dict.fromkeys(item.metric for item in alert.evidence))
    if machine is None or not names:
        return []
    start, end = alert.onset_ns - BEFORE_NS, alert.detected_at_ns + AFTER_NS
    part = history.metrics(start, end, names)
    if machine not in part.machines:
        return []
    row = part.machines.index(machine)
    found = []
    for metric, values in zip(part.metrics, part.values, strict=True):
        if np.isnan(values[row]).all():
            continue
        band = peer_band(values, row, part.times_ns)
        unit = catalogue.metric(metric).unit
        found.append(
            MetricSeries(metric, unit, band.times_ns, band.value, band.median, band.low, band.high)
        )
    return found
