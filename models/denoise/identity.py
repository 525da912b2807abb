"""No denoising: the floor that every other denoiser has to beat."""

from __future__ import annotations

from models.denoise.protocol import DenoiserState, Windows
from models.denoise.rows import check_width


class IdentityDenoiser:
    """Returns the windows as they are.

    Examples
    --------
    >>> import numpy as np
    >>> IdentityDenoiser(window=2).denoise(np.array([[0.1, 0.2]]))
    array([[0.1, 0.2]])
    """

    name = "identity"
    adapts = False

    def __init__(self, window: int = 8) -> None:
        self.window = window

    def fit(self, windows: Windows) -> None:
        """Nothing to learn."""
        check_width(windows, self.window)

    def denoise(self, windows: Windows) -> Windows:
        """A copy."""
        check_width(windows, self.window)
        return windows.copy()

    def state(self) -> DenoiserState:
        """The window's length."""
        return {"name": self.name, "window": self.window}

    def restore(self, state: DenoiserState) -> None:
        """Check that the state is of this kind and shape."""
        if state.get("name") != self.name or state.get("window") != self.window:
            raise ValueError(f"not a state of {self.name!r} with window {self.window}")
