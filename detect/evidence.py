"""The default detector: robust peers, own past, accumulated evidence, one calibrated rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.alert import AlertChange
from detect.decide import Decision
from detect.detector import ScoreFrame, State
from detect.panel import PanelEvidence
from detect.phase import JobPhase
from detect.standing import Standing
from detect.telemetry_faults import Found
from detect.trust import Trust
from ingest.catalogue import Catalogue
from ingest.ticks import Panel, TickBlock
from models.evidence_model import EvidenceModel

STATE_VERSION = 10
SUSPECT_SHARE = 0.3
MAX_FRAMES = 4096


class EvidenceDetector:
    """`JobDetector` for one job.

    Per tick and panel: mask what is a telemetry fault, measure each row's distance to its peers,
    accumulate evidence (`detect.panel`); then decide per machine (`detect.decide`). Cost per
    tick is some hundred single-precision array operations and four selections of a median over
    metrics × rows; what changes slowly is learned every few seconds.

    Parameters
    ----------
    topology
        ``{machine: {attribute: value}}``: what machines share (leaf switch, rack, stage).
    false_alarms_per_job_week
        Accepted rate for a healthy job of any size; None = the model's own.
    """

    def __init__(
        self,
        job: str,
        catalogue: Catalogue,
        model: EvidenceModel,
        topology: Mapping[str, Mapping[str, Any]] | None = None,
        false_alarms_per_job_week: float | None = None,
    ) -> None:
        self.job = job
        self.catalogue = catalogue
        self.model = model
        self.topology = topology or {}
        self.false_alarms_per_job_week = false_alarms_per_job_week
        self._frames: list[ScoreFrame] = []
        self._start()

    def _start(self) -> None:
        """Nothing is known of the run."""
        self.machine_panel = PanelEvidence(self.catalogue, self.model)
        self.gpu_panel: PanelEvidence | None = None
        self.phase = JobPhase(self.machine_panel.family)
        self.trust = Trust()
        self.decision = Decision(self.job, self.catalogue, self.model, self.topology)
        self._roster: int | None = None

    def update(self, block: TickBlock) -> list[AlertChange]:
        """Take in closed ticks; see `JobDetector`."""
        seconds = block.tick_ns / 1e9
        changes: list[AlertChange] = []
        if block.roster != self._roster:
            changes.extend(self._reindex(block, seconds))
        rows = _rows(block)
        threshold = self.model.threshold(max(rows, 1), self.false_alarms_per_job_week)
        scores = np.zeros((len(block.machines), block.ticks), np.float32)
        for k in range(block.ticks):
            at_ns = block.start_ns + (k + 1) * block.tick_ns
            machine_scores, present = self._tick(block, k, at_ns, seconds, threshold)
            scores[:, k] = np.where(present, machine_scores / threshold, np.nan)
            standing = Standing(
                run=block.run,
                at_ns=at_ns,
                tick_seconds=seconds,
                machines=block.machines,
                scores=machine_scores,
                present=present,
                threshold=threshold,
                rows=rows,
                machine_panel=self.machine_panel,
                gpu_panel=self.gpu_panel if block.gpu_panel is not None else None,
                phase=self.phase,
            )
            changes.extend(self.decision.step(standing))
        self._frames.append(
            ScoreFrame(block.start_ns, block.tick_ns, block.machines, scores, self.phase.name)
        )
        del self._frames[:-MAX_FRAMES]
        return changes

    def _reindex(self, block: TickBlock, seconds: float) -> list[AlertChange]:
        self.machine_panel.reindex(block.machine_panel, block.machines, seconds)
        self.phase.reindex(self.machine_panel.metrics)
        self.trust.reindex(block.machines)
        if block.gpu_panel is not None:
            if self.gpu_panel is None:
                self.gpu_panel = PanelEvidence(self.catalogue, self.model)
            self.gpu_panel.reindex(block.gpu_panel, block.machines, seconds)
        self._roster = block.roster
        waits = self.phase.low_seconds > 0
        gpus = self.gpu_panel.rows if self.gpu_panel is not None else ()
        return self.decision.roster(block.machines, block.start_ns, waits=waits, gpus=gpus)

    def _tick(
        self, block: TickBlock, k: int, at_ns: int, seconds: float, threshold: float
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Both panels through one tick; each machine's score is its own or its worst GPU's."""
        trust = self.trust.step(self.phase, self.machine_panel, seconds)
        joined = self.trust.joined
        if joined.any():
            # What it was like before is no past of what it does now.
            self.machine_panel.forget(joined)
            if block.gpu_panel is not None and self.gpu_panel is not None:
                self.gpu_panel.forget(joined[block.gpu_panel.machine])
        self._step(self.machine_panel, block.machine_panel, k, at_ns, seconds, threshold, trust)
        self.phase.step(self.machine_panel.centre, seconds)
        scores, present = self.machine_panel.score.copy(), self.machine_panel.present
        if block.gpu_panel is not None and self.gpu_panel is not None:
            machine = block.gpu_panel.machine
            found = self.machine_panel.faults.found.of(machine)
            self._step(
                self.gpu_panel,
                block.gpu_panel,
                k,
                at_ns,
                seconds,
                threshold,
                trust[machine],
                found,
            )
            np.maximum.at(scores, block.gpu_panel.machine, self.gpu_panel.score)
        return scores, present

    def _step(
        self,
        evidence: PanelEvidence,
        panel: Panel,
        k: int,
        at_ns: int,
        seconds: float,
        threshold: float,
        trust: NDArray[np.float64],
        of_machine: Found | None = None,
    ) -> None:
        suspect = evidence.score > SUSPECT_SHARE * threshold
        # Most rows odd at once is the job, not the machines: then everybody learns.
        if 2 * np.count_nonzero(suspect) > suspect.size:
            suspect = np.zeros_like(suspect)
        values = panel.values[:, :, k]
        moment = self.phase.moment
        fresh = panel.fresh[:, :, k]
        evidence.step(values, fresh, at_ns, seconds, suspect, trust, moment, of_machine)

    def finish(self, at_ns: int) -> list[AlertChange]:
        """The run has ended; see `JobDetector`."""
        changes = self.decision.finish(at_ns)
        self._start()
        return changes

    def take_scores(self) -> list[ScoreFrame]:
        """Scores since the last call; see `JobDetector`."""
        frames, self._frames = self._frames, []
        return frames

    def snapshot(self) -> State:
        """See `JobDetector`."""
        return {
            "version": STATE_VERSION,
            "machine_panel": self.machine_panel.snapshot(),
            "gpu_panel": self.gpu_panel.snapshot() if self.gpu_panel else None,
            "phase": self.phase.snapshot(),
            "trust": self.trust.state.snapshot(),
            "decision": self.decision.snapshot(),
        }

    def restore(self, state: State) -> None:
        """See `JobDetector`."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"detector state version {state.get('version')}, not {STATE_VERSION}")
        self.machine_panel.restore(state["machine_panel"])
        self.gpu_panel = None
        if state["gpu_panel"] is not None:
            self.gpu_panel = PanelEvidence(self.catalogue, self.model)
            self.gpu_panel.restore(state["gpu_panel"])
        self.phase.restore(state["phase"])
        self.trust.state.restore(state["trust"])
        self.decision.restore(state["decision"])
        self._roster = None


def _rows(block: TickBlock) -> int:
    """What may err by itself: machines, and GPUs where these are told apart."""
    gpus = block.gpu_panel.machine.size if block.gpu_panel is not None else 0
    return len(block.machines) + gpus
