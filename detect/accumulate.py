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

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.fuse import Fusion
from detect.phase import Moment
from detect.residuals import FAST, LEVEL, SHAPE, SLOW, TESTS, Residuals
from detect.state import PanelState
from models.evidence_model import MetricScale

Array = NDArray[np.float32]

START = np.array([3.0, 3.5, 3.5, 3.5, 4.0])
FULL = np.array([6.0, 7.0, 7.0, 7.0, 8.0])
DECAY = 0.7
LEAK_SECONDS = 900.0
SHAPE_LEAK_SECONDS = 450.0
"""What takes longer to gather is no change: a clock beside the others', a role."""
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
TILE_ROWS = 1024
"""Cells do not depend on each other: so many rows at a time stay in the processor's cache."""


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
        self._most: Array = np.zeros((TESTS, 0, 1), np.float32)
        self._low: list[tuple[int, float]] = []
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
        self._low = [(m, s.low_counts - 1.0) for m, s in enumerate(scales) if s.low_counts != 1.0]
        families = [self.family(m) for m in metrics]
        most = np.full((TESTS, len(metrics), 1), np.inf, np.float32)
        most[:, [f == "thermal" for f in families]] = HEAT_MOST
        most[LEVEL, [f == "power" for f in families]] = HEAT_MOST
        self._most = most
        hold = np.array([s.holds for s in scales], np.float32).reshape(-1, TESTS)
        self._hold = hold.T[:, :, None]
        caps = np.minimum(CAP, most[:, :, 0].T) * hold
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
        cap = HELD_UP_CAP if moment.held_up or moment.idle else CAP
        for rows in _tiles(trust.size):
            weights = steps[:, rows], level[:, rows], change[:, rows]
            self._add(r, rows, weights, seconds, cap, far[:, rows])
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

    def _add(
        self,
        r: Residuals,
        rows: slice,
        weights: tuple[Array, Array, Array],
        seconds: float,
        most: NDArray[np.float64],
        far: NDArray[np.bool_],
    ) -> None:
        """One tick of some rows; ``weights`` ``[M, R]`` of growth: of changes, level and shape.

        ``most`` ``[test]`` bounds it, twice as much of the level where that is ``far`` ``[M, R]``.
        """
        z, valid = r.z[:, :, rows], r.valid[:, rows]
        start, rate = _by_test(START), _by_test(seconds / (FULL - START))
        within = np.minimum(z, start)
        np.maximum(within, -start, out=within)
        grow = z - within
        grow *= rate
        np.minimum(grow, seconds, out=grow)
        np.maximum(grow, -seconds, out=grow)
        change, level, shape = weights
        grow[:LEVEL] *= change
        grow[LEVEL] *= level
        grow[SHAPE] *= shape
        # What a mean still remembers of an excursion that is over is not counted again.
        size = np.abs(z[FAST])
        echo = self.state["echo"][:, rows]
        passed = np.float32(seconds) * valid
        echo -= passed
        np.maximum(echo, np.float32(ECHO_SECONDS) * (size >= float(FULL[FAST])), out=echo)
        grow[SLOW] *= (echo <= 0) | (size >= float(START[FAST]))
        for m, more in self._low:
            grow[:, m] += more * np.minimum(grow[:, m], 0.0)
        # Missing is a state of its own: it neither adds nor takes back.
        back = np.abs(within, out=within)
        back -= start
        back *= rate
        np.maximum(back, -DECAY * seconds, out=back)
        back *= valid
        total = self.state["total"][:, :, rows]
        taken = np.maximum(total, back)
        np.minimum(taken, -back, out=taken)
        total -= taken
        total[FAST] *= np.exp(passed * np.float32(-1.0 / LEAK_SECONDS))
        total[SHAPE] *= np.exp(passed * np.float32(-1.0 / SHAPE_LEAK_SECONDS))
        total += grow
        if max(total.max(initial=0.0), -total.min(initial=0.0)) > self._least_cap:
            cap = _by_test(most) * np.ones((1, *far.shape), np.float32)
            cap[LEVEL] += cap[LEVEL] * far
            np.minimum(cap, self._most, out=cap)
            cap *= self.state["needed"][:, :, rows]
            np.minimum(total, cap, out=total)
            np.maximum(total, -cap, out=total)

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
            for rows in _tiles(trust.size):
                size = np.abs(s["total"][:, :, rows])
                highest, peak = s["highest"][:, :, rows], s["peak"][:, :, rows]
                over = size == 0
                over &= highest > 0
                size *= weight[rows]
                np.maximum(highest, size, out=highest)
                ended = np.nonzero(over)
                if ended[0].size:
                    peak[ended] = np.maximum(peak[ended], highest[ended])
                    highest[ended] = 0.0
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

    def strength(self, rows: slice = slice(None)) -> Array:
        """Evidence over what counts as odd, whatever the direction: ``[test, M, R]``."""
        size = np.abs(self.state["total"][:, :, rows])
        size /= self.state["needed"][:, :, rows]
        return size

    def judge(self, gone: NDArray[np.bool_], moment: Moment) -> tuple[Array, NDArray[np.float64]]:
        """Each metric's strongest evidence ``[M, R]``, and one score per row (`fused`) ``[R]``."""
        strongest = np.empty(self.state["echo"].shape, np.float32)
        score = np.zeros(gone.size)
        for rows in _tiles(gone.size):
            strength = self.strength(rows)
            change, shape = _most(strength[:SHAPE]), strength[SHAPE]
            np.maximum(change, shape, out=strongest[:, rows])
            score[rows] = self.fusion.score(change, shape, gone[rows], moment)
        return strongest, score

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


def _tiles(rows: int) -> Iterator[slice]:
    """Slices that cover so many rows."""
    for start in range(0, rows, TILE_ROWS):
        yield slice(start, start + TILE_ROWS)


def _by_test(values: NDArray[np.float64]) -> Array:
    """One number a test, to go with single-precision cells ``[test, M, R]``."""
    return values.astype(np.float32)[:, None, None]


def _most(strength: NDArray[np.floating]) -> NDArray[np.floating]:
    """Maximum over the first axis, in passes over whole cells."""
    most: NDArray[np.floating] = np.maximum(strength[0], strength[1])
    for other in strength[2:]:
        np.maximum(most, other, out=most)
    return most
