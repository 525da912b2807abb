"""What a worker tells of its jobs: one that the database refuses never stops the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from detect.detector import ScoreFrame
from detect.pipeline import JobState
from serve.board import Board
from serve.source import SourceHealth
from serve.store.base import Database
from serve.store.tables import HistoryRow, JobRow
from tests.serve_support import SECOND, START_NS, HandClock

KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
JOBS = ("a", "half a pair \ud800", "b", "zero \0", "c")
GOOD = {"a", "b", "c"}


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    url = f"sqlite:///{tmp_path / 'test.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    database = Database(url, clock=HandClock())
    database.migrate()
    yield database
    database.close()


def _pipeline() -> Any:
    states = [
        JobState(job, 1, ("m",), "steady", "running", SECOND, START_NS, 10, {}) for job in JOBS
    ]
    return SimpleNamespace(jobs=lambda: states, history=lambda _job: None)


def test_a_job_that_cannot_be_stored_does_not_stop_the_others(database: Database) -> None:
    board = Board("w", START_NS)
    with database.write() as session:
        board.beat(session, _pipeline(), SourceHealth(), now_ns=START_NS)
    with database.read() as session:
        stored = set(session.scalars(select(JobRow.job)))
    # Only PostgreSQL refuses a zero character.
    assert stored == (GOOD | {"zero \0"} if database.is_sqlite else GOOD)


def test_scores_that_cannot_be_stored_do_not_stop_the_others(database: Database) -> None:
    frame = ScoreFrame(START_NS, SECOND, ("a", "b"), np.zeros((2, 10), np.float32), "steady")
    with database.write() as session:
        Board("w", START_NS).flush(
            session, _pipeline(), [(job, frame) for job in JOBS], now_ns=START_NS
        )
    with database.read() as session:
        assert set(session.scalars(select(HistoryRow.job))) >= GOOD
