"""The phases a step is made of, and what moves bytes."""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """Phases in the order in which a step runs through them; most steps skip the first four.

    A step begins when the previous collective has ended, at the same moment everywhere. `WAIT`
    lasts until the slowest machine arrives; `STALL` is a host-side pause (garbage collection).
    `HANG` is no part of a step: it is where a stuck process stays.
    """

    IDLE = 0
    INIT = 1
    CHECKPOINT = 2
    EVALUATE = 3
    OPTIMISE = 4
    LOAD = 5
    STALL = 6
    COMPUTE = 7
    WAIT = 8
    COLLECTIVE = 9
    HANG = 10


STEP_PHASES: tuple[Phase, ...] = tuple(p for p in Phase if p is not Phase.HANG)


class Carrier(IntEnum):
    """Whose progress moves bytes: one unit a step, however long it takes."""

    LOAD = 0
    COMPUTE = 1
    COLLECTIVE = 2
    STEP = 3


class Group(IntEnum):
    """The kinds of work whose speed a fault can change."""

    LOAD = 0
    COMPUTE = 1
    COLLECTIVE = 2
