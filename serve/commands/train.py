"""``weaklink train``."""

from __future__ import annotations

from pathlib import Path

import click

from replay.finite import Finite
from serve.commands.errors import BadInputError
from serve.commands.feedback import opinions_of


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="The model's folder: its name is the model's; each training adds a version. "
    "weaklink-models/NAME puts it where 'weaklink models' looks.",
)
@click.option(
    "--false-alarms-per-job-week",
    "rate",
    type=Finite(min=0, min_open=True),
    metavar="X",
    help="Accepted false alarms; default: those of the model to start from.",
)
@click.option(
    "--denoiser",
    metavar="NAME",
    help="Also learn a model of the minder detector, with this denoiser (identity, lstm_vae, "
    "online, pca). The default detector needs none and is not changed by it.",
)
@click.option(
    "--feedback",
    "source",
    metavar="SOURCE",
    help="What people said of alerts labels recordings without a label: the service's TOML file, "
    "its database's URL, or a file of 'weaklink feedback'.",
)
@click.option("--base", default="", metavar="NAME_OR_DIR", help="Start from; default: shipped.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True)
@click.option(
    "--catalogue",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with further metrics and aliases.",
)
def train(
    paths: tuple[Path, ...],
    out: Path,
    rate: float | None,
    denoiser: str | None,
    source: str | None,
    base: str,
    workers: int,
    catalogue: Path | None,
) -> None:
    """Learn a model from recordings: folders, or folders of folders.

    Healthy recordings suffice. Those without a label are taken as healthy; of faulty ones what
    lies before the onset teaches. Recordings of about a third of the jobs are held out and
    measure the model; the result is written into it and printed.
    """
    from importlib.util import find_spec

    from ingest.catalogue import Catalogue
    from ingest.recording import find_recordings
    from models.denoise.registry import DENOISERS
    from models.evidence_model import EvidenceModel
    from models.registry import load_model, save_version
    from replay.feedback import label_recordings
    from replay.train import TrainOptions
    from replay.train import train as learn

    if denoiser is not None and denoiser not in DENOISERS:
        raise BadInputError(f"--denoiser: no {denoiser!r}; there are {', '.join(DENOISERS)}")
    if denoiser == "lstm_vae" and find_spec("jax") is None:
        raise BadInputError(
            "--denoiser lstm_vae: training it needs JAX: pip install weaklink[lstm]"
        )
    known = Catalogue.default()
    if catalogue is not None:
        known = known.extended(catalogue)
    start = load_model(base or "shipped")
    recordings = find_recordings(paths)
    said = label_recordings(recordings, opinions_of(source) if source else (), known)
    for remark in said.remarks:
        click.echo(remark, err=True)
    recordings = [path for path in recordings if path not in said.left_out]
    if not recordings:
        raise BadInputError(f"{paths[0]}: feedback leaves no recording to learn from")
    options = TrainOptions(
        rate,
        denoiser,
        start if isinstance(start, EvidenceModel) else None,
        workers,
        said.labels,
    )
    last = [""]

    def progress(stage: str, done: int, total: int) -> None:
        if stage != last[0] or done == total:
            last[0] = stage
            click.echo(f"{stage}: {done} of {total} recordings", err=True)

    trained = learn(recordings, options, known, progress)
    ref = save_version(out, trained.model, trained.minder)
    on, quality = trained.model.trained_on, trained.model.quality
    if on["unlabelled_taken_as_healthy"]:
        click.echo(f"{on['unlabelled_taken_as_healthy']} without label taken as healthy", err=True)
    click.echo(f"{ref} written to {ref.path}")
    click.echo(
        f"learned from {len(on['recordings'])} recordings, {on['machine_hours']:.1f} healthy "
        f"machine-hours; {len(trained.model.metrics)} metrics"
    )
    where = "recordings held out" if quality["held_out"] else "THE SAME recordings (one job only)"
    click.echo(f"measured on {quality['incidents']} {where}:")
    for line in quality_lines(quality):
        click.echo(f"  {line}")
    if trained.minder is not None:
        click.echo(f"minder model with {denoiser}: {', '.join(trained.minder.metrics)}")


def quality_lines(quality: dict[str, object]) -> list[str]:
    """The measured quality in words."""

    def shown(key: str, digits: int = 3) -> str:
        value = quality.get(key)
        return f"{value:.{digits}f}" if isinstance(value, int | float) else "-"

    return [
        f"{quality.get('right')} right, {quality.get('wrong')} wrong, {quality.get('miss')} "
        f"missed, {quality.get('false_alarms')} false alarms in "
        f"{shown('healthy_job_hours', 1)} healthy job-hours",
        f"precision {shown('precision')}, recall {shown('recall')}, F1 {shown('f1')}, delay p50 "
        f"{shown('delay_seconds_p50', 0)} s, p90 {shown('delay_seconds_p90', 0)} s",
        f"false alarms per job-week {shown('false_alarms_per_job_week', 2)}, asked for "
        f"{shown('asked_false_alarms_per_job_week', 2)}",
    ]
