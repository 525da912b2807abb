"""Minder (NSDI'25, arXiv 2411.01791), the published detector that ours is measured against.

Per metric: normalise with fixed limits, denoise windows of 8 ticks with that metric's LSTM-VAE,
sum each machine's distances to all others, take the z-score of the sums over the machines. The
machine with the largest score above the threshold is the candidate; the same candidate for more
than four minutes is the verdict; else the next metric in the learned order is tried.

With N machines no z-score exceeds ``sqrt(N - 1)``, so a fixed threshold of 3 never fires below
N = 11. The published settings keep that; `MinderSettings.best` scales the threshold with N.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from detect.detector import JobDetector, State
from detect.periodic import PeriodicDetector
from detect.scoring import TickScorer, TickScores, TickValues, preferred
from detect.similarity import distance_zscores
from detect.sparse import SparseScorer
from detect.streaming import ContinuitySettings, StreamingDetector, ticks_beyond
from ingest.catalogue import Catalogue
from models.denoise.identity import IdentityDenoiser
from models.denoise.lstm_vae import LstmVaeDenoiser
from models.denoise.protocol import Denoiser, OnlineDenoiser
from models.denoise.registry import from_state
from models.minder_model import MinderModel, shipped_minder_model


@dataclass(frozen=True, slots=True)
class MinderSettings:
    """Settings of the Minder detector.

    Attributes
    ----------
    threshold
        z-score that a candidate must exceed. The paper does not publish it; 3 is the customary
        one.
    ceiling_share
        None, or the threshold is at most this share of ``sqrt(N - 1)``, the largest z-score
        that N machines allow.
    continuity_seconds
        How long the same machine must be the candidate.
    clear_seconds
        Every-tick mode only: how long it must not be, for the alert to end.
    call_seconds, lookback_seconds
        The detector is called this often, on this much telemetry. ``call_seconds`` None: it
        judges every tick, and ``lookback_seconds`` only bounds how long a gap is filled.
    compare
        What is compared: the reconstructed window, or the mean of the latent. Public notes
        differ; both have length 8.
    """

    threshold: float = 3.0
    ceiling_share: float | None = None
    continuity_seconds: float = 240.0
    clear_seconds: float = 240.0
    call_seconds: float | None = 480.0
    lookback_seconds: float = 900.0
    compare: Literal["reconstruction", "latent"] = "reconstruction"

    @classmethod
    def published(cls) -> MinderSettings:
        """As deployed: every 8 minutes on the last 15."""
        return cls()

    @classmethod
    def best(cls) -> MinderSettings:
        """The best found by `replay.tune_minder`: every tick, nearly the largest score there is."""
        return cls(threshold=8.0, ceiling_share=0.99, continuity_seconds=120.0, call_seconds=None)


class MinderScorer:
    """Candidates per tick and metric; a `detect.scoring.TickScorer`.

    Cost per tick and metric: one pass of the denoiser over N windows, and N² distances.

    Parameters
    ----------
    model
        Metric order, limits and denoisers. A job with none of its metrics is judged on all the
        metrics it has, in name order, not denoised (a z-score needs no limits).
    settings
        Threshold and what is compared.
    """

    ordered = True

    def __init__(self, model: MinderModel, settings: MinderSettings) -> None:
        self.model = model
        self.settings = settings
        self.name = f"minder/{model.name}"
        self.history = model.window - 1
        # Own copies: a denoiser that adapts must not leak one job into another.
        self._denoisers: dict[str, Denoiser] = {
            metric: from_state(made.state()) for metric, made in model.denoisers.items()
        }
        self._plain = IdentityDenoiser(model.window)
        if settings.compare == "latent":
            for metric, made in self._denoisers.items():
                if not isinstance(made, LstmVaeDenoiser):
                    raise ValueError(f"{metric}: denoiser {made.name!r} has no latent to compare")

    def select(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """The model's metrics in the learned order."""
        return preferred(self.model.metrics, available)

    def channels(self, metrics: tuple[str, ...]) -> tuple[str, ...]:
        """One a metric."""
        return metrics

    def score(self, ticks: TickValues) -> TickScores:
        """z-scores over the threshold; the largest one above it is the candidate."""
        return candidates(self.zscores(ticks), self.settings)

    def score_at(self, ticks: TickValues, channel: int, at: NDArray[np.int64]) -> TickScores:
        """See `detect.sparse.AskedScorer`; not for a denoiser that adapts."""
        metric = ticks.metrics[channel]
        windows = sliding_window_view(ticks.values[:, channel], self.model.window, axis=0)[at]
        scores = self._fixed(self._denoiser(metric), self._scaled(metric, windows))
        return candidates(scores[:, None, :], self.settings)

    def zscores(self, ticks: TickValues) -> NDArray[np.float64]:
        """z-scores of the summed distances, ``[T, C, N]``; NaN = no data."""
        count = len(ticks.values) - self.history
        scores = np.full((count, len(ticks.metrics), len(ticks.machines)), np.nan)
        for c, metric in enumerate(ticks.metrics):
            scaled = self._scaled(metric, ticks.values[:, c])
            windows = sliding_window_view(scaled, self.model.window, axis=0)
            made = self._denoiser(metric)
            if made.adapts and isinstance(made, OnlineDenoiser):
                scores[:, c] = self._adapting(made, windows)
            else:
                scores[:, c] = self._fixed(made, windows)
        return scores

    def _denoiser(self, metric: str) -> Denoiser:
        return self._denoisers.get(metric, self._plain)

    def _scaled(self, metric: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Between the metric's fixed limits."""
        low, high = self.model.limits.get(metric, (0.0, 1.0))
        with np.errstate(over="ignore"):
            scaled: NDArray[np.float64] = (values - low) / (high - low)
        return scaled

    def _fixed(self, made: Denoiser, windows: NDArray[np.float64]) -> NDArray[np.float64]:
        """``[T, N]`` of windows ``[T, N, window]``: all ticks denoised at once."""
        count, machines, width = windows.shape
        flat = windows.reshape(count * machines, width)
        if self.settings.compare == "latent" and isinstance(made, LstmVaeDenoiser):
            vectors = made.encode(flat)
        else:
            vectors = made.denoise(flat)
        ticks = vectors.reshape(count, machines, vectors.shape[1])
        return np.array([distance_zscores(tick) for tick in ticks]).reshape(count, machines)

    def _adapting(self, made: OnlineDenoiser, windows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Like `_fixed`, tick by tick: score first, learn after, never from the candidate."""
        scores = np.empty(windows.shape[:2])
        for k, tick in enumerate(windows):
            scores[k] = distance_zscores(made.denoise(tick))
            made.partial_fit(tick[~candidates(scores[k], self.settings).hits])
        return scores

    def snapshot(self) -> State:
        """States of the denoisers that adapt."""
        return {m: made.state() for m, made in self._denoisers.items() if made.adapts}

    def restore(self, state: State) -> None:
        """Inverse of `snapshot`."""
        for metric, learned in state.items():
            if metric not in self._denoisers:
                raise ValueError(f"state of {metric!r}, which this model does not use")
            self._denoisers[metric].restore(learned)


def candidates(scores: NDArray[np.float64], settings: MinderSettings) -> TickScores:
    """From z-scores ``[..., N]`` to shares of the threshold and at most one candidate each."""
    known = np.isfinite(scores)
    count = known.sum(axis=-1, keepdims=True)
    limit = np.full(count.shape, settings.threshold)
    if settings.ceiling_share is not None:
        ceiling = settings.ceiling_share * np.sqrt(np.maximum(count - 1, 0))
        limit = np.minimum(limit, ceiling)
    # Nobody can stand out among fewer than three.
    limit = np.where(count >= 3, limit, np.inf)
    hits = np.zeros(scores.shape, dtype=np.bool_)
    if scores.shape[-1]:
        largest = np.argmax(np.where(known, scores, -np.inf), axis=-1)[..., None]
        np.put_along_axis(hits, largest, True, axis=-1)
        hits &= np.where(known, scores, -np.inf) > limit
    return TickScores(np.clip(scores / limit, 0.0, None), hits)


def minder_detector(
    job: str,
    catalogue: Catalogue,
    settings: MinderSettings | None = None,
    model: MinderModel | None = None,
    *,
    alerts_only: bool = False,
) -> JobDetector:
    """The Minder detector for one job.

    Parameters
    ----------
    settings
        Default: `MinderSettings.published`.
    model
        Default: the shipped one, trained on simulated healthy jobs.
    alerts_only
        The same alerts for a fraction of the work; score frames have gaps. A denoiser that
        adapts has to see every tick: then it changes nothing.
    """
    settings = settings or MinderSettings.published()
    inner = MinderScorer(model or shipped_minder_model(), settings)
    sparse = alerts_only and not any(made.adapts for made in inner.model.denoisers.values())
    scorer: TickScorer = inner
    if settings.call_seconds is None:
        continuity = ContinuitySettings(
            settings.continuity_seconds, settings.clear_seconds, settings.lookback_seconds
        )
        if sparse:
            scorer = SparseScorer(inner, continuity.least_ticks)
        return StreamingDetector(job, scorer, catalogue, continuity)
    if any(made.adapts for made in inner.model.denoisers.values()):
        # Overlapping calls would learn the same ticks twice.
        raise ValueError("a denoiser that adapts during a job needs call_seconds=None")
    if sparse:
        long = settings.continuity_seconds
        scorer = SparseScorer(inner, lambda tick_ns: ticks_beyond(long, tick_ns), joined=False)
    return PeriodicDetector(
        job,
        scorer,
        catalogue,
        continuity_seconds=settings.continuity_seconds,
        call_seconds=settings.call_seconds,
        lookback_seconds=settings.lookback_seconds,
    )
