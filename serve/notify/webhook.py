"""Any HTTP endpoint, signed as Standard Webhooks says.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
The body is ``{"type": "alert.opened", "timestamp": …, "data": NOTE}``. ``webhook-id`` is the
idempotency key: a receiver that has seen it already answers 200 and does nothing.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, SecretStr
from standardwebhooks import Webhook

from serve.notify.http import HttpReceiver
from serve.notify.note import Note
from serve.notify.receiver import Context, Traits
from serve.notify.result import HttpRequest
from serve.notify.settings import AuthorizedSettings, SecretUrl, authorization

_PREFIX = "whsec_"


def _signing_secret(secret: SecretStr) -> SecretStr:
    encoded = secret.get_secret_value().removeprefix(_PREFIX)
    try:
        size = len(base64.b64decode(encoded, validate=True))
    except binascii.Error:
        raise ValueError("must be whsec_ and base64") from None
    if not 24 <= size <= 64:
        raise ValueError("must hold 24 to 64 random bytes")
    return secret


SigningSecret = Annotated[SecretStr, AfterValidator(_signing_secret)]


class WebhookSettings(AuthorizedSettings):
    """A generic webhook."""

    type: Literal["webhook"] = "webhook"
    url: SecretUrl
    signing_secrets: tuple[SigningSecret, ...] = ()
    """``whsec_…``; several during a rotation: every one signs. None: not signed."""


class WebhookReceiver(HttpReceiver[WebhookSettings]):
    """Sends every change of an incident, in order."""

    traits: Traits = Traits(pending="every", past=True)

    def render(self, note: Note, context: Context) -> list[HttpRequest]:
        """One signed request; the body is the same for every attempt."""
        body = orjson.dumps(
            {"type": event_type(note), "timestamp": note.at, "data": event_data(note)}
        )
        headers = {
            "content-type": "application/json",
            "webhook-id": note.idempotency_key,
            "webhook-timestamp": str(context.now_ns // 1_000_000_000),
            **authorization(context.secrets),
        }
        signing = context.secrets.get("signing_secrets", "").splitlines()
        if signing:
            at = datetime.fromtimestamp(context.now_ns // 1_000_000_000, UTC)
            headers["webhook-signature"] = " ".join(
                Webhook(secret).sign(note.idempotency_key, at, body.decode()) for secret in signing
            )
        return [HttpRequest(context.secrets["url"], body, headers)]


def event_type(note: Note) -> str:
    """``alert.opened``, ``storm.resolved``, ``paging.breaker_open``, …"""
    if note.alert is None:
        return f"paging.{note.kind}"
    if note.kind == "storm":
        return f"storm.{'resolved' if note.resolves else 'updated'}"
    return f"alert.{note.kind}"


def event_data(note: Note) -> dict[str, Any]:
    """What machines are told: the alert and what the notice adds to it."""
    return {
        "key": note.key,
        "sequence": note.sequence,
        "kind": note.kind,
        "severity": note.severity,
        "resolves": note.resolves,
        "title": note.title,
        "text": note.text,
        "job": note.job,
        "machines": list(note.names),
        "count": note.count,
        "links": note.links,
        "alert": note.alert,
    }
