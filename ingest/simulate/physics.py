"""From time in phases and work done to the true value of each metric on each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.simulate.cluster import Cluster
from ingest.simulate.effects import Level
from ingest.simulate.levels import Levels
from ingest.simulate.metrics import INDEX, METRICS
from ingest.simulate.phases import Carrier, Phase
from ingest.simulate.workers import Workers

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shares:
    """How rows spent an interval: ``phase[p]`` is a share of the time ``[T, R]``, ``rate[c]``
    the progress of a carrier in steps per second ``[T, R]``. ``odd[machine, gpu]`` has the
    shares ``[T]`` of a GPU that a machine's row contains but that behaves differently."""

    phase: dict[Phase, FloatArray]
    rate: FloatArray
    odd: dict[tuple[int, int], dict[Phase, FloatArray]]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows a source reports: one a machine, or one a GPU (``gpu`` = -1 for machines)."""

    machine: NDArray[np.int64]
    gpu: NDArray[np.int64]
    gpus_per_machine: int

    @property
    def per_gpu(self) -> bool:
        """Whether a row is one GPU."""
        return bool(self.gpu[0] >= 0)

    def of(self, machines: tuple[int, ...], gpu: int | None) -> NDArray[np.int64]:
        """The rows that an event on some machines (or one GPU of theirs) touches."""
        who = np.asarray(machines, dtype=np.int64)
        if not self.per_gpu:
            return who
        each = self.gpus_per_machine
        if gpu is not None:
            return who * each + gpu
        return (who[:, None] * each + np.arange(each)).ravel()

    def weight(self, gpu: int | None) -> float:
        """The part of a row that one GPU is."""
        return 1.0 if gpu is None or self.per_gpu else 1.0 / self.gpus_per_machine


def to_rows(values: FloatArray, workers: Workers, per_gpu: bool) -> FloatArray:
    """Values of workers ``[..., R]`` as means over machines, or as they are for GPUs."""
    if per_gpu or (not workers.per_gpu and workers.count == workers.machines):
        return values
    if not workers.per_gpu:
        n = workers.machines
        out = values[..., :n] * workers.weight[:n]
        for extra in range(n, workers.count):
            out[..., workers.machine[extra]] += values[..., extra] * workers.weight[extra]
        return out
    each = workers.gpus_per_machine
    total = values[..., 0::each]
    for gpu in range(1, each):
        total = total + values[..., gpu::each]
    return total / each


class Physics:
    """Evaluates metrics for the rows of one source."""

    def __init__(self, levels: Levels, cluster: Cluster, rows: Rows) -> None:
        machine = rows.machine
        factor = cluster.factor[:, machine]
        if rows.per_gpu:
            factor = factor * cluster.gpu_factor[:, machine, rows.gpu]
        self.factor: FloatArray = factor
        self.rows = rows
        self._extra = cluster.extra[:, machine]
        self._compute = cluster.compute_factor[:, machine]
        self._levels = levels
        self.ambient: FloatArray = cluster.ambient[machine]

    def value(
        self, name: str, shares: Shares, effects: list[Level], begin: FloatArray, end: FloatArray
    ) -> FloatArray:
        """One metric ``[T, R]`` over the intervals from ``begin`` to ``end`` (``[T, R]``)."""
        i = INDEX[name]
        total = np.zeros(end.shape)
        for phase, share in shares.phase.items():
            level = self._levels.level[i, phase]
            if level:
                scale = level * self.factor[i]
                if phase is Phase.COMPUTE:
                    scale = scale * self._compute[i]
                total += share * scale
        for carrier in Carrier:
            flow = self._levels.flow[i, carrier]
            if flow:
                total += shares.rate[carrier] * (flow * self.factor[i])
        total += self._levels.base[i] * self.factor[i] + self._extra[i]
        for effect in effects:
            self._apply(total, i, effect, shares, begin, end)
        return total

    def _apply(
        self,
        total: FloatArray,
        i: int,
        effect: Level,
        shares: Shares,
        begin: FloatArray,
        end: FloatArray,
    ) -> None:
        rows = self.rows.of(effect.machines, effect.gpu)
        if not len(rows):
            return
        b, e = begin[:, rows], end[:, rows]
        strength = (effect.shape.integral(e) - effect.shape.integral(b)) / (e - b)
        if not strength.any():
            return
        weight = self.rows.weight(effect.gpu if METRICS[i].scope == "gpu" else None)
        part = total[:, rows]
        add: float | FloatArray = effect.add
        if effect.phase is not None:
            share = self._share(shares, effect, rows, e.shape)
            part = share * (self._levels.level[i, effect.phase] * self.factor[i, rows])
            if effect.phase is Phase.COMPUTE:
                part = part * self._compute[i, rows]
            add = effect.add * share
        total[:, rows] += weight * strength * (part * (effect.factor - 1.0) + add)

    def _share(
        self, shares: Shares, effect: Level, rows: NDArray[np.int64], shape: tuple[int, ...]
    ) -> FloatArray:
        """The share of the event's phase on the rows it touches, or of the one odd GPU there."""
        assert effect.phase is not None
        if effect.gpu is not None and not self.rows.per_gpu:
            odd = [shares.odd.get((m, effect.gpu), {}) for m in effect.machines]
            if all(effect.phase in o for o in odd):
                return np.stack([o[effect.phase] for o in odd], axis=1)
        share = shares.phase.get(effect.phase)
        return np.zeros(shape) if share is None else share[:, rows]
