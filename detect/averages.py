"""Medians over rows and averages over ticks, with missing values, at the speed of the arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[Any]
Mask = NDArray[np.bool_]

SORTED_ROWS = 2048
"""Up to here sorting all metrics in one call costs less than selecting metric by metric."""


def median(values: FloatArray, count: NDArray[Any]) -> FloatArray:
    """Median over the last axis of what is not NaN; ``count`` says how many those are."""
    n = values.shape[-1]
    if n == 0:
        return np.full(values.shape[:-1], np.nan, values.dtype)
    whole = int(count.min(initial=n)) == n
    if n > SORTED_ROWS:
        return _selected(values, np.broadcast_to(count, values.shape[:-1]))
    ordered = np.sort(values, axis=-1)  # NaN goes last
    if whole:
        return np.asarray(0.5 * (ordered[..., (n - 1) // 2] + ordered[..., n // 2]))
    count = np.broadcast_to(count, values.shape[:-1])
    flat, known = ordered.reshape(-1, n), count.reshape(-1)
    at = np.arange(known.size)
    low, high = np.maximum((known - 1) // 2, 0), known // 2
    return np.asarray(0.5 * (flat[at, low] + flat[at, high])).reshape(count.shape)


def _selected(values: FloatArray, count: NDArray[Any]) -> FloatArray:
    """One partition a row: a list of two places would cost ten times as much."""
    out = np.full(count.shape, np.nan, values.dtype)
    for at in np.ndindex(count.shape):
        known = int(count[at])
        if known == 0:
            continue
        half = known // 2
        part = np.partition(values[at], half)  # NaN goes last
        out[at] = part[half] if known % 2 else 0.5 * (part[:half].max() + part[half])
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
