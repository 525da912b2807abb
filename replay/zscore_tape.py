"""Minder with its z-scores kept, so that many settings cost one pass of distances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from detect.minder import MinderScorer, MinderSettings
from detect.scoring import TickValues
from detect.streaming import ContinuitySettings, StreamingDetector
from ingest.catalogue import Catalogue
from models.minder_model import MinderModel

ZScoreTape = dict[int, tuple[tuple[str, ...], NDArray[np.float64]]]
"""By event time of a piece's first tick: its metrics, and ``[T, C, N]``. One tape belongs to one
recording and one model."""


class TapedScorer(MinderScorer):
    """A `MinderScorer` that looks z-scores up on a tape and computes only what is not there."""

    def __init__(self, model: MinderModel, settings: MinderSettings, tape: ZScoreTape) -> None:
        super().__init__(model, settings)
        self._tape = tape

    def zscores(self, ticks: TickValues) -> NDArray[np.float64]:
        """As in `MinderScorer`."""
        if ticks.start_ns not in self._tape:
            self._tape[ticks.start_ns] = (ticks.metrics, super().zscores(ticks))
        return self._tape[ticks.start_ns][1]


def taped_detector(
    job: str,
    catalogue: Catalogue,
    model: MinderModel,
    settings: MinderSettings,
    tape: ZScoreTape,
) -> StreamingDetector:
    """Minder judging every tick, on a tape. Feed it the same blocks for every settings."""
    settings = replace(settings, call_seconds=None)
    continuity = ContinuitySettings(
        settings.continuity_seconds, settings.clear_seconds, settings.lookback_seconds
    )
    return StreamingDetector(job, TapedScorer(model, settings, tape), catalogue, continuity)
