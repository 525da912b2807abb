"""`weaklink notify test` takes the way of real alerts."""

from __future__ import annotations

import orjson
import pytest
from standardwebhooks import Webhook

from serve.notify.check import UnknownReceiverError, notify_test
from serve.notify.result import Delivered, GaveUp
from tests.notify_support import (
    SIGNING_SECRET,
    answers,
    enqueue,
    make_dispatcher,
    make_notice,
    misbehaving,
    only_receiver,
    settings_of,
    webhook_settings,
)
from tests.serve_support import HandClock, memory_database


def test_a_test_opens_and_ends_an_incident_that_says_it_is_a_test() -> None:
    with misbehaving() as server:
        settings = webhook_settings(server.url)
        result = notify_test(settings, "hook", clock=HandClock(), base_url="https://w.example")
        bodies = [orjson.loads(r.body) for r in server.requests]
    assert isinstance(result, Delivered)
    assert [b["type"] for b in bodies] == ["alert.test", "alert.test"]
    assert [b["data"]["resolves"] for b in bodies] == [False, True]
    assert bodies[0]["data"]["key"] == bodies[1]["data"]["key"]


def test_a_test_is_signed_like_a_real_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    clock = HandClock(time.time_ns())
    with misbehaving() as server:
        settings = webhook_settings(server.url, signing_secrets=[SIGNING_SECRET])
        notify_test(settings, "hook", clock=clock)
        database = memory_database(clock)
        enqueue(database, make_notice(at_ns=clock()), to=("hook",))
        make_dispatcher(database, only_receiver(settings)).drain()
        test, _, real = server.requests
    for request in (test, real):
        Webhook(SIGNING_SECRET).verify(request.body, request.headers)
    assert set(test.headers) == set(real.headers)


def test_pagerduty_is_triggered_and_resolved() -> None:
    with misbehaving() as server:
        settings = settings_of(
            {"type": "pagerduty", "name": "pd", "routing_key": "k", "url": server.url}
        )
        assert isinstance(notify_test(settings, "pd", clock=HandClock()), Delivered)
        events = [orjson.loads(r.body) for r in server.requests]
    assert [e["event_action"] for e in events] == ["trigger", "resolve"]
    assert len({e["dedup_key"] for e in events}) == 1
    assert events[0]["payload"]["severity"] == "info"
    assert events[0]["payload"]["summary"].startswith("[TEST]")


def test_a_failed_test_says_why() -> None:
    with misbehaving(answers(400, b"invalid routing key")) as server:
        result = notify_test(webhook_settings(server.url), "hook", clock=HandClock())
    assert result == GaveUp("HTTP 400: invalid routing key")


def test_an_unknown_receiver_is_named_with_those_that_exist() -> None:
    with pytest.raises(UnknownReceiverError, match=r"no receiver 'x' \(there are: hook\)"):
        notify_test(webhook_settings("http://127.0.0.1:9/"), "x", clock=HandClock())
