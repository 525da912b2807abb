"""What the evidence detector makes of whole machines: lives, starts, hosts, kept state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from detect.accumulate import FULL, START
from detect.alert import AlertChange
from detect.evidence import EvidenceDetector
from detect.panel import PanelEvidence
from detect.phase import Moment
from detect.residuals import FAST
from detect.snapshot import decode_state, encode_state
from detect.trust import FIRST_IDLE, FIRST_SAVES, GONE, Trust
from ingest.ticks import Panel, TickBlock
from models.evidence_model import EvidenceModel
from tests.detect_support import CATALOGUE
from tests.ticks_support import SECOND, START_NS, block_of, cut, machine_names

Array = NDArray[np.float64]

LEVELS = {
    "cpu_usage_ratio": 0.3,
    "gpu_memory_used_bytes": 6e10,
    "gpu_power_watts": 5200.0,
    "gpu_tensor_active_ratio": 0.4,
    "memory_usage_ratio": 0.5,
    "nvlink_tx_bytes_per_second": 2e10,
}
METRICS = tuple(LEVELS)
HOST = ("cpu_usage_ratio", "memory_usage_ratio")
REST = {"gpu_power_watts": 0.4, "gpu_tensor_active_ratio": 0.01, "nvlink_tx_bytes_per_second": 0.0}


def healthy(machines: int, ticks: int, metrics: tuple[str, ...] = METRICS, seed: int = 0) -> Array:
    """``[M, N, T]``: each metric at its level, with 1 % noise."""
    level = np.array([LEVELS[m] for m in metrics])
    noise = np.random.default_rng(seed).normal(1.0, 0.01, (len(metrics), machines, ticks))
    return np.asarray(level[:, None, None] * noise)


def detector() -> EvidenceDetector:
    return EvidenceDetector("job", CATALOGUE, EvidenceModel())


def said(values: Array, metrics: tuple[str, ...] = METRICS) -> list[AlertChange]:
    return detector().update(block_of(values, metrics=metrics))


def opened(changes: list[AlertChange]) -> list[str | None]:
    return [c.alert.machine for c in changes if c.kind == "opened"]


def rests(values: Array, since: int) -> Array:
    """The job stands from a tick on; the processes wait."""
    for metric, share in REST.items():
        values[METRICS.index(metric), :, since:] *= share
    return values


def weights(one: EvidenceDetector) -> Array:
    """Trust in new evidence per machine, as things stand."""
    trust = Trust()
    trust.reindex(one.machine_panel.rows)
    return trust.step(one.phase, one.machine_panel, 1.0)


def test_a_machine_whose_processor_and_memory_collapse_has_lost_its_process() -> None:
    values = rests(healthy(6, 720), 700)
    for metric in ("cpu_usage_ratio", "gpu_memory_used_bytes", "memory_usage_ratio"):
        values[METRICS.index(metric), 2, 700:] *= 0.05
    one = detector()
    one.update(block_of(values, metrics=METRICS))
    assert one.phase.name == "idle"
    assert one.machine_panel.gone.tolist() == [k == 2 for k in range(6)]
    assert one.machine_panel.alive.tolist() == [k != 2 for k in range(6)]
    alive = FIRST_IDLE[0] ** 2
    assert weights(one) == pytest.approx([FIRST_SAVES * alive, alive, GONE, alive, alive, alive])


def test_a_machine_that_sends_nothing_gives_no_sign_of_life_or_death() -> None:
    values = rests(healthy(6, 720), 700)
    values[:, 2, 700:] = np.nan
    one = detector()
    one.update(block_of(values, metrics=METRICS))
    assert not one.machine_panel.gone.any()
    assert one.machine_panel.alive.tolist() == [k != 2 for k in range(6)]


def test_machines_that_all_lose_their_process_at_once_are_no_odd_ones() -> None:
    values = rests(healthy(6, 720), 700)
    values[METRICS.index("cpu_usage_ratio"), :, 700:] *= 0.05
    one = detector()
    one.update(block_of(values, metrics=METRICS))
    assert not one.machine_panel.gone.any()


def test_without_a_metric_of_the_process_nobody_is_gone_or_alive() -> None:
    metrics = ("gpu_power_watts", "gpu_tensor_active_ratio")
    one = detector()
    one.update(block_of(healthy(4, 400, metrics), metrics=metrics))
    assert not (one.machine_panel.gone | one.machine_panel.alive).any()


LIFE = ("cpu_usage_ratio", "gpu_tensor_active_ratio")


def away(values: Array, machine: int, since: int, until: int) -> None:
    """Its processor does nothing for a while."""
    values[0, machine, since:until] *= 0.05


@pytest.mark.parametrize(
    ("before", "gone"),
    [((), [2]), ((1, 1), [2]), ((1, 4), [])],
    ids=["nobody was", "one again and again", "two"],
)
def test_where_processes_that_seem_gone_come_back_a_third_says_nothing(
    before: tuple[int, ...], gone: list[int]
) -> None:
    values = healthy(6, 460, LIFE)
    for k, machine in enumerate(before):
        away(values, machine, 340 + 40 * k, 360 + 40 * k)
    away(values, 2, 430, 460)
    one = detector()
    one.update(block_of(values, metrics=LIFE))
    assert np.flatnonzero(one.machine_panel.gone).tolist() == gone


SPINS = ("gpu_sm_active_ratio",)


def in_a_standstill(shares: tuple[float, ...], *, stalled: bool = True) -> Array:
    """``[R]``: how far each row is apart, in standard deviations, in a job whose activity swung by
    a tenth and now is this on each row."""
    rows = len(shares)
    values = np.random.default_rng(2).normal(0.9, 0.09, (1, rows, 380))
    values[0, :, 340:] = np.array(shares)[:, None]
    block = block_of(values, metrics=SPINS)
    panel = PanelEvidence(CATALOGUE, EvidenceModel())
    panel.reindex(block.machine_panel, block.machines, 1.0)
    fresh, nobody = np.ones((1, rows), np.bool_), np.zeros(rows, np.bool_)
    for k in range(380):
        rest = max(k - 339, 0)
        moment = Moment(rest_seconds=float(rest), stalled=stalled and rest > 0)
        at_ns = START_NS + k * SECOND
        panel.step(values[:, :, k], fresh, at_ns, 1.0, nobody, np.ones(rows), moment)
    return panel.state["worst_z"]


ALIKE = (0.99, 0.99, 0.98, 0.99, 1.0, 0.99, 0.99)


def test_the_one_that_is_less_active_while_all_others_spin_alike_counts_in_full() -> None:
    apart = in_a_standstill((*ALIKE, 0.87))
    assert apart[-1] == FULL[FAST]
    assert (apart[:-1] < START[FAST]).all()


@pytest.mark.parametrize(
    ("shares", "stalled"),
    [
        ((*ALIKE, 0.87), False),
        ((*ALIKE, *ALIKE, *ALIKE, 0.87, 0.87), True),
        ((0.93, 0.96, 1.0, 1.0, 1.0, 1.05, 1.08, 0.87), True),
        ((*ALIKE, 0.94), True),
        (tuple(0.2 * share for share in (*ALIKE, 0.87)), True),
        ((0.99, 0.99, 0.87), True),
    ],
    ids=["no stall", "two lower", "no agreement", "hardly less", "nobody spins", "few"],
)
def test_who_is_less_active_counts_by_the_usual_noise_where_the_others_do_not_wait_alike(
    shares: tuple[float, ...], stalled: bool
) -> None:
    assert (in_a_standstill(shares, stalled=stalled) < FULL[FAST]).all()


def starts_from_zero(machines: int, ticks: int, zero: int) -> Array:
    """Nothing at all for some ticks, then work."""
    values = healthy(machines, ticks)
    values[:, :, :zero] *= 1e-4
    return values


@pytest.mark.parametrize("zero", [30, 200])
def test_a_job_that_starts_from_zero_runs_once_it_works(zero: int) -> None:
    one = detector()
    one.update(block_of(starts_from_zero(4, zero + 700, zero), metrics=METRICS))
    phase = one.phase
    assert phase.name == "running"
    assert not phase.over
    for metric in ("gpu_tensor_active_ratio", "nvlink_tx_bytes_per_second"):
        usual = phase.state["usual"][METRICS.index(metric)]
        assert usual == pytest.approx(LEVELS[metric], rel=0.1)


def test_a_busy_host_for_minutes_names_nobody_in_a_job_whose_work_is_seen() -> None:
    values = healthy(6, 1000)
    values[METRICS.index("cpu_usage_ratio"), 3, 700:880] *= 2.0
    assert said(values) == []


def test_a_busy_host_alone_names_nobody_however_long_it_lasts() -> None:
    values = healthy(6, 1100)
    values[METRICS.index("cpu_usage_ratio"), 3, 700:] *= 2.0
    assert said(values) == []


def test_a_lost_process_is_named_although_only_its_host_shows_it() -> None:
    values = rests(healthy(6, 850), 700)
    for metric in HOST:
        values[METRICS.index(metric), 3, 700:] *= 0.05
    assert opened(said(values)) == ["m003"]


def test_a_host_apart_is_named_where_only_hosts_are_watched() -> None:
    values = healthy(6, 1500, HOST)
    values[:, 3, 700:] *= 0.3
    assert opened(said(values, HOST)) == ["m003"]


@pytest.mark.parametrize("at", [350, 705, 760])
def test_a_detector_restored_from_bytes_goes_on_bit_for_bit(at: int) -> None:
    values = rests(healthy(6, 820), 750)
    values[:2, 2, 700:] *= 0.05
    values[2, 4, 690:720] *= 3.0
    values[:, 5, 300:330] = np.nan
    first, rest = cut(block_of(values, metrics=METRICS), [at])
    steady, other = detector(), detector()
    steady.update(first)
    stored = encode_state(steady.snapshot())
    other.restore(decode_state(stored))
    assert encode_state(other.snapshot()) == stored
    assert other.update(rest) == steady.update(rest)
    assert encode_state(other.snapshot()) == encode_state(steady.snapshot())


def test_missing_values_of_the_odd_metrics_end_no_alert() -> None:
    values = healthy(6, 1800)
    values[2:4, 3, 700:] *= 0.5
    values[2:4, 3, 900:] = np.nan
    assert [c.kind for c in said(values) if c.kind != "updated"] == ["opened"]


def test_a_machine_without_the_traffic_that_the_others_keep_at_rest_is_named() -> None:
    metrics = ("gpu_power_watts", "gpu_tensor_active_ratio", "ib_tx_bytes_per_second")
    values = healthy(6, 1000, METRICS)[: len(metrics)]
    for metric, level in enumerate((5200.0, 0.4, 2e10)):
        values[metric] *= level / values[metric].mean()
    values[0, :, 700:] *= 0.4
    values[1, :, 700:] = 0.0
    values[2, :, 700:] *= 0.02
    assert opened(said(values, metrics)) == []
    values[2, 3, 700:] = 0.0
    (machine,) = opened(said(values, metrics))
    assert machine == block_of(values, metrics=metrics).machines[3]


def test_a_machine_that_always_does_less_of_everything_has_another_role() -> None:
    values = healthy(12, 1500)
    for metric in ("gpu_tensor_active_ratio", "nvlink_tx_bytes_per_second"):
        values[METRICS.index(metric), 4] *= 0.5
    assert opened(said(values)) == []


def test_a_power_that_was_always_another_names_nobody() -> None:
    values = healthy(5, 1500)
    values[METRICS.index("gpu_power_watts"), 2] *= 1.6
    assert opened(said(values)) == []


def test_the_alert_of_a_silent_machine_stays_when_it_leaves_a_job_that_waits() -> None:
    one = detector()
    values = rests(healthy(6, 1100), 1000)
    values[:, 2, 1000:] = np.nan
    changes = one.update(block_of(values, metrics=METRICS))
    assert [(c.kind, c.alert.machine, c.alert.manifestation) for c in changes] == [
        ("opened", "m002", "silent")
    ]
    others = tuple(name for name in machine_names(6) if name != "m002")

    def later(at: int, waits: bool) -> TickBlock:
        start = START_NS + at * SECOND
        more = rests(healthy(5, 20, seed=at), 0 if waits else 20)
        return block_of(more, metrics=METRICS, machines=others, roster=1, start_ns=start)

    assert one.update(later(1100, waits=True)) == []
    assert [c.kind for c in one.update(later(1120, waits=False))] == ["resolved"]


POWER = ("gpu_power_watts",)


@pytest.mark.parametrize(("share", "names"), [(0.8, ["m002"]), (1.0, [])])
def test_where_power_alone_tells_a_machine_whose_silence_lowers_it_is_named(
    share: float, names: list[str]
) -> None:
    values = healthy(6, 1300, POWER)
    values[:, :, 1000:] *= share
    values[:, 2, 1000:] = np.nan
    assert opened(said(values, POWER)) == names


def test_spares_and_machines_that_left_are_not_named_and_who_joins_is_judged_anew() -> None:
    values = healthy(8, 2400)
    idle = np.array([0.3, 0.02, 0.2, 0.0, 0.4, 0.0])[:, None]
    values[:, 5, :1500] *= idle
    # All rest, and go on without another one.
    values[:, :, 900:940] *= idle[:, :, None]
    values[:, 3, 940:] *= idle
    assert opened(said(values)) == []
    # The one that joined later stops while the others wait for it.
    values[:, 5, 2200:] *= idle
    rests(values, 2205)
    assert opened(said(values)) == ["m005"]


def test_a_host_without_gpus_among_machines_with_them_is_named_by_its_silence_only() -> None:
    values = healthy(8, 1200)
    gpus = [i for i, m in enumerate(METRICS) if m not in HOST]
    values[gpus, 5] = np.nan
    values[:, 5, 700:] *= 3.0
    assert opened(said(values)) == []
    rests(values, 1000)
    values[:, 5, 1000:] = np.nan
    assert opened(said(values)) == ["m005"]


def idles(values: Array, machine: int, since: int = 0) -> Array:
    """A machine that does nothing from a tick on."""
    values[:, machine, since:] *= np.array([0.3, 0.02, 0.2, 0.0, 0.4, 0.0])[:, None]
    return values


def test_a_machine_that_never_comes_up_is_named_while_the_others_wait_for_it() -> None:
    assert opened(said(idles(rests(healthy(8, 900), 0), 3))) == ["m003"]


def test_a_spare_that_a_restarted_job_waits_for_is_named() -> None:
    values = idles(healthy(8, 2400), 5)
    # Over for a while; then all but the spare have their processes and wait.
    for i in range(8):
        idles(values[:, :, 1500:1590], i)
    rests(values, 1590)
    assert opened(said(values)) == ["m005"]


@pytest.mark.parametrize("share", [0.78, 0.85])
def test_where_power_alone_tells_who_does_not_come_back_from_a_rest_is_named(share: float) -> None:
    values = healthy(8, 1600, POWER)
    values[:, :, 900:940] *= 0.4
    values[:, :, 940:] *= share
    values[:, 3, 900:] = 0.25 * healthy(8, 1600, POWER)[:, 3, 900:]
    assert opened(said(values, POWER)) == ["m003"]


@pytest.mark.parametrize(
    ("rest", "spares", "names"), [(0.25, [5], ["m003"]), (0.45, [3, 5], [])], ids=["works", "rests"]
)
def test_where_power_alone_tells_one_held_down_that_follows_the_job_is_no_spare(
    rest: float, spares: list[int], names: list[str]
) -> None:
    """Row 3 goes on at 45 % after a rest; row 5 always draws its least."""
    share = np.ones((8, 800))
    share[:, 400:430] = 0.25
    share[3, 400:430], share[3, 430:] = rest, 0.45
    share[5] = 0.25
    one = detector()
    changes = one.update(block_of(healthy(8, 800, POWER) * share, metrics=POWER))
    assert np.flatnonzero(one.machine_panel.work.rests).tolist() == spares
    assert np.flatnonzero(one.trust.state["spare"]).tolist() == spares
    assert opened(changes) == names


def test_a_spare_that_a_restarted_job_takes_in_is_judged_anew() -> None:
    values = healthy(8, 2400)
    idles(values[:, :, :1500], 5)
    for i in range(8):
        idles(values[:, :, 1500:1560], i)
    assert opened(said(values)) == []


GPUS = 4


def per_gpu(values: Array, *, gpus: bool = True, **given: Any) -> TickBlock:
    """A block of ``[M, GPUs, T]``, `GPUS` a machine, whose machine rows are their means."""
    count = values.shape[1] // GPUS
    means = values.reshape(len(METRICS), count, GPUS, -1).mean(axis=2)
    block = block_of(means, metrics=METRICS, **given)
    if not gpus:
        return block
    of, which = np.repeat(np.arange(count), GPUS), np.tile(np.arange(GPUS), count)
    return replace(block, gpu_panel=Panel("gpu", METRICS, of, which, values, np.isfinite(values)))


@pytest.mark.parametrize(("odd", "names"), [(1, ["m005"]), (2, []), (GPUS, [])])
def test_a_stage_may_be_part_of_a_machine_but_one_gpu_alone_is_none(
    odd: int, names: list[str]
) -> None:
    values = healthy(8 * GPUS, 900)
    share = np.array([1.0, 1.0, 0.9, 0.7, 1.0, 0.6])[:, None, None]
    values[:, 5 * GPUS : 5 * GPUS + odd] *= share
    assert opened(detector().update(per_gpu(values))) == names


def test_a_spare_may_join_after_the_gpus_are_told_of_no_more() -> None:
    one = detector()
    values = healthy(5 * GPUS, 400)
    for gpu in range(4 * GPUS, 5 * GPUS):
        idles(values, gpu)
    one.update(per_gpu(values))
    assert one.trust.state["spare"].tolist() == [False] * 4 + [True]
    rest = tuple(machine_names(5)[i] for i in (0, 1, 2, 4))
    later = healthy(4 * GPUS, 200, seed=1)
    start_ns = START_NS + 400 * SECOND
    block = per_gpu(later, gpus=False, machines=rest, roster=1, start_ns=start_ns)
    assert one.update(block) == []
    assert not one.trust.state["spare"].any()
