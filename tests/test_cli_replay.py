"""`weaklink simulate` and `weaklink replay`, as a user calls them."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serve.cli import run

SUMMARY_KEYS = {
    "incidents",
    "right",
    "wrong",
    "miss",
    "precision",
    "recall",
    "f1",
    "delay_seconds_p50",
    "delay_seconds_p90",
    "false_alarms",
    "healthy_job_hours",
    "false_alarms_per_job_week",
}
INCIDENT_KEYS = {
    "incident",
    "job",
    "machines",
    "seconds",
    "alerts",
    "label",
    "outcome",
    "delay_seconds",
    "false_alarms",
    "compute_seconds",
}
SIMULATE = ["simulate", "--incidents", "1", "--healthy", "1", "--seed", "4", "--machines", "6"]
SIMULATE += ["--fault", "machine_unreachable", "--minutes", "30", "--cadence", "10"]
SIMULATE += ["--per-machine"]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One faulty and one healthy recording of half an hour."""
    folder = tmp_path_factory.mktemp("simulated")
    assert run([*SIMULATE, "--out", str(folder)]) == 0
    return folder


def lines(text: str) -> list[dict[str, Any]]:
    """JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def test_simulate_prints_the_folders_it_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--incidents", "1", "--seed", "5", "--machines", "3", "--minutes", "30"]
    assert run(["simulate", *few, "--cadence", "15", "--out", str(tmp_path)]) == 0
    (folder,) = map(Path, capsys.readouterr().out.split())
    assert {path.name for path in folder.iterdir()} >= {"telemetry.parquet", "incident.json"}


def test_jsonl_is_a_line_an_incident_and_a_summary(
    recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replay", str(recordings), "--format", "jsonl"]) == 0
    said = capsys.readouterr()
    *incidents, last = lines(said.out)
    assert said.err == ""
    assert [set(line) for line in incidents] == [INCIDENT_KEYS] * 2
    assert set(last) == {"summary"}
    assert set(last["summary"]) == SUMMARY_KEYS
    assert last["summary"]["incidents"] == 2
    assert {line["outcome"] for line in incidents} == {"right", "quiet"}


def test_text_is_a_table_with_the_named_machine(
    recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replay", str(recordings)]) == 0
    out = capsys.readouterr().out
    labels = [json.loads(p.read_text()) for p in recordings.rglob("incident.json")]
    (faulty,) = (name for label in labels for name in label["faulty_machines"])
    assert sum(faulty in line and "right" in line for line in out.splitlines()) == 1
    assert "2 recordings: 1 right, 0 wrong, 0 missed, 0 false alarms" in out


def test_workers_change_nothing_but_the_time_it_took(
    recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = []
    for workers in ("1", "2"):
        assert run(["replay", str(recordings), "--format", "jsonl", "--workers", workers]) == 0
        found = lines(capsys.readouterr().out)
        answers.append([{**line, "compute_seconds": 0} for line in found])
    assert answers[0] == answers[1]


def test_report_is_one_file_an_incident_that_asks_for_nothing_else(
    recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replay", str(recordings), "--report", str(tmp_path)]) == 0
    names = sorted(path.name for path in recordings.iterdir())
    pages = sorted(tmp_path.iterdir())
    assert [page.stem for page in pages] == names
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "<html" in text
        assert 'src="http' not in text
        assert '<link rel="stylesheet" href' not in text


def test_recordings_of_the_same_name_keep_a_report_each(tmp_path: Path, recordings: Path) -> None:
    one = next(recordings.iterdir())
    for above in ("a", "b"):
        shutil.copytree(one, tmp_path / above / one.name)
    out = tmp_path / "out"
    assert run(["replay", str(tmp_path), "--detector", "null", "--report", str(out)]) == 0
    assert len(list(out.iterdir())) == 2


def test_a_gate_that_is_not_met_is_exit_status_1(
    recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    null = ["replay", str(recordings), "--detector", "null", "--format", "jsonl"]
    assert run([*null, "--fail-false-alarms-above", "0"]) == 0
    assert run([*null, "--fail-recall-below", "0.5"]) == 1
    assert "recall is 0.0000, wanted at least 0.5" in capsys.readouterr().err


def test_rejected_rows_are_counted_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    machines: list[str | None] = [f"m{i % 3}" for i in range(90)]
    machines[7], machines[8] = "localhost", None
    folder = tmp_path / "dirty"
    folder.mkdir()
    columns = {
        "ts": [start + timedelta(seconds=i // 3) for i in range(90)],
        "job": ["j"] * 90,
        "machine": machines,
        "gpu_power_watts": [300.0] * 90,
    }
    pq.write_table(pa.table(columns), folder / "telemetry.parquet")
    assert run(["replay", str(folder), "--rejects", str(tmp_path / "rejects")]) == 0
    assert "dirty: not used: 1 localhost, 1 no_machine" in capsys.readouterr().out
    (kept,) = (tmp_path / "rejects").iterdir()
    found = lines(kept.read_text(encoding="utf-8"))
    where = "dirty/telemetry.parquet"
    assert sorted((line["reason"], line["origin"]) for line in found) == [
        ("localhost", f"{where} row 7"),
        ("no_machine", f"{where} row 8"),
    ]
