"""Server-sent events over a real connection: order, resuming, the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from serve.store.base import Database
from serve.store.events import append_event
from serve.store.retention import sweep
from tests.api_support import Api
from tests.page_support import FakeService, running
from tests.serve_support import HandClock, make_alert


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    clock = HandClock()
    database = Database(f"sqlite:///{tmp_path / 'events.db'}", clock=clock)
    database.migrate()
    yield Api(database)
    database.close()


def _write(api: Api, *kinds: str, job: str = "llama") -> None:
    with api.database.write() as session:
        for kind in kinds:
            append_event(session, kind, {"kind": kind}, at_ns=api.clock(), job=job)
    api.services.broadcast.notify()


def _parse(text: str) -> list[dict[str, str]]:
    blocks = [b for b in text.split("\n\n") if b and not b.startswith("retry")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


def _stored(api: Api, query: str = "", **headers: str) -> list[str]:
    answer = api.get(f"events?follow=false{query}", headers=headers)
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [e["event"] for e in _parse(answer.text)]


class Stream:
    """A reader of the stream in a thread of its own."""

    def __init__(self, address: str, **headers: str):
        self.events: list[dict[str, str]] = []
        self.started = threading.Event()
        self.changed = threading.Condition()
        self.ended = False
        self._thread = threading.Thread(target=self._read, args=(address, headers), daemon=True)
        self._thread.start()
        assert self.started.wait(10)

    def _read(self, address: str, headers: dict[str, str]) -> None:
        url = f"{address}/api/v1/events"
        with httpx.stream("GET", url, headers=headers, timeout=30) as answer:
            block: dict[str, str] = {}
            for line in answer.iter_lines():
                self.started.set()
                key, _, value = line.partition(": ")
                if line:
                    block[key] = value
                    continue
                with self.changed:
                    if "event" in block:
                        self.events.append(block)
                    self.changed.notify_all()
                block = {}
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait(self, count: int) -> list[str]:
        """Kinds of the first ``count`` events, heartbeats apart."""

        def kinds() -> list[str]:
            return [e["event"] for e in self.events if e["event"] != "heartbeat"]

        with self.changed:
            assert self.changed.wait_for(lambda: len(kinds()) >= count, 20)
            return kinds()


@pytest.fixture
def address(api: Api) -> Iterator[str]:
    with running(api.app, FakeService(0, [])) as url:
        yield url
        api.services.broadcast.close()


def test_a_stream_begins_now_and_brings_what_comes(api: Api, address: str) -> None:
    _write(api, "before")
    stream = Stream(address)
    _write(api, "one", "two")
    assert stream.wait(2) == ["one", "two"]
    assert [e["id"] for e in stream.events[:2]] == ["2", "3"]
    assert json.loads(stream.events[0]["data"]) == {"kind": "one"}


def test_a_stream_resumes_after_the_last_event_seen(api: Api, address: str) -> None:
    _write(api, "one", "two", "three")
    stream = Stream(address, **{"Last-Event-ID": "1"})
    assert stream.wait(2) == ["two", "three"]
    _write(api, "four")
    assert stream.wait(3)[-1] == "four"


def test_an_alert_reaches_a_stream_with_its_public_form(api: Api, address: str) -> None:
    stream = Stream(address)
    api.find("m-3")
    api.services.broadcast.notify()
    assert stream.wait(1) == ["alert.opened"]
    assert json.loads(stream.events[0]["data"])["machine"] == make_alert().machine


def test_what_another_process_wrote_comes_without_a_wake_up(api: Api, address: str) -> None:
    stream = Stream(address)
    with api.database.write() as session:
        append_event(session, "quiet", {}, at_ns=1)
    assert stream.wait(1) == ["quiet"]


def test_streams_end_when_the_service_stops(api: Api, address: str) -> None:
    stream = Stream(address)
    api.services.broadcast.close()
    with stream.changed:
        assert stream.changed.wait_for(lambda: stream.ended, 10)


def test_too_many_streams_are_refused(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'x.db'}", clock=HandClock())
    database.migrate()
    api = Api(database, http={"event_streams": 1})
    with running(api.app, FakeService(0, [])) as url:
        Stream(url)
        second = httpx.get(f"{url}/api/v1/events", timeout=10)
        api.services.broadcast.close()
    assert second.status_code == 429
    assert second.headers["content-type"] == "application/problem+json"
    database.close()


def test_more_than_one_batch_is_read_to_its_end(api: Api) -> None:
    _write(api, *(["x"] * 450))
    assert len(_stored(api, "&after=0")) == 450


def test_events_can_be_read_of_one_job(api: Api) -> None:
    _write(api, "a", job="llama")
    _write(api, "b", job="opt")
    assert _stored(api, "&job=opt") == ["b"]


def test_a_reader_who_missed_what_retention_removed_is_told(api: Api) -> None:
    _write(api, "old", "older")
    api.clock.forward(100 * 86_400)
    sweep(api.database, api.services.config.retention)
    _write(api, "new")
    assert _stored(api, **{"Last-Event-ID": "1"}) == ["reset", "new"]
    assert _stored(api, **{"Last-Event-ID": "2"}) == ["new"]


def test_an_id_from_another_log_is_told(api: Api) -> None:
    _write(api, "a")
    assert _stored(api, **{"Last-Event-ID": "700"}) == ["reset"]


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "99999999999999999999"])
def test_an_id_that_is_none_is_refused(api: Api, value: str) -> None:
    answer = api.get("events?follow=false", headers={"Last-Event-ID": value})
    assert answer.status_code == 422
