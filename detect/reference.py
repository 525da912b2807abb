"""The scale on which values are compared: a relative change is an additive one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from detect.averages import median
from detect.state import PanelState

Vector = NDArray[np.float64]
Array = NDArray[np.float32]
Mask = NDArray[np.bool_]

MAGNITUDE_SECONDS = 60.0
MOST = 1e30
"""Multiples of the reference beyond this are all the same (and fit single precision)."""
LARGEST = 80.0
"""What `MOST` and a difference to it come to on the scale."""


class Reference:
    """The magnitude a metric works at: the largest one-minute mean of its centre so far.

    Kept as a power of two, so that it seldom moves.
    """

    def __init__(self, state: PanelState, quiet: Callable[[str], float]) -> None:
        self.state = state
        self.quiet = quiet
        state.add("ref", "m", 0.0)
        state.add("magnitude", "m", 0.0)
        self._quiet: Vector = np.zeros(0)
        self._factor: Vector = np.zeros((0, 1))

    def configure(self) -> None:
        """Follow the metrics."""
        self._quiet = np.array([self.quiet(m) for m in self.state.metrics])
        self._invert()

    def _invert(self) -> None:
        ref = self.state["ref"]
        self._factor = 1.0 / np.where(ref > 0, ref, 1.0)[:, None]

    def shares(self, x: Vector) -> Array:
        """``x / reference``. Its ``asinh`` is the scale: linear near 0, logarithmic above."""
        share = np.empty(x.shape, np.float32)
        with np.errstate(over="ignore"):
            np.multiply(x, self._factor, out=share, casting="same_kind")
        np.maximum(share, np.float32(-MOST), out=share)
        return np.asarray(np.minimum(share, np.float32(MOST), out=share))

    def update(
        self, x: Vector, present: Mask, peers: NDArray[np.int64], seconds: float
    ) -> tuple[Mask, Array] | None:
        """Follow the magnitude over the last ``seconds``.

        If a reference grew: which, ``bool [M]``, and old / new of those. A metric that is zero
        on most rows takes its mean instead of its median.
        """
        s = self.state
        size = np.abs(x)
        if not present.all():
            np.copyto(size, np.nan, where=~present)
        centre = median(size, peers)
        zero = (peers > 0) & ~(centre > 0)
        if zero.any():
            centre[zero] = np.nansum(size[zero], axis=1) / peers[zero]
        magnitude = s["magnitude"]
        gain = min(1.0, seconds / MAGNITUDE_SECONDS)
        seen = np.isfinite(centre) & (centre > 0)
        grown = np.where(magnitude > 0, magnitude + gain * (centre - magnitude), centre)
        s["magnitude"] = np.where(seen, grown, magnitude)
        with np.errstate(divide="ignore"):
            wanted = np.exp2(np.round(np.log2(np.maximum(s["magnitude"], self._quiet))))
        old = s["ref"]
        change = wanted > 1.5 * old
        if not change.any():
            return None
        s["ref"] = np.where(change, wanted, old)
        self._invert()
        before, after = old[change], wanted[change]
        factor = np.where(before > 0, before / after, 1.0)
        return change, factor.astype(np.float32)


def offset_re_expressed(offset: Array, centre: Array, factor: Array) -> Array:
    """Distances from the ``centre``, after the reference has grown by 1 / ``factor``."""
    return re_expressed(centre + offset, factor) - re_expressed(centre, factor)


def re_expressed(value: Array, factor: Array) -> Array:
    """Transformed values, after the reference has grown by 1 / ``factor``."""
    return np.asarray(np.arcsinh(np.sinh(np.clip(value, -LARGEST, LARGEST)) * factor))
