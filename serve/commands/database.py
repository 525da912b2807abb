"""The service's database, for commands."""

from __future__ import annotations

import time
from pathlib import Path

from serve.config import load_config
from serve.store.base import Database


def open_database(path: Path | None) -> Database:
    """The configured database, migrated; errors are one line each."""
    config = load_config(path)
    database = Database(config.database.url.get_secret_value(), clock=time.time_ns)
    database.migrate()
    return database
