"""The best settings for the Minder detector, found on recordings that nothing is reported on.

``python -m replay.tune_minder`` tries them on simulated jobs of the development's seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import click
from joblib import Parallel, delayed

from detect.detector import JobDetector
from detect.minder import MinderSettings
from ingest.catalogue import Catalogue
from ingest.recording import read_recording
from ingest.simulate import Wishes
from ingest.ticks import TickBlock
from models.minder_model import MINDER_METRICS, MinderModel, shipped_minder_model
from replay.blocks import blocks_of
from replay.quality.sources import Simulated, Source
from replay.runner import Replayable
from replay.score import Score, Truth, errors, score_incident, summarise
from replay.zscore_tape import ZScoreTape, taped_detector

THRESHOLDS = (2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0)
CEILING_SHARES = (None, 0.8, 0.9, 0.95, 0.99)
CONTINUITY_SECONDS = (30.0, 60.0, 120.0, 180.0, 240.0, 360.0)
SEEDS = (151, 152)
"""Of faulty and of healthy jobs; both of the development's."""
Given = Path | Source


@dataclass(frozen=True, slots=True)
class Tuned:
    """One combination and what it scores; ``summary`` has the keys of `replay.score`."""

    model: str
    settings: MinderSettings
    summary: dict[str, Any]


def tune_minder(
    recordings: Sequence[Given],
    models: Sequence[MinderModel],
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    ceiling_shares: Sequence[float | None] = CEILING_SHARES,
    continuity_seconds: Sequence[float] = CONTINUITY_SECONDS,
    base: MinderSettings | None = None,
    catalogue: Catalogue | None = None,
    progress: Callable[[int, int], None] | None = None,
    workers: int = 1,
) -> list[Tuned]:
    """Try every combination on labelled recordings, judging every tick; the best one first.

    Parameters
    ----------
    recordings
        Labelled, written or made in memory. What is tuned on them must not be reported on them.
    models
        Models to try, with any denoiser and window (`replay.train_minder.train_minder`).
        Those that share their denoisers and differ in their metrics share the work; the one
        with the most metrics comes first.
    thresholds, ceiling_shares, continuity_seconds
        The grid; see `MinderSettings`.
    base
        All other settings; default `MinderSettings.best`.
    workers
        Processes of joblib's current backend.

    Returns
    -------
    list of Tuned
        By errors (wrong, missed, false alarms), then by the shorter median delay: what it is
        compared by.

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
    tasks = (delayed(_scores)(given, catalogue, models, grid) for given in recordings)
    scores: dict[tuple[int, int], list[Score]] = {
        key: [] for key in product(range(len(models)), range(len(grid)))
    }
    runs = Parallel(n_jobs=workers, return_as="generator_unordered", pre_dispatch="n_jobs")(tasks)
    for done, found in enumerate(runs):
        for key, score in found.items():
            scores[key].append(score)
        if progress:
            progress(done + 1, len(recordings))
    tried = [Tuned(models[m].name, grid[g], summarise(s)) for (m, g), s in scores.items()]
    return sorted(tried, key=_rank)


def _scores(
    given: Given,
    catalogue: Catalogue,
    models: Sequence[MinderModel],
    grid: Sequence[MinderSettings],
) -> dict[tuple[int, int], Score]:
    """The score of every model and settings on one recording."""
    if isinstance(given, Path):
        recording: Replayable = read_recording(given, catalogue)
    else:
        recording = given.opened("tuning", catalogue, Path()).recording
    if recording.label is None:
        raise ValueError(f"{given}: tuning needs a label")
    label = recording.label
    truth = Truth(frozenset(label.faulty_machines), label.onset_ns, label.halt_ns)
    blocks = list(blocks_of(recording, catalogue))
    tapes: dict[int, ZScoreTape] = {}
    out = {}
    for m, model in enumerate(models):
        tape = tapes.setdefault(id(model.denoisers), {})
        for g, settings in enumerate(grid):
            detector = taped_detector(recording.name, catalogue, model, settings, tape)
            out[m, g] = _score(detector, blocks, truth)
    return out


def _score(detector: JobDetector, blocks: Sequence[TickBlock], truth: Truth) -> Score:
    """The common score of one detector on one recording."""
    changes = [change for block in blocks for change in detector.update(block)]
    opened = [change.alert for change in changes if change.kind == "opened"]
    last = blocks[-1]
    return score_incident(
        opened, truth, blocks[0].start_ns, last.start_ns + last.ticks * last.tick_ns
    )


def _rank(tried: Tuned) -> tuple[int, float, float]:
    """Smaller is better."""
    found = tried.summary
    delay = found["delay_seconds_p50"]
    return errors(found), float("inf") if delay is None else delay, -(found["f1"] or 0.0)


def metric_choices(model: MinderModel) -> list[MinderModel]:
    """The model as learned, in the published order, and with the first metrics of either alone."""
    out = {model.metrics: model}
    for order in (model.metrics, tuple(m for m in MINDER_METRICS if m in model.metrics)):
        for count in range(len(order), 0, -1):
            some = order[:count]
            out.setdefault(some, replace(model, name=", ".join(some), metrics=some))
    return list(out.values())


def development_jobs(faulty: int, healthy: int) -> list[Source]:
    """Incidents in the published mix, and healthy hours, as the benchmark has them."""
    hour = Wishes(minutes=60.0)
    return [
        *(Simulated(SEEDS[0], i) for i in range(faulty)),
        *(Simulated(SEEDS[1], i, healthy=True, wishes=hour) for i in range(healthy)),
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--faulty", type=click.IntRange(1), default=72, show_default=True)
@click.option("--healthy", type=click.IntRange(0), default=24, show_default=True)
@click.option("--best", type=click.IntRange(1), default=15, show_default=True)
@click.option("--workers", type=click.IntRange(1, 256), default=2, show_default=True)
def main(faulty: int, healthy: int, best: int, workers: int) -> None:
    """Find the best settings on simulated jobs of the development's seeds; print the best.

    First thresholds and continuity with all metrics, then fewer metrics and the published order,
    each with every continuity, at the best threshold.
    """
    model, jobs = shipped_minder_model(), development_jobs(faulty, healthy)

    def progress(done: int, total: int) -> None:
        click.echo(f"{done}/{total}", err=True)

    first = tune_minder(jobs, [model], progress=progress, workers=workers)
    settings = first[0].settings
    then = tune_minder(
        jobs,
        metric_choices(model),
        thresholds=(settings.threshold,),
        ceiling_shares=(settings.ceiling_share,),
        base=settings,
        progress=progress,
        workers=workers,
    )
    tried = sorted((*first, *then), key=_rank)
    head = "errors  right  wrong  miss  false  delay p50  threshold  ceiling  continuity  metrics"
    click.echo(head)
    for one in tried[:best]:
        found, how = one.summary, one.settings
        delay = found["delay_seconds_p50"]
        click.echo(
            f"{errors(found):6d}  {found['right']:5d}  {found['wrong']:5d}  {found['miss']:4d}  "
            f"{found['false_alarms']:5d}  {'-' if delay is None else round(delay):>9}  "
            f"{how.threshold:9g}  {how.ceiling_share or '-':>7}  {how.continuity_seconds:10g}  "
            f"{one.model}"
        )


if __name__ == "__main__":
    main()
