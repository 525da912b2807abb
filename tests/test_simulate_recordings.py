"""Recordings on disk: labels that are true, the binding format, errors in one line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.simulate import (
    FAULT_MIX,
    FAULT_TYPES,
    HARD_SETS,
    TELEMETRY_FAULTS,
    FaultSpec,
    JobSpec,
    Wishes,
    draw_spec,
    incident_spec,
    run_simulate,
    simulate,
    write_incidents,
)
from tests.simulate_support import quiet


def drawn(fault: str | None, seed: int, **given: Any) -> JobSpec:
    rng = np.random.Generator(np.random.PCG64(seed))
    return draw_spec(rng, Wishes(fault=fault, **given))


_SMALL = Wishes(machines=3, minutes=4.0)


def read(folder: Path) -> tuple[pa.Table, dict[str, Any], dict[str, Any]]:
    label = json.loads((folder / "incident.json").read_text())
    topology = json.loads((folder / "topology.json").read_text())
    return pq.read_table(folder / "telemetry.parquet"), label, topology


def test_a_recording_is_three_files_in_the_binding_format(tmp_path: Path) -> None:
    folders = run_simulate(tmp_path, 1, 7, 1, 4, "hdfs_error", minutes=12.0)
    assert [f.name for f in folders] == ["inc-0001-hdfs_error", "healthy-0001"]
    table, label, topology = read(folders[0])
    assert table.schema.field("ts").type == pa.timestamp("ms", tz="UTC")
    assert table.column_names[:4] == ["ts", "job", "machine", "gpu"]
    assert list(label) == ["job", "faulty_machines", "fault_type", "onset", "halt", "note"]
    assert label["fault_type"] == "hdfs_error"
    assert set(label["faulty_machines"]) <= set(topology["machines"])
    assert set(table["machine"].unique().to_pylist()) == set(topology["machines"])
    keys = {"leaf_switch", "rack", "pipeline_stage", "data_rank"}
    assert all(keys <= set(place) for place in topology["machines"].values())
    assert table["job"].unique().to_pylist() == [label["job"]]


def test_a_healthy_recording_names_no_machine(tmp_path: Path) -> None:
    folder = write_incidents(tmp_path, incidents=0, healthy=1, seed=3, wishes=_SMALL)[0]
    _, label, _ = read(folder)
    assert label["faulty_machines"] == []
    assert (label["fault_type"], label["onset"], label["halt"]) == (None, None, None)


def test_onset_and_halt_lie_within_the_recording() -> None:
    for seed in range(6):
        spec = drawn("ecc_error", seed, machines=3, per_gpu=False)
        incident = simulate(spec, seed)
        onset = incident.label["onset"]
        if spec.faults[0].onset_s is None:
            assert onset is None
            continue
        stamps = incident.table["ts"].cast(pa.int64()).to_numpy() / 1e9
        begin = datetime.fromisoformat(onset).timestamp()
        assert stamps.min() + 590 < begin < stamps.max()
        halt = incident.label["halt"]
        if halt is not None:
            assert begin < datetime.fromisoformat(halt).timestamp() < stamps.max()


@pytest.mark.parametrize("fault", FAULT_TYPES)
def test_every_fault_type_can_be_drawn_and_simulated(fault: str) -> None:
    spec = drawn(fault, 1, machines=6, per_gpu=False, cadence_seconds=5.0)
    incident = simulate(spec, 1)
    assert incident.table.num_rows > 100
    if fault in TELEMETRY_FAULTS:
        assert incident.label["faulty_machines"] == []
        assert fault in incident.label["note"]
        assert incident.topology["machines"].keys() & set(incident.label["note"].split())
    else:
        assert incident.label["fault_type"] == fault
        assert len(incident.label["faulty_machines"]) == len(spec.faults[0].machines)


@pytest.mark.parametrize("fault", sorted(FAULT_MIX))
def test_a_fault_changes_the_samples_of_its_machines_from_its_onset(fault: str) -> None:
    spec = replace(
        drawn(fault, 2, machines=6, per_gpu=False, cadence_seconds=1.0), metrics=_EVERYTHING
    )
    placed = replace(spec.faults[0], onset_s=120.0, ramp_s=min(spec.faults[0].ramp_s, 60.0))
    hit = replace(spec, faults=(placed,), minutes=6.0)
    calm = simulate(replace(hit, faults=()), 2).table
    sick = simulate(hit, 2)
    before, after = _differences(calm, sick.table, hit, 120.0)
    assert not before
    assert set(sick.label["faulty_machines"]) <= after


_EVERYTHING = tuple(sorted({m for k in range(40) for m in drawn(None, k, machines=6).metrics}))


def _differences(
    calm: pa.Table, sick: pa.Table, spec: JobSpec, onset_s: float
) -> tuple[set[str], set[str]]:
    """Machines with rows that differ, true time before the onset and after it."""

    def rows(table: pa.Table) -> set[tuple[Any, ...]]:
        return {tuple(row.values()) for row in table.to_pylist()}

    before: set[str] = set()
    after: set[str] = set()
    for row in rows(calm) ^ rows(sick):
        seconds = (row[0].timestamp() * 1e9 - spec.start_ns) / 1e9
        # Clocks differ by up to three seconds, an interval is one second long.
        (before if seconds < onset_s - spec.clock_offset_s - 1.0 else after).add(row[2])
    return before, after


def test_machines_of_a_failed_switch_are_all_that_hang_on_it() -> None:
    for seed in range(5):
        spec = drawn("switch_failure", seed)
        incident = simulate(replace(spec, minutes=1.0), seed)
        places = incident.topology["machines"]
        failed = {places[m]["leaf_switch"] for m in incident.label["faulty_machines"]}
        assert len(failed) == 1
        behind = {m for m, p in places.items() if p["leaf_switch"] in failed}
        assert behind == set(incident.label["faulty_machines"])
        assert len(behind) < len(places)


def test_faults_are_drawn_in_the_published_proportions() -> None:
    types = [drawn(None, seed).faults[0].type for seed in range(1500)]
    assert types.count("ecc_error") / 1500 == pytest.approx(0.389, abs=0.04)
    assert set(types) == set(FAULT_MIX)


def test_jobs_are_of_all_sizes_and_kinds() -> None:
    specs = [drawn(None, seed) for seed in range(300)]
    sizes = [s.machines for s in specs]
    assert min(sizes) == 3
    assert max(sizes) > 150
    assert np.median(sizes) < 40
    assert {s.wait for s in specs} == {"spin", "few_sms", "host"}
    steps = [s.step.nominal_s for s in specs]
    assert min(steps) < 0.5
    assert max(steps) > 40.0
    assert {len(s.metrics) for s in specs} >= {4, 7, 16, 22}
    assert min(s.minutes for s in specs) >= 30.0
    assert max(s.minutes for s in specs) <= 60.0
    onsets = [s.faults[0].onset_s for s in specs]
    assert None in onsets
    assert min(o for o in onsets if o is not None) >= 600.0


def test_the_specification_of_a_recording_depends_on_seed_and_number_only() -> None:
    assert incident_spec(9, 3) == incident_spec(9, 3)
    assert incident_spec(9, 3) != incident_spec(9, 4)
    assert incident_spec(9, 3) != incident_spec(9, 3, healthy=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fault": "gremlins"}, "unknown fault 'gremlins'; known: ecc_error, "),
        ({"incidents": -1}, "incidents must be at least 0, not -1"),
        ({"healthy": -2}, "healthy must be at least 0, not -2"),
        ({"seed": -3}, "seed must be at least 0, not -3"),
        ({"machines": 2}, "machines must be 3 to 10000, not 2"),
        ({"machines": 10_001}, "machines must be 3 to 10000, not 10001"),
        ({"minutes": 0.5}, "minutes must be 2 to 100000, not 0.5"),
        ({"cadence_seconds": 0.01}, "cadence_seconds must be 0.1 to 60, not 0.01"),
        ({"machines": 4, "fault": "switch_failure"}, "machines must be at least 6 for switch_"),
        ({"hard_set": "mud"}, "unknown hard set 'mud'; known: small, "),
        ({"workers": 0}, "workers must be positive"),
    ],
)
def test_bad_arguments_are_named_in_one_line(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"incidents": 1, "seed": 1, **arguments}
    with pytest.raises(ValueError, match="^" + re.escape(message) + ".*$"):
        run_simulate(tmp_path, **given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cadence_seconds": 61.0}, "cadence_seconds"),
        ({"minutes": 0.0}, "minutes"),
        ({"machines": 0}, "machines"),
        ({"faults": (FaultSpec("ecc_error", (7,)),)}, "beyond the job's 4"),
        ({"metrics": ()}, "at least one metric"),
        ({"metrics": ("wind_speed",)}, "'wind_speed' is not simulated"),
    ],
)
def test_a_specification_that_cannot_be_simulated_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        quiet(**changes)


@pytest.mark.parametrize("name", sorted(HARD_SETS))
def test_a_hard_set_is_what_it_is_called(name: str) -> None:
    specs = [incident_spec(1, i, wishes=HARD_SETS[name])[0] for i in range(20)]
    faults = [s.faults[0] for s in specs]
    means = {
        "small": all(s.machines in (3, 4) for s in specs),
        "varied": all(s.spread >= 2.0 and s.stages > 1 for s in specs),
        "fail_slow_under_10_percent": all(
            f.manifestation == "slow" and f.severity <= 0.1 for f in faults
        ),
        "slow_drift": all(f.pattern == "ramp" and f.ramp_s >= 480.0 for f in faults),
        "intermittent": all(f.pattern == "intermittent" for f in faults),
        "from_start": all(f.onset_s is None for f in faults),
        "one_gpu_of_eight": all(s.per_gpu for s in specs) and None not in {f.gpu for f in faults},
        "group": all(len(f.machines) > 1 for f in faults),
        "pcie_and_gpu_execution": {f.type for f in faults}
        == {"pcie_downgrading", "gpu_execution_error"},
        "bad_telemetry": {f.type for f in faults} == set(TELEMETRY_FAULTS),
    }
    assert means[name]


def test_progress_is_told_after_each_recording(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    write_incidents(
        tmp_path,
        incidents=1,
        healthy=1,
        seed=2,
        wishes=_SMALL,
        progress=lambda done, total, folder: told.append((done, total, folder.name)),
    )
    assert [t[:2] for t in told] == [(1, 2), (2, 2)]
    assert told[1][2] == "healthy-0001"
