"""An alert as a JSON body for the database, and back."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from detect.alert import Alert, Evidence
from serve.store.tables import AlertRow


def alert_body(alert: Alert) -> dict[str, Any]:
    """Every field of the alert but its status; inverse of `alert_from_row`."""
    body = asdict(alert)
    del body["status"]
    return body


def alert_from_row(row: AlertRow) -> Alert:
    """The alert as stored: detection's words, the life cycle's id and status."""
    body = dict(row.body)
    body["evidence"] = tuple(Evidence(**item) for item in body["evidence"])
    body["fault_types"] = tuple((t, p) for t, p in body["fault_types"])
    body["machines"] = tuple(body["machines"])
    alert = Alert(status="open", **body)
    return replace(alert, id=row.id, status=row.status)  # type: ignore[arg-type]
