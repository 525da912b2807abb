"""CloudEvents 1.0 over HTTP in structured JSON mode.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md
``source`` and ``id`` together are the idempotency key; ``subject`` is the incident.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from cloudevents.core.bindings.http import to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from pydantic import Field

from serve.notify.http import HttpReceiver
from serve.notify.note import Note
from serve.notify.receiver import Context, Traits
from serve.notify.result import HttpRequest
from serve.notify.settings import AuthorizedSettings, SecretUrl, authorization
from serve.notify.webhook import event_data, event_type


class CloudEventsSettings(AuthorizedSettings):
    """A sink for CloudEvents."""

    type: Literal["cloudevents"] = "cloudevents"
    url: SecretUrl
    source: str = Field(default="/weaklink", min_length=1)
    """The ``source`` attribute: a URI reference that names this installation."""


class CloudEventsReceiver(HttpReceiver[CloudEventsSettings]):
    """Sends every change of an incident, in order."""

    traits: Traits = Traits(pending="every", past=True)

    def render(self, note: Note, context: Context) -> list[HttpRequest]:
        """One structured event."""
        event = CloudEvent(
            {
                "specversion": "1.0",
                "id": note.idempotency_key,
                "source": self.settings.source,
                "type": f"weaklink.{event_type(note)}",
                "subject": note.key,
                "time": datetime.fromtimestamp(note.at_ns // 1_000_000_000, UTC),
                "datacontenttype": "application/json",
            },
            event_data(note),
        )
        message = to_structured(event, JSONFormat())
        headers = {k.lower(): v for k, v in message.headers.items()}
        headers |= authorization(context.secrets)
        return [HttpRequest(context.secrets["url"], message.body, headers)]
