"""Recordings through alignment: what detection sees does not depend on how they were written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest import recording as module
from ingest import recording_parts, time_order
from ingest.catalogue import Catalogue
from ingest.recording import find_recordings, read_recording
from tests.align_support import SECOND, START, Outcome, align

REAL = Path(__file__).parent.parent.parent / "shared" / "data" / "real"


def aligned(folder: Path) -> Outcome:
    """A whole recording through one aligner."""
    return align(d.samples for d in read_recording(folder, Catalogue.default()).batches())


def job(seconds: int = 120) -> pa.Table:
    """Six machines, two GPUs each, a counter, some values missing."""
    rng = np.random.default_rng(4)
    rows = [(s, m, g) for s in range(seconds) for m in range(6) for g in (None, 0, 1)]
    stamps = [START // 10**6 + s * 1000 + int(rng.integers(0, 900)) for s, _, _ in rows]
    watts = [None if g is None or rng.random() < 0.1 else 300 + rng.normal() for _, _, g in rows]
    cpu = [None if g is not None else rng.random() for _, _, g in rows]
    sent = [None if g is not None else 1e6 * s + m for s, m, g in rows]
    return pa.table(
        {
            "ts": pa.array(stamps, pa.timestamp("ms", tz="UTC")),
            "job": ["job"] * len(rows),
            "machine": [f"node-{m}" for _, m, _ in rows],
            "gpu": pa.array([g for _, _, g in rows], pa.int32()),
            "DCGM_FI_DEV_POWER_USAGE": pa.array(watts, pa.float64()),
            "cpu_usage_ratio": pa.array(cpu, pa.float64()),
            "node_infiniband_port_data_transmitted_bytes_total": pa.array(sent, pa.float64()),
        }
    )


def test_shuffled_doubled_and_cut_recordings_give_identical_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    table = job()
    again = table.take(rng.integers(0, len(table), len(table) // 100))
    mixed = pa.concat_tables([table, again])
    mixed = mixed.take(rng.permutation(len(mixed)))
    for name in ("plain", "mixed"):
        (tmp_path / name).mkdir()
    pq.write_table(table, tmp_path / "plain" / "telemetry.parquet")
    for i, at in enumerate(range(0, len(mixed), 500)):
        pq.write_table(mixed.slice(at, 500), tmp_path / "mixed" / f"{i}.parquet")

    plain = aligned(tmp_path / "plain")
    pooled = aligned(tmp_path / "mixed")
    monkeypatch.setattr(module, "POOL_ROWS", 300)
    monkeypatch.setattr(recording_parts, "CHUNK_ROWS", 64)
    monkeypatch.setattr(time_order, "BUCKET_ROWS", 150)
    spilled = aligned(tmp_path / "mixed")

    assert pooled.ticks() == plain.ticks()
    assert spilled.ticks() == plain.ticks()
    assert 15 <= pooled.aligner.counters["duplicate"] <= len(again)
    assert not plain.rejected
    assert plain.aligner.tick_ns == SECOND
    assert sum(b.ticks for b in plain.blocks) == 120
    rates = plain.machine("ib_tx_bytes_per_second", "node-3")
    assert np.median(rates[2:]) == pytest.approx(1e6, rel=0.1)


@pytest.mark.skipif(
    not REAL.is_dir(), reason="recordings of real jobs are not beside the repository"
)
@pytest.mark.parametrize(
    ("group", "tick", "machines"), [("perseus-a", 15, 12), ("perseus-c", 15, 12), ("mlperf", 2, 5)]
)
def test_real_jobs_have_their_known_cadence_and_machines(
    group: str, tick: int, machines: int
) -> None:
    paths = [p for p in find_recordings([REAL]) if p.parent.name.startswith(group)]
    assert paths
    for path in paths:
        outcome = aligned(path)
        assert {b.tick_ns for b in outcome.blocks} == {tick * SECOND}
        assert {b.run for b in outcome.blocks} == {0}
        assert len(outcome.blocks[-1].machines) == machines
        assert not outcome.rejected
