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

from detect.fuse import Fusion
from detect.phase import Moment
from detect.residuals import FAST, LEVEL, SHAPE, SLOW, TESTS, Residuals
from detect.state import PanelState
from models.evidence_model import MetricScale

Array = NDArray[np.float32]
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
FAR = 2.0
"""Times `FULL` from which a lasting difference may: no healthy machine lies so far apart."""
HEAT_MOST = 1.0
"""Most evidence from heat, which a place and its fans decide, and from a power that was always
another, which the model of the GPUs decides: alone they name nobody."""
MAX_STEP_SECONDS = 10.0
PEAK_HALF_LIFE_SECONDS = 3600.0
PEERS_PEAKS = 3.0
OWN_PEAKS = 1.8
IDLE_PEAKS = 1.4
LEAST_TRUST = 0.25
REMEMBERED = 0.15
"""What counts of a change just after a rest."""
MOST_PATIENCE = 4.0
WANDER_SECONDS = 1200.0
WANDER_LEAST_SECONDS = 600.0
WANDER_USUAL = 0.015
WANDER_MOST = 6.0
"""Share of rows that usually lie apart for a while; of more, patience grows in proportion."""
EXCURSION_SECONDS = 3.0
PATIENCE_TICKS = 10
PEAK_SECONDS = 4.0
"""Highest evidence is looked at so often (in whole ticks)."""
RUNNING = Moment()


class EvidenceSums:
    """Accumulated evidence of one panel."""

    def __init__(self, scale: Callable[[str], MetricScale], family: Callable[[str], str]) -> None:
        self.scale = scale
        self.family = family
        self.state = PanelState()
        self.state.add("total", "mr", 0.0, (TESTS,), dtype=np.float32)
        self.state.add("echo", "mr", 0.0, dtype=np.float32)
        self.state.add("needed", "mr", 0.0, (TESTS,), dtype=np.float32)
        self.state.add("highest", "mr", 0.0, (TESTS,), dtype=np.float32)
        self.state.add("peak", "mr", 0.0, (TESTS,), dtype=np.float32)
        self.state.add("seen", "m", False, dtype=np.bool_)
        self.state.add("wander", "m", 0.0)
        self.state.add("watched", "m", 0.0)
        self._hold: Array = np.zeros((TESTS, 0, 1), np.float32)
        self._least_cap = np.inf
        self._most: Array = np.zeros((TESTS, 0), np.float32)
        self._low: Array = np.zeros(0, np.float32)
        self._ticks = 0
        self.fusion = Fusion()

    def reindex(self, metrics: tuple[str, ...], rows: tuple[str, ...]) -> None:
        """Follow the roster."""
        changed = metrics != self.state.metrics or rows != self.state.rows
        self.state.reindex(metrics, rows)
        self._configure()
        if changed:
            self._learn_needed()

    def _configure(self) -> None:
        metrics = self.state.metrics
        scales = [self.scale(m) for m in metrics]
        self._low = np.array([s.low_counts - 1.0 for s in scales], np.float32)
        families = [self.family(m) for m in metrics]
        most = np.full((TESTS, len(metrics)), np.inf, np.float32)
        most[:, [f == "thermal" for f in families]] = HEAT_MOST
        most[LEVEL, [f == "power" for f in families]] = HEAT_MOST
        self._most = most
        hold = np.array([s.holds for s in scales], np.float32).reshape(-1, TESTS)
        self._hold = hold.T[:, :, None]
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
        seconds = min(tick_seconds, MAX_STEP_SECONDS)
        seen = self.state["seen"]
        if not seen.all():
            self.state["seen"] = seen | r.valid.any(axis=1)
            if not np.array_equal(seen, self.state["seen"]):
                self.fusion.weigh(self.state["seen"])
        trust = trust.astype(np.float32)
        # Without a past of its own a row cannot have changed; the level test still sees it.
        change = (r.established & r.valid) * trust
        if moment.back:
            change *= np.float32(REMEMBERED)
        level = r.valid * np.minimum(trust / moment.past, 1.5)
        # Where much is reported no fault shows in one kind of metric alone, however far apart.
        far = np.abs(r.z[LEVEL]) >= (float(FAR * FULL[LEVEL]) if self.fusion.few else np.inf)
        level *= ~self.fusion.works_apart(np.abs(r.z[LEVEL]) >= float(START[LEVEL]))
        # Nobody wanders who stands still.
        steps = change * self._patience() if moment.idle else change
        weights = {LEVEL: level, SHAPE: change}
        cap = HELD_UP_CAP if moment.held_up or moment.idle else CAP
        echo = self._follow_echo(r, seconds)
        for test, total in enumerate(self.state["total"]):
            # Nothing happens to a cell without evidence that looks as usual, as most do.
            moves = np.abs(r.z[test]) > float(START[test])
            moves |= total != 0
            cells = np.flatnonzero(moves)
            if cells.size:
                weight = weights.get(test, steps)
                self._add(r, test, cells, weight, seconds, float(cap[test]), far, echo)
        if self._ticks % PATIENCE_TICKS == 0 and not moment.idle:
            self._learn_wander(r, PATIENCE_TICKS * tick_seconds)
        self._learn_peaks(tick_seconds, trust, moment.idle)

    def _learn_wander(self, r: Residuals, seconds: float) -> None:
        """How often rows lie apart for a while, the oddest left out: share of rows ``[M]``.

        Steps about as long as the time between samples do that: a row is sampled at one moment
        of its steps for minutes, and another row at another.
        """
        s = self.state
        apart = np.count_nonzero(np.abs(r.z[SLOW]) >= float(START[SLOW]), axis=1)
        rows = np.count_nonzero(r.valid, axis=1)
        share = np.maximum(apart - 1, 0) / np.maximum(rows, 1)
        known = rows >= 3
        s["watched"] += seconds * known
        gain = seconds / np.clip(s["watched"], WANDER_LEAST_SECONDS, WANDER_SECONDS)
        s["wander"] += np.minimum(gain, 1.0) * known * (share - s["wander"])

    def _follow_echo(self, r: Residuals, seconds: float) -> Array:
        """Seconds ``[M, R]`` for which a mean may still remember an excursion."""
        echo = self.state["echo"]
        echo -= np.float32(seconds) * r.valid
        np.maximum(echo, 0.0, out=echo)
        np.copyto(echo, ECHO_SECONDS, where=np.abs(r.z[FAST]) >= float(FULL[FAST]))
        return echo

    def _add(
        self,
        r: Residuals,
        test: int,
        cells: NDArray[np.int64],
        weight: Array,
        seconds: float,
        most: float,
        far: NDArray[np.bool_],
        echo: Array,
    ) -> None:
        """One tick of one test in some ``cells``, places in a flattened ``[M, R]``.

        ``weight`` ``[M, R]`` is that of growth; ``most`` bounds the sum, twice as much of the
        level where that is ``far`` ``[M, R]``.
        """
        metrics = cells // weight.shape[1]
        z, valid = r.z[test].reshape(-1)[cells], r.valid.reshape(-1)[cells]
        start, rate = float(START[test]), seconds / float(FULL[test] - START[test])
        within = np.minimum(z, start)
        np.maximum(within, -start, out=within)
        grow = z - within
        grow *= rate
        np.minimum(grow, seconds, out=grow)
        np.maximum(grow, -seconds, out=grow)
        grow *= weight.reshape(-1)[cells]
        if test == SLOW:
            # What a mean still remembers of an excursion that is over is not counted again.
            size = np.abs(r.z[FAST].reshape(-1)[cells])
            grow *= (echo.reshape(-1)[cells] <= 0) | (size >= float(START[FAST]))
        grow += self._low[metrics] * np.minimum(grow, 0.0)
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
            cap = np.full(cells.size, most, np.float32)
            if test == LEVEL:
                cap += cap * far.reshape(-1)[cells]
            np.minimum(cap, self._most[test, metrics], out=cap)
            cap *= self.state["needed"][test].reshape(-1)[cells]
            np.minimum(total, cap, out=total)
            np.maximum(total, -cap, out=total)
        sums[cells] = total

    def _patience(self) -> Array:
        """Times as much evidence as usual, ``[M, 1]``, for rows that wander."""
        wander = np.clip(self.state["wander"] / WANDER_USUAL, 1.0, WANDER_MOST)
        return np.asarray(wander.astype(np.float32)[:, None])

    def _learn_peaks(self, tick_seconds: float, trust: Array, idle: bool) -> None:
        """How high evidence rises on this row before it is taken back, slowly forgotten.

        Only an excursion that is over teaches, so a fault never raises its own bar. What happens
        while the job rests comes again the same way (who saves checkpoints) and teaches more.
        Evidence that was trusted little teaches what it would have been.
        """
        s = self.state
        if self._ticks % max(1, round(PEAK_SECONDS / tick_seconds)) == 0:
            weight = (IDLE_PEAKS if idle else 1.0) / np.clip(trust, LEAST_TRUST, 1.0)
            for total, highest, peak in zip(s["total"], s["highest"], s["peak"], strict=True):
                size = np.abs(total)
                over = size == 0
                over &= highest > 0
                size *= weight
                np.maximum(highest, size, out=highest)
                ended = np.flatnonzero(over)
                if ended.size:
                    heights, peaks = highest.reshape(-1), peak.reshape(-1)
                    peaks[ended] = np.maximum(peaks[ended], heights[ended])
                    heights[ended] = 0.0
        self._ticks += 1
        if self._ticks % PATIENCE_TICKS == 0:
            s["peak"] *= np.exp2(-PATIENCE_TICKS * tick_seconds / PEAK_HALF_LIFE_SECONDS)
            self._learn_needed()

    def _learn_needed(self) -> None:
        """Seconds of evidence that count as odd: ``[test, M, R]``.

        The model's hold, or more where this job's machines, or this very row, are used to
        longer excursions (imbalanced steps, clocks apart, a nightly cron): what came and went
        on another machine is no fault on this one.
        """
        peak = self.state["peak"]
        rows = peak.shape[2]
        first = peak.max(axis=2, keepdims=True, initial=0.0)
        others = peak.sum(axis=2, keepdims=True) - first
        least = np.maximum(PEERS_PEAKS * others / max(rows - 1, 1), self._hold)
        is_first = peak >= first
        second = (peak * ~is_first).max(axis=2, keepdims=True, initial=0.0)
        needed = np.maximum(OWN_PEAKS * peak, least)
        # The highest of the others.
        np.maximum(needed, first * ~is_first + second * is_first, out=needed)
        np.minimum(needed, MOST_PATIENCE * self._hold, out=needed)
        needed[:LEVEL] *= self._patience()
        self.state["needed"] = needed

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
        score[rows] = self.fusion.score(change, shape, gone[rows], moment)
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
        return self.fusion.score(_most(strength[:SHAPE]), strength[SHAPE], gone, moment)

    def excursions(self) -> NDArray[np.bool_]:
        """Cells in the middle of an excursion, ``bool [M, R]``."""
        total = self.state["total"]
        odd: NDArray[np.bool_] = np.abs(total[FAST]) > EXCURSION_SECONDS
        for test in range(FAST + 1, TESTS):
            odd |= np.abs(total[test]) > EXCURSION_SECONDS
        return odd

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return {"panel": self.state.snapshot(), "ticks": self._ticks}

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.state.restore(tree["panel"])
        self._ticks = tree["ticks"]
        self._configure()


def _most(strength: NDArray[np.floating]) -> NDArray[np.floating]:
    """Maximum over the first axis, in passes over whole cells."""
    most: NDArray[np.floating] = np.maximum(strength[0], strength[1])
    for other in strength[2:]:
        np.maximum(most, other, out=most)
    return most
