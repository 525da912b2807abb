"""Small integers for the machines of a job and for the series (machine, gpu) they send."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MACHINE_ROW = -1
"""The gpu of a machine-level row."""


class SeriesTable:
    """Codes for machines and ids for their series; both are given again once forgotten."""

    def __init__(self, max_machines: int) -> None:
        self.max_machines = max_machines
        self.names: list[str] = []
        self._codes: dict[str, int] = {}
        self._asked: list[str] | None = None
        self._answer = np.zeros(0, dtype=np.int64)
        self._free_codes: list[int] = []
        self._free_series: list[int] = []
        self._ids = np.full((0, 1), -1, dtype=np.int64)
        self.machine = np.zeros(0, dtype=np.int64)
        self.gpu = np.zeros(0, dtype=np.int64)
        self._used = 0

    @property
    def machines(self) -> int:
        """Machines known now."""
        return len(self._codes)

    @property
    def has_gpus(self) -> bool:
        """Whether any machine ever had a GPU's series."""
        return self._ids.shape[1] > 1

    @property
    def capacity(self) -> int:
        """Length of arrays that are indexed by series id."""
        return self.machine.size

    def encode(self, names: list[str]) -> NDArray[np.int64]:
        """Codes of distinct machines; -1 for a new one beyond the limit.

        The same list object is answered from memory until a machine is forgotten.
        """
        if names is self._asked:
            return self._answer
        found = list(map(self._codes.get, names))
        if None in found:
            found = [self._add(n) if c is None else c for n, c in zip(names, found, strict=True)]
        self._asked, self._answer = names, np.array(found, dtype=np.int64)
        return self._answer

    def ids(self, machine: NDArray[np.int64], gpu: NDArray[np.int64]) -> NDArray[np.int64]:
        """Series ids of rows; ``machine`` are codes, ``gpu`` is MACHINE_ROW or an index."""
        widest = int(gpu.max()) + 2
        if widest > self._ids.shape[1]:
            self._ids = _widen(self._ids, self._ids.shape[0], widest)
        found = self._ids[machine, gpu + 1]
        new = found < 0
        if int(found.min()) < 0:
            pairs = zip(machine[new].tolist(), gpu[new].tolist(), strict=True)
            for code, card in sorted(set(pairs)):
                self._ids[code, card + 1] = self._new_series(code, card)
            found = self._ids[machine, gpu + 1]
        return found

    def forget(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Drop machines; return the ids of their series, which others may get from now on."""
        if not codes.size:
            return codes
        self._asked = None
        rows = self._ids[codes]
        gone = np.sort(rows[rows >= 0])
        self._ids[codes] = -1
        for code in codes.tolist():
            del self._codes[self.names[code]]
            self.names[code] = ""
        self._free_codes.extend(codes.tolist())
        self._free_series.extend(gone.tolist())
        return gone

    def snapshot(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "free_codes": list(self._free_codes),
            "free_series": list(self._free_series),
            "ids": self._ids.copy(),
            "machine": self.machine.copy(),
            "gpu": self.gpu.copy(),
            "used": self._used,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._asked = None
        self.names = list(state["names"])
        self._free_codes = list(state["free_codes"])
        self._free_series = list(state["free_series"])
        free = set(self._free_codes)
        self._codes = {name: code for code, name in enumerate(self.names) if code not in free}
        self._ids = state["ids"].copy()
        self.machine = state["machine"].copy()
        self.gpu = state["gpu"].copy()
        self._used = state["used"]

    def _add(self, name: str) -> int:
        if len(self._codes) >= self.max_machines:
            return -1
        if self._free_codes:
            code = self._free_codes.pop()
            self.names[code] = name
        else:
            code = len(self.names)
            self.names.append(name)
            if code >= self._ids.shape[0]:
                self._ids = _widen(self._ids, max(16, 2 * code), self._ids.shape[1])
        self._codes[name] = code
        return code

    def _new_series(self, code: int, gpu: int) -> int:
        if self._free_series:
            series = self._free_series.pop()
        else:
            series = self._used
            self._used += 1
            if series >= self.machine.size:
                more = np.zeros(max(16, self.machine.size), dtype=np.int64)
                self.machine = np.concatenate([self.machine, more])
                self.gpu = np.concatenate([self.gpu, more])
        self.machine[series] = code
        self.gpu[series] = gpu
        return series


def _widen(old: NDArray[np.int64], rows: int, columns: int) -> NDArray[np.int64]:
    new = np.full((rows, columns), -1, dtype=np.int64)
    new[: old.shape[0], : old.shape[1]] = old
    return new
