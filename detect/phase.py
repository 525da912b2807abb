"""What the whole job is doing: starting, running, idle (checkpoint, evaluation), stalled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.state import PanelState

Array = NDArray[np.float64]

START_SECONDS = 120.0
LOW = 0.3
STALL_SECONDS = 90.0
REFERENCE_SECONDS = 600.0
WORKING = frozenset({"nvlink", "network", "pcie"})
SPINS = frozenset(
    {"gpu_utilization_ratio", "gpu_graphics_engine_active_ratio", "gpu_sm_active_ratio"}
)
"""Metrics that stay high while a machine only waits in a collective."""


class JobPhase:
    """Follows the peers' centre of the metrics that show progress.

    ``activity`` is the median over those metrics of centre / usual centre, 1 = as usual. Waiting
    machines spin, so utilisation and SM activity say nothing of progress and are left out.
    """

    def __init__(self, family: Callable[[str], str], is_ratio: Callable[[str], bool]) -> None:
        self.family = family
        self.is_ratio = is_ratio
        self.state = PanelState()
        self.state.add("usual", "m", 0.0)
        self.run_seconds = 0.0
        self.low_seconds = 0.0
        self.activity = 1.0
        self._progress: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._ratio: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def reindex(self, metrics: tuple[str, ...]) -> None:
        """Follow the metrics."""
        self.state.reindex(metrics, ())
        self._configure()

    def _configure(self) -> None:
        metrics = self.state.metrics
        self._progress = np.array(
            [
                self.family(m) in WORKING or (self.family(m) == "compute" and m not in SPINS)
                for m in metrics
            ],
            np.bool_,
        )
        self._ratio = np.array([self.is_ratio(m) for m in metrics], np.bool_)

    def step(self, centre: Array, tick_seconds: float) -> None:
        """``centre`` ``[M]``: the peers' fast centre in transformed units (NaN = unknown)."""
        self.run_seconds += tick_seconds
        c = np.where(self._ratio, centre, np.sinh(np.clip(centre, -50, 50)))
        usable = self._progress & np.isfinite(c)
        if not usable.any():
            self.activity = 1.0
            return
        usual = self.state["usual"]
        gain = max(tick_seconds / REFERENCE_SECONDS, tick_seconds / (self.run_seconds + 1e-9))
        # The usual level rises at once and falls slowly: an idle phase is no new normal.
        rising = c > usual
        step = np.where(rising, min(1.0, 10 * gain), min(1.0, 0.2 * gain)) * (c - usual)
        usual = usual + np.where(usable, step, 0.0)
        self.state["usual"] = usual
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(usual > 1e-9, c / usual, np.nan)[usable]
        share = share[np.isfinite(share)]
        self.activity = float(np.median(share)) if share.size else 1.0
        self.low_seconds = self.low_seconds + tick_seconds if self.activity < LOW else 0.0

    @property
    def name(self) -> str:
        """``starting``, ``running``, ``idle`` or ``stalled``."""
        if self.run_seconds < START_SECONDS:
            return "starting"
        if self.low_seconds == 0:
            return "running"
        return "stalled" if self.low_seconds >= STALL_SECONDS else "idle"

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return {
            "usual": self.state.snapshot(),
            "run_seconds": self.run_seconds,
            "low_seconds": self.low_seconds,
            "activity": self.activity,
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.state.restore(tree["usual"])
        self.run_seconds = tree["run_seconds"]
        self.low_seconds = tree["low_seconds"]
        self.activity = tree["activity"]
        self._configure()
