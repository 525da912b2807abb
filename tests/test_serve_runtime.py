"""The service as a whole: built, started, reloaded, stopped; the real process and its signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from sqlalchemy import select

from serve.build import Sources
from serve.config import Config, ConfigError
from serve.demo import DemoOptions, run_demo
from serve.logs import configure_logs
from serve.runtime import Runtime, build_runtime
from serve.source import SourceHealth
from serve.store.base import Database
from serve.store.tables import WorkerRow
from tests.page_support import Caller
from tests.serve_support import (
    START_NS,
    HandClock,
    ListSource,
    pipeline,
    rows,
)

WEAKLINK = Path(sys.executable).parent / "weaklink"


def _config(tmp_path: Path, **sections: Any) -> Config:
    given: dict[str, Any] = {
        "database": {"url": f"sqlite:///{tmp_path / 'x.db'}"},
        "worker": {"id": "w1", "poll_seconds": 0.01, "history_flush_seconds": 0.1},
        "http": {"trusted_hosts": ["testserver"]},
    }
    for name, values in sections.items():
        given[name] = {**given.get(name, {}), **values}
    return Config.model_validate(given)


def _runtime(tmp_path: Path, source: ListSource | None = None, **sections: Any) -> Runtime:
    clock = HandClock()
    clock.forward(40)
    made = Sources(source or ListSource(rows(low="m-2")))
    return build_runtime(
        _config(tmp_path, **sections), clock=clock, sources=lambda _: made, pipeline=pipeline()
    )


def _until(condition: Any) -> Any:
    """What the condition becomes once it is true; a busy machine may take its time."""
    end = time.monotonic() + 180
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not become true")


def _alerts(runtime: Runtime) -> list[dict[str, Any]]:
    found = Caller(runtime.app).get("/api/v1/alerts").json()["items"]
    return list(found)


def test_a_started_runtime_turns_samples_into_alerts(tmp_path: Path) -> None:
    runtime = _runtime(tmp_path)
    with runtime.running():
        (alert,) = _until(lambda: _alerts(runtime))
        assert Caller(runtime.app).get("/readyz").json()["status"] == "ok"
    assert alert["machine"] == "m-2"


def test_before_its_start_and_after_its_end_a_runtime_is_not_ready(tmp_path: Path) -> None:
    runtime = _runtime(tmp_path)
    assert "does not run" in Caller(runtime.app).get("/readyz").json()["checks"]["detection"]
    with runtime.running():
        _until(lambda: Caller(runtime.app).get("/readyz").status_code == 200)
    assert Caller(runtime.app).get("/readyz").status_code == 503
    assert Caller(runtime.app).get("/healthz").status_code == 200


def test_a_source_far_behind_makes_the_service_not_ready(tmp_path: Path) -> None:
    class Behind(ListSource):
        lag = 500.0

        def health(self) -> SourceHealth:
            return SourceHealth(lag_seconds=self.lag)

    source = Behind()
    runtime = _runtime(tmp_path, source)
    with runtime.running():
        said = _until(lambda: Caller(runtime.app).get("/readyz").json()["checks"]["source"])
        assert said == "500 s behind"
        source.lag = 3.0
        _until(lambda: Caller(runtime.app).get("/readyz").status_code == 200)


def test_alerts_survive_a_restart(tmp_path: Path) -> None:
    first = _runtime(tmp_path)
    with first.running():
        _until(lambda: _alerts(first))
    second = _runtime(tmp_path, ListSource())
    with second.running():
        assert [a["id"] for a in _alerts(second)] == ["llama-m-2"]


def test_a_reload_takes_over_what_can_be_taken(tmp_path: Path) -> None:
    runtime = _runtime(tmp_path)
    new = _config(tmp_path, alerts={"shadow_jobs": ["llama"]}, retention={"events_days": 3})
    assert runtime.reload(lambda: new) == ""
    assert runtime.services.lifecycle.settings.shadow_jobs == ("llama",)
    assert runtime.services.config.retention.events_days == 3


def test_a_reload_leaves_what_needs_a_restart_and_says_so(tmp_path: Path) -> None:
    runtime = _runtime(tmp_path)
    new = _config(tmp_path, http={"port": 9999}, alerts={"settle_seconds": 5})
    assert runtime.reload(lambda: new) == "waits for a restart: http"
    assert runtime.config.http.port == 8080
    assert runtime.config.alerts.settle_seconds == 5


def test_a_bad_reload_keeps_the_last_good_configuration(tmp_path: Path) -> None:
    runtime = _runtime(tmp_path)

    def read() -> Config:
        raise ConfigError("weaklink.toml: http.prot: unknown key")

    before = runtime.config
    assert "http.prot" in runtime.reload(read)
    assert runtime.config is before
    value = runtime.services.metrics.registry.get_sample_value
    assert value("weaklink_config_reloads_total", {"outcome": "refused"}) == 1
    assert value("weaklink_config_last_reload_successful") == 0


def test_a_reload_that_fails_in_an_unforeseen_way_is_told(tmp_path: Path) -> None:
    runtime = _runtime(tmp_path)

    def read() -> Config:
        raise OSError("too many open files")

    assert runtime.reload(read) == "OSError: too many open files"
    value = runtime.services.metrics.registry.get_sample_value
    assert value("weaklink_config_last_reload_successful") == 0


def test_reloads_take_turns(tmp_path: Path) -> None:
    runtime = _runtime(tmp_path)
    at_the_door, reads, goes_on = threading.Semaphore(0), threading.Semaphore(0), threading.Event()

    class Door:
        """The lock, which says who asks for it."""

        lock = threading.Lock()

        def __enter__(self) -> None:
            at_the_door.release()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    def read() -> Config:
        reads.release()
        assert goes_on.wait(30)
        return runtime.config

    runtime.reloading = Door()  # type: ignore[assignment]
    threads = [threading.Thread(target=runtime.reload, args=(read,)) for _ in range(2)]
    for thread in threads:
        thread.start()
        assert at_the_door.acquire(timeout=30)
    assert reads.acquire(timeout=30)
    assert not reads.acquire(blocking=False)
    goes_on.set()
    for thread in threads:
        thread.join(30)
    assert reads.acquire(blocking=False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_makes_the_service_not_ready(tmp_path: Path) -> None:
    def dies() -> None:
        raise SystemExit  # the one way in which a thread ends without a word

    runtime = _runtime(tmp_path)
    runtime.maintenance.refresh = dies
    with runtime.running():
        said = _until(lambda: Caller(runtime.app).get("/readyz").json()["checks"]["threads"])
        assert said == "no longer running: housekeeping"
        assert Caller(runtime.app).get("/readyz").status_code == 503


def test_one_process_of_several_needs_a_shared_database(tmp_path: Path) -> None:
    for role in ("api", "worker"):
        with pytest.raises(ConfigError, match="PostgreSQL"):
            build_runtime(_config(tmp_path), role, clock=HandClock())


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"catalogue_file": "/no/such.toml"}, "catalogue_file"),
        ({"topology_file": "/no/such.json"}, "topology_file"),
        ({"model": "/no/such"}, "detection.model"),
    ],
)
def test_what_detection_needs_is_checked_at_the_start(
    tmp_path: Path, section: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError, match=named) as refused:
        build_runtime(_config(tmp_path, detection=section), clock=HandClock())
    assert "\n" not in str(refused.value)


@pytest.mark.postgres
def test_an_api_shows_what_a_worker_found_and_tells_when_it_dies(
    tmp_path: Path, postgres_url: str
) -> None:
    clock = HandClock()
    clock.forward(40)
    database = {"database": {"url": postgres_url}}
    worker = build_runtime(
        _config(tmp_path, **database),
        "worker",
        clock=clock,
        sources=lambda _: Sources(ListSource(rows(low="m-2"))),
        pipeline=pipeline(),
    )
    api = build_runtime(_config(tmp_path, **database), "api", clock=clock)
    with api.running():
        assert "no worker" in Caller(api.app).get("/readyz").json()["checks"]["detection"]
        with worker.running():
            (alert,) = _until(lambda: _alerts(api))
            assert alert["machine"] == "m-2"
            _until(lambda: Caller(api.app).get("/readyz").status_code == 200)
            assert Caller(worker.app).get("/healthz").status_code == 200
            assert Caller(worker.app).get("/api/v1/alerts").status_code == 404
            clock.forward(1)
            _until(lambda: _scores(api))
        assert "no worker" in Caller(api.app).get("/readyz").json()["checks"]["detection"]


def _scores(runtime: Runtime) -> Any:
    answer = Caller(runtime.app).get("/api/v1/jobs/llama/scores")
    return answer.status_code == 200 and answer.json()["machines"]


def test_a_worker_that_ends_says_so_in_the_database(tmp_path: Path) -> None:
    runtime = _runtime(tmp_path)
    with runtime.running():
        _until(lambda: _alerts(runtime))
    database = Database(f"sqlite:///{tmp_path / 'x.db'}", clock=HandClock())
    with database.read() as session:
        row = session.scalars(select(WorkerRow)).one()
    assert row.body["stopped"] is True
    database.close()


def test_secrets_stay_out_of_the_logs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = _config(tmp_path, database={"url": "postgresql://u:hunter2@127.0.0.1:1/x"})
    configure_logs(config.log)
    with pytest.raises(Exception, match=r"127\.0\.0\.1") as refused:
        build_runtime(config, clock=HandClock())
    said = capsys.readouterr()
    assert "hunter2" not in str(refused.value) + said.err + said.out + repr(config)


class Process:
    """``weaklink serve`` as a user runs it."""

    def __init__(self, tmp_path: Path, text: str):
        self.config = tmp_path / "weaklink.toml"
        self.config.write_text(text)
        self.log = tmp_path / "log"
        self.file = self.log.open("wb")
        self.process = subprocess.Popen(
            [WEAKLINK, "serve", "--config", self.config, "--port", "0"],
            cwd=tmp_path,
            stdout=self.file,
            stderr=self.file,
            env={k: v for k, v in os.environ.items() if not k.startswith("WEAKLINK")},
        )

    def lines(self) -> list[dict[str, Any]]:
        """The log, one object a line."""
        text = self.log.read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Lines of one kind."""
        return [line for line in self.lines() if line["event"] == event]

    @property
    def address(self) -> str:
        """Where it listens, once it does."""

        def known() -> str:
            assert self.process.poll() is None, self.log.read_text()
            found = self.logged("listening")
            return str(found[0]["address"]) if found else ""

        return str(_until(known))


@contextmanager
def _process(tmp_path: Path, text: str = "") -> Iterator[Process]:
    process = Process(tmp_path, text)
    try:
        yield process
    finally:
        process.process.kill()
        process.process.wait()
        process.file.close()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_the_process_serves_takes_pushes_and_ends_on_sigterm_with_streams_open(
    tmp_path: Path,
) -> None:
    with _process(tmp_path) as process:
        url = process.address
        _until(lambda: _answers(f"{url}/readyz"))
        pushed = [{"ts": START_NS // 1_000_000, "job": "j", "machine": "m", "gpu_power_watts": 3}]
        answer = httpx.post(f"{url}/api/v1/telemetry", content=orjson.dumps(pushed), timeout=10)
        assert answer.status_code == 202, answer.text
        with httpx.stream("GET", f"{url}/api/v1/events", timeout=120) as stream:
            lines = stream.iter_lines()
            next(lines)
            process.process.send_signal(signal.SIGTERM)
            for _ in lines:
                pass
        assert process.process.wait(120) == 0
        assert "Traceback" not in process.log.read_text()
    assert (tmp_path / "weaklink.db").exists()


def test_the_process_reloads_on_sighup_and_keeps_the_last_good_file(tmp_path: Path) -> None:
    with _process(tmp_path, "[alerts]\nsettle_seconds = 5\n") as process:
        url = process.address
        _until(lambda: _answers(f"{url}/readyz"))
        process.config.write_text("[alerts]\nsettle_secs = 5\n")
        process.process.send_signal(signal.SIGHUP)
        (line,) = _until(lambda: process.logged("configuration refused; the last good one stays"))
        assert "alerts.settle_secs: unknown key" in line["reason"]
        process.config.write_text("[alerts]\nsettle_seconds = 7\n")
        process.process.send_signal(signal.SIGHUP)
        _until(lambda: process.logged("configuration reloaded"))
        assert _answers(f"{url}/readyz")


def test_a_port_that_is_taken_is_one_line_and_status_2(tmp_path: Path) -> None:
    with _process(tmp_path) as first:
        port = first.address.rsplit(":", 1)[1]
        done = subprocess.run(
            [WEAKLINK, "serve", "--port", port],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line


def test_checking_a_configuration_starts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("[http]\nport = 1\n")
    done = subprocess.run(
        [WEAKLINK, "serve", "--config", path, "--check"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert (done.returncode, done.stdout) == (0, "configuration is good\n")
    assert os.listdir(tmp_path) == ["x.toml"]


@pytest.mark.slow
def test_the_demo_names_the_machine_that_it_broke() -> None:
    said: list[str] = []
    named = run_demo(DemoOptions(duration_seconds=100, port=0), said.append)
    text = "\n".join(said)
    assert named, text
    assert "fault injected: " in text
    assert "/alerts/" in text
