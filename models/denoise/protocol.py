"""The seam between window denoisers and the detectors that compare denoised windows."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Windows = NDArray[np.float64]
"""``float64 [row, window]``: each row is one window of consecutive ticks of one machine and
one normalised metric, oldest tick first."""

DenoiserState = dict[str, Any]
"""str keys; values are None, bool, int, float, str, NumPy arrays, or lists and dicts of those:
fit for `models.denoise.storage` and for a detector's snapshot."""


class Denoiser(Protocol):
    """Removes what is noise from windows of one normalised metric.

    Training calls `fit` once with mostly healthy windows of many machines and jobs. A detector
    then calls `denoise` on every tick with one row a machine, from one thread.

    `denoise` must not change its input or itself, must not look across rows (row *i* of the
    output depends on row *i* of the input alone, bit for bit, whatever the other rows are, so
    that neither the order of machines nor the cutting of batches matters), must answer a row
    that has a NaN with a row of NaN, and must answer finite rows with finite rows. Before the
    first `fit` it returns the windows as they are.

    Attributes
    ----------
    name
        The registry's name.
    window
        Number of ticks in a window.
    adapts
        True if the detector should also call `OnlineDenoiser.partial_fit` during a job.
    """

    name: str
    window: int
    adapts: bool

    def fit(self, windows: Windows) -> None:
        """Learn from ``[row, window]``; rows that have a NaN are left out.

        Forgets what was learned before. Raises ValueError when too few complete rows are left.
        """
        ...

    def denoise(self, windows: Windows) -> Windows:
        """Denoised windows, a new array of the same shape."""
        ...

    def state(self) -> DenoiserState:
        """Everything that `restore` needs to give the same output bit for bit."""
        ...

    def restore(self, state: DenoiserState) -> None:
        """Take over a `state`; raises ValueError for one of another kind or shape."""
        ...


@runtime_checkable
class OnlineDenoiser(Denoiser, Protocol):
    """A denoiser that can go on learning.

    The detector calls `partial_fit` after it has judged a tick, with the windows of machines
    that it did not flag: what was flagged is never learned.
    """

    def partial_fit(self, windows: Windows) -> None:
        """Learn from more rows on top of what is known, in bounded memory."""
        ...
