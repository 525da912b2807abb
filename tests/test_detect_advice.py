"""Advice: by verdict, then by fault, then by how the machine fails; words and commands agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detect.advice import advised
from detect.alert import Alert, Evidence
from detect.residuals import LEVEL
from ingest.simulate import run_simulate
from ingest.simulate.spec import FAULT_MIX
from replay.runner import ReplayOptions, replay_incident
from serve.actions import propose
from tests.detect_support import Scene
from tests.serve_support import make_alert

HOWS = ("fail_stop", "fail_slow", "fail_hang", "silent", "unknown")


def alert(**fields: Any) -> Alert:
    fields.setdefault("fault_types", ())
    return advised(make_alert(fields.pop("machine", "node17"), **fields))


def says_drain(text: str) -> bool:
    return "drain" in text.lower().replace("do not drain", "")


@pytest.mark.parametrize("gpu", [None, 3])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("fault", [None, *FAULT_MIX])
def test_the_words_say_drain_where_the_commands_do(
    fault: str | None, how: str, gpu: int | None
) -> None:
    types = ((fault, 0.9),) if fault else ()
    one = alert(fault_types=types, manifestation=how, gpu=gpu).to_json()
    proposal = propose(one)
    assert proposal.text == one["recommended_action"]
    drains = any("drain" in c.text or "cordon" in c.text for c in proposal.commands)
    assert says_drain(proposal.text) == drains


def test_errors_that_a_machine_counts_say_what_to_look_at() -> None:
    counts = Evidence("gpu_ecc_correctable_errors", "1/s", 1.0, 0.0, 0.0, 0.0, "high", 0, 0.6)
    power = replace(counts, metric="gpu_power_watts", share=0.4)
    one = alert(evidence=(counts, power), manifestation="fail_slow").to_json()
    assert "reset the GPU" in one["recommended_action"]
    assert "ECC" in propose(one).commands[0].text
    other = alert(evidence=(power, counts), manifestation="fail_slow")
    assert "clocks" in other.recommended_action


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("verdict", ["group", "job", "undetermined"])
def test_nobody_is_drained_unless_one_machine_is_to_blame(verdict: str, how: str) -> None:
    one = alert(
        machine=None,
        verdict=verdict,
        machines=("a", "b"),
        shared="leaf-7",
        manifestation=how,
        fault_types=(("ecc_error", 0.9),),
    )
    assert not says_drain(one.recommended_action)
    assert ("leaf-7" in one.recommended_action) == (verdict == "group")


def test_a_switch_that_failed_in_a_recording_is_to_be_checked(tmp_path: Path) -> None:
    run_simulate(
        tmp_path, 1, 1, 0, 16, "switch_failure", minutes=10, cadence_seconds=1.0, per_gpu=False
    )
    (incident,) = tmp_path.iterdir()
    (found,) = replay_incident(incident, ReplayOptions()).alerts
    assert found.verdict == "group"
    assert found.shared
    assert found.recommended_action.startswith(f"Check {found.shared} first")
    assert propose(found.to_json()).text == found.recommended_action


def test_a_machine_that_turns_out_to_be_one_of_several_is_not_drained() -> None:
    scene = Scene(8)
    scene.test = LEVEL
    scene.level[3] = 1.2
    (opened,) = scene.passes()
    assert says_drain(opened.alert.recommended_action)
    scene.panel.residuals.state["lasting"][0, [3, 5]] = -9.0
    joined = [c.alert for c in scene.passes(16 * 60) if c.alert.verdict == "group"]
    assert joined[0].machines == ("m003", "m005")
    assert not says_drain(joined[0].recommended_action)
