"""How far every row is from its peers, in standard deviations of healthy difference.

For one panel and one tick:

1. values are brought to a scale on which a relative change is an additive one;
2. two exponential averages (fast, slow) take out step-scale noise, and a long one of small
   differences (drift) finds what is too small for them;
3. the peers' centre is the median over the rows, after each row's own lasting offset is taken
   off (so a fleet of two GPU models or pipeline stages still has one centre);
4. a row is compared with the *range* the centre had within the clocks' slack, so agents whose
   clocks differ by seconds do not look faulty at every phase change;
5. beside the means, how far each row strays from the centre tick by tick is followed: a slow
   machine does the same work per step, so its means are the peers', but it computes while they
   wait and its pattern is another one (`detect.shape`);
6. what is left is divided by the noise that healthy rows show: the job's pooled noise, the
   row's own past noise (both as quantiles over time, so that a wild minute is not remembered as
   the usual), the present spread, and a floor from the model.

The median and the median absolute difference are standard robust estimators (Huber & Ronchetti,
*Robust Statistics*, ch. 5); with one odd machine of N they rank machines as all-pairs
distances do, in N log N.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.averages import counts, follow, median
from detect.noise import CHANGES, Noise
from detect.past import OwnPast
from detect.reference import Reference, offset_re_expressed, re_expressed
from detect.shape import Shape
from detect.state import PanelState
from models.evidence_model import MetricScale

Vector = NDArray[np.float64]
Array = NDArray[np.float32]
Mask = NDArray[np.bool_]
Counts = NDArray[np.int64]

FAST, SLOW, DRIFT, LEVEL, SHAPE = range(5)
TESTS = 5
FAST_SECONDS = 6.0
SLOW_SECONDS = 45.0
DRIFT_SECONDS = 180.0
DRIFT_BOUND = 6.0
LOOK_SECONDS = 4.0
"""What changes slowly is looked at, and learned from, so often (in whole ticks)."""
SCALE_END = 50.0
"""Where the scale ends on which a relative change is an additive one."""
SLACK_SECONDS = 5.0
START_SECONDS = 120.0
APART = 1.5
CLOSER = 0.3
REFERENCE_TICKS = 10


@dataclass(frozen=True, slots=True)
class Residuals:
    """One tick's standardised differences.

    ``z`` is ``float32 [test, M, R]`` with tests fast change, slow change, drift, level, shape;
    positive = above the peers (shape: out of step with them); 0 where nothing can be said.
    ``valid`` ``bool [M, R]``: the value is there
    and has at least two peers. ``established`` ``bool [M, R]``: the row has a past of its own.
    ``centre`` ``float64 [M]`` is the peers' fast centre in transformed units.
    """

    z: Array
    valid: Mask
    established: Mask
    centre: Vector


class PeerResiduals:
    """Tracks one panel of one job. State is bounded: a few dozen floats per metric and row.

    Single precision is enough for what is kept per row: the least noise is a thousandth, and no
    average is so long that its steps would be lost. The fast and the slow test follow every
    tick; what changes slowly is looked at every `LOOK_SECONDS` and holds in between.
    """

    def __init__(
        self,
        scale: Callable[[str], MetricScale],
        quiet: Callable[[str], float],
        bursty: Callable[[str], bool],
    ) -> None:
        self.scale = scale
        self.bursty = bursty
        self.state = s = PanelState()
        self.reference = Reference(s, quiet)
        self.noise = Noise(s)
        self.past = OwnPast(s)
        self.shape = Shape(s)
        s.add("y", "mr", np.nan, (2,), dtype=np.float32)
        s.add("middle", "m", np.nan, (2,), dtype=np.float32)
        s.add("band", "m", np.nan, (1,))
        s.add("drift", "mr", 0.0, dtype=np.float32)
        s.add("apart", "mr", False, dtype=np.bool_)
        s.add("held", "mr", 0.0, (TESTS - DRIFT,), dtype=np.float32)
        self._seconds = 0.0
        self._ticks = 0
        self._tick_seconds = 0.0
        self._gain: Array = np.zeros((2, 1, 1), np.float32)
        self._drift_gain = 0.0
        self._look_ticks = 1

    @property
    def looks(self) -> bool:
        """Whether the next tick is one at which what changes slowly is looked at."""
        return self._ticks % self._look_ticks == 0

    @property
    def look_seconds(self) -> float:
        """From one such tick to the next."""
        return self._look_ticks * self._tick_seconds

    def reindex(self, metrics: tuple[str, ...], rows: tuple[str, ...], tick_seconds: float) -> None:
        """Follow the roster; to be called whenever it or the tick may have changed."""
        self.state.reindex(metrics, rows)
        self._configure(tick_seconds)

    def _configure(self, tick_seconds: float) -> None:
        metrics = self.state.metrics
        floor = np.array([self.scale(m).floor for m in metrics])
        fleet = np.array([self.scale(m).fleet for m in metrics])
        self.reference.configure()
        self.noise.configure(floor)
        self.past.configure(floor, fleet, np.array([self.bursty(m) for m in metrics], np.bool_))
        self.shape.configure(floor, tick_seconds)
        self._tick_seconds = tick_seconds
        slow = max(SLOW_SECONDS, 4 * tick_seconds)
        gain = -np.expm1(-tick_seconds / np.array([FAST_SECONDS, slow]))
        self._gain = gain.astype(np.float32)[:, None, None]
        self._look_ticks = max(1, round(LOOK_SECONDS / tick_seconds))
        look_seconds = self._look_ticks * tick_seconds
        self._drift_gain = float(-np.expm1(-look_seconds / max(DRIFT_SECONDS, 2 * slow)))
        width = int(np.ceil(SLACK_SECONDS / tick_seconds)) + 1
        band = self.state["band"]
        if band.shape[0] != width:
            fresh = np.full((width, len(metrics)), np.nan)
            keep = min(width, band.shape[0])
            fresh[width - keep :] = band[band.shape[0] - keep :]
            self.state["band"] = fresh

    def step(self, x: Vector, suspect: Mask) -> Residuals:
        """Take one tick ``x`` ``float64 [M, R]`` (NaN = missing).

        Cells in ``suspect`` ``[M, R]`` neither teach their baseline nor the noise: what was
        flagged is never learned from. It is looked at when `looks` says so.
        """
        s = self.state
        present = np.isfinite(x)
        peers = counts(present)
        enough = peers >= 3
        everywhere = bool(present.all())
        every = everywhere and bool(enough.all())
        valid = present if enough.all() else present & enough[:, None]
        gaps = np.flatnonzero(~present)
        if self._ticks % REFERENCE_TICKS == 0 or self._seconds < START_SECONDS:
            self._follow_reference(x, present, peers)
        g = self.reference.shares(x)
        self.past.follow(g, gaps)
        np.arcsinh(g, out=g)
        own = follow(s["y"], g, self._gain, present, everywhere) - s["base"]
        g -= s["base"]
        if not every:
            np.copyto(own, np.nan, where=~present)
            np.copyto(g, np.nan, where=~valid)
        self.shape.follow(g, valid, every, peers)
        middle = median(own, peers)
        if not everywhere:
            self._carry(middle, gaps, enough)
        s["middle"] = np.where(enough, middle, s["middle"])
        centre = middle.astype(np.float64)
        low, high = self._slack(centre[FAST])

        looks = self.looks
        # Asked for by looks only.
        away = own[FAST] - _column(centre[FAST]) if looks else own[FAST]
        own[FAST] -= np.minimum(np.maximum(own[FAST], _column(low)), _column(high))
        own[SLOW] -= _column(centre[SLOW])
        if not every:
            np.copyto(own, 0.0, where=~valid)
            if looks:
                np.copyto(away, 0.0, where=~valid)
        if self._seconds >= START_SECONDS:
            self.noise.age(valid, every, self._tick_seconds)
        z = np.empty((TESTS, *x.shape), np.float32)
        if looks:
            self._look(own, away, valid, every, peers, suspect, high - low, z)
        else:
            self.noise.look(own[:SLOW], valid, every, peers)
            self._standardise(own, self.noise.scale(self.noise.pool2(), high - low), z)
        z[DRIFT:] = s["held"]
        if not every:
            np.copyto(z[DRIFT:], 0.0, where=~valid)
        self._seconds += self._tick_seconds
        self._ticks += 1
        return Residuals(z, valid, s["established"], centre[FAST])

    def _carry(self, middle: Array, gaps: NDArray[np.intp], enough: Mask) -> None:
        """Cells that are missing, places in a flattened ``[M, R]``, keep their distance to the
        ``middle`` ``[2, M]`` of ``enough`` others: what the job did meanwhile is no difference when
        they come back.
        """
        before = self.state["middle"]
        moved = np.where(enough & np.isfinite(before), middle - before, np.float32(0.0))
        if moved.any():
            y = self.state["y"]
            y.reshape(len(y), -1)[:, gaps] += moved[:, gaps // y.shape[2]]

    def _slack(self, centre: Vector) -> tuple[Vector, Vector]:
        """Lowest and highest fast centre ``[M]`` within the clocks' slack, ignoring NaN."""
        band = self.state["band"]
        band[:-1] = band[1:]
        band[-1] = centre
        return np.fmin.reduce(band, axis=0), np.fmax.reduce(band, axis=0)

    def _standardise(self, e: Array, scale: Array, z: Array) -> None:
        """Differences ``e`` of the first changes in standard deviations, into ``z``."""
        s = self.state
        np.divide(e, self.noise.of_rows(scale[: len(e)]), out=z[: len(e)])
        # A row that was always apart and now comes closer to its peers is hardly a fault.
        cells = np.flatnonzero(s["apart"])
        if cells.size:
            base = s["base"].reshape(-1)[cells]
            for difference, sigmas in zip(e, z, strict=False):
                d = difference.reshape(-1)[cells]
                d *= d + base
                sigmas.reshape(-1)[cells] *= np.where(d < 0, np.float32(CLOSER), np.float32(1.0))

    def _look(
        self,
        own: Array,
        away: Array,
        valid: Mask,
        every: bool,
        peers: Counts,
        suspect: Mask,
        span: Vector,
        z: Array,
    ) -> None:
        """The tests of what changes slowly, and everything that is learned.

        ``own`` ``[2, M, R]``: fast and slow difference beyond the clocks' slack; ``away``
        ``[M, R]``: the fast one from the centre; both 0 where not valid. ``span``: `Noise.scale`.
        """
        s, ticks = self.state, self._look_ticks
        e = np.empty((CHANGES, *away.shape), np.float32)
        e[:DRIFT] = own
        e[DRIFT] = self._drift(away, valid)
        self.noise.look(e, valid, every, peers)
        pool2 = self.noise.pool2()
        level = self.past.level_z(pool2[SLOW], SLOW_SECONDS, peers)
        s["apart"] = self.past.apart(APART)
        self._standardise(e, self.noise.scale(pool2, span), z)
        held = s["held"]
        held[0], held[1] = z[DRIFT], level
        held[2] = self.shape.look(valid, every, peers, suspect, ticks)
        self.noise.learn(e, valid, suspect, self._tick_seconds, ticks)
        self.past.learn(away, valid, suspect, self._tick_seconds, ticks)

    def _drift(self, away: Array, valid: Mask) -> Array:
        """A long mean of small differences; large ones are for the other tests (Hampel 1974)."""
        s, ticks = self.state, np.float32(self._look_ticks)
        small = np.abs(away) <= _column(DRIFT_BOUND * self.noise.usual(FAST))
        small &= valid
        # A true mean while the past is shorter than the window.
        gain = ticks / (s["stray_ticks"] + ticks)
        np.maximum(gain, np.float32(self._drift_gain), out=gain)
        gain *= small
        gain *= away - s["drift"]
        drift = s["drift"]
        drift += gain
        return drift

    def _follow_reference(self, x: Vector, present: Mask, peers: Counts) -> None:
        """Follow the metrics' magnitudes; what was learned is re-expressed when one grows."""
        ticks = 1 if self._seconds < START_SECONDS else REFERENCE_TICKS
        grown = self.reference.update(x, present, peers, ticks * self._tick_seconds)
        if grown is None:
            return
        s = self.state
        change, factor = grown
        column = factor[:, None]
        s["y"][:, change] = re_expressed(s["y"][:, change], column)
        s["middle"][:, change] = re_expressed(s["middle"][:, change], factor)
        band = s["band"]
        centre = np.where(np.isfinite(band[-1]), band[-1], 0.0)[change]
        band[:, change] = re_expressed(band[:, change], factor)
        self.past.rescale(change, column, _column(centre))
        drift = s["drift"]
        drift[change] = offset_re_expressed(drift[change], _column(centre), column)

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return {
            "panel": self.state.snapshot(),
            "past": self.past.snapshot(),
            "seconds": self._seconds,
            "ticks": self._ticks,
            "tick_seconds": self._tick_seconds,
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.state.restore(tree["panel"])
        self.past.restore(tree["past"])
        self._seconds = tree["seconds"]
        self._ticks = tree["ticks"]
        if tree["tick_seconds"]:
            self._configure(tree["tick_seconds"])


def _column(values: Vector) -> Array:
    """One number a metric, to go with single-precision rows."""
    return values.astype(np.float32)[:, None]
