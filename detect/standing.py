"""How the machines of a job stand after one tick, and why one of them does."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from detect.explain import Explanation, explain
from detect.panel import PanelEvidence
from detect.phase import JobPhase
from ingest.catalogue import Catalogue

ODD = 0.5
"""Share of the threshold from which a machine counts as odd."""
CLEAR = 1.5
"""A machine this many times ahead of the next is named at once."""
MOSTLY_GPUS = 2.0
"""Times the score of the machine's own row from which most of its GPUs explain it better."""
FEW = 0.3
"""Share of the machines that may be named one by one."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How every machine stands after one tick; ``scores`` ``[N]``, ``present`` ``bool [N]``.

    ``rows``: what may err, machines and GPUs, the number that ``threshold`` is for.
    """

    run: int
    at_ns: int
    tick_seconds: float
    machines: tuple[str, ...]
    scores: NDArray[np.float64]
    present: NDArray[np.bool_]
    threshold: float
    rows: int
    machine_panel: PanelEvidence
    gpu_panel: PanelEvidence | None
    phase: JobPhase

    def dark(self, i: int, gpu: int | None) -> bool:
        """Whether machine ``i``, or that GPU of it, misses much of what it used to send."""
        g = self.gpu_panel
        if gpu is None or g is None:
            return bool(self.machine_panel.dark[i])
        return bool(g.dark[(g.machine == i) & (g.gpu == gpu)].all())


def explained(st: Standing, i: int, catalogue: Catalogue) -> Explanation:
    """Machine ``i``; from its worst GPU's row when few GPUs say more than the whole machine, and
    that one is named, or when most say much more, and none is.
    """
    g = st.gpu_panel
    if g is not None:
        rows = np.flatnonzero(g.machine == i)
        if rows.size:
            scores = g.score[rows]
            worst = int(rows[int(np.argmax(scores))])
            few = (scores >= 0.5 * scores.max()).sum() * 2 <= rows.size or rows.size == 1
            own = st.machine_panel.score[i]
            if few and g.score[worst] > own:
                return explain(g, worst, catalogue)
            if g.score[worst] > MOSTLY_GPUS * own:
                found = explain(g, worst, catalogue)
                evidence = tuple(replace(one, gpu=None) for one in found.evidence)
                return replace(found, gpu=None, evidence=evidence)
    return explain(st.machine_panel, i, catalogue)
