"""What an event does. Benign life and faults speak the same few words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ingest.simulate.phases import Group, Phase
from ingest.simulate.shapes import Envelope


@dataclass(frozen=True, slots=True)
class Slow:
    """Work of one group takes ``factor`` times as long on some machines (None = on all).

    ``gpu`` restricts it to one GPU of the machine.
    """

    machines: tuple[int, ...] | None
    group: Group
    factor: float
    shape: Envelope
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """The machine's processes (or one GPU's) stop working at ``at_s`` and stay in ``phase``."""

    machines: tuple[int, ...]
    at_s: float
    phase: Phase
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Halt:
    """The whole job ends; its processes go within ``stagger_s``.

    ``busy`` machines go ``busy_s`` later: they write the last checkpoint.
    """

    at_s: float
    stagger_s: float = 2.0
    busy: tuple[int, ...] = ()
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """A metric is changed on some machines: ``value * (1 + (factor-1)*a) + add*a``.

    With ``phase`` only the part of the value that stems from that phase is multiplied, and
    ``add`` is there only during that phase.
    """

    machines: tuple[int, ...]
    metric: str
    shape: Envelope
    factor: float = 1.0
    add: float = 0.0
    phase: Phase | None = None
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Observe:
    """What the agent reports goes wrong from ``start_s`` until ``end_s``; the machine does not.

    ``missing``: no value; ``frozen``: the last value again; ``zero``: 0; ``corrupt``: ``value``.
    ``metrics`` None = all of them (a row without any value is not sent).
    """

    machines: tuple[int, ...]
    kind: Literal["missing", "frozen", "zero", "corrupt"]
    start_s: float
    end_s: float
    metrics: tuple[str, ...] | None = None
    value: float = 0.0
    gpu: int | None = None


Effect = Slow | Stop | Halt | Level | Observe


def end_of(effect: Effect) -> float:
    """When the effect is over for good (`shapes.FOREVER` or later if never)."""
    match effect:
        case Slow() | Level():
            return effect.shape.end_s
        case Observe():
            return effect.end_s
        case Stop() | Halt():
            return float("inf")
