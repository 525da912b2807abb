"""Recorded incidents: good ones are read whole, bad ones get one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest import recording as module
from ingest import recording_parts, time_order
from ingest.catalogue import Catalogue
from ingest.recording import RecordingError, find_recordings, read_recording
from tests.align_support import START

MS = pa.timestamp("ms", tz="UTC")
REAL = Path(__file__).parent.parent.parent / "shared" / "data" / "real"


def telemetry(rows: int = 200, machines: int = 4, seed: int = 0) -> pa.Table:
    """A small recording in the order of time, with aliases, GPUs and an unknown column."""
    rng = np.random.default_rng(seed)
    ts = START // 1_000_000 + np.arange(rows) // machines * 1000
    return pa.table(
        {
            "ts": pa.array(ts, MS),
            "job": ["job"] * rows,
            "machine": [f"node-{i % machines}" for i in range(rows)],
            "gpu": pa.array([None if i % 3 else i % 2 for i in range(rows)], pa.int32()),
            "DCGM_FI_DEV_GPU_UTIL": rng.uniform(0, 100, rows),
            "own_thing": pa.array([None if i % 5 else i for i in range(rows)], pa.int64()),
        }
    )


def write(folder: Path, *tables: pa.Table, group: int = 1 << 20, **files: Any) -> Path:
    """A recording's folder; ``files`` are JSON documents by stem."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, table in enumerate(tables):
        pq.write_table(table, folder / f"part-{index}.parquet", row_group_size=group)
    for stem, content in files.items():
        (folder / f"{stem}.json").write_text(json.dumps(content))
    return folder


def samples(folder: Path) -> pa.Table:
    """All samples in the order in which they come."""
    batches = [d.samples for d in read_recording(folder, Catalogue.default()).batches()]
    return pa.concat_tables([b for b in batches if len(b)], promote_options="default")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds so low that small recordings go through files, and these are split again."""
    monkeypatch.setattr(module, "POOL_ROWS", 60)
    monkeypatch.setattr(recording_parts, "CHUNK_ROWS", 16)
    monkeypatch.setattr(time_order, "BUCKET_ROWS", 20)
    monkeypatch.setattr(time_order, "MAX_OPEN_FILES", 3)


def shuffled(table: pa.Table, seed: int = 1) -> pa.Table:
    return table.take(np.random.default_rng(seed).permutation(len(table)))


def test_samples_are_canonical_and_in_the_order_of_time(tmp_path: Path) -> None:
    got = samples(write(tmp_path / "a", shuffled(telemetry())))
    assert got.schema.field("ts").type == pa.timestamp("ns", tz="UTC")
    assert {"gpu_utilization_ratio", "own_thing"} < set(got.column_names)
    ts = got["ts"].to_numpy().astype(np.int64)
    assert (np.diff(ts) >= 0).all()
    assert len(got) == 200
    assert max(got["gpu_utilization_ratio"].to_pylist()) <= 1


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("rows", [1, 59, 200, 1000])
def test_rows_shuffled_over_any_parts_give_identical_batches(tmp_path: Path, rows: int) -> None:
    table = telemetry(rows)
    straight = samples(write(tmp_path / "a", table, group=50))
    mixed = shuffled(table)
    halves = write(tmp_path / "b", mixed.slice(0, rows // 3), mixed.slice(rows // 3), group=70)
    assert samples(halves).combine_chunks().equals(straight.combine_chunks())


@pytest.mark.usefixtures("small")
def test_a_recording_larger_than_the_pool_goes_through_files_that_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = write(tmp_path / "a", shuffled(telemetry(400)))
    batches = read_recording(folder, Catalogue.default()).batches()
    next(batches)
    assert list(tmp_path.glob("weaklink-*/*.arrow"))
    batches.close()
    assert not list(tmp_path.glob("weaklink-*"))


@pytest.mark.usefixtures("small")
def test_doubled_rows_come_next_to_each_other(tmp_path: Path) -> None:
    table = telemetry(300)
    got = samples(write(tmp_path / "a", shuffled(pa.concat_tables([table, table]))))
    assert got.take(np.arange(0, 600, 2)).equals(got.take(np.arange(1, 600, 2)))


@pytest.mark.usefixtures("small")
def test_one_stamp_far_from_all_others_loses_nothing(tmp_path: Path) -> None:
    table = telemetry(300)
    ts = table["ts"].to_numpy().astype("datetime64[ms]").copy()
    ts[17] = np.datetime64("2090-01-01")
    table = table.set_column(0, "ts", pa.array(ts, MS))
    assert len(samples(write(tmp_path / "a", shuffled(table)))) == 300


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_any_resolution_and_zone_of_time_is_the_same_instant(
    tmp_path: Path, unit: str, zone: str | None
) -> None:
    table = telemetry()
    other = table.set_column(0, "ts", table["ts"].cast(pa.timestamp(unit, tz=zone)))
    got = samples(write(tmp_path / "b", other))
    assert got.equals(samples(write(tmp_path / "a", table)))


def test_parts_may_have_different_columns(tmp_path: Path) -> None:
    table = telemetry()
    later = table.drop_columns(["own_thing"]).append_column("extra", pa.array([1.0] * 200))
    got = samples(write(tmp_path / "a", table, later))
    assert got["extra"].null_count == got["own_thing"].null_count - 160 == 200


def test_dictionaries_and_float_gpus_are_understood(tmp_path: Path) -> None:
    table = telemetry()
    other = table.set_column(2, "machine", table["machine"].dictionary_encode())
    other = other.set_column(3, "gpu", table["gpu"].cast(pa.float64()))
    got = samples(write(tmp_path / "b", other))
    assert got.equals(samples(write(tmp_path / "a", table)))


def test_rows_without_time_or_machine_are_rejected_with_their_place(tmp_path: Path) -> None:
    table = telemetry()
    ts, machine = table["ts"].to_pylist(), table["machine"].to_pylist()
    ts[3], machine[150] = None, None
    table = table.set_column(0, "ts", pa.array(ts, MS)).set_column(2, "machine", [machine])
    decoded = list(read_recording(write(tmp_path / "inc", table), Catalogue.default()).batches())
    rejected = {(r.reason, r.origin) for d in decoded for r in d.rejected}
    assert rejected == {
        ("bad_timestamp", "inc/part-0.parquet row 3"),
        ("no_machine", "inc/part-0.parquet row 150"),
    }
    assert sum(len(d.samples) for d in decoded) == 198


def test_label_and_topology_are_read(tmp_path: Path) -> None:
    label = {
        "job": "job",
        "faulty_machines": ["node-1"],
        "fault_type": "ecc",
        "onset": "2026-01-02T03:04:05.250Z",
        "halt": None,
        "note": "by hand",
    }
    topology = {"machines": {"node-1": {"rack": "r1", "pipeline_stage": 3}}}
    folder = write(tmp_path / "a", telemetry(), incident=label, topology=topology)
    recording = read_recording(folder, Catalogue.default())
    assert recording.label is not None
    assert recording.label.to_json() == label
    assert recording.label.onset_ns == 1_767_323_045_250_000_000
    assert recording.topology == topology["machines"]
    assert recording.name == "a"


def test_label_and_topology_are_optional(tmp_path: Path) -> None:
    recording = read_recording(write(tmp_path / "a", telemetry()), Catalogue.default())
    assert recording.label is None
    assert recording.topology == {}


Spoil = Callable[[Path], object]


def _without(name: str) -> Spoil:
    return lambda folder: _replace(folder, telemetry().drop_columns([name]))


def _with(name: str, column: pa.Array) -> Spoil:
    return lambda folder: _replace(
        folder, telemetry().drop_columns([name]).append_column(name, column)
    )


def _replace(folder: Path, table: pa.Table) -> None:
    pq.write_table(table, folder / "part-0.parquet")


def _file(name: str, content: bytes | str) -> Spoil:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def _label(**changes: object) -> Spoil:
    return _file("incident.json", json.dumps({"job": "j", "faulty_machines": [], **changes}))


def _removed(folder: Path) -> None:
    (folder / "part-0.parquet").unlink()


BAD: dict[str, tuple[Spoil, str]] = {
    "no parts": (_removed, "inc: holds no *.parquet file"),
    "no rows": (lambda f: _replace(f, telemetry(0)), "part-0.parquet: holds no rows"),
    "text": (_file("part-0.parquet", "ts,job"), "part-0.parquet: not a Parquet file: "),
    "empty": (_file("part-0.parquet", ""), "part-0.parquet: not a Parquet file: "),
    "no ts": (_without("ts"), "part-0.parquet: column ts: missing; there are job, machine, gpu"),
    "no job": (_without("job"), "part-0.parquet: column job: missing"),
    "no machine": (_without("machine"), "part-0.parquet: column machine: missing"),
    "ts of text": (
        _with("ts", pa.array(["now"] * 200)),
        "part-0.parquet: column ts: must hold timestamps, not string",
    ),
    "machine of numbers": (
        _with("machine", pa.array([1] * 200)),
        "part-0.parquet: column machine: must hold text, not int64",
    ),
    "gpu of text": (
        _with("gpu", pa.array(["a"] * 200)),
        "part-0.parquet: column gpu: must hold whole numbers, not string",
    ),
    "metric of text": (
        _with("own_thing", pa.array(["a"] * 200)),
        "part-0.parquet: column own_thing: must hold numbers, not string",
    ),
    "metric of lists": (
        _with("own_thing", pa.array([[1]] * 200)),
        "part-0.parquet: column own_thing: must hold numbers, not list",
    ),
    "label no JSON": (_file("incident.json", "{"), "incident.json: not JSON: "),
    "label a list": (_file("incident.json", "[]"), "incident.json: must be a JSON object, not []"),
    "label without machines": (
        _file("incident.json", '{"job": "j"}'),
        "incident.json: faulty_machines: must be a list of machine names",
    ),
    "label with a number": (
        _label(faulty_machines=["a", 3]),
        "incident.json: faulty_machines[1]: must be a machine name, not 3",
    ),
    "label with a bad time": (
        _label(onset="yesterday"),
        'incident.json: onset: must be an RFC 3339 time, not "yesterday"',
    ),
    "label with a number as time": (
        _label(halt=17),
        "incident.json: halt: must be a text or null, not 17",
    ),
    "halt before onset": (
        _label(onset="2026-01-01T00:00:01Z", halt="2026-01-01T00:00:00Z"),
        "incident.json: halt: is before onset",
    ),
    "topology without machines": (
        _file("topology.json", "{}"),
        "topology.json: machines: must be an object of machine names",
    ),
    "topology with a number that is none": (
        _file("topology.json", '{"machines": {"node-1": {"pipeline_stage": NaN}}}'),
        "topology.json: machines.node-1.pipeline_stage: must be a text or number, not NaN",
    ),
    "topology of lists": (
        _file("topology.json", '{"machines": {"a": []}}'),
        "topology.json: machines.a: must be an object of attributes",
    ),
    "topology too deep": (
        _file("topology.json", '{"machines": {"a": {"rack": [1]}}}'),
        "topology.json: machines.a.rack: must be a text or number, not [1]",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_recording_gets_one_line_that_names_place_and_reason(
    tmp_path: Path, case: str
) -> None:
    spoil, line = BAD[case]
    folder = write(tmp_path / "inc", telemetry())
    spoil(folder)
    with pytest.raises(RecordingError) as caught:
        read_recording(folder, Catalogue.default())
    assert line in str(caught.value)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "inc", telemetry(5000))
    file = folder / "part-0.parquet"
    data = bytearray(file.read_bytes())
    data[4:2000] = b"\xff" * 1996
    file.write_bytes(data)
    with pytest.raises(RecordingError, match=r"part-0\.parquet: row group 0: "):
        list(read_recording(folder, Catalogue.default()).batches())


def test_a_recording_without_any_usable_row_is_an_error(tmp_path: Path) -> None:
    table = telemetry().set_column(2, "machine", pa.array([None] * 200, pa.string()))
    recording = read_recording(write(tmp_path / "inc", table), Catalogue.default())
    with pytest.raises(RecordingError, match=r"inc: none of 200 rows is usable; .* no_machine"):
        list(recording.batches())


def test_recordings_are_found_at_any_depth_once_and_in_order(tmp_path: Path) -> None:
    for name in ("b/two", "b/one", "a"):
        write(tmp_path / name, telemetry(4))
    (tmp_path / "b" / "notes").mkdir()
    wanted = [tmp_path / "b/one", tmp_path / "b/two", tmp_path / "a"]
    assert find_recordings([tmp_path / "b", tmp_path]) == wanted


def test_links_are_followed_and_lead_to_each_recording_once(tmp_path: Path) -> None:
    write(tmp_path / "kept" / "one", telemetry(4))
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    (chosen / "first").symlink_to(tmp_path / "kept" / "one")
    (chosen / "again").symlink_to(tmp_path / "kept" / "one")
    (chosen / "round").symlink_to(chosen)
    assert find_recordings([chosen]) == [chosen / "again"]
    kept = [tmp_path / "kept" / "one"]
    assert find_recordings([tmp_path / "kept", chosen]) == kept
    assert find_recordings([tmp_path]) == kept


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.mkdir(), "holds no recording"),
        (lambda path: None, "does not exist"),
        (lambda path: path.write_text(""), "not a folder"),
    ],
)
def test_a_path_without_recordings_is_one_clear_error(
    tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "x"
    make(path)
    with pytest.raises(RecordingError, match=reason):
        find_recordings([path])
    with pytest.raises(RecordingError):
        read_recording(path, Catalogue.default())


@pytest.mark.skipif(
    not REAL.is_dir(), reason="recordings of real jobs are not beside the repository"
)
def test_every_real_recording_reads_without_a_rejected_row() -> None:
    paths = find_recordings([REAL])
    assert len(paths) >= 20
    for path in paths:
        recording = read_recording(path, Catalogue.default())
        decoded = list(recording.batches())
        assert sum(len(d.samples) for d in decoded) == recording.rows
        assert not any(d.rejected for d in decoded)
