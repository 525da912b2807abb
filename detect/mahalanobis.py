"""The Mahalanobis baseline that Minder is compared with (arXiv 2411.01791, evaluation)."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from detect.minder import MinderSettings, candidates
from detect.scoring import Memoryless, TickScores, TickValues, preferred
from detect.similarity import distance_zscores
from models.minder_model import MINDER_METRICS


class MahalanobisScorer(Memoryless):
    """Mahalanobis distances between the machines' moments; a `detect.scoring.TickScorer`.

    Per tick every machine is described by mean, variance, skewness and kurtosis of each metric
    over the last ``window_ticks``. The features are standardised over the machines and turned
    to principal components scaled to unit variance, where the Euclidean distance *is* the
    Mahalanobis distance; then as in Minder: distances summed per machine, z-score of the sums,
    the largest one above the threshold is the candidate.

    With N machines no covariance has more than N - 1 directions and all of them together put
    everybody at the same distance, so only the leading ``components`` are kept.

    Parameters
    ----------
    settings
        Threshold and its scaling with N; nothing else of Minder's settings matters here.
    window_ticks
        Ticks the moments are taken over.
    components
        Principal components kept.
    metrics
        Metrics used; all of the job's if it has none of them.
    """

    name = "mahalanobis"
    ordered = True

    def __init__(
        self,
        settings: MinderSettings | None = None,
        window_ticks: int = 60,
        components: int = 3,
        metrics: tuple[str, ...] = MINDER_METRICS,
    ) -> None:
        self.settings = settings or MinderSettings.published()
        self.window_ticks = window_ticks
        self.components = components
        self.metrics = metrics
        self.history = window_ticks - 1

    def select(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """Minder's metrics."""
        return preferred(self.metrics, available)

    def channels(self, metrics: tuple[str, ...]) -> tuple[str, ...]:
        """A single one: all metrics are judged together."""
        return (self.name,) if metrics else ()

    def score(self, ticks: TickValues) -> TickScores:
        """z-scores over the threshold; the largest one above it is the candidate."""
        count = len(ticks.values) - self.history
        if not self.channels(ticks.metrics):
            return candidates(np.full((count, 0, len(ticks.machines)), np.nan), self.settings)
        return self.score_at(ticks, 0, np.arange(count))

    def score_at(self, ticks: TickValues, channel: int, at: NDArray[np.int64]) -> TickScores:  # noqa: ARG002
        """See `detect.sparse.AskedScorer`; there is one channel."""
        windows = sliding_window_view(ticks.values, self.window_ticks, axis=0)
        scores = np.full((len(at), 1, len(ticks.machines)), np.nan)
        for k, tick in enumerate(at.tolist()):
            scores[k, 0] = distance_zscores(self._whitened(moments(windows[tick])))
        return candidates(scores, self.settings)

    def _whitened(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Features ``[N, F]`` in at most ``components`` directions of unit variance.

        Machines with a NaN stay NaN; a metric that no machine has is left out.
        """
        used = features[:, np.isfinite(features).any(axis=0)]
        present = np.isfinite(used).all(axis=1)
        out = np.full((len(features), self.components), np.nan)
        known = used[present]
        if not known.size:
            return out
        centred = known - known.mean(axis=0)
        spread = centred.std(axis=0)
        moving = spread > 1e-9 * np.abs(known).max(axis=0)
        out[present] = 0.0
        if not moving.any():
            return out
        scaled = centred[:, moving] / spread[moving]
        variances, directions = np.linalg.eigh(scaled.T @ scaled / len(scaled))
        # Ascending order: the leading components come last.
        kept = np.flatnonzero(variances > 1e-9 * variances[-1])[-self.components :]
        out[present, : len(kept)] = scaled @ directions[:, kept] / np.sqrt(variances[kept])
        return out


def moments(window: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean, variance, skewness and kurtosis of ``[M, N, W]`` as ``[N, 4 * M]``.

    Skewness and kurtosis of a constant window are 0. Any NaN in a window gives NaN.
    """
    window = np.ascontiguousarray(window)
    with np.errstate(over="ignore", invalid="ignore"):
        # Scaled, so that powers of large units (bytes, hertz) stay in range.
        size = np.maximum(np.abs(window).max(axis=2, keepdims=True), 1e-300)
        scaled = window / size
        mean = scaled.mean(axis=2, keepdims=True)
        centred = scaled - mean
        variance = (centred**2).mean(axis=2)
        flat = variance < 1e-18
        steady = np.where(flat, 1.0, variance)
        skewness = np.where(flat, 0.0, (centred**3).mean(axis=2) / steady**1.5)
        kurtosis = np.where(flat, 0.0, (centred**4).mean(axis=2) / steady**2)
        size = size[:, :, 0]
        stacked = np.stack([mean[:, :, 0] * size, variance * size**2, skewness, kurtosis])
    missing = np.isnan(window).any(axis=2)
    stacked[:, missing] = np.nan
    return stacked.transpose(2, 1, 0).reshape(window.shape[1], -1)
