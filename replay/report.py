"""The report of a replayed incident: one HTML file that needs nothing else.

Style, drawing code (the page's own), data: all inside, under a content security policy that
allows exactly these scripts and no request. Opened years later from a disk, it still draws.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from detect.alert import Alert
from replay.view.bundle import bundle, static_text
from replay.view.grid import even_grid
from replay.view.words import FILTERS

MAX_COLUMNS = 1_500
MAX_ROWS = 2_000
MAX_STORIES = 5
MAX_POINTS = 1_200

_MS = 1_000_000
_OUTCOMES = {
    "right": "right: the alert names the faulty machine",
    "wrong": "wrong: the alert names a healthy machine",
    "miss": "miss: no alert while the fault lasted",
    "quiet": "quiet: a healthy recording without an alert",
    "false_alarm": "false alarm: an alert without a fault",
}

FloatArray = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One metric of the named machine over its peers; arrays are ``[time]``, NaN = missing.

    ``median``, ``low`` and ``high`` are the peers' median, 10th and 90th percentile, all in
    ``unit`` (canonical).
    """

    metric: str
    unit: str
    times_ns: NDArray[np.int64]
    value: FloatArray
    median: FloatArray
    low: FloatArray
    high: FloatArray
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class ReportData:
    """What a report shows.

    ``scores`` is ``float32 [machine, time]`` (1 = alarm threshold, NaN = no data) at
    ``times_ns``; ``phases`` names the job's phase at each time (empty = unknown).
    ``series`` holds for each alert id the series of its evidence. ``label`` is the
    recording's ``incident.json`` (times RFC 3339), None if there is none; ``outcome`` and
    ``delay_seconds`` are as `replay.score` says.
    """

    incident: str
    job: str
    machines: Sequence[str]
    times_ns: NDArray[np.int64]
    scores: NDArray[np.float32]
    alerts: Sequence[Alert]
    series: Mapping[str, Sequence[MetricSeries]]
    label: Mapping[str, Any] | None = None
    outcome: str | None = None
    delay_seconds: float | None = None
    phases: Sequence[str] = ()


def write_report(path: Path, data: ReportData) -> None:
    """Write the report; its folder is made if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_report(data), encoding="utf-8")


def render_report(data: ReportData) -> str:
    """The report as HTML: at most `MAX_ROWS` machines by `MAX_COLUMNS` times are drawn."""
    alerts = [alert.to_json() for alert in data.alerts]
    stories = alerts[:MAX_STORIES]
    styles = [static_text(f"{name}.css") for name in ("vendor/uplot/uPlot.min", "view", "report")]
    scripts = [static_text("theme.js"), static_text("vendor/uplot/uPlot.iife.min.js")]
    module = bundle("report.js")
    payload, cut = _payload(data, stories)
    environment = Environment(
        loader=PackageLoader("replay.view"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    return environment.get_template("report.html").render(
        data=data,
        alerts=alerts,
        stories=stories,
        styles=styles,
        scripts=scripts,
        module=module,
        payload=payload,
        policy=_policy([*scripts, module], styles),
        span=_span(data.times_ns),
        cut=cut,
        outcome_words=_OUTCOMES.get(data.outcome or "", "not scored: the recording has no label"),
        label_words=_label_words(data.label or {}),
    )


def _payload(data: ReportData, stories: list[dict[str, Any]]) -> tuple[str, str]:
    named = {machine for alert in stories for machine in alert["machines"]}
    named |= set((data.label or {}).get("faulty_machines") or [])
    whole = even_grid(data.job, data.machines, data.times_ns, data.scores, data.phases)
    grid = whole.pooled(MAX_COLUMNS).worst_rows(MAX_ROWS, keep=sorted(named))
    cut = ""
    if len(grid.machines) < len(whole.machines):
        cut = f"The {len(grid.machines)} machines with the highest scores of {len(whole.machines)}."
    series = []
    for index, alert in enumerate(stories):
        known = list(data.series.get(alert["id"], ()))
        for chart, item in enumerate(alert["evidence"]):
            found = [s for s in known if s.metric == item["metric"]]
            exact = [s for s in found if s.gpu == item["gpu"]] or found
            if exact:
                series.append({"alert": index, "chart": chart, "series": _series(exact[0])})
    alarms = [
        [machine, {"onsetMs": alert.onset_ns // _MS, "status": alert.status, "id": alert.id}]
        for alert in reversed(data.alerts)
        for machine in alert.machines
    ]
    body = {
        "grid": base64.b64encode(zlib.compress(grid.encode(), 6)).decode(),
        "series": series,
        "alarms": alarms,
        "marks": [_marks(alert) for alert in data.alerts[: len(stories)]],
    }
    # Inside a script element only "<" could end it.
    return orjson.dumps(body).decode().replace("<", "\\u003c"), cut


def _marks(alert: Alert) -> list[dict[str, Any]]:
    return [
        {"ms": alert.onset_ns // _MS, "word": "onset"},
        {"ms": alert.detected_at_ns // _MS, "word": "alert"},
    ]


def _series(series: MetricSeries) -> dict[str, Any]:
    stride = max(1, -(-series.times_ns.size // MAX_POINTS))

    def numbers(values: FloatArray) -> list[float | None]:
        thin = values[::stride].astype(np.float64)
        return [None if v != v else float(f"{v:.5g}") for v in thin.tolist()]

    return {
        "metric": series.metric,
        "unit": series.unit,
        "times_ms": (series.times_ns[::stride] // _MS).tolist(),
        "value": numbers(series.value),
        "median": numbers(series.median),
        "low": numbers(series.low),
        "high": numbers(series.high),
    }


def _policy(scripts: list[str], styles: list[str]) -> str:
    def hashes(texts: list[str]) -> str:
        digests = (base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in texts)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    return f"default-src 'none'; script-src {hashes(scripts)}; style-src {hashes(styles)}"


def _span(times_ns: NDArray[np.int64]) -> str:
    if not times_ns.size:
        return "no scores"
    start, end = (np.datetime64(int(t) // 1_000_000_000, "s") for t in times_ns[[0, -1]])
    return f"{str(start).replace('T', ' ')} to {str(end).replace('T', ' ')}"


def _label_words(label: Mapping[str, Any]) -> str:
    faulty = list(label.get("faulty_machines") or [])
    if not faulty:
        return "a healthy recording"
    shown = ", ".join(map(str, faulty[:8])) + (", …" if len(faulty) > 8 else "")
    kind = label.get("fault_type")
    return f"faulty: {shown}" + (f" ({str(kind).replace('_', ' ')})" if kind else "")
