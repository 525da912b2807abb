"""Candidate, continuity, alert: the frame in which the reference detectors judge every tick."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import numpy as np
from numpy.typing import NDArray

from detect.alert import AlertChange
from detect.alert_book import AlertBook, Finding
from detect.detector import ScoreFrame, State
from detect.frames import FrameQueue
from detect.gapfill import HoldLast
from detect.peers import compare_with_peers
from detect.scoring import TickScorer, TickScores, TickValues, best_share
from detect.state import PanelState
from ingest.catalogue import Catalogue
from ingest.ticks import TickBlock

STATE_VERSION = 1
_CHUNK_VALUES = 2_000_000
"""Values worked on at once, history windows included: bounds memory for any block."""


@dataclass(frozen=True, slots=True)
class ContinuitySettings:
    """When a candidate becomes an alert and when the alert ends.

    ``continuity_seconds``: the machine must be the candidate for longer than this without a
    break (4 minutes in Minder, arXiv 2411.01791, section 4). ``clear_seconds``: the alert is
    resolved after the machine has not been a candidate for this long. ``hold_seconds``: a gap
    is filled with the last sample up to this age.
    """

    continuity_seconds: float = 240.0
    clear_seconds: float = 240.0
    hold_seconds: float = 900.0

    def continuity_ticks(self, tick_ns: int) -> int:
        """Ticks in a row that last longer than the continuity."""
        return floor(self.continuity_seconds * 1e9 / tick_ns) + 1


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
    false_alarms_per_job_week
        The nominal rate that alerts state.
    """

    def __init__(
        self,
        job: str,
        scorer: TickScorer,
        catalogue: Catalogue,
        settings: ContinuitySettings | None = None,
        false_alarms_per_job_week: float = 1.0,
    ) -> None:
        self.job = job
        self.scorer = scorer
        self.catalogue = catalogue
        self.settings = settings or ContinuitySettings()
        self.book = AlertBook(job, scorer.name, false_alarms_per_job_week)
        self._metrics: tuple[str, ...] = ()
        self._machines: tuple[str, ...] = ()
        self._source: NDArray[np.int64] = np.zeros(0, np.int64)
        self._roster: tuple[int, int, int] | None = None
        self._next_ns = 0
        self._hold = HoldLast()
        self._tail = PanelState()
        self._tail.add("values", "mr", np.nan, lead=(scorer.history,))
        self._runs = PanelState()
        self._runs.add("ticks", "mr", 0, dtype=np.int64)
        self._frames = FrameQueue()

    def update(self, block: TickBlock) -> list[AlertChange]:
        """Take in closed ticks; see `JobDetector`."""
        changes = self._follow(block)
        size = len(self._metrics) * len(self._machines) * (self.scorer.history + 1)
        step = max(1, _CHUNK_VALUES // max(size, 1))
        for at in range(0, block.ticks, step):
            raw = block.machine_panel.values[self._source, :, at : at + step]
            changes += self._judge(
                block, block.start_ns + at * block.tick_ns, np.moveaxis(raw, 2, 0)
            )
        self._next_ns = block.start_ns + block.ticks * block.tick_ns
        return changes

    def _follow(self, block: TickBlock) -> list[AlertChange]:
        """Re-index the state by name if the roster changed; start clean on a new run."""
        changes: list[AlertChange] = []
        if self._roster is not None:
            run, _, tick_ns = self._roster
            if (run, tick_ns) != (block.run, block.tick_ns):
                changes += self.finish(self._next_ns)
            elif block.start_ns != self._next_ns:
                self._runs["ticks"][:] = 0
        roster = (block.run, block.roster, block.tick_ns)
        if roster == self._roster:
            return changes
        self._roster = roster
        self._machines = block.machines
        panel = block.machine_panel
        self._metrics = self.scorer.select(panel.metrics)
        where = {name: i for i, name in enumerate(panel.metrics)}
        self._source = np.array([where[m] for m in self._metrics], dtype=np.int64)
        self._hold.reindex(self._metrics, self._machines)
        self._tail.reindex(self._metrics, self._machines)
        self._runs.reindex(self.scorer.channels(self._metrics), self._machines)
        return changes + self.book.keep_only(self._machines, block.start_ns)

    def _judge(
        self, block: TickBlock, start_ns: int, raw: NDArray[np.float64]
    ) -> list[AlertChange]:
        """Score ``[T, M, N]`` and turn lasting candidates into alerts."""
        held = self._hold.fill(raw, floor(self.settings.hold_seconds * 1e9 / block.tick_ns))
        history = self.scorer.history
        values = np.concatenate([self._tail["values"], held])
        if history:
            self._tail["values"] = values[-history:].copy()
        ticks = TickValues(
            self.job, start_ns, block.tick_ns, self._metrics, self._machines, values
        )
        scores = self.scorer.score(ticks)
        self._frames.add(
            ScoreFrame(
                start_ns, block.tick_ns, self._machines, best_share(scores.shares), "unknown"
            )
        )
        changes: list[AlertChange] = []
        for k in range(len(raw)):
            end_ns = start_ns + (k + 1) * block.tick_ns
            changes += self._step(block, scores, k, values[history + k], end_ns)
        return changes

    def _step(
        self,
        block: TickBlock,
        scores: TickScores,
        k: int,
        values: NDArray[np.float64],
        end_ns: int,
    ) -> list[AlertChange]:
        """One tick of continuity; ``values`` is ``[M, N]`` at this tick."""
        hits = scores.hits[k]
        runs = np.where(hits, self._runs["ticks"] + 1, 0)
        self._runs["ticks"] = runs
        lasting = runs >= self.settings.continuity_ticks(block.tick_ns)
        changes: list[AlertChange] = []
        if len(self.book):
            for machine in np.flatnonzero(hits.any(axis=0)).tolist():
                self.book.note(self._machines[machine], end_ns)
        if lasting.any():
            channels = np.flatnonzero(lasting.any(axis=1))
            # The first metric in the learned order that finds a machine ends the search.
            decided = channels[:1] if self.scorer.ordered else channels
            for machine in np.flatnonzero(lasting[decided].any(axis=0)).tolist():
                if self._machines[machine] not in self.book:
                    spoke = [int(c) for c in decided if lasting[c, machine]]
                    finding = self._finding(block, scores.shares[k], values, machine, spoke, end_ns)
                    changes += filter(None, [self.book.open(block.run, finding)])
        if len(self.book):
            changes += self.book.clear(end_ns, end_ns - int(self.settings.clear_seconds * 1e9))
        return changes

    def _finding(
        self,
        block: TickBlock,
        shares: NDArray[np.float64],
        values: NDArray[np.float64],
        machine: int,
        channels: list[int],
        end_ns: int,
    ) -> Finding:
        """What is said about a machine whose ``channels`` have lasted, strongest first."""
        runs = self._runs["ticks"]
        names = self._runs.metrics
        weights = {c: float(shares[c, machine]) for c in channels}
        total = sum(weights.values())
        evidence = []
        for channel in sorted(channels, key=lambda c: -weights[c]):
            metric = names[channel]
            if metric not in self._metrics:
                continue
            evidence.append(
                compare_with_peers(
                    metric,
                    self.catalogue.metric(metric).seen_unit,
                    values[self._metrics.index(metric)],
                    machine,
                    since_ns=end_ns - int(runs[channel, machine]) * block.tick_ns,
                    share=weights[channel] / total if total > 0 else 1.0 / len(channels),
                )
            )
        onset = end_ns - int(runs[channels, machine].max()) * block.tick_ns
        return Finding(self._machines[machine], onset, end_ns, tuple(evidence))

    def finish(self, at_ns: int) -> list[AlertChange]:
        """The run has ended; see `JobDetector`."""
        changes = self.book.close(at_ns)
        for state in (self._hold, self._tail, self._runs):
            state.reindex((), ())
        self._roster = None
        return changes

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
            "metrics": list(self._metrics),
            "machines": list(self._machines),
            "source": self._source.copy(),
            "roster": list(self._roster) if self._roster else None,
            "next_ns": self._next_ns,
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
        self._metrics, self._machines = tuple(state["metrics"]), tuple(state["machines"])
        self._source = np.array(state["source"], dtype=np.int64)
        roster = state["roster"]
        self._roster = (roster[0], roster[1], roster[2]) if roster else None
        self._next_ns = int(state["next_ns"])
        self._hold.restore(state["hold"])
        self._tail.restore(state["tail"])
        self._runs.restore(state["runs"])
