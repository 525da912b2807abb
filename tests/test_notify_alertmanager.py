"""Debian's Alertmanager for real: alerts arrive, are grouped, silenced, resolved, sent again."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from serve.notify.alertmanager import AlertmanagerReceiver
from serve.notify.dispatcher import Dispatcher
from serve.notify.outbox import NotifyOutbox
from serve.store.base import Database
from tests.notify_support import (
    Misbehaving,
    free_port,
    make_dispatcher,
    make_notice,
    misbehaving,
    only_receiver,
    settings_of,
)
from tests.serve_support import SECOND, HandClock, memory_database

BINARY = "prometheus-alertmanager"
PATIENCE_SECONDS = 60
MISSING = f"{BINARY} IS NOT INSTALLED: Alertmanager is not tested here (apt-get install {BINARY})"


@dataclass
class Alertmanager:
    """A running Alertmanager and the webhook behind it."""

    url: str
    webhook: Misbehaving

    def alerts(self, **query: str) -> list[Any]:
        answer = httpx.get(f"{self.url}/api/v2/alerts", params=query, trust_env=False)
        answer.raise_for_status()
        found: list[Any] = answer.json()
        return found

    def machines(self) -> set[str]:
        return {a["labels"]["machine"] for a in self.alerts()}

    def silence(self, machine: str) -> None:
        now = time.time()
        body = {
            "matchers": [{"name": "machine", "value": machine, "isRegex": False}],
            "startsAt": _rfc3339(now - 1),
            "endsAt": _rfc3339(now + 3600),
            "createdBy": "test",
            "comment": "test",
        }
        answer = httpx.post(f"{self.url}/api/v2/silences", json=body, trust_env=False)
        answer.raise_for_status()

    def groups(self) -> list[set[str]]:
        """The machines of each message that Alertmanager sent on."""
        return [{a["labels"]["machine"] for a in group["alerts"]} for group in self.told()]

    def told(self) -> list[Any]:
        return [orjson.loads(r.body) for r in list(self.webhook.requests)]


def _rfc3339(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def until(reached: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < end, f"waited {PATIENCE_SECONDS} s for {what}"
        time.sleep(0.05)


@contextmanager
def running(folder: Path, port: int, config: Path) -> Iterator[None]:
    binary = shutil.which(BINARY)
    assert binary is not None
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [
                binary,
                f"--config.file={config}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            until(lambda: _ready(port) or process.poll() is not None, "Alertmanager to start")
            assert process.poll() is None, (folder / "log").read_text()
            yield
        finally:
            process.terminate()
            process.wait()


def _ready(port: int) -> bool:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/-/ready", trust_env=False, timeout=2)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200


@dataclass
class Setup:
    """Everything that a test needs."""

    manager: Alertmanager
    database: Database
    clock: HandClock
    dispatcher: Dispatcher
    outbox: NotifyOutbox
    restart: Callable[[], None]

    def tell(self, *notices: Any) -> None:
        with self.database.write() as session:
            self.outbox.enqueue(session, notices)
        outcomes = self.dispatcher.drain()
        assert set(outcomes) == {"delivered"}, outcomes

    def notice(self, kind: Any = "opened", **fields: Any) -> Any:
        at = self.clock()
        alert = {"detected_at_ns": at - SECOND, **fields.pop("alert_fields", {})}
        return make_notice(kind, at_ns=at, alert_fields=alert, **fields)


@pytest.fixture
def am(tmp_path: Path) -> Iterator[Setup]:
    if shutil.which(BINARY) is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    port = free_port()
    with misbehaving() as webhook:
        config = tmp_path / "alertmanager.yml"
        config.write_text(
            "route:\n"
            "  receiver: hook\n"
            "  group_by: [job]\n"
            "  group_wait: 2s\n"
            "  group_interval: 1s\n"
            "  repeat_interval: 1h\n"
            "receivers:\n"
            "  - name: hook\n"
            "    webhook_configs:\n"
            f"      - url: {webhook.url}\n"
        )
        settings = settings_of(
            {"type": "alertmanager", "name": "am", "urls": [f"http://127.0.0.1:{port}"]}
        )
        receiver = only_receiver(settings)
        assert isinstance(receiver, AlertmanagerReceiver)
        clock = HandClock(time.time_ns())
        database = memory_database(clock)
        with ExitStack() as process:

            def restart() -> None:
                process.close()
                process.enter_context(running(tmp_path, port, config))

            restart()
            yield Setup(
                Alertmanager(f"http://127.0.0.1:{port}", webhook),
                database,
                clock,
                make_dispatcher(database, receiver),
                NotifyOutbox(settings),
                restart,
            )


def test_alerts_of_one_job_arrive_as_one_group(am: Setup) -> None:
    am.tell(
        *(am.notice(machine=f"m-{n}") for n in range(3)),
        am.notice(machine="x-1", job="other"),
    )
    assert am.manager.machines() == {"m-0", "m-1", "m-2", "x-1"}
    groups = [{"m-0", "m-1", "m-2"}, {"x-1"}]
    until(lambda: all(g in am.manager.groups() for g in groups), "one message a job")
    assert not any({"m-0", "x-1"} <= group for group in am.manager.groups())
    alert = am.manager.told()[0]["alerts"][0]
    assert alert["annotations"]["summary"].startswith("[PAGE] ")
    assert alert["generatorURL"].startswith("https://weaklink.example/alerts/")


def test_the_end_of_an_incident_is_the_end_of_the_alert(am: Setup) -> None:
    am.tell(am.notice())
    until(lambda: am.manager.told(), "the alert")
    am.tell(am.notice("resolved", sequence=2))
    assert am.manager.alerts() == []
    until(lambda: am.manager.told()[-1]["status"] == "resolved", "the end")


def test_an_acknowledged_incident_goes_on_under_the_same_identity(am: Setup) -> None:
    am.tell(am.notice())
    (before,) = am.manager.alerts()
    am.tell(am.notice("acknowledged", sequence=2))
    (after,) = am.manager.alerts()
    assert after["fingerprint"] == before["fingerprint"]
    assert after["annotations"]["status"] == "acknowledged"


def test_a_silence_in_alertmanager_finds_our_labels(am: Setup) -> None:
    am.manager.silence("m-3")
    am.tell(am.notice(machine="m-3"), am.notice(machine="m-4"))
    until(lambda: am.manager.told(), "the group")
    states = {a["labels"]["machine"]: a["status"]["state"] for a in am.manager.alerts()}
    assert states == {"m-3": "suppressed", "m-4": "active"}
    told = {a["labels"]["machine"] for group in am.manager.told() for a in group["alerts"]}
    assert told == {"m-4"}


def test_a_corrected_machine_replaces_the_wrong_one(am: Setup) -> None:
    first = am.notice(machine="m-3")
    am.tell(first)
    am.tell(am.notice("corrected", sequence=2, machine="m-9", key=first.key))
    assert am.manager.machines() == {"m-9"}


def test_an_open_incident_is_sent_again_and_lasts(am: Setup) -> None:
    am.tell(am.notice())
    (before,) = am.manager.alerts()
    am.clock.forward(59)
    assert am.dispatcher.drain() == []
    am.clock.forward(2)
    assert am.dispatcher.drain() == ["delivered"]
    (after,) = am.manager.alerts()
    assert after["fingerprint"] == before["fingerprint"]
    assert after["startsAt"] == before["startsAt"]
    assert after["endsAt"] > before["endsAt"]


def test_a_restarted_alertmanager_hears_of_what_is_open_and_of_nothing_else(am: Setup) -> None:
    am.tell(am.notice(machine="m-3"), am.notice(machine="m-4"))
    am.tell(am.notice("resolved", machine="m-4", sequence=2))
    am.restart()
    assert am.manager.alerts() == []
    am.clock.forward(61)
    am.dispatcher.drain()
    assert am.manager.machines() == {"m-3"}


def test_every_label_set_is_accepted(am: Setup) -> None:
    am.tell(
        am.notice(machine='m"\n{}=~ é', job="job/with spaces"),
        am.notice(machine=None),
        am.notice("breaker_open", key="breaker:1", alert=None, job="", machines=(), links={}),
        am.notice("storm", key="storm:x", machine="m-5", count=9),
    )
    assert len(am.manager.alerts()) == 4
