"""Helpers of the service's tests: a clock moved by hand, alerts made to order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from detect.alert import Alert, AlertChange, Evidence
from serve.store.base import Database

START_NS = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


@dataclass
class HandClock:
    """Time that only moves when told."""

    now_ns: int = START_NS

    def __call__(self) -> int:
        return self.now_ns

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ns += round(seconds * SECOND)


def memory_database(clock: HandClock | None = None) -> Database:
    """A migrated SQLite database in memory."""
    database = Database("sqlite://", clock=clock or HandClock())
    database.migrate()
    return database


def make_alert(machine: str | None = "m-3", *, job: str = "llama", **fields: Any) -> Alert:
    """An open alert that names ``machine``; any field can be given."""
    at = fields.get("detected_at_ns", START_NS)
    alert = Alert(
        id=f"{job}-{machine}",
        status="open",
        verdict="machine" if machine else "undetermined",
        job=job,
        machine=machine,
        machines=(machine,) if machine else (),
        gpu=None,
        manifestation="fail_slow",
        onset_ns=at - 30 * SECOND,
        detected_at_ns=at,
        score=4.0,
        false_alarms_per_job_week=1e-4,
        evidence=(
            Evidence(
                metric="gpu_tensor_active_ratio",
                unit="ratio",
                value=0.02,
                peer_median=0.55,
                peer_low=0.5,
                peer_high=0.6,
                direction="low",
                since_ns=at - 30 * SECOND,
                share=0.7,
            ),
        ),
        fault_types=(("ecc_error", 0.4),),
        recommended_action="Drain the machine.",
        model="evidence-test",
    )
    return replace(alert, **fields)


def change(kind: str, alert: Alert, at_ns: int | None = None) -> AlertChange:
    """A change of detection at ``at_ns`` (default: when the alert was detected)."""
    at = alert.detected_at_ns if at_ns is None else at_ns
    return AlertChange(kind, alert, at)  # type: ignore[arg-type]
