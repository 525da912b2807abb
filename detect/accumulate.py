"""Evidence that grows while a row stays odd, in seconds, with bounded increments.

Page's cumulative sum (Page, *Biometrika* 41, 1954) per metric, direction and test, with the
log-likelihood increment replaced by a clipped linear score (Huber's robust sequential test), so
that no single sample, however wild, adds more than its own duration (times the trust in it and,
below the peers, the metric's ``low_counts``). One second at or beyond ``FULL`` standard
deviations adds one second; below ``START`` evidence is taken back. Sums are signed: positive =
above the peers.

A row out of step with its peers is out of step in every metric: the shape test is one witness
for all.

Correlated metrics are one witness: within a family only the strongest metric counts. Families
add up; what only the host shows (processor, disk, TCP, memory) counts little beyond what the
job's own work shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.residuals import FAST, LEVEL, SHAPE, SLOW, TESTS, Residuals
from detect.state import PanelState
from models.evidence_model import HOST_FAMILIES, MetricScale

Array = NDArray[np.float64]

START = np.array([3.0, 3.5, 3.5, 3.5, 4.0])
FULL = np.array([6.0, 7.0, 7.0, 7.0, 8.0])
DECAY = 0.7
LEAK_SECONDS = 900.0
"""What takes longer to gather is no fast change: a clock beside the others', a role."""
ECHO_SECONDS = 120.0
CAP = np.array([3.0, 3.0, 1.5, 3.0, 3.0])
"""Most evidence by test: a small difference alone names nobody."""
ALIKE_FAMILY = {"thermal": "power"}
HOST_ALONE = 0.8
USUAL_FAMILIES = 5.0
MOST_PER_FAMILY = 1.5
STEP_MOST = 2.0
MAX_STEP_SECONDS = 10.0
PEAK_HALF_LIFE_SECONDS = 3600.0
PEERS_PEAKS = 3.0
OWN_PEAKS = 1.8
IDLE_PEAKS = 1.4
LEAST_TRUST = 0.25
MOST_PATIENCE = 4.0
EXCURSION_SECONDS = 3.0
PATIENCE_TICKS = 10


class EvidenceSums:
    """Accumulated evidence of one panel."""

    def __init__(self, scale: Callable[[str], MetricScale], family: Callable[[str], str]) -> None:
        self.scale = scale
        self.family = family
        self.state = PanelState()
        self.state.add("total", "mr", 0.0, (TESTS,))
        self.state.add("echo", "mr", 0.0)
        self.state.add("needed", "mr", 0.0, (TESTS,))
        self.state.add("highest", "mr", 0.0, (TESTS,))
        self.state.add("peak", "mr", 0.0, (TESTS,))
        self.state.add("seen", "m", False, dtype=np.bool_)
        self._hold: Array = np.zeros((TESTS, 0, 1))
        self._low: Array = np.zeros(0)
        self._low_counts: list[int] = []
        self._ticks = 0
        self._by_family: NDArray[np.int64] = np.zeros(0, np.int64)
        self._starts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._host: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._of_host: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._host_only = True
        self._few = 1.0
        self.families: tuple[str, ...] = ()

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
        self._hold = np.array([s.holds for s in scales]).reshape(-1, TESTS).T[:, :, None]
        self._low = np.array([s.low_counts for s in scales])
        self._low_counts = np.flatnonzero(self._low != 1.0).tolist()
        names = [ALIKE_FAMILY.get(f, f) for f in map(self.family, metrics)]
        order = sorted(range(len(names)), key=lambda i: (names[i], i))
        self._by_family = np.array(order, np.int64)
        ordered = [names[i] for i in order]
        self.families = tuple(dict.fromkeys(ordered))
        self._host = np.array([f in HOST_FAMILIES for f in self.families], np.bool_)
        self._of_host = np.array([n in HOST_FAMILIES for n in names], np.bool_)
        self._starts = np.array([ordered.index(f) for f in self.families], np.int64)
        self._weigh()

    def _weigh(self) -> None:
        """What each family counts, by how many have had values that could be compared."""
        seen = np.zeros(len(self.families), np.bool_)
        if self.families:
            by_family = self.state["seen"][self._by_family]
            seen = np.logical_or.reduceat(by_family, self._starts)
        work = int((seen & ~self._host).sum())
        self._host_only = work == 0
        # The same event shows in fewer families where fewer are reported.
        self._few = float(np.clip(USUAL_FAMILIES / (1 + work), 1.0, MOST_PER_FAMILY))

    def step(
        self, r: Residuals, tick_seconds: float, trust: Array, idle: bool, past: float
    ) -> None:
        """Add one tick. ``trust`` ``[R]`` in 0..1.5 scales growth; ``idle``: the job rests now;

        ``past``: the share of ``trust`` that is owed to a short past, which the level test does
        not compare with.
        """
        seconds = min(tick_seconds, MAX_STEP_SECONDS)
        seen = self.state["seen"] | r.valid.any(axis=1)
        if not np.array_equal(seen, self.state["seen"]):
            self.state["seen"] = seen
            self._weigh()
        total = self.state["total"]
        grow = np.abs(r.z)
        grow -= START[:, None, None]
        grow *= (1.0 / (FULL - START))[:, None, None]
        np.clip(grow, -DECAY, 1.0, out=grow)
        # Missing is a state of its own: it neither adds nor takes back.
        grow *= r.valid * seconds
        back = np.minimum(grow, 0.0)
        np.maximum(grow, 0.0, out=grow)
        # Without a past of its own a row cannot have changed; the level test still sees it.
        weight = r.established * trust
        grow[:LEVEL] *= weight
        grow[LEVEL] *= np.minimum(trust / past, 1.5)
        grow[SHAPE] *= weight
        # What a mean still remembers of an excursion that is over is not counted again.
        size = np.abs(r.z[FAST])
        echo = self.state["echo"]
        echo -= seconds * r.valid
        echo[size >= FULL[FAST]] = ECHO_SECONDS
        grow[SLOW] *= (echo <= 0) | (size >= START[FAST])
        for m in self._low_counts:
            grow[:, m] *= np.where(r.z[:, m] < 0, self._low[m], 1.0)
        np.copysign(grow, r.z, out=grow)
        size = np.abs(total)
        size += back
        np.maximum(size, 0.0, out=size)
        size[FAST] *= np.where(r.valid, np.exp(-seconds / LEAK_SECONDS), 1.0)
        total = np.copysign(size, total)
        total += grow
        cap = CAP[:, None, None] * self.state["needed"]
        self.state["total"] = np.clip(total, -cap, cap, out=total)
        self._learn_peaks(np.abs(total), tick_seconds, trust, idle)

    def _learn_peaks(self, size: Array, tick_seconds: float, trust: Array, idle: bool) -> None:
        """How high evidence rises on this row before it is taken back, slowly forgotten.

        Only an excursion that is over teaches, so a fault never raises its own bar. What happens
        while the job rests comes again the same way (who saves checkpoints) and teaches more.
        Evidence that was trusted little teaches what it would have been.
        """
        s = self.state
        highest = s["highest"]
        weight = (IDLE_PEAKS if idle else 1.0) / np.clip(trust, LEAST_TRUST, 1.0)
        np.maximum(highest, size * weight, out=highest)
        ended = (size == 0) & (highest > 0)
        if ended.any():
            np.maximum(s["peak"], highest, out=s["peak"], where=ended)
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
        others = peak.sum(axis=2, keepdims=True) - peak.max(axis=2, keepdims=True, initial=0.0)
        usual = PEERS_PEAKS * others / max(rows - 1, 1)
        if rows > 1:
            top = np.partition(peak, (rows - 2, rows - 1), axis=2)
            highest = np.where(peak < top[:, :, -1:], top[:, :, -1:], top[:, :, -2:-1])
            usual = np.maximum(usual, highest)
        needed = np.maximum(np.maximum(usual, OWN_PEAKS * peak), self._hold)
        self.state["needed"] = np.minimum(needed, MOST_PATIENCE * self._hold)

    def strength(self) -> Array:
        """Evidence over what counts as odd, whatever the direction: ``[test, M, R]``."""
        return np.asarray(np.abs(self.state["total"]) / self.state["needed"])

    def is_high(self, metric: int, row: int) -> bool:
        """Whether the strongest test of a metric saw the row above its peers."""
        test = self.test_of(metric, row)
        return bool(self.state["total"][test, metric, row] >= 0)

    def test_of(self, metric: int, row: int) -> int:
        """Which test speaks loudest for one metric of one row."""
        size = np.abs(self.state["total"][:, metric, row])
        return int(np.argmax(size / self.state["needed"][:, metric, row]))

    def fused(self, strength: Array, gone: NDArray[np.bool_] | bool = False) -> Array:
        """One score per row from ``strength`` ``[test, M, R]``: ``[R]``, higher is worse.

        ``gone`` ``bool [R]``: rows that have lost the job's process, which their host shows.
        """
        if not self.families:
            return np.zeros(strength.shape[2])
        strongest, shape = strength[:SHAPE].max(axis=0), strength[SHAPE]
        np.maximum(strongest, shape, out=strongest, where=self._of_host[:, None])
        by_family = np.maximum.reduceat(strongest[self._by_family], self._starts, axis=0)
        step = np.minimum(shape[~self._of_host].max(axis=0, initial=0.0), STEP_MOST)
        host = by_family[self._host].sum(axis=0)
        rest = by_family[~self._host].sum(axis=0) + step
        if self._host_only:
            return np.asarray(host + rest)
        rest *= self._few
        # A busy host that holds up nothing else is somebody's cron job.
        return np.asarray(rest + np.where(gone, host, np.minimum(host, HOST_ALONE + rest)))

    def excursions(self) -> NDArray[np.bool_]:
        """Cells in the middle of an excursion, ``bool [M, R]``."""
        return np.asarray((np.abs(self.state["total"]) > EXCURSION_SECONDS).any(axis=0))

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return {"panel": self.state.snapshot(), "ticks": self._ticks}

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.state.restore(tree["panel"])
        self._ticks = tree["ticks"]
        self._configure()
