"""What becomes of an alert once it is open: more evidence, a correction, companions, an end."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.advice import advised
from detect.alert import Alert, AlertChange
from detect.explain import manifestation
from detect.fault_types import fault_types
from detect.habits import Habits
from detect.residuals import LEVEL
from detect.standing import CLEAR, FEW, ODD, Standing, explained
from ingest.catalogue import Catalogue
from models.evidence_model import EvidenceModel

COMPANION_MINUTES = 15
MINUTE_NS = 60 * 10**9
COMPANION_SIZE = 0.33
COMPANION_Z = 2.0
QUIET = 0.2
QUIET_SECONDS = 120.0
UPDATE_SECONDS = 60.0
CORRECT_SECONDS = 300.0
LOWEST_RATE = 1e-12
LEFT = "the machine left the job"


@dataclass(slots=True)
class OpenAlert:
    """An alert that detection has opened and not yet resolved."""

    alert: Alert
    signature: str
    top_score: float
    updated_ns: int
    peak_score: float = 0.0
    quiet_seconds: float = 0.0
    updates: int = 0
    minutes: int = 0
    lasting: dict[str, float] = field(default_factory=dict)


class OpenAlerts:
    """The open alerts of one run, and what they leave behind."""

    def __init__(self, catalogue: Catalogue, model: EvidenceModel) -> None:
        self.catalogue = catalogue
        self.model = model
        self.items: list[OpenAlert] = []
        self.habits = Habits()

    def named(self) -> set[str]:
        """Machines that an open alert accuses."""
        return {m for item in self.items if item.alert.pages for m in item.alert.machines}

    def unnamed(self, st: Standing) -> NDArray[np.float64]:
        """Scores ``[N]``, 0 for machines that are named already or absent."""
        covered = self.named()
        free = np.array([m not in covered for m in st.machines], np.bool_) & st.present
        return np.where(free, st.scores, 0.0)

    def add(self, alert: Alert, signature: str, score: float, st: Standing) -> AlertChange:
        """A new one, completed."""
        alert = self.complete(alert, score, st.rows)
        self.items.append(OpenAlert(alert, signature, score, st.at_ns))
        return AlertChange("opened", alert, st.at_ns)

    def complete(self, alert: Alert, fused: float, rows: int) -> Alert:
        """What follows from the evidence: score and rate, likely faults, proposed action."""
        rate = max(self.model.false_alarm_rate(fused, rows), LOWEST_RATE)
        return advised(
            replace(
                alert,
                score=-math.log10(rate),
                false_alarms_per_job_week=rate,
                fault_types=fault_types(alert),
            )
        )

    def follow(self, st: Standing) -> list[AlertChange]:
        """Update, correct and resolve what is open."""
        where = {m: i for i, m in enumerate(st.machines)}
        changes = []
        for item in list(self.items):
            rows = [where[m] for m in item.alert.machines if m in where]
            if not rows:
                if st.phase.low_seconds == 0:
                    # The job goes on without those whose silence it waited out.
                    changes.append(self.resolve(item, st.at_ns, LEFT))
                continue
            dark = item.alert.manifestation == "silent"
            gpu = item.alert.gpu
            here = [i for i in rows if st.present[i] and not (dark and st.dark(i, gpu))]
            score = max((float(st.scores[i]) for i in rows), default=0.0)
            # Absence of data is no sign of health: it stops the clock.
            calm = bool(here) and score < QUIET * st.threshold
            quiet = len(here) == len(rows) if dark else calm
            if here:
                item.quiet_seconds = item.quiet_seconds + st.tick_seconds if quiet else 0.0
            item.peak_score = max(item.peak_score, score)
            if item.quiet_seconds >= QUIET_SECONDS:
                self.habits.remember(item.alert.machines, item.peak_score, st)
                changes.append(self.resolve(item, st.at_ns, "back among its peers"))
                continue
            change = (
                self._correct(item, st, score)
                or self._join(item, st)
                or self._update(item, st, rows, score)
            )
            if change is not None:
                changes.append(change)
        return changes

    def _update(
        self, item: OpenAlert, st: Standing, rows: list[int], score: float
    ) -> AlertChange | None:
        """More evidence, told at intervals that double."""
        wait = UPDATE_SECONDS * 2 ** min(item.updates, 6)
        due = (st.at_ns - item.updated_ns) / 1e9 >= wait
        silent = item.alert.manifestation == "silent"
        # Once the job rests, the values are those of a stopped job: the story is told already.
        resting = st.phase.name in ("idle", "stalled", "over")
        if not due or silent or resting or score <= 1.1 * item.top_score:
            return None
        top = max(rows, key=lambda i: (st.scores[i], st.machines[i]))
        explanation = explained(st, top, self.catalogue)
        alert = replace(
            item.alert,
            evidence=explanation.evidence,
            manifestation=manifestation(explanation.evidence, st.phase),
        )
        item.alert = self.complete(alert, score, st.rows)
        item.top_score, item.updated_ns = score, st.at_ns
        item.updates += 1
        return AlertChange("updated", item.alert, st.at_ns)

    def _correct(self, item: OpenAlert, st: Standing, score: float) -> AlertChange | None:
        """The victim was named first: the alert moves to the machine that now stands out."""
        young = (st.at_ns - item.alert.detected_at_ns) / 1e9 <= CORRECT_SECONDS
        if item.alert.verdict != "machine" or not young or score >= ODD * st.threshold:
            return None
        scores = self.unnamed(st)
        best = int(np.argmax(scores))
        if scores[best] < CLEAR * st.threshold:
            return None
        explanation = explained(st, best, self.catalogue)
        name = st.machines[best]
        alert = replace(
            item.alert,
            machine=name,
            machines=(name,),
            gpu=explanation.gpu,
            evidence=explanation.evidence,
            onset_ns=min(explanation.onset_ns, item.alert.onset_ns),
            detected_at_ns=st.at_ns,
            manifestation=manifestation(explanation.evidence, st.phase),
            note=f"corrected: {item.alert.machine} was named first",
        )
        item.alert = self.complete(alert, float(scores[best]), st.rows)
        item.signature, item.top_score = explanation.signature, float(scores[best])
        item.updated_ns, item.quiet_seconds = st.at_ns, 0.0
        return AlertChange("updated", item.alert, st.at_ns)

    def resolve(self, item: OpenAlert, at_ns: int, why: str) -> AlertChange:
        """It is over."""
        self.items.remove(item)
        return AlertChange("resolved", replace(item.alert, status="resolved", note=why), at_ns)

    def told_apart(self, changes: list[AlertChange], at_ns: int) -> list[AlertChange]:
        """Alerts that accused nobody are over once ``changes`` accuse one of their machines."""
        opened = {m for c in changes if c.kind == "opened" for m in c.alert.machines}
        return [
            self.resolve(item, at_ns, "told apart")
            for item in list(self.items)
            if not item.alert.pages and opened & self.named() & set(item.alert.machines)
        ]

    def _join(self, item: OpenAlert, st: Standing) -> AlertChange | None:
        """Machines that lie apart for good as the named one does, if less far: one group.

        Their mean distance since the alert counts, looked at once a minute.
        """
        metric, _, direction = item.signature.rpartition(":")
        panel = st.machine_panel
        due = st.at_ns // MINUTE_NS != (st.at_ns - int(st.tick_seconds * 1e9)) // MINUTE_NS
        if not due or item.alert.gpu is not None or metric not in panel.metrics:
            return None
        m = panel.metrics.index(metric)
        where = {name: i for i, name in enumerate(st.machines)}
        rows = [where[n] for n in item.alert.machines if n in where]
        if not rows or panel.sums.test_of(m, rows[0]) != LEVEL:
            return None
        sign = 1.0 if direction == "high" else -1.0
        lasting = sign * panel.residuals.state["lasting"][m]
        item.minutes += 1
        for name, i in where.items():
            before = item.lasting.get(name, 0.0)
            item.lasting[name] = before + (float(lasting[i]) - before) / item.minutes
        if item.minutes < COMPANION_MINUTES:
            return None
        # Against the farthest that is named for the same reason, in whichever alert.
        same = {n for o in self.items if o.signature == item.signature for n in o.alert.machines}
        far = COMPANION_SIZE * max(item.lasting[n] for n in same if n in where)
        sigma = float(panel.residuals.state["level_sigma"][m])
        covered = self.named()
        alike = sorted(
            n
            for n in where
            if n not in covered and item.lasting[n] >= max(far, COMPANION_Z * sigma)
        )
        if not alike or len(alike) + len(rows) > max(2.0, FEW * st.present.sum()):
            return None
        machines = tuple(sorted({*item.alert.machines, *alike}))
        item.alert = advised(
            replace(
                item.alert,
                verdict="group",
                machine=None,
                machines=machines,
                note=f"{', '.join(alike)}: the same difference, smaller",
            )
        )
        return AlertChange("updated", item.alert, st.at_ns)

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return {
            "open": [asdict(item) for item in self.items],
            "past": self.habits.snapshot(),
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.items = [
            OpenAlert(**{**row, "alert": Alert.from_tree(row["alert"])}) for row in tree["open"]
        ]
        self.habits.restore(tree["past"])
