"""A whole service in one object: built from the configuration, started, reloaded, stopped.

Roles: ``all`` does everything in one process; ``worker`` detects and delivers (its HTTP port
only answers health and metrics); ``api`` serves API and page and delivers. Worker and API
share a PostgreSQL.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Literal

from fastapi import FastAPI
from sqlalchemy import select

import serve.kafka.tables
import serve.notify.tables
import serve.store.tables  # noqa: F401 - every table must be known to the metrics
from detect.pipeline import Pipeline
from ingest.catalogue import Catalogue
from serve.actions import propose
from serve.app import create_app
from serve.broadcast import Broadcast
from serve.build import Sources, build_catalogue, build_decoder, build_pipeline, build_sources
from serve.config import Config, ConfigError
from serve.lifecycle import Lifecycle
from serve.links import build_links
from serve.logs import configure_logs
from serve.maintenance import Maintenance
from serve.metrics import Metrics
from serve.notify.config import build_receivers
from serve.notify.dispatcher import Dispatcher
from serve.notify.events import NotifyEvents
from serve.notify.outbox import NotifyOutbox, backlog, prune
from serve.observe import Reloaded, describe
from serve.pump import EventPump
from serve.services import Check, Services
from serve.source import PushSource
from serve.store.base import Base, Clock, Database, DatabaseError
from serve.store.history import HistoryStore
from serve.store.retention import sweep
from serve.store.tables import WorkerRow
from serve.worker import Worker, WorkerParts

Role = Literal["all", "api", "worker"]

NEEDS_RESTART = (
    "http",
    "auth",
    "database",
    "source",
    "kafka",
    "detection",
    "worker",
    "telemetry",
    "align",
)
"""Sections that a reload leaves as they are; a change in them waits for a restart."""


@dataclass(slots=True)
class Runtime:
    """Everything of one process. Build with `build_runtime`."""

    config: Config
    role: Role
    database: Database
    services: Services
    dispatcher: Dispatcher
    outbox: NotifyOutbox
    maintenance: Maintenance
    worker: Worker | None
    app: FastAPI
    reloading: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Start detection, deliveries and housekeeping, each in threads of its own."""
        self.dispatcher.start()
        self.maintenance.start()
        if self.worker is not None:
            self.worker.start()

    def stop(self) -> None:
        """Stop in order: no more input, then no more messages, then the database."""
        self.services.broadcast.close()
        if self.worker is not None:
            self.worker.stop()
        self.dispatcher.stop()
        self.maintenance.stop()
        self.database.close()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Started within, stopped after."""
        self.start()
        try:
            yield
        finally:
            self.stop()

    def reload(self, read: Callable[[], Config]) -> str:
        """Take over a new configuration; the last good one stays if it cannot be used.

        Returns what is wrong, or which sections wait for a restart; empty if neither. One at a
        time: two that exchange receivers at once would leave threads that nobody stops.
        """
        with self.reloading:
            try:
                return self._reload(read)
            except Exception as error:  # noqa: BLE001 - in its thread nobody else would tell
                Reloaded(problem=describe(error)).emit(self.services.metrics)
                return describe(error)

    def _reload(self, read: Callable[[], Config]) -> str:
        try:
            new = read()
            receivers = build_receivers(new.notify)
        except (ConfigError, ValueError) as error:
            Reloaded(problem=str(error)).emit(self.services.metrics)
            return str(error)
        waiting = [s for s in NEEDS_RESTART if getattr(new, s) != getattr(self.config, s)]
        kept = {section: getattr(self.config, section) for section in waiting}
        self.config = self.services.config = new.model_copy(update=kept)
        self.services.lifecycle.settings = self.config.alerts
        self.outbox.settings = self.config.notify
        self.dispatcher.reconfigure(receivers)
        configure_logs(self.config.log)
        Reloaded(waiting=tuple(waiting)).emit(self.services.metrics)
        return f"waits for a restart: {', '.join(waiting)}" if waiting else ""


def build_runtime(
    config: Config,
    role: Role = "all",
    *,
    clock: Clock,
    sources: Callable[[Database], Sources] | None = None,
    pipeline: Pipeline | None = None,
    dry: bool = False,
) -> Runtime:
    """Build and check everything, migrate the database (unless ``dry``), start nothing.

    ``sources`` and ``pipeline`` replace the configured ones (demo, tests). Raises `ConfigError`
    or `DatabaseError` with one line.
    """
    database = Database(config.database.url.get_secret_value(), clock=clock)
    if role != "all" and database.is_sqlite:
        raise ConfigError(
            f"database.url: --role {role} needs PostgreSQL, which processes can share"
        )
    catalogue = build_catalogue(config)
    metrics = Metrics(version())
    metrics.tables(sorted(Base.metadata.tables))
    if not dry:
        database.migrate()
    lifecycle = Lifecycle(config.alerts, build_links(config))
    broadcast = Broadcast()
    outbox = NotifyOutbox(config.notify)
    receivers = build_receivers(config.notify)
    dispatcher = Dispatcher(
        database,
        receivers,
        NotifyEvents(metrics.registry, receivers),
        poll_seconds=config.notify.poll_seconds,
    )

    def after_commit() -> None:
        broadcast.notify()
        dispatcher.wake()

    worker: Worker | None = None
    push: PushSource | None = None
    if role != "api":
        made = sources(database) if sources else build_sources(config, catalogue, database)
        push = made.source if isinstance(made.source, PushSource) else None
        if made.collector is not None:
            metrics.registry.register(made.collector)
        worker = Worker(
            WorkerParts(
                source=made.source,
                pipeline=pipeline or build_pipeline(config, catalogue),
                database=database,
                lifecycle=lifecycle,
                outbox=outbox,
                metrics=metrics,
                settings=config.worker,
                rejects=made.rejects,
                pump=EventPump(database, made.publisher) if made.publisher else None,
                after_commit=after_commit,
            )
        )
    services = Services(
        config=config,
        database=database,
        lifecycle=lifecycle,
        outbox=outbox,
        history=HistoryStore(database, worker),
        metrics=metrics,
        broadcast=broadcast,
        version=version(),
        push=push,
        decoder=build_decoder(config, catalogue) if push else None,
        metric_unit=_unit_of(catalogue),
        wake_notifications=dispatcher.wake,
    )
    services.commands = lambda alert: (
        propose(alert.to_json(), services.config.notify.actions).commands
    )

    maintenance = _housekeeping(services, dispatcher, sweeps=role != "worker")
    services.checks = [
        *checks(services, worker),
        Check("threads", lambda: ended(dispatcher, maintenance)),
    ]
    runtime = Runtime(
        config=config,
        role=role,
        database=database,
        services=services,
        dispatcher=dispatcher,
        outbox=outbox,
        maintenance=maintenance,
        worker=worker,
        app=FastAPI(),
    )
    runtime.app = create_app(services, running=runtime.running, with_api=role != "worker")
    return runtime


def _housekeeping(services: Services, dispatcher: Dispatcher, *, sweeps: bool) -> Maintenance:
    """What is done from time to time: old rows removed, gauges brought up to date."""
    database, metrics = services.database, services.metrics

    def swept() -> dict[str, int]:
        return sweep(database, services.config.retention)

    def pruned() -> dict[str, int]:
        days = services.config.retention.outbox_days
        with database.write() as session:
            return {"outbox": prune(session, database.clock() - round(days * 86_400e9))}

    def refresh() -> None:
        if services.push is not None:
            metrics.push_queue_rows.set(services.push.waiting_rows)
        with database.read() as session:
            dispatcher.events.backlog(backlog(session), database.clock())

    return Maintenance(database, metrics, (swept, pruned) if sweeps else (), refresh=refresh)


def checks(services: Services, worker: Worker | None) -> list[Check]:
    """What readiness asks."""
    limits = services.config.worker

    def database() -> str:
        try:
            services.database.ping()
        except DatabaseError:
            return "does not answer"
        return ""

    def detection() -> str:
        if worker is None:
            return _workers(services)
        if not worker.running:
            return "the detection loop does not run"
        quiet = (services.database.clock() - worker.last_turn_ns) / 1e9
        if quiet > limits.heartbeat_limit_seconds:
            return f"no turn for {quiet:.0f} s: {worker.problem or 'busy'}"
        return worker.problem

    def source() -> str:
        assert worker is not None
        health = worker.parts.source.health()
        if not health.connected:
            return health.problem or "not connected"
        if health.lag_seconds is not None and health.lag_seconds > limits.lag_limit_seconds:
            return f"{health.lag_seconds:.0f} s behind"
        return health.problem

    found = [Check("database", database), Check("detection", detection)]
    return found if worker is None else [*found, Check("source", source)]


def ended(dispatcher: Dispatcher, maintenance: Maintenance) -> str:
    """Which threads have ended although nobody stopped them; without them all else would seem
    well."""
    gone = [f"deliveries to {name}" for name in dispatcher.ended]
    if maintenance.ended:
        gone.append("housekeeping")
    return f"no longer running: {', '.join(gone)}" if gone else ""


def _workers(services: Services) -> str:
    """Whether any worker has been heard of lately: the API says so when detection has stopped."""
    limit_ns = services.config.worker.heartbeat_limit_seconds * 1e9
    try:
        with services.database.read() as session:
            rows = list(session.scalars(select(WorkerRow)))
    except Exception:  # noqa: BLE001 - the database's own check says why
        return "unknown"
    now_ns = services.database.clock()
    alive = [r for r in rows if now_ns - r.beat_at_ns < limit_ns and not r.body["stopped"]]
    return "" if alive else "no worker has been heard of lately"


def _unit_of(catalogue: Catalogue) -> Callable[[str], str]:
    return lambda metric: catalogue.metric(metric).unit


def version() -> str:
    """The version of the installed distribution."""
    try:
        return version_of("weaklink")
    except PackageNotFoundError:
        return "0"
