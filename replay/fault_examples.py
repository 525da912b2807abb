"""Labelled alerts to learn fault types from, simulated once and kept as lines of JSON.

One line an incident: what was simulated, and every state of the alert that decided it. So work
on features and models does not simulate again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from detect.alert import Alert
from ingest.catalogue import Catalogue
from ingest.simulate import FAULT_MIX, Wishes
from replay.quality.measure import deciding
from replay.quality.sources import InMemory, Simulated
from replay.runner import ReplayOptions, replay_recording

MACHINES = (4, 12)
MINUTES = (8.0, 12.0)
COARSE_SHARE, COARSE_SECONDS = 0.75, 4.0
"""Most incidents are sampled more coarsely than usual: evidence is in seconds, time is saved."""
POOR_SHARE = 0.35
"""Share of the incidents from which some metrics are taken away beyond what the simulator does."""
FIRST_COLUMNS = frozenset({"ts", "job", "machine", "gpu"})


@dataclass(frozen=True, slots=True)
class Incident:
    """One simulated incident: the ``index``-th of ``seed``, of a given type or one drawn by mix."""

    seed: int
    index: int
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """What detection made of one incident.

    ``alerts`` are the states of the deciding alert, in order, if it names who is at fault; else
    empty. ``metrics`` are those that the job reported.
    """

    seed: int
    index: int
    fault: str
    outcome: str
    metrics: tuple[str, ...]
    alerts: tuple[Alert, ...]


def of_each_type(seeds: Sequence[int], incidents: int) -> list[Incident]:
    """Incidents spread over the seeds, rarer types drawn more often than they occur.

    A type's share is the root of its published one: common types are learned well, and there
    is enough of the rare ones.
    """
    types = list(FAULT_MIX)
    share = np.sqrt(list(FAULT_MIX.values()))
    order = np.random.default_rng(seeds[0]).choice(types, incidents, p=share / share.sum())
    return [
        Incident(seeds[i % len(seeds)], i // len(seeds), str(fault))
        for i, fault in enumerate(order)
    ]


def of_the_mix(seeds: Sequence[int], incidents: int) -> list[Incident]:
    """Incidents spread over the seeds, types in their published proportions."""
    return [Incident(seeds[i % len(seeds)], i // len(seeds)) for i in range(incidents)]


def simulated(incidents: Iterable[Incident], workers: int = 1) -> Iterator[Example]:
    """Simulate and detect, in the given order."""
    work = (delayed(example)(incident) for incident in incidents)
    yield from Parallel(n_jobs=workers, return_as="generator")(work)


def example(incident: Incident) -> Example:
    """One incident through the default detector."""
    rng = np.random.default_rng([incident.seed, incident.index])
    wishes = Wishes(
        fault=incident.fault or tuple(FAULT_MIX),
        machines=MACHINES,
        minutes=float(rng.uniform(*MINUTES)),
        cadence_seconds=COARSE_SECONDS if rng.random() < COARSE_SHARE else None,
    )
    catalogue = Catalogue.default()
    opened = Simulated(incident.seed, incident.index, wishes=wishes).opened(
        "example", catalogue, Path()
    )
    recording = opened.recording
    assert isinstance(recording, InMemory)
    recording, metrics = _poorer(recording, rng)
    result = replay_recording(recording, ReplayOptions(catalogue=catalogue))
    first = deciding(result)
    right = first is not None and result.score.outcome == "right"
    alerts = [
        c.alert
        for c in result.changes
        if right and first is not None and c.alert.id == first.id and c.kind != "resolved"
    ]
    return Example(
        incident.seed,
        incident.index,
        str(opened.fault_type),
        str(result.score.outcome),
        metrics,
        tuple(alerts),
    )


def _poorer(recording: InMemory, rng: np.random.Generator) -> tuple[InMemory, tuple[str, ...]]:
    """Some recordings lose some of their metrics, at least two stay."""
    names = [c for c in recording.table.column_names if c not in FIRST_COLUMNS]
    kept = names
    if rng.random() < POOR_SHARE and len(names) > 2:
        stays = rng.random(len(names)) < rng.uniform(0.3, 0.9)
        stays[rng.choice(len(names), 2, replace=False)] = True
        kept = [n for n, s in zip(names, stays, strict=True) if s]
    lost = [n for n in names if n not in kept]
    return replace(recording, table=recording.table.drop_columns(lost)), tuple(kept)


def write_line(example: Example) -> str:
    """One line of the cache, without its end."""
    return json.dumps(asdict(example), separators=(",", ":"))


def read_examples(path: Path) -> list[Example]:
    """The cache; empty if there is none."""
    if not path.exists():
        return []
    return [_example(json.loads(line)) for line in path.read_text().splitlines() if line]


def _example(data: dict[str, Any]) -> Example:
    alerts = tuple(Alert.from_tree(a) for a in data["alerts"])
    return Example(**{**data, "metrics": tuple(data["metrics"]), "alerts": alerts})
