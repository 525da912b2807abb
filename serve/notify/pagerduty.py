"""PagerDuty Events API v2: trigger, acknowledge, resolve under one ``dedup_key``.

https://developer.pagerduty.com/docs/events-api-v2/trigger-events/ (fields and limits).
The key is the incident's: an alert that comes back later is a new incident there, and many
alerts are never one. PagerDuty keeps the first title of an incident; a correction stands in
its log.
"""

from __future__ import annotations

from typing import Any, Literal

import orjson

from serve.actions import ActionSettings
from serve.notify.http import HttpReceiver
from serve.notify.note import Note, Severity
from serve.notify.receiver import Context, Traits
from serve.notify.result import HttpRequest
from serve.notify.settings import HttpReceiverSettings, Url
from serve.notify.text import message
from serve.section import Secret

_SUMMARY_CHARACTERS = 1024
_KEY_CHARACTERS = 255
_SEVERITY: dict[Severity, str] = {"page": "critical", "ticket": "warning", "info": "info"}


class PagerDutySettings(HttpReceiverSettings):
    """A service of PagerDuty."""

    type: Literal["pagerduty"] = "pagerduty"
    routing_key: Secret
    """Integration key of the service (Events API v2)."""
    url: Url = "https://events.pagerduty.com/v2/enqueue"
    """For the European region: https://events.eu.pagerduty.com/v2/enqueue."""


class PagerDutyReceiver(HttpReceiver[PagerDutySettings]):
    """Keeps one PagerDuty incident in the state of ours."""

    traits: Traits = Traits(pending="latest", past=False)

    def __init__(self, settings: PagerDutySettings, actions: ActionSettings | None = None) -> None:
        super().__init__(settings)
        self.actions = actions or ActionSettings()

    def render(self, note: Note, context: Context) -> list[HttpRequest]:
        """What there is to see first (nothing new in an acknowledgement), then its state."""
        base = {
            "routing_key": context.secrets["routing_key"],
            "dedup_key": f"weaklink:{note.key}"[:_KEY_CHARACTERS],
        }
        if note.resolves:
            events = [{**base, "event_action": "resolve"}]
        else:
            heard = context.told.status in ("open", "acknowledged")
            trigger = {**base, "event_action": "trigger", **self._trigger(note, context)}
            events = [] if heard and note.kind == "acknowledged" else [trigger]
            if note.status == "acknowledged":
                events.append({**base, "event_action": "acknowledge"})
        headers = {"content-type": "application/json"}
        return [HttpRequest(self.settings.url, orjson.dumps(e), dict(headers)) for e in events]

    def _trigger(self, note: Note, context: Context) -> dict[str, Any]:
        words = message(note, context.now_ns, self.actions)
        alert = note.alert or {}
        details = {
            "notes": list(words.notes),
            "evidence": list(words.evidence),
            "proposed_action": words.action,
            "commands": [command.text for command in words.commands],
            "machines": list(note.names[:200]),
            "alert_id": alert.get("id"),
            "score": alert.get("score"),
            "model": alert.get("model"),
        }
        return {
            "client": "weaklink",
            "payload": {
                "summary": words.title[:_SUMMARY_CHARACTERS],
                "source": alert.get("machine") or note.job or "weaklink",
                "severity": _SEVERITY[note.severity],
                "timestamp": alert.get("detected_at", note.at),
                "component": note.job,
                "group": note.job,
                "class": alert.get("manifestation", note.kind),
                "custom_details": {k: v for k, v in details.items() if v not in (None, "", [])},
            },
            "links": [{"href": url, "text": label} for label, url in words.links],
        }
