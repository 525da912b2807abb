"""Which detector is measured on which incident."""

from __future__ import annotations

from dataclasses import dataclass

from replay.quality.rates import RATE_DETECTORS
from replay.quality.workloads import RATE_WORKLOAD, Item

OURS = "evidence"


@dataclass(frozen=True)
class Plan:
    """What was asked for, made whole.

    Parameters
    ----------
    asked_workloads, asked_detectors
        By name.
    whole
        The references on every incident, not only on those that are compared.
    rates
        Also our detector at the asked rates, on the recordings made for that.
    """

    asked_workloads: tuple[str, ...]
    asked_detectors: tuple[str, ...]
    whole: bool = False
    rates: bool = False

    @property
    def workloads(self) -> tuple[str, ...]:
        """All workloads."""
        return self._with(self.asked_workloads, (RATE_WORKLOAD,))

    @property
    def detectors(self) -> tuple[str, ...]:
        """All detectors."""
        return self._with(self.asked_detectors, RATE_DETECTORS)

    def _with(self, asked: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*asked, *more))) if self.rates else asked

    def wanted(self, item: Item, detector: str) -> bool:
        """Whether this result is part of the plan."""
        if item.workload not in self.asked_workloads:
            return detector in RATE_DETECTORS
        if detector not in self.asked_detectors:
            return False
        return self.whole or item.compared or detector.partition("@")[0] == OURS
