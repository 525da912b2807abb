"""Fixtures of every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from serve.config import LogSettings
from serve.logs import configure_logs
from tests.postgres_support import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]


@pytest.fixture(autouse=True, scope="session")
def _quiet_logs() -> Iterator[None]:
    """Plain lines; structlog's default prints tracebacks with every local variable."""
    configure_logs(LogSettings(level="warning", format="json"))
    yield
    structlog.reset_defaults()
