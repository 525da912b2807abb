"""The benchmark's parts: workloads, cache, figures, gate, page."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replay.quality.cache import FILE, ResultCache
from replay.quality.figures import by_machines, figures
from replay.quality.gate import BaselineError, baseline_of, failures, read_baseline
from replay.quality.keys import code_hash
from replay.quality.measure import Row, split_rate
from replay.quality.report import BEGIN, END, Origin, as_markdown, as_text, into_page, result_json
from replay.quality.run import Measured, run
from replay.quality.sources import Injected, Recorded, Simulated
from replay.quality.workloads import (
    FIRST_REPORTED_SEED,
    REPORTED,
    WORKLOADS,
    Item,
    Workload,
    interleaved,
)

ROW = Row(
    id="ci/1/f6001-0000", workload="ci", detector="evidence", fault_type="ecc_error", faulty=True,
    machines=8, seconds=1800.0, compute_seconds=2.0, outcome="right", delay_seconds=20.0,
    lead_seconds=400.0, false_alarms=0, healthy_seconds=900.0, named_group=False, named_gpu=None,
    hardware_verdicts=1,
)  # fmt: skip
ORIGIN = Origin("abc1234", "2026-01-01")


def _rows(detector: str, right: int, miss: int) -> list[Row]:
    good = [replace(ROW, detector=detector) for _ in range(right)]
    bad = replace(ROW, detector=detector, outcome="miss", delay_seconds=None, lead_seconds=None)
    return [*good, *(bad for _ in range(miss))]


def _result(right: int, miss: int, planned: int | None = None) -> dict[str, Any]:
    rows = [*_rows("evidence", right, miss), *_rows("null", 0, right + miss)]
    measured = Measured(tuple(rows), len(rows) if planned is None else planned)
    return result_json(measured, ["evidence", "null"], ORIGIN)


def test_every_id_is_there_once() -> None:
    ids = [item.id for w in WORKLOADS.values() for item in w.items]
    assert len(ids) == len(set(ids))


def test_reported_workloads_use_no_seed_of_development() -> None:
    sources = [i.source for name in REPORTED for i in WORKLOADS[name].items]
    seeds = {s.seed for s in sources if isinstance(s, Simulated | Injected)}
    assert min(seeds) >= FIRST_REPORTED_SEED


def test_the_benchmark_is_as_large_as_it_says() -> None:
    core = [i.source for i in WORKLOADS["core"].items]
    assert len(core) >= 300
    assert not any(isinstance(s, Simulated) and s.healthy for s in core)
    minutes = [
        s.wishes.minutes
        for i in WORKLOADS["healthy"].items
        if isinstance(s := i.source, Simulated) and s.healthy and s.wishes
    ]
    assert sum(m for m in minutes if m) / 60 >= 500


def test_a_run_cut_short_has_seen_some_of_every_workload() -> None:
    names = ("core", "healthy", "group")
    order = interleaved([WORKLOADS[n] for n in names])
    assert {item.workload for item in order[: len(order) // 10]} == set(names)
    assert len(order) == sum(len(WORKLOADS[n].items) for n in names)


def test_a_result_is_known_again_and_a_torn_line_is_not(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path)
    cache.add("a", ROW)
    cache.close()
    with (tmp_path / FILE).open("a") as file:
        file.write('{"key": "b", "ro')
    again = ResultCache(tmp_path)
    assert again.known == {"a": ROW}
    again.add("c", ROW)
    again.close()
    last = ResultCache(tmp_path)
    last.close()
    assert set(last.known) == {"a", "c"}


def test_the_hash_is_of_the_detector_and_not_of_the_others() -> None:
    assert code_hash("evidence", True) == code_hash("evidence@10", True)
    assert len({code_hash(d, True) for d in ("evidence", "minder", "ratio")}) == 3
    assert code_hash("ratio", True) != code_hash("ratio", False)


def test_nothing_is_begun_after_the_time_is_up(tmp_path: Path) -> None:
    items = WORKLOADS["smoke"].items
    measured = run(items, ["null"], tmp_path, ResultCache(None), hours=0.0, clock=lambda: 1.0)
    assert measured.rows == ()
    assert measured.partial
    assert "PARTIAL" in as_text(measured, ["null"], ORIGIN)


def test_a_workload_without_its_recordings_is_told(tmp_path: Path) -> None:
    item = Item("real", 1, "x", Recorded("not-there"))
    measured = run([item], ["null"], tmp_path, ResultCache(None), clock=lambda: 0.0)
    assert measured.skipped == ("real",)
    assert "skipped: real" in as_text(measured, ["null"], ORIGIN)


def test_figures_count_what_the_score_says() -> None:
    found = figures(_rows("evidence", 3, 1))
    assert (found["right"], found["miss"], found["errors"]) == (3, 1, 1)
    assert found["recall"] == 0.75
    assert found["lead_seconds_p50"] == 400.0


def test_sizes_come_in_order() -> None:
    rows = [replace(ROW, machines=n) for n in (1500, 3, 8, 70)]
    assert list(by_machines(rows)) == ["3-4", "5-8", "65-200", "201+"]


def test_the_gate_passes_on_its_own_baseline() -> None:
    result = _result(9, 1)
    assert failures(result, baseline_of(result)) == []


def test_the_gate_fails_when_recall_falls() -> None:
    found = failures(_result(8, 2), baseline_of(_result(10, 0)))
    assert any("evidence recall is 0.800, was 1.000" in line for line in found)


def test_the_gate_fails_when_alerts_come_late() -> None:
    late = _result(10, 0)
    figures_ = late["workloads"]["ci"]["detectors"]["evidence"]
    figures_["delay_seconds_p50"] = 60.0
    assert any("delay_seconds_p50" in x for x in failures(late, baseline_of(_result(10, 0))))


def test_the_gate_lets_quality_rise() -> None:
    assert failures(_result(10, 0), baseline_of(_result(8, 2))) == []


def test_the_gate_fails_on_a_partial_result_and_on_none() -> None:
    base = baseline_of(_result(9, 1))
    assert failures(_result(9, 1, planned=99), base)
    empty = {"partial": False, "measured": 0, "planned": 0, "workloads": {}}
    assert failures(empty, base) == ["nothing was measured"]


def test_the_gate_fails_on_a_workload_of_another_version() -> None:
    result = _result(9, 1)
    base = copy.deepcopy(baseline_of(result))
    base["workloads"]["ci"]["version"] = 0
    assert failures(result, base) == ["ci: the baseline has no version 1 of it"]


def test_the_gate_fails_below_the_floors() -> None:
    found = failures(_result(0, 5), baseline_of(_result(0, 5)))
    assert found == ["ci: evidence F1 is not above that of null"]


def test_a_damaged_baseline_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    with pytest.raises(BaselineError, match="No such file"):
        read_baseline(path)
    path.write_text("{}")
    with pytest.raises(BaselineError, match="not a quality baseline"):
        read_baseline(path)


def test_the_page_keeps_its_text_around_the_tables() -> None:
    measured = Measured(tuple(_rows("evidence", 2, 0)), 2)
    page = into_page(
        f"before\n{BEGIN}\nold\n{END}\nafter\n", as_markdown(measured, ["evidence"], ORIGIN)
    )
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "old" not in page
    assert "commit abc1234 of 2026-01-01" in page
    assert "| evidence | 2 | 1.000 | 1.000 | 1.000 |" in page
    with pytest.raises(ValueError, match="lacks the lines"):
        into_page("no place", "x")


def test_a_rate_is_part_of_a_detectors_name() -> None:
    assert split_rate("evidence@0.1") == ("evidence", 0.1)
    assert split_rate("minder") == ("minder", None)
    with pytest.raises(ValueError, match="must be positive"):
        split_rate("evidence@0")


def test_every_workload_describes_itself() -> None:
    assert all(isinstance(w, Workload) and w.about and w.items for w in WORKLOADS.values())
