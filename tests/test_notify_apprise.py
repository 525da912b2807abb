"""Other services through Apprise: its JSON plugin against a local server."""

from __future__ import annotations

import sys

import orjson
import pytest
from pydantic import ValidationError

from serve.notify.receiver import Context
from serve.notify.result import Delivered, Retry
from tests.notify_support import answers, make_note, misbehaving, only_receiver, settings_of
from tests.serve_support import START_NS


def entry(url: str) -> dict[str, object]:
    return {"type": "apprise", "name": "other", "urls": [url], "timeout_seconds": 2}


def test_a_message_goes_through_apprise() -> None:
    with misbehaving() as server:
        receiver = only_receiver(settings_of(entry(server.url.replace("http://", "json://"))))
        assert receiver.send(make_note(), Context(START_NS)) == Delivered("taken")
        (request,) = server.requests
    body = orjson.loads(request.body)
    assert body["title"].startswith("[PAGE] llama: m-3 is slow since 22:12:50 UTC")
    assert "tensor activity 0.02, peers 0.55" in body["message"]
    assert body["type"] == "failure"


def test_the_end_is_good_news() -> None:
    with misbehaving() as server:
        receiver = only_receiver(settings_of(entry(server.url.replace("http://", "json://"))))
        receiver.send(make_note("resolved"), Context(START_NS))
        assert orjson.loads(server.requests[0].body)["type"] == "success"


@pytest.mark.parametrize("status", [400, 401, 500])
def test_every_failure_is_tried_again(status: int) -> None:
    with misbehaving() as server:
        server.default = answers(status)
        url = server.url.replace("http://", "json://") + "/s3cr3t"
        result = only_receiver(settings_of(entry(url))).send(make_note(), Context(START_NS))
    assert isinstance(result, Retry)
    assert "s3cr3t" not in result.reason


def test_without_the_library_the_configuration_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ValidationError, match=r"install weaklink\[apprise\]"):
        settings_of(entry("json://localhost/"))
