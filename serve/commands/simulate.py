"""``weaklink simulate``."""

from __future__ import annotations

from pathlib import Path

import click

from replay.finite import Finite


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Where the incidents' folders are made.",
)
@click.option("--incidents", type=click.IntRange(min=0), required=True, help="How many faulty.")
@click.option("--seed", type=click.IntRange(min=0), required=True, help="Same seed, same bytes.")
@click.option(
    "--healthy",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How many healthy ones besides.",
)
@click.option("--machines", type=int, help="Of every job; default: drawn for each.")
@click.option("--fault", metavar="TYPE", help="Of every incident; default: drawn for each.")
@click.option("--minutes", type=Finite(), help="Length of every recording; default: drawn.")
@click.option("--cadence", type=Finite(), metavar="SECONDS", help="0.1 to 60; default: drawn.")
@click.option("--per-gpu/--per-machine", default=None, help="One row a GPU; default: drawn.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True)
def simulate(
    out: Path,
    incidents: int,
    seed: int,
    healthy: int,
    machines: int | None,
    fault: str | None,
    minutes: float | None,
    cadence: float | None,
    per_gpu: bool | None,
    workers: int,
) -> None:
    """Make labelled incidents, byte-identical for the same seed; prints their folders."""
    from ingest.simulate import run_simulate
    from serve.commands.tables import Progress

    with Progress("simulating", incidents + healthy) as progress:

        def step(_done: int, _total: int, folder: Path) -> None:
            progress.step(folder.name)

        folders = run_simulate(
            out,
            incidents,
            seed,
            healthy,
            machines,
            fault,
            minutes=minutes,
            cadence_seconds=cadence,
            per_gpu=per_gpu,
            workers=workers,
            progress=step,
        )
    for folder in folders:
        click.echo(folder)
