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
   wait and its pattern is another one;
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

from detect.state import PanelState
from models.evidence_model import MetricScale

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FAST, SLOW, DRIFT, LEVEL, SHAPE = range(5)
TESTS = 5
CHANGES = 3
FAST_SECONDS = 6.0
SLOW_SECONDS = 45.0
DRIFT_SECONDS = 180.0
DRIFT_BOUND = 6.0
SPREAD_SECONDS = 4.0
FLOOR_SHARES = np.array([1.0, 0.75, 0.7])
"""A mean over more seconds differs less by chance, so a smaller difference counts."""
SLACK_SECONDS = 5.0
BLOCK_SECONDS = 20.0
RING_BLOCKS = 15
ESTABLISHED_BLOCKS = 15
POOL_SECONDS = 300.0
OWN_SECONDS = 1800.0
LEVEL_SECONDS = 300.0
LEVEL_BLOCKS = 8
START_SECONDS = 120.0
MANY_ROWS = 16
APART = 1.5
CLOSER = 0.3
REFERENCE_TICKS = 10
SHAPE_TICKS = 5
SHAPE_SECONDS = 15.0
SHAPE_FLOOR = 0.2
SHAPE_FULL = 12.0
SHAPE_YOUNG_TICKS = 20
BASE_GAIN = 0.015
BASE_SECONDS = 45.0
OWN_LIMIT = 2.0
QUANTILE = 0.6
QUANTILE_SIGMA = 0.84
"""A normal variable's absolute value is below this many standard deviations so often."""
QUANTILE_SPEED = 2.0
YOUNG_SECONDS = 30.0
LEAST_NOISE = 0.1
FEW_ROWS = np.array(
    [1.0, 1.0, 1.0, 1.694, 1.753, 1.557, 1.597, 1.526, 1.546, 1.51, 1.524, 1.503, 1.515, 1.4826]
)
"""Standard deviation / median absolute difference for 0, 1, 2, … normal rows (simulated)."""


@dataclass(frozen=True, slots=True)
class Residuals:
    """One tick's standardised differences.

    ``z`` is ``float64 [test, M, R]`` with tests fast change, slow change, drift, level, shape;
    positive = above the peers (shape: out of step with them); 0 where nothing can be said.
    ``valid`` ``bool [M, R]``: the value is there
    and has at least two peers. ``established`` ``bool [M, R]``: the row has a past of its own.
    ``centre`` ``float64 [M]`` is the peers' fast centre in transformed units.
    """

    z: Array
    valid: Mask
    established: Mask
    centre: Array


class PeerResiduals:
    """Tracks one panel of one job. State is bounded: a few dozen floats per metric and row."""

    def __init__(self, scale: Callable[[str], MetricScale], quiet: Callable[[str], float]) -> None:
        self.scale = scale
        self.quiet = quiet
        self.state = s = PanelState()
        s.add("ref", "m", 0.0)
        s.add("magnitude", "m", 0.0)
        s.add("y", "mr", np.nan, (2,))
        s.add("drift", "mr", 0.0)
        s.add("base", "mr", 0.0)
        s.add("ring", "mr", np.nan, (RING_BLOCKS,))
        s.add("block_sum", "mr", 0.0)
        s.add("block_count", "mr", 0.0)
        s.add("block_odd", "mr", False, dtype=np.bool_)
        s.add("ring_clean", "mr", False, (RING_BLOCKS,), dtype=np.bool_)
        s.add("established", "mr", False, dtype=np.bool_)
        s.add("pool", "m", 0.0, (CHANGES,))
        s.add("now2", "m", 0.0, (CHANGES,))
        s.add("own", "mr", 0.0, (CHANGES,))
        s.add("pooled_ticks", "m", 0.0)
        s.add("band", "m", np.nan, (1,))
        s.add("level_spread", "m", 0.0)
        s.add("lasting", "mr", 0.0)
        s.add("level_sigma", "m", 1.0)
        s.add("stray", "mr", np.nan)
        s.add("stray_base", "mr", 0.0)
        s.add("stray_ticks", "mr", 0.0)
        s.add("stray_pool2", "m", 0.0)
        s.add("stray_now2", "m", 0.0)
        s.add("seconds", "mr", 0.0)
        self._ring_at = 0
        self._block_ticks = 0
        self._seconds = 0.0
        self._ticks = 0
        self._floor2: Array = np.zeros(0)
        self._fleet2: Array = np.zeros(0)
        self._quiet: Array = np.zeros(0)
        self._tick_seconds = 0.0
        self._gain: Array = np.zeros(2)
        self._drift_gain = 0.0
        self._spread_ticks = 1

    def reindex(self, metrics: tuple[str, ...], rows: tuple[str, ...], tick_seconds: float) -> None:
        """Follow the roster; to be called whenever it or the tick may have changed."""
        self.state.reindex(metrics, rows)
        self._configure(tick_seconds)

    def _configure(self, tick_seconds: float) -> None:
        metrics = self.state.metrics
        self._floor2 = np.array([self.scale(m).floor ** 2 for m in metrics])
        self._fleet2 = np.array([self.scale(m).fleet ** 2 for m in metrics])
        self._quiet = np.array([self.quiet(m) for m in metrics])
        self._tick_seconds = tick_seconds
        slow = max(SLOW_SECONDS, 4 * tick_seconds)
        self._gain = -np.expm1(-tick_seconds / np.array([FAST_SECONDS, slow]))
        self._spread_ticks = max(1, round(SPREAD_SECONDS / tick_seconds))
        self._drift_gain = -np.expm1(-tick_seconds / max(DRIFT_SECONDS, 2 * slow))
        width = int(np.ceil(SLACK_SECONDS / tick_seconds)) + 1
        band = self.state["band"]
        if band.shape[0] != width:
            fresh = np.full((width, len(metrics)), np.nan)
            keep = min(width, band.shape[0])
            fresh[width - keep :] = band[band.shape[0] - keep :]
            self.state["band"] = fresh

    def step(self, x: Array, suspect: Mask) -> Residuals:
        """Take one tick ``x`` ``[M, R]`` (NaN = missing).

        Cells in ``suspect`` ``[M, R]`` neither teach their baseline nor the noise: what was
        flagged is never learned from.
        """
        s = self.state
        present = np.isfinite(x)
        peers = present.sum(axis=1)
        enough = peers >= 3
        if self._ticks % REFERENCE_TICKS == 0 or self._seconds < START_SECONDS:
            self._update_reference(x, present, peers)
        g = self._transform(x)
        y = s["y"]
        first = present & np.isnan(y[FAST])
        moved = y + self._gain[:, None, None] * (g - y)
        y = np.where(present, np.where(first, g, moved), y)
        s["y"] = y

        own = np.where(present, y, np.nan) - s["base"]
        centre = _median(own, peers)
        band = s["band"]
        band[:-1] = band[1:]
        band[-1] = centre[FAST]
        low, high = _range(band)

        valid = present & enough[:, None]
        e = np.empty((CHANGES, *x.shape))
        e[FAST] = own[FAST] - np.clip(own[FAST], low[:, None], high[:, None])
        e[SLOW] = own[SLOW] - centre[SLOW][:, None]
        e[:DRIFT] = np.where(valid, e[:DRIFT], 0.0)
        away = own[FAST] - centre[FAST][:, None]
        e[DRIFT] = np.where(valid, self._drift(away, valid), 0.0)

        # The long means spread slowly: looked at now and then.
        looked_at = slice(CHANGES if self._ticks % self._spread_ticks == 0 else SLOW)
        now2 = s["now2"].copy()
        now2[looked_at] = self._spread(e[looked_at], valid, peers)
        s["now2"] = now2
        span2 = 0.01 * np.square(high - low)
        pool2 = np.maximum(np.square(s["pool"]), now2)
        variance = np.square(FLOOR_SHARES)[:, None] * self._floor2 + pool2
        variance[FAST] += np.where(np.isfinite(span2), span2, 0.0)
        own2 = np.minimum(np.square(s["own"]), OWN_LIMIT**2 * variance[:, :, None])
        z = np.empty((TESTS, *x.shape))
        z[:LEVEL] = e / np.sqrt(np.maximum(variance[:, :, None], own2))
        if self._seconds >= START_SECONDS:
            s["seconds"] += np.where(valid, self._tick_seconds, 0.0)
        s["level_sigma"] = self._level_sigma(pool2[SLOW], peers)
        z[LEVEL] = self.lasting_z()
        # A row that was always apart and now comes closer to its peers is hardly a fault.
        apart = np.abs(s["base"]) > APART * s["level_sigma"][:, None]
        if apart.any():
            closer = apart & (e * (e + s["base"]) < 0)
            z[:LEVEL] = np.where(closer, CLOSER * z[:LEVEL], z[:LEVEL])
        z[LEVEL] = np.where(valid, z[LEVEL], 0.0)
        z[SHAPE] = self._shape(g, valid, peers, suspect)
        self._learn_noise(e, valid, now2, suspect)
        self._learn_base(away, valid, suspect)
        self._seconds += self._tick_seconds
        self._ticks += 1
        return Residuals(z, valid, s["established"], centre[FAST])

    def lasting_z(self) -> Array:
        """Lasting distance from the peers ``[M, R]`` in standard deviations of healthy ones."""
        return np.asarray(self.state["lasting"] / self.state["level_sigma"][:, None])

    def _shape(self, g: Array, valid: Mask, peers: NDArray[np.int64], suspect: Mask) -> Array:
        """How much more than it used to, and than the others do, a row strays from the centre.

        The logarithm of the mean absolute difference over a quarter of a minute, against the
        row's own past and the peers' present: ``[M, R]``, positive = stranger.
        """
        s = self.state
        own = np.where(valid, g - s["base"], np.nan)
        away = np.abs(own - _median(own, peers)[:, None])
        floor = np.sqrt(self._floor2)[:, None]
        sigma = np.sqrt(SHAPE_FLOOR**2 + np.maximum(s["stray_pool2"], s["stray_now2"]))[:, None]
        # What is beyond a full score would only be remembered for longer.
        most = np.exp(np.minimum(s["stray_base"] + SHAPE_FULL * sigma, 50.0)) - floor
        away = np.where(s["stray_ticks"] > SHAPE_YOUNG_TICKS, np.minimum(away, most), away)
        stray = s["stray"]
        gain = -np.expm1(-self._tick_seconds / max(SHAPE_SECONDS, 3 * self._tick_seconds))
        moved = np.where(np.isnan(stray), away, stray + gain * (away - stray))
        s["stray"] = stray = np.where(valid, moved, stray)
        size = np.log(np.where(valid, stray, 0.0) + floor)
        ticks, base = s["stray_ticks"], s["stray_base"]
        relative = np.where(valid, size - base, np.nan)
        e = relative - _median(relative, peers)[:, None]
        e = np.where(valid, e, 0.0)
        if self._ticks % SHAPE_TICKS == 0:
            now2 = s["stray_now2"] = self._spread(e[None], valid, peers)[0]
            gain = min(1.0, SHAPE_TICKS * self._tick_seconds / POOL_SECONDS)
            s["stray_pool2"] += gain * (now2 - s["stray_pool2"])
        spread2 = np.maximum(s["stray_pool2"], s["stray_now2"])
        z = e / np.sqrt(SHAPE_FLOOR**2 + spread2)[:, None]
        learn = valid & ~suspect
        # A mean first, then slowly forgetting; a single outburst moves it little.
        rate = np.maximum(self._tick_seconds / OWN_SECONDS, 1.0 / (ticks + 1.0))
        step = np.where(ticks > 0, np.clip(size - base, -1.0, 1.0), size - base)
        s["stray_base"] = base + np.where(learn, np.minimum(rate, 1.0), 0.0) * step
        s["stray_ticks"] = ticks + learn
        return np.asarray(np.maximum(z, 0.0))

    def _drift(self, away: Array, valid: Mask) -> Array:
        """A long mean of small differences; large ones are for the other tests (Hampel 1974)."""
        s = self.state
        bound = DRIFT_BOUND * np.sqrt(self._floor2 + np.square(s["pool"][FAST]))[:, None]
        small = valid & (np.abs(away) <= bound)
        # A true mean while the past is shorter than the window.
        gain = np.maximum(self._drift_gain, 1.0 / (s["stray_ticks"] + 1.0))
        s["drift"] += np.where(small, gain * (away - s["drift"]), 0.0)
        return s["drift"]

    def _level_sigma(self, pool2: Array, peers: NDArray[np.int64]) -> Array:
        """What healthy machines differ by for good: the fleet's spread or this job's, ``[M]``.

        A spread estimated from few rows is uncertain, so it counts for more there.
        """
        few = 1.2 * (1.0 + 4.0 / np.maximum(peers, 1))
        spread2 = np.maximum(self._fleet2, np.square(few * self.state["level_spread"]))
        averaged = pool2 * SLOW_SECONDS / LEVEL_SECONDS
        return np.asarray(np.sqrt(self._floor2 + averaged + spread2))

    def _transform(self, x: Array) -> Array:
        """``asinh(x / reference)``: a difference near 0, a logarithm of the ratio above."""
        ref = np.where(self.state["ref"] > 0, self.state["ref"], 1.0)
        return np.asarray(np.arcsinh(x / ref[:, None]))

    def _update_reference(self, x: Array, present: Mask, peers: NDArray[np.int64]) -> None:
        """The magnitude a metric works at: the largest one-minute mean of its centre so far.

        Kept as a power of two, so that it seldom moves; what was learned is re-expressed when
        it does. A metric that is zero on most rows takes its mean instead of its median.
        """
        s = self.state
        size = np.abs(x)
        centre = _median(np.where(present, size, np.nan), peers)
        with np.errstate(invalid="ignore"):
            mean = np.where(present, size, 0.0).sum(axis=1) / np.maximum(peers, 1)
        centre = np.where(centre > 0, centre, mean)
        magnitude = s["magnitude"]
        ticks = 1 if self._seconds < START_SECONDS else REFERENCE_TICKS
        gain = min(1.0, ticks * self._tick_seconds / 60.0)
        seen = np.isfinite(centre) & (centre > 0)
        grown = np.where(magnitude > 0, magnitude + gain * (centre - magnitude), centre)
        s["magnitude"] = np.where(seen, grown, magnitude)
        ref = s["ref"]
        with np.errstate(divide="ignore"):
            wanted = np.exp2(np.round(np.log2(np.maximum(s["magnitude"], self._quiet))))
        change = wanted > 1.5 * ref
        if change.any():
            self._rescale(change, wanted)

    def _rescale(self, change: Mask, wanted: Array) -> None:
        s = self.state
        old, new = s["ref"][change], wanted[change]
        known = old > 0
        factor = np.where(known, old / new, 1.0)[:, None]

        def remap(v: Array) -> Array:
            return np.asarray(np.arcsinh(np.sinh(np.clip(v, -300, 300)) * factor))

        s["y"][:, change] = remap(s["y"][:, change])
        band = s["band"]
        centre = np.where(np.isfinite(band[-1]), band[-1], 0.0)[change][:, None]
        band[:, change] = remap(band[:, change].T).T
        for name in ("base", "block_sum", "lasting"):
            offset = s[name][change]
            count = np.maximum(s["block_count"][change], 1.0) if name == "block_sum" else 1.0
            s[name][change] = count * (remap(centre + offset / count) - remap(centre))
        s["ring"][:, change] = remap(centre + s["ring"][:, change]) - remap(centre)
        s["ref"] = np.where(change, wanted, s["ref"])

    def _spread(self, e: Array, valid: Mask, peers: NDArray[np.int64]) -> Array:
        """Present variance over the rows, by the median absolute difference: ``[2, M]``."""
        count = np.minimum(peers, FEW_ROWS.size - 1)
        away = np.abs(e) if valid.all() else np.where(valid, np.abs(e), np.nan)
        spread = FEW_ROWS[count] * _median(away, peers)
        return np.asarray(np.where(np.isfinite(spread), np.square(spread), 0.0))

    def _learn_noise(self, e: Array, valid: Mask, now2: Array, suspect: Mask) -> None:
        """Follow quantiles over time: what is wild for some minutes is not the usual noise."""
        s = self.state
        ticks = s["pooled_ticks"]
        enough = valid.sum(axis=1) >= 3
        young = 1.0 / (ticks + 1.0)
        least = LEAST_NOISE * np.sqrt(self._floor2)
        gain = np.where(enough, np.maximum(self._tick_seconds / POOL_SECONDS, young), 0.0)
        s["pool"] = np.maximum(_follow_quantile(s["pool"], np.sqrt(now2), gain), least)
        s["pooled_ticks"] = ticks + enough
        # A row's first minutes, when everything starts, are no past to judge it by.
        seconds = s["seconds"]
        learn = valid & ~suspect & (seconds > 0)
        own_gain = self._tick_seconds / np.clip(seconds + YOUNG_SECONDS, 1.0, OWN_SECONDS)
        own = _follow_quantile(s["own"], np.abs(e) / QUANTILE_SIGMA, own_gain)
        s["own"] = np.where(learn, np.maximum(own, least[:, None]), s["own"])

    def _learn_base(self, away: Array, valid: Mask, suspect: Mask) -> None:
        """Lasting offsets: the median of 20-second means over five minutes.

        Of all of them for the level test, true from the start; of the unsuspected ones, followed
        slowly, for the row's own past.
        """
        s = self.state
        s["block_sum"] += np.where(valid, away + s["base"], 0.0)
        s["block_count"] += valid
        s["block_odd"] |= suspect
        self._block_ticks += 1
        if self._block_ticks * self._tick_seconds < BLOCK_SECONDS:
            return
        full = s["block_count"] * 2 >= self._block_ticks
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = s["block_sum"] / s["block_count"]
        ring, clean, odd = s["ring"], s["ring_clean"], s["block_odd"].copy()
        # A row that gave nothing keeps its older blocks; the slot is only its own.
        ring[self._ring_at] = np.where(full, mean, ring[self._ring_at])
        clean[self._ring_at] = np.where(full, ~odd, clean[self._ring_at])
        self._ring_at = (self._ring_at + 1) % RING_BLOCKS
        self._block_ticks = 0
        s["block_sum"][:] = 0.0
        s["block_count"][:] = 0.0
        s["block_odd"][:] = False
        self._learn_level(ring, valid)
        ring = np.where(clean, ring, np.nan)
        known = np.isfinite(ring).sum(axis=0)
        target = _median(np.moveaxis(ring, 0, -1), known)
        established = s["established"]
        usable = full & ~odd & (known >= 3)
        gain = np.clip(BASE_SECONDS / np.maximum(s["seconds"], 1.0), BASE_GAIN, 0.2)
        step = np.where(established, gain, 1.0) * (target - s["base"])
        s["base"] += np.where(usable, step, 0.0)
        s["established"] = established | (usable & (known >= ESTABLISHED_BLOCKS))

    def _learn_level(self, ring: Array, valid: Mask) -> None:
        """Each row's lasting distance from the peers, and how far these lie apart."""
        s = self.state
        known = np.isfinite(ring).sum(axis=0)
        enough = known >= LEVEL_BLOCKS
        lasting = np.where(enough, _median(np.moveaxis(ring, 0, -1), known), 0.0)
        # A row without a value just now keeps what is known of it.
        s["lasting"] = np.where(valid, lasting, s["lasting"])
        enough &= valid
        level = np.where(enough, s["lasting"], np.nan)
        rows = enough.sum(axis=1)
        away = np.abs(level - _median(level, rows)[:, None])
        spread = np.nan_to_num(1.4826 * _median(away, rows))
        if level.shape[1] >= MANY_ROWS:
            # Roles (a first pipeline stage, data hosts) make long tails that are no faults.
            tail = np.percentile(np.where(enough, away, 0.0), 90, axis=1) / 1.645
            spread = np.maximum(spread, tail)
        s["level_spread"] = spread

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return {
            "panel": self.state.snapshot(),
            "ring_at": self._ring_at,
            "block_ticks": self._block_ticks,
            "seconds": self._seconds,
            "ticks": self._ticks,
            "tick_seconds": self._tick_seconds,
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.state.restore(tree["panel"])
        self._ring_at = tree["ring_at"]
        self._block_ticks = tree["block_ticks"]
        self._seconds = tree["seconds"]
        self._ticks = tree["ticks"]
        if tree["tick_seconds"]:
            self._configure(tree["tick_seconds"])


def _median(values: Array, count: NDArray[Any]) -> Array:
    """Median over the last axis of what is not NaN; ``count`` says how many those are."""
    n = values.shape[-1]
    if n == 0:
        return np.full(values.shape[:-1], np.nan)
    if int(count.min(initial=n)) == n:
        half = n // 2
        if n % 2:
            return np.asarray(np.partition(values, half, axis=-1)[..., half])
        part = np.partition(values, (half - 1, half), axis=-1)
        return np.asarray(0.5 * (part[..., half - 1] + part[..., half]))
    ordered = np.sort(values, axis=-1)  # NaN goes last
    count = np.broadcast_to(count, values.shape[:-1])
    low = np.maximum((count - 1) // 2, 0)[..., None]
    high = np.minimum(count // 2, n - 1)[..., None]
    pair = np.take_along_axis(ordered, low, -1) + np.take_along_axis(ordered, high, -1)
    return np.asarray(np.where(count > 0, 0.5 * pair[..., 0], np.nan))


def _follow_quantile(scale: Array, size: Array, gain: Array) -> Array:
    """``scale`` moved by a factor towards the `QUANTILE` of ``size`` (Robbins & Monro, 1951)."""
    up, down = (
        np.exp(QUANTILE_SPEED * QUANTILE * gain),
        np.exp((QUANTILE - 1) * QUANTILE_SPEED * gain),
    )
    return np.asarray(np.where(size > scale, scale * up, scale * down))


def _range(band: Array) -> tuple[Array, Array]:
    """Lowest and highest centre within the clocks' slack, ignoring NaN."""
    return (
        np.where(np.isnan(band), np.inf, band).min(axis=0),
        np.where(np.isnan(band), -np.inf, band).max(axis=0),
    )
