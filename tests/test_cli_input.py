"""Bad usage and unreadable input: one clear line on stderr, exit status 2, no traceback."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serve.cli import COMMANDS, SUMMARIES, run

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 90
COLUMNS: dict[str, list[Any]] = {
    "ts": [START + timedelta(seconds=i // 3) for i in range(ROWS)],
    "job": ["j"] * ROWS,
    "machine": [f"m{i % 3}" for i in range(ROWS)],
    "gpu_power_watts": [300.0 + i % 3 for i in range(ROWS)],
}


def incident(folder: Path, columns: dict[str, list[Any]] | None = None, label: str = "") -> Path:
    """A recorded incident of three machines and half a minute."""
    folder.mkdir()
    pq.write_table(pa.table(columns or COLUMNS), folder / "telemetry.parquet")
    if label:
        (folder / "incident.json").write_text(label)
    return folder


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a refused command prints."""
    assert run([str(a) for a in arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("weaklink")
    return line


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({k: v for k, v in COLUMNS.items() if k != "machine"}, "column machine: missing"),
        ({**COLUMNS, "ts": ["noon"] * ROWS}, "column ts: must hold timestamps, not string"),
        (
            {**COLUMNS, "gpu_power_watts": ["a lot"] * ROWS},
            "column gpu_power_watts: must hold numbers, not string",
        ),
    ],
    ids=["column missing", "time of wrong type", "metric of wrong type"],
)
def test_a_bad_table_is_refused_by_file_and_column(
    columns: dict[str, list[Any]], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = incident(tmp_path / "a", columns)
    assert f"{folder / 'telemetry.parquet'}: {named}" in refusal(capsys, "replay", folder)


@pytest.mark.parametrize("name", ["job", "machine"])
def test_text_that_is_no_utf8_is_refused_by_file_and_column(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = pa.array([b"\xff\xfe"] * ROWS, pa.binary())
    folder = incident(tmp_path / "a", {**COLUMNS, name: raw.view(pa.string())})
    line = refusal(capsys, "replay", folder)
    assert f"{folder / 'telemetry.parquet'}: column {name}: Invalid UTF8" in line


def test_a_file_that_is_no_parquet_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = incident(tmp_path / "a")
    (folder / "telemetry.parquet").write_text("hello")
    line = refusal(capsys, "replay", folder)
    assert f"{folder / 'telemetry.parquet'}: not a Parquet file" in line


@pytest.mark.parametrize(
    ("label", "named"),
    [
        ("{nope", "not JSON"),
        (json.dumps({"faulty_machines": "m1"}), "faulty_machines"),
        (json.dumps({"job": "j", "faulty_machines": ["m1"], "onset": "yesterday"}), "onset"),
        ("[" * 100_000, "nested too deeply"),
        ('{"job": "\\ud800", "faulty_machines": []}', "not JSON: 'utf-8' codec can't encode"),
    ],
    ids=["not JSON", "machines are no list", "onset is no time", "too deep", "half a character"],
)
def test_a_bad_label_is_refused_by_file_and_key(
    label: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = incident(tmp_path / "a", label=label)
    assert f"{folder / 'incident.json'}: {named}" in refusal(capsys, "replay", folder)


def test_one_bad_recording_is_named_among_good_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    incident(tmp_path / "good")
    bad = incident(tmp_path / "worse", label="[]")
    assert run(["replay", str(tmp_path), "--format", "jsonl"]) == 2
    assert str(bad / "incident.json") in capsys.readouterr().err


def test_a_recording_without_usable_times_is_not_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = incident(tmp_path / "a", {**COLUMNS, "ts": [datetime(1980, 1, 1, tzinfo=UTC)] * ROWS})
    assert f"{folder}: column ts: holds no time" in refusal(capsys, "publish", folder)


def test_a_path_that_does_not_exist_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{tmp_path / 'no'}: does not exist" in refusal(capsys, "replay", tmp_path / "no")


def test_a_folder_without_a_recording_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{tmp_path}: holds no recording" in refusal(capsys, "replay", tmp_path)


def test_a_bad_catalogue_is_refused_by_file_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = incident(tmp_path / "a")
    path = tmp_path / "more.toml"
    path.write_text("[metric.x]\nunit = 'W'")
    line = refusal(capsys, "replay", folder, "--catalogue", path)
    assert str(path) in line
    assert "metric: unknown key" in line


def test_a_model_that_does_not_exist_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = incident(tmp_path / "a")
    assert "no-such-model" in refusal(capsys, "replay", folder, "--model", "no-such-model")


def test_a_bad_configuration_is_refused_by_file_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "weaklink.toml"
    path.write_text("[http]\nprot = 1")
    line = refusal(capsys, "serve", "--config", path)
    assert f"{path}: http.prot: unknown key (did you mean port?)" in line


@pytest.mark.parametrize(
    ("content", "role", "named"),
    [
        ('database.url = "mysql://h/d"', "all", "mysql"),
        ("", "worker", "database.url"),
        ('detection.model = "nope"', "all", "detection.model"),
        ('detection.catalogue_file = "nope.toml"', "all", "nope.toml"),
        ('kafka.bootstrap_servers = "a:b:c"', "all", "'a:b:c' is not HOST:PORT"),
        ('kafka.bootstrap_servers = "a:70000"', "all", "'a:70000' is not HOST:PORT"),
        ('source.kind = "kafka"\nkafka.tls.ca_file = "nope.pem"', "all", "kafka.tls.ca_file"),
    ],
)
def test_a_check_refuses_what_a_start_would_refuse(
    content: str,
    role: str,
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.toml"
    path.write_text(content)
    assert named in refusal(capsys, "serve", "--config", path, "--role", role, "--check")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["frobnicate"], "frobnicate"),
        (["replay"], "PATHS"),
        (["replay", "x", "--detector", "oracle"], "--detector"),
        (["simulate", "--out", "x", "--incidents", "1"], "--seed"),
        (["simulate", "--out", "x", "--incidents", "1", "--seed", "1", "--fault", "y"], "'y'"),
        (["demo", "--fault", "y"], "'y'"),
        (["demo", "--duration", "nan"], "--duration"),
        (["replay", "x", "--fail-recall-below", "nan"], "--fail-recall-below"),
        (["train", "x", "--out", "y", "--false-alarms-per-job-week", "nan"], "--false-alarms"),
        (["train", "x", "--out", "y", "--false-alarms-per-job-week", "inf"], "--false-alarms"),
        (["simulate", "--out", "x", "--incidents", "1", "--seed", "1", "--minutes", "nan"], "nan"),
        (["publish", "x", "--speed", "inf"], "--speed"),
        (["tokens", "create", " "], "NAME"),
        (["tokens", "create", "x", "--days", "nan"], "--days"),
        (["tokens", "create", "x", "--days", "200000"], "--days"),
        (["replay", "x", "--detector", "ratio", "--model", "y"], "--model"),
        (["publish", "nope"], "nope: does not exist"),
        (["notify", "test", "nobody"], "nobody"),
        (["notify", "replay", "9" * 20], "IDS"),
    ],
)
def test_bad_usage_is_one_line_that_names_what_is_wrong(
    arguments: list[str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert named in refusal(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("group", [[], ["models"], ["notify"], ["tokens"]])
def test_a_group_alone_shows_its_help_as_it_is(
    group: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*group, "--help"]) == 0
    wanted = capsys.readouterr().out
    assert run(group) == 2
    assert capsys.readouterr() == ("", wanted)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"weaklink {command}" in capsys.readouterr().out


def test_every_command_has_a_summary() -> None:
    assert list(SUMMARIES) == list(COMMANDS)
