"""Where a row usually lies beside its peers, and where it has lain lastingly.

Both from medians of 20-second means over five minutes: of all of them for the level test, true
from the start; of the unsuspected ones, followed slowly, for the row's own past.

The level test compares means of the values themselves: two exporters that sample the same steps
at other moments, or over other windows, agree in these and in no mean of their logarithms. What
comes in bursts has no use for them: there it compares means on the scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.averages import counts, median, median_of_blocks
from detect.reference import offset_re_expressed
from detect.state import PanelState

Vector = NDArray[np.float64]
Array = NDArray[np.float32]
Mask = NDArray[np.bool_]

BLOCK_SECONDS = 20.0
RING_BLOCKS = 15
ESTABLISHED_BLOCKS = 15
LEVEL_SECONDS = 300.0
MOST_SHARE = 16.0
"""A burst counts no more in a mean."""
LEVEL_BLOCKS = 8
SEVERAL = 0.1
SEVERAL_OF_FEW = 0.2
"""So many rows may differ for good one by one; of few rows two, or up to this share."""
ROLE_SIGMAS = 2.0
ALIKE = 0.5
MANY_ROWS = 16
BASE_GAIN = 0.015
BASE_SECONDS = 45.0


class OwnPast:
    """Lasting offsets of one panel's rows from their peers."""

    def __init__(self, state: PanelState) -> None:
        self.state = state
        state.add("base", "mr", 0.0, dtype=np.float32)
        state.add("ring", "mr", np.nan, (RING_BLOCKS,), dtype=np.float32)
        state.add("ring_clean", "mr", False, (RING_BLOCKS,), dtype=np.bool_)
        state.add("block_sum", "mr", 0.0, dtype=np.float32)
        state.add("block_count", "mr", 0.0, dtype=np.float32)
        state.add("block_odd", "mr", False, dtype=np.bool_)
        state.add("levels", "mr", np.nan, (RING_BLOCKS,), dtype=np.float32)
        state.add("share_sum", "mr", 0.0, dtype=np.float32)
        state.add("share_count", "mr", 0.0, dtype=np.float32)
        state.add("established", "mr", False, dtype=np.bool_)
        state.add("lasting", "mr", 0.0, dtype=np.float32)
        state.add("level_spread", "m", 0.0)
        state.add("level_sigma", "m", 1.0)
        state.add("role", "mr", False, dtype=np.bool_)
        self._ring_at = 0
        self._block_ticks = 0
        """Ticks that the open block stands for so far."""
        self._share_ticks = 0
        self._floor2: Vector = np.zeros(0)
        self._fleet2: Vector = np.zeros(0)
        self._bursty: Mask = np.zeros((0, 1), np.bool_)

    def configure(self, floor: Vector, fleet: Vector, bursty: Mask) -> None:
        """``[M]`` each: least noise, spread of healthy machines, and what comes in bursts."""
        self._floor2, self._fleet2 = np.square(floor), np.square(fleet)
        self._bursty = bursty[:, None]

    def level_z(self, slow2: Vector, slow_seconds: float, peers: NDArray[np.int64]) -> Array:
        """Lasting distance from the peers ``[M, R]`` in standard deviations of healthy ones.

        Those differ for good by the fleet's spread or this job's, and by what the noise of the
        slow mean, ``slow2`` ``[M]``, leaves over some minutes. A spread estimated from few rows
        is uncertain, so it counts for more there.
        """
        s = self.state
        few = 1.2 * (1.0 + 4.0 / np.maximum(peers, 1))
        spread2 = np.maximum(self._fleet2, np.square(few * s["level_spread"]))
        sigma = np.sqrt(self._floor2 + slow2 * (slow_seconds / LEVEL_SECONDS) + spread2)
        s["level_sigma"] = sigma
        z = s["lasting"] * (1.0 / sigma).astype(np.float32)[:, None]
        z[s["role"]] = 0.0
        return np.asarray(z)

    def apart(self, times: float) -> Mask:
        """Rows that always lay apart by so many of those standard deviations: ``bool [M, R]``."""
        limit = (times * self.state["level_sigma"]).astype(np.float32)[:, None]
        return np.asarray(np.abs(self.state["base"]) > limit)

    def follow(self, share: Array, gaps: NDArray[np.intp]) -> None:
        """One tick of values ``[M, R]`` in units of the reference; ``gaps`` are the places, in a
        flattened ``[M, R]``, of those that are missing.
        """
        s = self.state
        share = np.minimum(share, np.float32(MOST_SHARE))
        share.reshape(-1)[gaps] = 0.0
        s["share_sum"] += share
        s["share_count"] += np.float32(1.0)
        s["share_count"].reshape(-1)[gaps] -= np.float32(1.0)
        self._share_ticks += 1

    def learn(
        self, away: Array, valid: Mask, suspect: Mask, tick_seconds: float, ticks: int
    ) -> None:
        """Take in ``away`` ``[M, R]`` from the offsets (0 where not valid), for ``ticks`` ticks."""
        s = self.state
        total = s["base"] * valid
        total += away
        total *= np.float32(ticks)
        s["block_sum"] += total
        s["block_count"] += np.float32(ticks) * valid
        s["block_odd"] |= suspect
        self._block_ticks += ticks
        if self._block_ticks * tick_seconds >= BLOCK_SECONDS:
            self._close_block(valid)

    def _close_block(self, valid: Mask) -> None:
        s = self.state
        count = s["block_count"]
        full = count * 2 >= self._block_ticks
        mean = s["block_sum"] / np.maximum(count, 1.0)
        ring, clean, unsuspected = s["ring"], s["ring_clean"], ~s["block_odd"]
        # A row that gave nothing keeps its older blocks; the slot is only its own.
        np.copyto(ring[self._ring_at], mean, where=full)
        np.copyto(clean[self._ring_at], unsuspected, where=full)
        self._block_ticks = 0
        for name in ("block_sum", "block_count", "block_odd"):
            s[name].fill(0)
        self._close_level(mean, full)
        self._learn_level(*median_of_blocks(s["levels"]), valid)
        middle, known = median_of_blocks(ring)
        self._ring_at = (self._ring_at + 1) % RING_BLOCKS
        # Where every block was clean, the median of the clean ones is the same.
        tainted = np.isfinite(ring)
        tainted &= ~clean
        cells = tainted.any(axis=0)
        if cells.any():
            rest = ring[:, cells]
            rest[~clean[:, cells]] = np.nan
            middle[cells], known[cells] = median_of_blocks(rest)
        usable = full & unsuspected & (known >= 3)
        gain = np.clip(BASE_SECONDS / np.maximum(s["seconds"], 1.0), BASE_GAIN, 0.2)
        gain[~s["established"]] = 1.0
        middle -= s["base"]
        middle *= gain
        np.copyto(middle, 0.0, where=~usable)
        s["base"] += middle
        s["established"] = s["established"] | (usable & (known >= ESTABLISHED_BLOCKS))

    def _close_level(self, scaled: NDArray[np.floating], known: Mask) -> None:
        """Each row's mean over the block, on the scale, from the middle of the rows.

        Of what comes in bursts that is the mean of ``scaled`` values, where ``known``.
        """
        s = self.state
        np.copyto(s["levels"][self._ring_at], scaled, where=known & self._bursty)
        count = s["share_count"]
        mean = np.arcsinh(s["share_sum"] / np.maximum(count, np.float32(1.0)))
        full = count * 2 >= self._share_ticks
        mean[~full] = np.nan
        mean -= median(mean, counts(full))[:, None]
        np.copyto(s["levels"][self._ring_at], mean, where=full & ~self._bursty)
        s["share_sum"].fill(0)
        s["share_count"].fill(0)
        self._share_ticks = 0

    def _learn_level(self, middle: Array, known: NDArray[np.int8], valid: Mask) -> None:
        """Each row's lasting distance from the peers, and how far these lie apart."""
        s = self.state
        enough = known >= LEVEL_BLOCKS
        # A row without a value just now keeps what is known of it.
        np.copyto(s["lasting"], np.where(enough, middle, np.float32(0.0)), where=valid)
        enough &= valid
        level = np.where(enough, s["lasting"], np.float32(np.nan))
        rows = counts(enough)
        away = np.abs(level - median(level, rows)[:, None])
        spread = np.nan_to_num(1.4826 * median(away, rows)).astype(np.float64)
        if level.shape[1] >= MANY_ROWS:
            # Roles (a first pipeline stage, data hosts) make long tails that are no faults.
            away[~enough] = 0.0
            spread = np.maximum(spread, np.percentile(away, 90, axis=1, method="lower") / 1.645)
        s["level_spread"] = spread
        s["role"] = self._roles(level)

    def _roles(self, level: Array) -> Mask:
        """Cells whose distance several rows have alike, ``bool [M, R]``."""
        role = np.zeros(level.shape, np.bool_)
        alone = _alone(level.shape[1])
        for m in range(level.shape[0]):
            apart = np.flatnonzero(np.abs(level[m]) > ROLE_SIGMAS * self.state["level_sigma"][m])
            if apart.size > alone:
                ratio = level[m, apart][None, :] / level[m, apart][:, None]
                role[m, apart] = (ratio >= ALIKE).sum(axis=1) > alone
        return role

    def rescale(self, change: Mask, factor: Array, centre: Array) -> None:
        """References grew by 1 / ``factor``: offsets around the ``centre`` are others now.

        ``change`` ``bool [M]``; ``factor`` and ``centre`` ``[changed, 1]``.
        """
        s = self.state
        for name in ("base", "lasting"):
            s[name][change] = offset_re_expressed(s[name][change], centre, factor)
        count = np.maximum(s["block_count"][change], np.float32(1.0))
        mean = np.asarray(s["block_sum"][change] / count, np.float32)
        s["block_sum"][change] = count * offset_re_expressed(mean, centre, factor)
        for name in ("ring", "levels"):
            ring = s[name]
            ring[:, change] = offset_re_expressed(ring[:, change], centre, factor)
        s["share_sum"][change] *= factor

    def snapshot(self) -> dict[str, Any]:
        """What is not in the arrays."""
        return {
            "ring_at": self._ring_at,
            "block_ticks": self._block_ticks,
            "share_ticks": self._share_ticks,
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self._ring_at, self._block_ticks = tree["ring_at"], tree["block_ticks"]
        self._share_ticks = tree["share_ticks"]


def _alone(rows: int) -> int:
    """So many rows at most may differ alike for good and be odd; if more do it is a role."""
    return max(1, min(int(SEVERAL_OF_FEW * rows), max(2, round(SEVERAL * rows))))
