"""The configuration: mistakes in one clear line, secrets hidden, routes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from serve.notify.config import NotifySettings, build_receivers
from serve.notify.routing import receivers_for, severity
from tests.notify_support import SIGNING_SECRET, make_notice, settings_of
from tests.serve_support import make_alert

HOOK = {"type": "webhook", "name": "hook", "url": "https://example.org/x"}
MAIL = {
    "type": "email",
    "name": "mail",
    "host": "mail.example.org",
    "sender": "weaklink@example.org",
    "recipients": ["oncall@example.org"],
}
MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("no type", {"name": "x"}, "discriminator 'type'"),
    ("unknown type", {"type": "carrier-pigeon", "name": "x"}, "'carrier-pigeon'"),
    ("unknown key", {**HOOK, "retries": 3}, "Extra inputs are not permitted"),
    ("ftp", {**HOOK, "url": "ftp://example.org/"}, "must be an http:// or https:// URL"),
    ("file", {**HOOK, "url": "file:///etc/passwd"}, "must be an http:// or https:// URL"),
    ("no host", {**HOOK, "url": "https:///x"}, "must be an http:// or https:// URL"),
    ("bad port", {**HOOK, "url": "https://example.org:port/"}, "is not a URL"),
    ("password", {**HOOK, "url": "https://me:pw@example.org/"}, "must not hold a user"),
    ("bad name", {**HOOK, "name": "a b"}, "match pattern"),
    ("no time", {**HOOK, "timeout_seconds": 0}, "greater than 0"),
    ("no base64", {**HOOK, "signing_secrets": ["whsec_!"]}, "must be whsec_ and base64"),
    ("short secret", {**HOOK, "signing_secrets": ["whsec_YWJj"]}, "24 to 64 random bytes"),
    (
        "no such file",
        {**HOOK, "ca_path": "/nowhere/ca.pem"},
        "/nowhere/ca.pem: No such file or directory",
    ),
    ("no certificates", {**HOOK, "ca_path": __file__}, "holds no certificates"),
    ("mail ca", {**MAIL, "ca_path": "/nowhere/ca.pem"}, "No such file or directory"),
    (
        "both",
        {"type": "slack", "name": "s", "url": "https://x/", "url_file": "/run/x"},
        "url and url_file exclude each other",
    ),
    (
        "missing secret file",
        {"type": "pagerduty", "name": "p", "routing_key_file": "/nowhere/key"},
        "routing_key_file: cannot read /nowhere/key: No such file or directory",
    ),
    ("no urls", {"type": "alertmanager", "name": "a", "urls": []}, "at least 1 item"),
    (
        "too rare",
        {"type": "alertmanager", "name": "a", "urls": ["http://am/"], "resend_seconds": 2_000},
        "resolve_timeout_seconds must be at least 3 x resend_seconds",
    ),
    ("no recipients", {**MAIL, "recipients": []}, "at least 1 item"),
    ("injected address", {**MAIL, "sender": "a@b.c\nBcc: x@y.z"}, "must be one address"),
    ("half a login", {**MAIL, "username": "me"}, "username and password belong together"),
    (
        "plain password",
        {**MAIL, "username": "me", "password": "pw", "security": "none"},
        "a password is not sent unencrypted",
    ),
    ("bad apprise", {"type": "apprise", "name": "a", "urls": ["nonsense://x"]}, "nonsense URL"),
    ("local apprise", {"type": "apprise", "name": "a", "urls": ["syslog://"]}, "a syslog URL"),
]


@pytest.mark.parametrize(("name", "receiver", "said"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_named(name: str, receiver: dict[str, Any], said: str) -> None:
    del name
    with pytest.raises(ValidationError) as caught:
        settings_of(receiver)
    (error,) = caught.value.errors(include_url=False)
    assert said in error["msg"]
    assert error["loc"][:2] == ("receivers", 0)


def test_two_receivers_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="the name 'hook' is used twice"):
        settings_of(HOOK, HOOK)


def test_a_route_to_nowhere_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"routes.0: no receiver 'pager' \(there are: hook\)"):
        settings_of(HOOK, routes=[{"receivers": ["pager"]}])


def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cr3t-key\n")
    settings = settings_of(
        {**HOOK, "url": "https://example.org/s3cr3t", "signing_secrets": [SIGNING_SECRET]},
        {"type": "pagerduty", "name": "pd", "routing_key_file": str(key)},
        {"type": "slack", "name": "slack", "url": "https://hooks.example.org/s3cr3t"},
        {**MAIL, "username": "me", "password": "s3cr3t"},
        {"type": "apprise", "name": "other", "urls": ["json://localhost/s3cr3t"]},
    )
    for shown in (repr(settings), str(settings), settings.model_dump_json()):
        assert "s3cr3t" not in shown
        assert SIGNING_SECRET not in shown


def test_a_secret_can_stand_in_a_file(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("from-file\n")
    settings = settings_of({"type": "pagerduty", "name": "pd", "routing_key_file": str(key)})
    assert settings.receivers[0].secrets() == {"routing_key": "from-file"}


def test_rotating_secrets_stand_one_a_line(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{SIGNING_SECRET}\nwhsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\n")
    settings = settings_of({**HOOK, "signing_secrets_file": str(keys)})
    assert len(settings.receivers[0].secrets()["signing_secrets"].splitlines()) == 2


def test_every_kind_of_receiver_can_be_built() -> None:
    settings = settings_of(
        HOOK,
        {"type": "cloudevents", "name": "events", "url": "https://example.org/"},
        {"type": "alertmanager", "name": "am", "urls": ["http://127.0.0.1:9093"]},
        {"type": "pagerduty", "name": "pd", "routing_key": "k"},
        {"type": "slack", "name": "slack", "url": "https://hooks.example.org/x"},
        MAIL,
        {"type": "apprise", "name": "other", "urls": ["json://localhost/"]},
    )
    receivers = build_receivers(settings)
    assert list(receivers) == ["hook", "events", "am", "pd", "slack", "mail", "other"]
    assert all(r.settings.longest_seconds > r.settings.timeout_seconds for r in receivers.values())


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({"pages": True, "score": -3.0}, "page"),
        ({"pages": False, "score": 0.5}, "ticket"),
        ({"pages": False, "score": -0.5}, "info"),
        ({"pages": False, "score": 9.0, "verdict": "undetermined"}, "info"),
        ({"pages": False, "score": 9.0, "verdict": "group"}, "ticket"),
    ],
)
def test_severity_follows_from_paging_and_score(fields: dict[str, Any], level: str) -> None:
    assert severity(make_alert(**fields)) == level


def test_the_breaker_is_a_page() -> None:
    assert severity(None) == "page"


ROUTED = settings_of(
    *({**HOOK, "name": name} for name in ("pager", "chat", "log")),
    routes=[
        {"severities": ["page"], "verdicts": ["machine", "group"], "receivers": ["pager"]},
        {"jobs": ["prod-*"], "receivers": ["chat"]},
        {"receivers": ["log"]},
    ],
)


@pytest.mark.parametrize(
    ("job", "fields", "expected"),
    [
        ("prod-1", {}, ["pager", "chat", "log"]),
        ("test-1", {}, ["pager", "log"]),
        ("test-1", {"pages": False}, ["log"]),
        ("prod-1", {"verdict": "undetermined"}, ["chat", "log"]),
    ],
)
def test_every_matching_route_counts(job: str, fields: dict[str, Any], expected: list[str]) -> None:
    assert receivers_for(make_notice(job=job, alert_fields=fields), ROUTED) == expected


def test_the_breaker_passes_filters_of_verdicts_but_not_of_jobs() -> None:
    notice = make_notice("breaker_open", alert=None, job="")
    assert receivers_for(notice, ROUTED) == ["pager", "log"]


def test_a_pattern_is_a_whole_name() -> None:
    assert receivers_for(make_notice(job="x-prod-1"), ROUTED) == ["pager", "log"]


def test_without_routes_everybody_hears_everything() -> None:
    settings = settings_of(HOOK, {**HOOK, "name": "b"})
    assert receivers_for(make_notice(), settings) == ["hook", "b"]


def test_without_receivers_nobody_hears_anything() -> None:
    assert receivers_for(make_notice(), NotifySettings()) == []
