"""The whole product on one machine: simulated jobs at real time, a fault, the alert."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy.orm import Session

from detect.pipeline import Pipeline
from ingest.samples import Decoded
from ingest.simulate import FaultSpec, JobSpec, LiveJob, StepSpec
from replay.view.words import alert_headline, evidence_sentence, fault_sentence
from serve.build import Sources
from serve.config import Config
from serve.runtime import Runtime, build_runtime
from serve.server import Server, listen
from serve.source import Polled, SourceHealth
from serve.store.base import Clock
from serve.store.events import events_after

HISTORY_SECONDS = 900.0
"""Simulated before now, so that detection knows the jobs when the demo begins."""

CHUNK_SECONDS = 60.0
INJECT_SECONDS = 30.0
SECOND = 1_000_000_000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line says. ``duration_seconds`` None runs until interrupted."""

    duration_seconds: float | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    machines: int = 24
    fault: str = "ecc_error"
    seed: int = 7


class SimulatedSource:
    """`Source` over simulated jobs that began ``HISTORY_SECONDS`` before now."""

    name = "simulated"

    def __init__(self, options: DemoOptions, clock: Clock, say: Say):
        self.clock = clock
        self.say = say
        self.start_ns = (clock() - round(HISTORY_SECONDS * SECOND)) // SECOND * SECOND
        big = JobSpec(job="llm-70b", machines=options.machines, start_ns=self.start_ns)
        small = JobSpec(job="vision-2b", machines=8, start_ns=self.start_ns, step=StepSpec())
        self.jobs = [LiveJob(big, options.seed), LiveJob(small, options.seed + 1)]
        wait = INJECT_SECONDS
        if options.duration_seconds is not None:
            wait = min(wait, options.duration_seconds / 4)
        self.inject_ns = clock() + round(wait * SECOND)
        self.fault = options.fault
        self.faulty: str | None = None
        self.injected_ns = 0
        self._pause = threading.Event()

    @property
    def behind_seconds(self) -> float:
        """Seconds between what was simulated and now."""
        return (self.clock() - self.start_ns) / SECOND - self.jobs[0].now_s

    def poll(self, timeout_seconds: float) -> Polled:
        """History in large pieces, then second by second as time goes by."""
        if self.behind_seconds < 1.0:
            self._pause.wait(min(timeout_seconds, 1.0 - self.behind_seconds))
        if self.faulty is None and self.clock() >= self.inject_ns and self.behind_seconds < 5:
            self._inject()
        until = min(self.jobs[0].now_s + CHUNK_SECONDS, (self.clock() - self.start_ns) / SECOND)
        tables = [job.step(until) for job in self.jobs]
        return Polled(Decoded(pa.concat_tables(tables, promote_options="default")))

    def _inject(self) -> None:
        job = self.jobs[0]
        index = job.spec.machines * 2 // 3
        job.inject(FaultSpec(self.fault, machines=(index,)))
        self.injected_ns = self.start_ns + round(job.now_s * SECOND)
        self.faulty = job.machines[index]
        self.say(f"{_time(self.injected_ns)}  fault injected: {self.fault} on {self.faulty}")

    def prepare(self, pipeline: Pipeline, polled: Polled) -> None:  # noqa: ARG002
        """While history is simulated the wall clock says nothing about the jobs."""
        pipeline.held = {j.spec.job for j in self.jobs} if self.behind_seconds > 5 else set()

    def save(self, session: Session, pipeline: Pipeline, polled: Polled) -> None:
        """Nothing to remember."""

    def commit(self, position: Any) -> None:
        """Nothing to commit."""

    def health(self) -> SourceHealth:
        """Always there."""
        return SourceHealth(lag_seconds=max(0.0, self.behind_seconds))

    def close(self) -> None:
        """Nothing to close."""


def run_demo(options: DemoOptions, say: Say, clock: Clock = time.time_ns) -> bool:
    """Run until the duration is over or a signal comes; True if the faulty machine was named."""
    with tempfile.TemporaryDirectory(prefix="weaklink-demo-") as folder:
        config = Config.model_validate(
            {
                "http": {"host": options.host, "port": options.port},
                "database": {"url": f"sqlite:///{Path(folder) / 'demo.db'}"},
                "worker": {"id": "demo", "history_flush_seconds": 5},
                "log": {"level": "warning"},
            }
        )
        with contextlib.closing(listen(config)) as listener:
            port = listener.getsockname()[1]
            url = config.public_url if options.port else f"http://{options.host}:{port}"
            config = config.model_copy(
                update={"http": config.http.model_copy(update={"public_url": url})}
            )
            source = SimulatedSource(options, clock, say)
            runtime = build_runtime(config, clock=clock, sources=lambda _: Sources(source))
            say(
                f"Two simulated training jobs: {source.jobs[0].spec.machines} machines "
                f"({source.jobs[0].spec.job}) and {source.jobs[1].spec.machines} "
                f"({source.jobs[1].spec.job})."
            )
            say(f"Page: {url}/   API: {url}/docs   (Ctrl-C ends the demo)")
            server = Server(runtime)
            teller = Teller(runtime, source, say)
            with teller.running(server, options.duration_seconds):
                server.run(sockets=[listener])
            return teller.named


class Teller:
    """Prints what happens, from the event log like any other reader."""

    def __init__(self, runtime: Runtime, source: SimulatedSource, say: Say):
        self.runtime = runtime
        self.source = source
        self.say = say
        self.named = False
        self._stop = threading.Event()
        self._seen = 0

    @contextlib.contextmanager
    def running(self, server: Server, duration_seconds: float | None) -> Iterator[None]:
        """Tell in a thread; end the server when the time is over."""
        thread = threading.Thread(target=self._run, args=(server, duration_seconds))
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self, server: Server, duration_seconds: float | None) -> None:
        clock = self.source.clock
        end_ns = None if duration_seconds is None else clock() + round(duration_seconds * SECOND)
        while not self._stop.wait(0.2):
            try:
                self.tell()
            except Exception as error:  # noqa: BLE001 - the next look may succeed; the end must come
                self.say(f"cannot read the events: {error}".splitlines()[0])
            if end_ns is not None and clock() >= end_ns:
                self.runtime.services.broadcast.close()
                server.should_exit = True
                return

    def tell(self) -> None:
        """Print the events since the last call."""
        with self.runtime.database.read() as session:
            events = events_after(session, self._seen)
        for event in events:
            self._seen = event.id
            if event.kind in {"alert.opened", "alert.corrected", "alert.reopened"}:
                self._alert(event.kind, event.body)
            elif event.kind == "alert.resolved":
                self.say(
                    f"{event.body['changed_at'][11:19]}  resolved: {alert_headline(event.body)}"
                )

    def _alert(self, kind: str, alert: dict[str, Any]) -> None:
        word = {"alert.opened": "ALERT", "alert.corrected": "CORRECTED"}.get(kind, "AGAIN")
        if not alert["pages"]:
            word = word.lower() + " (shown, not paged)"
        lines = [
            f"{alert['changed_at'][11:19]}  {word}: {alert_headline(alert)}, job {alert['job']}"
        ]
        lines += [f"          {evidence_sentence(item)}" for item in alert["evidence"][:4]]
        if alert["fault_types"]:
            lines.append(f"          {fault_sentence(alert)}")
        if alert["recommended_action"]:
            lines.append(f"          {alert['recommended_action']}")
        lines.append(f"          {alert['links']['page']}")
        faulty = self.source.faulty
        if faulty is not None and faulty in alert["machines"] and alert["pages"]:
            seconds = (self.source.clock() - self.source.injected_ns) / SECOND
            lines.append(
                f"          {faulty} is the injected one; {seconds:.0f} s after its onset."
            )
            self.named = True
        self.say("\n".join(lines))


def _time(ns: int) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(ns // SECOND))
