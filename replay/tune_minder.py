"""The best settings for the Minder detector, found on recordings that nothing is reported on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from detect.minder import MinderSettings
from ingest.catalogue import Catalogue
from ingest.recording import Recording
from ingest.ticks import TickBlock
from models.minder_model import MinderModel
from replay.blocks import recorded_blocks
from replay.score import Score, Truth, score_incident, summarise
from replay.zscore_tape import ZScoreTape, taped_detector

THRESHOLDS = (2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0)
CEILING_SHARES = (None, 0.8, 0.9, 0.95, 0.99)
CONTINUITY_SECONDS = (30.0, 60.0, 120.0, 180.0, 240.0, 360.0)


@dataclass(frozen=True, slots=True)
class Tuned:
    """One combination and what it scores; ``summary`` has the keys of `replay.score`."""

    model: str
    settings: MinderSettings
    summary: dict[str, Any]


def tune_minder(
    paths: Sequence[Path],
    models: Sequence[MinderModel],
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    ceiling_shares: Sequence[float | None] = CEILING_SHARES,
    continuity_seconds: Sequence[float] = CONTINUITY_SECONDS,
    base: MinderSettings | None = None,
    catalogue: Catalogue | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Tuned]:
    """Try every combination on labelled recordings, judging every tick; the best one first.

    Parameters
    ----------
    paths
        Labelled recordings. What is tuned on them must not be reported on them.
    models
        Models to try, with any denoiser and window (`replay.train_minder.train_minder`).
    thresholds, ceiling_shares, continuity_seconds
        The grid; see `MinderSettings`.
    base
        All other settings; default `MinderSettings.best`.

    Returns
    -------
    list of Tuned
        By F1, then by the shorter median delay, then by the lower rate of false alarms.

    Notes
    -----
    Distances are computed once a recording and model, and the grid shares them.
    """
    catalogue = catalogue or Catalogue.default()
    start = base or MinderSettings.best()
    grid = [
        replace(start, threshold=t, ceiling_share=share, continuity_seconds=c)
        for t, share, c in product(thresholds, ceiling_shares, continuity_seconds)
    ]
    scores: dict[tuple[int, int], list[Score]] = {
        key: [] for key in product(range(len(models)), range(len(grid)))
    }
    for done, path in enumerate(paths):
        recording, stream = recorded_blocks(path, catalogue)
        blocks = list(stream)
        for m, model in enumerate(models):
            tape: ZScoreTape = {}
            for g, settings in enumerate(grid):
                scores[m, g].append(_score(recording, blocks, catalogue, model, settings, tape))
        if progress:
            progress(done + 1, len(paths))
    tried = [Tuned(models[m].name, grid[g], summarise(s)) for (m, g), s in scores.items()]
    return sorted(tried, key=_rank)


def _score(
    recording: Recording,
    blocks: Sequence[TickBlock],
    catalogue: Catalogue,
    model: MinderModel,
    settings: MinderSettings,
    tape: ZScoreTape,
) -> Score:
    """The common score of one combination on one recording."""
    label = recording.label
    if label is None:
        raise ValueError(f"{recording.path}: tuning needs a label")
    detector = taped_detector(recording.name, catalogue, model, settings, tape)
    changes = [change for block in blocks for change in detector.update(block)]
    opened = [change.alert for change in changes if change.kind == "opened"]
    truth = Truth(frozenset(label.faulty_machines), label.onset_ns, label.halt_ns)
    last = blocks[-1]
    return score_incident(
        opened, truth, blocks[0].start_ns, last.start_ns + last.ticks * last.tick_ns
    )


def _rank(tried: Tuned) -> tuple[float, float, float]:
    """Smaller is better."""
    f1 = tried.summary["f1"] or 0.0
    delay = tried.summary["delay_seconds_p50"]
    rate = tried.summary["false_alarms_per_job_week"] or 0.0
    return -f1, float("inf") if delay is None else delay, rate
