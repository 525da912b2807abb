"""What people said of alerts changes what training learns."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import delete, update

from ingest.catalogue import Catalogue
from ingest.recording import Label
from ingest.simulate import FaultSpec, JobSpec, simulate, write_incident
from models.evidence_model import EvidenceModel
from replay.feedback import FeedbackError, FeedbackLabels, Opinion, label_recordings, read_feedback
from replay.healthy import healthy_evidence
from replay.train import TrainOptions, rate_correction, train
from serve.cli import run
from serve.config import AlertSettings
from serve.lifecycle import Lifecycle
from serve.links import Links
from serve.opinions import stored_opinions
from serve.store.base import Database
from serve.store.tables import AlertRow, FeedbackRow
from tests.serve_support import SECOND, START_NS, HandClock, change, make_alert, memory_database

CATALOGUE = Catalogue.default()
START = datetime.fromtimestamp(START_NS // SECOND, UTC)


def recording(folder: Path, label: dict[str, Any] | None = None, job: str = "llama") -> Path:
    """A minute of three machines from `START_NS` on."""
    folder.mkdir()
    ticks = 180
    columns: dict[str, list[Any]] = {
        "ts": [START + timedelta(seconds=i // 3) for i in range(ticks)],
        "job": [job] * ticks,
        "machine": [f"m-{i % 3}" for i in range(ticks)],
        "gpu_power_watts": [300.0 + i % 3 for i in range(ticks)],
    }
    pq.write_table(pa.table(columns), folder / "telemetry.parquet")
    if label is not None:
        (folder / "incident.json").write_text(json.dumps({"job": job, "onset": None} | label))
    return folder


def opinion(right: bool = True, **fields: Any) -> Opinion:
    """Of an alert of m-1 in the recording's second half."""
    at = START_NS + 40 * SECOND
    said = Opinion("a1", "llama", right, ("m-1",), None, at - 10 * SECOND, at)
    return replace(said, **fields)


def labelled(path: Path, *opinions: Opinion) -> FeedbackLabels:
    """Labels of one recording."""
    return label_recordings([path], opinions, CATALOGUE)


def test_an_alert_that_was_wrong_makes_its_recording_healthy(tmp_path: Path) -> None:
    path = recording(tmp_path / "r")
    assert labelled(path, opinion(False)).labels[path].faulty_machines == ()


def test_an_alert_that_was_right_labels_machine_and_onset(tmp_path: Path) -> None:
    path = recording(tmp_path / "r")
    label = labelled(path, opinion()).labels[path]
    assert (label.job, label.faulty_machines) == ("llama", ("m-1",))
    assert label.onset_ns == START_NS + 30 * SECOND


def test_the_machine_that_it_really_was_is_the_faulty_one(tmp_path: Path) -> None:
    path = recording(tmp_path / "r")
    assert labelled(path, opinion(False, machine="m-2")).labels[path].faulty_machines == ("m-2",)


def test_an_onset_before_the_recording_means_faulty_from_the_start(tmp_path: Path) -> None:
    path = recording(tmp_path / "r")
    early = opinion(onset_ns=START_NS - 5 * SECOND)
    assert labelled(path, early).labels[path].onset_ns is None


def test_the_last_word_on_an_alert_counts(tmp_path: Path) -> None:
    path = recording(tmp_path / "r")
    assert labelled(path, opinion(), opinion(False)).labels[path].faulty_machines == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"job": "other"},
        {"onset_ns": START_NS + 90 * SECOND, "detected_at_ns": START_NS + 99 * SECOND},
        {"onset_ns": START_NS - 90 * SECOND, "detected_at_ns": START_NS - 60 * SECOND},
    ],
)
def test_feedback_on_another_job_or_time_changes_nothing_and_that_is_said(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    found = labelled(recording(tmp_path / "r"), opinion(**fields))
    assert found.labels == {}
    assert found.remarks == ("feedback on 1 of 1 alerts is about no recording",)


@pytest.mark.parametrize(
    ("label", "said", "words"),
    [
        ({"faulty_machines": []}, opinion(), "(healthy) stands against feedback on a1 (m-1)"),
        ({"faulty_machines": ["m-1"]}, opinion(False), "(m-1) stands against feedback on a1 (not"),
        ({"faulty_machines": ["m-0"]}, opinion(), "(m-0) stands against feedback on a1 (m-1)"),
    ],
)
def test_a_recordings_own_label_wins_over_feedback_with_one_line(
    label: dict[str, Any], said: Opinion, words: str, tmp_path: Path
) -> None:
    found = labelled(recording(tmp_path / "r", label), said)
    assert found.labels == {}
    (line,) = found.remarks
    assert line.startswith("r: its own label")
    assert words in line


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ({"faulty_machines": []}, opinion(False)),
        ({"faulty_machines": ["m-1"]}, opinion()),
        ({"faulty_machines": ["m-0"]}, opinion(False)),
        ({"faulty_machines": ["m-0"]}, opinion(False, machine="m-0")),
    ],
)
def test_feedback_that_agrees_with_a_label_says_nothing(
    label: dict[str, Any], said: Opinion, tmp_path: Path
) -> None:
    assert labelled(recording(tmp_path / "r", label), said) == FeedbackLabels({}, (), ())


def test_what_was_right_and_names_nobody_is_neither_healthy_nor_faulty(tmp_path: Path) -> None:
    path = recording(tmp_path / "r")
    found = labelled(path, opinion(accused=()))
    assert (found.labels, found.left_out) == ({}, (path,))
    assert found.remarks == ("r: left out: a1 was right, and names nobody",)


# Files.


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    said = [opinion(), opinion(False, alert="a2", machine="m-2"), opinion(accused=())]
    path = tmp_path / "said.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps(o.to_json()) for o in said) + b"\n\n")
    assert read_feedback(path) == said


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"verdict": "maybe"}, "line 1: verdict: must be right or wrong"),
        ({"onset": "noon"}, "line 1: onset: not a time in RFC 3339"),
        ({"onset": "2026-01-01T00:00:00"}, "line 1: onset: has no offset from UTC"),
        ({"machines": "m-1"}, "line 1: machines: must be a list of names"),
        ({"job": None}, "line 1: job: must be text"),
    ],
)
def test_a_bad_line_is_named_with_key_and_reason(
    changed: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "said.jsonl"
    path.write_bytes(orjson.dumps(opinion().to_json() | changed))
    with pytest.raises(FeedbackError) as caught:
        read_feedback(path)
    assert str(caught.value) == f"{path}: {reason}"


# The service's store.


def said_to(
    database: Database,
    verdict: Literal["right", "wrong"],
    machine: str | None = None,
) -> None:
    """An alert of m-1, and feedback on it."""
    life = Lifecycle(AlertSettings(), Links(""))
    alert = make_alert(
        "m-1", onset_ns=START_NS + 30 * SECOND, detected_at_ns=START_NS + 40 * SECOND
    )
    with database.write() as session:
        life.apply(session, [change("opened", alert)], now_ns=database.clock())
        life.feedback(
            session,
            alert.id,
            verdict=verdict,
            machine=machine,
            note="",
            by="ann",
            now_ns=database.clock(),
        )


def test_feedback_outlives_its_alert_with_all_that_training_needs() -> None:
    database = memory_database()
    said_to(database, "wrong", "m-2")
    with database.write() as session:
        session.execute(delete(AlertRow))
    with database.read() as session:
        found, lost = stored_opinions(session)
    assert found == [opinion(False, alert="llama-m-1", machine="m-2")]
    assert lost == 0


def test_feedback_of_an_older_version_is_read_with_its_alert_or_counted_as_lost() -> None:
    database = memory_database()
    said_to(database, "right")
    with database.write() as session:
        session.execute(update(FeedbackRow).values(machines=None, onset_ns=None))
    with database.read() as session:
        assert stored_opinions(session) == ([opinion(alert="llama-m-1")], 0)
    with database.write() as session:
        session.execute(delete(AlertRow))
    with database.read() as session:
        assert stored_opinions(session) == ([], 1)


@pytest.mark.parametrize("kind", ["url", "toml", "jsonl"])
def test_the_command_takes_feedback_from_a_database_a_configuration_and_a_file(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'service.db'}"
    database = Database(url, clock=HandClock())
    database.migrate()
    said_to(database, "right")
    database.close()
    config = tmp_path / "service.toml"
    config.write_text(f'[database]\nurl = "{url}"\n')
    assert run(["feedback", "--config", str(config)]) == 0
    exported = capsys.readouterr().out
    file = tmp_path / "said.jsonl"
    file.write_text(exported)
    assert read_feedback(file) == [opinion(alert="llama-m-1")]
    source = {"url": url, "toml": str(config), "jsonl": str(file)}[kind]
    paths = [str(recording(tmp_path / "r")), str(recording(tmp_path / "s", job="other"))]
    out = str(tmp_path / "model")
    assert run(["train", *paths, "--out", out, "--feedback", source]) == 0
    said = capsys.readouterr().err
    assert "feedback labels 1 recordings: 1 faulty, 0 healthy\n" in said


@pytest.mark.parametrize("source", ["nowhere.jsonl", "sqlite:///nowhere.db", "no://such"])
def test_feedback_that_is_not_there_is_one_line(
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = recording(tmp_path / "r")
    assert run(["train", str(path), "--out", "m", "--feedback", source]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("weaklink: ")
    assert list(tmp_path.iterdir()) == [path]


# What is learned.

ONSET_SECONDS = 240


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Opinion]:
    """Eight minutes of six machines, one of which fails; nobody has labelled them."""
    fault = FaultSpec("ecc_error", machines=(1,), onset_s=float(ONSET_SECONDS))
    spec = JobSpec(job="llama", machines=6, minutes=8.0, faults=(fault,))
    path = write_incident(tmp_path_factory.mktemp("r") / "r", simulate(spec, seed=3))
    label = json.loads((path / "incident.json").read_text())
    (path / "incident.json").unlink()
    onset_ns = round(datetime.fromisoformat(label["onset"]).timestamp()) * SECOND
    machines = tuple(label["faulty_machines"])
    return path, Opinion("a", "llama", True, machines, None, onset_ns, onset_ns + 20 * SECOND)


def learned(path: Path, *opinions: Opinion) -> EvidenceModel:
    """The model of one recording with this feedback."""
    labels = label_recordings([path], opinions, CATALOGUE).labels
    return train([path], TrainOptions(labels=labels), CATALOGUE).model


def test_feedback_changes_what_counts_as_healthy(incident: tuple[Path, Opinion]) -> None:
    path, right = incident
    unsaid, wrong = learned(path), learned(path, replace(right, right=False))
    sure = learned(path, right)
    # Wrong: healthy for certain, so that its alarms are false ones and are counted as such.
    assert (unsaid.quality["healthy_job_hours"], unsaid.quality["unlabelled"]) == (0.0, 1)
    assert wrong.quality["healthy_job_hours"] == pytest.approx(8 / 60, abs=0.01)
    assert wrong.quality["false_alarms"] > 0
    assert wrong.trained_on["healthy"] == wrong.trained_on["labelled_by_feedback"] == 1
    # Right: what follows the onset teaches neither scales nor tail.
    assert sure.quality["right"] == 1
    assert sure.quality["healthy_job_hours"] == pytest.approx(ONSET_SECONDS / 3600, abs=0.01)
    assert sure.trained_on["machine_hours"] < 0.6 * wrong.trained_on["machine_hours"]
    alarms = [sum(m.trained_on["alarms_at_asked_rates"].values()) for m in (sure, wrong)]
    assert alarms[0] < alarms[1]
    assert sure.threshold(6, 1.0) < wrong.threshold(6, 1.0)


def test_jobs_held_out_correct_the_stated_rate_and_one_job_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy: dict[str, Any] = {"faulty_machines": []}
    paths = [recording(tmp_path / f"r{i}", healthy, job=f"job-{i}") for i in range(4)]
    plain = train(paths, TrainOptions(), CATALOGUE).model
    hours = plain.quality["healthy_job_hours"]
    asked = plain.quality["asked_false_alarms_per_job_week"]
    assert plain.quality["held_out"]
    found = rate_correction(plain.quality["false_alarms"], hours, asked)
    assert plain.quality["rate_corrected_by"] == pytest.approx(found, abs=1e-4)
    monkeypatch.setattr("replay.train.rate_correction", lambda *_: 100.0 * found)
    more = train(paths, TrainOptions(), CATALOGUE).model
    shift = more.tail_intercept - plain.tail_intercept
    assert shift == pytest.approx(math.log(100.0), abs=2e-4)
    assert more.threshold(6) > plain.threshold(6)
    alone = train(paths[:1], TrainOptions(), CATALOGUE).model
    assert "rate_corrected_by" not in alone.quality


def test_what_was_right_is_left_out_of_the_healthy_scales(incident: tuple[Path, Opinion]) -> None:
    path, right = incident
    label = label_recordings([path], [right], CATALOGUE).labels[path]
    healthy = Label("llama", ())
    cut = healthy_evidence(path, EvidenceModel(), CATALOGUE, label).metrics["gpu_power_watts"]
    whole = healthy_evidence(path, EvidenceModel(), CATALOGUE, healthy).metrics["gpu_power_watts"]
    assert cut.row_hours < 0.6 * whole.row_hours
    # What the fault did would make holds longer; it is not among what healthy machines did.
    longest = [max((p for test in m.peaks for p in test), default=0.0) for m in (cut, whole)]
    assert longest[0] < 30.0 < 100.0 < longest[1]
