"""What the Minder detector has learned: metric order, limits, one denoiser a metric."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from models.denoise.protocol import Denoiser
from models.denoise.registry import from_state
from models.denoise.storage import load_state, save_state

FORMAT = "weaklink-minder-model"
FORMAT_VERSION = 1

MINDER_METRICS: tuple[str, ...] = (
    "pfc_tx_packets_per_second",
    "cpu_usage_ratio",
    "gpu_utilization_ratio",
    "gpu_power_watts",
    "gpu_graphics_engine_active_ratio",
    "gpu_tensor_active_ratio",
    "nvlink_tx_bytes_per_second",
)
"""Minder's seven metrics in the order it learned (arXiv 2411.01791): PFC transmit packets, CPU
usage, GPU duty cycle, GPU power, graphics engine, tensor cores, NVLink."""


@dataclass(frozen=True)
class MinderModel:
    """Everything that the Minder detector learns ahead of a job.

    Attributes
    ----------
    name
        Named in every alert.
    window
        Ticks in a window.
    metrics
        Used metrics, first tried first.
    limits
        Fixed ``(low, high)`` of every metric in its unit, for min-max normalisation.
    denoisers
        One trained denoiser a metric. Shared: whoever lets one adapt works on a copy.
    trained_on
        Where it comes from, and each denoiser's reconstruction error.
    """

    name: str
    window: int
    metrics: tuple[str, ...]
    limits: dict[str, tuple[float, float]]
    denoisers: dict[str, Denoiser]
    trained_on: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for metric in self.metrics:
            if metric not in self.limits or metric not in self.denoisers:
                raise ValueError(f"{self.name}: metric {metric!r} has no limits or no denoiser")
            if not self.limits[metric][1] > self.limits[metric][0]:
                raise ValueError(f"{self.name}: limits of {metric!r} must ascend")
            if self.denoisers[metric].window != self.window:
                raise ValueError(f"{self.name}: denoiser of {metric!r} has another window")

    def save(self, path: Path) -> None:
        """Write one archive of arrays and JSON; the same model gives the same bytes."""
        save_state(
            path,
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "name": self.name,
                "window": self.window,
                "metrics": list(self.metrics),
                "limits": {m: list(self.limits[m]) for m in self.metrics},
                "denoisers": {m: self.denoisers[m].state() for m in self.metrics},
                "trained_on": self.trained_on,
            },
        )

    @classmethod
    def load(cls, path: Path) -> MinderModel:
        """Read a saved model; ValueError that names the file and the reason."""
        state = load_state(path)
        if (state.get("format"), state.get("format_version")) != (FORMAT, FORMAT_VERSION):
            raise ValueError(f"{path}: not a version {FORMAT_VERSION} Minder model")
        try:
            return cls(
                name=state["name"],
                window=state["window"],
                metrics=tuple(state["metrics"]),
                limits={m: (float(v[0]), float(v[1])) for m, v in state["limits"].items()},
                denoisers={m: from_state(s) for m, s in state["denoisers"].items()},
                trained_on=state["trained_on"],
            )
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"{path}: damaged Minder model: {error!r}") from error


@cache
def shipped_minder_model() -> MinderModel:
    """The model in the wheel, trained on simulated healthy jobs.

    Its denoiser is the published one, the LSTM-VAE: Minder is the reference.
    """
    resource = resources.files("models") / "data" / "minder.npz"
    with resources.as_file(resource) as path:
        return MinderModel.load(path)
