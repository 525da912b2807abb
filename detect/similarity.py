"""How unlike its peers each machine is: summed pairwise distances and their z-scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

_BLOCK = 4_000_000
"""Distances held at once."""

_FLAT = 1e-9
"""Sums that differ by less than this share of their mean differ by rounding only."""


def distance_sums(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of the Euclidean distances of each row ``[row, k]`` to all rows, ``[row]``.

    All pairs, so N² in time; memory is bounded.
    """
    rows = max(1, _BLOCK // max(len(vectors), 1))
    parts = [
        cdist(vectors[at : at + rows], vectors).sum(axis=1) for at in range(0, len(vectors), rows)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def distance_zscores(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """z-score over the rows of the summed distances, ``[row]``; higher is less like the rest.

    Minder's similarity check (arXiv 2411.01791, section 4). The deviation is that of the
    population, so one clean outlier among N rows scores ``sqrt(N - 1)`` whatever its size.
    Rows with a NaN take no part and score NaN; equal rows score 0.

    Examples
    --------
    >>> import numpy as np
    >>> distance_zscores(np.array([[0.0], [0.0], [0.0], [0.0], [9.0]])).round(6)[-1]
    np.float64(2.0)
    """
    scores = np.full(len(vectors), np.nan)
    present = np.isfinite(vectors).all(axis=1)
    if not present.any():
        return scores
    sums = distance_sums(vectors if present.all() else vectors[present])
    with np.errstate(over="ignore", invalid="ignore"):
        mean = sums.mean()
        spread = sums.std()
        flat = not spread > _FLAT * mean
        scores[present] = 0.0 if flat else (sums - mean) / spread
    return scores
