"""What each receiver sends, against stored examples.

Set ``WEAKLINK_WRITE_GOLDEN=1`` to write the examples anew; then read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_structured
from cloudevents.core.formats.json import JSONFormat
from standardwebhooks import Webhook, WebhookVerificationError

from serve.notify.note import Note, Told
from serve.notify.receiver import Context
from serve.notify.result import Delivered, GaveUp, HttpRequest, Retry
from tests.notify_support import (
    OTHER_SECRET,
    SIGNING_SECRET,
    make_note,
    only_receiver,
    settings_of,
    webhook_settings,
)
from tests.serve_support import SECOND, START_NS

GOLDEN = Path(__file__).parent / "golden" / "notify"
NOW = START_NS + 2 * SECOND

URL = "https://r.example/h"
RECEIVERS: dict[str, dict[str, Any]] = {
    "webhook": {
        "type": "webhook",
        "url": "https://r.example/h",
        "signing_secrets": [SIGNING_SECRET],
    },
    "cloudevents": {
        "type": "cloudevents",
        "url": "https://r.example/h",
        "authorization": "Bearer x",
    },
    "alertmanager": {
        "type": "alertmanager",
        "urls": ["http://am-1:9093", "http://am-2:9093/prefix/"],
        "labels": {"cluster": "east"},
    },
    "pagerduty": {"type": "pagerduty", "routing_key": "R0UT1NG"},
    "slack": {"type": "slack", "url": "https://hooks.example/T/B/X", "show_picture": True},
}
LINKS = {
    "page": "https://weaklink.example/alerts/llama-m-3",
    "picture": "https://weaklink.example/alerts/llama-m-3.png",
}
OPEN = Told("open", 1, START_NS)
NOTES: dict[str, tuple[Callable[[], Note], Told]] = {
    "opened": (lambda: make_note(links=LINKS, alert_fields={"gpu": 3}), Told()),
    "acknowledged": (
        lambda: make_note("acknowledged", sequence=2, text="Acknowledged by kim."),
        OPEN,
    ),
    "resolved": (lambda: make_note("resolved", sequence=3, at_ns=NOW - SECOND), OPEN),
    "storm": (
        lambda: make_note(
            "storm",
            key="storm:llama-m-3.1",
            title="12 more alerts in job llama",
            text="9 of them open. Machines: m-1, m-2.",
            count=12,
            machines=("m-1", "m-2"),
        ),
        Told(),
    ),
    "breaker": (
        lambda: make_note(
            "breaker_open",
            key="breaker:1",
            alert=None,
            job="",
            machines=(),
            title="Paging is held: 10 pages within 10 minutes",
            text="No further machine is paged.",
            links={"page": "https://weaklink.example/"},
        ),
        Told(),
    ),
}


def receiver(name: str, **fields: Any) -> Any:
    return only_receiver(settings_of({"name": name, **RECEIVERS[name], **fields}))


def render(name: str, note: Note, told: Told | None = None, **fields: Any) -> list[HttpRequest]:
    r = receiver(name, **fields)
    requests: list[HttpRequest] = r.render(note, Context(NOW, told or Told(), r.settings.secrets()))
    return requests


def bodies(name: str, note: Note, told: Told | None = None, **fields: Any) -> list[Any]:
    return [orjson.loads(r.body) for r in render(name, note, told, **fields)]


@pytest.mark.parametrize("which", sorted(NOTES))
@pytest.mark.parametrize("name", sorted(RECEIVERS))
def test_requests_are_as_stored(name: str, which: str) -> None:
    make, told = NOTES[which]
    made = [
        {"url": r.url, "headers": r.headers, "body": orjson.loads(r.body)}
        for r in render(name, make(), told)
    ]
    path = GOLDEN / f"{name}_{which}.json"
    if os.environ.get("WEAKLINK_WRITE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(made, option=orjson.OPT_INDENT_2) + b"\n")
    assert made == orjson.loads(path.read_bytes())


@pytest.mark.parametrize("name", sorted(RECEIVERS))
def test_rendering_depends_on_nothing_but_its_arguments(name: str) -> None:
    assert render(name, make_note()) == render(name, make_note())


@pytest.mark.parametrize("name", sorted(RECEIVERS))
def test_a_note_survives_the_database(name: str) -> None:
    note = make_note()
    stored = Note.from_json(orjson.loads(orjson.dumps(note.to_json())))
    assert stored == note
    assert render(name, stored) == render(name, note)


# Standard Webhooks


def test_a_receiver_with_either_secret_can_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    (request,) = render("webhook", make_note(), signing_secrets=[OTHER_SECRET, SIGNING_SECRET])
    monkeypatch.setattr("standardwebhooks.webhooks.datetime", _At)
    for secret in (SIGNING_SECRET, OTHER_SECRET):
        body = Webhook(secret).verify(request.body, request.headers)
        assert body["type"] == "alert.opened"
    stranger = Webhook("whsec_" + "A" * 32)
    with pytest.raises(WebhookVerificationError):
        stranger.verify(request.body, request.headers)


def test_a_changed_body_does_not_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    (request,) = render("webhook", make_note())
    monkeypatch.setattr("standardwebhooks.webhooks.datetime", _At)
    with pytest.raises(WebhookVerificationError):
        Webhook(SIGNING_SECRET).verify(request.body.replace(b"m-3", b"m-4"), request.headers)


def test_the_library_signs_as_the_specification_shows() -> None:
    # The example of the specification, section "Signature scheme".
    from datetime import UTC, datetime

    signature = Webhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").sign(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        datetime.fromtimestamp(1614265330, UTC),
        '{"test": 2432232314}',
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_only_the_time_stamp_and_signature_differ_between_attempts() -> None:
    r = receiver("webhook")
    secrets = r.settings.secrets()
    (one,) = r.render(make_note(), Context(NOW, Told(), secrets))
    (two,) = r.render(make_note(), Context(NOW + 60 * SECOND, Told(), secrets))
    assert one.body == two.body
    changed = {k for k in one.headers if one.headers[k] != two.headers[k]}
    assert changed == {"webhook-timestamp", "webhook-signature"}


def test_without_a_secret_nothing_is_signed() -> None:
    (request,) = render("webhook", make_note(), signing_secrets=[])
    assert "webhook-signature" not in request.headers
    assert request.headers["webhook-id"] == "llama-m-3:1"


# CloudEvents


def test_the_event_can_be_read_back() -> None:
    (request,) = render("cloudevents", make_note())
    event = from_structured(HTTPMessage(request.headers, request.body), JSONFormat())
    assert event.get_id() == "llama-m-3:1"
    assert event.get_type() == "weaklink.alert.opened"
    assert event.get_subject() == "llama-m-3"
    assert request.headers["authorization"] == "Bearer x"


# PagerDuty


def test_the_whole_life_has_one_dedup_key() -> None:
    events = [
        event
        for kind in ("opened", "corrected", "acknowledged", "resolved")
        for event in bodies("pagerduty", make_note(kind), OPEN)
    ]
    assert {e["dedup_key"] for e in events} == {"weaklink:llama-m-3"}
    actions = [e["event_action"] for e in events]
    assert actions == ["trigger", "trigger", "acknowledge", "resolve"]


def test_an_acknowledgement_out_of_the_blue_triggers_first() -> None:
    events = bodies("pagerduty", make_note("acknowledged"), Told())
    assert [e["event_action"] for e in events] == ["trigger", "acknowledge"]


def test_a_correction_of_an_acknowledged_incident_stays_acknowledged() -> None:
    note = make_note("corrected", alert_fields={"status": "acknowledged"})
    events = bodies("pagerduty", note, OPEN)
    assert [e["event_action"] for e in events] == ["trigger", "acknowledge"]


def test_pagerduty_severities_follow_ours() -> None:
    found = [
        bodies("pagerduty", make_note(severity=level))[0]["payload"]["severity"]
        for level in ("page", "ticket", "info")
    ]
    assert found == ["critical", "warning", "info"]


def test_a_summary_keeps_to_pagerdutys_limit() -> None:
    (event,) = bodies("pagerduty", make_note(machine="m" * 5_000))
    assert len(event["payload"]["summary"]) == 1024
    assert len(event["dedup_key"]) <= 255


# Alertmanager


def labels(note: Note) -> dict[str, str]:
    found: dict[str, str] = receiver("alertmanager").labels(note)
    return found


def test_the_identity_outlives_evidence_status_and_restarts() -> None:
    first = labels(make_note())
    assert labels(make_note("acknowledged")) == first
    assert labels(make_note("resolved")) == first
    assert labels(make_note(alert_fields={"score": 9.0, "onset_ns": START_NS})) == first


def test_a_corrected_machine_ends_the_alert_under_the_old_labels() -> None:
    old = labels(make_note())
    corrected = make_note("corrected", sequence=2, machine="m-9", key="llama-m-3")
    alerts = bodies("alertmanager", corrected, Told("open", 1, START_NS, old))[0]
    assert [a["labels"]["machine"] for a in alerts] == ["m-3", "m-9"]
    assert alerts[0]["endsAt"] == "2023-11-14T22:13:22.000Z"
    assert alerts[1]["endsAt"] == "2023-11-14T23:13:22.000Z"


def test_the_end_is_when_it_ended_however_late_it_is_told() -> None:
    (alert,) = bodies("alertmanager", make_note("resolved", at_ns=NOW - 900 * SECOND), OPEN)[0]
    assert alert["endsAt"] == "2023-11-14T21:58:22.000Z"
    assert alert["startsAt"] <= alert["endsAt"]


def test_one_member_of_a_cluster_is_enough() -> None:
    judge = receiver("alertmanager").judge
    assert isinstance(judge([Retry("down"), Delivered()]), Delivered)
    assert isinstance(judge([Delivered(), GaveUp("no")]), Delivered)
    assert isinstance(judge([Retry("down"), Retry("down")]), Retry)


# Slack


def test_nothing_in_slack_is_interpreted() -> None:
    (body,) = bodies("slack", make_note(machine="<!channel> *m*", job="<http://x|y>&"))
    assert "<" not in body["text"]
    kinds = {"plain_text", "rich_text", "header", "actions", "button", "text", "image"}
    kinds |= {"rich_text_section", "rich_text_list", "rich_text_preformatted"}
    assert set(_types(body["blocks"])) <= kinds


def test_slack_limits_hold_for_endless_names() -> None:
    (body,) = bodies("slack", make_note(machine="m" * 9_000))
    header = body["blocks"][0]["text"]["text"]
    assert len(header) == 150
    assert all(len(t) <= 2_900 for t in _texts(body["blocks"]))
    assert len(body["blocks"]) <= 50


def test_the_picture_is_embedded_only_where_wanted() -> None:
    shown = bodies("slack", make_note(links=LINKS))[0]["blocks"]
    assert [b["image_url"] for b in shown if b["type"] == "image"] == [LINKS["picture"]]
    hidden = bodies("slack", make_note(links=LINKS), show_picture=False)[0]["blocks"]
    assert not [b for b in hidden if b["type"] == "image"]
    buttons = next(b for b in hidden if b["type"] == "actions")["elements"]
    assert [b["url"] for b in buttons] == [LINKS["page"], LINKS["picture"]]


def test_an_unsigned_section_is_allowed() -> None:
    assert only_receiver(webhook_settings("https://r.example/")).settings.signing_secrets == ()


def _types(value: Any) -> list[str]:
    if isinstance(value, list):
        return [t for item in value for t in _types(item)]
    if isinstance(value, dict):
        own = [value["type"]] if "type" in value else []
        return own + _types(list(value.values()))
    return []


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [t for item in value for t in _texts(item)]
    if isinstance(value, dict):
        own = [value["text"]] if isinstance(value.get("text"), str) else []
        return own + _texts(list(value.values()))
    return []


class _At:
    """Stands in for the library's clock: the time of the attempt."""

    @staticmethod
    def now(tz: Any = None) -> Any:
        return _At.fromtimestamp(NOW / SECOND, tz=tz)

    @staticmethod
    def fromtimestamp(seconds: float, tz: Any = None) -> Any:
        from datetime import datetime

        return datetime.fromtimestamp(seconds, tz=tz)
