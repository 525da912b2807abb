"""Run the shipped Alembic migrations against an engine."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, text

_LOCK_KEY = 0x7765616B  # "weak"


def upgrade(engine: Engine) -> None:
    """Apply every pending migration in one transaction, one process at a time."""
    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    # Takes the write lock on SQLite before it looks at the version.
    locked = engine.execution_options(weaklink_begin="IMMEDIATE")
    with locked.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:k)"), {"k": _LOCK_KEY})
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
