"""One machine's metric against its peers: the band that the page and the report draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Band:
    """One machine's metric against its peers (the other machines of the job).

    All arrays are ``[time]`` and NaN where nothing was measured; ``low`` and ``high`` are
    the peers' 10th and 90th percentiles; ``peers`` counts those with a value.
    """

    times_ns: NDArray[np.int64]
    value: NDArray[np.float32]
    median: NDArray[np.float32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    peers: NDArray[np.int64]


def peer_band(values: NDArray[np.float32], row: int, times_ns: NDArray[np.int64]) -> Band:
    """The band around machine ``row`` of ``values`` ``[machine, time]``."""
    peers = np.delete(values, row, axis=0)
    count = np.count_nonzero(~np.isnan(peers), axis=0)
    ordered = np.sort(peers, axis=0)  # NaN last
    return Band(
        times_ns,
        values[row],
        _quantile(ordered, count, 0.5),
        _quantile(ordered, count, 0.1),
        _quantile(ordered, count, 0.9),
        count.astype(np.int64),
    )


def _quantile(
    ordered: NDArray[np.float32], count: NDArray[np.int64], q: float
) -> NDArray[np.float32]:
    """Linear interpolation between order statistics, as `numpy.nanquantile`, without its loop."""
    if ordered.shape[0] == 0:
        return np.full(count.shape, np.nan, np.float32)
    at = q * np.maximum(count - 1, 0)
    low = np.floor(at).astype(np.intp)
    high = np.minimum(low + 1, np.maximum(count - 1, 0)).astype(np.intp)
    column = np.arange(count.size)
    below, above = ordered[low, column], ordered[high, column]
    with np.errstate(invalid="ignore"):  # infinite values have no distance
        mixed = below + (above - below) * (at - low).astype(np.float32)
    return np.where(count > 0, mixed, np.float32(np.nan)).astype(np.float32)
