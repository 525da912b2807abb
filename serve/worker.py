"""The worker: source → detection → store → publish → commit, for ever, in one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.orm import Session

from detect.alert import AlertChange
from detect.detector import ScoreFrame
from detect.history import History
from detect.pipeline import Pipeline, PipelineOutput
from ingest.samples import Decoded, empty_samples
from replay.view.grid import ScoreGrid
from serve.board import Board
from serve.config import WorkerSettings
from serve.guard import JobGuard
from serve.lifecycle import Applied, Lifecycle
from serve.metrics import Metrics
from serve.observe import JobFailed, LifeApplied, RowsRejected, RowsTaken, StageFailed
from serve.seams import Outbox, Pump, RejectSink
from serve.source import Polled, Source, StepLostError
from serve.store.base import Database
from serve.store.blobs import MetricBlock
from serve.store.history import metric_block, score_grid

T = TypeVar("T")

PASS_TIME_SECONDS = 1.0
FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 30.0
MOST_HISTORY_BYTES = 4 << 20
"""Ticks and scores that wait to be stored; more of them are stored at once."""
MOST_FRAMES = 20_000
"""Score frames kept while the database does not answer."""


class StopRequested(Exception):  # noqa: N818 - not a bug of this service: a person wants it to stop
    """The worker stops in the middle of a retry; nothing was committed."""


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """Everything that a worker works with."""

    source: Source
    pipeline: Pipeline
    database: Database
    lifecycle: Lifecycle
    outbox: Outbox
    metrics: Metrics
    settings: WorkerSettings
    rejects: RejectSink | None = None
    pump: Pump | None = None
    after_commit: Callable[[], None] = lambda: None
    """Called when something was stored (wakes event streams of this process)."""


class Worker:
    """Runs one source through one pipeline.

    `step` is one turn and holds the stages in order. `run` turns until `stop`; every failure
    is logged, counted and retried with back-off. The pipeline belongs to the worker's
    thread; others reach it through `live_scores` and `live_metric`.
    """

    def __init__(self, parts: WorkerParts):
        self.parts = parts
        self.guard = JobGuard(parts.pipeline)
        self.board = Board(parts.settings.name, parts.database.clock())
        self.lock = threading.Lock()
        self.last_turn_ns = parts.database.clock()
        self.problem = ""
        self._stop = threading.Event()
        self.wait: Callable[[float], bool] = self._stop.wait
        """Waits between two tries; True if the worker is to stop."""
        self._thread: threading.Thread | None = None
        self._frames: list[tuple[str, ScoreFrame]] = []
        self._due: dict[str, int] = {}
        self._publish_not_before_ns = 0

    # One turn.

    def step(self, timeout_seconds: float | None = None) -> None:
        """Poll, detect, keep rejects, store, publish, commit: in this order, always.

        Rejects first: once stored, a source does not bring the same input again. Raises
        `StepLostError` if what was polled belongs to another worker by now.
        """
        wait = self.parts.settings.poll_seconds if timeout_seconds is None else timeout_seconds
        polled = self._poll(wait)
        self._until_done("detect", lambda: self._prepare(polled))
        output = self._timed("detect", lambda: self._detect(polled))
        self._until_done("reject", lambda: self._keep_rejects(output))
        self._until_done("store", lambda: self._store(polled, output))
        self._publish()
        self._commit(polled)
        self._beat()

    def _poll(self, wait: float) -> Polled:
        try:
            return self._timed("poll", lambda: self.parts.source.poll(wait))
        except Exception as error:  # noqa: BLE001 - a source that fails is asked again
            self._failed("poll", error, FIRST_RETRY_SECONDS)
            self.wait(FIRST_RETRY_SECONDS)
            return Polled(Decoded(empty_samples()))

    def _prepare(self, polled: Polled) -> None:
        with self.lock:
            self.parts.source.prepare(self.parts.pipeline, polled)

    def _detect(self, polled: Polled) -> PipelineOutput:
        now_ns = self.parts.database.clock()
        with self.lock:
            output = self.guard.feed(polled.decoded.samples, now_ns)
            output.extend(self.guard.advance(now_ns))
            self._frames += self.parts.pipeline.take_frames()
        del self._frames[:-MOST_FRAMES]
        output.rejected[:0] = polled.decoded.rejected
        taken = polled.decoded
        RowsTaken(taken.samples.num_rows, taken.counts).emit(self.parts.metrics)
        for failure in self.guard.take_failures():
            failure.emit(self.parts.metrics)
        return output

    def _store(self, polled: Polled, output: PipelineOutput) -> None:
        try:
            applied = self._store_once(polled, [output.changes], isolate=False)
        except (OperationalError, InterfaceError):
            raise  # the database is away: nothing is wrong with what is to be stored
        except StepLostError:
            raise
        except Exception as error:  # noqa: BLE001 - one job's data must not stop all others
            self._failed("store", error, 0.0)
            by_job: dict[str, list[AlertChange]] = {}
            for change in output.changes:
                by_job.setdefault(change.alert.job, []).append(change)
            applied = self._store_once(polled, list(by_job.values()), isolate=True)
        for step in applied:
            LifeApplied(step).emit(self.parts.metrics)
        if any(step.events or step.notices for step in applied):
            self.parts.after_commit()

    def _store_once(
        self, polled: Polled, groups: list[list[AlertChange]], *, isolate: bool
    ) -> list[Applied]:
        """Everything of this turn in one transaction; with ``isolate`` a group of changes
        that cannot be stored is reported and left out."""
        parts = self.parts
        now_ns = parts.database.clock()
        applied: list[Applied] = []
        passing = self._is_due("time", PASS_TIME_SECONDS, now_ns)
        with parts.database.write() as session:
            for changes in groups:
                applied += self._apply(session, changes, now_ns, isolate=isolate)
            if passing:
                marks = {s.job: s.watermark_ns for s in parts.pipeline.jobs()}
                applied.append(parts.lifecycle.pass_time(session, now_ns=now_ns, watermarks=marks))
                parts.outbox.enqueue(session, applied[-1].notices)
            parts.source.save(session, parts.pipeline, polled)
        if passing:
            self._done("time", now_ns)
        return applied

    def _apply(
        self, session: Session, changes: list[AlertChange], now_ns: int, *, isolate: bool
    ) -> list[Applied]:
        if not changes:
            return []
        try:
            with session.begin_nested():
                applied = self.parts.lifecycle.apply(session, changes, now_ns=now_ns)
                self.parts.outbox.enqueue(session, applied.notices)
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            if not isolate:
                raise
            JobFailed(changes[0].alert.job, error, 0.0).emit(self.parts.metrics)
            return []
        return [applied]

    def _keep_rejects(self, output: PipelineOutput) -> None:
        if not output.rejected:
            return
        if self.parts.rejects is not None:
            self.parts.rejects.write(output.rejected)
        RowsRejected(output.rejected).emit(self.parts.metrics)

    def _publish(self) -> None:
        """Whatever the event log holds; if that fails it stays there for the next turn."""
        now_ns = self.parts.database.clock()
        if self.parts.pump is None or now_ns < self._publish_not_before_ns:
            return
        try:
            pump = self.parts.pump
            self.parts.metrics.published.inc(self._timed("publish", pump.run))
        except Exception as error:  # noqa: BLE001 - stored; tried again
            self._publish_not_before_ns = now_ns + round(5e9)
            self._failed("publish", error, 5.0)

    def _commit(self, polled: Polled) -> None:
        try:
            self._timed("commit", lambda: self.parts.source.commit(polled.position))
        except Exception as error:  # noqa: BLE001 - stored already; at worst it is seen again
            self._failed("commit", error, 0.0)

    def _beat(self) -> None:
        """The sign of life; history and jobs for the other processes when due."""
        parts = self.parts
        now_ns = self.last_turn_ns = parts.database.clock()
        parts.metrics.heartbeat.set(now_ns / 1e9)
        settings = parts.settings
        # A worker that catches up brings hours within one interval.
        full = parts.pipeline.history_bytes > MOST_HISTORY_BYTES
        if full or self._is_due("history", settings.history_flush_seconds, now_ns):
            self._until_done("store", lambda: self._flush(now_ns))
            self._done("history", now_ns)
        if self._is_due("beat", settings.heartbeat_seconds, now_ns):
            self._until_done("store", lambda: self._write_beat(now_ns))
            self._done("beat", now_ns)

    def _flush(self, now_ns: int) -> None:
        # The pipeline belongs to this thread: reading it here needs no lock.
        with self.parts.database.write() as session:
            marks = self.board.flush(session, self.parts.pipeline, self._frames, now_ns=now_ns)
        self.board.flushed(marks)
        self._frames.clear()
        # What is stored is read from there: memory need not fill up to its bound for hours.
        with self.lock:
            for job, stored_ns in marks.items():
                if (history := self.parts.pipeline.history(job)) is not None:
                    history.forget(stored_ns)

    def _write_beat(self, now_ns: int, *, stopped: bool = False) -> None:
        parts, metrics = self.parts, self.parts.metrics
        health = parts.source.health()
        with parts.database.write() as session:
            self.board.beat(session, parts.pipeline, health, now_ns=now_ns, stopped=stopped)
        states = parts.pipeline.jobs()
        metrics.jobs.set(len(states))
        metrics.machines.set(sum(len(s.machines) for s in states))
        lags = [now_ns - s.watermark_ns for s in states if s.watermark_ns and s.state == "running"]
        metrics.lag.set(max(lags, default=0) / 1e9)
        metrics.source_connected.set(health.connected)
        metrics.source_lag_seconds.set(health.lag_seconds or 0)
        metrics.source_lag_messages.set(health.lag_messages or 0)

    # Retry, time, failures.

    def _until_done(self, stage: str, work: Callable[[], None]) -> None:
        """Try until it is done or the worker is to stop; nothing after it happens before."""
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                self._timed(stage, work)
                self.problem = ""
                return
            except StepLostError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                self._failed(stage, error, pause)
                self.problem = f"{stage}: {error}".splitlines()[0]
                if self.wait(pause):
                    raise StopRequested from None
                pause = min(2 * pause, LONGEST_RETRY_SECONDS)

    def _timed(self, stage: str, work: Callable[[], T]) -> T:
        with self.parts.metrics.stage_seconds.labels(stage=stage).time():
            return work()

    def _failed(self, stage: str, error: Exception, pause: float) -> None:
        StageFailed(stage, error, pause).emit(self.parts.metrics)

    def _is_due(self, what: str, every_seconds: float, now_ns: int) -> bool:
        return now_ns - self._due.get(what, 0) >= every_seconds * 1e9

    def _done(self, what: str, now_ns: int) -> None:
        self._due[what] = now_ns

    # The thread.

    def start(self) -> None:
        """Turn in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="worker", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Turn until `stop`, then store what is left and close the source."""
        while not self._stop.is_set():
            try:
                self.step()
            except StopRequested:
                break
            except StepLostError as error:
                self._failed("store", error, 0.0)  # the next poll goes back to what is stored
            except Exception as error:  # noqa: BLE001 - the loop never dies
                self._failed("detect", error, FIRST_RETRY_SECONDS)
                self.wait(FIRST_RETRY_SECONDS)
        try:
            now_ns = self.parts.database.clock()
            self._flush(now_ns)
            self._write_beat(now_ns, stopped=True)
        except Exception as error:  # noqa: BLE001 - stopping must come to its end
            self._failed("store", error, 0.0)
        self.parts.source.close()

    def stop(self, timeout_seconds: float = 30.0) -> bool:
        """Finish the turn and end; False if it did not within the time."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
            return not self._thread.is_alive()
        return True

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.is_set()

    @property
    def running(self) -> bool:
        """Whether the thread lives."""
        return self._thread is not None and self._thread.is_alive()

    # For the API, from its threads (`serve.store.history.LiveHistory`).

    def live_scores(self, job: str, start_ns: int, end_ns: int) -> ScoreGrid | None:
        """Scores that are not stored yet."""
        with self.lock:
            history, tick_ns = self._history(job)
            if history is None:
                return None
            part = history.scores(start_ns, end_ns)
        return score_grid(job, part, tick_ns)

    def live_metric(self, job: str, metric: str, start_ns: int, end_ns: int) -> MetricBlock | None:
        """Values of a metric that are not stored yet."""
        with self.lock:
            history, tick_ns = self._history(job)
            if history is None:
                return None
            part = history.metrics(start_ns, end_ns, (metric,))
        return metric_block(part, tick_ns)

    def _history(self, job: str) -> tuple[History | None, int]:
        for state in self.parts.pipeline.jobs():
            if state.job == job and state.tick_ns:
                return self.parts.pipeline.history(job), state.tick_ns
        return None, 0
