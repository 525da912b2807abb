"""What became of the rows of one job that were not used: counted, and told per machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.samples import Rejected

REASONS: tuple[str, ...] = (
    "late",
    "future",
    "duplicate",
    "counter_reset",
    "bad_gpu",
    "too_many_machines",
    "too_many_metrics",
    "too_many_rows",
)

ITEMISED = 20
"""Machines named one by one per reason and batch; more of them share one summary."""


class Ledger:
    """``counters`` counts ``rows`` and every reason; ``late_by_machine`` late rows.

    `Rejected` items are one per reason and machine of a batch, or one for many machines.
    """

    def __init__(self, job: str, max_machines: int) -> None:
        self.job = job
        self.counters: dict[str, int] = dict.fromkeys(("rows", *REASONS), 0)
        self.late_by_machine: dict[str, int] = {}
        self._max_machines = max_machines
        self._rejected: list[Rejected] = []
        self._refused_metrics: set[str] = set()

    def reject(
        self,
        reason: str,
        names: Sequence[str],
        name: NDArray[np.int64],
        ts: NDArray[np.int64],
        detail: str,
    ) -> None:
        """Rows with the given index into ``names`` and time were not used."""
        if not name.size:
            return
        self.counters[reason] += name.size
        counts = np.bincount(name)
        machines = np.flatnonzero(counts).tolist()
        if reason == "late":
            for index in machines:
                self._count_late(names[index], int(counts[index]))
        if len(machines) > ITEMISED:
            few = ", ".join(names[index] for index in machines[:3])
            text = f"{name.size} rows of {len(machines)} machines ({few}, ...), stamped {_span(ts)}"
            self._rejected.append(Rejected(reason, self.job, f"{text}: {detail}", rows=name.size))
            return
        for index in machines:
            own = ts[name == index]
            origin = f"{self.job}/{names[index]}"
            text = f"{own.size} rows stamped {_span(own)}: {detail}"
            self._rejected.append(Rejected(reason, origin, text, rows=own.size))

    def refuse_metric(self, metric: str, limit: int) -> None:
        """A column was left out because there are too many; told once per name."""
        if metric not in self._refused_metrics and len(self._refused_metrics) < 1000:
            self._refused_metrics.add(metric)
            self.counters["too_many_metrics"] += 1
            text = f"{metric} left out: more than {limit} metrics"
            self._rejected.append(Rejected("too_many_metrics", self.job, text))

    def _count_late(self, machine: str, rows: int) -> None:
        late = self.late_by_machine
        if machine in late or len(late) < self._max_machines:
            late[machine] = late.get(machine, 0) + rows

    def take(self) -> list[Rejected]:
        """What was rejected since the last call."""
        out, self._rejected = self._rejected, []
        return out

    def snapshot(self) -> dict[str, Any]:
        return {
            "counters": dict(self.counters),
            "late_by_machine": dict(self.late_by_machine),
            "refused_metrics": sorted(self._refused_metrics),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.counters.update(state["counters"])
        self.late_by_machine = dict(state["late_by_machine"])
        self._refused_metrics = set(state["refused_metrics"])


def shown(ns: int) -> str:
    """Nanoseconds since the epoch as RFC 3339, to the millisecond."""
    return f"{np.datetime64(ns // 1_000_000, 'ms')}Z"


def _span(ts: NDArray[np.int64]) -> str:
    first, last = int(ts.min()), int(ts.max())
    return shown(first) if first == last else f"{shown(first)} to {shown(last)}"
