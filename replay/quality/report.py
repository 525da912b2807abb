"""The benchmark's result as data, text and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replay.quality.figures import Figures, by_machines, by_type, figures
from replay.quality.measure import Row
from replay.quality.origin import Origin
from replay.quality.rates import stated_rate
from replay.quality.run import Measured
from replay.quality.workloads import RATE_WORKLOAD, WORKLOADS

BEGIN = "<!-- begin: written by python -m replay.quality -->"
END = "<!-- end -->"
TOTALS = ("core", "healthy")
"""Precision over these two together: faults, and the hours in which nothing is wrong."""

Column = tuple[str, str, int]
COLUMNS: tuple[Column, ...] = (
    ("incidents", "incidents", 0),
    ("precision", "precision", 3),
    ("recall", "recall", 3),
    ("F1", "f1", 3),
    ("errors", "errors", 0),
    ("delay p50 s", "delay_seconds_p50", 0),
    ("delay p90 s", "delay_seconds_p90", 0),
    ("lead p50 s", "lead_seconds_p50", 0),
    ("false alarms", "false_alarms", 0),
    ("healthy h", "healthy_job_hours", 1),
    ("per job-week", "false_alarms_per_job_week", 2),
    ("compute s", "compute_seconds", 0),
)
"""Title, figure, digits."""
SHORT = tuple(c for c in COLUMNS if c[0] not in ("lead p50 s", "healthy h", "compute s"))
EXTRA: dict[str, Column] = {
    "group": ("named as group", "group_named", 3),
    "one_gpu_of_eight": ("machine and GPU right", "gpu_named", 3),
    "bad_telemetry": ("no hardware verdict", "no_hardware_verdict", 3),
}


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the report."""

    title: str
    about: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def result_json(measured: Measured, detectors: Sequence[str], origin: Origin) -> dict[str, Any]:
    """Everything, for machines: per workload and detector its figures, by type and by size."""
    out: dict[str, Any] = {
        "commit": origin.commit,
        "date": origin.date,
        "partial": measured.partial,
        "measured": len(measured.rows),
        "planned": measured.planned,
        "skipped": list(measured.skipped),
        "workloads": {},
    }
    for name in _workloads(measured.rows):
        entry: dict[str, Any] = {"version": WORKLOADS[name].version, "detectors": {}}
        for detector in detectors:
            rows = _rows(measured.rows, [name], detector)
            if rows:
                entry["detectors"][detector] = {
                    **figures(rows),
                    "compared": figures(_common(measured.rows, [name], detectors)[detector]),
                    "by_type": by_type(rows),
                    "by_machines": by_machines(rows),
                }
        out["workloads"][name] = entry
    return out


def tables(measured: Measured, detectors: Sequence[str]) -> list[Table]:
    """Every table of the report: the totals, each workload, the first detector in detail, rates.

    Detectors stand beside each other on the very same incidents only; who was measured on more
    has a line of its own for all of them.
    """
    out: list[Table] = []
    names = [n for n in _workloads(measured.rows) if n != RATE_WORKLOAD]
    usual = [d for d in detectors if "@" not in d]
    shown = usual or list(detectors)
    if all(name in names for name in TOTALS):
        about = "Faulty and healthy recordings together; false alarms of both count."
        out.append(_by_detector("core and healthy", about, measured.rows, TOTALS, shown))
    for name in names:
        about = f"Version {WORKLOADS[name].version}: {WORKLOADS[name].about}."
        extra = (EXTRA[name],) if name in EXTRA else ()
        out.append(_by_detector(name, about, measured.rows, (name,), shown, extra))
    first = [n for n in names if n == "core"] or names[:1]
    for detector in shown[:1] if first else []:
        rows = _rows(measured.rows, first, detector)
        out.append(_groups(f"{detector} on {first[0]} by fault", "fault", by_type(rows)))
        out.append(_groups(f"{detector} on {first[0]} by machines", "machines", by_machines(rows)))
    rates = _rates(measured.rows, detectors)
    return [*out, rates] if rates.rows else out


def _rates(rows: Sequence[Row], detectors: Sequence[str]) -> Table:
    """Stated rates on healthy recordings."""
    lines = []
    for name in _workloads(rows):
        for detector in detectors:
            own = [r for r in _rows(rows, [name], detector) if not r.faulty]
            found = stated_rate(own, detector) if own else None
            if found is not None and name in (RATE_WORKLOAD, "healthy"):
                lines.append(
                    (
                        f"{detector} on {name}",
                        f"{found.asked:g}",
                        f"{found.hours:,.0f}",
                        f"{found.false_alarms}",
                        f"{found.measured:.2f}",
                        f"{found.ratio:.2f}",
                        f"{found.low:.2f} to {found.high:.2f}",
                    )
                )
    what = ("asked", "healthy h", "false alarms", "measured", "ratio", "95 % of ratio")
    about = "False alarms per job-week: asked, measured, and measured over asked."
    if RATE_WORKLOAD in _workloads(rows):
        known = WORKLOADS[RATE_WORKLOAD]
        about += f" `{RATE_WORKLOAD}`, version {known.version}: {known.about}."
    return Table("stated rate", about, ("detector", *what), tuple(lines))


def completeness(measured: Measured) -> str:
    """One honest line on how much was measured."""
    text = f"{len(measured.rows)} of {measured.planned} results"
    if measured.partial:
        text = f"PARTIAL: {text}; every workload was cut evenly, what is compared came first"
    if measured.skipped:
        text += f"; recordings not there, skipped: {', '.join(measured.skipped)}"
    return text


def as_text(measured: Measured, detectors: Sequence[str], origin: Origin) -> str:
    """Plain tables."""
    lines = [f"{origin}; {completeness(measured)}"]
    for table in tables(measured, detectors):
        grid = (table.columns, *table.rows)
        widths = [max(len(line[i]) for line in grid) for i in range(len(table.columns))]
        lines += ["", f"{table.title}: {table.about}" if table.about else table.title]
        for line in grid:
            cells = (
                c.rjust(w) if i else c.ljust(w)
                for i, (c, w) in enumerate(zip(line, widths, strict=True))
            )
            lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def as_markdown(measured: Measured, detectors: Sequence[str], origin: Origin) -> str:
    """The generated part of ``docs/quality.md``."""
    lines = [f"Measured at {origin}: {completeness(measured)}."]
    for table in tables(measured, detectors):
        lines += ["", f"### {table.title}", ""]
        if table.about:
            lines += [table.about, ""]
        lines += markdown_table(table)
    return "\n".join(lines)


def markdown_table(table: Table) -> list[str]:
    """Its lines, without title and text."""
    return [
        "| " + " | ".join(table.columns) + " |",
        "|---|" + "---:|" * (len(table.columns) - 1),
        *("| " + " | ".join(row) + " |" for row in table.rows),
    ]


def into_page(page: str, generated: str, begin: str = BEGIN) -> str:
    """The page with what follows ``begin`` replaced; ValueError if it has no place for it."""
    head, found, rest = page.partition(begin)
    _, end, tail = rest.partition(END)
    if not found or not end:
        raise ValueError(f"the page lacks the lines {begin} and {END}")
    return f"{head}{found}\n\n{generated}\n\n{end}{tail}"


def _by_detector(
    title: str,
    about: str,
    rows: Sequence[Row],
    workloads: Sequence[str],
    detectors: Sequence[str],
    extra: tuple[Column, ...] = (),
) -> Table:
    columns = (*COLUMNS, *extra)
    lines = []
    common = _common(rows, workloads, detectors)
    compared = {r.id for own in common.values() for r in own}
    whole = {r.id for r in rows if r.workload in workloads}
    for detector, own in common.items():
        lines.append((detector, *cells(figures(own), columns)))
    if len(compared) < len(whole):
        words = "; ".join(
            WORKLOADS[w].compared if len(workloads) == 1 else f"{w}: {WORKLOADS[w].compared}"
            for w in workloads
        )
        about += f" Compared on {len(compared)} incidents ({words})."
        for detector in common:
            own = _rows(rows, workloads, detector)
            if len(own) > len(compared):
                lines.append((f"{detector}, all", *cells(figures(own), columns)))
    return Table(title, about, ("detector", *(c[0] for c in columns)), tuple(lines))


def _common(
    rows: Sequence[Row], workloads: Sequence[str], detectors: Sequence[str]
) -> dict[str, list[Row]]:
    """Rows of each detector on the incidents that all of them were measured on."""
    own = {d: found for d in detectors if (found := _rows(rows, workloads, d))}
    shared = set.intersection(*({r.id for r in found} for found in own.values())) if own else set()
    return {d: [r for r in found if r.id in shared] for d, found in own.items()}


def _groups(title: str, first: str, groups: dict[str, Figures]) -> Table:
    lines = tuple((name, *cells(found, SHORT)) for name, found in groups.items())
    return Table(title, "", (first, *(c[0] for c in SHORT)), lines)


def cells(found: Figures, columns: Sequence[Column]) -> list[str]:
    """The figures of one line as text; ``-`` where there is none."""
    values = [(found[key], digits) for _, key, digits in columns]
    return ["-" if v is None else f"{v:,.{digits}f}" for v, digits in values]


def _workloads(rows: Sequence[Row]) -> list[str]:
    here = {row.workload for row in rows}
    return [name for name in WORKLOADS if name in here]


def _rows(rows: Sequence[Row], workloads: Sequence[str], detector: str) -> list[Row]:
    return [r for r in rows if r.workload in workloads and r.detector == detector]
