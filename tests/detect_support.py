"""Panels and standings made by hand, for the parts of the evidence detector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.alert import AlertChange
from detect.decide import Decision
from detect.panel import PanelEvidence
from detect.phase import JobPhase
from detect.residuals import FAST
from detect.standing import Standing
from ingest.catalogue import Catalogue
from ingest.ticks import Panel
from models.evidence_model import EvidenceModel
from tests.ticks_support import SECOND, START_NS, machine_names

CATALOGUE = Catalogue.default()
MODEL = EvidenceModel()
THRESHOLD = 2.0
PANEL_METRICS = ("gpu_power_watts", "gpu_tensor_active_ratio")
GPUS = 4


def family(metric: str) -> str:
    """The catalogue's family of a metric."""
    return CATALOGUE.metric(metric).family


def panel_evidence(machines: int, gpus: int = 0) -> PanelEvidence:
    """A panel of `PANEL_METRICS` that has seen nothing; per GPU if ``gpus`` is given."""
    rows = machines * max(gpus, 1)
    shape = (len(PANEL_METRICS), rows, 0)
    panel = Panel(
        scope="gpu" if gpus else "machine",
        metrics=PANEL_METRICS,
        machine=np.repeat(np.arange(machines), max(gpus, 1)),
        gpu=np.tile(np.arange(gpus), machines) if gpus else np.full(rows, -1),
        values=np.zeros(shape),
        fresh=np.zeros(shape, np.bool_),
    )
    evidence = PanelEvidence(CATALOGUE, MODEL)
    evidence.reindex(panel, machine_names(machines), 1.0)
    evidence.strength = np.zeros((len(PANEL_METRICS), rows))
    evidence.state["present"] = np.ones(rows, np.bool_)
    evidence.state["raw"] = np.tile(np.array([[5000.0], [0.5]]), rows)
    return evidence


class Scene:
    """A job whose scores a test sets by hand, and the decision that looks at it.

    ``level`` is each machine's score as a share of the threshold. All of it speaks through
    ``gpu_power_watts`` (below the peers) unless ``metric`` says otherwise, in the test ``test``.
    """

    def __init__(
        self, machines: int, topology: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self.machines = machine_names(machines)
        self.topology = topology or {}
        self.panel = panel_evidence(machines)
        self.phase = JobPhase(family)
        self.phase.run_seconds = 3600.0
        self.decision = Decision("job", CATALOGUE, MODEL, self.topology)
        self.decision.roster(self.machines, START_NS)
        self.now_ns = START_NS
        self.level = np.zeros(machines)
        self.metric = np.zeros(machines, np.int64)
        self.test = FAST
        self.speaks = 1
        """In how many metrics each machine's level shows alike."""

    def standing(self) -> Standing:
        """How the machines stand now."""
        count = len(self.machines)
        scores = self.level * THRESHOLD
        self.panel.strength = np.zeros((len(PANEL_METRICS), count))
        for further in range(self.speaks):
            metric = (self.metric + further) % len(PANEL_METRICS)
            self.panel.strength[metric, np.arange(count)] = scores
        self.panel.state["score"] = scores
        self.panel.sums.state["total"][:] = 0.0
        self.panel.sums.state["total"][self.test] = -self.panel.strength
        return Standing(
            run=0,
            at_ns=self.now_ns,
            tick_seconds=1.0,
            machines=self.machines,
            scores=scores,
            present=self.panel.present.copy(),
            threshold=THRESHOLD,
            rows=count,
            machine_panel=self.panel,
            gpu_panel=None,
            phase=self.phase,
        )

    def leave(self, machine: str) -> list[AlertChange]:
        """What the decision says when the machine is no longer part of the job."""
        stay = [i for i, name in enumerate(self.machines) if name != machine]
        self.machines = tuple(self.machines[i] for i in stay)
        self.panel = panel_evidence(len(stay))
        self.level, self.metric = self.level[stay], self.metric[stay]
        waits = self.phase.low_seconds > 0
        return self.decision.roster(self.machines, self.now_ns, waits=waits)

    def passes(self, seconds: int = 1) -> list[AlertChange]:
        """What the decision says while so many ticks pass."""
        changes = []
        for _ in range(seconds):
            self.now_ns += SECOND
            changes += self.decision.step(self.standing())
        return changes


def told(changes: Sequence[AlertChange]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Kind, verdict and machines of each change."""
    return [(c.kind, c.alert.verdict, c.alert.machines) for c in changes]


def noisy(levels: NDArray[np.float64], ticks: int, noise: float, seed: int) -> Any:
    """``[M, R, T]`` around ``levels`` ``[M, R]``, with independent relative noise."""
    rng = np.random.default_rng(seed)
    return levels[:, :, None] * rng.normal(1.0, noise, (*levels.shape, ticks))
