"""Schemathesis against the running API with every check on: no 5xx, all answers conform."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from ingest.catalogue import Catalogue
from ingest.rules import Rules
from serve.decoding import FormatDecoder
from serve.source import PushSource
from serve.store.base import Database
from serve.store.history import HistoryStore
from tests.api_support import Api
from tests.page_support import FakeService, running
from tests.serve_support import HandClock, ListSource, make_worker, rows

EXAMPLES = 6

# Some rules no schema can state; those answer 422 to data that fits the schema.
SETTINGS = """
[[operations]]
include-path = [
    "/api/v1/alerts",  # a cursor that the list did not give
    "/api/v1/jobs",
    "/api/v1/silences",  # an end before now
    "/api/v1/jobs/{job}/scores",  # a start after the end
    "/api/v1/jobs/{job}/machines/{machine}/metrics",
    "/api/v1/telemetry",  # nothing usable in it
    "/api/v1/events",  # an id that is no number
]
checks.positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 413, 422, 429]
"""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    clock = HandClock()
    clock.forward(60)
    kind = request.param
    url = f"sqlite:///{tmp_path / 'x.db'}"
    database = Database(
        url if kind == "sqlite" else request.getfixturevalue("postgres_url"), clock=clock
    )
    database.migrate()
    api = Api(
        database,
        auth={"mode": "on"},
        http={"requests_per_second": 100_000, "burst_requests": 100_000},
    )
    worker = make_worker(ListSource(rows(low="m-2")), clock, database=database)
    worker.step(0)
    api.services.history = HistoryStore(database, worker)
    api.services.push = PushSource(limit_rows=10**9)
    api.services.decoder = FormatDecoder(Catalogue.default(), Rules(), {})
    yield api
    database.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_answer_conforms_and_none_is_a_server_error(api: Api, tmp_path: Path) -> None:
    token = api.new_token("write")
    schema = api.get("/api/v1/openapi.json").json()
    # A stream never ends; its stored part does, and conforms alike.
    for parameter in schema["paths"]["/api/v1/events"]["get"]["parameters"]:
        if parameter["name"] == "follow":
            parameter["schema"] = {"type": "boolean", "enum": [False]}
            parameter["required"] = True
    file = tmp_path / "openapi.json"
    file.write_bytes(orjson.dumps(schema))
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    with running(api.app, FakeService(0, [])) as address:
        command = [
            str(Path(sys.executable).parent / "schemathesis"),
            "run",
            str(file),
            "--url",
            address,
            "--checks",
            "all",
            "--max-examples",
            str(EXAMPLES),
            "--header",
            f"Authorization: Bearer {token}",
            "--seed",
            "1",
            "--max-response-time",
            "120",
            "--no-color",
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            timeout=1100,
            env=dict(os.environ) | {"PYTHONWARNINGS": "ignore"},
        )
        api.services.broadcast.close()
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "No issues found" in done.stdout or "passed" in done.stdout
