"""Arrays over metrics and rows that follow a changing roster."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class PanelState:
    """Named arrays whose last axes are metrics (``m``) and/or rows (``r``).

    Detectors keep all learned state here, so that machines joining, leaving or coming back and
    metrics appearing are handled in one place, by name, and a snapshot is complete by
    construction.
    """

    def __init__(self) -> None:
        self.metrics: tuple[str, ...] = ()
        self.rows: tuple[str, ...] = ()
        self._arrays: dict[str, Array] = {}
        self._axes: dict[str, tuple[str, Any]] = {}

    def add(
        self,
        name: str,
        axes: str,
        fill: float | bool,
        lead: tuple[int, ...] = (),
        dtype: type = np.float64,
    ) -> None:
        """Declare an array. ``axes`` is ``"mr"``, ``"m"`` or ``"r"``; ``lead`` comes before."""
        self._axes[name] = (axes, fill)
        shape = lead + tuple(len(self.metrics if a == "m" else self.rows) for a in axes)
        self._arrays[name] = np.full(shape, fill, dtype)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __setitem__(self, name: str, value: Array) -> None:
        self._arrays[name] = value

    def reindex(self, metrics: tuple[str, ...], rows: tuple[str, ...]) -> None:
        """Carry every array over to a new roster; new entries get the declared fill."""
        if metrics == self.metrics and rows == self.rows:
            return
        sources = {"m": _sources(self.metrics, metrics), "r": _sources(self.rows, rows)}
        stays = {"m": metrics == self.metrics, "r": rows == self.rows}
        for name, (axes, fill) in self._axes.items():
            array = self._arrays[name]
            for position, axis in enumerate(axes):
                if not stays[axis]:
                    array = _moved(array, sources[axis], fill, array.ndim - len(axes) + position)
            self._arrays[name] = array
        self.metrics, self.rows = metrics, rows

    def forget(self, rows: NDArray[np.bool_]) -> None:
        """Give ``rows`` ``bool [R]`` the declared fill in every array, as new ones get it."""
        for name, (axes, fill) in self._axes.items():
            if axes.endswith("r"):
                self._arrays[name][..., rows] = fill

    def snapshot(self) -> dict[str, Any]:
        """Everything, as a state tree."""
        return {
            "metrics": list(self.metrics),
            "rows": list(self.rows),
            "arrays": {k: v.copy() for k, v in self._arrays.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `snapshot`; ValueError when the arrays are not the declared ones."""
        if set(state["arrays"]) != set(self._axes):
            raise ValueError("the snapshot holds other arrays than this version keeps")
        self.metrics, self.rows = tuple(state["metrics"]), tuple(state["rows"])
        self._arrays = {k: np.array(v) for k, v in state["arrays"].items()}


def _moved(array: Array, sources: Array, fill: float | bool, axis: int) -> Array:
    """What stands at the ``sources`` along an axis; ``fill`` where these are -1."""
    new = sources < 0
    if new.all():
        shape = list(array.shape)
        shape[axis] = sources.size
        return np.full(shape, fill, array.dtype)
    moved = np.take(array, sources, axis=axis, mode="wrap")
    moved[(slice(None),) * axis + (new,)] = fill
    return moved


@lru_cache(maxsize=16)
def _sources(old: tuple[str, ...], new: tuple[str, ...]) -> NDArray[np.int64]:
    """Where each of the ``new`` names stands in ``old``, -1 if nowhere.

    Remembered, as all states of a panel ask for the same.
    """
    where = {name: i for i, name in enumerate(old)}
    return np.array([where.get(name, -1) for name in new], dtype=np.int64)
