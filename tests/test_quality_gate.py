"""A small part of the benchmark, measured for real and held to the stored baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.catalogue import Catalogue
from replay.quality.cache import ResultCache
from replay.quality.gate import failures, read_baseline
from replay.quality.origin import Origin
from replay.quality.report import result_json
from replay.quality.run import run
from replay.quality.sources import Injected
from replay.quality.workloads import WORKLOADS

DETECTORS = ["evidence", "null"]
DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "real"


@pytest.mark.slow
def test_quality_has_not_fallen_and_results_are_used_again(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path)
    items = WORKLOADS["smoke"].items
    measured = run(items, DETECTORS, tmp_path, cache, clock=lambda: 0.0)
    result = result_json(measured, DETECTORS, Origin("here", "now"))
    baseline = read_baseline(Path(__file__).parent / "quality_baseline.json")
    assert failures(result, baseline) == []
    cache.close()
    # No time at all is enough for what is known.
    known = ResultCache(tmp_path)
    again = run(items, DETECTORS, tmp_path, known, hours=0.0, clock=lambda: 0.0)
    known.close()
    assert again == measured


def test_an_injected_fault_lowers_one_machines_real_power() -> None:
    item = next(i for i in WORKLOADS["power-injected"].items if "-dip-" in i.key)
    if not item.source.available(DATA):
        pytest.skip("real recordings are not there")
    opened = item.source.opened(item.id, Catalogue.default(), DATA)
    recording = opened.recording
    assert isinstance(item.source, Injected)
    assert recording.label is not None
    assert recording.label.onset_ns is not None
    (faulty,) = recording.label.faulty_machines
    before: dict[str, list[float]] = {}
    after: dict[str, list[float]] = {}
    for batch in recording.batches():
        for row in batch.samples.to_pylist():
            late = row["ts"].timestamp() * 1e9 > recording.label.onset_ns
            (after if late else before).setdefault(row["machine"], []).append(
                row["machine_power_watts"]
            )
    change = {m: _mean(after[m]) / _mean(before[m]) for m in before}
    assert change.pop(faulty) < 0.8
    assert all(0.9 < ratio < 1.1 for ratio in change.values())


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
