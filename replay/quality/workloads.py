"""Versioned workloads with permanent ids.

A change of any incident of a workload is a new version of it: results of different versions are
never compared. Seeds 101 to 199 were used while the detectors were developed; reported
workloads use seeds from 7001 on, on which nothing was tuned. ``ci`` runs with every change, so
whoever works on a detector sees it: it guards and is not reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ingest.simulate import FAULT_MIX, HARD_SETS, Wishes
from replay.quality.sources import Injected, Kind, Recorded, Simulated, Source

FIRST_REPORTED_SEED = 7001
HARD_SEEDS = {name: 7201 + i for i, name in enumerate(HARD_SETS)}
HARD_COUNTS = {"bad_telemetry": 120, "small": 60}
USUAL_COUNT = 40
COMPARED_EVERY = {
    **dict.fromkeys(HARD_SETS, 2),
    "healthy": 5,
    "small": 3,
    "bad_telemetry": 6,
}
"""The references cost more than they tell: they are measured on every so-manieth incident of a
workload (default: on all), and every comparison is made on those alone."""

POWER_FOLDER = "mlperf-v4.0-smc-ac-power-unet3d-9"
POWER_RUNS = (
    *(f"0510051637692552791_{run:02d}" for run in (1, 2, 3, 4)),
    *(f"0510075404079675430_{run:02d}" for run in (1, 2)),
)
PERSEUS_A = tuple(
    f"perseus-a/host{host}-day{day}-{what}"
    for host, day, what in (
        *((h, 0, "healthy") for h in ("01", "05", "09", "13", "17", "21", "29")),
        *((h, d, "slow1") for h in ("22", "25") for d in (0, 1)),
    )
)
PERSEUS_C = tuple(f"perseus-c/host{host}-day0-slow2" for host in ("02", "21", "24"))


@dataclass(frozen=True, slots=True)
class Item:
    """One incident of a workload; its id never changes its meaning.

    ``compared``: it is one of those on which the reference detectors are measured too.
    """

    workload: str
    version: int
    key: str
    source: Source
    compared: bool = True

    @property
    def id(self) -> str:
        """``workload/version/key``."""
        return f"{self.workload}/{self.version}/{self.key}"


@dataclass(frozen=True, slots=True)
class Workload:
    """A named list of incidents."""

    name: str
    version: int
    about: str
    items: tuple[Item, ...]

    @property
    def compared(self) -> str:
        """On which of the incidents detectors are compared, in words."""
        every = COMPARED_EVERY.get(self.name, 1)
        if every == 1:
            return "all incidents"
        count = sum(item.compared for item in self.items)
        return f"{count} of {len(self.items)} incidents: the first and every {every}th after it"


def _simulated(
    seed: int, count: int, *, healthy: bool = False, wishes: Sequence[Wishes] = ()
) -> list[tuple[str, Source]]:
    """Incidents 0 … of a seed; ``wishes`` are taken in turn."""
    letter = "h" if healthy else "f"
    return [
        (
            f"{letter}{seed}-{i:04d}",
            Simulated(seed, i, healthy, wishes[i % len(wishes)] if wishes else None),
        )
        for i in range(count)
    ]


def _made(name: str, version: int, about: str, items: Sequence[tuple[str, Source]]) -> Workload:
    every = COMPARED_EVERY.get(name, 1)
    return Workload(
        name,
        version,
        about,
        tuple(
            Item(name, version, key, source, compared=i % every == 0)
            for i, (key, source) in enumerate(items)
        ),
    )


def _hard(name: str) -> Workload:
    wishes = HARD_SETS[name]
    if wishes.per_gpu:
        # Eight rows a machine: a few dozen machines say as much as hundreds.
        wishes = replace(wishes, machines=(3, 64))
    count = HARD_COUNTS.get(name, USUAL_COUNT)
    about = f"the simulator's hard set `{name}`, seed {HARD_SEEDS[name]}"
    return _made(name, 1, about, _simulated(HARD_SEEDS[name], count, wishes=[wishes]))


def _power() -> list[tuple[str, Source]]:
    items: list[tuple[str, Source]] = []
    kinds: tuple[Kind, ...] = ("none", *(("dip", "drift") * 4))
    for run in POWER_RUNS:
        for kind in kinds:
            index = len(items)
            key = f"{run}-{kind}-{index:02d}"
            items.append((key, Injected(f"{POWER_FOLDER}/{run}", kind, 7301, index)))
    return items


def _real() -> list[tuple[str, Source]]:
    power = [f"{POWER_FOLDER}/{run}" for run in POWER_RUNS]
    return [(path, Recorded(path)) for path in (*PERSEUS_A, *PERSEUS_C, *power)]


_EVERY_TYPE = [Wishes(fault=t) for t in FAULT_MIX]
_LARGE = Wishes(machines=(201, 1500), minutes=30.0)
_DAY = Wishes(machines=(3, 48), minutes=1440.0, cadence_seconds=10.0, per_gpu=False)
_CI = Wishes(machines=(3, 24), minutes=30.0, cadence_seconds=1.0, per_gpu=False)
_CI_TYPES = [replace(_CI, fault=t, machines=(6, 24)) for t in FAULT_MIX]

WORKLOADS: dict[str, Workload] = {
    w.name: w
    for w in (
        _made(
            "core",
            1,
            "240 incidents in the published mix (3 to 200 machines, seed 7001), four of each of "
            "15 types (seed 7002), 24 jobs of 201 to 1,500 machines (seed 7003)",
            [
                *_simulated(7001, 240),
                *_simulated(7002, 60, wishes=_EVERY_TYPE),
                *_simulated(7003, 24, wishes=[_LARGE]),
            ],
        ),
        _made(
            "healthy",
            1,
            "520 healthy jobs of an hour (3 to 200 machines, seed 7101) and 16 half hours of 201 "
            "to 1,500 machines (seed 7102)",
            [
                *_simulated(7101, 520, healthy=True, wishes=[Wishes(minutes=60.0)]),
                *_simulated(7102, 16, healthy=True, wishes=[_LARGE]),
            ],
        ),
        _made("real", 1, "disks of storage hosts and power of completed training runs", _real()),
        _made(
            "power-injected",
            1,
            "real power traces of healthy runs, repeated to fill 25 minutes, with a dip or a slow "
            "drift of one machine put in (seed 7301)",
            _power(),
        ),
        *(_hard(name) for name in HARD_SETS),
        _made(
            "healthy-long",
            1,
            "60 healthy jobs of a day, sampled every 10 s (3 to 48 machines, seed 7103), for the "
            "stated false-alarm rate",
            _simulated(7103, 60, healthy=True, wishes=[_DAY]),
        ),
        _made(
            "ci",
            1,
            "18 faulty and 8 healthy half hours of 3 to 24 machines (seeds 6001, 6002); watched "
            "during development, so not reported",
            [
                *_simulated(6001, 18, wishes=[*_CI_TYPES, _CI, _CI, _CI]),
                *_simulated(6002, 8, healthy=True, wishes=[_CI]),
            ],
        ),
        _made(
            "smoke",
            1,
            "4 faulty and 2 healthy half hours for the benchmark's own test (seeds 6003, 6004)",
            [
                *_simulated(6003, 4, wishes=[replace(_CI, machines=8, fault="ecc_error")]),
                *_simulated(6004, 2, healthy=True, wishes=[replace(_CI, machines=8)]),
            ],
        ),
    )
}
"""All workloads by name."""

RATE_WORKLOAD = "healthy-long"
"""Where the stated false-alarm rate is checked."""

REPORTED: tuple[str, ...] = tuple(n for n in WORKLOADS if n not in ("ci", "smoke", RATE_WORKLOAD))
"""What a full run measures, beside the rates."""


def interleaved(workloads: Sequence[Workload]) -> list[Item]:
    """All items, every workload spread evenly, so that a run cut short has seen some of each.

    Those on which detectors are compared come first: they tell most.
    """
    placed = [
        (not item.compared, (i + 0.5) / len(w.items), w.name, i, item)
        for w in workloads
        for i, item in enumerate(w.items)
    ]
    return [item for *_, item in sorted(placed, key=lambda p: p[:4])]
