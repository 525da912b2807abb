"""What a job does, how much evidence counts meanwhile, and machines that fall silent."""

from __future__ import annotations

import numpy as np
import pytest

from detect.phase import JobPhase
from detect.silence import SILENT_SECONDS
from detect.trust import ASIDE, STALLED, STARTING, WRITING, YOUNG, Trust
from tests.detect_support import Scene, family, told
from tests.ticks_support import SECOND, machine_names

METRICS = (
    "cpu_usage_ratio",
    "gpu_sm_active_ratio",
    "gpu_tensor_active_ratio",
    "nvlink_tx_bytes_per_second",
)
WORK = (0.3, 0.9, 0.5, 8.0)
WAIT = (0.3, 0.9, 0.01, 0.01)
ALONE = (0.3, 0.9, 0.5, 0.01)
OVER = (0.01, 0.0, 0.0, 0.0)


class Job:
    """A job that does what it is told, and the trust that goes with it."""

    def __init__(self) -> None:
        self.phase = JobPhase(family)
        self.phase.reindex(METRICS)
        self.trust = Trust()
        self.trust.reindex(machine_names(3))

    def does(self, what: tuple[float, ...], seconds: int, writing: bool = False) -> str:
        """The phase after that; machine 0 writes if told so."""
        for _ in range(seconds):
            self.weight = self.trust.step(self.phase, np.array([writing, False, False]), 1.0)
            self.phase.step(np.arcsinh(np.array(what)), 1.0)
        return self.phase.name


def started(seconds: int = 900) -> Job:
    job = Job()
    job.does(WORK, seconds)
    return job


def test_the_first_two_minutes_are_a_start_and_little_trusted() -> None:
    job = Job()
    assert job.does(WORK, 119) == "starting"
    assert job.weight.tolist() == [STARTING] * 3
    assert job.does(WORK, 2) == "running"
    assert job.does(WORK, 1) == "running"
    assert job.weight.tolist() == [YOUNG] * 3


def test_a_job_is_young_for_ten_minutes() -> None:
    assert started(590).weight[0] == YOUNG
    assert started(602).weight[0] == 1.0


def test_work_without_talk_is_an_evaluation_with_an_end() -> None:
    job = started()
    assert job.does(ALONE, 30) == "evaluating"
    assert job.weight[0] == ASIDE
    assert job.does(ALONE, 230) == "running"
    assert job.weight[0] == 1.0


def test_a_gap_no_longer_than_those_of_the_steps_is_no_evaluation() -> None:
    job = started()
    for _ in range(40):
        job.does(ALONE, 12)
        job.does(WORK, 5)
    assert job.does(ALONE, 12) == "running"


def test_rest_is_idle_first_and_a_stall_when_it_lasts() -> None:
    job = started()
    assert job.does(WAIT, 60) == "idle"
    assert job.weight[0] == 0.5
    assert job.does(WAIT, 40) == "stalled"
    assert job.weight[0] == STALLED
    assert job.does(WORK, 2) == "running"


def test_a_job_seen_to_rest_and_go_on_stalls_sooner() -> None:
    job = started()
    for _ in range(2):
        job.does(WAIT, 20)
        job.does(WORK, 60)
    assert job.does(WAIT, 25) == "idle"
    assert job.weight[0] == 1.0
    assert job.does(WAIT, 10) == "stalled"


def test_a_job_whose_machines_do_nothing_at_all_is_over() -> None:
    job = started()
    assert job.does(OVER, 20) == "over"
    assert job.weight[0] == ASIDE
    assert job.does(WORK, 5) == "running"


def test_a_long_rest_is_no_new_normal() -> None:
    job = started()
    assert job.does(WAIT, 900) == "stalled"


@pytest.mark.parametrize("metrics", [(), ("cpu_usage_ratio", "made_up")])
def test_a_job_that_shows_no_progress_just_runs(metrics: tuple[str, ...]) -> None:
    phase = JobPhase(family)
    phase.reindex(metrics)
    for _ in range(300):
        phase.step(np.zeros(len(metrics)), 1.0)
    assert phase.name == "running"


def test_who_writes_while_the_others_stand_is_excused_for_a_while() -> None:
    job = started()
    job.does(WAIT, 20, writing=True)
    assert job.weight.tolist() == [WRITING, 0.5, 0.5]
    job.does(WAIT, 140, writing=True)
    assert job.weight.tolist() == [STALLED] * 3


def test_who_writes_while_the_job_runs_is_not_excused() -> None:
    job = started()
    job.does(WORK, 30, writing=True)
    assert job.weight.tolist() == [1.0] * 3


def test_a_phase_goes_on_from_its_snapshot() -> None:
    job = started()
    job.does(WAIT, 50)
    other = JobPhase(family)
    other.restore(job.phase.snapshot())
    twin = Job()
    twin.phase = other
    assert (twin.does(WAIT, 39), twin.does(WAIT, 1)) == ("idle", "stalled")


def quiet(scene: Scene, *rows: int, seconds: int, stands: bool) -> list[int]:
    """Rows named silent after ``rows`` were dark for some seconds."""
    found: list[int] = []
    for _ in range(seconds):
        scene.panel.state["dark"] = np.isin(np.arange(len(scene.machines)), rows)
        scene.phase.low_seconds = scene.phase.low_seconds + 1.0 if stands else 0.0
        scene.now_ns += SECOND
        found = scene.decision.silence.step(scene.standing())
    return found


def seen(machines: int) -> Scene:
    scene = Scene(machines)
    quiet(scene, seconds=5, stands=False)
    return scene


def test_a_machine_that_falls_silent_as_the_job_stops_is_named() -> None:
    scene = seen(6)
    assert quiet(scene, 2, seconds=44, stands=True) == []
    assert quiet(scene, 2, seconds=2, stands=True) == [2]


def test_silence_alone_says_nothing() -> None:
    assert quiet(seen(6), 2, seconds=600, stands=False) == []


def test_a_standstill_alone_says_nothing() -> None:
    assert quiet(seen(6), seconds=600, stands=True) == []


def test_silence_long_before_the_standstill_is_an_agents_trouble() -> None:
    scene = seen(6)
    quiet(scene, 2, seconds=300, stands=False)
    assert quiet(scene, 2, seconds=100, stands=True) == []


def test_most_machines_silent_at_once_are_a_collectors_trouble() -> None:
    assert quiet(seen(6), 0, 1, 2, 3, seconds=200, stands=True) == []


def test_a_machine_never_seen_cannot_fall_silent() -> None:
    scene = Scene(6)
    scene.panel.state["present"][2] = False
    assert quiet(scene, 2, seconds=200, stands=True) == []


def test_a_silent_machine_becomes_an_alert_since_its_last_sample() -> None:
    scene = seen(6)
    quiet(scene, 2, seconds=int(SILENT_SECONDS) - 1, stands=True)
    began = scene.now_ns - (int(SILENT_SECONDS) - 1) * SECOND
    scene.phase.low_seconds += 1.0
    changes = scene.passes()
    assert told(changes) == [("opened", "machine", ("m002",))]
    alert = changes[0].alert
    assert (alert.manifestation, alert.onset_ns) == ("silent", began)
    assert [(e.direction, e.value) for e in alert.evidence] == [("missing", None)]
    assert alert.pages
