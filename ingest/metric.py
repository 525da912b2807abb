"""What a metric is and what a column or series name means: the catalogue's two record types."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ingest.samples import COUNTER_SUFFIX

Kind = Literal["gauge", "counter"]
MetricScope = Literal["gpu", "machine", "port"]
Blank = Literal["dcgm", "none"]
Fold = Literal["mean", "sum", "max"]
Family = Literal[
    "compute", "power", "thermal", "clock", "memory", "pcie", "nvlink", "network", "cpu",
    "host_memory", "disk", "tcp", "step", "error", "other",
]  # fmt: skip
"""Metrics of one family move together and are one witness in detection."""


class CatalogueError(ValueError):
    """A catalogue entry that cannot be used; the message is one line naming key and reason."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One canonical metric.

    Attributes
    ----------
    unit
        SI unit as shown to people: ``W``, ``ratio`` (0..1), ``Hz``, ``°C``, ``B``, ``B/s``,
        ``1/s``, ``s``, ``1`` (a count), ``code``; empty when unknown.
    kind
        ``gauge``: a value or rate as it stands. ``counter``: whatever column the metric comes
        from is a monotonic count, and detection sees its increase per second.
    scope
        What one series belongs to; the series of a machine's ports are folded into the machine.
    family
        See `Family`.
    lower, upper
        Physical limits in `unit` (of the rate, when a column is a counter): what lies beyond is
        a corrupt read.
    blank
        ``dcgm``: DCGM's blank sentinels are missing values. ``none``: every number counts.
    fold
        How several series of one (machine, gpu, instant) become one value.
    sticky
        The value is a last event's code that stays: an event happens only when it changes.
    saturating
        Some sources count in 32 bits and stop at the maximum, which then means "unknown".
    known
        False for a name that is not in the catalogue.
    """

    name: str
    unit: str = ""
    kind: Kind = "gauge"
    scope: MetricScope = "machine"
    family: Family = "other"
    lower: float = -math.inf
    upper: float = math.inf
    blank: Blank = "dcgm"
    fold: Fold = "mean"
    sticky: bool = False
    saturating: bool = False
    known: bool = True

    @property
    def seen_unit(self) -> str:
        """Unit of what detection sees: a counter arrives there as its rate."""
        return f"{self.unit}/s" if self.kind == "counter" else self.unit


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a column means: ``canonical = factor * raw + offset`` in `Metric.unit`.

    Attributes
    ----------
    counter
        The column is a monotonic counter; alignment turns it into a rate.
    rank
        Preference among columns of the same metric: 0 for the canonical name itself, then the
        order of the catalogue. Lower wins.
    part
        Columns of the same metric with the same non-empty ``part`` are parts of a whole and
        add up.
    per
        Name of the column by which the raw value is divided first, or empty.
    several
        Several series of one machine are always folded into its value (ports, disks, CPUs).
    over
        Label whose number of values divides the sum of a metric's series, or empty.
    where
        ``(label, pattern, wanted)``: a series counts only if each label it has matches its
        pattern in full (or does not, when not wanted). A missing label never excludes.
    """

    metric: Metric
    factor: float = 1.0
    offset: float = 0.0
    counter: bool = False
    rank: int = 0
    part: str = ""
    per: str = ""
    over: str = ""
    several: bool = False
    where: tuple[tuple[str, re.Pattern[str], bool], ...] = ()

    def column(self) -> str:
        """Name of the batch column that takes the value."""
        return self.metric.name + (COUNTER_SUFFIX if self.counter else "")

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels belongs to the metric."""
        return all(
            (pattern.fullmatch(labels[label]) is not None) is wanted
            for label, pattern, wanted in self.where
            if label in labels
        )
