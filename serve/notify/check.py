"""`weaklink notify test`: the very code of real alerts, with an alert that says it is a test."""

from __future__ import annotations

from detect.alert import Alert, Evidence
from serve.links import Links
from serve.notice import Notice
from serve.notify.config import NotifySettings, build_receivers
from serve.notify.dispatcher import attempt
from serve.notify.note import Told, note_of
from serve.notify.receiver import Context
from serve.notify.result import Delivered, Result
from serve.store.base import Clock

_SECOND = 1_000_000_000


class UnknownReceiverError(ValueError):
    """There is no receiver of this name; the message lists those that there are."""


def notify_test(
    settings: NotifySettings, receiver_name: str, *, clock: Clock, base_url: str = ""
) -> Result:
    """Open a test incident at a receiver and end it; the first failure, or what the end said.

    Nothing is stored and nothing stays open. Raises `UnknownReceiverError`.
    """
    receivers = build_receivers(settings)
    if receiver_name not in receivers:
        known = ", ".join(sorted(receivers)) or "none is configured"
        raise UnknownReceiverError(f"no receiver {receiver_name!r} (there are: {known})")
    receiver = receivers[receiver_name]
    told = Told()
    result: Result = Delivered()
    for sequence, resolves in ((1, False), (2, True)):
        now_ns = clock()
        note = note_of(sample_notice(now_ns, sequence, resolves, base_url), "info")
        if resolves and not receiver.settings.send_resolved:
            break
        result = attempt(receiver, note, Context(now_ns, told))
        if not isinstance(result, Delivered):
            break
        told = Told(note.status, sequence, now_ns, receiver.labels(note))
    return result


def sample_notice(now_ns: int, sequence: int, resolves: bool, base_url: str) -> Notice:
    """A made-up alert about no machine of anybody's."""
    alert = Alert(
        id=f"test-{now_ns // _SECOND}",
        status="resolved" if resolves else "open",
        verdict="machine",
        job="weaklink-test",
        machine="test-machine",
        machines=("test-machine",),
        gpu=None,
        manifestation="fail_slow",
        onset_ns=now_ns - 60 * _SECOND,
        detected_at_ns=now_ns,
        score=3.0,
        false_alarms_per_job_week=0.001,
        evidence=(
            Evidence(
                metric="gpu_tensor_active_ratio",
                unit="ratio",
                value=0.02,
                peer_median=0.55,
                peer_low=0.52,
                peer_high=0.58,
                direction="low",
                since_ns=now_ns - 60 * _SECOND,
                share=1.0,
            ),
        ),
        fault_types=(),
        recommended_action="Nothing: this is a test.",
        model="none",
        pages=False,
    )
    return Notice(
        key=alert.id,
        sequence=sequence,
        kind="test",
        alert=alert,
        title="Test of notifications",
        text="",
        job=alert.job,
        at_ns=now_ns,
        machines=alert.machines,
        resolves=resolves,
        links=Links(base_url).alert(alert.id, alert.job) if base_url else {},
    )
