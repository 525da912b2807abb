"""Healthy peculiarities that last: how the job ends, memory that grows, metrics that lack."""

from __future__ import annotations

from ingest.simulate.effects import Effect, Halt, Level, Observe
from ingest.simulate.randomness import Key, chance, stream, uniform
from ingest.simulate.shapes import FOREVER, Envelope
from ingest.simulate.spec import JobSpec

_LONG_S = 1e6


def permanent(spec: JobSpec, seed: int) -> list[Effect]:
    """Effects that are there from the beginning, or end the job."""
    rng = stream(seed, Key.PERMANENT)
    life = spec.life
    everyone = tuple(range(spec.machines))
    out: list[Effect] = []
    if spec.end_s is not None:
        # Who cancels a job ends it everywhere; a finished one may write its last checkpoint.
        busy = (0,) if chance(rng, 0.5) else ()
        out.append(Halt(spec.end_s, uniform(rng, 0.2, 4.0), busy, uniform(rng, 5.0, 60.0)))
    if life.memory_growth_per_hour > 0:
        grown = life.memory_growth_per_hour * _LONG_S / 3600.0
        grow = Envelope((-1.0, _LONG_S), (0.0, 1.0))
        out.append(Level(everyone, "memory_usage_ratio", grow, add=grown))
    if life.lacking > 0 and len(spec.metrics) > 4:
        count = max(1, min(spec.machines - 1, round(life.lacking * spec.machines)))
        who = tuple(sorted(int(m) for m in rng.choice(spec.machines, count, replace=False)))
        names = tuple(m for m in spec.metrics if chance(rng, 0.2))
        if names:
            out.append(Observe(who, "missing", -_LONG_S, FOREVER, names))
    return out
