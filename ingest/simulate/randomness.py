"""Keyed random streams: the same key gives the same numbers, whenever it is asked for.

Every consumer names what it draws (`Key`) and an index (step block, sample block, time slot), so
what is drawn depends neither on the order of calls nor on how time is cut into chunks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
FloatArray = NDArray[np.float64]


class Key(IntEnum):
    """What a stream is used for."""

    SPEC = 1
    CLUSTER = 2
    LEVELS = 3
    STEPS = 4
    SAMPLES = 5
    BENIGN = 6
    FAULT = 7
    AGENTS = 8
    INCIDENT = 9
    HEALTHY = 10
    HABITS = 11
    PERMANENT = 12


def stream(seed: int, key: Key, *index: int) -> np.random.Generator:
    """The generator of one purpose and index (PCG64 over a spawned seed sequence)."""
    sequence = np.random.SeedSequence(seed, spawn_key=(int(key), *index))
    return np.random.Generator(np.random.PCG64(sequence))


def derived_seed(seed: int, key: Key, index: int) -> int:
    """A 64-bit seed for the index-th child of ``seed``."""
    sequence = np.random.SeedSequence(seed, spawn_key=(int(key), index))
    return int(sequence.generate_state(1, np.uint64)[0])


def rounded(value: float) -> float:
    """Six significant digits: hides the last-bit differences of platforms' math libraries."""
    return float(f"{value:.6g}")


def around_one(z: FloatArray, sigma: FloatArray | float) -> FloatArray:
    """Multipliers around 1 with relative deviation ``sigma`` from standard normal ``z``.

    The first terms of exp(z sigma): always positive, and the same bits on every platform.
    """
    x = np.clip(z, -4.0, 4.0) * sigma
    out: FloatArray = 1.0 + x + 0.5 * x * x
    return out


def uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A uniform draw, rounded to six digits."""
    return rounded(low + (high - low) * rng.random())


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A draw that is uniform in the logarithm, rounded to six digits."""
    return rounded(low * math.exp(math.log(high / low) * rng.random()))


def chance(rng: np.random.Generator, probability: float) -> bool:
    """True with the given probability."""
    return bool(rng.random() < probability)


def choice(rng: np.random.Generator, options: Sequence[T], weights: Sequence[float]) -> T:
    """One of ``options`` with the given weights (any positive sum)."""
    mark = rng.random() * math.fsum(weights)
    for option, weight in zip(options, weights, strict=True):
        mark -= weight
        if mark < 0:
            return option
    return options[-1]
