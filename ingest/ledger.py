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


class Ledger:
    """``counters`` counts ``rows`` and every reason; ``late_by_machine`` late rows.

    `Rejected` items are one per reason and machine of a batch.
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
        self.counters[reason] += name.size
        for index in np.unique(name).tolist():
            own, machine = ts[name == index], names[index]
            late = self.late_by_machine
            if reason == "late" and (machine in late or len(late) < self._max_machines):
                late[machine] = late.get(machine, 0) + own.size
            first, last = shown(int(own.min())), shown(int(own.max()))
            stamped = first if own.size == 1 else f"{first} to {last}"
            text = f"{own.size} rows stamped {stamped}: {detail}"
            origin = f"{self.job}/{machine}"
            self._rejected.append(Rejected(reason, origin, text, rows=own.size))

    def refuse_metric(self, metric: str, limit: int) -> None:
        """A column was left out because there are too many; told once per name."""
        if metric not in self._refused_metrics and len(self._refused_metrics) < 1000:
            self._refused_metrics.add(metric)
            self.counters["too_many_metrics"] += 1
            text = f"{metric} left out: more than {limit} metrics"
            self._rejected.append(Rejected("too_many_metrics", self.job, text))

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
