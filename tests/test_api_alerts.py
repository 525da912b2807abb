"""Alerts and silences over HTTP."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from serve.actions import Command
from serve.services import Services
from serve.silences import active_silences
from tests.api_support import Api
from tests.serve_support import SECOND, START_NS, change, make_alert

START = datetime.fromtimestamp(START_NS // SECOND, UTC)


@pytest.fixture
def api() -> Api:
    return Api()


def test_an_alert_is_listed_with_every_field_of_its_contract(api: Api) -> None:
    api.find("m-3")
    (alert,) = api.get("alerts").json()["items"]
    assert alert["id"] == "llama-m-3"
    assert alert["status"] == "open"
    assert alert["evidence"][0]["peer_median"] == 0.55
    assert alert["fault_types"] == [{"type": "ecc_error", "probability": 0.4}]
    assert alert["links"]["page"] == "http://wl/alerts/llama-m-3"
    assert alert["page_reason"] == "page"


def test_pages_of_a_list_hold_every_alert_once_newest_first(api: Api) -> None:
    for k in range(23):
        api.find(f"m-{k:02d}", detected_at_ns=START_NS + (k // 3) * SECOND)
    seen: list[tuple[str, str]] = []
    cursor = None
    for _ in range(10):
        query = {"limit": 5} | ({"cursor": cursor} if cursor else {})
        page = api.get("alerts", params=query).json()
        seen += [(a["detected_at"], a["id"]) for a in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 23
    assert seen == sorted(seen, reverse=True)


def test_a_page_stays_put_when_newer_alerts_arrive(api: Api) -> None:
    api.find("m-1", "m-2", "m-3")
    first = api.get("alerts?limit=2").json()
    api.find("m-9", detected_at_ns=START_NS + SECOND)
    second = api.get("alerts", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [a["machine"] for a in first["items"] + second["items"]] == ["m-3", "m-2", "m-1"]


@pytest.mark.parametrize("cursor", ["x", "W10", "WzEsMl0", "eyJhIjoxfQ", "WzEuNSwiYSJd", "é"])
def test_a_cursor_that_is_not_ours_is_refused(api: Api, cursor: str) -> None:
    answer = api.get("alerts", params={"cursor": cursor})
    assert answer.status_code == 422
    assert "cursor" in answer.json()["detail"]


def test_filters_select(api: Api) -> None:
    api.find("m-1")
    api.find("m-2", job="opt", detected_at_ns=START_NS + 60 * SECOND)
    group = make_alert("m-7", verdict="group", machine=None, machines=("m-7", "m-8"), job="bert")
    with api.database.write() as session:
        api.services.lifecycle.apply(session, [change("opened", group)], now_ns=api.clock())

    def ids(**query: str) -> list[str]:
        return [a["id"] for a in api.get("alerts", params=query).json()["items"]]

    assert ids(job="opt") == ["opt-m-2"]
    assert ids(machine="m-8") == [group.id]
    assert ids(machine="m-1") == ["llama-m-1"]
    assert ids(since=(START + timedelta(seconds=60)).isoformat()) == ["opt-m-2"]
    assert ids(status="resolved") == []
    assert len(ids(status="open")) == 3


@pytest.mark.parametrize(
    "query",
    [
        "status=closed",
        "limit=0",
        "limit=501",
        "since=yesterday",
        "since=2024-01-01T00:00:00",
        "since=1700000000",
        "since=2024-13-01T00:00:00Z",
        "job=",
        "machine=%00",
    ],
)
def test_a_bad_filter_is_a_problem_that_names_it(api: Api, query: str) -> None:
    answer = api.get(f"alerts?{query}")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert query.partition("=")[0] in answer.json()["detail"]


@pytest.mark.parametrize(
    ("since", "count"), [("0001-01-01T00:00:00%2B14:00", 1), ("9999-12-31T23:59:59Z", 0)]
)
def test_times_beyond_what_can_be_stored_are_still_times(api: Api, since: str, count: int) -> None:
    api.find("m-3")
    assert len(api.get(f"alerts?since={since}").json()["items"]) == count


def test_a_known_answer_is_not_sent_again(api: Api) -> None:
    api.find("m-3")
    first = api.get("alerts/llama-m-3")
    again = api.get("alerts/llama-m-3", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    api.post("alerts/llama-m-3/acknowledge")
    changed = api.get("alerts/llama-m-3", headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200


def test_an_alert_comes_with_commands_and_what_its_machines_did_before(api: Api) -> None:
    services: Services = api.services
    services.commands = lambda alert: [Command("Drain it", f"scontrol drain {alert.machine}")]
    api.find("m-3", job="earlier")
    api.find("m-3")
    detail = api.get("alerts/llama-m-3").json()
    assert detail["commands"] == [{"purpose": "Drain it", "text": "scontrol drain m-3"}]
    assert detail["earlier_incidents"] == {"m-3": 1}


def test_acknowledging_resolving_and_feedback_are_kept(api: Api) -> None:
    api.find("m-3")
    acknowledged = api.post("alerts/llama-m-3/acknowledge", {"by": "ann"}).json()
    assert (acknowledged["status"], acknowledged["acknowledged_by"]) == ("acknowledged", "ann")
    opinion = api.post("alerts/llama-m-3/feedback", {"verdict": "wrong", "machine": "m-5"})
    assert opinion.status_code == 201
    resolved = api.post("alerts/llama-m-3/resolve", {"by": "bob", "note": "cable"}).json()
    assert (resolved["status"], resolved["resolved_by"]) == ("resolved", "bob")
    assert resolved["note"] == "cable"
    assert [f["machine"] for f in resolved["feedback"]] == ["m-5"]
    assert [n.kind for n in api.outbox.notices] == ["acknowledged", "resolved"]


def test_a_body_is_not_needed_to_acknowledge(api: Api) -> None:
    api.find("m-3")
    assert api.post("alerts/llama-m-3/acknowledge").json()["acknowledged_by"] == "local"


def test_acknowledging_what_is_over_is_a_conflict(api: Api) -> None:
    api.find("m-3")
    api.post("alerts/llama-m-3/resolve")
    assert api.post("alerts/llama-m-3/acknowledge").status_code == 409


def test_a_change_of_what_was_not_seen_is_refused_on_wish(api: Api) -> None:
    api.find("m-3")
    seen = {"If-Match": api.get("alerts/llama-m-3").headers["etag"]}
    api.post("alerts/llama-m-3/acknowledge", {"by": "ann"})
    assert api.post("alerts/llama-m-3/resolve", headers=seen).status_code == 412
    fresh = {"If-Match": api.get("alerts/llama-m-3").headers["etag"]}
    assert api.post("alerts/llama-m-3/resolve", headers=fresh).status_code == 200


@pytest.mark.parametrize("action", ["acknowledge", "resolve", "feedback"])
def test_an_unknown_alert_is_not_found(api: Api, action: str) -> None:
    body = {"verdict": "right"} if action == "feedback" else {}
    assert api.post(f"alerts/nothing/{action}", body).status_code == 404


@pytest.mark.parametrize(
    "body",
    [{"verdict": "maybe"}, {}, {"verdict": "right", "mashine": "m-1"}, [], {"verdict": None}],
)
def test_bad_feedback_is_refused(api: Api, body: object) -> None:
    api.find("m-3")
    assert api.post("alerts/llama-m-3/feedback", body).status_code == 422


def test_an_alias_finds_the_alert(api: Api) -> None:
    api.find("m-3")
    moved = replace(make_alert(id="after-restart"), detected_at_ns=START_NS + SECOND)
    with api.database.write() as session:
        api.services.lifecycle.apply(session, [change("opened", moved)], now_ns=api.clock())
    assert api.get("alerts/after-restart").json()["id"] == "llama-m-3"


def _silence(api: Api, **fields: object) -> dict[str, object]:
    body = {"machine": "m-*", "ends_at": (START + timedelta(hours=1)).isoformat()} | fields
    answer = api.post("silences", body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def test_a_silence_is_made_listed_and_ended(api: Api) -> None:
    made = _silence(api, comment="rack 7", created_by="ann", kind="maintenance")
    (listed,) = api.get("silences").json()["items"]
    assert listed == made
    assert (listed["kind"], listed["created_by"]) == ("maintenance", "ann")
    assert api.ask("DELETE", f"silences/{made['id']}").status_code == 204
    assert api.get("silences").json()["items"] == []
    assert api.ask("DELETE", f"silences/{made['id']}").status_code == 404


def test_a_silence_over_http_holds_pages(api: Api) -> None:
    _silence(api)
    api.find("m-3")
    assert api.get("alerts/llama-m-3").json()["page_reason"] == "silence"


def test_a_silence_to_come_is_listed_and_not_in_force(api: Api) -> None:
    _silence(api, starts_at=(START + timedelta(minutes=30)).isoformat())
    assert len(api.get("silences").json()["items"]) == 1
    with api.database.read() as session:
        assert active_silences(session, api.clock()) == []


def test_an_expired_silence_is_listed_only_on_wish(api: Api) -> None:
    _silence(api)
    api.clock.forward(7200)
    assert api.get("silences").json()["items"] == []
    assert len(api.get("silences?expired=true").json()["items"]) == 1


def test_silences_come_in_pages(api: Api) -> None:
    for k in range(7):
        _silence(api, ends_at=(START + timedelta(hours=1 + k // 2)).isoformat())
    first = api.get("silences?limit=4").json()
    rest = api.get("silences", params={"limit": 4, "cursor": first["next_cursor"]}).json()
    ids = [s["id"] for s in first["items"] + rest["items"]]
    assert len(set(ids)) == 7
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(
    "fields",
    [
        {"ends_at": (START - timedelta(hours=1)).isoformat()},
        {"starts_at": (START + timedelta(hours=2)).isoformat()},
        {"kind": "holiday"},
        {"machine": ""},
        {"ends_at": "soon"},
        {"ends_at": None},
        {"for": "1h"},
        {"comment": "x" * 501},
        {"job": "a\x00b"},
    ],
)
def test_a_bad_silence_is_refused(api: Api, fields: dict[str, object]) -> None:
    body = {"ends_at": (START + timedelta(hours=1)).isoformat()} | fields
    answer = api.post("silences", body)
    assert answer.status_code == 422
    assert answer.json()["detail"]
