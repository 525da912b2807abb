"""The random part of steps: how much work each one is, who pauses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.simulate.randomness import Key, around_one, stream
from ingest.simulate.spec import JobSpec
from ingest.simulate.workers import Workers

FloatArray = NDArray[np.float64]
BLOCK = 64
"""Steps are drawn in blocks of this many."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Multipliers of work: ``common`` ``[step, 2]`` for everybody's compute and collective,
    ``own`` ``[step, worker]`` for each one's compute, ``tail`` for the random part of the load;
    ``pause`` in seconds."""

    common: FloatArray
    own: FloatArray
    tail: FloatArray
    pause: FloatArray


class StepLuck:
    """Draws blocks of steps; a block is the same whenever it is asked for."""

    def __init__(self, spec: JobSpec, workers: Workers, seed: int) -> None:
        self._step = spec.step
        self._seed = seed
        self._machines = workers.machines
        self._machine = workers.machine[: workers.base]
        self._per_gpu = workers.per_gpu
        self._last: tuple[int, Drawn] | None = None

    def of_block(self, block: int) -> Drawn:
        """Steps ``block * BLOCK`` to the next block, for the workers there were at first."""
        if self._last is not None and self._last[0] == block:
            return self._last[1]
        step = self._step
        rng = stream(self._seed, Key.STEPS, block)
        shape = (BLOCK, len(self._machine))
        common = around_one(rng.standard_normal((BLOCK, 2)), np.asarray([step.common, 0.03]))
        if self._per_gpu:
            # The GPUs of a machine share most of their luck: they work on the same samples.
            z = rng.standard_normal((BLOCK, self._machines))[:, self._machine]
            z = 0.95 * z + 0.3 * rng.standard_normal(shape)
        else:
            z = rng.standard_normal(shape)
        lasting = around_one(rng.standard_normal(self._machines)[self._machine], step.shift)
        tail = np.minimum(rng.standard_exponential(shape), 8.0)
        # One uniform number decides whether a pause happens and how long it is.
        often = min(0.2, step.pause_per_hour * step.nominal_s / 3600.0)
        luck = rng.random(shape)
        pause = np.where(luck < often, step.pause_s * (0.5 + luck / max(often, 1e-12)), 0.0)
        drawn = Drawn(common, around_one(z, step.imbalance) * lasting, tail, pause)
        self._last = (block, drawn)
        return drawn
