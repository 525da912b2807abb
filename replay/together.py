"""One recording through several detectors: made and aligned once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from detect.alert import AlertChange
from detect.detector import JobDetector, ScoreFrame, State
from detect.pipeline import Pipeline, PipelineSettings
from ingest.catalogue import Catalogue
from ingest.ticks import Panel, TickBlock
from replay.runner import IncidentResult, Replayable, drive

Maker = Callable[[str], JobDetector]
"""Makes a fresh detector for a run of the named job."""

LEAST_TICKS = 600
"""Ticks handed on at once, if they are there: what is skipped is skipped within a block."""
MOST_CELLS = 20_000_000
"""Values held back at most."""


def replay_together(
    recording: Replayable, makers: Mapping[str, Maker], catalogue: Catalogue
) -> dict[str, IncidentResult]:
    """Each detector's result, as `replay.runner.replay_recording` gives it.

    ``compute_seconds`` are those of the alignment, which all share, and of the detector's own
    work. `ingest.recording.RecordingError` if the recording cannot be read.
    """
    changes: dict[str, list[AlertChange]] = {name: [] for name in makers}
    seconds = dict.fromkeys(makers, 0.0)

    def told(name: str, said: list[AlertChange]) -> None:
        changes[name].extend(said)

    def spent(name: str, took: float) -> None:
        seconds[name] += took

    def make(job: str) -> JobDetector:
        return Together({name: maker(job) for name, maker in makers.items()}, told, spent)

    pipeline = Pipeline(catalogue, make, PipelineSettings(keep_history=False))
    driven = drive(recording, pipeline)
    shared = max(0.0, driven.compute_seconds - sum(seconds.values()))
    return {
        name: driven.result(recording, changes[name], shared + seconds[name]) for name in makers
    }


class Together:
    """A `JobDetector` that gives the same blocks to several, and keeps apart what they say.

    Parameters
    ----------
    detectors
        By name; fresh ones for one run of a job.
    told
        Called with a name and what that detector said, as soon as it did.
    spent
        Called with a name and the seconds of processor time that it took.
    """

    def __init__(
        self,
        detectors: Mapping[str, JobDetector],
        told: Callable[[str, list[AlertChange]], None],
        spent: Callable[[str, float], None],
    ) -> None:
        self.detectors = dict(detectors)
        self._told = told
        self._spent = spent
        self._waiting: list[TickBlock] = []

    def update(self, block: TickBlock) -> list[AlertChange]:
        """Take in closed ticks. Nothing is said here, it is told to whom it concerns."""
        if self._waiting and not _follows(self._waiting[-1], block):
            self._hand_on()
        self._waiting.append(block)
        cells = sum(_cells(b) for b in self._waiting)
        if sum(b.ticks for b in self._waiting) >= LEAST_TICKS or cells >= MOST_CELLS:
            self._hand_on()
        return []

    def _hand_on(self) -> None:
        if not self._waiting:
            return
        block = _joined(self._waiting)
        self._waiting = []
        for name, detector in self.detectors.items():
            began = time.process_time()
            changes = detector.update(block)
            self._spent(name, time.process_time() - began)
            self._told(name, changes)
            detector.take_scores()

    def finish(self, at_ns: int) -> list[AlertChange]:
        """The run has ended, for each of them."""
        self._hand_on()
        for name, detector in self.detectors.items():
            self._told(name, detector.finish(at_ns))
        return []

    def take_scores(self) -> list[ScoreFrame]:
        """None: whose would they be."""
        return []

    def snapshot(self) -> State:
        """A recording is replayed in one go."""
        raise NotImplementedError

    def restore(self, state: State) -> None:
        """A recording is replayed in one go."""
        raise NotImplementedError


def _cells(block: TickBlock) -> int:
    gpus = block.gpu_panel.values.size if block.gpu_panel is not None else 0
    return int(block.machine_panel.values.size + gpus)


def _follows(before: TickBlock, block: TickBlock) -> bool:
    """Whether the two can stand in one block."""
    key = (block.run, block.roster, block.tick_ns)
    end_ns = before.start_ns + before.ticks * before.tick_ns
    return key == (before.run, before.roster, before.tick_ns) and end_ns == block.start_ns


def _joined(blocks: list[TickBlock]) -> TickBlock:
    if len(blocks) == 1:
        return blocks[0]
    machine = _panel([b.machine_panel for b in blocks])
    gpu = _panel([b.gpu_panel for b in blocks if b.gpu_panel is not None])
    assert machine is not None
    return replace(blocks[0], machine_panel=machine, gpu_panel=gpu)


def _panel(panels: list[Panel]) -> Panel | None:
    if not panels:
        return None
    values = np.concatenate([p.values for p in panels], axis=2)
    fresh = np.concatenate([p.fresh for p in panels], axis=2)
    return replace(panels[0], values=values, fresh=fresh)
