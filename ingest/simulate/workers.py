"""The workers that meet at the barrier: one a GPU, or one a machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@dataclass(slots=True)
class Workers:
    """Who works: ``machine[w]`` and ``gpu[w]`` of worker *w*.

    With one worker a machine (``gpu == -1``) a machine is split in two when one of its GPUs is
    to behave differently: the first keeps the share ``weight`` of the others, a new worker at
    the end stands for the odd GPU. ``twin[w]`` is the worker whose random work *w* shares.
    """

    machine: IntArray
    gpu: IntArray
    weight: NDArray[np.float64]
    twin: IntArray
    machines: int
    gpus_per_machine: int
    per_gpu: bool

    @classmethod
    def create(cls, machines: int, gpus_per_machine: int, per_gpu: bool) -> Workers:
        """Workers in machine order, GPUs of a machine next to each other."""
        each = gpus_per_machine if per_gpu else 1
        machine = np.repeat(np.arange(machines, dtype=np.int64), each)
        gpu = np.tile(np.arange(each, dtype=np.int64), machines) if per_gpu else machine * 0 - 1
        twin = np.arange(len(machine), dtype=np.int64)
        weight = np.full(len(machine), 1.0 / each)
        return cls(machine, gpu, weight, twin, machines, gpus_per_machine, per_gpu)

    @property
    def count(self) -> int:
        """How many workers there are."""
        return len(self.machine)

    @property
    def base(self) -> int:
        """How many there are without split-off GPUs."""
        return self.machines * (self.gpus_per_machine if self.per_gpu else 1)

    def of(self, machines: tuple[int, ...] | None, gpu: int | None = None) -> IntArray:
        """The workers of some machines (None = all), or of one GPU of theirs."""
        if machines is None:
            return np.arange(self.count, dtype=np.int64)
        who = np.asarray(machines, dtype=np.int64)
        if self.per_gpu:
            each = self.gpus_per_machine
            if gpu is not None:
                return np.asarray(who * each + gpu, dtype=np.int64)
            every: IntArray = who[:, None] * each + np.arange(each, dtype=np.int64)
            return every.ravel()
        odd: IntArray = np.arange(self.machines, self.count, dtype=np.int64)
        odd = odd[np.isin(self.machine[odd], who)]
        if gpu is None:
            return np.concatenate((who, odd))
        mine: IntArray = odd[self.gpu[odd] == gpu]
        return mine

    def split(self, machine: int, gpu: int) -> int | None:
        """Let one GPU be a worker of its own; its parent's index if one had to be made."""
        if len(self.of((machine,), gpu)):
            return None
        part = 1.0 / self.gpus_per_machine
        self.weight[machine] -= part
        self.machine = np.append(self.machine, machine)
        self.gpu = np.append(self.gpu, gpu)
        self.weight = np.append(self.weight, part)
        self.twin = np.append(self.twin, machine)
        return machine
