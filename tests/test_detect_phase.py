"""What a job does, how much evidence counts meanwhile, and machines that fall silent."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from detect.decide import RIVALLED_SILENCE_SECONDS
from detect.open_alerts import QUIET_SECONDS
from detect.phase import (
    BACK_SECONDS,
    LATE_SECONDS,
    LATE_STALL_SECONDS,
    STALL_SECONDS,
    START_SECONDS,
    YOUNG,
    JobPhase,
)
from detect.silence import (
    AFTER_SECONDS,
    BEFORE_SECONDS,
    LONGER,
    SILENT_SECONDS,
    STANDSTILL_TICKS,
    UNSURE_STANDSTILL_SECONDS,
    YOUNG_SECONDS,
)
from detect.snapshot import decode_state, encode_state
from detect.trust import (
    ASIDE,
    BLIND,
    BY_POWER,
    FIRST_IDLE,
    FIRST_PATIENCE_SECONDS,
    FIRST_SAVES,
    GONE,
    LATE_FIRST_IDLE,
    LATER_IDLE,
    NEEDLESS,
    NEEDLESS_FOR_GOOD_SECONDS,
    NEEDLESS_SECONDS,
    SLOWER,
    STALLED,
    STARTING,
    WRITING,
    Trust,
)
from tests.detect_support import Scene, family, panel_evidence, told
from tests.ticks_support import SECOND

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


def rows(*which: int) -> NDArray[np.bool_]:
    """``bool [4]``: these of three machines, and not the one that comes first by its name."""
    return np.isin(np.arange(4), which)


@dataclass(frozen=True)
class Seen:
    """Signs that three machines give."""

    writing: NDArray[np.bool_] = field(default_factory=rows)
    gone: NDArray[np.bool_] = field(default_factory=rows)
    alive: NDArray[np.bool_] = field(default_factory=rows)
    writes_little: NDArray[np.bool_] = field(default_factory=rows)
    dark: NDArray[np.bool_] = field(default_factory=rows)
    rests: NDArray[np.bool_] = field(default_factory=rows)
    works: NDArray[np.bool_] = field(default_factory=rows)
    worked: NDArray[np.bool_] = field(default_factory=rows)
    aside: NDArray[np.bool_] = field(default_factory=rows)

    @property
    def work(self) -> Seen:
        """The last four."""
        return self


NOTHING = Seen()


class Job:
    """A job that does what it is told, and the trust that goes with it."""

    def __init__(self, metrics: tuple[str, ...] = METRICS) -> None:
        self.phase = JobPhase(family)
        self.phase.reindex(metrics)
        self.trust = Trust()
        self.trust.reindex(("node-10", "node-11", "node-12", "node-9"))

    def does(self, what: tuple[float, ...], seconds: int, signs: Seen = NOTHING) -> str:
        """The phase after that, with these signs all the while."""
        for _ in range(seconds):
            *weight, self.first = self.trust.step(self.phase, signs, 1.0).tolist()
            self.weight = np.array(weight)
            self.phase.step(np.array(what), 1.0)
        return self.phase.name


def started(seconds: int = 800) -> Job:
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
    assert job.weight[0] == FIRST_IDLE[0]
    assert job.does(WAIT, 40) == "stalled"
    assert job.weight[0] == STALLED
    assert job.does(WORK, 2) == "running"


def test_a_first_rest_that_comes_late_is_trusted_more_and_stalls_sooner() -> None:
    job = started(int(LATE_SECONDS) + 1)
    assert job.does(WAIT, 40) == "idle"
    assert job.weight[0] == LATE_FIRST_IDLE
    assert job.does(WAIT, int(LATE_STALL_SECONDS) - 35) == "stalled"


def test_a_rest_of_twice_the_only_one_seen_is_a_stall() -> None:
    job = started()
    job.does(WAIT, 30)
    job.does(WORK, 60)
    assert job.does(WAIT, 55) == "idle"
    assert job.does(WAIT, 10) == "stalled"


def test_a_job_seen_to_rest_and_go_on_stalls_sooner() -> None:
    job = started()
    for _ in range(2):
        job.does(WAIT, 20)
        job.does(WORK, 60)
    assert job.does(WAIT, 25) == "idle"
    assert job.weight[0] == LATER_IDLE
    assert job.does(WAIT, 10) == "stalled"


def test_a_job_used_to_long_rests_stalls_later() -> None:
    job = started()
    for _ in range(2):
        job.does(WAIT, 100)
        job.does(WORK, 60)
    assert job.does(WAIT, 125) == "idle"
    assert job.does(WAIT, 10) == "stalled"


def test_patience_with_rests_has_an_end() -> None:
    job = started()
    for _ in range(3):
        job.does(WAIT, 900)
        job.does(WORK, 60)
    assert job.does(WAIT, int(2 * STALL_SECONDS) + 1) == "stalled"


def test_the_first_rests_are_trusted_in_turn() -> None:
    job, seen = started(), []
    for _ in range(4):
        job.does(WAIT, 20)
        seen.append(float(job.weight[0]))
        job.does(WORK, 60)
    assert seen == [*FIRST_IDLE, LATER_IDLE, LATER_IDLE]


def test_a_stall_in_a_young_job_counts_less_than_in_an_old_one() -> None:
    job = started(200)
    assert job.does(WAIT, 100) == "stalled"
    assert job.weight[0] == STALLED * YOUNG


def test_the_first_machine_may_save_and_evaluate_for_all_for_longer() -> None:
    job = started()
    assert job.does(WAIT, 60) == "idle"
    assert job.first == FIRST_SAVES * FIRST_IDLE[0]
    assert job.does(WAIT, 40) == "stalled"
    assert job.first == 1.0 < job.weight[0]
    job.does(WAIT, int(FIRST_PATIENCE_SECONDS))
    assert job.first == job.weight[0]


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (("n10", "n9", "n11"), 1),
        (("gpu-2-b", "gpu-2-a", "gpu-10"), 1),
        (("10.0.0.12", "10.0.0.9", "10.0.1.1"), 1),
        (("b", "\u00b2", "a" + "7" * 5000), 2),
    ],
)
def test_the_first_machine_is_that_of_the_least_number(names: tuple[str, ...], first: int) -> None:
    trust, phase = Trust(), started().phase
    trust.reindex(names)
    phase.low_seconds = 30.0
    few = Seen(*(np.zeros(len(names), np.bool_) for _ in fields(Seen)))
    assert int(np.argmin(trust.step(phase, few, 1.0))) == first


def test_means_remember_a_rest_for_a_while() -> None:
    job = started()
    job.does(WAIT, 30)
    assert job.does(WORK, 5) == "running"
    assert job.phase.moment.back
    job.does(WORK, int(BACK_SECONDS))
    assert not job.phase.moment.back


def test_the_rest_in_every_step_takes_nothing_from_the_work_after_it() -> None:
    job = started()
    for _ in range(30):
        job.does(WAIT, 15)
        job.does(WORK, 10)
    assert not job.phase.moment.back


def test_waiting_without_spinning_is_no_end_where_nothing_else_tells_of_the_processes() -> None:
    job = Job(METRICS[1:])
    job.does(WORK[1:], 800)
    assert job.does((0.01, 0.0, 0.0), 15) == "idle"
    assert job.does((0.001, 0.0, 0.0), 15) == "over"


def test_a_job_that_shows_its_power_only_is_over_when_that_sleeps() -> None:
    job = Job(("cpu_usage_ratio", "gpu_power_watts"))
    job.does((0.3, 5000.0), 800)
    assert job.does((0.05, 3000.0), 30) == "idle"
    assert job.does((0.05, 1500.0), 5) == "over"


HOSTS = ("cpu_usage_ratio", "tcp_tx_bytes_per_second")


def test_machines_without_gpus_show_by_their_traffic_whether_they_go_on() -> None:
    job = Job(HOSTS)
    assert job.does((0.6, 5e8), 900) == "running"
    assert not job.phase.blind
    assert job.phase.talks
    assert job.does((0.6, 5e5), 30) == "idle"
    assert job.does((0.6, 5e5), int(STALL_SECONDS)) == "stalled"
    assert job.does((0.6, 5e8), 2) == "running"


def test_traffic_of_hosts_says_nothing_of_gpus_that_show_their_work() -> None:
    job = Job((*METRICS, "tcp_tx_bytes_per_second"))
    job.does((*WORK, 5e6), 800)
    assert job.does((*WORK, 0.0), 60) == "running"
    assert job.does((*WAIT, 5e6), 5) == "idle"


@pytest.mark.parametrize(("memory", "name"), [(0.95, "idle"), (0.5, "over")])
def test_a_job_whose_memory_is_still_held_only_waits_though_its_processors_rest(
    memory: float, name: str
) -> None:
    job = Job((*METRICS, "gpu_memory_used_bytes"))
    job.does((*WORK, 6e10), 800)
    assert job.does((*OVER, memory * 6e10), 20) == name


def test_a_rest_longer_than_usual_is_told_of_as_a_stall() -> None:
    job, told = started(), []
    for does, ticks in ((WORK, 1), (WAIT, int(STALL_SECONDS) - 1), (WAIT, 1), (WORK, 1)):
        job.does(does, ticks)
        told.append((job.phase.moment.idle, job.phase.moment.stalled))
    assert told == [(False, False), (True, False), (True, True), (False, False)]


def test_a_machine_whose_process_is_gone_is_trusted_at_once_in_the_first_rest() -> None:
    job = started()
    job.does(WAIT, 2, Seen(gone=rows(0)))
    assert job.weight.tolist() == [GONE, FIRST_IDLE[0], FIRST_IDLE[0]]


def test_a_machine_that_visibly_lives_is_trusted_less_in_the_first_rest() -> None:
    job = started()
    job.does(WAIT, 2, Seen(alive=rows(1)))
    assert job.weight.tolist() == [FIRST_IDLE[0], FIRST_IDLE[0] ** 2, FIRST_IDLE[0]]


def test_a_machine_that_visibly_writes_nothing_saves_no_state() -> None:
    job = started()
    job.does(WAIT, 2, Seen(alive=rows(0, 1), writes_little=rows(1)))
    assert job.weight.tolist() == [FIRST_IDLE[0] ** 2, FIRST_IDLE[0], FIRST_IDLE[0]]


def test_less_power_for_no_less_activity_is_waiting() -> None:
    job = Job(("gpu_power_watts", "gpu_sm_active_ratio"))
    job.does((400.0, 0.8), 600)
    assert job.phase.blind
    assert job.does((320.0, 0.5), 20) == "running"
    assert job.does((320.0, 0.9), 20) == "idle"


def test_a_lost_process_is_no_writer_of_checkpoints() -> None:
    job = started()
    job.does(WAIT, 20, Seen(writing=rows(0, 1), gone=rows(0)))
    assert job.weight.tolist() == [GONE, WRITING, FIRST_IDLE[0]]


def test_all_processes_are_gone_when_the_job_is_over() -> None:
    job = started()
    assert job.does(OVER, 20, Seen(gone=rows(0, 1, 2))) == "over"
    assert job.weight.tolist() == [ASIDE] * 3


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    phases=st.lists(
        st.tuples(st.sampled_from([WORK, WAIT, ALONE, OVER]), st.integers(1, 130)),
        min_size=1,
        max_size=12,
    ),
    gone=st.booleans(),
    alive=st.booleans(),
    writing=st.booleans(),
)
def test_trust_stays_between_nothing_and_one_and_a_half(
    phases: list[tuple[tuple[float, ...], int]], gone: bool, alive: bool, writing: bool
) -> None:
    job = Job()
    signs = Seen(*(rows(0) if each else rows() for each in (writing, gone, alive)))
    for what, seconds in phases:
        job.does(what, seconds, signs)
        assert (job.weight > 0).all()
        assert (job.weight <= max(STALLED, GONE)).all()


def test_a_job_that_starts_from_zero_is_not_over_once_it_works() -> None:
    job = Job()
    job.does((0.0, 0.0, 0.0, 0.0), 300)
    assert job.does(WORK, 60) == "running"
    assert job.phase.state["usual"] == pytest.approx(np.array(WORK), rel=0.2)
    assert job.does(WORK, 900) == "running"
    assert (job.phase.compute, job.phase.talk) == pytest.approx((1.0, 1.0), abs=0.05)


@pytest.mark.parametrize("factor", [1e-12, 1e9])
def test_the_unit_of_a_metric_changes_no_phase(factor: float) -> None:
    plain, scaled = Job(), Job()
    for what, seconds in ((WORK, 900), (WAIT, 50), (WORK, 30), (ALONE, 20), (OVER, 15)):
        other = tuple(factor * value for value in what)
        assert scaled.does(other, seconds) == plain.does(what, seconds)


POWER = ("gpu_power_watts",)


def test_a_job_that_shows_its_power_only_rests_when_that_is_down() -> None:
    job = Job(POWER)
    assert job.does((6000.0,), 900) == "running"
    assert job.does((3000.0,), 20) == "idle"
    assert job.does((6000.0,), 20) == "running"
    assert job.does((5000.0,), 20) == "running"


def test_evidence_from_a_job_that_shows_no_work_counts_less() -> None:
    job = Job(POWER)
    job.does((6000.0,), 900)
    assert job.weight.tolist() == [BY_POWER] * 3
    unknown = Job(("queue_depth",))
    unknown.does((6.0,), 900)
    assert unknown.weight.tolist() == [BLIND] * 3


def test_a_job_whose_machines_do_nothing_at_all_is_over() -> None:
    job = started()
    assert job.does(OVER, 15) == "over"
    assert job.weight[0] == ASIDE
    assert job.does(WORK, 5) == "running"


def test_a_job_that_was_over_for_a_while_starts_anew() -> None:
    job = started()
    assert job.does(OVER, 40) == "over"
    # Who loads, and who waits for them, differ as at any start.
    assert job.does(WAIT, 200) == "starting"
    assert job.weight[0] == STARTING
    assert job.does(WORK, 110) == "starting"
    assert job.does(WORK, 20) == "running"


def test_after_a_restart_not_everybody_has_a_process_at_once() -> None:
    job = started()
    job.does(OVER, 40)
    late = Seen(gone=rows(1))
    job.does(WAIT, 10, late)
    assert job.weight[1] == STARTING
    job.does(WORK, 100, late)
    assert job.weight[1] == STARTING
    # Now the job waits, long after it began again.
    job.does(WAIT, 10, late)
    assert job.weight[1] == GONE


def test_a_machine_that_never_joins_again_is_trusted_in_the_end() -> None:
    job = started()
    job.does(OVER, 40)
    late = Seen(gone=rows(1))
    job.does(WAIT, int(START_SECONDS) - 5, late)
    assert job.weight[1] == STARTING
    job.does(WAIT, 10, late)
    assert job.weight[1] == GONE


def test_what_is_left_of_a_machine_that_misses_much_counts_little_while_the_job_runs() -> None:
    job = started()
    job.does(WORK, 2, Seen(dark=rows(1)))
    assert job.weight.tolist() == [1.0, ASIDE, 1.0]
    job.does(WAIT, 2, Seen(dark=rows(1)))
    assert job.weight.tolist() == [FIRST_IDLE[0]] * 3


SLOWED = (0.3, 0.9, 0.42, 6.7)


def test_evidence_from_a_job_that_is_held_up_counts_more() -> None:
    job = started()
    assert job.does(SLOWED, 90) == "running"
    assert job.phase.moment.held_up
    assert job.weight.tolist() == [SLOWER] * 3
    job.does(WORK, 120)
    assert job.weight.tolist() == [1.0] * 3


def test_a_pace_that_always_swung_holds_nobody_up() -> None:
    job = started()
    for _ in range(30):
        job.does(WORK, 30)
        job.does(SLOWED, 30)
    assert not job.phase.moment.held_up


def test_the_pace_of_a_young_job_is_not_known() -> None:
    job = started(150)
    job.does(SLOWED, 60)
    assert not job.phase.moment.held_up


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
    job.does(WAIT, 20, Seen(writing=rows(0)))
    assert job.weight.tolist() == [WRITING, 0.5, 0.5]
    job.does(WAIT, 140, Seen(writing=rows(0)))
    assert job.weight.tolist() == [STALLED] * 3


def test_who_writes_while_the_job_runs_is_not_excused() -> None:
    job = started()
    job.does(WORK, 30, Seen(writing=rows(0)))
    assert job.weight.tolist() == [1.0] * 3


def test_a_phase_goes_on_from_its_snapshot() -> None:
    job = started()
    job.does(WAIT, 50)
    other = JobPhase(family)
    other.restore(job.phase.snapshot())
    twin = Job()
    twin.phase = other
    assert (twin.does(WAIT, 39), twin.does(WAIT, 1)) == ("idle", "stalled")


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    before=st.lists(st.sampled_from([WORK, WAIT, ALONE, OVER]), min_size=1, max_size=8),
    later=st.lists(st.sampled_from([WORK, WAIT, ALONE, OVER]), min_size=1, max_size=8),
)
def test_a_phase_restored_from_bytes_goes_on_as_if_never_interrupted(
    before: list[tuple[float, ...]], later: list[tuple[float, ...]]
) -> None:
    steady, twin = started(200), Job()
    for what in before:
        steady.does(what, 45)
    stored = encode_state(steady.phase.snapshot())
    twin.phase.restore(decode_state(stored))
    assert encode_state(twin.phase.snapshot()) == stored
    twin.trust.state.restore(steady.trust.state.snapshot())
    for what in later:
        assert twin.does(what, 45) == steady.does(what, 45)
        assert np.array_equal(twin.weight, steady.weight)


def quiet(scene: Scene, *which: int, seconds: int, stands: bool) -> list[int]:
    """Rows named silent after ``which`` were dark for some seconds."""
    found: list[int] = []
    for _ in range(seconds):
        scene.panel.state["dark"] = np.isin(np.arange(len(scene.machines)), which)
        scene.phase.low_seconds = scene.phase.low_seconds + 1.0 if stands else 0.0
        scene.now_ns += SECOND
        found = scene.decision.silence.step(scene.standing(), scene.panel)
    return found


def seen(machines: int) -> Scene:
    scene = Scene(machines)
    quiet(scene, seconds=5, stands=False)
    return scene


def test_a_machine_that_falls_silent_as_the_job_stops_is_named() -> None:
    scene = seen(6)
    assert quiet(scene, 2, seconds=44, stands=True) == []
    assert quiet(scene, 2, seconds=2, stands=True) == [2]


def test_who_falls_silent_seconds_after_the_first_is_named_with_it() -> None:
    scene = seen(6)
    quiet(scene, 2, seconds=3, stands=True)
    assert quiet(scene, 2, 4, seconds=43, stands=True) == [2, 4]


@pytest.mark.parametrize(("young", "blind"), [(True, False), (False, True)])
def test_silence_in_a_job_of_which_little_is_known_waits_for_a_longer_standstill(
    young: bool, blind: bool
) -> None:
    scene = seen(6)
    scene.phase.blind = blind
    if young:
        scene.phase.run_seconds = YOUNG_SECONDS - 1.0
    assert quiet(scene, 2, seconds=int(UNSURE_STANDSTILL_SECONDS) - 1, stands=True) == []
    assert quiet(scene, 2, seconds=1, stands=True) == [2]
    assert UNSURE_STANDSTILL_SECONDS > SILENT_SECONDS


def test_a_standstill_of_few_samples_is_none() -> None:
    scene = seen(6)
    scene.panel.state["dark"] = np.isin(np.arange(6), [2])
    named = []
    for ticks in range(1, STANDSTILL_TICKS + 1):
        scene.phase.low_seconds = 30.0 * ticks
        standing = replace(scene.standing(), tick_seconds=30.0)
        named = scene.decision.silence.step(standing, scene.panel)
        assert bool(named) == (ticks >= STANDSTILL_TICKS)
    assert named == [2]
    assert STANDSTILL_TICKS > 3


@pytest.mark.parametrize(
    ("cadence", "last", "names"),
    [(12.0, 2, [2]), (30.0, 1, [2]), (12.0, 3, []), (30.0, 2, [])],
    ids=["a tick late", "rarely", "two ticks late", "rarely, a tick late"],
)
def test_a_last_value_that_is_bridged_for_two_ticks_came_as_the_job_stopped(
    cadence: float, last: int, names: list[int]
) -> None:
    scene, named = seen(6), []
    # The standstill's tick ``last`` is that of the last value.
    for tick in range(1, 16):
        scene.panel.state["dark"] = np.isin(np.arange(6), [2] if tick > last + 2 else [])
        scene.phase.low_seconds = cadence * tick
        standing = replace(scene.standing(), tick_seconds=cadence)
        named = scene.decision.silence.step(standing, scene.panel)
    assert named == names


def test_silence_in_a_rest_like_those_before_says_nothing_yet() -> None:
    scene = seen(6)
    scene.phase.longest_idle = 40.0
    assert quiet(scene, 2, seconds=int(40 * LONGER) - 1, stands=True) == []
    assert quiet(scene, 2, seconds=2, stands=True) == [2]


def test_silence_alone_says_nothing() -> None:
    assert quiet(seen(6), 2, seconds=600, stands=False) == []


def test_a_standstill_alone_says_nothing() -> None:
    assert quiet(seen(6), seconds=600, stands=True) == []


def test_silence_long_before_the_standstill_is_an_agents_trouble() -> None:
    scene = seen(6)
    quiet(scene, 2, seconds=300, stands=False)
    assert quiet(scene, 2, seconds=100, stands=True) == []


def talking(scene: Scene, *which: int, seconds: int, stands: bool) -> list[int]:
    """`quiet` in a job whose traffic is known, and stops as the job does."""
    scene.phase.reindex(METRICS)
    found: list[int] = []
    for _ in range(seconds):
        scene.phase.gap_seconds = scene.phase.gap_seconds + 1.0 if stands else 0.0
        found = quiet(scene, *which, seconds=1, stands=stands)
    return found


def test_a_machine_without_which_the_others_went_on_talking_stopped_nobody() -> None:
    scene = seen(6)
    talking(scene, 2, seconds=int(BEFORE_SECONDS) + 5, stands=False)
    assert talking(scene, 2, seconds=int(UNSURE_STANDSTILL_SECONDS) - 1, stands=True) == []
    # A standstill that lasts has a reason, and there is no other.
    assert talking(scene, 2, seconds=1, stands=True) == [2]


def test_long_steps_go_on_without_talk_for_a_while() -> None:
    scene = seen(6)
    talking(scene, 2, seconds=5, stands=False)
    scene.phase.gap_seconds = 30.0
    quiet(scene, 2, seconds=30, stands=False)
    assert talking(scene, 2, seconds=25, stands=True) == [2]


def test_who_falls_silent_in_the_middle_of_a_standstill_did_not_cause_it() -> None:
    scene = seen(6)
    quiet(scene, seconds=int(AFTER_SECONDS) + 5, stands=True)
    assert quiet(scene, 2, seconds=200, stands=True) == []


def test_a_job_that_is_over_waits_for_nobody() -> None:
    scene = seen(6)
    scene.phase.over = True
    quiet(scene, seconds=12, stands=True)
    assert quiet(scene, 2, seconds=200, stands=True) == []


def test_silence_in_a_standstill_that_an_alert_explains_needs_longer() -> None:
    scene = seen(6)
    scene.level[4] = 1.5
    assert told(scene.passes()) == [("opened", "machine", ("m004",))]
    scene.level[4] = 0.2
    opened = []
    for second in range(120):
        scene.panel.state["dark"] = np.isin(np.arange(6), [2])
        scene.phase.low_seconds += 1.0
        opened += [(second, c.alert.machine) for c in scene.passes() if c.kind == "opened"]
    assert opened == [(int(RIVALLED_SILENCE_SECONDS) - 1, "m002")]


def test_of_two_machines_silent_one_after_the_other_both_are_named() -> None:
    scene = seen(6)
    opened = []
    for second in range(90):
        scene.panel.state["dark"] = np.isin(np.arange(6), [2, 4] if second >= 10 else [2])
        scene.phase.low_seconds += 1.0
        opened += [c.alert.machine for c in scene.passes() if c.kind == "opened"]
    assert opened == ["m002", "m004"]


@pytest.mark.parametrize("lost", [(9,), (9, 10), (8, 9, 10, 11), (9, 13)])
def test_a_gpu_that_falls_silent_as_the_job_stops_is_named_with_its_machine(
    lost: tuple[int, ...],
) -> None:
    scene = seen(6)
    gpus = panel_evidence(6, gpus=4)
    scene.decision.gpu_silence.reindex(gpus.rows)
    changes = []
    for second in range(150):
        gpus.state["dark"] = np.isin(np.arange(24), lost if second >= 5 else ())
        gpus.state["present"] = ~gpus.state["dark"]
        scene.phase.low_seconds += second >= 5
        scene.now_ns += SECOND
        changes += scene.decision.step(replace(scene.standing(), gpu_panel=gpus))
    if len(lost) > 2 or lost == (9, 13):
        # An exporter's, or two machines' at once: no one's.
        assert changes == []
        return
    assert told(changes) == [("opened", "machine", ("m002",))]
    alert = changes[0].alert
    assert (alert.gpu, alert.manifestation, alert.fault_types) == (1, "silent", ())
    assert [(e.direction, e.gpu) for e in alert.evidence] == [("missing", 1)]
    assert "GPU" in alert.recommended_action
    # It is over when the GPU is back and the job works.
    gpus.state["dark"] = np.zeros(24, np.bool_)
    gpus.state["present"] = ~gpus.state["dark"]
    scene.phase.low_seconds = 0.0
    for _ in range(int(QUIET_SECONDS) + 2):
        scene.now_ns += SECOND
        changes += scene.decision.step(replace(scene.standing(), gpu_panel=gpus))
    assert [c.kind for c in changes] == ["opened", "resolved"]


def test_most_machines_silent_at_once_are_a_collectors_trouble() -> None:
    assert quiet(seen(6), 0, 1, 2, 3, seconds=200, stands=True) == []


def test_a_machine_never_seen_cannot_fall_silent() -> None:
    scene = Scene(6)
    scene.panel.state["present"][2] = False
    assert quiet(scene, 2, seconds=200, stands=True) == []


def test_a_pausing_agent_is_not_named_while_another_machine_grows_odd() -> None:
    scene = seen(6)
    quiet(scene, 2, seconds=int(SILENT_SECONDS) - 1, stands=True)
    scene.level[4] = 0.5
    waited = 0
    while not (changes := scene.passes()):
        scene.phase.low_seconds += 1.0
        waited += 1
    assert SILENT_SECONDS + waited == pytest.approx(RIVALLED_SILENCE_SECONDS, abs=2)
    assert told(changes) == [("opened", "machine", ("m002",))]


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


def test_while_the_job_waits_for_a_silent_machine_no_other_is_named() -> None:
    scene = seen(6)
    quiet(scene, 2, seconds=int(SILENT_SECONDS) - 1, stands=True)
    scene.phase.low_seconds += 1.0
    assert told(scene.passes()) == [("opened", "machine", ("m002",))]
    scene.level[4] = 1.05
    for _ in range(30):
        scene.phase.low_seconds += 1.0
        assert [c for c in scene.passes() if c.kind == "opened"] == []
    scene.phase.low_seconds = 0.0
    opened = [c for _ in range(30) for c in scene.passes() if c.kind == "opened"]
    assert [c.alert.machine for c in opened] == ["m004"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_silent_machine_s_alert_outlives_its_place_in_the_job_while_that_waits(
    restarted: bool,
) -> None:
    scene = seen(6)
    quiet(scene, 2, seconds=int(SILENT_SECONDS) - 1, stands=True)
    scene.phase.low_seconds += 1.0
    assert told(scene.passes()) == [("opened", "machine", ("m002",))]
    if restarted:
        scene.decision.restore(scene.decision.snapshot())
    changes = scene.leave("m002")
    for _ in range(60):
        scene.phase.low_seconds += 1.0
        changes += scene.passes()
    assert changes == []
    scene.phase.low_seconds = 0.0
    changes = scene.passes(2)
    assert told(changes) == [("resolved", "machine", ("m002",))]
    assert changes[0].alert.note == "the machine left the job"


def test_a_silent_machine_that_leaves_a_job_at_work_is_done_with() -> None:
    scene = seen(6)
    quiet(scene, 2, seconds=int(SILENT_SECONDS) - 1, stands=True)
    scene.phase.low_seconds += 1.0
    scene.passes()
    scene.phase.low_seconds = 0.0
    scene.passes()
    assert told(scene.leave("m002")) == [("resolved", "machine", ("m002",))]


SPARE = Seen(rests=rows(1), works=rows(0, 2))
STOPS = Seen(rests=rows(1), works=rows(0, 2), worked=rows(1))


def test_a_machine_that_never_worked_while_the_job_goes_on_is_not_needed() -> None:
    job = started()
    job.does(WORK, 10, SPARE)
    assert job.weight.tolist() == [1.0, NEEDLESS, 1.0]
    job.does(WORK, int(NEEDLESS_SECONDS), SPARE)
    assert job.weight.tolist() == [1.0, 0.0, 1.0]
    # Not for long enough to say so of a job that stands still.
    job.does(WAIT, 5, SPARE)
    assert job.weight[1] > 0
    job.does(WORK, int(NEEDLESS_FOR_GOOD_SECONDS), SPARE)
    job.does(WAIT, 100, SPARE)
    assert job.weight[1] == 0


def test_who_stops_while_the_others_work_is_not_excused() -> None:
    job = started()
    job.does(WORK, 100, STOPS)
    assert job.weight.tolist() == [1.0] * 3


def test_who_does_not_come_back_from_a_rest_is_not_needed_when_the_job_goes_on() -> None:
    job = started()
    job.does(WAIT, 30)
    job.does(WORK, int(NEEDLESS_SECONDS) + 40, STOPS)
    assert job.weight[1] == 0


def test_who_joins_starts_anew_once() -> None:
    job = started()
    job.does(WORK, int(NEEDLESS_FOR_GOOD_SECONDS) + 20, SPARE)
    joined = 0
    for _ in range(100):
        job.does(WORK, 1, Seen(works=rows(0, 1, 2)))
        joined += int(job.trust.joined[1])
        assert not job.trust.joined[[0, 2]].any()
    assert joined == 1
    assert job.weight.tolist() == [1.0] * 3


@pytest.mark.parametrize("seconds", [1.0, 30.0, 60.0])
def test_who_is_left_behind_is_not_needed_however_rare_the_samples(seconds: float) -> None:
    job = started()
    job.does(WAIT, 120)
    for k in range(round(600 / seconds)):
        # Means show it a tick after the others are back.
        job.trust.step(job.phase, STOPS if k > 1 else NOTHING, seconds)
        job.phase.step(np.array(WORK), seconds)
    assert job.trust.state["needless"][1] >= NEEDLESS_FOR_GOOD_SECONDS


def test_nobody_is_needless_in_a_job_that_never_worked() -> None:
    job = Job()
    job.does(OVER, 600, SPARE)
    assert not job.trust.state["needless"].any()
