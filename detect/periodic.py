"""A detector that is called now and then on the last minutes, as Minder is deployed."""

from __future__ import annotations

from math import floor

import numpy as np
from numpy.typing import NDArray

from detect.alert import AlertChange
from detect.alert_book import AlertBook, Finding
from detect.detector import ScoreFrame, State
from detect.findings import describe
from detect.frames import FrameQueue
from detect.gapfill import fill_nearest
from detect.scoring import TickScorer, TickScores, TickValues, best_share, score_in_chunks
from detect.selection import Selection
from detect.state import PanelState
from detect.streaming import ticks_beyond
from ingest.catalogue import Catalogue
from ingest.ticks import TickBlock

STATE_VERSION = 1


class PeriodicDetector:
    """`JobDetector` that keeps the last minutes and judges them at every call.

    Calls fall on whole multiples of ``call_seconds`` of event time. A call scores every tick of
    the lookback; a machine that was the candidate for longer than the continuity, anywhere in
    it, is alerted. An alert ends with the first call that does not find its machine. Memory:
    metrics × machines × lookback.

    Parameters
    ----------
    job, scorer, catalogue
        As in `detect.streaming.StreamingDetector`.
    continuity_seconds
        How long the same machine must be the candidate.
    call_seconds, lookback_seconds
        How often it is called, and on how much telemetry.
    """

    def __init__(
        self,
        job: str,
        scorer: TickScorer,
        catalogue: Catalogue,
        *,
        continuity_seconds: float,
        call_seconds: float,
        lookback_seconds: float,
    ) -> None:
        self.job = job
        self.scorer = scorer
        self.catalogue = catalogue
        self.continuity_seconds = continuity_seconds
        self.call_seconds = call_seconds
        self.lookback_seconds = lookback_seconds
        self.book = AlertBook(job, scorer.name)
        self._selection = Selection()
        self._buffer = PanelState()
        self._length = 0
        self._filled = 0
        self._unseen = 0
        self._frames = FrameQueue()

    def update(self, block: TickBlock) -> list[AlertChange]:
        """Take in closed ticks; see `JobDetector`."""
        changes = self._follow(block)
        values = self._selection.values(block)
        ring = self._buffer["values"]
        call_ns = int(self.call_seconds * 1e9)
        for k in range(block.ticks):
            ring[self._filled % self._length] = values[k]
            self._filled += 1
            self._unseen = min(self._unseen + 1, self._length)
            end_ns = block.start_ns + (k + 1) * block.tick_ns
            if end_ns // call_ns > (end_ns - block.tick_ns) // call_ns:
                changes += self._call(block, end_ns)
        return changes

    def _follow(self, block: TickBlock) -> list[AlertChange]:
        """Carry the buffer over by name; start clean on a new run, cadence or after a gap."""
        before = self._selection.next_ns
        change = self._selection.follow(block, self.scorer)
        if change == "none":
            return []
        changes: list[AlertChange] = []
        if change == "restart":
            changes += self.book.close(before)
        if change in ("restart", "gap") or not self._length:
            self._reset(max(1, floor(self.lookback_seconds * 1e9 / block.tick_ns)))
        self._buffer.reindex(self._selection.metrics, self._selection.machines)
        return changes + self.book.keep_only(self._selection.machines, block.start_ns)

    def _reset(self, length: int) -> None:
        """An empty ring buffer for ``length`` ticks; 0 = none yet."""
        self._buffer = PanelState()
        if length:
            self._buffer.add("values", "mr", np.nan, lead=(length,))
        self._length = length
        self._filled = self._unseen = 0

    def _call(self, block: TickBlock, end_ns: int) -> list[AlertChange]:
        """Judge the lookback that ends at ``end_ns``."""
        ring = self._buffer["values"]
        length = min(self._filled, self._length)
        latest = np.roll(ring, -(self._filled % self._length), axis=0)[self._length - length :]
        values = fill_nearest(latest)
        chosen = self._selection
        count = length - self.scorer.history
        start_ns = end_ns - count * block.tick_ns
        ticks = TickValues(
            self.job, start_ns, block.tick_ns, chosen.metrics, chosen.machines, values
        )
        scores = score_in_chunks(self.scorer, ticks)
        self._show(scores, block.tick_ns, end_ns)
        changes = []
        for finding in self._lasting(scores, values[-1], start_ns, block.tick_ns, end_ns):
            opened = self.book.open(block.run, finding)
            if opened:
                changes.append(opened)
        return changes + self.book.clear(end_ns, end_ns - 1)

    def _show(self, scores: TickScores, tick_ns: int, end_ns: int) -> None:
        """Queue the scores of the ticks that no earlier call has shown."""
        new = min(self._unseen, len(scores.shares))
        self._unseen = 0
        if new:
            shares = best_share(scores.shares[len(scores.shares) - new :])
            self._frames.add(
                ScoreFrame(
                    end_ns - new * tick_ns, tick_ns, self._selection.machines, shares, "unknown"
                )
            )

    def _lasting(
        self,
        scores: TickScores,
        values: NDArray[np.float64],
        start_ns: int,
        tick_ns: int,
        end_ns: int,
    ) -> list[Finding]:
        """Machines that some channel holds for long enough, from the first channel that does."""
        need = ticks_beyond(self.continuity_seconds, tick_ns)
        chosen = self._selection
        found: dict[int, dict[str, tuple[float, int]]] = {}
        for c, channel in enumerate(self.scorer.channels(chosen.metrics)):
            if not scores.hits[:, c].any():
                continue
            runs = np.zeros(len(chosen.machines), dtype=np.int64)
            for k, hits in enumerate(scores.hits[:, c]):
                runs = np.where(hits, runs + 1, 0)
                for row in np.flatnonzero(runs == need).tolist():
                    since = start_ns + (k + 1 - need) * tick_ns
                    spoke = found.setdefault(row, {})
                    spoke.setdefault(channel, (float(scores.shares[k, c, row]), since))
            if found and self.scorer.ordered:
                break
        return [
            describe(
                row,
                spoke,
                metrics=chosen.metrics,
                machines=chosen.machines,
                values=values,
                at_ns=end_ns,
                catalogue=self.catalogue,
            )
            for row, spoke in sorted(found.items())
        ]

    def finish(self, at_ns: int) -> list[AlertChange]:
        """The run has ended; see `JobDetector`. There is no last call."""
        self._selection.forget()
        self._reset(0)
        return self.book.close(at_ns)

    def take_scores(self) -> list[ScoreFrame]:
        """Scores of the calls since the last time; see `JobDetector`."""
        return self._frames.take()

    def snapshot(self) -> State:
        """Everything but the frames not yet taken."""
        return {
            "version": STATE_VERSION,
            "scorer": self.scorer.name,
            "learned": self.scorer.snapshot(),
            "book": self.book.snapshot(),
            "selection": self._selection.snapshot(),
            "length": self._length,
            "buffer": self._buffer.snapshot(),
            "filled": self._filled,
            "unseen": self._unseen,
        }

    def restore(self, state: State) -> None:
        """Inverse of `snapshot`; ValueError for another version's or scorer's state."""
        if (state.get("version"), state.get("scorer")) != (STATE_VERSION, self.scorer.name):
            raise ValueError(f"not a version {STATE_VERSION} state of {self.scorer.name!r}")
        self.scorer.restore(state["learned"])
        self.book.restore(state["book"])
        self._selection.restore(state["selection"])
        self._reset(int(state["length"]))
        self._buffer.restore(state["buffer"])
        self._filled, self._unseen = int(state["filled"]), int(state["unseen"])
