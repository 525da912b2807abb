"""What the job does by itself every so many steps: start, checkpoint, evaluate, new epoch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.simulate.phases import Phase
from ingest.simulate.randomness import Key, chance, stream, uniform
from ingest.simulate.spec import JobSpec
from ingest.simulate.workers import Workers

FloatArray = NDArray[np.float64]


class Habits:
    """Adds the job's own events to the nominal durations of steps, by step number."""

    def __init__(self, spec: JobSpec, workers: Workers, seed: int) -> None:
        rng = stream(seed, Key.HABITS)
        life = spec.life
        nominal = spec.step.nominal_s
        self._spec = spec
        self._workers = workers
        self._seed = seed
        self._checkpoint = _every(rng, life.checkpoint_every_s, nominal)
        self._evaluate = _every(rng, life.evaluate_every_s, nominal)
        self._epoch = _every(rng, life.epoch_every_s, nominal)
        self._restart = _every(rng, life.restart_every_s, nominal)
        n = workers.machines
        writers = max(1, round(life.checkpoint_writers * n))
        self._writers = np.zeros(n, dtype=bool)
        # Few writers are the first rank of each group: they stand at even distances.
        self._writers[(np.arange(writers) * n) // writers] = True
        self._evaluators = np.ones(n, dtype=bool)
        if n >= 4 and chance(rng, 0.2):
            self._evaluators[: max(1, n // 4)] = False
        self._uneven = uniform(rng, 0.02, 0.25)
        self._warm_up = uniform(rng, 1.3, 4.0)
        self.begin_s = 0.0 if life.start_s > 0 else -5.0 - 2.0 * nominal * float(rng.random())

    def add_to(self, work: dict[Phase, FloatArray], first: int, count: int) -> None:
        """Add what falls on the steps ``first .. first+count-1``, in place."""
        life = self._spec.life
        if first == 0 and life.start_s > 0:
            self._begin(work, 0, life.start_s)
        for step in range(max(first, 0), min(first + count, 4)):
            if life.start_s > 0:
                work[Phase.COMPUTE][step - first] *= 1.0 + (self._warm_up - 1.0) / (step + 1) ** 2
        for step in _hits(self._checkpoint, first, count):
            if life.checkpoint_blocks:
                seconds = self._varied(1, step, life.checkpoint_s, self._uneven)
                self._add(work, Phase.CHECKPOINT, step - first, seconds * self._mask(self._writers))
        for step in _hits(self._evaluate, first, count):
            seconds = self._varied(2, step, life.evaluate_s, 0.02)
            self._add(work, Phase.EVALUATE, step - first, seconds * self._mask(self._evaluators))
        for step in _hits(self._epoch, first, count):
            work[Phase.LOAD][step - first] += self._varied(3, step, life.epoch_s, 0.15)
        for step in _hits(self._restart, first, count):
            self._begin(work, step - first, max(life.start_s, 40.0), step)

    def _begin(
        self, work: dict[Phase, FloatArray], row: int, seconds: float, step: int = 0
    ) -> None:
        """All processes are new: they come up one after the other and load the model."""
        rng = stream(self._seed, Key.HABITS, 4, step)
        stagger = rng.random(self._workers.machines) * 0.25 * seconds
        self._add(work, Phase.IDLE, row, (1.0 + stagger)[self._workers.machine])
        self._add(work, Phase.INIT, row, self._varied(5, step, 0.7 * seconds, 0.12))

    def _add(
        self, work: dict[Phase, FloatArray], phase: Phase, row: int, seconds: FloatArray
    ) -> None:
        if phase not in work:
            work[phase] = np.zeros_like(work[Phase.COMPUTE])
        work[phase][row] += seconds

    def _mask(self, machines: NDArray[np.bool_]) -> FloatArray:
        return machines[self._workers.machine].astype(np.float64)

    def _varied(self, kind: int, step: int, seconds: float, spread: float) -> FloatArray:
        rng = stream(self._seed, Key.HABITS, kind, step)
        each = 1.0 + spread * (rng.random(self._workers.machines) * 2.0 - 1.0)
        all_ = 0.8 + 0.4 * rng.random()
        out: FloatArray = (seconds * all_) * each[self._workers.machine]
        return out


def _every(rng: np.random.Generator, seconds: float, nominal_s: float) -> tuple[int, int]:
    """Every how many steps, and on which of them; (0, 0) for never."""
    share = float(rng.random())
    if seconds <= 0:
        return 0, 0
    steps = max(2, round(seconds / nominal_s))
    return steps, 1 + int(share * (steps - 1))


def _hits(every: tuple[int, int], first: int, count: int) -> range:
    steps, at = every
    if steps == 0:
        return range(0)
    begin = first + (at - first) % steps
    return range(begin, first + count, steps)
