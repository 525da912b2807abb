"""The benchmark's parts: workloads, cache, figures, gate, page."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.catalogue import Catalogue
from ingest.simulate import Wishes
from replay.quality.cache import FILE, ResultCache
from replay.quality.figures import by_machines, figures
from replay.quality.gate import BaselineError, baseline_of, failures, read_baseline
from replay.quality.keys import (
    NOT_FOLLOWED,
    OF_EVIDENCE,
    ROOTS,
    SHARED,
    _closure,
    _parsed,
    code_hash,
    result_key,
)
from replay.quality.measure import Row, split_rate
from replay.quality.origin import Origin
from replay.quality.plan import Plan
from replay.quality.rates import RATE_DETECTORS, stated_rate
from replay.quality.report import BEGIN, END, as_markdown, as_text, into_page, result_json
from replay.quality.run import Measured, run
from replay.quality.sources import Injected, Recorded, Simulated
from replay.quality.workloads import (
    FIRST_REPORTED_SEED,
    RATE_WORKLOAD,
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


def test_the_references_are_measured_on_what_is_compared_and_ours_on_all() -> None:
    plan = Plan(("healthy", "core"), ("evidence", "minder"))
    healthy, core = (WORKLOADS[n].items for n in plan.workloads)
    assert all(plan.wanted(i, d) for i in core for d in plan.detectors)
    assert all(plan.wanted(i, "evidence") for i in healthy)
    assert sum(plan.wanted(i, "minder") for i in healthy) == len(healthy[::5])
    whole = replace(plan, whole=True)
    assert all(whole.wanted(i, "minder") for i in healthy)


def test_rates_are_asked_for_on_their_own_recordings() -> None:
    plan = Plan(("core",), ("evidence", "minder"), rates=True)
    assert plan.workloads == ("core", RATE_WORKLOAD)
    long, core = WORKLOADS[RATE_WORKLOAD].items[0], WORKLOADS["core"].items[0]
    assert [d for d in plan.detectors if plan.wanted(long, d)] == list(RATE_DETECTORS)
    assert [d for d in plan.detectors if plan.wanted(core, d)] == ["evidence", "minder"]


def test_only_what_is_wanted_is_measured(tmp_path: Path) -> None:
    items = WORKLOADS["smoke"].items
    measured = run(
        items,
        ["null"],
        tmp_path,
        ResultCache(None),
        clock=lambda: 0.0,
        wanted=lambda item, _: item == items[0],
    )
    assert [row.id for row in measured.rows] == [items[0].id]
    assert not measured.partial


def test_detectors_stand_beside_each_other_on_the_same_incidents_only() -> None:
    ours = [replace(ROW, id=f"healthy/1/{k}", workload="healthy") for k in range(4)]
    theirs = [replace(row, detector="minder") for row in ours[:2]]
    text = as_text(Measured((*ours, *theirs), 6), ["evidence", "minder"], ORIGIN)
    lines = [line.split() for line in text.splitlines()]
    assert [x[:2] for x in lines if x[:1] == ["minder"]] == [["minder", "2"]]
    assert ["evidence", "2"] in [x[:2] for x in lines]
    assert [x[:3] for x in lines if x[:1] == ["evidence,"]] == [["evidence,", "all", "4"]]
    assert "Compared on 2 incidents (108 of 536 incidents" in text


def test_words_for_people_do_not_change_the_hash(tmp_path: Path) -> None:
    def code(text: str) -> str:
        path = tmp_path / f"m{len(list(tmp_path.iterdir()))}.py"
        path.write_text(text)
        return _parsed(path)[0]

    plain = code("A = 1\ndef f():\n    return A\n")
    assert plain == code(
        '"""Doc."""\nA = 1  # why\n"""What."""\n\ndef f():\n    """F."""\n    return A'
    )
    assert plain != code("A = 2\ndef f():\n    return A\n")


def test_what_a_detector_does_not_use_is_not_in_its_hash() -> None:
    minder = _closure((*SHARED, *ROOTS["minder"]), NOT_FOLLOWED | OF_EVIDENCE)
    assert "detect.sparse" in minder
    assert not {"detect.evidence", "detect.decide", "models.evidence_model"} & set(minder)
    assert "models.evidence_model" in _closure(ROOTS["evidence"], NOT_FOLLOWED)


def test_a_key_knows_what_the_incident_is_made_from() -> None:
    item = WORKLOADS["smoke"].items[0]
    other = replace(item, source=replace(item.source, seed=1))  # type: ignore[type-var]
    assert result_key(item, "null") != result_key(other, "null")


def _healthy(false_alarms: Sequence[int], hours: float) -> list[Row]:
    calm = replace(ROW, faulty=False, outcome="quiet", delay_seconds=None, detector="evidence@2")
    return [replace(calm, false_alarms=k, healthy_seconds=hours * 3600.0) for k in false_alarms]


def test_a_stated_rate_is_compared_with_the_measured_one() -> None:
    # Ten weeks, 20 false alarms: 2 a week.
    found = stated_rate(_healthy([1, 0] * 20, 42.0), "evidence@2")
    assert found is not None
    assert (found.asked, found.false_alarms) == (2.0, 20)
    assert found.ratio == pytest.approx(1.0)
    # Garwood's interval of 20 events.
    assert (found.low * 20, found.high * 20) == pytest.approx((12.217, 30.888), abs=1e-3)


def test_an_interval_is_wider_where_false_alarms_cluster() -> None:
    even = stated_rate(_healthy([1] * 20, 84.0), "evidence@2")
    once = stated_rate(_healthy([20] + [0] * 19, 84.0), "evidence@2")
    assert even is not None
    assert once is not None
    assert once.ratio == even.ratio
    assert once.high > 2.0 * even.high


def test_no_false_alarm_still_bounds_the_rate() -> None:
    found = stated_rate(_healthy([0, 0], 84.0), "evidence@1")
    assert found is not None
    assert (found.ratio, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(3.689, abs=1e-3)
    assert stated_rate(_healthy([0], 84.0), "minder") is None


def test_a_simulated_incident_brings_its_topology_by_machine() -> None:
    source = Simulated(6003, 0, wishes=Wishes(machines=(8, 8), minutes=20.0))
    recording = source.opened("smoke", Catalogue.default(), Path()).recording
    assert len(recording.topology) == 8
    assert all("leaf_switch" in attributes for attributes in recording.topology.values())
