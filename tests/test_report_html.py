from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay import report
from replay.file_names import file_name, file_names
from replay.report import MetricSeries, ReportData, render_report, write_report
from replay.view import bundle
from replay.view.grid import decode_grid
from tests.page_support import HOSTILE, SECOND, FakeService, made_alert

NOW = 1_760_000_000 * SECOND
ONSET = NOW - 200 * SECOND


def made_data(machines: int = 8, minutes: int = 6, **changed: Any) -> ReportData:
    names = [f"m{i:04d}" for i in range(machines)]
    fleet = FakeService(now_ns=NOW, machines=names, faulty=names[3], onset_ns=ONSET)
    times, scores = fleet.scores(NOW - minutes * 60 * SECOND, NOW)
    alert = made_alert(names[3], ONSET)
    series = []
    for item in alert.evidence:
        found = fleet.metric(item.metric, NOW - minutes * 60 * SECOND, NOW, names[3])
        value, median, low, high = (np.array(found[k]) for k in ("value", "median", "low", "high"))
        stamps = np.array(found["times_ms"], np.int64) * 1_000_000
        series.append(MetricSeries(item.metric, found["unit"], stamps, value, median, low, high))
    fields: dict[str, Any] = {
        "incident": "ecc-0001",
        "job": "llama-70b",
        "machines": names,
        "times_ns": times,
        "scores": scores,
        "alerts": [alert],
        "series": {"a1": series},
        "label": {"faulty_machines": [names[3]], "fault_type": "ecc_error"},
        "outcome": "right",
        "delay_seconds": 23.0,
    }
    return ReportData(**(fields | changed))


def payload(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', text)
    assert found is not None
    body: dict[str, Any] = json.loads(found.group(1))
    return body


def test_report_is_one_file_in_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "ecc-0001.html"
    write_report(path, made_data())
    assert list(path.parent.iterdir()) == [path]


def test_report_refers_to_nothing_outside_of_itself() -> None:
    text = render_report(made_data())
    assert not re.search(r"<(?:link|img|iframe|object)\b", text)
    assert not re.search(r"<[a-z]+ [^>]*\b(?:src|href)=", text)
    assert "@import" not in text
    assert "url(" not in text


def test_policy_allows_exactly_the_scripts_and_styles_within() -> None:
    text = render_report(made_data())
    policy = html.unescape(re.search(r'Security-Policy" content="([^"]+)"', text).group(1))  # type: ignore[union-attr]
    assert policy.startswith("default-src 'none';")
    inside = re.findall(
        r"<(?:script(?: type=\"module\")?|style)>(.*?)</(?:script|style)>", text, re.S
    )
    hashes = {
        f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in inside
    }
    assert set(re.findall(r"'sha256-[^']+'", policy)) == hashes
    assert len(hashes) == 6


def test_report_tells_label_outcome_and_evidence_in_words() -> None:
    text = html.unescape(render_report(made_data()))
    assert "right: the alert names the faulty machine" in text
    assert "faulty: m0003 (ecc error)" in text
    assert "23 s from the true onset to the alert" in text
    assert "GPU power 131 W, peers 612 W since" in text


@pytest.mark.parametrize(
    ("outcome", "label", "words"),
    [
        ("miss", {"faulty_machines": ["a"]}, "miss: no alert while the fault lasted"),
        ("quiet", {"faulty_machines": []}, "a healthy recording"),
        (None, None, "none: nobody has said what was wrong"),
    ],
)
def test_a_report_without_alerts_says_so(
    outcome: str | None, label: dict[str, Any] | None, words: str
) -> None:
    text = render_report(
        made_data(alerts=[], series={}, outcome=outcome, label=label, delay_seconds=None)
    )
    assert "No alert was raised." in text
    assert words in text


def test_hostile_names_stay_text() -> None:
    data = made_data()
    names = [*data.machines[:-1], HOSTILE + "</script>"]
    alert = made_alert(names[-1], ONSET)
    text = render_report(replace(data, machines=names, alerts=[alert], incident=HOSTILE, series={}))
    assert "<img" not in text
    assert text.count("</script>") == 4
    assert payload(text)["alarms"][0][0] == names[-1]


def test_the_grid_inside_is_the_scores() -> None:
    data = made_data()
    grid = decode_grid(zlib.decompress(base64.b64decode(payload(render_report(data))["grid"])))
    assert grid.machines == tuple(data.machines)
    np.testing.assert_allclose(grid.scores, data.scores, atol=0.006)


def test_a_large_incident_stays_small_and_keeps_named_machines() -> None:
    data = made_data(machines=2_600, minutes=30)
    data.scores[3] = 0.0
    text = render_report(data)
    assert len(text) < 5_000_000
    grid = decode_grid(zlib.decompress(base64.b64decode(payload(text)["grid"])))
    assert grid.scores.shape == (report.MAX_ROWS, 900)
    assert "m0003" in grid.machines
    assert "machines with the highest scores of 2600" in text


def test_series_are_thinned_and_missing_values_become_null() -> None:
    data = made_data(minutes=60)
    first = data.series["a1"][0]
    value = first.value.copy()
    value[0] = np.nan
    sent = payload(render_report(replace(data, series={"a1": [replace(first, value=value)]})))
    chart = sent["series"][0]["series"]
    assert len(chart["times_ms"]) <= report.MAX_POINTS
    assert chart["value"][0] is None


def test_only_the_first_stories_are_told_and_the_rest_is_listed() -> None:
    many = [made_alert(f"m{i:04d}", ONSET, alert_id=f"a{i}") for i in range(7)]
    text = render_report(made_data(alerts=many, series={}))
    assert text.count('class="report-story"') == report.MAX_STORIES
    assert "Alerts (7)" in text
    assert "The story of the first 5 alerts" in text


def test_an_incident_without_any_tick_still_makes_a_report() -> None:
    empty = np.zeros((8, 0), np.float32)
    none = np.zeros(0, np.int64)
    text = render_report(made_data(scores=empty, times_ns=none, alerts=[], series={}))
    assert "no scores" in text


@pytest.mark.parametrize("name", ["a/b", "..", "", "x" * 300, "naïve job"])
def test_any_incident_name_is_a_safe_file_name(name: str) -> None:
    made = file_name(name)
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,140}", made)
    assert made != file_name(name + "'")


def test_recordings_of_the_same_name_get_files_of_their_own(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a/x", "b/x", "b/c/x", "alone")]
    names = file_names(folders)
    assert len(set(names.values())) == len(folders)
    assert names[tmp_path / "alone"] == "alone"
    assert names[tmp_path / "a/x"] == file_name("a/x")


def test_bundle_puts_what_is_needed_first() -> None:
    text = bundle.bundle("report.js")
    assert (
        text.index("class HeatMap") < text.index("class Board") < text.index("async function show")
    )
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)


def test_bundle_refuses_a_form_that_it_cannot_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "static_text", lambda _: 'import x from "elsewhere";\n')
    with pytest.raises(ValueError, match=r"odd\.js: cannot join 'import x"):
        bundle.bundle("odd.js")
