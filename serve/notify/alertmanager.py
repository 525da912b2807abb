"""Prometheus Alertmanager, API v2: alerts go in, grouping and routing happen there.

https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml (``POST /alerts``).

Alertmanager knows an alert by its labels and forgets it when it restarts. So an open incident
is sent again every ``resend_seconds`` with ``endsAt`` at ``resolve_timeout_seconds`` from now:
long enough that a restart of this service never looks like the end of an incident. When the
labels of an incident change (another machine, a higher severity), the alert under the old
labels is ended in the same request.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import orjson
from pydantic import Field, model_validator

from detect.alert import rfc3339
from serve.actions import ActionSettings
from serve.notify.http import HttpReceiver
from serve.notify.note import Note
from serve.notify.receiver import Context, Traits
from serve.notify.result import Delivered, HttpRequest, Result
from serve.notify.settings import AuthorizedSettings, Url, authorization
from serve.notify.text import message

_PATH = "/api/v2/alerts"


class AlertmanagerSettings(AuthorizedSettings):
    """One Alertmanager, or the members of one cluster."""

    type: Literal["alertmanager"] = "alertmanager"
    urls: tuple[Url, ...] = Field(min_length=1)
    """Base URLs; every member of a cluster, not a load balancer before them."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels added to every alert, such as the cluster's name."""
    resend_seconds: float = Field(default=60.0, ge=1)
    resolve_timeout_seconds: float = Field(default=3_600.0, ge=60)
    """Without a word from here for so long, Alertmanager ends the alert by itself."""

    rate_limit_per_minute: float = Field(default=6_000.0, gt=0, le=60_000)
    rate_burst: int = Field(default=1_000, ge=1)

    @property
    def longest_seconds(self) -> float:
        """Members are told one after the other."""
        return (1 + len(self.urls)) * self.timeout_seconds

    @model_validator(mode="after")
    def _in_time(self) -> Self:
        if self.resend_seconds * 3 > self.resolve_timeout_seconds:
            raise ValueError("resolve_timeout_seconds must be at least 3 x resend_seconds")
        return self


class AlertmanagerReceiver(HttpReceiver[AlertmanagerSettings]):
    """Keeps Alertmanager's alert in the state of the incident."""

    stops_at_failure: ClassVar[bool] = False

    def __init__(
        self, settings: AlertmanagerSettings, actions: ActionSettings | None = None
    ) -> None:
        super().__init__(settings)
        self.actions = actions or ActionSettings()
        self.traits = Traits(pending="latest", past=False, resend_seconds=settings.resend_seconds)

    def labels(self, note: Note) -> dict[str, str]:
        """The identity of the alert: nothing in it changes while the accusation stands."""
        alert = note.alert or {}
        labels = {
            **self.settings.labels,
            "alertname": "WeaklinkFault" if note.alert else "WeaklinkPagingHeld",
            "weaklink_incident": note.key,
            "job": note.job,
            "machine": str(alert.get("machine") or "") if note.kind != "storm" else "",
            "verdict": str(alert.get("verdict", "")),
            "severity": note.severity,
        }
        return {key: value for key, value in labels.items() if value}

    def render(self, note: Note, context: Context) -> list[HttpRequest]:
        """The same list of alerts to every member."""
        now = rfc3339(context.now_ns)
        labels = self.labels(note)
        alert = self._alert(note, labels, context)
        alerts = [alert]
        if context.told.labels and context.told.labels != labels:
            alerts.insert(
                0, {**alert, "labels": context.told.labels, "endsAt": max(now, alert["startsAt"])}
            )
        body = orjson.dumps(alerts)
        headers = {"content-type": "application/json", **authorization(context.secrets)}
        urls = [url.rstrip("/") + _PATH for url in self.settings.urls]
        return [HttpRequest(url, body, dict(headers)) for url in urls]

    def judge(self, results: list[Result]) -> Result:
        """Delivered when one member has it; the others get it with the next re-send."""
        return next((r for r in results if isinstance(r, Delivered)), results[0])

    def _alert(self, note: Note, labels: dict[str, str], context: Context) -> dict[str, Any]:
        words = message(note, context.now_ns, self.actions)
        lasts_ns = int(self.settings.resolve_timeout_seconds * 1e9)
        starts = min((note.alert or {}).get("detected_at", note.at), note.at)
        annotations = {
            "summary": words.title,
            "description": words.plain,
            "proposed_action": words.action,
            "status": note.status,
        }
        alert: dict[str, Any] = {
            "labels": labels,
            "annotations": {key: value for key, value in annotations.items() if value},
            "startsAt": starts,
            "endsAt": note.at if note.resolves else rfc3339(context.now_ns + lasts_ns),
        }
        if words.links:
            alert["generatorURL"] = words.links[0][1]
        return alert
