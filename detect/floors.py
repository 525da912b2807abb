"""The floors that every detector must beat: never alert, and alert at random."""

from __future__ import annotations

import numpy as np

from detect.scoring import Memoryless, TickScores, TickValues

SECONDS_PER_WEEK = 604_800.0


class RandomScorer(Memoryless):
    """Accuses a random machine at a given rate; a `detect.scoring.TickScorer`.

    What happens at a tick depends on the seed, the job and the tick's time alone.

    Parameters
    ----------
    alerts_per_job_week
        Mean rate; 0 never alerts.
    seed
        Any integer from 0.
    """

    history = 0
    ordered = False

    def __init__(self, alerts_per_job_week: float, seed: int = 0, name: str = "random") -> None:
        self.alerts_per_job_week = alerts_per_job_week
        self.seed = seed
        self.name = name

    def select(self, available: tuple[str, ...]) -> tuple[str, ...]:
        """All metrics: they only serve as evidence."""
        return available

    def channels(self, metrics: tuple[str, ...]) -> tuple[str, ...]:
        """A single one."""
        return (self.name,) if metrics else ()

    def score(self, ticks: TickValues) -> TickScores:
        """Share 1 for the accused machine, 0 for everybody else."""
        channels = self.channels(ticks.metrics)
        hits = np.zeros((len(ticks.values), len(channels), len(ticks.machines)), dtype=np.bool_)
        chance = self.alerts_per_job_week * ticks.tick_ns / 1e9 / SECONDS_PER_WEEK
        if chance > 0.0 and channels and ticks.machines:
            job = list(ticks.job.encode())
            for k in range(len(hits)):
                tick = (ticks.start_ns + k * ticks.tick_ns) // ticks.tick_ns
                rng = np.random.default_rng([self.seed, tick % 2**63, *job])
                if rng.random() < chance:
                    hits[k, 0, rng.integers(len(ticks.machines))] = True
        return TickScores(hits.astype(np.float64), hits)


class NullScorer(RandomScorer):
    """Never accuses anybody."""

    def __init__(self) -> None:
        super().__init__(0.0, name="null")
