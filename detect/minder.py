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
from detect.scoring import TickScores, TickValues, preferred
from detect.similarity import distance_zscores
from detect.streaming import ContinuitySettings, StreamingDetector
from ingest.catalogue import Catalogue
from models.denoise.identity import IdentityDenoiser
from models.denoise.lstm_vae import LstmVaeDenoiser
from models.denoise.protocol import Denoiser, OnlineDenoiser
from models.denoise.registry import from_state
from models.minder_model import MinderModel, shipped_minder_model

MAX_SHARE = 1e6


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
        """The best settings found for it: every tick, threshold scaled with N."""
        return cls(threshold=3.0, ceiling_share=0.9, call_seconds=None)

    def limit(self, machines: int) -> float:
        """The threshold for N machines."""
        if self.ceiling_share is None:
            return self.threshold
        return min(self.threshold, self.ceiling_share * float(np.sqrt(max(machines - 1, 0))))


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
        count = len(ticks.values) - self.history
        shape = (count, len(ticks.metrics), len(ticks.machines))
        shares = np.full(shape, np.nan)
        hits = np.zeros(shape, dtype=np.bool_)
        for c, metric in enumerate(ticks.metrics):
            low, high = self.model.limits.get(metric, (0.0, 1.0))
            with np.errstate(over="ignore"):
                scaled = (ticks.values[:, c] - low) / (high - low)
            windows = sliding_window_view(scaled, self.model.window, axis=0)
            self._score_metric(metric, windows, shares[:, c], hits[:, c])
        return TickScores(shares, hits)

    def _score_metric(
        self,
        metric: str,
        windows: NDArray[np.float64],
        shares: NDArray[np.float64],
        hits: NDArray[np.bool_],
    ) -> None:
        """Fill ``[T, N]`` scores from windows ``[T, N, window]``."""
        made = self._denoisers.get(metric, self._plain)
        if made.adapts and isinstance(made, OnlineDenoiser):
            # Score first, learn after, and never from the candidate.
            for k in range(len(windows)):
                self._judge(made.denoise(windows[k]), shares[k], hits[k])
                made.partial_fit(windows[k][~hits[k]])
            return
        count, machines, width = windows.shape
        flat = windows.reshape(count * machines, width)
        if self.settings.compare == "latent" and isinstance(made, LstmVaeDenoiser):
            vectors = made.encode(flat)
        else:
            vectors = made.denoise(flat)
        for k, of_tick in enumerate(vectors.reshape(count, machines, -1)):
            self._judge(of_tick, shares[k], hits[k])

    def _judge(
        self,
        vectors: NDArray[np.float64],
        shares: NDArray[np.float64],
        hits: NDArray[np.bool_],
    ) -> None:
        """One tick of one metric: ``[N, k]`` to shares and at most one candidate."""
        scores = distance_zscores(vectors)
        known = np.isfinite(scores)
        limit = self.settings.limit(int(known.sum()))
        if limit <= 0.0:
            return
        shares[known] = np.clip(scores[known] / limit, 0.0, MAX_SHARE)
        if known.any():
            first = int(np.nanargmax(scores))
            hits[first] = scores[first] > limit

    def snapshot(self) -> State:
        """States of the denoisers that adapt."""
        return {m: made.state() for m, made in self._denoisers.items() if made.adapts}

    def restore(self, state: State) -> None:
        """Inverse of `snapshot`."""
        for metric, learned in state.items():
            if metric not in self._denoisers:
                raise ValueError(f"state of {metric!r}, which this model does not use")
            self._denoisers[metric].restore(learned)


def minder_detector(
    job: str,
    catalogue: Catalogue,
    settings: MinderSettings | None = None,
    model: MinderModel | None = None,
) -> JobDetector:
    """The Minder detector for one job.

    Parameters
    ----------
    settings
        Default: `MinderSettings.published`.
    model
        Default: the shipped one, trained on simulated healthy jobs.
    """
    settings = settings or MinderSettings.published()
    scorer = MinderScorer(model or shipped_minder_model(), settings)
    if settings.call_seconds is None:
        continuity = ContinuitySettings(
            settings.continuity_seconds, settings.clear_seconds, settings.lookback_seconds
        )
        return StreamingDetector(job, scorer, catalogue, continuity)
    if any(made.adapts for made in scorer.model.denoisers.values()):
        # Overlapping calls would learn the same ticks twice.
        raise ValueError("a denoiser that adapts during a job needs call_seconds=None")
    return PeriodicDetector(
        job,
        scorer,
        catalogue,
        continuity_seconds=settings.continuity_seconds,
        call_seconds=settings.call_seconds,
        lookback_seconds=settings.lookback_seconds,
    )
