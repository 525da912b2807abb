"""What the evidence detector knows before a job starts: healthy scales and thresholds.

Learned from healthy recordings (`replay.train`) and kept as JSON; the shipped one is
``models/data/evidence.json``. A metric without an entry falls back to `DEFAULT_METRIC`, whose
noise the detector then finds in the job itself.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

FORMAT = "weaklink-evidence-model"
FORMAT_VERSION = 1


class ModelError(ValueError):
    """A model that cannot be read; the message names the file and the reason."""


HOLDS = ("hold_fast", "hold_slow", "hold_drift", "hold_level", "hold_shape")
"""`MetricScale`'s seconds of patience, one a test, in the order of `detect.residuals`."""


@dataclass(frozen=True, slots=True)
class MetricScale:
    """Healthy behaviour of one metric, in the detector's transformed units.

    Attributes
    ----------
    floor
        Smallest standard deviation that a difference to the peers is measured in.
    fleet
        Standard deviation of lasting differences between healthy machines.
    hold_fast, hold_slow, hold_drift, hold_level, hold_shape
        Seconds of full evidence which healthy machines reach about once in 200 machine-hours,
        for the three change tests, the level and the shape test. More = less trusted.
    low_counts
        How much more evidence below the peers counts than above (a cron job only adds load).
    """

    floor: float = 0.01
    fleet: float = 0.05
    hold_fast: float = 60.0
    hold_slow: float = 90.0
    hold_drift: float = 120.0
    hold_level: float = 240.0
    hold_shape: float = 75.0
    low_counts: float = 1.0

    @property
    def holds(self) -> tuple[float, ...]:
        """The holds in seconds, in the order of `HOLDS`."""
        return tuple(getattr(self, name) for name in HOLDS)


DEFAULT_METRIC = MetricScale(
    floor=0.015,
    fleet=0.02,
    hold_fast=54.0,
    hold_slow=80.0,
    hold_drift=110.0,
    hold_level=135.0,
    hold_shape=68.0,
)

_HOST = MetricScale(
    0.02,
    0.08,
    hold_fast=200.0,
    hold_slow=240.0,
    hold_drift=36000.0,
    hold_level=36000.0,
    hold_shape=250.0,
)
HOST_FAMILIES = frozenset({"cpu", "disk", "tcp", "host_memory"})
FAMILY_DEFAULTS: dict[str, MetricScale] = {
    **dict.fromkeys(HOST_FAMILIES, _HOST),
    "cpu": replace(_HOST, low_counts=1.5),
    "thermal": replace(
        DEFAULT_METRIC,
        hold_fast=110.0,
        hold_slow=160.0,
        hold_drift=220.0,
        hold_level=400.0,
        hold_shape=140.0,
    ),
}
"""Hosts live their own lives: cron, logging, checkpoints by some; alone they must last. So must
heat, which a machine's place and its fans decide; a throttled one shows in clock and power."""

_BURSTY = MetricScale(0.1, 0.3, 54.0, 80.0, 3600.0, 3600.0, 90.0, low_counts=0.3)
METRIC_DEFAULTS: dict[str, MetricScale] = {
    "pfc_tx_packets_per_second": _BURSTY,
    "pfc_rx_packets_per_second": _BURSTY,
    "ecn_marked_packets_per_second": _BURSTY,
    "cnp_tx_packets_per_second": _BURSTY,
    "cnp_rx_packets_per_second": _BURSTY,
    "ib_transmit_wait_per_second": _BURSTY,
}
"""Signs of congestion come in bursts wherever traffic meets, and too few of them are no fault."""


@dataclass(frozen=True, slots=True)
class EvidenceModel:
    """Scales per metric and the tail of the fused score of healthy machines.

    The rate at which healthy machines reach a fused score of at least *v* is
    ``n ** tail_power * exp(tail_intercept - tail_slope * v)`` an hour in a job of *n* (exponential
    tail of the peaks over a threshold; Pickands-Balkema-de Haan with shape 0). With power 1 each
    errs by itself.
    """

    name: str = "default"
    version: int = 1
    metrics: dict[str, MetricScale] = field(default_factory=dict)
    tail_intercept: float = 1.1
    tail_slope: float = 3.0
    tail_power: float = 1.0
    false_alarms_per_job_week: float = 10.0
    trained_on: dict[str, Any] = field(default_factory=dict)
    quality: dict[str, Any] = field(default_factory=dict)

    def scale(self, metric: str, family: str = "other") -> MetricScale:
        """The metric's healthy scale, or the usual one of its family."""
        given = self.metrics.get(metric) or METRIC_DEFAULTS.get(metric)
        return given or FAMILY_DEFAULTS.get(family, DEFAULT_METRIC)

    def false_alarm_rate(self, fused: float, rows: int) -> float:
        """Expected false alarms per job-week at a fused score, for a job of so many ``rows``:
        its machines, and their GPUs where these are told apart.
        """
        exponent = self.tail_intercept - self.tail_slope * fused
        return 168.0 * math.exp(min(exponent + self.tail_power * math.log(rows), 50.0))

    def threshold(self, rows: int, per_job_week: float | None = None) -> float:
        """The fused score at which a healthy job of so many ``rows`` alarms at the given rate."""
        rate = self.false_alarms_per_job_week if per_job_week is None else per_job_week
        grown = self.tail_intercept + self.tail_power * math.log(rows)
        return (grown + math.log(168.0 / rate)) / self.tail_slope

    def to_json(self) -> dict[str, Any]:
        """JSON form, with format and version."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any, origin: str) -> EvidenceModel:
        """Inverse of `to_json`; `ModelError` naming ``origin``, the key and the reason."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ModelError(f"{origin}: not an evidence model")
        if data.get("format_version") != FORMAT_VERSION:
            raise ModelError(
                f"{origin}: format_version {data.get('format_version')}, not {FORMAT_VERSION}"
            )
        fields = {k: v for k, v in data.items() if k not in ("format", "format_version")}
        try:
            metrics = {k: MetricScale(**v) for k, v in fields.pop("metrics").items()}
            model = cls(metrics=metrics, **fields)
        except (TypeError, KeyError, AttributeError) as error:
            raise ModelError(f"{origin}: {error}") from error
        _check_finite(model, origin)
        if not model.tail_slope > 0:
            raise ModelError(f"{origin}: tail_slope must be above 0")
        if not model.tail_power >= 0:
            raise ModelError(f"{origin}: tail_power must be 0 or more")
        if not model.false_alarms_per_job_week > 0:
            raise ModelError(f"{origin}: false_alarms_per_job_week must be above 0")
        return model

    def save(self, path: Path) -> None:
        """Write JSON, sorted and indented, so that versions can be compared by eye."""
        path.write_text(json.dumps(self.to_json(), indent=1, sort_keys=True) + "\n")

    @classmethod
    def load(cls, path: Path) -> EvidenceModel:
        """Read a model file; `ModelError` if it is missing or malformed."""
        try:
            data = json.loads(path.read_text())
        except OSError as error:
            raise ModelError(f"{path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path}: not JSON: {error}") from error
        return cls.from_json(data, str(path))


def _check_finite(model: EvidenceModel, origin: str) -> None:
    tail = ("tail_intercept", "tail_slope", "tail_power", "false_alarms_per_job_week")
    numbers = {name: getattr(model, name) for name in tail}
    for metric, scale in model.metrics.items():
        numbers |= {f"metrics.{metric}.{name}": value for name, value in asdict(scale).items()}
    for name, value in numbers.items():
        if not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise ModelError(f"{origin}: {name} must be a finite number")


@cache
def shipped_model() -> EvidenceModel:
    """The model in the wheel, learned from simulated healthy jobs (docs/training.md says how)."""
    resource = resources.files("models") / "data" / "evidence.json"
    return EvidenceModel.from_json(json.loads(resource.read_text()), "shipped model")
