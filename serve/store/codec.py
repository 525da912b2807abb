"""An alert as a JSON body for the database, and back."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from detect.alert import Alert, Evidence, rfc3339
from serve.links import Links
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


def alert_json(row: AlertRow, links: Links) -> dict[str, Any]:
    """The public JSON form: the alert, and where its life stands."""
    # Counted from the alert's last change: the same version has the same form, and entity tag.
    addresses = links.alert(row.id, row.job, row.changed_at_ns)
    return alert_from_row(row).to_json(addresses) | {
        "version": row.version,
        "episode": row.episode,
        "page_reason": row.page_reason,
        "paged_at": _time(row.paged_at_ns),
        "acknowledged_at": _time(row.acknowledged_at_ns),
        "acknowledged_by": row.acknowledged_by,
        "resolved_at": _time(row.resolved_at_ns),
        "resolved_by": row.resolved_by,
        "storm": row.storm_id,
        "changed_at": rfc3339(row.changed_at_ns),
    }


def _time(ns: int | None) -> str | None:
    return None if ns is None else rfc3339(ns)
