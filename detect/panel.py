"""Everything that detection keeps for one panel: masks, residuals, evidence, and when it began."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.accumulate import FULL, EvidenceSums
from detect.averages import follow, median
from detect.events import ERRORS, Events
from detect.fuse import EFFORT
from detect.load import UNKNOWN, LoadModel
from detect.phase import Moment
from detect.residuals import FAST, SCALE_END, PeerResiduals, Residuals
from detect.state import PanelState
from detect.telemetry_faults import Found, TelemetryFaults
from detect.trust import WRITES, WRITES_LITTLE_Z, WRITING_Z
from detect.who_works import WhoWorks
from ingest.catalogue import Catalogue
from ingest.ticks import Panel
from models.evidence_model import METRIC_DEFAULTS, EvidenceModel, MetricScale

Array = NDArray[np.float64]

RAW_SECONDS = 10.0
ROSE = 0.03
DARK_SHARE = 0.3
SMOOTH = frozenset(
    {"compute", "power", "clock", "thermal", "memory", "pcie", "nvlink", "network", "step"}
)
"""Families that follow the job's steps: their means over many steps are steady."""
LIFE = frozenset({"cpu", "host_memory", "memory", "clock"})
GONE = 0.4
LEAST_LIFE = 0.1
BACK_HALF_LIFE_SECONDS = 1800.0
COME_BACK = 0.1
"""Share of the rows, or two of few, that came back within so long, from which that is usual."""
SPINNING, SPINNING_ROWS, SPINNING_SHARE = 0.3, 4, 0.9
"""Activity, number of rows and share of all others but one from which they spin alike,"""
SPINS_ALIKE, STUCK = 0.03, 0.92
"""within so much of their middle, and share of that below which one does not."""
DEAD = 0.25
ALIKE, MOST_ALIKE = 0.6, 0.7
DEAD_SHARE = 0.1
"""At rest, less than so much of the peers' middle is nothing, if most of these have so much of it
and few rows have nothing."""
LEAST_LEFT = {"B/s": 1e6, "ratio": 0.005}
"""What the peers still do at rest, in canonical units, for a row without it to be odd."""
QUIET_BY_UNIT = {"B/s": 1e7, "1/s": 20.0, "W": 10.0, "ratio": 0.02}
QUIET_BY_FAMILY = {"disk": 1e6, "tcp": 1e6}
"""Magnitudes below which a difference means nothing, in canonical units: a link that carries
gigabytes is not slow because it idles at kilobytes. An unknown metric has none."""


class PanelEvidence:
    """One panel's way from values to a fused score per row."""

    def __init__(self, catalogue: Catalogue, model: EvidenceModel) -> None:
        def family(metric: str) -> str:
            known = catalogue.metric(metric)
            # Unknown metrics are strangers to each other: each is its own witness.
            return known.family if known.family != "other" else f"{UNKNOWN}{metric}"

        def scale(metric: str) -> MetricScale:
            return model.scale(metric, catalogue.metric(metric).family)

        def quiet(metric: str) -> float:
            known = catalogue.metric(metric)
            return QUIET_BY_FAMILY.get(known.family, QUIET_BY_UNIT.get(known.seen_unit, 0.0))

        def least_left(metric: str) -> float:
            known = catalogue.metric(metric)
            return LEAST_LEFT.get(known.seen_unit, np.inf) if known.family in EFFORT else np.inf

        def bursty(metric: str) -> bool:
            return metric in METRIC_DEFAULTS or catalogue.metric(metric).family not in SMOOTH

        self.family = family
        self.least_left = least_left

        def scope(metric: str) -> str:
            return catalogue.metric(metric).scope

        self.faults = TelemetryFaults(family, scope)
        self.work = WhoWorks(family, scope)
        """Who takes part; followed in a panel of machines only."""
        self.load = LoadModel()
        self.residuals = PeerResiduals(scale, quiet, bursty)
        self.sums = EvidenceSums(scale, family)
        self.events = Events(lambda metric: catalogue.metric(metric).sticky)
        self.state = PanelState()
        self.state.add("raw", "mr", np.nan)
        self.state.add("rose_ns", "mr", 0, dtype=np.int64)
        self.state.add("since_ns", "r", 0, dtype=np.int64)
        self.state.add("worst_z", "r", 0.0, dtype=np.float32)
        self.state.add("score", "r", 0.0)
        self.state.add("witness", "r", 0.0)
        self.state.add("present", "r", False, dtype=np.bool_)
        self.state.add("writing", "r", False, dtype=np.bool_)
        self.state.add("writes_little", "r", False, dtype=np.bool_)
        self.state.add("had", "mr", False, dtype=np.bool_)
        self.state.add("dark", "r", False, dtype=np.bool_)
        self.state.add("gone", "r", False, dtype=np.bool_)
        self.state.add("alive", "r", False, dtype=np.bool_)
        self.state.add("lost", "r", False, dtype=np.bool_)
        self.state.add("found", "r", 0.0)
        self._compared: NDArray[np.int64] = np.zeros(0, np.int64)
        self._errors: NDArray[np.int64] = np.zeros(0, np.int64)
        self.metrics: tuple[str, ...] = ()
        self.rows: tuple[str, ...] = ()
        self.machine: NDArray[np.int64] = np.zeros(0, np.int64)
        self.gpu: NDArray[np.int64] = np.zeros(0, np.int64)
        self.strength: NDArray[np.floating] = np.zeros((0, 0))
        self.centre: Array = np.zeros(0)
        self._least_left: Array = np.zeros(0)
        self._of_machines = True
        self._writes: NDArray[np.int64] = np.zeros(0, np.int64)
        self._life: NDArray[np.int64] = np.zeros(0, np.int64)
        self._activity: NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def score(self) -> Array:
        """Fused score ``[R]`` after the last tick, higher is worse."""
        return self.state["score"]

    @property
    def present(self) -> NDArray[np.bool_]:
        """``bool [R]``: the last tick had a usable value with peers."""
        return self.state["present"]

    @property
    def dark(self) -> NDArray[np.bool_]:
        """``bool [R]``: much of what the row used to send is missing."""
        return self.state["dark"]

    @property
    def gone(self) -> NDArray[np.bool_]:
        """``bool [R]``: processor load or memory in use say that the job's process is gone."""
        return self.state["gone"]

    @property
    def alive(self) -> NDArray[np.bool_]:
        """``bool [R]``: processor load and memory in use say that it lives."""
        return self.state["alive"]

    @property
    def writes_little(self) -> NDArray[np.bool_]:
        """``bool [R]``: visibly writes no more than its peers."""
        return self.state["writes_little"]

    @property
    def writing(self) -> NDArray[np.bool_]:
        """``bool [R]``: writes much more than its peers."""
        return self.state["writing"]

    def reindex(self, panel: Panel, machines: tuple[str, ...], tick_seconds: float) -> None:
        """Follow the roster of a block."""
        errors = [self.family(m) == ERRORS for m in panel.metrics]
        self._errors = np.flatnonzero(errors)
        self._compared = np.flatnonzero(np.logical_not(errors))
        self.metrics = tuple(panel.metrics[i] for i in self._compared.tolist())
        self.machine, self.gpu = panel.machine, panel.gpu
        self.rows = tuple(
            machines[m] if g < 0 else f"{machines[m]}\t{g}"
            for m, g in zip(panel.machine.tolist(), panel.gpu.tolist(), strict=True)
        )
        self._least_left = np.array([self.least_left(m) for m in self.metrics])
        self._writes = np.array([i for i, m in enumerate(self.metrics) if m in WRITES], np.int64)
        life = [i for i, m in enumerate(self.metrics) if self.family(m) in LIFE]
        self._life = np.array(life, np.int64)
        activity = [i for i, m in enumerate(self.metrics) if self.family(m) == "compute"]
        self._activity = np.array(activity, np.int64)
        self.faults.reindex(self.metrics, self.rows)
        self.load.reindex(self.metrics, [self.family(m) for m in self.metrics], self.rows)
        self.residuals.reindex(self.metrics, self.rows, tick_seconds)
        self.sums.reindex(self.metrics, self.rows, panel.machine)
        self.events.reindex(tuple(panel.metrics[i] for i in self._errors.tolist()), self.rows)
        self._of_machines = bool((panel.gpu < 0).all())
        if self._of_machines:
            self.work.reindex(self.metrics, self.rows)
        self.state.reindex(self.metrics, self.rows)

    def forget(self, rows: NDArray[np.bool_]) -> None:
        """Start anew with ``rows``, ``bool [R]``."""
        for part in (self.faults, self.load, self.residuals, self.sums, self.events, self):
            part.state.forget(rows)
        if self._of_machines:
            self.work.state.forget(rows)
        self.sums.patience.learn_needed()

    def step(
        self,
        values: Array,
        fresh: NDArray[np.bool_],
        at_ns: int,
        tick_seconds: float,
        suspect: NDArray[np.bool_],
        trust: Array,
        moment: Moment,
        of_machine: Found | None = None,
    ) -> None:
        """One tick of the panel, ``values`` ``[M, R]`` and which are ``fresh``; ``suspect``
        ``bool [R]``.

        ``trust`` ``[R]`` is that of `EvidenceSums.step`, ``moment`` what the job does,
        ``of_machine`` that of `TelemetryFaults.mask`.
        """
        s = self.state
        x = values[self._compared]
        self.faults.mask(x, s["worst_z"], tick_seconds, of_machine)
        looks = self.residuals.looks
        adjusted = self.load.adjusted(x, tick_seconds)
        r = self.residuals.step(adjusted, suspect | self.sums.excursions() if looks else suspect)
        self.centre = (
            np.sinh(np.clip(r.centre, -SCALE_END, SCALE_END)) * self.residuals.state["ref"]
        )
        fast = r.z[FAST]
        s["writing"] = np.asarray((fast[self._writes] > WRITING_Z).any(axis=0))
        quiet = r.valid[self._writes] & (fast[self._writes] < WRITES_LITTLE_Z)
        s["writes_little"] = quiet.all(axis=0) & bool(self._writes.size)
        if looks:
            gone, s["alive"] = self._signs_of_life(r)
            s["gone"] = gone & (not self._come_back(gone, self.residuals.look_seconds))
            if self._of_machines:
                self.work.look(r, self.residuals.state, s["raw"], s["had"])
        if moment.idle:
            odd = self._dead(r)
            if moment.stalled:
                odd |= self._stuck(r)
            np.minimum(fast, -FULL[FAST], out=fast, where=odd)
        s["worst_z"] = np.abs(fast).max(axis=0, initial=0.0)
        self.sums.step(r, tick_seconds, trust, moment)
        self.strength, score = self.sums.judge(s["gone"], moment)
        s["witness"] = self.events.step(
            values[self._errors], fresh[self._errors], at_ns, tick_seconds, score, moment
        )
        s["score"] = score + s["witness"]
        here = np.isfinite(x)
        everywhere = bool(here.all())
        s["had"] |= here
        s["dark"] = np.zeros(here.shape[1], np.bool_) if everywhere else self._dark(here)
        s["present"] = np.asarray(r.valid.any(axis=0))
        follow(s["raw"], x, min(1.0, tick_seconds / RAW_SECONDS), here, everywhere)
        np.copyto(s["rose_ns"], at_ns, where=self.strength < ROSE)
        np.copyto(s["since_ns"], at_ns, where=self.score < ROSE)

    def _dead(self, r: Residuals) -> NDArray[np.bool_]:
        """Cells ``bool [M, R]`` at next to nothing of what the others still do while the job rests.

        What is left of traffic and activity then is too little to differ by the usual measure.
        """
        dead = np.zeros(r.valid.shape, np.bool_)
        for m in np.flatnonzero(self.centre >= self._least_left).tolist():
            valid, share = r.valid[m], np.sinh(self.residuals.state["y"][FAST, m])
            rows = np.count_nonzero(valid)
            centre = float(median(share[valid], np.array(rows))) if rows else 0.0
            low = valid & (share < DEAD * centre)
            alike = np.count_nonzero(share[valid] > ALIKE * centre)
            if np.count_nonzero(low) <= max(1, DEAD_SHARE * rows) and alike >= MOST_ALIKE * rows:
                dead[m] = low & r.established[m]
        return dead

    def _stuck(self, r: Residuals) -> NDArray[np.bool_]:
        """Cells ``bool [M, R]`` of the one row that is less active while all others spin alike.

        The usual noise is that of work; machines that only wait for one another have none.
        """
        stuck = np.zeros(r.valid.shape, np.bool_)
        for m in self._activity.tolist():
            valid, share = r.valid[m], np.sinh(self.residuals.state["y"][FAST, m])
            rows = np.count_nonzero(valid)
            if rows < SPINNING_ROWS or self.centre[m] < SPINNING:
                continue
            centre = float(np.median(share[valid]))
            alike = np.count_nonzero(np.abs(share[valid] - centre) < SPINS_ALIKE * centre)
            low = valid & (share < STUCK * centre)
            if alike >= SPINNING_SHARE * (rows - 1) and np.count_nonzero(low) == 1:
                stuck[m] = low & r.established[m]
        return stuck

    def _dark(self, here: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Rows that miss much of what they had before, ``bool [R]``."""
        had = self.state["had"]
        missing = had & ~here
        # Few rows miss anything: only theirs is counted.
        rows = np.flatnonzero(missing.any(axis=0))
        dark = np.zeros(had.shape[1], np.bool_)
        dark[rows] = missing[:, rows].sum(axis=0) >= DARK_SHARE * had[:, rows].sum(axis=0)
        return dark

    def _signs_of_life(self, r: Residuals) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whose process is gone, and whose lives, by what a machine without one does not use."""
        life = self._life
        residuals = self.residuals.state
        known = (r.valid & r.established)[life]
        # Unknown values are told apart by ``known``.
        usual = np.sinh(np.clip(r.centre[life][:, None] + residuals["base"][life], None, SCALE_END))
        known &= usual > LEAST_LIFE
        low = residuals["y"][FAST][life] < np.arcsinh(GONE * usual)
        gone = (known & low).any(axis=0)
        return gone, known.any(axis=0) & ~gone

    def _come_back(self, gone: NDArray[np.bool_], seconds: float) -> bool:
        """Whether rows that seem ``gone`` come back in this job: who is done with its part of a
        long step (a rollout) lets its process rest, and waits.
        """
        s = self.state
        back = s["lost"] & s["alive"]
        s["found"] = np.maximum(s["found"] * 2.0 ** (-seconds / BACK_HALF_LIFE_SECONDS), back)
        s["lost"] = gone | (s["lost"] & ~back)
        return bool(np.count_nonzero(s["found"] >= 0.5) >= max(2.0, COME_BACK * gone.size))

    def snapshot(self) -> dict[str, Any]:
        """State tree; the roster comes back with the next block."""
        return {
            "faults": self.faults.snapshot(),
            "load": self.load.state.snapshot(),
            "residuals": self.residuals.snapshot(),
            "sums": self.sums.snapshot(),
            "events": self.events.snapshot(),
            "work": self.work.state.snapshot(),
            "state": self.state.snapshot(),
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.faults.restore(tree["faults"])
        self.load.state.restore(tree["load"])
        self.residuals.restore(tree["residuals"])
        self.sums.restore(tree["sums"])
        self.events.restore(tree["events"])
        self.work.state.restore(tree["work"])
        self.state.restore(tree["state"])
