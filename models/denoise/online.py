"""A denoiser that learns the job's own noise while the job runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from river import covariance

from models.denoise.protocol import DenoiserState, Windows
from models.denoise.rows import check_width, complete_rows, fixed_product, row_level


class OnlineDenoiser:
    """Shrinks the shape of a window towards what recent windows of this job have in common.

    river's exponentially weighted covariance follows the shapes (window minus its mean) of
    unflagged machines. Their directions are shrunk by the gain of probabilistic principal
    components, ``max(0, 1 - noise / variance)``, with the noise estimated from the weaker half
    of the directions (Tipping & Bishop 1999, section 3; the Wiener filter). A job with a strong
    common rhythm keeps it, a job without one is smoothed. The level of a window always passes
    unchanged, so a job that settles into silence never learns to hide the machine that leaves
    it.

    Parameters
    ----------
    window
        Ticks in a window.
    fading
        Weight of the newest row; the memory is about ``1 / fading`` rows.
    rows_per_update
        At most this many rows are learned per `partial_fit`: a large job tells the same in a few
        rows, and river learns row by row.
    warm_rows
        Rows before the first gain is computed; until then windows pass as they are.
    """

    name = "online"
    adapts = True

    def __init__(
        self,
        window: int = 8,
        fading: float = 2e-3,
        rows_per_update: int = 8,
        warm_rows: int = 64,
    ) -> None:
        self.window = window
        self.fading = fading
        self.rows_per_update = rows_per_update
        self.warm_rows = warm_rows
        self._shapes = covariance.EwaCovariance(fading_factor=fading)
        self._seen = 0
        self._filter: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def fit(self, windows: Windows) -> None:
        """Start again and learn the rows in order; the job's own windows soon outweigh them."""
        check_width(windows, self.window)
        rows = complete_rows(windows)
        if not len(rows):
            raise ValueError("no complete window to learn from")
        self._shapes = covariance.EwaCovariance(fading_factor=self.fading)
        self._seen = 0
        # What lies further back than a few memories has faded below rounding.
        self._learn(rows[-int(np.ceil(8 / self.fading)) :])

    def partial_fit(self, windows: Windows) -> None:
        """Learn up to `rows_per_update` complete rows, evenly spaced from low to high.

        Sorted, because later rows weigh a little more and the order of machines must not matter.
        """
        check_width(windows, self.window)
        rows = complete_rows(windows)
        rows = rows[np.lexsort(rows.T)]
        if len(rows) > self.rows_per_update:
            at = np.linspace(0, len(rows) - 1, self.rows_per_update).astype(np.int64)
            rows = rows[at]
        self._learn(rows)

    def _learn(self, rows: Windows) -> None:
        shapes = rows - row_level(rows)
        for shape in shapes.tolist():
            self._shapes.update(dict(enumerate(shape)))
        self._seen += len(rows)
        self._filter = None

    def denoise(self, windows: Windows) -> Windows:
        """Level plus the shrunken shape."""
        check_width(windows, self.window)
        if self._seen < self.warm_rows:
            return windows.copy()
        if self._filter is None:
            self._filter = self._make_filter()
        mean, gain = self._filter
        level = row_level(windows)
        out = fixed_product(windows - level - mean, gain)
        out += mean
        out += level
        return out

    def _make_filter(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean shape ``[window]`` and gain ``[window, window]`` of what was learned so far."""
        mean, second = _moments(self._shapes)
        variances, directions = np.linalg.eigh(second - np.outer(mean, mean))
        # The smallest one is the level's direction, which shapes do not have: variance zero.
        noise = max(float(np.mean(variances[1 : 1 + self.window // 2])), 0.0)
        kept = variances > noise
        shrink = np.where(kept, 1.0 - noise / np.where(kept, variances, 1.0), 0.0)
        gain: NDArray[np.float64] = (directions * shrink) @ directions.T
        return mean, gain

    def state(self) -> DenoiserState:
        """Exponentially weighted moments and the number of rows seen."""
        mean, second = _moments(self._shapes)
        return {
            "name": self.name,
            "window": self.window,
            "fading": self.fading,
            "seen": self._seen,
            "mean": mean.copy(),
            "second": second.copy(),
        }

    def restore(self, state: DenoiserState) -> None:
        """Continue learning from the saved moments."""
        if state.get("name") != self.name or state.get("window") != self.window:
            raise ValueError(f"not a state of {self.name!r} with window {self.window}")
        self.fading = float(state["fading"])
        self._seen = int(state["seen"])
        self._filter = None
        self._shapes = covariance.EwaCovariance(fading_factor=self.fading)
        if self._seen:
            # One throw-away row gives the estimator its features; its moments are then set.
            self._shapes.update(dict.fromkeys(range(self.window), 0.0))
            self._shapes._mean = np.array(state["mean"], dtype=np.float64)
            self._shapes._M2 = np.array(state["second"], dtype=np.float64)
            self._shapes._n = self._seen


def _moments(
    estimator: covariance.EwaCovariance,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """First and second moment of river's estimator, to the bit.

    Its public ``matrix`` has only their difference, from which an exact copy cannot be made.
    """
    return estimator._mean, estimator._M2
