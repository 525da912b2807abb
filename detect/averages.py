"""Medians over rows and averages over ticks, with missing values, at the speed of the arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[Any]
Mask = NDArray[np.bool_]

SORTED_ROWS, SORTED_GAPPY_ROWS = 1024, 2048
"""Up to here sorting whole rows costs less than selecting their middle; rows with gaps, whose
middles lie at different places, longer."""


def median(values: FloatArray, count: NDArray[Any]) -> FloatArray:
    """Median over the last axis of what is not NaN; ``count`` says how many those are."""
    n = values.shape[-1]
    if n == 0:
        return np.full(values.shape[:-1], np.nan, values.dtype)
    whole = int(count.min(initial=n)) == n
    if whole and n > SORTED_ROWS:
        return _selected(values, n)
    if n > SORTED_GAPPY_ROWS:
        return _by_count(values, np.broadcast_to(count, values.shape[:-1]))
    ordered = np.sort(values, axis=-1)  # NaN goes last
    if whole:
        return np.asarray(0.5 * (ordered[..., (n - 1) // 2] + ordered[..., n // 2]))
    count = np.broadcast_to(count, values.shape[:-1])
    flat, known = ordered.reshape(-1, n), count.reshape(-1)
    at = np.arange(known.size)
    low, high = np.maximum((known - 1) // 2, 0), known // 2
    return np.asarray(0.5 * (flat[at, low] + flat[at, high])).reshape(count.shape)


def _selected(values: FloatArray, known: int) -> FloatArray:
    """Median of the smallest ``known`` of each row: two places would cost five times as much."""
    half = known // 2
    part = np.partition(values, half, axis=-1)  # NaN goes last
    upper = part[..., half]
    return np.asarray(upper if known % 2 else 0.5 * (part[..., :half].max(axis=-1) + upper))


def _by_count(values: FloatArray, count: NDArray[Any]) -> FloatArray:
    """As many rows at once as have as many values."""
    out = np.full(count.shape, np.nan, values.dtype)
    for known in set(count.reshape(-1).tolist()) - {0}:
        rows = count == known
        out[rows] = _selected(values[rows], known)
    return out


def follow(
    average: FloatArray, value: FloatArray, gain: Any, known: Mask, every: bool
) -> FloatArray:
    """Move an exponential ``average`` in place towards ``value`` where that is ``known``.

    A NaN average starts at the first known value. ``known`` covers the last two axes, ``every``
    says that it is all true. Returns the average.
    """
    first = np.isnan(average[0] if average.ndim > known.ndim else average)
    first &= known
    step = np.subtract(value, average)
    step *= gain
    if not every:
        np.copyto(step, 0.0, where=~known)
    average += step
    if first.any():
        np.copyto(average, value, where=first)
    return average
