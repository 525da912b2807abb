"""The open alerts of one job about single machines: at most one a machine until it clears."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from detect.advice import advise
from detect.alert import Alert, AlertChange, Evidence
from detect.detector import State
from detect.identity import alert_id

_NOMINAL = "The rate is nominal: this detector has no calibrated false-alarm rate."


@dataclass(frozen=True, slots=True)
class Finding:
    """A machine that a detector accuses.

    ``onset_ns`` is when its evidence began, ``at_ns`` when it sufficed (event time);
    ``evidence`` strongest first.
    """

    machine: str
    onset_ns: int
    at_ns: int
    evidence: tuple[Evidence, ...]


class AlertBook:
    """Turns findings into alert changes.

    Parameters
    ----------
    job
        The job's name.
    model
        Name of detector and model, as the alert states it.
    false_alarms_per_job_week
        The rate at the detector's threshold that every alert states. Detectors without a
        calibrated score have one rate for all.
    """

    def __init__(self, job: str, model: str, false_alarms_per_job_week: float = 1.0) -> None:
        self.job = job
        self.model = model
        self.false_alarms_per_job_week = false_alarms_per_job_week
        self._open: dict[str, Alert] = {}
        self._seen: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, machine: object) -> bool:
        return machine in self._open

    @property
    def machines(self) -> tuple[str, ...]:
        """Machines with an open alert, sorted."""
        return tuple(sorted(self._open))

    def open(self, run: int, finding: Finding) -> AlertChange | None:
        """Open an alert, or only note the finding if the machine already has one."""
        machine = finding.machine
        self._seen[machine] = finding.at_ns
        if machine in self._open:
            return None
        alert = Alert(
            id=alert_id(self.job, run, machine, finding.onset_ns),
            status="open",
            verdict="machine",
            job=self.job,
            machine=machine,
            machines=(machine,),
            gpu=None,
            manifestation="unknown",
            onset_ns=finding.onset_ns,
            detected_at_ns=finding.at_ns,
            score=float(-np.log10(self.false_alarms_per_job_week)),
            false_alarms_per_job_week=self.false_alarms_per_job_week,
            evidence=finding.evidence,
            fault_types=(),
            recommended_action=advise("machine", "unknown", ()).action,
            model=self.model,
            note=_NOMINAL,
        )
        self._open[machine] = alert
        return AlertChange("opened", alert, finding.at_ns)

    def note(self, machine: str, at_ns: int) -> None:
        """The machine was still odd at ``at_ns``."""
        if machine in self._open:
            self._seen[machine] = at_ns

    def clear(self, at_ns: int, seen_before_ns: int) -> list[AlertChange]:
        """Resolve alerts whose machine was last odd at or before ``seen_before_ns``."""
        gone = [m for m in self.machines if self._seen[m] <= seen_before_ns]
        return [self._resolve(m, at_ns, "The machine is like its peers again.") for m in gone]

    def keep_only(self, machines: tuple[str, ...], at_ns: int) -> list[AlertChange]:
        """Resolve alerts about machines that have left the job."""
        gone = [m for m in self.machines if m not in machines]
        return [self._resolve(m, at_ns, "The machine left the job.") for m in gone]

    def close(self, at_ns: int) -> list[AlertChange]:
        """Resolve everything: the run has ended."""
        return [self._resolve(m, at_ns, "The job's run ended.") for m in self.machines]

    def _resolve(self, machine: str, at_ns: int, note: str) -> AlertChange:
        del self._seen[machine]
        alert = replace(self._open.pop(machine), status="resolved", note=note)
        return AlertChange("resolved", alert, at_ns)

    def snapshot(self) -> State:
        """Open alerts and when their machines were last odd."""
        return {
            "open": [asdict(self._open[m]) for m in self.machines],
            "seen": dict(self._seen),
        }

    def restore(self, state: State) -> None:
        """Inverse of `snapshot`."""
        alerts = [Alert.from_tree(data) for data in state["open"]]
        self._open = {alert.machines[0]: alert for alert in alerts}
        self._seen = {machine: int(at) for machine, at in state["seen"].items()}
