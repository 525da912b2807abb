"""Which rows of the blocks a reference detector looks at, across roster changes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from detect.scoring import TickScorer
from ingest.ticks import TickBlock

Change = Literal["none", "roster", "gap", "restart"]


class Selection:
    """Follows run, cadence, roster and continuity of a job's blocks.

    Attributes
    ----------
    metrics, machines
        What is selected now: metrics in the scorer's order, machines of the block.
    next_ns
        End of the last block.
    """

    def __init__(self) -> None:
        self.metrics: tuple[str, ...] = ()
        self.machines: tuple[str, ...] = ()
        self.next_ns = 0
        self._source: NDArray[np.int64] = np.zeros(0, np.int64)
        self._key: tuple[int, int, int] | None = None

    def follow(self, block: TickBlock, scorer: TickScorer) -> Change:
        """Move on to ``block`` and tell the strongest change.

        ``restart``: a new run or cadence, nothing carries over. ``gap``: ticks are missing
        before the block. ``roster``: machines or metrics are others; also after the other two.
        """
        key = (block.run, block.tick_ns, block.roster)
        old, gap = self._key, self._key is not None and block.start_ns != self.next_ns
        self._key = key
        self.next_ns = block.start_ns + block.ticks * block.tick_ns
        if key == old:
            return "gap" if gap else "none"
        self.machines = block.machines
        available = block.machine_panel.metrics
        self.metrics = scorer.select(available)
        where = {name: i for i, name in enumerate(available)}
        self._source = np.array([where[m] for m in self.metrics], dtype=np.int64)
        if old is not None and old[:2] != key[:2]:
            return "restart"
        return "gap" if gap else "roster"

    def values(self, block: TickBlock) -> NDArray[np.float64]:
        """Selected values, time first: ``float64 [T, M, N]``."""
        return np.moveaxis(block.machine_panel.values[self._source], 2, 0)

    def forget(self) -> None:
        """The run has ended: the next block is a first one."""
        self._key = None

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return {
            "metrics": list(self.metrics),
            "machines": list(self.machines),
            "next_ns": self.next_ns,
            "source": self._source.copy(),
            "key": list(self._key) if self._key else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.metrics, self.machines = tuple(state["metrics"]), tuple(state["machines"])
        self.next_ns = int(state["next_ns"])
        self._source = np.array(state["source"], dtype=np.int64)
        key = state["key"]
        self._key = (key[0], key[1], key[2]) if key else None
