"""From scores to verdicts: which machine, which group, or nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detect.alert import Alert, AlertChange, Evidence, VerdictKind
from detect.explain import Explanation, manifestation
from detect.identity import alert_id
from detect.open_alerts import LEFT, OpenAlerts
from detect.residuals import LEVEL
from detect.silence import Silence
from detect.standing import CLEAR, FEW, ODD, Standing, explained
from detect.topology import shared_by
from ingest.catalogue import Catalogue
from models.evidence_model import EvidenceModel

MEMBER = 0.7
GRACE_SECONDS = 10.0
UNEXPLAINED = 3.0
LASTING_SECONDS = 600.0
"""Machines that became odd together without sharing anything known need so much more evidence, or,
if they are only two, to stay odd for so long: no evaluation, no checkpoint lasts."""
TOGETHER_NS = 15 * 10**9
JOB_WIDE = 0.4
ALIKE = 8
COMPANION = 0.6
"""Threshold share for one that is odd in the very way of a machine already named."""
SEVERAL = 3
"""So many machines odd in the same way have it from what they are."""
ALIKE_COSINE = 0.7
"""Cosine between the evidence of two machines, over the metrics, from which they are alike."""
ALONE = 1.0
"""Evidence in one metric beyond all others' from which a machine is odd in a way of its own."""
SOLE = 0.7
"""Share from which one metric is all the evidence."""
UNDETERMINED_SECONDS = 180.0
RIVAL = 0.3
"""Threshold share from which another machine may be what the job waits for."""
RIVALLED_SILENCE_SECONDS = 90.0
EXPLAINS_SECONDS = 60.0
"""An alert may explain a standstill that began at most so long after it."""


class Decision:
    """Names machines of one run; what is open is followed by `detect.open_alerts`."""

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
        self.open = OpenAlerts(catalogue, model)
        self.silence = Silence()
        self.gpu_silence = Silence()
        self._crossed_ns: int | None = None

    def step(self, st: Standing) -> list[AlertChange]:
        """One tick; changes in the order they happened."""
        silent = self.silence.step(st, st.machine_panel)
        lost = [] if st.gpu_panel is None else self.gpu_silence.step(st, st.gpu_panel)
        if not (self.open.items or silent or lost) and not (st.scores >= st.threshold).any():
            self._crossed_ns = None
            return []
        changes = self.open.follow(st)
        changes.extend(self._name_silent(st, silent))
        changes.extend(self._name_lost_gpu(st, lost))
        waits = st.phase.low_seconds > 0
        if waits and any(item.alert.manifestation == "silent" for item in self.open.items):
            # It is known whom the job waits for.
            return changes + self.open.told_apart(changes, st.at_ns)
        changes.extend(self._name(st))
        return changes + self.open.told_apart(changes, st.at_ns)

    def roster(
        self,
        machines: tuple[str, ...],
        at_ns: int,
        *,
        waits: bool = False,
        gpus: tuple[str, ...] = (),
    ) -> list[AlertChange]:
        """The roster is now ``machines``, and ``gpus`` (rows of their panel): an alert all of whose
        machines left is over.

        Not while the job still ``waits`` for them: that they are silent is the alert.
        """
        self.silence.reindex(machines)
        self.gpu_silence.reindex(gpus)
        here = set(machines)
        gone = [
            item
            for item in self.open.items
            if item.alert.machines
            and not here & set(item.alert.machines)
            and not (waits and item.alert.manifestation == "silent")
        ]
        return [self.open.resolve(item, at_ns, LEFT) for item in gone]

    def finish(self, at_ns: int) -> list[AlertChange]:
        """The run ended: nothing stays open."""
        return [self.open.resolve(item, at_ns, "the job ended") for item in list(self.open.items)]

    def _name(self, st: Standing) -> list[AlertChange]:
        level = self.open.unnamed(st) / st.threshold
        self.open.habits.expect(st, level)
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
        lone = self._unlike(st, members)
        if lone is not None and level[lone] >= 1:
            return [self._open(st, "machine", [lone])]
        share = odd.size / max(int(st.present.sum()), 1)
        common = shared_by([st.machines[i] for i in members], self.topology, st.machines)
        if common is not None and share <= 0.6:
            inside = [i for i in members if st.machines[i] in common.machines]
            if len(inside) > 1 and (common.physical or self._in_several_metrics(st, members)):
                return [self._open(st, "group", inside, shared=common.name)]
        if int(st.present.sum()) <= 4:
            return self._nobody(st, "undetermined", members, waited)
        if share > JOB_WIDE:
            return self._nobody(st, "job", members, waited)
        crossed = [i for i in members if level[i] >= 1]
        # Machines that became odd together and share nothing known are more often a habit of
        # the job (who saves checkpoints, who evaluates) than a fault: they need more.
        if level[first] < UNEXPLAINED and (odd.size > 2 or waited < LASTING_SECONDS):
            return self._nobody(st, "undetermined", members, waited)
        alike = {explained(st, i, self.catalogue).signature for i in members}
        if len(members) >= 3 and len(alike) == 1 and self._in_several_metrics(st, members):
            return [self._open(st, "group", members, shared=None)]
        if odd.size <= max(2.0, FEW * st.present.sum()):
            return [self._open(st, "machine", [i]) for i in crossed]
        return self._nobody(st, "undetermined", members, waited)

    def _in_several_metrics(self, st: Standing, members: Sequence[int]) -> bool:
        """Whether each of the ``members`` is odd in more than one metric.

        What several machines have otherwise in one alone is their work.
        """
        looks = (explained(st, i, self.catalogue) for i in members)
        return all(look.evidence and look.evidence[0].share < SOLE for look in looks)

    def _unlike(self, st: Standing, members: Sequence[int]) -> int | None:
        """The one member that is odd in a way of its own while several others share theirs.

        What several have in common is what they are (another GPU model spins otherwise while it
        waits); the job waits for the one that is like nobody.
        """
        if len(members) <= SEVERAL:
            return None
        strength = st.machine_panel.strength[:, members].astype(np.float64)
        alone = [
            k
            for k in range(len(members))
            if (strength[:, k] - np.delete(strength, k, axis=1).max(axis=1)).max() >= ALONE
        ]
        if len(alone) != 1:
            return None
        others = np.delete(strength, alone, axis=1)
        others /= np.maximum(np.sqrt(np.square(others).sum(axis=0)), 1e-12)
        return members[alone[0]] if (others.T @ others).min() >= ALIKE_COSINE else None

    def _together(self, st: Standing, first: int, odd: NDArray[np.int64]) -> bool:
        """Whether others became odd at about the moment of the first, or in its very way."""
        since = st.machine_panel.state["since_ns"]
        apart = np.abs(since[odd] - since[first])
        if int((apart <= TOGETHER_NS + int(2e9 * st.tick_seconds)).sum()) > 1:
            return True
        look = explained(st, first, self.catalogue).signature
        # The strongest of them, whatever their order.
        others = odd[np.argsort(-st.scores[odd], kind="stable")][:ALIKE].tolist()
        return any(explained(st, i, self.catalogue).signature == look for i in others if i != first)

    def _companions(self, st: Standing, level: NDArray[np.float64]) -> list[int]:
        """Machines odd in the very way of one already named, at a lower threshold.

        ``level`` ``[N]`` is 0 for those named already or absent.
        """
        looks = {i.signature for i in self.open.items if i.alert.verdict == "machine"}
        if not looks:
            return []
        alike = [
            i
            for i in np.flatnonzero(level >= COMPANION).tolist()
            if explained(st, i, self.catalogue).signature in looks and self._lastingly(st, i)
        ]
        # More than one at once are a habit that several have, until they prove otherwise.
        return alike if len(alike) == 1 else []

    def _lastingly(self, st: Standing, i: int) -> bool:
        """Whether the machine is odd by lying apart for good, not by what it does just now."""
        panel = st.machine_panel
        strongest = int(np.argmax(panel.strength[:, i]))
        return panel.sums.test_of(strongest, i) == LEVEL

    def _nobody(
        self, st: Standing, verdict: VerdictKind, members: list[int], waited: float
    ) -> list[AlertChange]:
        """Something is odd and nobody can be singled out: shown after a while, never paged."""
        if self.open.items or waited < UNDETERMINED_SECONDS:
            return []
        return [self._open(st, verdict, members)]

    def _name_silent(self, st: Standing, silent: Sequence[int]) -> list[AlertChange]:
        """Machines that fell silent while the job stands still."""
        covered = self.open.named()
        new = [i for i in silent if st.machines[i] not in covered]
        if not new:
            return []
        if self._rivalled(st, silent):
            # The job may wait for that one, and this one's agent only pauses.
            missing = self.silence.state["missing"]
            new = [i for i in new if missing[i] >= RIVALLED_SILENCE_SECONDS]
        if not new:
            return []
        first = max(new, key=lambda i: (st.scores[i], st.machines[i]))
        silence = _silent_explanation(self.silence.since_ns(st, first))
        if len(new) == 1:
            return [self._open(st, "machine", new, silence=silence)]
        common = shared_by([st.machines[i] for i in new], self.topology, st.machines)
        if common is not None:
            return [self._open(st, "group", new, shared=common.name, silence=silence)]
        return []

    def _name_lost_gpu(self, st: Standing, lost: Sequence[int]) -> list[AlertChange]:
        """A machine some of whose GPUs send nothing while it does, and the job stands still."""
        if not lost or st.gpu_panel is None:
            return []
        machines = {int(st.gpu_panel.machine[row]) for row in lost}
        if len(machines) > 1:
            return []
        machine = machines.pop()
        all_of_it = np.count_nonzero(st.gpu_panel.machine == machine)
        if st.machines[machine] in self.open.named() or 2 * len(lost) > all_of_it:
            # All at once are their exporter's, whom the machine's own row tells of.
            return []
        if self._rivalled(st, [machine]):
            return []
        gpu = int(st.gpu_panel.gpu[lost[0]])
        silence = _silent_explanation(self.gpu_silence.since_ns(st, lost[0]), gpu)
        return [self._open(st, "machine", [machine], silence=silence)]

    def _rivalled(self, st: Standing, silent: Sequence[int]) -> bool:
        """Whether this standstill may wait for another than the ``silent`` machines: one that is
        odd enough, or that an open alert names already.
        """
        others = np.delete(np.where(st.present, st.scores, 0.0), silent)
        if others.max(initial=0.0) >= RIVAL * st.threshold:
            return True
        began_ns = st.at_ns - int((st.phase.low_seconds + EXPLAINS_SECONDS) * 1e9)
        return any(
            item.alert.pages
            and item.alert.manifestation != "silent"
            and item.alert.detected_at_ns >= began_ns
            for item in self.open.items
        )

    def _open(
        self,
        st: Standing,
        verdict: VerdictKind,
        members: Sequence[int],
        *,
        shared: str | None = None,
        silence: Explanation | None = None,
    ) -> AlertChange:
        names = sorted(st.machines[i] for i in members)
        top = max(members, key=lambda i: (st.scores[i], st.machines[i]))
        explanation = silence or explained(st, top, self.catalogue)
        score = max(float(st.scores[top]), st.threshold) if silence else float(st.scores[top])
        alert = Alert(
            id=alert_id(self.job, st.run, shared or ",".join(names[:64]), st.at_ns),
            status="open",
            verdict=verdict,
            job=self.job,
            machine=names[0] if verdict == "machine" else None,
            machines=tuple(names),
            gpu=explanation.gpu if verdict == "machine" else None,
            manifestation="silent" if silence else manifestation(explanation.evidence, st.phase),
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
        return self.open.add(alert, explanation.signature, score, st)

    def snapshot(self) -> dict[str, Any]:
        """State tree."""
        return {
            "alerts": self.open.snapshot(),
            "crossed_ns": self._crossed_ns,
            "silence": self.silence.snapshot(),
            "gpu_silence": self.gpu_silence.snapshot(),
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Inverse of `snapshot`."""
        self.open.restore(tree["alerts"])
        self._crossed_ns = tree["crossed_ns"]
        self.silence.restore(tree["silence"])
        self.gpu_silence.restore(tree["gpu_silence"])


def _silent_explanation(since_ns: int, gpu: int | None = None) -> Explanation:
    missing = Evidence("telemetry", "", None, None, None, None, "missing", since_ns, 1.0, gpu)
    return Explanation((missing,), since_ns, "telemetry:missing", gpu)
