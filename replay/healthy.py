"""What healthy machines do to the default detector: noise, differences, peaks of evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.alert import Alert
from detect.evidence import EvidenceDetector
from detect.panel import PanelEvidence
from detect.residuals import SLOW, TESTS
from detect.state import PanelState
from ingest.catalogue import Catalogue
from ingest.recording import Label
from ingest.ticks import Panel, TickBlock
from models.evidence_model import EvidenceModel
from replay.blocks import recorded_blocks
from replay.score import count_false_alarms

Array = NDArray[np.float64]

SMALLEST_PEAK_SECONDS = 1.0
ASKED = (1000.0, 200.0, 40.0)
"""False alarms per job-week at which alarms are counted: more than anybody accepts, so that there
are enough to count."""


@dataclass(slots=True)
class HealthyMetric:
    """One metric in one recording.

    ``noise`` and ``spread`` are standard deviations in the detector's transformed units: of the
    pooled differences to the peers, and of lasting differences between machines. ``peaks`` are
    seconds of evidence per test.
    """

    row_hours: float = 0.0
    noise: float = np.nan
    spread: float = np.nan
    peaks: list[list[float]] = field(default_factory=lambda: [[] for _ in range(TESTS)])


@dataclass(slots=True)
class Alarms:
    """False alarms at one threshold, the mean fused score ``level``, of a job of ``rows``."""

    level: float = 0.0
    rows: float = 0.0
    count: int = 0
    hours: float = 0.0


@dataclass(slots=True)
class HealthyRecording:
    """What one recording's healthy time shows; ``alarms`` by rate of `ASKED`."""

    machine_hours: float = 0.0
    metrics: dict[str, HealthyMetric] = field(default_factory=dict)
    alarms: dict[float, Alarms] = field(default_factory=dict)


def healthy_evidence(
    path: Path, model: EvidenceModel, catalogue: Catalogue, label: Label | None = None
) -> HealthyRecording:
    """Noise and peaks of evidence per metric, from a recording's healthy time.

    ``label`` tells that time where the recording has no label of its own.
    """
    out = HealthyRecording()
    recording, blocks = recorded_blocks(path, catalogue, label)
    detector = EvidenceDetector("train", catalogue, model, recording.topology)
    followers = {"machine": _Peaks(), "gpu": _Peaks()}
    for tick in _ticks(blocks, recording.label):
        detector.update(tick)
        seconds = tick.tick_ns / 1e9
        for panel in _panels(detector, tick):
            followers["gpu" if panel.gpu.size and panel.gpu[0] >= 0 else "machine"].step(
                panel, seconds, out
            )
    for follower in followers.values():
        follower.finish(out)
    every = [detector.machine_panel, *([detector.gpu_panel] if detector.gpu_panel else [])]
    for panel in every:
        noise = panel.residuals.state["pool"][SLOW]
        spread = panel.residuals.state["level_spread"]
        for m, name in enumerate(panel.metrics):
            metric = out.metrics.get(name)
            if metric is not None and metric.row_hours > 0:
                metric.noise = float(np.fmin(metric.noise, noise[m]))
                metric.spread = float(np.fmax(metric.spread, spread[m]))
    return out


def healthy_alarms(
    path: Path, model: EvidenceModel, catalogue: Catalogue, label: Label | None = None
) -> HealthyRecording:
    """How many alarms there are at each rate of `ASKED`, all of them false.

    The whole decision takes part (who shares what, who stands out), as it will. Silent machines do
    not count: no threshold changes them.
    """
    out = HealthyRecording()
    recording, blocks = recorded_blocks(path, catalogue, label)
    counters = {rate: _Counter(rate, model, catalogue, recording.topology) for rate in ASKED}
    start_ns: int | None = None
    for tick in _ticks(blocks, recording.label):
        start_ns = tick.start_ns if start_ns is None else start_ns
        out.machine_hours += tick.tick_ns / 3.6e12 * len(tick.machines)
        for counter in counters.values():
            counter.step(tick)
    for rate, counter in counters.items():
        counter.alarms.count = count_false_alarms(counter.opened, start_ns or 0)
        out.alarms[rate] = counter.alarms
    return out


class _Counter:
    """One detector at one rate, and its alarms."""

    def __init__(
        self,
        rate: float,
        model: EvidenceModel,
        catalogue: Catalogue,
        topology: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.alarms = Alarms()
        self._rate, self._model = rate, model
        self._detector = EvidenceDetector(
            "train", catalogue, model, topology, false_alarms_per_job_week=rate
        )
        self.opened: list[Alert] = []

    def step(self, tick: TickBlock) -> None:
        for change in self._detector.update(tick):
            if change.kind == "opened" and change.alert.manifestation != "silent":
                self.opened.append(change.alert)
        rows = max(sum(len(panel.rows) for panel in _panels(self._detector, tick)), 1)
        hours = tick.tick_ns / 3.6e12
        alarms = self.alarms
        alarms.hours += hours
        share = hours / alarms.hours
        alarms.level += (self._model.threshold(rows, self._rate) - alarms.level) * share
        alarms.rows += (rows - alarms.rows) * share


class _Peaks:
    """Peaks of evidence between two times at which it is all taken back."""

    def __init__(self) -> None:
        self._state = PanelState()
        self._state.add("highest", "mr", 0.0, (TESTS,))

    def step(self, panel: PanelEvidence, seconds: float, out: HealthyRecording) -> None:
        if (panel.metrics, panel.rows) != (self._state.metrics, self._state.rows):
            self._state.reindex(panel.metrics, panel.rows)
        total = np.abs(panel.sums.state["total"])
        highest = np.maximum(self._state["highest"], total)
        over = (total == 0) & (highest >= SMALLEST_PEAK_SECONDS)
        self._keep(over, highest, out)
        self._state["highest"] = np.where(total == 0, 0.0, highest)
        here = np.isfinite(panel.state["raw"]).sum(axis=1) * (seconds / 3600.0)
        for m, name in enumerate(panel.metrics):
            out.metrics.setdefault(name, HealthyMetric()).row_hours += float(here[m])

    def finish(self, out: HealthyRecording) -> None:
        """What is still rising counts as far as it got."""
        highest = self._state["highest"]
        self._keep(highest >= SMALLEST_PEAK_SECONDS, highest, out)

    def _keep(self, over: NDArray[np.bool_], highest: Array, out: HealthyRecording) -> None:
        for test, m, row in np.argwhere(over).tolist():
            metric = out.metrics.setdefault(self._state.metrics[m], HealthyMetric())
            metric.peaks[test].append(float(highest[test, m, row]))


def _panels(detector: EvidenceDetector, tick: TickBlock) -> Iterator[PanelEvidence]:
    yield detector.machine_panel
    if tick.gpu_panel is not None and detector.gpu_panel is not None:
        yield detector.gpu_panel


def _ticks(blocks: Iterator[TickBlock], label: Label | None) -> Iterator[TickBlock]:
    """Single ticks of healthy time: all, or up to the onset of the first run's fault."""
    end = None
    if label is not None and label.faulty_machines:
        if label.onset_ns is None:
            return
        end = label.onset_ns
    run = None
    for block in blocks:
        if run is not None and block.run != run:
            return  # a second run needs a detector of its own; the first one says enough
        run = block.run
        for k in range(block.ticks):
            start = block.start_ns + k * block.tick_ns
            if end is not None and start + block.tick_ns > end:
                return
            yield replace(
                block,
                start_ns=start,
                machine_panel=_cut(block.machine_panel, k),
                gpu_panel=_cut(block.gpu_panel, k) if block.gpu_panel is not None else None,
            )


def _cut(panel: Panel, k: int) -> Panel:
    return replace(panel, values=panel.values[:, :, k : k + 1], fresh=panel.fresh[:, :, k : k + 1])
