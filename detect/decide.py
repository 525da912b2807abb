"""From scores to verdicts: which machine, which group, or nobody; open, update, resolve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.alert import Alert, AlertChange, Evidence, VerdictKind
from detect.explain import ACTIONS, Explanation, explain, manifestation
from detect.fault_types import fault_types
from detect.identity import alert_id
from detect.panel import PanelEvidence
from detect.phase import JobPhase
from detect.residuals import LEVEL
from detect.silence import Silence
from detect.topology import shared_by
from ingest.catalogue import Catalogue
from models.evidence_model import EvidenceModel

ODD = 0.5
"""Share of the threshold from which a machine counts as odd."""
MEMBER = 0.7
CLEAR = 1.5
"""A machine this many times ahead of the next is named at once."""
GRACE_SECONDS = 10.0
UNEXPLAINED = 3.0
TOGETHER_NS = 15 * 10**9
JOB_WIDE = 0.4
FEW = 0.3
ALIKE = 8
COMPANION = 0.6
"""Threshold share for one that is odd in the very way of a machine already named."""
COMPANION_MINUTES = 15
MINUTE_NS = 60 * 10**9
COMPANION_SIZE = 0.33
COMPANION_Z = 2.0
QUIET = 0.2
QUIET_SECONDS = 120.0
HABIT = 1.25
HABIT_LIMIT = 2.5
HABIT_HALF_LIFE_SECONDS = 3600.0
HABITS = 64
UPDATE_SECONDS = 60.0
UNDETERMINED_SECONDS = 180.0
CORRECT_SECONDS = 300.0
LOWEST_RATE = 1e-12


@dataclass(frozen=True, slots=True)
class Standing:
    """How every machine stands after one tick; ``scores`` ``[N]``, ``present`` ``bool [N]``."""

    run: int
    at_ns: int
    tick_seconds: float
    machines: tuple[str, ...]
    scores: NDArray[np.float64]
    present: NDArray[np.bool_]
    threshold: float
    machine_panel: PanelEvidence
    gpu_panel: PanelEvidence | None
    phase: JobPhase


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


class Decision:
    """Keeps the open alerts of one run and says what changes."""

    def __init__(
        self,
        job: str,
        catalogue: Catalogue,
        model: EvidenceModel,
        topology: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.job = job
        self.catalogue = catalogue
        self.model = model
        self.topology = topology
        self.open: list[OpenAlert] = []
        self.silence = Silence()
        self._crossed_ns: int | None = None
        self._past: dict[str, tuple[float, int]] = {}

    def step(self, st: Standing) -> list[AlertChange]:
        """One tick; changes in the order they happened."""
        silent = self.silence.step(st)
        if not self.open and not silent and not (st.scores >= st.threshold).any():
            self._crossed_ns = None
            return []
        changes = self._follow(st)
        changes.extend(self._name_silent(st, silent))
        changes.extend(self._name(st))
        return changes

    def roster(self, machines: tuple[str, ...], at_ns: int) -> list[AlertChange]:
        """The roster is now ``machines``: an alert all of whose machines left is over."""
        self.silence.reindex(machines)
        here = set(machines)
        gone = [i for i in self.open if i.alert.machines and not here & set(i.alert.machines)]
        return [self._resolve(item, at_ns, "the machine left the job") for item in gone]

    def finish(self, at_ns: int) -> list[AlertChange]:
        """The run ended: nothing stays open."""
        return [self._resolve(item, at_ns, "the job ended") for item in list(self.open)]

    # -- naming -----------------------------------------------------------------------------

    def named(self) -> set[str]:
        """Machines that an open alert names."""
        return {m for item in self.open for m in item.alert.machines}

    def _name(self, st: Standing) -> list[AlertChange]:
        covered = self.named()
        free = np.array([m not in covered for m in st.machines], np.bool_) & st.present
        level = np.where(free, st.scores, 0.0) / st.threshold
        self._expect_habits(st, level)
        companions = self._companions(st, level)
        if companions:
            return [self._open(st, "machine", [i]) for i in companions]
        if not (level >= 1).any():
            self._crossed_ns = None
            return []
        if self._crossed_ns is None:
            self._crossed_ns = st.at_ns
        waited = (st.at_ns - self._crossed_ns) / 1e9
        order = np.argsort(-level, kind="stable")
        first = int(order[0])
        second = float(level[order[1]]) if level.size > 1 else 0.0
        odd = np.flatnonzero(level >= ODD)
        together = self._together(st, first, odd)
        if level[first] >= (CLEAR * second if together else 1.0):
            return [self._open(st, "machine", [first])]
        if waited < GRACE_SECONDS:
            return []
        members = np.flatnonzero(level >= MEMBER).tolist()
        share = odd.size / max(int(st.present.sum()), 1)
        common = shared_by([st.machines[i] for i in members], self.topology, st.machines)
        if common is not None:
            inside = [i for i in members if st.machines[i] in common.machines]
            if len(inside) > 1 and share <= 0.6:
                return [self._open(st, "group", inside, shared=common.name)]
        if share > JOB_WIDE or int(st.present.sum()) <= 4:
            return self._undetermined(st, members, waited)
        crossed = [i for i in members if level[i] >= 1]
        # Machines that became odd together and share nothing known are more often a habit of
        # the job (who saves checkpoints, who evaluates) than a fault: they need more.
        if level[first] < UNEXPLAINED:
            return self._undetermined(st, members, waited)
        alike = {self._explain(st, i).signature for i in members}
        if len(members) >= 3 and len(alike) == 1:
            return [self._open(st, "group", members, shared=None)]
        if odd.size <= max(2.0, FEW * st.present.sum()):
            return [self._open(st, "machine", [i]) for i in crossed]
        return self._undetermined(st, members, waited)

    def _expect_habits(self, st: Standing, level: NDArray[np.float64]) -> None:
        """What came, was told and went by itself is told again only when it is worse, in place."""
        for machine, (top, at_ns) in self._past.items():
            if machine not in st.machines:
                continue
            faded = _faded(top, at_ns, st.at_ns)
            level[st.machines.index(machine)] /= min(max(1.0, faded / st.threshold), HABIT_LIMIT)

    def _forget_faded(self, st: Standing) -> None:
        """Drop habits too faint to count, even if fewer machines lowered the threshold by half."""
        for machine, (top, at_ns) in list(self._past.items()):
            if _faded(top, at_ns, st.at_ns) < 0.5 * st.threshold:
                del self._past[machine]

    def _together(self, st: Standing, first: int, odd: NDArray[np.int64]) -> bool:
        """Whether others became odd at about the moment of the first, or in its very way."""
        since = st.machine_panel.state["since_ns"]
        apart = np.abs(since[odd] - since[first])
        if int((apart <= TOGETHER_NS + int(2e9 * st.tick_seconds)).sum()) > 1:
            return True
        look = self._explain(st, first).signature
        # The strongest of them, whatever their order.
        others = odd[np.argsort(-st.scores[odd], kind="stable")][:ALIKE].tolist()
        return any(self._explain(st, i).signature == look for i in others if i != first)

    def _companions(self, st: Standing, level: NDArray[np.float64]) -> list[int]:
        """Machines odd in the very way of one already named, at a lower threshold.

        ``level`` ``[N]`` is 0 for those named already or absent.
        """
        named = [item for item in self.open if item.alert.verdict == "machine"]
        if not named:
            return []
        alike = [
            i
            for i in np.flatnonzero(level >= COMPANION).tolist()
            if any(self._explain(st, i).signature == item.signature for item in named)
            and self._lastingly(st, i)
        ]
        # More than one at once are a habit that several have, until they prove otherwise.
        return alike if len(alike) == 1 else []

    def _lastingly(self, st: Standing, i: int) -> bool:
        """Whether the machine is odd by lying apart for good, not by what it does just now."""
        panel = st.machine_panel
        strongest = int(np.argmax(panel.strength[:, i]))
        return panel.sums.test_of(strongest, i) == LEVEL

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
        same = {n for o in self.open if o.signature == item.signature for n in o.alert.machines}
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
        item.alert = replace(
            item.alert,
            verdict="group",
            machine=None,
            machines=machines,
            note=f"{', '.join(alike)}: the same difference, smaller",
        )
        return AlertChange("updated", item.alert, st.at_ns)

    def _undetermined(self, st: Standing, members: list[int], waited: float) -> list[AlertChange]:
        """Something is odd and nobody can be singled out: shown after a while, never paged."""
        if self.open or waited < UNDETERMINED_SECONDS:
            return []
        return [self._open(st, "undetermined", members)]

    def _name_silent(self, st: Standing, silent: Sequence[int]) -> list[AlertChange]:
        """Machines that fell silent while the job stands still."""
        covered = self.named()
        new = [i for i in silent if st.machines[i] not in covered]
        if not new:
            return []
        if len(new) == 1:
            return [self._open(st, "machine", new, silent=True)]
        common = shared_by([st.machines[i] for i in new], self.topology, st.machines)
        if common is not None:
            return [self._open(st, "group", new, shared=common.name, silent=True)]
        return []

    def _explain(self, st: Standing, i: int) -> Explanation:
        """From the GPU row when one GPU says more than the whole machine."""
        g = st.gpu_panel
        if g is not None:
            rows = np.flatnonzero(g.machine == i)
            if rows.size:
                scores = g.score[rows]
                worst = int(rows[int(np.argmax(scores))])
                few = (scores >= 0.5 * scores.max()).sum() * 2 <= rows.size or rows.size == 1
                if few and g.score[worst] > st.machine_panel.score[i]:
                    return explain(g, worst, self.catalogue)
        return explain(st.machine_panel, i, self.catalogue)

    def _open(
        self,
        st: Standing,
        verdict: VerdictKind,
        members: Sequence[int],
        *,
        shared: str | None = None,
        silent: bool = False,
    ) -> AlertChange:
        names = sorted(st.machines[i] for i in members)
        top = max(members, key=lambda i: (st.scores[i], st.machines[i]))
        explanation = self._explain(st, top)
        if silent:
            explanation = _silent_explanation(self.silence.since_ns(st, top))
        score = max(float(st.scores[top]), st.threshold) if silent else float(st.scores[top])
        alert = Alert(
            id=alert_id(self.job, st.run, shared or ",".join(names[:64]), st.at_ns),
            status="open",
            verdict=verdict,
            job=self.job,
            machine=names[0] if verdict == "machine" else None,
            machines=tuple(names),
            gpu=explanation.gpu if verdict == "machine" else None,
            manifestation="silent" if silent else manifestation(explanation.evidence, st.phase),
            onset_ns=explanation.onset_ns,
            detected_at_ns=st.at_ns,
            score=0.0,
            false_alarms_per_job_week=0.0,
            evidence=explanation.evidence,
            fault_types=(),
            recommended_action="",
            model=f"{self.model.name}-{self.model.version}",
            pages=verdict in ("machine", "group"),
            shared=shared,
        )
        alert = self._complete(alert, score, len(st.machines))
        self.open.append(OpenAlert(alert, explanation.signature, score, st.at_ns))
        return AlertChange("opened", alert, st.at_ns)

    def _complete(self, alert: Alert, fused: float, machines: int) -> Alert:
        """What follows from the evidence: score and rate, likely faults, proposed action."""
        rate = max(self.model.false_alarm_rate(fused, machines), LOWEST_RATE)
        return replace(
            alert,
            score=-math.log10(rate),
            false_alarms_per_job_week=rate,
            fault_types=fault_types(alert),
            recommended_action=ACTIONS[alert.manifestation],
        )

    # -- following --------------------------------------------------------------------------

    def _follow(self, st: Standing) -> list[AlertChange]:
        """Update, correct and resolve what is open."""
        where = {m: i for i, m in enumerate(st.machines)}
        changes = []
        for item in list(self.open):
            rows = [where[m] for m in item.alert.machines if m in where]
            if not rows:
                continue
            dark = item.alert.manifestation == "silent"
            here = [i for i in rows if st.present[i] and not (dark and st.machine_panel.dark[i])]
            score = max((float(st.scores[i]) for i in rows), default=0.0)
            if item.alert.manifestation == "silent":
                quiet = len(here) == len(rows)
            else:
                # Absence of data is no sign of health: it stops the clock.
                quiet = bool(here) and score < QUIET * st.threshold
            if here:
                item.quiet_seconds = item.quiet_seconds + st.tick_seconds if quiet else 0.0
            item.peak_score = max(item.peak_score, score)
            if item.quiet_seconds >= QUIET_SECONDS:
                self._forget_faded(st)
                for machine in item.alert.machines[:HABITS]:
                    self._past[machine] = (item.peak_score, st.at_ns)
                changes.append(self._resolve(item, st.at_ns, "back among its peers"))
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
        explanation = self._explain(st, top)
        alert = replace(
            item.alert,
            evidence=explanation.evidence,
            manifestation=manifestation(explanation.evidence, st.phase),
        )
        item.alert = self._complete(alert, score, len(st.machines))
        item.top_score, item.updated_ns = score, st.at_ns
        item.updates += 1
        return AlertChange("updated", item.alert, st.at_ns)

    def _correct(self, item: OpenAlert, st: Standing, score: float) -> AlertChange | None:
        """The victim was named first: the alert moves to the machine that now stands out."""
        young = (st.at_ns - item.alert.detected_at_ns) / 1e9 <= CORRECT_SECONDS
        if item.alert.verdict != "machine" or not young or score >= ODD * st.threshold:
            return None
        covered = self.named()
        free = np.array([m not in covered for m in st.machines], np.bool_) & st.present
        scores = np.where(free, st.scores, 0.0)
        best = int(np.argmax(scores))
        if scores[best] < CLEAR * st.threshold:
            return None
        explanation = self._explain(st, best)
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
        item.alert = self._complete(alert, float(scores[best]), len(st.machines))
        item.signature, item.top_score = explanation.signature, float(scores[best])
        item.updated_ns, item.quiet_seconds = st.at_ns, 0.0
        return AlertChange("updated", item.alert, st.at_ns)

    def _resolve(self, item: OpenAlert, at_ns: int, why: str) -> AlertChange:
        self.open.remove(item)
        return AlertChange("resolved", replace(item.alert, status="resolved", note=why), at_ns)

    # -- state ------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return {
            "open": [asdict(item) for item in self.open],
            "crossed_ns": self._crossed_ns,
            "past": [[m, top, at_ns] for m, (top, at_ns) in self._past.items()],
            "silence": self.silence.snapshot(),
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.open = [
            OpenAlert(**{**row, "alert": Alert.from_tree(row["alert"])}) for row in tree["open"]
        ]
        self._crossed_ns = tree["crossed_ns"]
        self._past = {m: (top, at_ns) for m, top, at_ns in tree["past"]}
        self.silence.restore(tree["silence"])


def _faded(top: float, at_ns: int, now_ns: int) -> float:
    """What is left of the score of something that went by itself."""
    return HABIT * top * math.exp2(-(now_ns - at_ns) / 1e9 / HABIT_HALF_LIFE_SECONDS)


def _silent_explanation(since_ns: int) -> Explanation:
    missing = Evidence("telemetry", "", None, None, None, None, "missing", since_ns, 1.0)
    return Explanation((missing,), since_ns, "telemetry:missing", None)
