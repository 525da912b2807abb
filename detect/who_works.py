"""Which machines' GPUs work, which rest, and which have none: who takes part in the job."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from detect.residuals import FAST, SCALE_END, Residuals
from detect.state import PanelState

Mask = NDArray[np.bool_]

WORKS = (frozenset({"compute", "nvlink"}), frozenset({"power"}), frozenset({"network"}))
"""What tells whether a row's GPUs work; where nothing of it is known, the next."""
RESTS = 0.15
RESTING = {"power": 0.5}
"""Share of the peers' middle up to which that is nothing,"""
LEAST_WORK = 0.01
"""if so much of the metric's own magnitude is more."""
AT_LEAST = 1.25
"""Times the least that a row ever drew up to which its power may be that of rest: one that is held
down, and still follows the job's ups and downs, works."""


class WhoWorks:
    """Looks at the machines of one panel; GPUs by themselves are not asked."""

    def __init__(self, family: Callable[[str], str], scope: Callable[[str], str]) -> None:
        self.family = family
        self.scope = scope
        self.state = PanelState()
        self.state.add("rests", "r", False, dtype=np.bool_)
        self.state.add("works", "r", False, dtype=np.bool_)
        self.state.add("worked", "r", False, dtype=np.bool_)
        self.state.add("aside", "r", False, dtype=np.bool_)
        self.state.add("most", "mr", -np.inf)
        self.state.add("least", "mr", np.inf)
        self._works: list[list[int]] = []
        self._of_gpus: NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def rests(self) -> Mask:
        """``bool [R]``: its GPUs do next to nothing of what the peers' do."""
        return self.state["rests"]

    @property
    def works(self) -> Mask:
        """``bool [R]``: its GPUs visibly work."""
        return self.state["works"]

    @property
    def worked(self) -> Mask:
        """``bool [R]``: of those that rest, who has done as much as is work for its peers now."""
        return self.state["worked"]

    @property
    def aside(self) -> Mask:
        """``bool [R]``: has no GPUs, as most have."""
        return self.state["aside"]

    def reindex(self, metrics: tuple[str, ...], rows: tuple[str, ...]) -> None:
        """Follow the roster."""
        self.state.reindex(metrics, rows)
        families = [self.family(m) for m in metrics]
        self._works = [[i for i, f in enumerate(families) if f in works] for works in WORKS]
        self._of_gpus = np.flatnonzero([self.scope(m) == "gpu" for m in metrics])

    def look(
        self, r: Residuals, residuals: PanelState, raw: NDArray[np.float64], had: Mask
    ) -> None:
        """One look: ``residuals`` is the state that ``r`` came from, ``raw`` ``[M, R]`` short means
        in canonical units, ``had`` ``bool [M, R]`` what was ever sent.
        """
        s = self.state
        np.fmax(s["most"], raw, out=s["most"])
        np.fmin(s["least"], raw, out=s["least"])
        known, busy, worked = (np.zeros(r.valid.shape[1], np.bool_) for _ in range(3))
        for metrics in self._works:
            unknown = ~known
            for m in metrics:
                share = RESTING.get(self.family(s.metrics[m]), RESTS)
                limit = share * np.sinh(min(r.centre[m], SCALE_END))
                if limit >= LEAST_WORK:
                    told = r.valid[m] & unknown
                    known |= told
                    more = residuals["y"][FAST, m] > np.arcsinh(limit)
                    if self.family(s.metrics[m]) in RESTING:
                        more |= raw[m] > AT_LEAST * s["least"][m]
                    busy |= told & more
                    worked |= told & (s["most"][m] > limit * residuals["ref"][m])
        # Where most rest it is the job that does.
        s["rests"], s["works"], s["worked"] = _fewer(known & ~busy), busy, worked
        # Who never sent anything of a GPU, as most have, is another kind of machine.
        s["aside"] = _fewer(np.asarray(~had[self._of_gpus].any(axis=0)))


def _fewer(rows: Mask) -> Mask:
    """``rows`` ``bool [R]`` if these are fewer than half, else none."""
    return np.asarray(rows & (2 * np.count_nonzero(rows) < rows.size))
