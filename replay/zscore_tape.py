"""Minder with its z-scores kept, so that many settings cost one pass of distances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from detect.minder import MinderScorer, MinderSettings, candidates
from detect.scoring import TickScores, TickValues
from detect.sparse import SparseScorer
from detect.streaming import ContinuitySettings, StreamingDetector
from ingest.catalogue import Catalogue
from models.minder_model import MinderModel

ZScoreTape = dict[int, tuple[tuple[str, ...], NDArray[np.float64]]]
"""By event time of a piece's first tick: its metrics, and ``[T, C, N]``. One tape belongs to one
recording and one set of denoisers."""


class TapedScorer(MinderScorer):
    """A `MinderScorer` that looks z-scores up on a tape and computes only what is not there."""

    def __init__(self, model: MinderModel, settings: MinderSettings, tape: ZScoreTape) -> None:
        super().__init__(model, settings)
        self._tape = tape

    def zscores(self, ticks: TickValues) -> NDArray[np.float64]:
        """As in `MinderScorer`; from a tape of more metrics those that are asked for."""
        known = self._tape.get(ticks.start_ns)
        if known is None or not set(ticks.metrics) <= set(known[0]):
            known = self._tape[ticks.start_ns] = (ticks.metrics, super().zscores(ticks))
        metrics, scores = known
        if metrics == ticks.metrics:
            return scores
        return scores[:, [metrics.index(m) for m in ticks.metrics]]

    def score_at(self, ticks: TickValues, channel: int, at: NDArray[np.int64]) -> TickScores:
        """As in `MinderScorer`; all ticks are computed the first time."""
        scores = self.zscores(ticks)[at, channel]
        return candidates(scores[:, None, :], self.settings)


def taped_detector(
    job: str,
    catalogue: Catalogue,
    model: MinderModel,
    settings: MinderSettings,
    tape: ZScoreTape,
) -> StreamingDetector:
    """Minder judging every tick, on a tape. Feed it the same blocks for every settings.

    One tape serves all models that differ in which metrics they use alone; the one with the
    most comes first.
    """
    settings = replace(settings, call_seconds=None)
    continuity = ContinuitySettings(
        settings.continuity_seconds, settings.clear_seconds, settings.lookback_seconds
    )
    inner = TapedScorer(model, settings, tape)
    if any(made.adapts for made in model.denoisers.values()):
        return StreamingDetector(job, inner, catalogue, continuity)
    scorer = SparseScorer(inner, continuity.least_ticks)
    return StreamingDetector(job, scorer, catalogue, continuity)
