from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from fastapi import FastAPI

from serve.page.assets import Assets
from serve.page.security import CONTENT_SECURITY_POLICY
from tests.page_support import HOSTILE, SECOND, Caller, FakeService, fake_app, made_alert

NOW = 1_760_000_000 * SECOND
ONSET = NOW - 200 * SECOND
VIEWS = (
    "/",
    "/jobs/llama-70b",
    "/alerts",
    "/alerts/a1",
    "/machine?job=llama-70b&machine=m3",
    "/silences",
)


class Tags(HTMLParser):
    """Every element of a page with its attributes, and the text outside of scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def service() -> FakeService:
    made = FakeService(now_ns=NOW, machines=[f"m{i}" for i in range(8)], faulty="m3")
    made.put(made_alert("m3", ONSET))
    return made


@pytest.fixture
def page(service: FakeService) -> Caller:
    return Caller(fake_app(service))


@pytest.mark.parametrize("view", VIEWS)
def test_views_hold_nothing_inline_and_nothing_from_elsewhere(page: Caller, view: str) -> None:
    answer = page.get(view)
    assert answer.status_code == 200
    for tag, attributes in Tags(answer.text).tags:
        assert tag != "style"
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
        if tag == "script" and attributes.get("type") != "application/json":
            assert (attributes.get("src") or "").startswith("/assets/")
        for name in ("src", "href"):
            address = attributes.get(name) or "/"
            assert address.startswith(("/", "#", "?", "http://127.0.0.1/")), address


@pytest.mark.parametrize("view", VIEWS)
def test_views_carry_the_strict_policy(page: Caller, view: str) -> None:
    headers = page.get(view).headers
    assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_hostile_names_are_text_in_every_view(service: FakeService, page: Caller) -> None:
    service.machines.append(HOSTILE)
    service.put(made_alert(HOSTILE, ONSET, alert_id="a2"))
    service.silences.append(
        {
            "id": "1",
            "kind": "silence",
            "job": "*",
            "machine": HOSTILE,
            "comment": HOSTILE,
            "created_by": HOSTILE,
            "starts_at": "2026-01-01T00:00:00Z",
            "ends_at": "2026-01-01T01:00:00Z",
        }
    )
    for view in ("/", "/jobs/llama-70b", "/alerts/a2", "/silences"):
        parsed = Tags(page.get(view).text)
        assert HOSTILE in parsed.text, view
        assert "onerror" not in [name for _, attributes in parsed.tags for name in attributes]
    answer = page.get("/machine", params={"job": "llama-70b", "machine": HOSTILE})
    assert HOSTILE in Tags(answer.text).text


def test_a_link_that_would_run_script_is_not_shown(service: FakeService, page: Caller) -> None:
    service.alerts["a1"]["links"] = {"bad": "javascript:alert(1)", "log": "https://logs.example/"}
    text = page.get("/alerts/a1").text
    assert "javascript:" not in text
    assert "https://logs.example/" in text


def test_overview_counts_alerts_and_says_when_all_is_quiet(
    service: FakeService, page: Caller
) -> None:
    assert "▲ 1 open" in page.get("/").text
    service.alerts.clear()
    text = page.get("/").text
    assert "All quiet." in text
    assert "1 job watched" in text


def test_alert_tells_its_evidence_in_words(page: Caller) -> None:
    text = Tags(page.get("/alerts/a1").text).text
    assert "m3 is slow" in text
    assert re.search(r"tensor activity 0\.02, peers 0\.55 since \d\d:\d\d:\d\d", text)
    assert "23 s after its estimated onset" in text
    assert "scontrol update nodename=m3" in text


def test_a_resolved_alert_offers_no_acknowledgement(service: FakeService, page: Caller) -> None:
    assert "Acknowledge" in page.get("/alerts/a1").text
    service.alerts["a1"]["status"] = "resolved"
    assert "Acknowledge" not in page.get("/alerts/a1").text


def test_a_repeat_offender_is_called_one(service: FakeService, page: Caller) -> None:
    service.alerts["a1"]["earlier_incidents"] = {"m3": 2}
    assert "m3 was named in 2 earlier incidents." in page.get("/alerts/a1").text
    service.alerts["a1"]["earlier_incidents"] = {"m3": 0}
    assert "earlier incident" not in page.get("/alerts/a1").text


def test_feedback_given_before_is_shown(service: FakeService, page: Caller) -> None:
    said = {"verdict": "wrong", "machine": "m5", "note": "cable", "author": "ada"}
    service.alerts["a1"]["feedback"] = [said]
    assert "Feedback: wrong, it was m5 (ada): cable" in page.get("/alerts/a1").text


def test_without_a_token_a_locked_page_shows_no_data(service: FakeService, page: Caller) -> None:
    service.token = "secret"
    for view in VIEWS:
        answer = page.get(view)
        assert answer.status_code == 401
        assert "data-locked" in answer.text
        assert "m3" not in Tags(answer.text).text


def test_the_readers_token_is_handed_on_to_the_api(service: FakeService, page: Caller) -> None:
    service.token = "secret"
    answer = page.get("/alerts/a1", headers={"Authorization": "Bearer secret"})
    assert answer.status_code == 200
    assert "m3 is slow" in answer.text
    assert "secret" not in answer.text


def test_what_does_not_exist_is_a_page_with_status_404(page: Caller) -> None:
    for view in ("/jobs/other", "/alerts/none"):
        answer = page.get(view)
        assert answer.status_code == 404
        assert "Not here" in answer.text


def test_a_fragment_is_the_main_part_alone(page: Caller) -> None:
    fragment = page.get("/", headers={"X-Weaklink-Fragment": "1"}).text
    assert "<header" not in fragment
    assert "<script src" not in fragment
    assert 'id="open-alerts"' in fragment
    assert Tags(fragment).text.count("m3 is slow") == 1


def test_filters_of_the_alert_list_reach_the_api(service: FakeService, page: Caller) -> None:
    service.put(made_alert("m5", ONSET, alert_id="a2", status="resolved"))
    text = page.get("/alerts", params={"status": "resolved"}).text
    assert "m5 is slow" in text
    assert "m3 is slow" not in text


def test_every_module_and_file_that_is_named_exists(page: Caller) -> None:
    assets = Assets()
    named = re.findall(r"/assets/[0-9a-f]+/([^\"]+)", page.get("/jobs/llama-70b").text)
    assert len(named) >= 7
    for module in [name for name in assets.files if name.endswith(".js")]:
        folder = module.rsplit("/", 1)[0]
        for needed in re.findall(r'from "(\.[^"]+)"', assets.files[module].decode()):
            up, rest = needed.split("/", 1)
            named.append(f"{folder}/{rest}" if up == "." else rest)
    assert set(named) <= set(assets.files)


def test_assets_are_cached_for_ever_under_their_version(page: Caller) -> None:
    version = Assets().version
    answer = page.get(f"/assets/{version}/view/board.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "immutable" in answer.headers["cache-control"]
    assert page.get("/assets/0000/view/board.js").status_code == 404


@pytest.mark.parametrize("name", ["../router.py", "view/../../report.py", "page/nothing.js", ""])
def test_no_other_file_is_served(page: Caller, name: str) -> None:
    address = f"/assets/{Assets().version}/{name}".replace("..", "%2e%2e")
    assert page.get(address).status_code == 404


def test_addresses_follow_a_prefix_of_a_proxy(service: FakeService) -> None:
    outer = FastAPI()
    outer.mount("/watch", fake_app(service))
    text = Caller(outer).get("/watch/alerts").text
    assert 'data-base="/watch"' in text
    assert 'href="/watch/alerts/a1"' in text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"}, 200),
        ({"Origin": "http://testserver"}, 200),
        ({}, 200),
    ],
)
def test_other_sites_cannot_acknowledge(page: Caller, headers: dict[str, str], status: int) -> None:
    answer = page.send("POST", "/api/v1/alerts/a1/acknowledge", headers=headers)
    assert answer.status_code == status
    if status == 403:
        assert answer.headers["content-type"] == "application/problem+json"
        assert page.get("/api/v1/alerts/a1").json()["status"] == "open"
