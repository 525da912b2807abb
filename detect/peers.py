"""A machine beside its peers: evidence rows, and medians that know about gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from detect.alert import Direction, Evidence

LOW_PERCENTILE = 10.0
HIGH_PERCENTILE = 90.0


def masked_median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Median over the last axis without NaN; NaN where nothing is left.

    Like `numpy.nanmedian`, which warns about the empty case that is normal here.
    """
    count = np.isfinite(values).sum(axis=-1)
    ordered = np.sort(np.where(np.isfinite(values), values, np.inf), axis=-1)
    low = np.maximum((count - 1) // 2, 0)[..., None]
    high = np.minimum(count // 2, values.shape[-1] - 1)[..., None]
    middle = 0.5 * np.take_along_axis(ordered, low, -1)[..., 0]
    middle += 0.5 * np.take_along_axis(ordered, high, -1)[..., 0]
    return np.where(count > 0, middle, np.nan)


def compare_with_peers(
    metric: str,
    unit: str,
    values: NDArray[np.float64],
    row: int,
    *,
    since_ns: int,
    share: float,
    gpu: int | None = None,
) -> Evidence:
    """The evidence row of one metric.

    Parameters
    ----------
    metric, unit
        What is compared.
    values
        ``float64 [row]`` of all comparable rows at detection; NaN = missing.
    row
        The accused row. The peers are all others that have a value.
    since_ns
        Event time since which the difference holds.
    share
        Part of the score, 0..1.
    """
    value = float(values[row])
    others = np.delete(values, row)
    others = others[np.isfinite(others)]
    low = median = high = None
    if len(others):
        low, median, high = (
            float(q) for q in np.percentile(others, [LOW_PERCENTILE, 50.0, HIGH_PERCENTILE])
        )
    direction: Direction = "high"
    if not np.isfinite(value):
        direction = "missing"
    elif median is not None and value < median:
        direction = "low"
    return Evidence(
        metric=metric,
        unit=unit,
        value=value if np.isfinite(value) else None,
        peer_median=median,
        peer_low=low,
        peer_high=high,
        direction=direction,
        since_ns=since_ns,
        share=share,
        gpu=gpu,
    )


def largest_differences(
    metrics: Sequence[str],
    units: Sequence[str],
    values: NDArray[np.float64],
    row: int,
    *,
    since_ns: int,
    most: int = 3,
) -> tuple[Evidence, ...]:
    """Evidence rows of the metrics that differ most from the peers, strongest first.

    ``values`` is ``float64 [metric, row]``. A difference counts in units of the peers' range
    between the 10th and the 90th percentile, at least a thousandth of their median.
    """
    rows = [
        compare_with_peers(m, u, v, row, since_ns=since_ns, share=0.0)
        for m, u, v in zip(metrics, units, values, strict=True)
    ]
    sizes = [(_difference(r), r) for r in rows]
    sizes = sorted((s for s in sizes if s[0] > 0.0), key=lambda s: -s[0])[:most]
    total = sum(size for size, _ in sizes)
    return tuple(replace(r, share=size / total) for size, r in sizes)


def _difference(row: Evidence) -> float:
    """Distance from the peers' median in widths of their band; 0 if it cannot be told."""
    if row.value is None or row.peer_median is None:
        return 0.0
    assert row.peer_low is not None
    assert row.peer_high is not None
    width = max(row.peer_high - row.peer_low, 1e-3 * abs(row.peer_median), 1e-12)
    return min(abs(row.value - row.peer_median) / width, 1e6)
