"""Evidence that grows while a row stays odd, in seconds, with bounded increments.

Page's cumulative sum (Page, *Biometrika* 41, 1954) per metric, direction and test, with the
log-likelihood increment replaced by a clipped linear score (Huber's robust sequential test), so
that no single sample, however wild, adds more than its own duration (times the trust in it and,
below the peers, the metric's ``low_counts``). One second at or beyond ``FULL`` standard
deviations adds one second; below ``START`` evidence is taken back. Sums are signed: positive =
above the peers.

`detect.fuse` makes one score of a row's metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.fuse import EFFORT, LONG_REST_SECONDS, Fusion
from detect.load import loads
from detect.patience import Patience
from detect.phase import SPINS, Moment
from detect.residuals import DRIFT, FAST, LEVEL, SHAPE, SLOW, TESTS, Residuals
from detect.state import PanelState
from models.evidence_model import MetricScale

Array = NDArray[np.float32]
WORK = EFFORT | {"power"}
"""Families that tell of work, where they do not spin."""
Rows = slice | NDArray[np.int64]

START = np.array([3.0, 3.5, 3.5, 3.5, 4.0])
FULL = np.array([6.0, 7.0, 7.0, 7.0, 8.0])
DECAY = 0.7
LEAK_SECONDS = 900.0
SHAPE_LEAK_SECONDS = 450.0
"""What takes longer to gather is no change: a clock beside the others', a role."""
LEAKS = {FAST: LEAK_SECONDS, SHAPE: SHAPE_LEAK_SECONDS}
ECHO_SECONDS = 120.0
CAP = np.array([2.15, 2.15, 1.5, 1.95, 3.0])
HELD_UP_CAP = np.array([3.0, 3.0, 1.5, 1.95, 3.0])
"""Most evidence by test: a small difference alone, or a lasting one, names nobody; nor, in a large
job, does one family of metrics, unless the job is held up or stands still.
"""
THROTTLED = 1.4
"""Times as much of a clock below the others': nothing but a fault holds it there."""
STALL, STALL_SECONDS = 1.4, 120.0
"""More of it in a job that has stood still for so long: one kind of metric is enough then."""
FAR = 2.0
"""Times `FULL` from which a lasting difference may: no healthy machine lies so far apart."""
FILLS = frozenset({"thermal", "memory"})
HEAT_MOST = 1.0
"""Most evidence from heat, which a place and its fans decide, from memory in use, which the
allocator decides, and from a power that was always another, which the model of the GPUs decides:
alone they name nobody."""
MAX_STEP_SECONDS = np.array([6.0, 6.0, 6.0, 10.0, 6.0])
MAX_STEP_SHARE = 0.3
"""No sample counts for longer, by test, or than this share of the time between two, however rare
they are: some must agree."""
LINGERS, LINGERS_FROM, LINGERS_TO = 0.25, 15.0, 60.0
"""What counts of more work than the peers' while these rest, between so many seconds. One long
step is no fault: who lingers in every step is odd in each, whom the job waits for at last, then.
"""
REMEMBERED = 0.15
"""What counts of a change just after a rest."""
EXCURSION_SECONDS = 3.0
CALM_SECONDS = 120.0
"""So long the job must have gone on as usual for what a host is like to count as before."""
ODD_BEFORE = 0.35
"""Evidence from a host from which it was odd then."""
LESS_LOAD = 0.5
"""What counts of less load than the peers'."""
BUSIER = 0.5
"""What counts of more work than the peers' while the job goes on as usual: nobody waits for it."""
RUNNING = Moment()


class EvidenceSums:
    """Accumulated evidence of one panel."""

    def __init__(self, scale: Callable[[str], MetricScale], family: Callable[[str], str]) -> None:
        self.scale = scale
        self.family = family
        self.state = PanelState()
        self.state.add("total", "mr", 0.0, (TESTS,), dtype=np.float32)
        self.state.add("echo", "mr", 0.0, dtype=np.float32)
        self.state.add("seen", "m", False, dtype=np.bool_)
        self.state.add("odd_before", "r", False, dtype=np.bool_)
        self._calm_seconds = 0.0
        self.patience = Patience(self.state)
        self.machine: NDArray[np.int64] = np.zeros(0, np.int64)
        """Whose each row is."""
        self._least_cap = np.inf
        self._most: Array = np.zeros((TESTS, 0), np.float32)
        self._more: Array = np.zeros((TESTS, 0), np.float32)
        self._low: Array = np.zeros(0, np.float32)
        self._high: Array = np.zeros(0, np.float32)
        self._lingers: Array = np.zeros(0, np.float32)
        self._busier: Array = np.zeros(0, np.float32)
        self.fusion = Fusion()

    def reindex(
        self,
        metrics: tuple[str, ...],
        rows: tuple[str, ...],
        machine: NDArray[np.int64] | None = None,
    ) -> None:
        """Follow the roster; ``machine`` ``[R]``: whose each row is, its own if not given."""
        self.machine = np.arange(len(rows)) if machine is None else machine
        changed = metrics != self.state.metrics or rows != self.state.rows
        self.state.reindex(metrics, rows)
        self._configure()
        if changed:
            self.patience.learn_needed()

    def _configure(self) -> None:
        metrics = self.state.metrics
        scales = [self.scale(m) for m in metrics]
        self._low = np.array([s.low_counts - 1.0 for s in scales], np.float32)
        families = [self.family(m) for m in metrics]
        load = loads(metrics, families)
        self._low[load] = LESS_LOAD - 1.0
        # A clock above the others' holds nobody up, nor is more load a fault.
        calm = [f == "clock" or one for f, one in zip(families, load, strict=True)]
        self._high = np.array([not one for one in calm], np.float32)
        works = [f in WORK and m not in SPINS for f, m in zip(families, metrics, strict=True)]
        self._lingers = np.where(works, np.float32(LINGERS), self._high)
        self._busier = np.where(works, np.float32(BUSIER), self._high)
        most = np.full((TESTS, len(metrics)), np.inf, np.float32)
        most[:, [f in FILLS for f in families]] = HEAT_MOST
        most[LEVEL, [f == "power" for f in families]] = HEAT_MOST
        self._most = most
        self._more = np.ones((TESTS, len(metrics)), np.float32)
        self._more[:DRIFT, [f == "clock" for f in families]] = THROTTLED
        hold = np.array([s.holds for s in scales], np.float32).reshape(-1, TESTS)
        self.patience.configure(hold.T)
        caps = np.minimum(CAP, most.T) * hold
        self._least_cap = float(caps.min(initial=np.inf))
        self.fusion.configure(families, self.state["seen"])

    def step(
        self,
        r: Residuals,
        tick_seconds: float,
        trust: NDArray[np.floating],
        moment: Moment,
    ) -> None:
        """Add one tick. ``trust`` ``[R]`` in 0..1.5 scales growth.

        Of it ``moment.past`` is owed to a short past, which the level test does not compare with.
        """
        most = np.maximum(MAX_STEP_SECONDS, MAX_STEP_SHARE * tick_seconds)
        seconds = np.minimum(tick_seconds, most).tolist()
        seen = self.state["seen"]
        if not seen.all():
            self.state["seen"] = seen | r.valid.any(axis=1)
            if not np.array_equal(seen, self.state["seen"]):
                self.fusion.weigh(self.state["seen"])
        trust = trust.astype(np.float32)
        # Without a past of its own a row cannot have changed; the level test still sees it.
        changes = r.established & r.valid
        change = trust * np.float32(REMEMBERED) if moment.back else trust
        apart = self._has_other_work(np.abs(r.z[LEVEL]) >= float(START[LEVEL]))
        level = np.minimum(trust / moment.past, 1.5) * ~apart
        # Nobody wanders who stands still.
        steps = change * self.patience.for_wanderers() if moment.idle else change
        weights = {LEVEL: (r.valid, level), SHAPE: (changes, change)}
        cap = HELD_UP_CAP if moment.held_up or moment.idle else CAP
        if moment.rest_seconds >= STALL_SECONDS:
            cap = cap * STALL
        lingers = LINGERS_FROM < moment.rest_seconds <= LINGERS_TO
        high = self._high if moment.idle or moment.held_up else self._busier
        waits = moment.slower_seconds > 0 or moment.rest_seconds > LONG_REST_SECONDS
        self._calm_seconds = 0.0 if waits else self._calm_seconds + tick_seconds
        # Test by test: the cells of one stay in the processor's cache meanwhile.
        for test, total in enumerate(self.state["total"]):
            size = np.abs(r.z[test])
            if test == FAST:
                self._follow_echo(r, size, tick_seconds)
            moving = size > float(START[test])
            # Nothing happens to a cell without evidence that looks as usual, as most do.
            moving |= total != 0
            cells = np.flatnonzero(moving)
            if cells.size:
                known, weight = weights.get(test, (changes, steps))
                above = self._lingers if lingers and test in (FAST, SLOW) else high
                self._add(r, test, cells, known, weight, above, seconds[test], float(cap[test]))
        self.patience.step(r, float(START[SLOW]), tick_seconds, trust, moment.idle)

    def _has_other_work(self, apart: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Rows ``bool [R]`` that have been given other work; ``apart`` as in `Fusion.works_apart`.

        One GPU alone that differs from its neighbours has not: stages are of several.
        """
        other = self.fusion.works_apart(apart)
        if not other.any():
            return other
        alone = (np.bincount(self.machine) > 1) & (np.bincount(self.machine, other) == 1)
        return np.asarray(other & ~alone[self.machine])

    def _follow_echo(self, r: Residuals, fast: Array, tick_seconds: float) -> None:
        """``echo``: seconds ``[M, R]`` for which a mean may still remember an excursion.

        ``fast`` ``[M, R]``: the size of the fast change.
        """
        echo = self.state["echo"]
        cells = np.flatnonzero(echo != 0)
        if cells.size:
            left = echo.reshape(-1)
            passed = np.float32(tick_seconds) * r.valid.reshape(-1)[cells]
            left[cells] = np.maximum(left[cells] - passed, 0.0)
        np.copyto(echo, ECHO_SECONDS, where=fast >= float(FULL[FAST]))

    def _add(
        self,
        r: Residuals,
        test: int,
        cells: NDArray[np.int64],
        known: NDArray[np.bool_],
        weight: Array,
        high: Array,
        seconds: float,
        most: float,
    ) -> None:
        """One tick of one test in some ``cells``, places in a flattened ``[M, R]``.

        ``weight`` (``[R]`` or ``[M, R]``) is that of growth where ``known`` ``[M, R]``, ``high``
        ``[M]`` that above the peers; ``most`` bounds the sum.
        """
        metrics, rows = np.divmod(cells, known.shape[1])
        z, valid = r.z[test].reshape(-1)[cells], r.valid.reshape(-1)[cells]
        start, rate = float(START[test]), seconds / float(FULL[test] - START[test])
        within = np.minimum(z, start)
        np.maximum(within, -start, out=within)
        grow = z - within
        grow *= rate
        np.minimum(grow, seconds, out=grow)
        np.maximum(grow, -seconds, out=grow)
        grow *= weight[rows] if weight.ndim == 1 else weight[metrics, rows]
        grow *= known.reshape(-1)[cells]
        if test == SLOW:
            # What a mean still remembers of an excursion that is over is not counted again.
            size = np.abs(r.z[FAST].reshape(-1)[cells])
            passed = self.state["echo"].reshape(-1)[cells] <= 0
            grow *= passed | (size >= float(START[FAST]))
        grow += self._low[metrics] * np.minimum(grow, 0.0)
        grow *= np.where(grow < 0, np.float32(1.0), high[metrics])
        # Missing is a state of its own: it neither adds nor takes back.
        back = np.abs(within, out=within)
        back -= start
        back *= rate
        np.maximum(back, -DECAY * seconds, out=back)
        back *= valid
        sums = self.state["total"][test].reshape(-1)
        total = sums[cells]
        taken = np.maximum(total, back)
        np.minimum(taken, -back, out=taken)
        total -= taken
        if test in LEAKS:
            total *= np.exp(np.float32(seconds) * valid * np.float32(-1.0 / LEAKS[test]))
        total += grow
        if max(total.max(), -total.min()) > self._least_cap:
            cap = np.float32(most) * self._more[test, metrics]
            # Where much is reported no fault shows in one kind of metric alone, however far apart.
            if test == LEVEL and self.fusion.few:
                cap += cap * (np.abs(z) >= float(FAR * FULL[LEVEL]))
            np.minimum(cap, self._most[test, metrics], out=cap)
            cap *= self.state["needed"][test].reshape(-1)[cells]
            np.minimum(total, cap, out=total)
            np.maximum(total, -cap, out=total)
        sums[cells] = total

    def strength(self, rows: Rows = slice(None)) -> Array:
        """Evidence over what counts as odd, whatever the direction: ``[test, M, R]``."""
        size = np.abs(self.state["total"][:, :, rows])
        size /= self.state["needed"][:, :, rows]
        return size

    def judge(self, gone: NDArray[np.bool_], moment: Moment) -> tuple[Array, NDArray[np.float64]]:
        """Each metric's strongest evidence ``[M, R]``, and one score per row (`fused`) ``[R]``."""
        strongest = np.zeros(self.state["echo"].shape, np.float32)
        score = np.zeros(gone.size)
        rows = self._odd_rows()
        strength = self.strength(rows)
        change, shape = _most(strength[:SHAPE]), strength[SHAPE]
        strongest[:, rows] = np.maximum(change, shape)
        before = self.state["odd_before"]
        score[rows], host = self.fusion.score(change, shape, gone[rows], moment, before[rows])
        if self._calm_seconds >= CALM_SECONDS:
            before.fill(False)
            before[rows] = host >= ODD_BEFORE
        return strongest, score

    def _odd_rows(self) -> Rows:
        """The rows that have any evidence if these are few, or else all."""
        total = self.state["total"]
        count = total.shape[2]
        odd = np.flatnonzero((total.reshape(-1, count) != 0).any(axis=0))
        if odd.size * 4 > count:
            return slice(None)
        # A lone row would be added up in another order, to another last bit.
        return np.array([odd[0], (odd[0] + 1) % count]) if odd.size == 1 else odd

    def is_high(self, metric: int, row: int) -> bool:
        """Whether the strongest test of a metric saw the row above its peers."""
        test = self.test_of(metric, row)
        return bool(self.state["total"][test, metric, row] >= 0)

    def test_of(self, metric: int, row: int) -> int:
        """Which test speaks loudest for one metric of one row."""
        size = np.abs(self.state["total"][:, metric, row])
        return int(np.argmax(size / self.state["needed"][:, metric, row]))

    def fused(
        self,
        strength: NDArray[np.floating],
        gone: NDArray[np.bool_] | bool = False,
        moment: Moment = RUNNING,
    ) -> NDArray[np.floating]:
        """One score per row from ``strength`` ``[test, M, R]``: ``[R]``, higher is worse.

        ``gone`` ``bool [R]``: rows that have lost the job's process, which their host shows.
        """
        return self.fusion.score(_most(strength[:SHAPE]), strength[SHAPE], gone, moment)[0]

    def excursions(self) -> NDArray[np.bool_]:
        """Cells in the middle of an excursion, ``bool [M, R]``."""
        total = self.state["total"]
        odd: NDArray[np.bool_] = np.abs(total[FAST]) > EXCURSION_SECONDS
        for test in range(FAST + 1, TESTS):
            odd |= np.abs(total[test]) > EXCURSION_SECONDS
        return odd

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return {
            "panel": self.state.snapshot(),
            "patience": self.patience.snapshot(),
            "calm_seconds": self._calm_seconds,
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.state.restore(tree["panel"])
        self.patience.restore(tree["patience"])
        self._calm_seconds = tree["calm_seconds"]
        self._configure()


def _most(strength: NDArray[np.floating]) -> NDArray[np.floating]:
    """Maximum over the first axis, in passes over whole cells."""
    most: NDArray[np.floating] = np.maximum(strength[0], strength[1])
    for other in strength[2:]:
        np.maximum(most, other, out=most)
    return most
