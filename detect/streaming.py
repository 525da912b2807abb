"""Candidate, continuity, alert: the frame in which the reference detectors judge every tick."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import numpy as np
from numpy.typing import NDArray

from detect.alert import AlertChange
from detect.alert_book import AlertBook
from detect.detector import ScoreFrame, State
from detect.findings import describe
from detect.frames import FrameQueue
from detect.gapfill import HoldLast
from detect.scoring import TickScorer, TickScores, TickValues, best_share, score_in_chunks
from detect.selection import Selection
from detect.state import PanelState
from ingest.catalogue import Catalogue
from ingest.ticks import TickBlock

STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class ContinuitySettings:
    """When a candidate becomes an alert and when the alert ends.

    ``continuity_seconds``: the machine must be the candidate for longer than this without a
    break (4 minutes in Minder, arXiv 2411.01791, section 4). ``clear_seconds``: the alert is
    resolved after the machine has not been a candidate for this long; a spell below a quarter
    of the continuity does not count. ``hold_seconds``: a gap is filled with the last sample up
    to this age.
    """

    continuity_seconds: float = 240.0
    clear_seconds: float = 240.0
    hold_seconds: float = 900.0

    def least_ticks(self, tick_ns: int) -> int:
        """The fewest ticks in a row as a candidate that count for anything."""
        return max(1, ticks_beyond(self.continuity_seconds, tick_ns) // 4)


def ticks_beyond(seconds: float, tick_ns: int) -> int:
    """The fewest ticks in a row that last longer than ``seconds``."""
    return floor(seconds * 1e9 / tick_ns) + 1


class StreamingDetector:
    """`JobDetector` that scores every tick and alerts on a candidate that lasts.

    Per tick and channel the scorer names candidates; a machine that stays one for longer than
    the continuity is alerted, once until it clears. Only machine-level telemetry is used.

    Parameters
    ----------
    job
        The job's name.
    scorer
        What scores the ticks.
    catalogue
        For the units in the evidence.
    settings
        Continuity, clearing, gaps.
    """

    def __init__(
        self,
        job: str,
        scorer: TickScorer,
        catalogue: Catalogue,
        settings: ContinuitySettings | None = None,
    ) -> None:
        self.job = job
        self.scorer = scorer
        self.catalogue = catalogue
        self.settings = settings or ContinuitySettings()
        self.book = AlertBook(job, scorer.name)
        self._selection = Selection()
        self._hold = HoldLast()
        self._tail = PanelState()
        self._tail.add("values", "mr", np.nan, lead=(scorer.history,))
        self._runs = PanelState()
        self._runs.add("ticks", "mr", 0, dtype=np.int64)
        self._frames = FrameQueue()

    def update(self, block: TickBlock) -> list[AlertChange]:
        """Take in closed ticks; see `JobDetector`."""
        changes = self._follow(block)
        chosen = self._selection
        limit = floor(self.settings.hold_seconds * 1e9 / block.tick_ns)
        held = self._hold.fill(chosen.values(block), limit)
        history = self.scorer.history
        values = np.concatenate([self._tail["values"], held])
        self._tail["values"] = values[len(values) - history :].copy()
        ticks = TickValues(
            self.job, block.start_ns, block.tick_ns, chosen.metrics, chosen.machines, values
        )
        scores = score_in_chunks(self.scorer, ticks)
        self._frames.add(
            ScoreFrame(
                block.start_ns,
                block.tick_ns,
                chosen.machines,
                best_share(scores.shares),
                "unknown",
            )
        )
        anybody = np.asarray(scores.hits.any(axis=(1, 2)))
        running = bool(self._runs["ticks"].any())
        for k in range(block.ticks):
            if anybody[k] or running or len(self.book):
                changes += self._step(block, scores, k, held[k])
                running = bool(anybody[k])
        return changes

    def _follow(self, block: TickBlock) -> list[AlertChange]:
        """Carry the state over by name; start clean on a new run."""
        before = self._selection.next_ns
        change = self._selection.follow(block, self.scorer)
        if change == "none":
            return []
        changes: list[AlertChange] = []
        if change == "restart":
            changes += self._end(before)
        elif change == "gap":
            self._runs["ticks"][:] = 0
        metrics, machines = self._selection.metrics, self._selection.machines
        self._hold.reindex(metrics, machines)
        self._tail.reindex(metrics, machines)
        self._runs.reindex(self.scorer.channels(metrics), machines)
        return changes + self.book.keep_only(machines, block.start_ns)

    def _step(
        self, block: TickBlock, scores: TickScores, k: int, values: NDArray[np.float64]
    ) -> list[AlertChange]:
        """One tick of continuity; ``values`` is ``[M, N]`` at this tick."""
        end_ns = block.start_ns + (k + 1) * block.tick_ns
        hits = scores.hits[k]
        self._runs["ticks"] = np.where(hits, self._runs["ticks"] + 1, 0)
        need = ticks_beyond(self.settings.continuity_seconds, block.tick_ns)
        lasting = self._runs["ticks"] >= need
        changes: list[AlertChange] = []
        if len(self.book):
            # By chance every machine is the candidate for a moment now and then.
            odd = self._runs["ticks"] >= self.settings.least_ticks(block.tick_ns)
            for row in np.flatnonzero(odd.any(axis=0)).tolist():
                self.book.note(self._selection.machines[row], end_ns)
        if lasting.any():
            channels = np.flatnonzero(lasting.any(axis=1))
            if self.scorer.ordered:
                # The first metric in the learned order that finds a machine ends the search.
                channels = channels[:1]
            for row in np.flatnonzero(lasting[channels].any(axis=0)).tolist():
                spoke = [int(c) for c in channels if lasting[c, row]]
                changes += self._accuse(block, scores.shares[k], values, row, spoke, end_ns)
        if len(self.book):
            changes += self.book.clear(end_ns, end_ns - int(self.settings.clear_seconds * 1e9))
        return changes

    def _accuse(
        self,
        block: TickBlock,
        shares: NDArray[np.float64],
        values: NDArray[np.float64],
        row: int,
        channels: list[int],
        end_ns: int,
    ) -> list[AlertChange]:
        """Open an alert about a machine, unless it has one."""
        chosen = self._selection
        if chosen.machines[row] in self.book:
            return []
        runs = self._runs["ticks"]
        spoke = {
            self._runs.metrics[c]: (
                float(shares[c, row]),
                end_ns - int(runs[c, row]) * block.tick_ns,
            )
            for c in channels
        }
        finding = describe(
            row,
            spoke,
            metrics=chosen.metrics,
            machines=chosen.machines,
            values=values,
            at_ns=end_ns,
            catalogue=self.catalogue,
        )
        opened = self.book.open(block.run, finding)
        return [opened] if opened else []

    def finish(self, at_ns: int) -> list[AlertChange]:
        """The run has ended; see `JobDetector`."""
        self._selection.forget()
        return self._end(at_ns)

    def _end(self, at_ns: int) -> list[AlertChange]:
        for state in (self._hold, self._tail, self._runs):
            state.reindex((), ())
        return self.book.close(at_ns)

    def take_scores(self) -> list[ScoreFrame]:
        """Scores since the last call; see `JobDetector`."""
        return self._frames.take()

    def snapshot(self) -> State:
        """Everything but the frames not yet taken."""
        return {
            "version": STATE_VERSION,
            "scorer": self.scorer.name,
            "learned": self.scorer.snapshot(),
            "book": self.book.snapshot(),
            "selection": self._selection.snapshot(),
            "hold": self._hold.snapshot(),
            "tail": self._tail.snapshot(),
            "runs": self._runs.snapshot(),
        }

    def restore(self, state: State) -> None:
        """Inverse of `snapshot`; ValueError for another version's or scorer's state."""
        if (state.get("version"), state.get("scorer")) != (STATE_VERSION, self.scorer.name):
            raise ValueError(f"not a version {STATE_VERSION} state of {self.scorer.name!r}")
        self.scorer.restore(state["learned"])
        self.book.restore(state["book"])
        self._selection.restore(state["selection"])
        self._hold.restore(state["hold"])
        self._tail.restore(state["tail"])
        self._runs.restore(state["runs"])
