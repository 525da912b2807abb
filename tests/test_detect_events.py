"""Error codes and counts: a witness that names nobody alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from detect.accumulate import RUNNING
from detect.events import ALONE, COINCIDES, FADE_SECONDS, STORM, WEIGHT, Events
from detect.explain import explain
from detect.pace import NOTICED_SECONDS
from detect.panel import PanelEvidence
from detect.phase import HELD_UP_SECONDS, Moment
from detect.snapshot import decode_state, encode_state
from ingest.ticks import Panel
from tests.detect_support import CATALOGUE, MODEL, noisy
from tests.ticks_support import SECOND, START_NS, machine_names

METRICS = ("gpu_xid_error", "ib_link_downed", "unheard_of_errors")
XID, LINK, OTHER = range(3)
ROWS = 6
Array = NDArray[np.float64]


def fresh() -> Events:
    events = Events(lambda metric: CATALOGUE.metric(metric).sticky)
    events.reindex(METRICS, machine_names(ROWS))
    return events


ODD = np.full(ROWS, 5.0)
ALL = np.ones((len(METRICS), ROWS), np.bool_)


def after(values: Array, events: Events | None = None, first: int = 0) -> Array:
    """What rows that are odd anyway get added by the ticks ``[E, R, T]`` from ``first`` on."""
    events = events or fresh()
    for k in range(first, values.shape[2]):
        witness = events.step(values[:, :, k], ALL, START_NS + k * SECOND, 1.0, ODD, RUNNING)
    return witness


def quiet(ticks: int) -> Array:
    return np.zeros((len(METRICS), ROWS, ticks))


def test_a_code_that_changes_speaks_for_some_minutes() -> None:
    values = quiet(30 + int(FADE_SECONDS))
    values[XID, 2, 29:] = 79.0
    assert after(values[:, :, :30]).tolist() == [0, 0, WEIGHT["gpu_xid_error"], 0, 0, 0]
    assert after(values)[2] == pytest.approx(np.exp(-1.0) * WEIGHT["gpu_xid_error"])


def storm(
    rows: list[int],
    start: int,
    ticks: int = 600,
    every: int = 2,
    read: int = 1,
    others: int = 0,
) -> Array:
    """Link errors on some rows from a tick on, and what they count on rows that are not odd.

    ``read``: ticks between two readings of the counter, which holds its rate meanwhile;
    ``others``: ticks between single errors somewhere.
    """
    values = quiet(ticks)
    values[LINK][rows, start::every] = 1.0
    if others:
        for k in range(0, ticks, others):
            values[LINK, (k // others) % ROWS, k] = 1.0
    values = np.repeat(values[:, :, ::read], read, axis=2)
    events = fresh()

    def fresh_at(k: int) -> NDArray[np.bool_]:
        return np.full((len(METRICS), ROWS), k % read == 0)

    for k in range(ticks):
        at_ns = START_NS + k * SECOND
        witness = events.step(values[:, :, k], fresh_at(k), at_ns, 1.0, np.zeros(ROWS), RUNNING)
    return witness


def test_errors_that_come_again_and_again_on_one_machine_name_it() -> None:
    assert storm([3], 200).tolist() == [0, 0, 0, pytest.approx(ALONE + STORM, abs=0.15), 0, 0]


@pytest.mark.parametrize(
    ("rows", "start", "every", "read"),
    [([3], 200, 60, 1), ([3], 0, 2, 1), ([1, 3], 200, 2, 1), ([3], 540, 600, 60)],
    ids=["now and then", "from the start", "on several", "one, read slowly"],
)
def test_errors_that_are_usual_or_the_jobs_do_not(
    rows: list[int], start: int, every: int, read: int
) -> None:
    assert storm(rows, start, every=every, read=read).max() <= ALONE


def test_a_storm_read_once_a_minute_and_among_others_single_errors_is_one() -> None:
    assert storm([3], 180, ticks=900, every=1, read=60)[3] > 1.5
    assert storm([3], 200, others=50)[3] > 2.0


def test_a_row_that_joins_with_a_habit_of_errors_is_judged_by_it() -> None:
    values = quiet(900)
    values[LINK, 3, 300::2] = 1.0
    values[XID, 0, 1] = 31.0
    events, rows = fresh(), machine_names(ROWS)
    events.reindex(METRICS, (*rows[:3], *rows[4:]))
    for k in range(900):
        at = [i for i in range(ROWS) if i != 3 or k >= 300]
        events.reindex(METRICS, tuple(rows[i] for i in at))
        witness = events.step(
            values[:, at, k], ALL[:, at], START_NS + k * SECOND, 1.0, np.zeros(len(at)), RUNNING
        )
    assert witness.max() <= ALONE


def test_a_code_from_before_the_job_says_nothing() -> None:
    values = quiet(30)
    values[XID, 2] = 31.0
    assert not after(values).any()
    values[XID, 2, 10:20] = np.nan
    assert not after(values).any()


def test_a_code_that_is_cleared_says_nothing() -> None:
    values = quiet(30)
    values[XID, 2, :20] = 31.0
    assert not after(values).any()


def test_a_count_that_moves_is_an_event_and_stays_to_be_told() -> None:
    values, events = quiet(30), fresh()
    values[LINK, 4, 20] = 2.0
    assert after(values, events)[4] > 0.9
    assert events.latest(4) == (LINK, START_NS + 20 * SECOND)
    assert events.state["last"][LINK, 4] == 2.0


def test_what_happens_to_many_happens_to_the_job() -> None:
    values = quiet(30)
    values[XID, :3, 20:] = 45.0
    assert not after(values).any()


def test_an_error_of_no_known_weight_is_no_witness() -> None:
    values = quiet(30)
    values[OTHER, 1, 20:] = 5.0
    assert not after(values).any()


def test_events_go_on_from_their_snapshot() -> None:
    values = quiet(40)
    values[XID, 2, 15:] = 79.0
    steady, first, second = fresh(), fresh(), fresh()
    whole = after(values, steady)
    after(values[:, :, :20], first)
    second.restore(decode_state(encode_state(first.snapshot())))
    second.reindex(METRICS, machine_names(ROWS))
    assert np.array_equal(after(values, second, 20), whole)


def added_while_slower(seconds: float, event_ago: int) -> float:
    """By an event so long ago to a row of which nothing else is odd, in a job slower since."""
    values, events = quiet(300), fresh()
    values[LINK, 4, 299 - event_ago] = 1.0
    for k in range(300):
        moment = Moment(slower_seconds=seconds if k == 299 else 0.0)
        witness = events.step(
            values[:, :, k], ALL, START_NS + k * SECOND, 1.0, np.zeros(ROWS), moment
        )
    return float(witness[4])


def test_an_event_at_which_the_job_became_slower_counts_for_more() -> None:
    ago = round(HELD_UP_SECONDS + NOTICED_SECONDS)
    assert added_while_slower(HELD_UP_SECONDS, ago) == pytest.approx(COINCIDES)
    assert COINCIDES > 2 * ALONE
    assert added_while_slower(0.0, ago) == ALONE
    assert added_while_slower(HELD_UP_SECONDS + 150.0, ago) == ALONE


def added_in_a_standstill(
    event: int, rest: int, *, rows: tuple[int, ...] = (4,), stalled: bool = True
) -> Array:
    """By a code so many seconds after the job stopped (before it if negative), once it has stood
    for ``rest`` seconds: ``[R]``."""
    events, values = fresh(), quiet(1)[:, :, 0]
    events.step(values, ALL, START_NS, 1.0, np.zeros(ROWS), RUNNING)
    stopped = START_NS + 1000 * SECOND
    values[XID, list(rows)] = 79.0
    events.step(values, ALL, stopped + event * SECOND, 1.0, np.zeros(ROWS), RUNNING)
    moment = Moment(rest_seconds=float(rest), stalled=stalled)
    return events.step(values, ALL, stopped + rest * SECOND, 1.0, np.zeros(ROWS), moment)


@pytest.mark.parametrize("event", [-50, 0, 50])
@pytest.mark.parametrize("rest", [100, 900], ids=["soon", "as long as it stands"])
def test_a_code_that_comes_as_the_job_stops_counts_in_full_while_it_stands(
    event: int, rest: int
) -> None:
    added = added_in_a_standstill(event, rest)
    assert added.tolist() == [0, 0, 0, 0, pytest.approx(COINCIDES), 0]


@pytest.mark.parametrize("event", [-600, -90, 90])
def test_a_code_from_long_before_the_job_stopped_or_after_adds_little(event: int) -> None:
    assert 0 < added_in_a_standstill(event, 100)[4] <= ALONE


@pytest.mark.parametrize("rest", [100, 900])
def test_a_code_on_many_as_the_job_stops_says_nothing_however_long_it_stands(rest: int) -> None:
    assert added_in_a_standstill(0, rest, rows=tuple(range(ROWS))).max() < 0.05


def test_a_code_in_a_rest_that_is_no_stall_adds_little() -> None:
    assert added_in_a_standstill(0, 40, stalled=False)[4] == ALONE


PANEL = ("gpu_power_watts", "gpu_sm_active_ratio", "gpu_xid_error", "nvlink_tx_bytes_per_second")


def panel_after(code: float, factor: float, seconds: int) -> PanelEvidence:
    """A panel in which one machine's power and activity change by a factor, with a code."""
    values = noisy(np.tile([[5000.0], [0.9], [0.0], [1e10]], ROWS), 600 + seconds, 0.01, seed=1)
    values[:2, 3, 600:] *= factor
    values[2, 3, 600:] = code
    panel = Panel(
        scope="machine",
        metrics=PANEL,
        machine=np.arange(ROWS),
        gpu=np.full(ROWS, -1),
        values=values,
        fresh=np.isfinite(values),
    )
    evidence = PanelEvidence(CATALOGUE, MODEL)
    evidence.reindex(panel, machine_names(ROWS), 1.0)
    nobody, trust = np.zeros(ROWS, np.bool_), np.ones(ROWS)
    for k in range(values.shape[2]):
        at_ns = START_NS + k * SECOND
        evidence.step(
            values[:, :, k], np.isfinite(values[:, :, k]), at_ns, 1.0, nobody, trust, RUNNING
        )
    return evidence


def test_a_code_alone_names_nobody() -> None:
    score = panel_after(79.0, 1.0, 20).score
    assert score.max() <= ALONE + 0.1 < MODEL.threshold(3)


def test_a_code_beside_other_evidence_adds_to_it_and_is_told() -> None:
    plain, told = panel_after(0.0, 0.6, 30), panel_after(79.0, 0.6, 30)
    assert told.score[3] > plain.score[3] + 0.5 > 0.5
    evidence = {e.metric: e for e in explain(told, 3, CATALOGUE).evidence}
    assert evidence["gpu_xid_error"].value == 79.0
    assert evidence["gpu_xid_error"].direction == "high"
    assert evidence["gpu_xid_error"].peer_median == 0.0
    assert sum(e.share for e in evidence.values()) == pytest.approx(1.0, abs=0.1)
    assert "gpu_xid_error" not in {e.metric for e in explain(plain, 3, CATALOGUE).evidence}
