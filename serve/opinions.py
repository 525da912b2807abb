"""What people said of alerts, out of the service's store: training's feedback."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from replay.feedback import Opinion
from serve.store.codec import alert_from_row
from serve.store.tables import AlertRow, FeedbackRow


def stored_opinions(session: Session) -> tuple[list[Opinion], int]:
    """Every opinion in the order given, and how many are of no use.

    Feedback outlives its alert and remembers what it named. What was given before it did so
    (rows of an older version) needs the alert, and is of no use once that is gone.
    """
    query = select(FeedbackRow, AlertRow).outerjoin(AlertRow, AlertRow.id == FeedbackRow.alert_id)
    found, lost = [], 0
    for said, joined in session.execute(query.order_by(FeedbackRow.id)):
        row: AlertRow | None = joined  # the join may have found none
        machines, onset_ns, detected_ns = said.machines, said.onset_ns, said.detected_at_ns
        if machines is None or onset_ns is None or detected_ns is None:
            if row is None:
                lost += 1
                continue
            alert = alert_from_row(row)
            machines = list(alert.machines)
            onset_ns, detected_ns = alert.onset_ns, alert.detected_at_ns
        found.append(
            Opinion(
                alert=said.alert_id,
                job=said.job,
                right=said.verdict == "right",
                accused=tuple(machines),
                machine=said.machine,
                onset_ns=onset_ns,
                detected_at_ns=detected_ns,
            )
        )
    return found, lost
