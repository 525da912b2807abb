"""Tables on stdout and progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table


class Progress:
    """A bar on stderr; silent where stderr is no terminal."""

    def __init__(self, what: str, total: int):
        console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[name]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(what, total=total, name="")

    def step(self, name: str) -> None:
        """One more is done."""
        self._bar.update(self._task, advance=1, name=name)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()


def print_results(results: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    """The table of replayed incidents and what they sum up to."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (
        ("incident", "left"),
        ("machines", "right"),
        ("minutes", "right"),
        ("outcome", "left"),
        ("delay s", "right"),
        ("named", "left"),
        ("false", "right"),
        ("compute s", "right"),
    ):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for result in results:
        score = result["score"]
        table.add_row(
            result["incident"],
            str(result["machines"]),
            f"{result['seconds'] / 60:.0f}",
            score.outcome or "-",
            "-" if score.delay_seconds is None else f"{score.delay_seconds:.0f}",
            _named(result["alerts"]),
            str(score.false_alarms),
            f"{result['compute_seconds']:.1f}",
        )
    console = _stdout()
    console.print(table)
    for result in results:
        if result["rejected"]:
            counts = ", ".join(f"{n} {reason}" for reason, n in sorted(result["rejected"].items()))
            console.print(f"{result['incident']}: not used: {counts}", highlight=False)
    console.print()
    for line in _summary(summary):
        console.print(line, highlight=False)


def print_rows(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """A plain table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    _stdout().print(table)


def _stdout() -> Console:
    # A file or pipe gets whole lines: nothing may be cut to a terminal's width.
    width = None if sys.stdout.isatty() else 200
    return Console(width=width, markup=False, highlight=False)


def _named(alerts: list[tuple[str, tuple[str, ...], bool]]) -> str:
    words = []
    for verdict, machines, pages in alerts[:3]:
        who = ", ".join(machines[:4]) or verdict
        more = f" +{len(machines) - 4}" if len(machines) > 4 else ""
        words.append(f"{who}{more}" if pages else f"({who}{more})")
    return "; ".join(words) + (f"; {len(alerts) - 3} more" if len(alerts) > 3 else "")


def _summary(s: dict[str, Any]) -> list[str]:
    def shown(value: float | None, digits: int = 3) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    return [
        f"{s['incidents']} recordings: {s['right']} right, {s['wrong']} wrong, {s['miss']} missed, "
        f"{s['false_alarms']} false alarms",
        f"precision {shown(s['precision'])}, recall {shown(s['recall'])}, F1 {shown(s['f1'])}, "
        f"delay p50 {shown(s['delay_seconds_p50'], 0)} s, p90 {shown(s['delay_seconds_p90'], 0)} s",
        f"{s['healthy_job_hours']:.1f} healthy job-hours, "
        f"{shown(s['false_alarms_per_job_week'], 2)} false alarms per job-week",
    ]
