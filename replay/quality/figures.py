"""From rows to figures: one detector on one set of incidents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from replay.quality.measure import Row
from replay.score import errors, summarise

Figures = dict[str, Any]

BUCKETS: tuple[tuple[int, int], ...] = (
    (3, 4), (5, 8), (9, 16), (17, 64), (65, 200), (201, 10_000),
)  # fmt: skip
"""Ranges of the number of machines."""


def figures(rows: Sequence[Row]) -> Figures:
    """`replay.score.summarise`, and what a benchmark tells beside it.

    ``lead_seconds_p50``: before the halt, of right verdicts on jobs that halted.
    ``errors``: wrong + miss + false alarms. ``group_named`` / ``gpu_named``: share of the
    incidents with a group / a GPU at fault that were named so, machines right.
    ``no_hardware_verdict``: share of the recordings without any alert that names or pages.
    """
    out: Figures = summarise(row.score for row in rows)
    leads = [r.lead_seconds for r in rows if r.outcome == "right" and r.lead_seconds is not None]
    out["lead_seconds_p50"] = float(np.median(leads)) if leads else None
    out["errors"] = errors(out)
    out["compute_seconds"] = round(sum(r.compute_seconds for r in rows), 1)
    groups = [r.named_group for r in rows if r.fault_type == "switch_failure"]
    out["group_named"] = _share(groups)
    out["gpu_named"] = _share([r.named_gpu for r in rows if r.named_gpu is not None])
    out["no_hardware_verdict"] = _share([r.hardware_verdicts == 0 for r in rows])
    return out


def by_type(rows: Iterable[Row]) -> dict[str, Figures]:
    """Figures of the faulty incidents of each type, by name."""
    faulty = [r for r in rows if r.faulty]
    return _grouped(faulty, lambda r: r.fault_type or "unknown", sorted)


def by_machines(rows: Iterable[Row]) -> dict[str, Figures]:
    """Figures of each range of the number of machines, smallest first."""
    order = [bucket_name(low, high) for low, high in BUCKETS]
    return _grouped(rows, _bucket, lambda names: sorted(names, key=order.index))


def bucket_name(low: int, high: int) -> str:
    """``3-4``, …; the last is open."""
    return f"{low}-{high}" if high < BUCKETS[-1][1] else f"{low}+"


def _bucket(row: Row) -> str:
    for low, high in BUCKETS:
        if row.machines <= high:
            return bucket_name(low, high)
    return bucket_name(*BUCKETS[-1])


def _grouped(
    rows: Iterable[Row],
    name: Callable[[Row], str],
    order: Callable[[Iterable[str]], list[str]],
) -> dict[str, Figures]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(name(row), []).append(row)
    return {key: figures(groups[key]) for key in order(groups)}


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None
