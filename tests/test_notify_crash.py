"""An outage of the receiver and the death of the service: every notification arrives."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from sqlalchemy import func, select
from standardwebhooks import Webhook

from serve.notice import NoticeKind
from serve.notify.outbox import NotifyOutbox
from serve.notify.tables import OutboxAttemptRow, OutboxRow
from serve.store.base import Database
from tests.notify_support import (
    SIGNING_SECRET,
    answers,
    closes,
    hangs,
    late,
    make_notice,
    misbehaving,
    webhook_settings,
)

ROOT = Path(__file__).parent.parent
LIFE: tuple[NoticeKind, ...] = ("opened", "acknowledged", "resolved")
PATIENCE_SECONDS = 140


@contextmanager
def dispatcher(database: Database, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real process that delivers; killed with SIGKILL at the end."""
    command = [sys.executable, "-m", "tests.notify_process", str(database.url), url]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def pending(database: Database) -> int:
    with database.read() as session:
        query = select(func.count()).select_from(OutboxRow).where(OutboxRow.state == "pending")
        return session.scalar(query) or 0


def wait_for(what: str, reached: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < until, f"waited {PATIENCE_SECONDS} s for {what}"
        assert process.poll() is None, f"the process ended before {what}"
        time.sleep(0.02)


@pytest.mark.slow
def test_after_outage_and_kill_every_notification_arrives_once_per_key(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'weaklink.db'}", clock=time.time_ns)
    database.migrate()
    outbox = NotifyOutbox(webhook_settings("http://127.0.0.1:9/"))
    machines = [f"m-{n}" for n in range(8)]
    expected = [f"llama-{m}:{s}" for s in (1, 2, 3) for m in machines]
    with database.write() as session:
        for sequence, kind in enumerate(LIFE, 1):
            for machine in machines:
                notice = make_notice(kind, machine=machine, sequence=sequence, at_ns=time.time_ns())
                outbox.enqueue(session, [notice])

    with misbehaving() as server:
        port = int(server.url.split(":")[2].split("/")[0])
        # The receiver takes a few, then it is killed in the middle of an answer.
        server.script = [answers(200)] * 5 + [late(30)]
        with dispatcher(database, server.url) as process:
            wait_for("the sixth request", lambda: len(server.requests) >= 6, process)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        before = list(server.requests)
    # Now nobody listens at all.
    with dispatcher(database, server.url) as process:
        wait_for("attempts during the outage", lambda: failures(database) >= 2, process)
    # Back again, but in a bad way; and killed once more while it hangs.
    script = [closes, answers(500), answers(429, Retry_After="1"), answers(502), hangs]
    with misbehaving(*script, port=port) as server:
        with dispatcher(database, server.url) as process:
            wait_for("the hanging request", lambda: len(server.requests) >= 5, process)
        with dispatcher(database, server.url) as process:
            wait_for("an empty outbox", lambda: pending(database) == 0, process)
        after = list(server.requests)

    requests = before + after
    # A receiver acts on the first request of a key; what it refused or never answered comes
    # again under the same key.
    taken = list(dict.fromkeys(r.headers["webhook-id"] for r in requests))
    assert sorted(taken) == sorted(expected)
    by_key: dict[str, set[bytes]] = {}
    for request in requests:
        by_key.setdefault(request.headers["webhook-id"], set()).add(request.body)
        Webhook(SIGNING_SECRET).verify(request.body, request.headers)
    assert all(len(bodies) == 1 for bodies in by_key.values())
    for machine in machines:
        mine = [k for k in taken if k.startswith(f"llama-{machine}:")]
        assert mine == [f"llama-{machine}:{s}" for s in (1, 2, 3)]
        kinds = [orjson.loads(next(iter(by_key[key])))["type"] for key in mine]
        assert kinds == ["alert.opened", "alert.acknowledged", "alert.resolved"]
    with database.read() as session:
        assert set(session.scalars(select(OutboxRow.state))) == {"sent"}
    database.close()


def failures(database: Database) -> int:
    with database.read() as session:
        query = select(func.count()).select_from(OutboxAttemptRow)
        return session.scalar(query.where(OutboxAttemptRow.outcome == "retry")) or 0
