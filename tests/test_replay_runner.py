"""A recording says the same however its rows lie in its files; small jobs end to end."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.simulate import FaultSpec, Incident, JobSpec, simulate, write_incident
from replay.runner import IncidentResult, ReplayOptions, replay_all, replay_incident

CRASH = FaultSpec("gpu_card_drop", (2,), onset_s=480.0, manifestation="crash", halt_after_s=150.0)
SMALL = JobSpec(machines=4, gpus_per_machine=2, minutes=12.0, faults=(CRASH,))
OPTIONS = ReplayOptions()


def line(result: IncidentResult) -> dict[str, Any]:
    """The JSON line without what may differ."""
    out = result.to_json()
    del out["compute_seconds"]
    return out


@pytest.fixture(scope="module")
def incident() -> Incident:
    return simulate(SMALL, 5)


@pytest.fixture(scope="module")
def expected(incident: Incident, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The line of the recording as it was written."""
    folder = write_incident(tmp_path_factory.mktemp("one") / "rec", incident)
    return line(replay_incident(folder, OPTIONS))


def rewritten(incident: Incident, folder: Path, parts: list[pa.Table]) -> Path:
    """The recording with other files of telemetry."""
    write_incident(folder, incident)
    (folder / "telemetry.parquet").unlink()
    for k, part in enumerate(parts):
        pq.write_table(part, folder / f"part-{k}.parquet", row_group_size=1000)
    return folder


def test_the_line_has_exactly_the_keys_of_the_contract(
    incident: Incident, expected: dict[str, Any]
) -> None:
    assert list(expected) == [
        *("incident", "job", "machines", "seconds", "alerts", "label", "outcome"),
        *("delay_seconds", "false_alarms"),
    ]
    assert (expected["incident"], expected["job"], expected["machines"]) == ("rec", "train", 4)
    assert expected["seconds"] == pytest.approx(720.0, abs=5.0)
    assert expected["label"]["faulty_machines"] == incident.label["faulty_machines"]


def test_the_crashed_machine_is_named_before_the_halt(expected: dict[str, Any]) -> None:
    assert expected["outcome"] == "right"
    assert 0.0 < expected["delay_seconds"] < 150.0
    assert expected["false_alarms"] == 0


def test_shuffled_and_doubled_rows_in_several_parts_say_the_same(
    incident: Incident, expected: dict[str, Any], tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    rows = incident.table.num_rows
    order = rng.permutation(np.concatenate((np.arange(rows), rng.integers(0, rows, rows // 100))))
    table = incident.table.take(pa.array(order))
    cuts = [0, 100, rows // 3, rows // 2, table.num_rows]
    parts = [table.slice(a, b - a) for a, b in pairwise(cuts)]
    assert line(replay_incident(rewritten(incident, tmp_path / "rec", parts), OPTIONS)) == expected


def test_parts_by_machine_say_the_same(
    incident: Incident, expected: dict[str, Any], tmp_path: Path
) -> None:
    table = incident.table
    names = table["machine"].to_numpy(zero_copy_only=False)
    parts = [table.filter(pa.array(names == name)) for name in sorted(set(names), reverse=True)]
    result = replay_incident(rewritten(incident, tmp_path / "rec", parts), OPTIONS)
    assert line(result) == expected


def test_recordings_are_answered_in_the_order_given(tmp_path: Path) -> None:
    tiny = simulate(JobSpec(machines=3, gpus_per_machine=1, minutes=0.5), 1)
    folders = [write_incident(tmp_path / name, tiny) for name in ("b", "a", "c")]
    assert [r.incident for r in replay_all(folders, OPTIONS)] == ["b", "a", "c"]


def test_rejected_rows_are_written_where_asked(incident: Incident, tmp_path: Path) -> None:
    few = incident.table.slice(0, 200)
    names = pa.array(["localhost"] * 3 + few["machine"].to_pylist()[3:])
    few = few.set_column(2, few.field("machine"), names)
    folder = rewritten(incident, tmp_path / "rec", [few])
    result = replay_incident(
        folder, ReplayOptions(rejects={folder: tmp_path / "rec.rejected.jsonl"})
    )
    assert result.rejected["localhost"] == 3
    assert "localhost" in (tmp_path / "rec.rejected.jsonl").read_text()


def test_a_label_that_does_not_fit_is_told(incident: Incident, tmp_path: Path) -> None:
    folder = rewritten(incident, tmp_path / "rec", [incident.table.slice(0, 200)])
    label = {"job": "typo", "faulty_machines": ["nobody"], "onset": "2001-01-01T00:00:00Z"}
    (folder / "incident.json").write_text(json.dumps(label))
    remarks = replay_incident(folder, OPTIONS).remarks
    assert [remark.partition(":")[0] for remark in remarks] == ["job", "faulty_machines", "onset"]


def test_the_job_is_the_samples_where_the_label_names_none(
    incident: Incident, tmp_path: Path
) -> None:
    folder = rewritten(incident, tmp_path / "rec", [incident.table.slice(0, 200)])
    (folder / "incident.json").write_text(json.dumps({"faulty_machines": []}))
    result = replay_incident(folder, OPTIONS)
    assert (result.job, result.remarks) == ("train", ())


def replayed(spec: JobSpec, seed: int, folder: Path) -> IncidentResult:
    return replay_incident(write_incident(folder, simulate(spec, seed)), OPTIONS)


def test_a_healthy_job_stays_quiet(tmp_path: Path) -> None:
    spec = JobSpec(machines=6, gpus_per_machine=2, minutes=25.0)
    result = replayed(spec, 3, tmp_path / "healthy")
    assert (result.score.outcome, result.alerts) == ("quiet", ())
    assert result.score.healthy_seconds == pytest.approx(1500.0, abs=5.0)


def test_one_bad_gpu_is_named_with_its_machine(tmp_path: Path) -> None:
    fault = FaultSpec(
        "thermal_throttling", (1,), gpu=2, onset_s=600.0, severity=0.5, halt_after_s=300.0
    )
    spec = JobSpec(machines=4, gpus_per_machine=4, per_gpu=True, minutes=15.0, faults=(fault,))
    result = replayed(spec, 7, tmp_path / "gpu")
    assert result.score.outcome == "right"
    assert result.alerts[0].gpu == 2
    assert {e.gpu for e in result.alerts[0].evidence} == {2}
