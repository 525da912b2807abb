"""The pages about alerts and the API name everything there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serve.config import AlertSettings
from serve.paging import REASONS
from tests.api_support import Api

DOCS = Path(__file__).parent.parent / "docs"
ALERTS = (DOCS / "alerts.md").read_text(encoding="utf-8")
API = (DOCS / "api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_stands_in_the_page(reason: str) -> None:
    assert re.search(rf"^\| .*`{reason}`.* \|", ALERTS, re.M)


@pytest.mark.parametrize("key", sorted(AlertSettings.model_fields))
def test_every_key_of_the_life_of_an_alert_stands_in_the_page(key: str) -> None:
    assert f"`{key}`" in ALERTS


def test_every_operation_stands_in_the_page_and_no_other() -> None:
    described = Api().app.openapi()["paths"]
    there = {f"{m.upper()} {path}" for path, item in described.items() for m in item}
    told = set(re.findall(r"^\| `((?:GET|POST|DELETE) [^`]+)` \|", API, re.M))
    assert told == there


def test_the_pages_example_is_taken() -> None:
    from ingest.catalogue import Catalogue
    from ingest.rules import Rules
    from serve.decoding import FormatDecoder
    from serve.source import PushSource

    (body,) = re.findall(r"-d '\n(.*?)'\n```", API, re.S)
    api = Api()
    api.services.push = PushSource()
    api.services.decoder = FormatDecoder(Catalogue.default(), Rules(), {})
    headers = {"Content-Type": "application/json"}
    answer = api.ask("POST", "telemetry", content=body.encode(), headers=headers)
    assert answer.json()["rows"] == 1
