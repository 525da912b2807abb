"""From scores to verdicts: who is named, who is not, and when an alert ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detect.decide import (
    COMPANION,
    GRACE_SECONDS,
    LASTING_SECONDS,
    UNDETERMINED_SECONDS,
    UNEXPLAINED,
    Decision,
)
from detect.explain import explain, manifestation
from detect.open_alerts import QUIET_SECONDS
from detect.residuals import FAST, LEVEL
from detect.silence import LONG_BEFORE_SECONDS, STANDSTILL_SECONDS
from detect.snapshot import decode_state, encode_state
from detect.standing import explained
from tests.detect_support import CATALOGUE, MODEL, THRESHOLD, Scene, panel_evidence, told
from tests.ticks_support import SECOND, START_NS, machine_names

SWITCHES = {m: {"leaf_switch": f"sw{i // 4}"} for i, m in enumerate(machine_names(12))}
GRACE = int(GRACE_SECONDS)


def named(scene: Scene) -> set[str]:
    return scene.decision.open.named()


def test_a_healthy_job_is_quiet() -> None:
    scene = Scene(8)
    scene.level[:] = 0.4
    assert scene.passes(600) == []


def test_a_machine_clearly_ahead_is_named_at_once() -> None:
    scene = Scene(8)
    scene.level[3], scene.level[5] = 1.0, 0.6
    changes = scene.passes()
    assert told(changes) == [("opened", "machine", ("m003",))]
    alert = changes[0].alert
    assert (alert.machine, alert.status, alert.pages) == ("m003", "open", True)
    assert alert.detected_at_ns == START_NS + SECOND
    assert alert.recommended_action


def test_a_machine_is_named_once() -> None:
    scene = Scene(8)
    scene.level[3] = 1.2
    assert len(scene.passes(30)) == 1


def test_the_same_fault_has_the_same_id_in_every_process() -> None:
    ids = set()
    for _ in range(2):
        scene = Scene(8)
        scene.level[3] = 1.2
        ids.add(scene.passes()[0].alert.id)
    assert len(ids) == 1


def test_the_score_says_the_same_as_the_rate() -> None:
    scene = Scene(8)
    scene.level[3] = 1.2
    alert = scene.passes()[0].alert
    assert alert.score == pytest.approx(-np.log10(alert.false_alarms_per_job_week))
    assert alert.false_alarms_per_job_week == pytest.approx(MODEL.false_alarm_rate(2.4, 8))


def test_odd_machines_of_one_switch_are_one_group_and_nobody_is_named_before() -> None:
    scene = Scene(12, SWITCHES)
    scene.level[4:8] = (1.3, 1.1, 1.2, 1.0)
    assert scene.passes(GRACE) == []
    changes = scene.passes(1)
    assert told(changes) == [("opened", "group", machine_names(12)[4:8])]
    alert = changes[0].alert
    assert (alert.shared, alert.machine, alert.gpu) == ("leaf_switch=sw1", None, None)
    assert scene.passes(60) == []


def test_a_stage_that_differs_in_one_metric_has_other_work() -> None:
    stages = {m: {"pipeline_stage": i // 4} for i, m in enumerate(machine_names(12))}
    scene = Scene(12, stages)
    scene.level[4:8] = (1.3, 1.1, 1.2, 1.0)
    changes = scene.passes(int(UNDETERMINED_SECONDS) + 2)
    assert [c.alert.verdict for c in changes] == ["undetermined"]
    assert not changes[0].alert.pages


@pytest.mark.parametrize("metrics", [1, 2])
def test_several_that_share_nothing_are_a_group_if_more_than_one_metric_says_so(
    metrics: int,
) -> None:
    scene = Scene(12)
    scene.level[[1, 5, 6, 9]] = UNEXPLAINED + 0.5
    scene.speaks = metrics
    changes = scene.passes(GRACE + 2)
    assert [c.alert.verdict for c in changes] == (["group"] if metrics > 1 else [])


def test_most_machines_odd_at_once_are_nobodys_fault() -> None:
    scene = Scene(12, SWITCHES)
    scene.level[:] = 1.2
    changes = scene.passes(int(UNDETERMINED_SECONDS) + 2)
    assert [(c.kind, c.alert.verdict, c.alert.machine) for c in changes] == [
        ("opened", "job", None)
    ]
    assert not changes[0].alert.pages


@pytest.mark.parametrize("alike", [2, 3])
def test_the_one_that_is_like_nobody_is_named_among_several_that_are_alike(alike: int) -> None:
    scene = Scene(24)
    scene.level[4 : 4 + alike] = 1.3
    scene.level[9], scene.metric[9] = 1.2, 1
    changes = scene.passes(GRACE + 1)
    assert told(changes) == ([("opened", "machine", ("m009",))] if alike > 2 else [])


def test_nobody_is_accused_until_one_can_be_told_apart() -> None:
    scene = Scene(12)
    scene.level[:4] = 1.3
    assert [c.alert.verdict for c in scene.passes(int(UNDETERMINED_SECONDS) + 2)] == [
        "undetermined"
    ]
    scene.level[1:4] = 0.0
    scene.level[0] = 2.5
    assert [(c.kind, c.alert.verdict, c.alert.machine) for c in scene.passes(2)] == [
        ("opened", "machine", "m000"),
        ("resolved", "undetermined", None),
    ]


def test_an_alert_that_accused_nobody_ends_when_one_of_its_machines_falls_silent() -> None:
    scene = Scene(12)
    scene.level[:4] = 1.3
    scene.passes(int(UNDETERMINED_SECONDS) + 2)
    scene.level[:] = 0.0
    scene.phase.low_seconds = STANDSTILL_SECONDS
    scene.panel.state["dark"][2] = True
    changes = []
    for _ in range(int(LONG_BEFORE_SECONDS) + 2):
        scene.phase.low_seconds += 1.0
        changes += scene.passes()
    assert [(c.kind, c.alert.verdict, c.alert.machine) for c in changes] == [
        ("opened", "machine", "m002"),
        ("resolved", "undetermined", None),
    ]


def test_two_that_became_odd_together_for_a_moment_are_not_told() -> None:
    scene = Scene(12)
    scene.level[[2, 9]] = 1.2
    assert scene.passes(int(UNDETERMINED_SECONDS) - 5) == []
    scene.level[:] = 0.0
    assert scene.passes(300) == []


def test_two_that_became_odd_together_and_stay_so_are_named_one_by_one_in_the_end() -> None:
    scene = Scene(12)
    scene.level[[2, 9]] = (1.0 + UNEXPLAINED) / 2
    before = scene.passes(int(LASTING_SECONDS))
    assert [(c.kind, c.alert.verdict, c.alert.pages) for c in before] == [
        ("opened", "undetermined", False)
    ]
    changes = scene.passes(1)
    assert told([c for c in changes if c.kind == "opened"]) == [
        ("opened", "machine", ("m002",)),
        ("opened", "machine", ("m009",)),
    ]
    assert named(scene) == {"m002", "m009"}
    assert LASTING_SECONDS == 600.0


def test_three_that_became_odd_together_are_never_named_for_staying_so() -> None:
    scene = Scene(12)
    scene.level[[2, 5, 9]] = (1.0 + UNEXPLAINED) / 2
    assert not any(c.alert.pages for c in scene.passes(int(3 * LASTING_SECONDS)))


@pytest.mark.parametrize("lastingly", [True, False])
def test_a_machine_apart_for_good_in_the_way_of_a_named_one_needs_less(lastingly: bool) -> None:
    scene = Scene(12)
    scene.test = LEVEL if lastingly else FAST
    scene.level[3] = 1.5
    scene.passes(1)
    scene.level[7], scene.level[8] = COMPANION + 0.02, COMPANION + 0.02
    scene.metric[8] = 1
    expected = [("opened", "machine", ("m007",))] if lastingly else []
    assert told(scene.passes(5)) == expected


def test_several_odd_in_the_way_of_a_named_one_at_once_are_not_named_one_by_one() -> None:
    scene = Scene(12)
    scene.test = LEVEL
    scene.level[3] = 1.5
    scene.passes(1)
    scene.level[[7, 8]] = COMPANION + 0.02
    assert scene.passes(600) == []
    assert named(scene) == {"m003"}


@pytest.mark.parametrize("alike", [True, False])
def test_machines_odd_in_one_way_count_as_together_whenever_they_became_so(alike: bool) -> None:
    scene = Scene(12)
    scene.level[[3, 8]] = (1.1, 0.9)
    scene.metric[8] = 0 if alike else 1
    scene.panel.state["since_ns"][:] = START_NS + 100 * SECOND * np.arange(12)
    assert (scene.passes(1) == []) == alike


@pytest.mark.parametrize("backwards", [False, True])
def test_whether_another_is_odd_in_the_same_way_does_not_depend_on_the_order(
    backwards: bool,
) -> None:
    level, metric = np.full(12, 0.55), np.ones(12, np.int64)
    level[[0, 11]] = (1.0, 0.9)
    metric[[0, 11]] = 0
    scene = Scene(12)
    order = slice(None, None, -1) if backwards else slice(None)
    scene.level, scene.metric = level[order], metric[order]
    scene.panel.state["since_ns"][:] = START_NS + 100 * SECOND * np.arange(12)
    assert scene.passes(1) == []


def test_the_victim_named_first_gives_way_to_the_one_that_stands_out() -> None:
    scene = Scene(8)
    scene.level[3] = 1.1
    first = scene.passes()[0].alert
    scene.level[3], scene.level[5] = 0.3, 1.8
    scene.metric[5] = 1
    scene.panel.state["raw"][1, 5] = 0.01
    changes = scene.passes(1)
    assert told(changes) == [("updated", "machine", ("m005",))]
    alert = changes[0].alert
    assert (alert.id, alert.machine) == (first.id, "m005")
    assert "m003" in alert.note
    assert (first.manifestation, alert.manifestation) == ("fail_slow", "fail_stop")
    assert alert.recommended_action != first.recommended_action
    assert named(scene) == {"m005"}


def test_an_old_alert_is_not_corrected_any_more() -> None:
    scene = Scene(8)
    scene.level[3] = 1.1
    scene.passes(400)
    scene.level[3], scene.level[5] = 0.3, 1.8
    assert told(scene.passes(1)) == [("opened", "machine", ("m005",))]


def test_stronger_evidence_is_told_at_intervals_that_double() -> None:
    scene = Scene(8)
    scene.level[3] = 1.1
    scene.passes(1)
    times = []
    for _ in range(400):
        scene.level[3] += 0.05
        times += [(c.at_ns - START_NS) // SECOND for c in scene.passes(1)]
    assert times == [61, 181]


def test_an_alert_ends_when_its_machine_is_back_among_its_peers_for_two_minutes() -> None:
    scene = Scene(8)
    scene.level[3] = 1.2
    scene.passes(10)
    scene.level[3] = 0.1
    assert scene.passes(int(QUIET_SECONDS) - 1) == []
    changes = scene.passes(1)
    assert told(changes) == [("resolved", "machine", ("m003",))]
    assert changes[0].alert.status == "resolved"
    assert changes[0].alert.note
    assert named(scene) == set()


def test_an_odd_tick_in_between_starts_the_wait_anew() -> None:
    scene = Scene(8)
    scene.level[3] = 1.2
    scene.passes(10)
    for _ in range(4):
        scene.level[3] = 0.1
        assert scene.passes(100) == []
        scene.level[3] = 0.5
        assert scene.passes(1) == []


def test_absence_of_data_resolves_nothing() -> None:
    scene = Scene(8)
    scene.level[3] = 1.2
    scene.passes(10)
    scene.level[3] = 0.0
    scene.panel.state["present"][3] = False
    assert scene.passes(2000) == []
    scene.panel.state["present"][3] = True
    assert told(scene.passes(int(QUIET_SECONDS))) == [("resolved", "machine", ("m003",))]


def test_a_machine_without_data_is_not_named() -> None:
    scene = Scene(8)
    scene.level[3] = 1.2
    scene.panel.state["present"][3] = False
    assert scene.passes(60) == []


def test_an_alert_ends_when_its_machine_leaves_and_others_do_not() -> None:
    scene = Scene(8)
    scene.level[3] = 1.2
    scene.passes(10)
    assert scene.decision.roster(machine_names(7), scene.now_ns) == []
    rest = tuple(m for m in machine_names(8) if m != "m003")
    changes = scene.decision.roster(rest, scene.now_ns)
    assert told(changes) == [("resolved", "machine", ("m003",))]
    assert "left" in changes[0].alert.note


def test_nothing_stays_open_when_the_run_ends() -> None:
    scene = Scene(8)
    scene.level[3] = 1.2
    scene.passes(400)
    scene.level[6] = 1.3
    scene.passes(10)
    changes = scene.decision.finish(scene.now_ns)
    assert told(changes) == [
        ("resolved", "machine", ("m003",)),
        ("resolved", "machine", ("m006",)),
    ]
    assert scene.decision.finish(scene.now_ns) == []


def test_what_came_and_went_by_itself_is_told_again_only_when_worse() -> None:
    scene = Scene(8)
    scene.level[3] = 1.2
    first = scene.passes(5)[0].alert
    scene.level[3] = 0.0
    scene.passes(int(QUIET_SECONDS) + 1)
    scene.level[3] = 1.3
    assert scene.passes(30) == []
    scene.level[3] = 1.7
    again = scene.passes(1)
    assert told(again) == [("opened", "machine", ("m003",))]
    assert again[0].alert.id != first.id


def test_what_came_and_went_long_ago_takes_no_memory() -> None:
    scene = Scene(8)
    long_ago = START_NS - 24 * 3600 * SECOND
    scene.decision.open.habits.past = {
        f"host-{k}": (3.0 * THRESHOLD, long_ago) for k in range(1000)
    }
    scene.level[3] = 1.2
    scene.passes(5)
    scene.level[3] = 0.0
    scene.passes(int(QUIET_SECONDS) + 1)
    assert [machine for machine, *_ in scene.decision.open.snapshot()["past"]] == ["m003"]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(peak=st.floats(1.0, 2.4), rest=st.integers(0, 600))
def test_the_same_habit_at_the_same_size_is_not_told_twice(peak: float, rest: int) -> None:
    scene = Scene(8)
    told_of: list[str] = []
    for _ in range(2):
        for level in np.linspace(0.0, peak, 9):
            scene.level[3] = level
            told_of += [c.kind for c in scene.passes(2) if c.kind != "updated"]
        scene.level[3] = 0.0
        told_of += [c.kind for c in scene.passes(int(QUIET_SECONDS) + rest)]
    assert told_of == ["opened", "resolved"]


def test_a_restored_decision_goes_on_as_if_never_interrupted() -> None:
    steady, other = Scene(8), Scene(8)
    for scene in (steady, other):
        scene.level[3] = 1.2
        scene.passes(5)
        scene.level[3] = 0.1
        scene.passes(60)
    copy = Decision("job", CATALOGUE, MODEL, {})
    copy.restore(decode_state(encode_state(other.decision.snapshot())))
    other.decision = copy
    assert other.passes(100) == steady.passes(100) != []


def test_evidence_is_told_strongest_first_with_the_peers_band() -> None:
    panel = panel_evidence(11)
    panel.strength[:, 4] = (3.0, 1.0)
    panel.sums.state["total"][FAST, :, 4] = (-30.0, 10.0)
    panel.state["raw"][0] = np.append(np.arange(10.0), 100.0)
    panel.state["raw"][0, [4, 10]] = panel.state["raw"][0, [10, 4]]
    found = explain(panel, 4, CATALOGUE)
    power, tensor = found.evidence
    assert (power.metric, power.unit, power.direction) == ("gpu_power_watts", "W", "low")
    assert (tensor.metric, tensor.direction) == ("gpu_tensor_active_ratio", "high")
    assert (power.share, tensor.share) == (0.75, 0.25)
    # The peers alone: the machine's own 100 W do not widen their band.
    assert (power.value, power.peer_median) == (100.0, 4.5)
    assert power.peer_low == pytest.approx(0.9)
    assert power.peer_high == pytest.approx(8.1)
    assert found.signature == "gpu_power_watts:low"
    assert (found.gpu, power.gpu) == (None, None)


def test_weak_metrics_are_no_evidence_and_shares_stay_below_one() -> None:
    panel = panel_evidence(5)
    panel.strength[:, 1] = (1.0, 0.01)
    found = explain(panel, 1, CATALOGUE)
    assert [e.metric for e in found.evidence] == ["gpu_power_watts"]
    assert found.evidence[0].share == pytest.approx(1.0 / 1.01)


def test_a_row_without_evidence_has_none() -> None:
    found = explain(panel_evidence(5), 1, CATALOGUE)
    assert (found.evidence, found.signature) == ((), "")


def test_a_missing_value_and_missing_peers_are_null() -> None:
    panel = panel_evidence(3)
    panel.strength[0, 1] = 1.0
    panel.state["raw"][0] = np.nan
    item = explain(panel, 1, CATALOGUE).evidence[0]
    assert (item.value, item.peer_median, item.peer_low, item.peer_high) == (None,) * 4


def test_one_bad_gpu_is_named_with_its_machine() -> None:
    scene = Scene(6)
    gpus = panel_evidence(6, gpus=4)
    row = 2 * 4 + 3
    gpus.state["score"][row] = 4.0
    gpus.strength[1, row] = 4.0
    gpus.sums.state["total"][FAST, 1, row] = -40.0
    scene.level[2] = 1.5
    scene.decision.gpu_silence.reindex(gpus.rows)
    standing = replace(scene.standing(), gpu_panel=gpus, rows=6 + 6 * 4)
    (change,) = scene.decision.step(standing)
    assert (change.alert.machine, change.alert.gpu) == ("m002", 3)
    stated = MODEL.false_alarm_rate(1.5 * THRESHOLD, 30)
    assert change.alert.false_alarms_per_job_week == pytest.approx(stated)
    assert [(e.metric, e.gpu) for e in change.alert.evidence] == [("gpu_tensor_active_ratio", 3)]


def test_most_gpus_of_a_machine_explain_it_without_one_being_named() -> None:
    scene = Scene(6)
    gpus = panel_evidence(6, gpus=4)
    gpus.state["score"][8:12] = 4.0
    gpus.strength[1, 8:12] = 4.0
    gpus.sums.state["total"][FAST, 1, 8:12] = -40.0
    scene.level[2] = 1.5
    standing = scene.standing()
    standing.machine_panel.state["score"][2] = 0.02
    found = explained(replace(standing, gpu_panel=gpus), 2, CATALOGUE)
    assert found.gpu is None
    assert [(e.metric, e.gpu) for e in found.evidence] == [("gpu_tensor_active_ratio", None)]


def test_a_machine_that_does_nothing_has_stopped() -> None:
    scene = Scene(6)
    scene.level[3] = 1.5
    scene.panel.state["raw"][0, 3] = 100.0
    alert = scene.passes()[0].alert
    assert alert.manifestation == "fail_stop"


def test_an_odd_machine_in_a_job_that_stands_hangs_and_in_one_that_runs_is_slow() -> None:
    scene = Scene(6)
    scene.level[3] = 1.5
    evidence = explain(scene.standing().machine_panel, 3, CATALOGUE).evidence
    assert manifestation(evidence, scene.phase) == "fail_slow"
    scene.phase.low_seconds = 200.0
    assert manifestation(evidence, scene.phase) == "fail_hang"
    assert manifestation((), Scene(1).phase) == "unknown"
