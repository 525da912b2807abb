"""Which denoiser serves the Minder detector best: ``python -m replay.denoisers``.

Each denoiser learns from the same windows of healthy jobs, gets the threshold that
`replay.tune_minder` ranks first for it (both on seeds of the development), and is measured.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from detect.minder import MinderSettings, minder_detector
from detect.registry import make_detector
from ingest.catalogue import Catalogue
from ingest.simulate import Wishes, write_incidents
from models.denoise.protocol import Denoiser, OnlineDenoiser
from models.denoise.registry import DENOISERS, from_state
from models.minder_model import MinderModel
from replay.finite import Finite
from replay.quality.cache import ResultCache
from replay.quality.figures import figures
from replay.quality.keys import code_hash
from replay.quality.measure import Row, row
from replay.quality.origin import measured_origin
from replay.quality.report import Column, Table, cells, into_page, markdown_table
from replay.quality.workloads import WORKLOADS, Item, interleaved
from replay.together import Maker, replay_together
from replay.train_minder import train_minder
from replay.tune_minder import SEEDS, development_jobs, tune_minder

BEGIN = "<!-- begin: written by python -m replay.denoisers -->"
PAGE = Path("docs/quality.md")
TRAINING_SEED = 153
TRAINING_JOBS = Wishes(minutes=30.0)
THRESHOLDS = (3.0, 5.0, 8.0)
CEILING_SHARES = (0.8, 0.9, 0.95, 0.99)
OURS = "evidence"
ROWS, MACHINES = 20_480, 64
"""Windows that inference is timed on, and how many make a tick of a denoiser that adapts."""
COLUMNS: tuple[Column, ...] = (
    ("right", "right", 0),
    ("wrong", "wrong", 0),
    ("miss", "miss", 0),
    ("false alarms", "false_alarms", 0),
    ("precision", "precision", 3),
    ("recall", "recall", 3),
    ("F1", "f1", 3),
    ("delay p50 s", "delay_seconds_p50", 0),
    ("delay p90 s", "delay_seconds_p90", 0),
)


@dataclass(frozen=True, slots=True)
class Learning:
    """On how many jobs denoisers are trained and their thresholds found.

    ``healthy`` jobs like `TRAINING_JOBS` give the windows, the same ones to each denoiser;
    ``steps`` are those of each LSTM-VAE; ``tuning`` counts faulty and healthy jobs of
    `replay.tune_minder.development_jobs`.
    """

    healthy: int = 12
    steps: int = 8_000
    tuning: tuple[int, int] = (24, 8)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trained model, its own best settings, and microseconds of inference a row."""

    model: MinderModel
    best: MinderSettings
    microseconds: float

    @property
    def settings(self) -> dict[str, MinderSettings]:
        """By name. Called now and then, a denoiser that adapts would learn the same ticks twice."""
        ways = {f"{self.model.name}, best": self.best}
        if any(made.adapts for made in self.model.denoisers.values()):
            return ways
        return {f"{self.model.name}, published": MinderSettings.published(), **ways}


def learned(how: Learning, folder: Path, names: Sequence[str] = DENOISERS) -> list[Candidate]:
    """A candidate of each denoiser; models that are in ``folder`` are not trained again."""
    files = {name: folder / f"{name}.npz" for name in names}
    missing = {name: file for name, file in files.items() if not file.exists()}
    with TemporaryDirectory() as made:
        count = how.healthy if missing else 0
        jobs = write_incidents(
            made, incidents=0, healthy=count, seed=TRAINING_SEED, wishes=TRAINING_JOBS
        )
        for name, file in missing.items():
            click.echo(f"training and tuning {name}", err=True)
            model = train_minder(jobs, name=name, denoiser_name=name, steps=how.steps)
            best = asdict(_tuned(model, how))
            replace(model, trained_on={**model.trained_on, "best": best}).save(file)
    return [_candidate(MinderModel.load(file)) for file in files.values()]


def _candidate(model: MinderModel) -> Candidate:
    spent = microseconds_a_row(model.denoisers[model.metrics[0]])
    return Candidate(model, MinderSettings(**model.trained_on["best"]), spent)


def _tuned(model: MinderModel, how: Learning) -> MinderSettings:
    """`MinderSettings.best` with the threshold that suits this model."""
    return tune_minder(
        development_jobs(*how.tuning),
        [model],
        thresholds=THRESHOLDS,
        ceiling_shares=CEILING_SHARES,
        continuity_seconds=(MinderSettings.best().continuity_seconds,),
        progress=lambda done, total: click.echo(f"  job {done}/{total}", err=True),
    )[0].settings


def microseconds_a_row(trained: Denoiser, rows: int = ROWS) -> float:
    """Processor time of denoising as the detector does it, learning included: best of three."""
    rng = np.random.default_rng(0)
    windows = rng.uniform(0.2, 0.8, (rows, 1)) + rng.normal(0.0, 0.01, (rows, trained.window))
    spent = []
    for _ in range(3):
        made = from_state(trained.state())
        began = time.process_time()
        if made.adapts and isinstance(made, OnlineDenoiser):
            for start in range(0, rows, MACHINES):
                tick = windows[start : start + MACHINES]
                made.denoise(tick)
                made.partial_fit(tick)
        else:
            made.denoise(windows)
        spent.append(time.process_time() - began)
    return min(spent) / rows * 1e6


def chosen(faulty: int, healthy: int) -> list[Item]:
    """The first incidents of `core` and the first compared ones of `healthy`, interleaved."""
    parts = []
    for name, count in (("core", faulty), ("healthy", healthy)):
        compared = tuple(item for item in WORKLOADS[name].items if item.compared)
        parts.append(replace(WORKLOADS[name], items=compared[:count]))
    return interleaved(parts)


def measured(
    items: Sequence[Item], candidates: Sequence[Candidate], cache: ResultCache
) -> Iterator[tuple[Item, list[Row]]]:
    """Rows of our detector and of every candidate and settings, incident by incident."""
    catalogue = Catalogue.default()
    ways: dict[str, Maker] = {
        name: partial(
            minder_detector, catalogue=catalogue, settings=how, model=c.model, alerts_only=True
        )
        for c in candidates
        for name, how in c.settings.items()
    }
    for item in items:
        keys = {name: f"{item.id} {name}" for name in (OURS, *ways)}
        if not all(key in cache.known for key in keys.values()):
            opened = item.source.opened(item.id, catalogue, Path())
            topology = opened.recording.topology
            ours = partial(make_detector, OURS, catalogue=catalogue, topology=topology)
            results = replay_together(opened.recording, {OURS: ours, **ways}, catalogue)
            for name, result in results.items():
                cache.add(keys[name], row(item, name, opened, result))
        yield item, [cache.known[key] for key in keys.values()]


def table(rows: Mapping[str, Sequence[Row]], candidates: Sequence[Candidate]) -> Table:
    """All ways beside each other, by name; every one has the same incidents."""
    lines = [(OURS, "-", *cells(figures(rows[OURS]), COLUMNS), "-")]
    for one in candidates:
        for name, how in one.settings.items():
            found = cells(figures(rows[name]), COLUMNS)
            lines.append((name, _limit(how), *found, f"{one.microseconds:.2f}"))
    heads = ("denoiser, settings", "threshold", *(c[0] for c in COLUMNS), "µs a row")
    return Table("denoisers", "", heads, tuple(lines))


def _limit(how: MinderSettings) -> str:
    if how.ceiling_share is None:
        return f"{how.threshold:g}"
    return f"{how.threshold:g}, at most {how.ceiling_share:g}·√(N−1)"


def as_markdown(
    rows: Mapping[str, Sequence[Row]], candidates: Sequence[Candidate], how: Learning, asked: int
) -> str:
    """What was measured, on what, and the table."""
    ours = rows[OURS]
    faulty = sum(r.faulty for r in ours)
    part = f"{len(ours)} of {asked} incidents" if len(ours) < asked else f"{asked} incidents"
    about = (
        f"Measured at {measured_origin()} on {part}: {faulty} of `core`, {len(ours) - faulty} of "
        f"`healthy`, a part of each. Trained on {how.healthy} healthy jobs of "
        f"{TRAINING_JOBS.minutes:g} minutes (seed {TRAINING_SEED}; {how.steps:,} steps of each "
        f"LSTM-VAE), thresholds found on {how.tuning[0]} faulty and {how.tuning[1]} healthy jobs "
        f"(seeds {SEEDS[0]} and {SEEDS[1]})."
    )
    return "\n".join([about, "", *markdown_table(table(rows, candidates))])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--faulty", type=click.IntRange(1), default=60, show_default=True)
@click.option("--healthy", type=click.IntRange(0), default=30, show_default=True)
@click.option("--training", type=click.IntRange(1), default=12, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=8_000, show_default=True)
@click.option("--tuning", type=(int, int), default=(24, 8), show_default=True)
@click.option("--minutes", type=Finite(), help="Begin no incident after so many minutes.")
@click.option("--keep", type=click.Path(path_type=Path), default=Path(".quality-cache/denoisers"))
@click.option("--page", is_flag=True, help=f"Write the table into {PAGE}.")
def main(**given: Any) -> None:
    """Measure every denoiser in the Minder detector, beside the default detector; print a table.

    Models and results are kept under --keep; a run that was stopped goes on where it was.
    """
    began = time.monotonic()
    how = Learning(given["training"], given["steps"], given["tuning"])
    code = [code_hash(name, True) for name in (OURS, "minder")]
    folder = given["keep"] / hashlib.sha256(repr((how, code)).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    candidates = learned(how, folder)
    items = chosen(given["faulty"], given["healthy"])
    cache = ResultCache(folder)
    rows: dict[str, list[Row]] = {}
    for done, (item, found) in enumerate(measured(items, candidates, cache), 1):
        for one in found:
            rows.setdefault(one.detector, []).append(one)
        click.echo(f"{done}/{len(items)} incidents, {item.id}", err=True)
        if given["minutes"] is not None and time.monotonic() - began > given["minutes"] * 60.0:
            break
    cache.close()
    text = as_markdown(rows, candidates, how, len(items))
    click.echo(text)
    if given["page"]:
        PAGE.write_text(into_page(PAGE.read_text(), text, BEGIN))


if __name__ == "__main__":
    main()
