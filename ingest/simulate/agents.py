"""The agents that sample machines: when they do, and what their clocks say."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.simulate.cluster import Cluster
from ingest.simulate.randomness import Key, chance, stream
from ingest.simulate.spec import JobSpec

FloatArray = NDArray[np.float64]
BLOCK = 64
"""Samples are drawn in blocks of this many instants."""


class Agents:
    """One agent a machine, sampling every ``cadence_s`` at its own offset.

    Sample *j* of every machine falls within ``[j, j+1) * cadence_s`` of true time.
    """

    def __init__(
        self, spec: JobSpec, cluster: Cluster, seed: int, source: int, cadence_s: float
    ) -> None:
        rng = stream(seed, Key.AGENTS, source)
        n = spec.machines
        self.cadence_s = cadence_s
        self._seed = seed
        self._source = source
        self._cluster = cluster
        self._start_ns = spec.start_ns
        self._whole_seconds = spec.whole_second_stamps
        together = chance(rng, 0.3)  # scraped at one moment, or each on its own
        spread = 0.05 if together else 0.8
        self._phase = 0.1 * cadence_s + rng.random(n) * spread * cadence_s
        self._jitter = min(spec.jitter_s, 0.1 * cadence_s)
        self._block: tuple[int, FloatArray] | None = None

    def instants(self, first: int, last: int) -> FloatArray:
        """True times ``[T, machine]`` of samples ``first .. last-1``, of one block."""
        block = first // BLOCK
        if self._block is None or self._block[0] != block:
            rng = stream(self._seed, Key.AGENTS, self._source, block)
            shape = (BLOCK, self._cluster.clock_s.shape[0])
            # Late rather than early: an agent that was kept from running.
            late = np.minimum(rng.standard_exponential(shape) * self._jitter, 0.1 * self.cadence_s)
            self._block = (block, late)
        jitter = self._block[1][first - block * BLOCK : last - block * BLOCK]
        grid = np.arange(first, last, dtype=np.float64)[:, None] * self.cadence_s
        out: FloatArray = grid + self._phase - 0.1 * self.cadence_s + jitter
        return out

    def stamps_ns(self, at: FloatArray) -> NDArray[np.int64]:
        """What the agents' clocks say at true times ``[T, machine]``: whole milliseconds."""
        seen = at + self._cluster.clock_s + self._cluster.drift * at
        if self._whole_seconds:
            return np.floor(seen).astype(np.int64) * 1_000_000_000 + self._start_ns
        return np.rint(seen * 1000.0).astype(np.int64) * 1_000_000 + self._start_ns
