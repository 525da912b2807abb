"""Runs workloads through detectors: resumable, in parallel, within a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from joblib import Parallel, delayed

from replay.quality.cache import ResultCache
from replay.quality.keys import result_key
from replay.quality.measure import Row, measure
from replay.quality.workloads import Item

Clock = Callable[[], float]
Wanted = Callable[[Item, str], bool]
"""Whether a detector is to be measured on an incident."""
Progress = Callable[[int, int, str], None]
"""Called after each incident with how many are done, how many there are, and its id."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows in the order of the items, and how much was asked for.

    ``planned`` counts pairs of incident and detector; ``skipped`` are workloads whose
    recordings are not there.
    """

    rows: tuple[Row, ...]
    planned: int
    skipped: tuple[str, ...] = field(default=())

    @property
    def partial(self) -> bool:
        """Whether not everything that was asked for has been measured."""
        return len(self.rows) < self.planned


def run(
    items: Sequence[Item],
    detectors: Sequence[str],
    data: Path,
    cache: ResultCache,
    *,
    workers: int = 1,
    hours: float = math.inf,
    clock: Clock,
    progress: Progress | None = None,
    wanted: Wanted = lambda item, detector: True,  # noqa: ARG005
) -> Measured:
    """Measure what the cache does not know yet.

    ``workers`` processes of joblib's current backend; after ``hours`` no further incident is
    begun. ``clock`` gives seconds that only ascend.
    """
    there = [item for item in items if item.source.available(data)]
    here = {item.workload for item in there}
    skipped = tuple(dict.fromkeys(i.workload for i in items if i.workload not in here))
    plan = [(item, [d for d in detectors if wanted(item, d)]) for item in there]
    plan = [(item, asked) for item, asked in plan if asked]
    lacking = [
        (item, missing)
        for item, asked in plan
        if (missing := [d for d in asked if result_key(item, d) not in cache.known])
    ]
    deadline = clock() + hours * 3600.0
    done = len(plan) - len(lacking)

    def tasks() -> Iterator[tuple[Item, list[str]]]:
        for item, missing in lacking:
            if clock() >= deadline:
                return
            yield item, missing

    for item, rows in _results(tasks(), data, workers):
        for one in rows:
            cache.add(result_key(item, one.detector), one)
        done += 1
        if progress is not None:
            progress(done, len(plan), item.id)
    known = [cache.known.get(result_key(item, d)) for item, asked in plan for d in asked]
    return Measured(tuple(r for r in known if r is not None), len(known), skipped)


def _results(
    tasks: Iterator[tuple[Item, list[str]]], data: Path, workers: int
) -> Iterator[tuple[Item, list[Row]]]:
    if workers == 1:
        for item, detectors in tasks:
            yield item, measure(item, detectors, data)
        return
    work = (delayed(_one)(item, detectors, data) for item, detectors in tasks)
    yield from Parallel(n_jobs=workers, return_as="generator_unordered", pre_dispatch="n_jobs")(
        work
    )


def _one(item: Item, detectors: list[str], data: Path) -> tuple[Item, list[Row]]:
    return item, measure(item, detectors, data)
