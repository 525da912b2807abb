"""The service's own Prometheus metrics: an own registry, every labelled series from the start.

Names and labels are part of the product; `docs/operations` lists them and tests compare.
"""

from __future__ import annotations

from typing import TypeVar, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from serve.notice import NoticeKind
from serve.paging import REASONS
from serve.store.events import ALERT_EVENTS, OTHER_EVENTS

STAGES = ("poll", "detect", "store", "reject", "publish", "commit")
"""The worker's stages, in order."""

REJECT_REASONS = (
    "bad_assignment",
    "bad_gpu",
    "bad_line",
    "bad_name",
    "bad_point",
    "bad_timestamp",
    "detector_failed",
    "duplicate",
    "duplicate_key",
    "empty",
    "flood",
    "future",
    "late",
    "localhost",
    "no_job",
    "no_machine",
    "no_time",
    "not_a_row",
    "quarantined",
    "too_deep",
    "too_large",
    "too_many_columns",
    "too_many_jobs",
    "too_many_machines",
    "too_many_metrics",
    "too_many_rejects",
    "too_many_rows",
    "undecodable",
    "unknown_format",
    "other",
)
"""Reasons with a series of their own; all further ones count as ``other``."""

Metric = TypeVar("Metric", Counter, Gauge)

LOST_VALUES = (
    "blank",
    "ignored",
    "limit",
    "mig",
    "non_numeric",
    "not_finite",
    "saturated",
    "unknown_name",
    "other",
)
"""Why a single value was left out; all further reasons count as ``other``."""

_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)


class Metrics:
    """All metrics of one process; other parts register theirs on `registry`."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, version: str = "") -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        build = Gauge("weaklink_build_info", "1, with the version.", ["version"], registry=registry)
        build.labels(version=version).set(1)
        self._of_detection(registry)
        self._of_alerts(registry)
        self._of_service(registry)

    def _of_detection(self, registry: CollectorRegistry) -> None:
        """What the worker takes in and how far it is."""
        self.rows = Counter("weaklink_rows_total", "Rows taken in.", registry=registry)
        self.rejected = _labelled(
            Counter(
                "weaklink_rejected_total",
                "Rows and messages that could not be used.",
                ["reason"],
                registry=registry,
            ),
            REJECT_REASONS,
        )
        self.lost_values = _labelled(
            Counter(
                "weaklink_lost_values_total",
                "Single values left out of rows that were taken in.",
                ["reason"],
                registry=registry,
            ),
            LOST_VALUES,
        )
        self.stage_seconds = Histogram(
            "weaklink_stage_seconds",
            "Time of each of the worker's stages.",
            ["stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.stage_failures = Counter(
            "weaklink_stage_failures_total",
            "Failures of each of the worker's stages; each is retried.",
            ["stage"],
            registry=registry,
        )
        for stage in STAGES:
            self.stage_seconds.labels(stage=stage)
            self.stage_failures.labels(stage=stage)
        self.job_failures = Counter(
            "weaklink_job_failures_total",
            "Times that detection of a job failed and began anew.",
            registry=registry,
        )
        self.heartbeat = Gauge(
            "weaklink_heartbeat_timestamp_seconds",
            "When the detection loop last completed a turn: the dead-man's signal.",
            registry=registry,
        )
        self.jobs = Gauge("weaklink_jobs", "Jobs under detection here.", registry=registry)
        self.machines = Gauge(
            "weaklink_machines", "Machines of all jobs under detection here.", registry=registry
        )
        self.lag = Gauge(
            "weaklink_detection_lag_seconds",
            "Wall clock minus watermark of the job furthest behind (ended jobs apart).",
            registry=registry,
        )
        self.source_connected = Gauge(
            "weaklink_source_connected", "1 if the source answers.", registry=registry
        )
        self.source_lag_seconds = Gauge(
            "weaklink_source_lag_seconds",
            "Event time behind the newest input known.",
            registry=registry,
        )
        self.source_lag_messages = Gauge(
            "weaklink_source_lag_messages", "Messages not yet read.", registry=registry
        )

    def _of_alerts(self, registry: CollectorRegistry) -> None:
        """The life of alerts, and what is stored."""
        self.page_decisions = _labelled(
            Counter(
                "weaklink_page_decisions_total",
                "Decisions whether people are told of an alert, by their reason.",
                ["reason"],
                registry=registry,
            ),
            tuple(REASONS),
        )
        self.events = _labelled(
            Counter(
                "weaklink_alert_events_total",
                "Events in the life of alerts.",
                ["kind"],
                registry=registry,
            ),
            (*ALERT_EVENTS, *OTHER_EVENTS),
        )
        self.notices = _labelled(
            Counter(
                "weaklink_notices_total",
                "Notices handed to the outbox.",
                ["kind"],
                registry=registry,
            ),
            get_args(NoticeKind),
        )
        self.alerts = _labelled(
            Gauge("weaklink_alerts", "Stored alerts.", ["status"], registry=registry),
            ("open", "acknowledged", "resolved"),
        )
        self.breaker_open = Gauge(
            "weaklink_breaker_open", "1 while paging is held.", registry=registry
        )
        self.published = Counter(
            "weaklink_published_total", "Alert changes published.", registry=registry
        )
        self.deleted_rows = Counter(
            "weaklink_store_deleted_rows_total",
            "Rows that retention has removed.",
            ["table"],
            registry=registry,
        )
        self.table_rows = Gauge(
            "weaklink_store_rows", "Rows of each table.", ["table"], registry=registry
        )
        self.history_bytes = Gauge(
            "weaklink_history_bytes", "Stored scores and metrics.", registry=registry
        )

    def _of_service(self, registry: CollectorRegistry) -> None:
        """What is answered over HTTP, and the configuration."""
        self.http_requests = Counter(
            "weaklink_http_requests_total",
            "Requests answered.",
            ["method", "route", "status"],
            registry=registry,
        )
        self.http_seconds = Histogram(
            "weaklink_http_request_seconds",
            "Time to answer (event streams apart).",
            buckets=_SECONDS,
            registry=registry,
        )
        self.event_streams = Gauge(
            "weaklink_event_streams", "Open server-sent event streams.", registry=registry
        )
        self.push_queue_rows = Gauge(
            "weaklink_push_queue_rows", "Rows pushed and not yet processed.", registry=registry
        )
        self.reloads = _labelled(
            Counter(
                "weaklink_config_reloads_total",
                "Reloads of the configuration.",
                ["outcome"],
                registry=registry,
            ),
            ("done", "refused"),
        )
        self.reload_good = Gauge(
            "weaklink_config_last_reload_successful",
            "0 while the file on disk could not be used and the last good one stays in force.",
            registry=registry,
        )
        self.reload_good.set(1)

    def count_rejected(self, reason: str, count: int = 1) -> None:
        """Count under the reason, or under ``other``."""
        known = reason if reason in REJECT_REASONS else "other"
        self.rejected.labels(reason=known).inc(count)

    def count_lost(self, reason: str, count: int) -> None:
        """Count values under the reason, or under ``other``."""
        known = reason if reason in LOST_VALUES else "other"
        self.lost_values.labels(reason=known).inc(count)

    def tables(self, names: list[str]) -> None:
        """Make the series of every table."""
        for name in names:
            self.deleted_rows.labels(table=name)
            self.table_rows.labels(table=name)

    def route(self, method: str, route: str) -> None:
        """Make the series of a route."""
        for status in ("2xx", "3xx", "4xx", "5xx"):
            self.http_requests.labels(method=method, route=route, status=status)

    def render(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)


def _labelled(metric: Metric, values: tuple[str, ...]) -> Metric:
    for value in values:
        metric.labels(value)
    return metric
