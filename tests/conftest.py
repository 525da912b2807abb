"""Fixtures of every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from serve.config import LogSettings
from serve.logs import configure_logs
from tests.kafka_support import (
    kafka_broker,
    kafka_cluster,
    kafka_name,
    kafka_servers,
    kafka_tidy,
)
from tests.postgres_support import postgres_server, postgres_url

__all__ = [
    "kafka_broker",
    "kafka_cluster",
    "kafka_name",
    "kafka_servers",
    "kafka_tidy",
    "postgres_server",
    "postgres_url",
]


@pytest.fixture(autouse=True, scope="session")
def _quiet_logs() -> Iterator[None]:
    """Plain lines; structlog's default prints tracebacks with every local variable."""
    configure_logs(LogSettings(level="warning", format="json"))
    yield
    structlog.reset_defaults()
