"""Arithmetic on window rows whose rounding does not depend on the batch.

A BLAS product may round a row differently in a batch of another size, which the denoiser
contract forbids. A window is a handful of ticks, so fixed loops over it cost little.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models.denoise.protocol import Windows


def check_width(windows: Windows, window: int) -> None:
    """Raise ValueError unless `windows` is ``[row, window]``."""
    if windows.ndim != 2 or windows.shape[1] != window:
        raise ValueError(f"windows must have shape [row, {window}], not {list(windows.shape)}")


def complete_rows(windows: Windows) -> Windows:
    """The rows without NaN or infinity."""
    kept: Windows = windows[np.isfinite(windows).all(axis=1)]
    return kept


def fixed_product(rows: NDArray[np.float64], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """``rows [R, K] @ matrix [K, J]``, summed over K in one fixed order."""
    out: NDArray[np.float64] = rows[:, :1] * matrix[0]
    for k in range(1, matrix.shape[0]):
        out += rows[:, k : k + 1] * matrix[k]
    return out


def row_level(rows: Windows) -> Windows:
    """Mean of each row, ``[row, 1]``, summed in one fixed order."""
    total = rows[:, :1].copy()
    for k in range(1, rows.shape[1]):
        total += rows[:, k : k + 1]
    total /= rows.shape[1]
    return total
