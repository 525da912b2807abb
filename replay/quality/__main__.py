"""``python -m replay.quality``: measures, prints, keeps, compares."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path

import click

from detect.registry import DETECTORS
from replay.finite import Finite
from replay.quality.cache import ResultCache
from replay.quality.gate import BaselineError, baseline_of, failures, read_baseline
from replay.quality.measure import split_rate
from replay.quality.origin import measured_origin
from replay.quality.plan import Plan
from replay.quality.report import as_markdown, as_text, into_page, result_json
from replay.quality.run import Progress, run
from replay.quality.workloads import RATE_WORKLOAD, REPORTED, WORKLOADS, Item, interleaved

DATA = Path("../shared/data/real")
PAGE = Path("docs/quality.md")
BASELINE = Path("tests/quality_baseline.json")
CI_DETECTORS = "evidence,ratio,null,random"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--subset",
    "--sets",
    "sets",
    default="",
    metavar="NAME,…",
    help="Workloads; default: all reported ones. 'ci' is the small one.",
)
@click.option(
    "--detectors",
    default="",
    metavar="NAME,…",
    help="Default: all; NAME@RATE asks for RATE false alarms per job-week.",
)
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="At most N incidents of each workload."
)
@click.option(
    "--hours",
    type=Finite(0, min_open=True),
    help="Begin no incident after so many hours.",
)
@click.option(
    "--whole",
    is_flag=True,
    help="The references on every incident, not only on those that are compared (slow).",
)
@click.option(
    "--rates",
    is_flag=True,
    help=f"Also check the stated false-alarm rate on {RATE_WORKLOAD}.",
)
@click.option("--workers", type=click.IntRange(1, 256), default=2, show_default=True)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=DATA,
    show_default=True,
    help="Real recordings.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIR",
    help="Results so far; default: .quality-cache (WEAKLINK_QUALITY_CACHE).",
)
@click.option("--no-cache", is_flag=True, help="Measure everything anew and keep nothing.")
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write everything as JSON.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    is_flag=False,
    flag_value=str(PAGE),
    help=f"Write the tables into a Markdown page [{PAGE}].",
)
@click.option("--gate", is_flag=True, help="Exit 1 if quality has fallen below the baseline.")
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    default=BASELINE,
    show_default=True,
)
@click.option("--write-baseline", is_flag=True, help="Take this run as the baseline.")
def main(
    sets: str,
    detectors: str,
    limit: int | None,
    hours: float | None,
    whole: bool,
    rates: bool,
    workers: int,
    data: Path,
    cache: Path | None,
    no_cache: bool,
    json_path: Path | None,
    page: Path | None,
    gate: bool,
    baseline: Path,
    write_baseline: bool,
) -> None:
    """Measure every detector on versioned workloads, and print the tables.

    Results are kept: a run that was stopped goes on where it was, and only what a change of the
    code can have changed is measured anew.
    """
    names = _workloads(sets)
    wanted = _detectors(detectors or (CI_DETECTORS if names == ("ci",) else ",".join(DETECTORS)))
    plan = Plan(names, tuple(wanted), whole=whole, rates=rates)
    names, wanted = plan.workloads, list(plan.detectors)
    workloads = [WORKLOADS[name] for name in names]
    items = interleaved(workloads)
    if limit is not None:
        items = _limited(items, limit)
    folder = (
        None
        if no_cache
        else cache or Path(os.environ.get("WEAKLINK_QUALITY_CACHE", ".quality-cache"))
    )
    kept = ResultCache(folder)
    try:
        measured = run(
            items,
            wanted,
            data,
            kept,
            workers=workers,
            hours=math.inf if hours is None else hours,
            clock=time.monotonic,
            progress=_progress(time.monotonic()),
            wanted=plan.wanted,
        )
    except KeyboardInterrupt:
        raise click.ClickException("interrupted; what was measured is kept, run it again") from None
    finally:
        kept.close()
    origin = measured_origin()
    result = result_json(measured, wanted, origin)
    # Fewer incidents than a workload has is a part of it, whoever asked for fewer.
    asked = sum(plan.wanted(i, d) for w in workloads for i in w.items for d in wanted)
    result["partial"] = measured.partial or (limit is not None and measured.planned < asked)
    if limit is not None:
        click.echo(f"LIMITED to {limit} incidents of each workload")
    click.echo(as_text(measured, wanted, origin))
    if json_path is not None:
        json_path.write_text(json.dumps(result, indent=1) + "\n")
    if page is not None:
        text = as_markdown(measured, wanted, origin)
        if limit is not None:
            text = f"**Limited to {limit} incidents of each workload.**\n\n{text}"
        page.write_text(into_page(page.read_text(), text))
    if write_baseline:
        if result["partial"]:
            raise click.ClickException("a partial result is no baseline")
        _write_baseline(result, baseline)
    if gate:
        _gate(result, baseline)


def _write_baseline(result: dict[str, object], path: Path) -> None:
    """Workloads that were not measured keep their figures."""
    fresh = baseline_of(result)
    if path.exists():
        fresh["workloads"] = {**read_baseline(path)["workloads"], **fresh["workloads"]}
    path.write_text(json.dumps(fresh, indent=1, sort_keys=True) + "\n")


def _gate(result: dict[str, object], path: Path) -> None:
    try:
        found = failures(result, read_baseline(path))
    except BaselineError as error:
        raise click.UsageError(str(error)) from None
    for line in found:
        click.echo(f"gate: {line}", err=True)
    if found:
        sys.exit(1)
    click.echo("gate: passed", err=True)


def _workloads(sets: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(n.strip() for n in sets.split(",") if n.strip())) or REPORTED
    for name in names:
        if name not in WORKLOADS:
            raise click.UsageError(f"no workload {name!r}; there are {', '.join(WORKLOADS)}")
    return names


def _detectors(text: str) -> list[str]:
    names = [n.strip() for n in text.split(",") if n.strip()]
    for name in names:
        try:
            plain, _ = split_rate(name)
        except ValueError as error:
            raise click.UsageError(f"--detectors: {error}") from None
        if plain not in DETECTORS:
            raise click.UsageError(f"no detector {plain!r}; there are {', '.join(DETECTORS)}")
    return list(dict.fromkeys(names))


def _limited(items: list[Item], limit: int) -> list[Item]:
    taken: dict[str, int] = {}
    out = []
    for item in items:
        taken[item.workload] = taken.get(item.workload, 0) + 1
        if taken[item.workload] <= limit:
            out.append(item)
    return out


def _progress(began: float) -> Progress:
    """A line on stderr every ten seconds, and at the end."""
    told = began
    known: int | None = None

    def step(done: int, total: int, name: str) -> None:
        nonlocal told, known
        known = done - 1 if known is None else known
        now = time.monotonic()
        if now - told >= 10.0 or done == total:
            told = now
            spent = (now - began) / 60.0
            left = spent / (done - known) * (total - done)
            click.echo(
                f"{done}/{total} incidents, {spent:.1f} min, about {left:.0f} min left, {name}",
                err=True,
            )

    return step


if __name__ == "__main__":
    main()
