"""Tokens, limits, headers, problem documents, own metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from serve.api.guards import RateLimit
from serve.services import Check
from serve.store.tables import TokenRow
from serve.tokens import check_token, create_token, revoke_token
from tests.api_support import Api
from tests.serve_support import HandClock, memory_database

OPEN_TO_ALL = {"/healthz", "/readyz"}


def _locked(**config: Any) -> Api:
    api = Api(auth={"mode": "on"}, **config)
    api.find("m-3")
    return api


def _operations(api: Api) -> Iterator[tuple[str, str]]:
    """Every operation of the API, with parameters filled in."""
    for route in api.app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            path = route.path
            for name, value in (("alert_id", "llama-m-3"), ("silence_id", "x")):
                path = path.replace(f"{{{name}}}", value)
            path = re.sub(r"\{\w+(:path)?\}", "x", path)
            path = path.replace("/events", "/events?follow=false")
            for method in route.methods or ():
                yield method, path


def test_without_a_token_nothing_but_health_is_answered() -> None:
    api = _locked()
    asked = list(_operations(api))
    assert len(asked) >= 16
    for method, path in asked:
        answer = api.ask(method, path)
        if path in OPEN_TO_ALL:
            assert answer.status_code == 200, path
        else:
            assert answer.status_code == 401, f"{method} {path}"
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.json()["title"] == "Unauthorized"


def test_a_token_that_may_read_may_not_write() -> None:
    api = _locked()
    api.token = api.new_token("read")
    for method, path in _operations(api):
        status = api.ask(method, path).status_code
        if method == "GET":
            assert status not in {401, 403}, f"{method} {path}"
        else:
            assert status == 403, f"{method} {path}"
    assert api.get("alerts/llama-m-3").json()["status"] == "open"


def test_a_token_that_may_write_may_read_and_write_and_signs_what_it_does() -> None:
    api = _locked()
    api.token = api.new_token("write")
    assert api.get("alerts").status_code == 200
    answer = api.post("alerts/llama-m-3/acknowledge", {"by": "ann"})
    assert answer.json()["acknowledged_by"] == "ann (write)"


@pytest.mark.parametrize(
    "value",
    [
        "Bearer wrong",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        "Bearer wl_x_y",
        "wl_x",
        "Bearer é",
        "Bearer",
    ],
)
def test_a_wrong_credential_is_refused(value: str) -> None:
    answer = _locked().get("alerts", headers={"Authorization": value.encode()})
    assert answer.status_code == 401


def test_a_token_with_a_changed_secret_is_refused() -> None:
    api = _locked()
    token = api.new_token("write")
    api.token = token[:-1] + ("a" if token[-1] != "a" else "b")
    assert api.get("alerts").status_code == 401


def test_an_expired_or_revoked_token_is_refused() -> None:
    clock = HandClock()
    database = memory_database(clock)
    with database.write() as session:
        short = create_token(session, "s", ["read"], now_ns=clock(), expires_at_ns=clock() + 10**9)
        gone = create_token(session, "g", ["read"], now_ns=clock())
    with database.write() as session:
        assert check_token(session, short, now_ns=clock()) is not None
        assert check_token(session, gone, now_ns=clock()) is not None
        assert revoke_token(session, gone.split("_")[1])
        assert not revoke_token(session, "nothing")
        clock.forward(1)
        assert check_token(session, short, now_ns=clock()) is None
        assert check_token(session, gone, now_ns=clock()) is None


def test_of_a_token_only_the_hash_is_kept() -> None:
    database = memory_database()
    with database.write() as session:
        token = create_token(session, "n", ["read"], now_ns=1)
    with database.read() as session:
        row = session.scalars(select(TokenRow)).one()
    secret = token.split("_", 2)[2]
    assert secret not in repr(vars(row))
    assert len(row.secret_sha256) == 64


def test_on_loopback_a_foreign_host_name_is_refused() -> None:
    api = Api()
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[::1", "localhost.evil"):
        answer = api.get("alerts", headers={"Host": host})
        assert answer.status_code == 421, host
    for host in ("localhost:8080", "127.0.0.1", "[::1]:8080"):
        assert api.get("alerts", headers={"Host": host}).status_code == 200, host


def test_probes_are_answered_under_any_host_name() -> None:
    api = Api(http={"trusted_hosts": ["Weaklink.Example"]})
    for path in ("/healthz", "/readyz"):
        assert api.get(path, headers={"Host": "10.0.0.7:8080"}).status_code == 200, path
    assert api.get("alerts", headers={"Host": "10.0.0.7:8080"}).status_code == 421
    assert api.get("alerts", headers={"Host": "weaklink.example"}).status_code == 200


def test_another_sites_page_cannot_change_anything() -> None:
    api = Api()
    api.find("m-3")
    answer = api.post("alerts/llama-m-3/resolve", headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403
    assert api.get("alerts/llama-m-3").json()["status"] == "open"


def test_no_other_site_may_read_by_default() -> None:
    answer = Api().get("alerts", headers={"Origin": "https://other.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_site_that_is_allowed_may_read() -> None:
    api = Api(http={"cors_origins": ["https://desk.example"]})
    answer = api.get("alerts", headers={"Origin": "https://desk.example"})
    assert answer.headers["access-control-allow-origin"] == "https://desk.example"
    other = api.get("alerts", headers={"Origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers


def test_every_answer_carries_the_security_headers() -> None:
    api = Api()
    for path in ("alerts", "alerts/none", "/nowhere", "/metrics", "/", "/docs", "/healthz"):
        headers = api.get(path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
        assert "server" not in headers


def test_a_client_that_asks_too_often_waits_and_others_do_not() -> None:
    now = [0.0]
    api = Api(http={"requests_per_second": 2, "burst_requests": 3})
    limit = RateLimit(lambda *_: None, api.services, clock=lambda: now[0])  # type: ignore[arg-type]
    assert [limit._take("a") > 0 for _ in range(4)] == [False, False, False, True]
    assert limit._take("a") == pytest.approx(0.5)
    assert limit._take("b") == 0
    now[0] += 0.5
    assert limit._take("a") == 0
    assert limit._take("a") > 0


def test_too_many_requests_are_a_problem_with_retry_after() -> None:
    api = Api(http={"requests_per_second": 0.01, "burst_requests": 2})
    answers = [api.get("alerts") for _ in range(3)]
    assert [a.status_code for a in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) >= 1
    assert api.get("/healthz").status_code == 200


def test_invented_tokens_share_the_limit_of_their_address_and_valid_ones_do_not() -> None:
    api = _locked(http={"requests_per_second": 0.01, "burst_requests": 3})
    api.token = api.new_token("read")
    assert api.get("alerts").status_code == 200
    answers = [
        api.get("alerts", headers={"Authorization": f"Bearer wl_{k:012x}_x"}) for k in range(4)
    ]
    assert [a.status_code for a in answers] == [401, 401, 429, 429]
    assert api.get("alerts").status_code == 200


def test_a_body_that_is_not_telemetry_is_small() -> None:
    api = Api()
    answer = api.ask("POST", "silences", content=b" " * (1 << 20) + b"  ")
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/api/v1/nowhere", 404),
        ("PUT", "/api/v1/alerts", 405),
        ("DELETE", "/api/v1/alerts/x", 405),
        ("GET", "/api/v1/alerts?limit=x", 422),
        ("POST", "/api/v1/alerts/x/feedback", 422),
        ("POST", "/api/v1/telemetry", 409),
    ],
)
def test_every_error_is_a_problem_document(method: str, path: str, status: int) -> None:
    answer = Api().ask(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert {"type", "title", "detail"} <= problem.keys()
    if status == 405:
        assert answer.headers["allow"]


def test_a_broken_json_body_is_a_problem() -> None:
    api = Api()
    for body in (b"{", b"\xff", b'"\\ud800"', b"[" * 10_000):
        answer = api.ask(
            "POST", "silences", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 422, body[:10]
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_bug_is_a_problem_without_its_details(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr("serve.api.alerts.find_alert", broken)
    answer = Api().get("alerts/x")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "hunter2" not in answer.text


def test_a_database_that_is_away_is_503_not_500(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()

    def away(*_: object, **__: object) -> None:
        raise OperationalError("select", {}, Exception("server closed the connection"))

    monkeypatch.setattr("serve.api.alerts.find_alert", away)
    answer = api.get("alerts/x")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_health_does_not_depend_on_checks_and_readiness_does() -> None:
    api = Api()
    problem = [""]
    api.services.checks = [Check("lag", lambda: problem[0])]
    assert api.get("/readyz").json() == {"status": "ok", "checks": {"lag": ""}}
    problem[0] = "300 s behind"
    answer = api.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["lag"]) == (503, "300 s behind")
    assert api.get("/healthz").status_code == 200


def test_requests_are_counted_by_route_not_by_address() -> None:
    api = Api()
    api.find("m-3")
    api.get("alerts/llama-m-3")
    api.get("alerts/none")
    api.get("/a/scanner/looks/here")
    value = api.services.metrics.registry.get_sample_value
    labels = {"method": "GET", "route": "/api/v1/alerts/{alert_id}"}
    assert value("weaklink_http_requests_total", labels | {"status": "2xx"}) == 1
    assert value("weaklink_http_requests_total", labels | {"status": "4xx"}) == 1
    other = {"method": "other", "route": "other", "status": "4xx"}
    assert value("weaklink_http_requests_total", other) == 1


def test_requests_make_no_series_that_was_not_there_at_zero() -> None:
    api = Api()
    assert api.app
    before = _series(api)
    for method in ("GET", "POST", "DELETE", "PUT", "OPTIONS"):
        for path in ("alerts", "alerts/x", "jobs/x/scores", "silences/x", "/x", "/", "/metrics"):
            api.ask(method, path)
    assert _series(api) == before


def _series(api: Api) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for metric in api.services.metrics.registry.collect()
        for sample in metric.samples
        if not sample.name.endswith("_created")
    }


def test_metrics_are_readable_by_prometheus() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    text = Api().get("/metrics").text
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {"weaklink_rows", "weaklink_page_decisions", "weaklink_heartbeat_timestamp_seconds"} <= (
        names
    )


def test_docs_show_the_fields_of_a_body() -> None:
    text = Api().get("/docs").text
    section = text.split("/api/v1/alerts/{alert_id}/feedback")[1].split("</section>")[0]
    assert "<code>verdict</code> (needed)</td><td>body</td><td>right | wrong</td>" in section
    assert "<code>note</code></td><td>body</td>" in section
    resolve = text.split("/api/v1/alerts/{alert_id}/resolve")[1].split("</section>")[0]
    assert "<code>by</code></td><td>body</td>" in resolve


def test_docs_load_nothing_from_elsewhere() -> None:
    api = Api()
    page = api.get("/docs")
    assert page.status_code == 200
    assert "GET /api/v1/alerts" in page.text
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", page.text)
    assert api.get("openapi.json").json()["info"]["title"] == "weaklink"
