"""One score per row from the evidence of its metrics: correlated metrics are one witness.

Within a family only the strongest metric counts, and families add up. What only the host shows
(processor, disk, TCP, memory), and what nobody knows the meaning of, counts little beyond what
the job's own work shows. A row out of step with its peers is out of step in every metric: the
shape test is one witness for all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detect.load import UNKNOWN
from detect.phase import Moment
from models.evidence_model import HOST_FAMILIES

Cells = NDArray[np.floating]
Mask = NDArray[np.bool_]

ALIKE_FAMILY = {"thermal": "power"}
HOST_ALONE = 0.8
HOST_HELD_UP = 3.0
HOST_SECONDS = 150.0
LONG_REST_SECONDS = 60.0
"""Most evidence from the host beyond what the work shows; once the job is held up, or stands still
for longer than to save its state, one more for so many seconds of that, up to the second."""
HOST_OF_WAITING = 2.0
PROCESS = frozenset({"cpu", "host_memory"})
"""Times as much then of what tells of the processes of one that was not odd before."""
USUAL_FAMILIES = 5.0
MOST_PER_FAMILY = 1.5
STEP_MOST = 2.0
FEW_FAMILIES = 2
ROLE_FAMILIES = 2
EFFORT = frozenset({"compute", "pcie", "nvlink", "network"})
"""What shows how much a machine does; power also tells how well."""
HALF_SEEN = 0.3
"""Evidence from the work that a lost process leaves while the job still seems to run."""


class Fusion:
    """What the metrics of one panel count beside each other."""

    def __init__(self) -> None:
        self.families: tuple[str, ...] = ()
        self._by_family: NDArray[np.int64] = np.zeros(0, np.int64)
        self._starts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._host: Mask = np.zeros(0, np.bool_)
        self._process: Mask = np.zeros(0, np.bool_)
        self._strange: Mask = np.zeros(0, np.bool_)
        self._work: Mask = np.zeros(0, np.bool_)
        self._effort: list[NDArray[np.int64]] = []
        """Metrics of each family in `EFFORT`."""
        self._beside: NDArray[np.int64] = np.zeros(0, np.int64)
        self._of_work: NDArray[np.int64] = np.zeros(0, np.int64)
        self._host_only = True
        self._weight = 1.0
        self.few = True
        """Whether little of the work is reported."""

    def configure(self, families: list[str], seen: Mask) -> None:
        """``families``: each metric's, length M; ``seen`` as in `weigh`."""
        names = [ALIKE_FAMILY.get(f, f) for f in families]
        order = sorted(range(len(names)), key=lambda i: (names[i], i))
        self._by_family = np.array(order, np.int64)
        ordered = [names[i] for i in order]
        self.families = tuple(dict.fromkeys(ordered))
        self._starts = np.array([ordered.index(f) for f in self.families], np.int64)
        self._host = np.array([f in HOST_FAMILIES for f in self.families], np.bool_)
        self._process = np.array([f in PROCESS for f in self.families], np.bool_)
        self._effort = [
            np.array([i for i, name in enumerate(families) if name == f], np.int64)
            for f in sorted(EFFORT.intersection(families))
        ]
        self.weigh(seen)

    def weigh(self, seen: Mask) -> None:
        """Follow which metrics have had values that could be compared, ``bool [M]``."""
        if not self.families:
            return
        reported = np.logical_or.reduceat(seen[self._by_family], self._starts)
        # Metrics without a family that anybody knows, see `detect.panel`.
        self._strange = np.array([f.startswith(UNKNOWN) for f in self.families], np.bool_)
        if not (reported & ~self._host & ~self._strange).any():
            # Where nothing else is reported they are the work.
            self._strange[:] = False
        self._work = ~self._host & ~self._strange
        work = int((reported & self._work).sum())
        self._host_only = work == 0
        metrics = np.empty(self._by_family.size, np.bool_)
        metrics[self._by_family] = np.repeat(self._work, np.diff([*self._starts, metrics.size]))
        self._beside, self._of_work = np.flatnonzero(~metrics), np.flatnonzero(metrics)
        self.few = work <= FEW_FAMILIES
        # The same event shows in fewer families where fewer are reported.
        self._weight = float(np.clip(USUAL_FAMILIES / (1 + work), 1.0, MOST_PER_FAMILY))

    def works_apart(self, apart: Mask) -> Mask:
        """Rows of another role, ``bool [R]``: they lie ``apart`` (``bool [M, R]``) for good in
        more than one kind of what shows how much a machine does.

        In synchronous training a slow machine does as much work as its peers; one that does
        less, or more, and holds nobody up has been given other work.
        """
        if not apart.any():
            return np.zeros(apart.shape[1], np.bool_)
        kinds = np.zeros(apart.shape[1], np.int64)
        for metrics in self._effort:
            kinds += apart[metrics].any(axis=0)
        return np.asarray(kinds >= ROLE_FAMILIES)

    def score(
        self,
        strongest: Cells,
        shape: Cells,
        gone: Mask | bool,
        moment: Moment,
        odd_before: Mask | bool = False,
    ) -> tuple[Cells, Cells]:
        """``[R]``, higher is worse, and what of it the host shows by itself, from the strongest
        test but the shape's and from that, ``[M, R]`` each; the first is overwritten.

        ``gone`` ``bool [R]``: rows that have lost the job's process, which their host shows;
        ``odd_before``: whose host was odd before the job became slower, or stood still.
        """
        if not self.families:
            nothing = np.zeros(strongest.shape[1])
            return nothing, nothing
        for m in self._beside.tolist():
            np.maximum(strongest[m], shape[m], out=strongest[m])
        by_family = np.maximum.reduceat(strongest[self._by_family], self._starts, axis=0)
        step = np.minimum(shape[self._of_work].max(axis=0, initial=0.0), STEP_MOST)
        host = alone = by_family[self._host].sum(axis=0)
        rest = by_family[self._work].sum(axis=0) + step
        # A busy host that holds up nothing else is somebody's cron job.
        waited = moment.slower_seconds if moment.held_up else 0.0
        if moment.stalled:
            waited = max(waited, moment.rest_seconds - LONG_REST_SECONDS)
        if waited > 0:
            # What began long before holds nobody up now.
            more = (HOST_OF_WAITING - 1.0) * by_family[self._process].sum(axis=0)
            host = host + np.where(odd_before, 0.0, more)
        if self._host_only:
            return np.asarray(host + rest), alone
        rest *= self._weight
        most = min(HOST_ALONE + waited / HOST_SECONDS, HOST_HELD_UP)
        host = host + np.minimum(by_family[self._strange].sum(axis=0), HOST_ALONE)
        if not moment.idle:
            # No job goes on without one of its processes.
            gone = gone & (rest >= HALF_SEEN)
        return np.asarray(rest + np.where(gone, host, np.minimum(host, most + rest))), alone
