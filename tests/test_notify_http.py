"""Every HTTP outcome and what it means, against a server that misbehaves."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import pytest

from serve.notify.http import classify, redact, retry_after
from serve.notify.receiver import Context
from serve.notify.result import Delivered, GaveUp, Result, Retry
from tests.notify_support import (
    Behaviour,
    answers,
    closes,
    drips,
    enqueue,
    free_port,
    hangs,
    late,
    make_dispatcher,
    make_note,
    make_notice,
    misbehaving,
    only_receiver,
    webhook_settings,
)
from tests.serve_support import START_NS, HandClock, memory_database

NOW = START_NS

WAITS = {401, 403, 404, 405, 407, 421, 429, 502, 503, 504}
AGAIN = {408, 425}


def kind(result: Result) -> str:
    if isinstance(result, Retry):
        return "retry receiver" if result.whole_receiver else "retry message"
    return "delivered" if isinstance(result, Delivered) else "gave up"


@pytest.mark.parametrize("status", range(200, 600))
def test_every_status_has_exactly_one_meaning(status: int) -> None:
    if status in WAITS or 300 <= status < 400:
        expected = "retry receiver"
    elif status in AGAIN or status >= 500:
        expected = "retry message"
    else:
        expected = "delivered" if status < 300 else "gave up"
    assert kind(classify(status, {}, "", NOW)) == expected


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        (format_datetime(datetime.fromtimestamp(NOW // 10**9 + 90, UTC), usegmt=True), 90.0),
        (format_datetime(datetime.fromtimestamp(NOW // 10**9 - 90, UTC), usegmt=True), 0.0),
        ("Wed, 15 Nov 2023 22:13:20 -0000", 86_400.0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("9" * 40, None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_retry_after_counts_in_every_retried_answer(status: int) -> None:
    result = classify(status, {"retry-after": "7"}, "", NOW)
    assert isinstance(result, Retry)
    assert result.after_seconds == 7


def patience(act: Behaviour) -> float:
    """A short time limit only where it is the point: the machine may be busy."""
    return 30 if act not in SLOW else 1


LATE = late(5.0)
SLOW = (hangs, drips, LATE)
OUTCOMES: list[tuple[str, Behaviour, str, str]] = [
    ("200", answers(200), "delivered", "HTTP 200"),
    ("204", answers(204), "delivered", "HTTP 204"),
    ("400", answers(400, b"invalid_payload"), "gave up", "HTTP 400: invalid_payload"),
    ("401", answers(401), "retry receiver", "HTTP 401"),
    ("404", answers(404), "retry receiver", "HTTP 404"),
    ("410", answers(410), "gave up", "HTTP 410"),
    ("429", answers(429, Retry_After="30"), "retry receiver", "HTTP 429"),
    ("500", answers(500, b"oops\n"), "retry message", "HTTP 500: oops"),
    ("502", answers(502), "retry receiver", "HTTP 502"),
    ("hangs", hangs, "retry receiver", "no complete answer within 1 s"),
    ("closes", closes, "retry receiver", "RemoteProtocolError"),
    ("answers late", LATE, "retry receiver", "no complete answer within 1 s"),
    ("drips", drips, "retry receiver", "no complete answer within 1 s"),
]


@pytest.mark.parametrize(
    ("name", "act", "expected", "said"), OUTCOMES, ids=[o[0] for o in OUTCOMES]
)
def test_a_misbehaving_receiver(name: str, act: Behaviour, expected: str, said: str) -> None:
    del name
    with misbehaving(act) as server:
        receiver = only_receiver(webhook_settings(server.url, timeout_seconds=patience(act)))
        result = receiver.send(make_note(), Context(NOW))
    assert kind(result) == expected
    assert said in (result.detail if isinstance(result, Delivered) else result.reason)


def test_the_documentation_says_what_happens() -> None:
    page = (Path(__file__).parent.parent / "docs" / "notifications.md").read_text()
    rows = dict(
        re.findall(r"^\| ([^|]+?) +\| (delivered|gave up|retry receiver|retry message)", page, re.M)
    )
    assert rows == {name: expected for name, _, expected, _ in OUTCOMES if name != "204"} | {
        "no connection": "retry receiver"
    }


@pytest.mark.parametrize(
    ("name", "act", "expected", "said"), OUTCOMES, ids=[o[0] for o in OUTCOMES]
)
def test_what_becomes_of_the_message(name: str, act: Behaviour, expected: str, said: str) -> None:
    del name, said
    clock = HandClock()
    clock.forward(2)
    database = memory_database(clock)
    with misbehaving(act) as server:
        hasty = only_receiver(webhook_settings(server.url, timeout_seconds=patience(act)))
        patient = only_receiver(webhook_settings(server.url, timeout_seconds=30))
        enqueue(database, make_notice(), to=("hook",))
        outcomes = make_dispatcher(database, hasty).drain()
        clock.forward(60)
        outcomes += make_dispatcher(database, patient).drain()
        keys = server.keys()
        bodies = {request.body for request in server.requests}
    retried = expected.startswith("retry")
    ends = ["retried", "delivered"] if retried else [{"gave up": "dead"}.get(expected, expected)]
    assert outcomes == ends
    assert keys == ["llama-m-3:1"] * len(ends)
    assert len(bodies) == 1


def test_a_closed_port_is_retried() -> None:
    receiver = only_receiver(webhook_settings(f"http://127.0.0.1:{free_port()}/"))
    result = receiver.send(make_note(), Context(NOW))
    assert isinstance(result, Retry)
    assert result.whole_receiver
    assert "ConnectError" in result.reason


def test_a_redirect_to_the_same_origin_keeps_the_request() -> None:
    with misbehaving() as server:
        server.script.append(answers(308, Location="/elsewhere"))
        receiver = only_receiver(webhook_settings(server.url))
        assert isinstance(receiver.send(make_note(), Context(NOW)), Delivered)
        first, second = server.requests
    assert second.path == "/elsewhere"
    assert second.body == first.body
    assert second.headers["webhook-id"] == first.headers["webhook-id"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_is_not_followed(status: int) -> None:
    with misbehaving() as other, misbehaving() as server:
        target = other.url.replace("127.0.0.1", "localhost")
        server.default = answers(status, Location=target)
        receiver = only_receiver(webhook_settings(server.url))
        result = receiver.send(make_note(), Context(NOW))
        assert kind(result) == "retry receiver"
        assert other.requests == []


def test_a_circle_of_redirects_ends() -> None:
    with misbehaving() as server:
        server.default = answers(307, Location="/again")
        receiver = only_receiver(webhook_settings(server.url))
        assert kind(receiver.send(make_note(), Context(NOW))) == "retry receiver"
        assert len(server.requests) == 4


def test_an_answer_cannot_bring_secrets_into_the_reason() -> None:
    with misbehaving(answers(400, b"bad token Bearer s3cr3t\x1b[31m for /hook?key=abc")) as server:
        url = f"{server.url}?key=abc"
        settings = webhook_settings(url, authorization="Bearer s3cr3t")
        server.script = [answers(400, f"Bearer s3cr3t \x1b[31m {url}".encode())]
        result = only_receiver(settings).send(make_note(), Context(NOW))
    assert isinstance(result, GaveUp)
    assert result.reason == "HTTP 400: *** [31m ***"


def test_a_long_answer_is_cut() -> None:
    with misbehaving(answers(400, b"x" * 1_000_000)) as server:
        result = only_receiver(webhook_settings(server.url)).send(make_note(), Context(NOW))
    assert isinstance(result, GaveUp)
    assert len(result.reason) < 250


def test_redaction_ignores_empty_secrets() -> None:
    assert redact("text", {"a": "", "b": "ex"}) == "t***t"


def test_the_environments_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9/")
    with misbehaving() as server:
        receiver = only_receiver(webhook_settings(server.url))
        assert isinstance(receiver.send(make_note(), Context(NOW)), Delivered)


def test_a_configured_proxy_is_used() -> None:
    with misbehaving() as proxy:
        origin = proxy.url.removesuffix("/hook")
        settings = webhook_settings("http://receiver.invalid/hook", proxy_url=origin)
        assert isinstance(only_receiver(settings).send(make_note(), Context(NOW)), Delivered)
        assert proxy.requests[0].path == "http://receiver.invalid/hook"
