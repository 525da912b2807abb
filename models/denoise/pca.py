"""An incremental linear autoencoder."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import IncrementalPCA

from models.denoise.protocol import DenoiserState, Windows
from models.denoise.rows import check_width, complete_rows, fixed_product, row_level

_LEARNED = (
    "components_",
    "singular_values_",
    "mean_",
    "var_",
    "explained_variance_",
    "explained_variance_ratio_",
    "noise_variance_",
    "n_samples_seen_",
    "n_components_",
)


class PcaDenoiser:
    """Projects a window on the leading principal components of healthy windows.

    The optimal linear autoencoder under squared error (Baldi & Hornik 1989), learned batch by
    batch (Ross et al. 2008, as in scikit-learn's `IncrementalPCA`). What lies outside the
    leading components is taken for noise.

    The level of a window (its mean) always passes unchanged and only the shape around it is
    projected: a level that healthy windows never had is just what a faulty machine shows, and
    must survive.

    Parameters
    ----------
    window
        Ticks in a window.
    components
        Number of shape components that are kept; fewer denoise more.
    batch_rows
        Rows a batch in `fit`.
    """

    name = "pca"
    adapts = False

    def __init__(self, window: int = 8, components: int = 2, batch_rows: int = 4096) -> None:
        self.window = window
        self.components = components
        self.batch_rows = batch_rows
        self._pca = IncrementalPCA(n_components=components)
        self.projector_: NDArray[np.float64] | None = None
        self.mean_: NDArray[np.float64] | None = None

    def fit(self, windows: Windows) -> None:
        """Learn from scratch; needs at least `components` complete rows."""
        check_width(windows, self.window)
        rows = complete_rows(windows)
        if len(rows) < self.components:
            raise ValueError(f"{len(rows)} complete windows; at least {self.components} needed")
        self._pca = IncrementalPCA(n_components=self.components)
        for batch in np.array_split(rows, max(1, len(rows) // self.batch_rows)):
            self._learn(batch)

    def partial_fit(self, windows: Windows) -> None:
        """Learn from one more batch; fewer complete rows than components are left out."""
        check_width(windows, self.window)
        rows = complete_rows(windows)
        if len(rows) >= self.components:
            self._learn(rows)

    def _learn(self, rows: Windows) -> None:
        shape = rows - row_level(rows)
        # A constant metric has no variance at all, and its explained ratio is 0/0.
        with np.errstate(invalid="ignore", divide="ignore"):
            self._pca.partial_fit(shape)
        self._set_projector()

    def _set_projector(self) -> None:
        components = np.asarray(self._pca.components_, dtype=np.float64)
        self.projector_ = components.T @ components
        self.mean_ = np.asarray(self._pca.mean_, dtype=np.float64)

    def denoise(self, windows: Windows) -> Windows:
        """Level plus the projected shape."""
        check_width(windows, self.window)
        if self.projector_ is None or self.mean_ is None:
            return windows.copy()
        level = row_level(windows)
        out = fixed_product(windows - level - self.mean_, self.projector_)
        out += self.mean_
        out += level
        return out

    def state(self) -> DenoiserState:
        """The learned attributes of the principal component analysis."""
        learned = {
            key: np.asarray(getattr(self._pca, key))
            for key in _LEARNED
            if self.projector_ is not None
        }
        return {
            "name": self.name,
            "window": self.window,
            "components": self.components,
            "learned": learned,
        }

    def restore(self, state: DenoiserState) -> None:
        """Rebuild the analysis from its learned attributes."""
        expected = (self.name, self.window, self.components)
        if (state.get("name"), state.get("window"), state.get("components")) != expected:
            raise ValueError(
                f"not a state of {self.name!r} with window {self.window} "
                f"and {self.components} components"
            )
        self._pca = IncrementalPCA(n_components=self.components)
        self.projector_ = self.mean_ = None
        learned: dict[str, NDArray[np.float64]] = state["learned"]
        if not learned:
            return
        for key in _LEARNED:
            value = learned[key]
            setattr(self._pca, key, value.item() if value.ndim == 0 else value)
        self._set_projector()
