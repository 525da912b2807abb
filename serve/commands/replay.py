"""``weaklink replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from replay.finite import Finite
from serve.commands.errors import GateError

DETECTORS = ("evidence", "minder", "minder-best", "mahalanobis", "ratio", "null", "random")

LEARNED = ("evidence", "minder", "minder-best")
"""Detectors with a model."""


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", default="", metavar="NAME_OR_DIR", help="Default: the shipped one.")
@click.option("--detector", type=click.Choice(DETECTORS), default="evidence", show_default=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    show_default=True,
    help="A table, or one JSON line an incident and a last line with the summary.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write one self-contained HTML file an incident.",
)
@click.option(
    "--rejects",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write unusable rows, one JSON-lines file an incident.",
)
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True)
@click.option(
    "--catalogue",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with further metrics and aliases.",
)
@click.option("--fail-precision-below", type=Finite(0, 1), help="Gate: exit 1 below.")
@click.option("--fail-recall-below", type=Finite(0, 1), help="Gate: exit 1 below.")
@click.option("--fail-false-alarms-above", type=click.IntRange(min=0), help="Gate: exit 1 above.")
def replay(
    paths: tuple[Path, ...],
    model: str,
    detector: str,
    form: str,
    report: Path | None,
    rejects: Path | None,
    workers: int,
    catalogue: Path | None,
    fail_precision_below: float | None,
    fail_recall_below: float | None,
    fail_false_alarms_above: int | None,
) -> None:
    """Replay recorded incidents (folders, or folders of folders) through the live path.

    With a label (incident.json) each outcome is scored: right, wrong, miss, quiet or
    false_alarm.
    """
    import orjson

    from ingest.catalogue import Catalogue
    from ingest.recording import find_recordings
    from models.registry import load_model
    from replay.file_names import file_names
    from replay.runner import ReplayOptions, replay_all
    from replay.score import summarise
    from serve.commands.tables import Progress, print_results

    if model and detector not in LEARNED:
        raise click.UsageError(f"--model: the detector {detector} has no model")
    known = Catalogue.default()
    if catalogue is not None:
        known = known.extended(catalogue)
    recordings = find_recordings(paths)
    names = file_names(recordings)
    options = ReplayOptions(
        detector=detector,
        model=load_model(model, detector) if detector in LEARNED else None,
        catalogue=known,
        history=report is not None,
        rejects={p: rejects / f"{n}.rejected.jsonl" for p, n in names.items()} if rejects else {},
    )
    results = []
    with Progress("replaying", len(recordings)) as progress:
        for path, result in zip(recordings, replay_all(recordings, options, workers), strict=True):
            for remark in result.remarks:
                click.echo(f"{path / 'incident.json'}: {remark}", err=True)
            if report is not None:
                from replay.report import write_report
                from replay.report_data import report_data

                write_report(report / f"{names[path]}.html", report_data(result, known))
            if form == "jsonl":
                click.echo(orjson.dumps(result.to_json()).decode())
            results.append(_slim(result))
            progress.step(result.incident)
    summary = summarise(r["score"] for r in results)
    if form == "jsonl":
        click.echo(orjson.dumps({"summary": summary}).decode())
    else:
        print_results(results, summary)
    _gate("precision", summary["precision"], fail_precision_below)
    _gate("recall", summary["recall"], fail_recall_below)
    if fail_false_alarms_above is not None and summary["false_alarms"] > fail_false_alarms_above:
        raise GateError(f"{summary['false_alarms']} false alarms > {fail_false_alarms_above}")


def _slim(result: Any) -> dict[str, Any]:
    """What the table needs: histories of a thousand recordings must not pile up."""
    return {
        "incident": result.incident,
        "machines": result.machines,
        "seconds": result.seconds,
        "score": result.score,
        "alerts": [(a.verdict, a.machines, a.pages) for a in result.alerts],
        "rejected": result.rejected,
        "compute_seconds": result.compute_seconds,
    }


def _gate(name: str, value: float | None, floor: float | None) -> None:
    if floor is not None and (value is None or value < floor):
        shown = "undefined" if value is None else f"{value:.4f}"
        raise GateError(f"{name} is {shown}, wanted at least {floor}")
