"""The page on the real service: what the templates need is what the API answers."""

from __future__ import annotations

import numpy as np
import pytest

from detect.detector import ScoreFrame
from serve.page.filters import literal_pattern
from serve.silences import covers
from serve.store.history import store_scores
from serve.store.tables import JobRow
from tests.api_support import Api
from tests.serve_support import SECOND, START_NS, make_alert

JOB = "team/llama 70b?"


@pytest.fixture
def api() -> Api:
    """A service with one odd job name, some scores and one open alert."""
    made = Api()
    body = {
        "machines": ["m-1", "m-2", "m-3"],
        "phase": "training",
        "state": "running",
        "run": 1,
        "tick_ns": SECOND,
        "watermark_ns": START_NS,
        "rejected": {},
    }
    frame = ScoreFrame(
        START_NS - 60 * SECOND, SECOND, ("m-1", "m-2", "m-3"), np.ones((3, 60), np.float32), "train"
    )
    with made.database.write() as session:
        session.add(JobRow(job=JOB, worker="w", body=body, updated_at_ns=START_NS))
        store_scores(session, JOB, [frame], now_ns=START_NS)
    made.find("m-3", job=JOB, id="a1")
    return made


@pytest.mark.parametrize(
    "view",
    [
        "/",
        "/jobs/team%2Fllama%2070b%3F",
        "/alerts",
        "/alerts?status=open&job=team%2Fllama%2070b%3F",
        "/machine?job=team%2Fllama%2070b%3F&machine=m-3",
    ],
)
def test_views_of_the_real_service_show_the_alert(api: Api, view: str) -> None:
    answer = api.get(view)
    assert answer.status_code == 200
    assert "m-3 is slow" in answer.text


def test_the_alerts_story_has_commands_and_the_paging_decision(api: Api) -> None:
    answer = api.get("/alerts/a1")
    assert answer.status_code == 200
    assert "Paging: people are told." in answer.text
    assert make_alert("m-3").recommended_action in answer.text


def test_silences_of_the_real_service_are_listed(api: Api) -> None:
    body = {"machine": "rack7-*", "ends_at": "2030-01-01T00:00:00Z", "comment": "new cables"}
    assert api.post("silences", body).status_code == 201
    text = api.get("/silences").text
    assert "rack7-*" in text
    assert "new cables" in text


def test_the_page_is_locked_while_the_service_wants_tokens() -> None:
    api = Api(auth={"mode": "on"})
    assert api.get("/").status_code == 401
    api.token = api.new_token("read")
    assert api.get("/").status_code == 200


def test_the_pages_policy_survives_the_services_own_headers(api: Api) -> None:
    policy = api.get("/").headers["content-security-policy"]
    assert "script-src 'self'" in policy


def test_a_silence_made_from_an_alert_covers_it_whatever_its_name(api: Api) -> None:
    for name in ("node[1]", "a-b", "rack]x["):
        assert covers(literal_pattern(JOB), literal_pattern(name), JOB, (name,))
        assert not covers(literal_pattern(JOB), literal_pattern(name), JOB, ("node1",))
