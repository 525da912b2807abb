"""The migrated database has the outbox's tables as the code knows them."""

from __future__ import annotations

from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from serve.notify import tables
from serve.store.base import Base, Database
from tests.serve_support import HandClock, memory_database

TABLES = {
    row.__tablename__
    for row in (tables.OutboxRow, tables.OutboxAttemptRow, tables.LaneRow, tables.ReceiverRow)
}


def of_the_outbox(entry: Any) -> bool:
    text = repr(entry)
    return any(f"'{name}'" in text or f"Table('{name}'" in text for name in TABLES)


def differences(database: Database) -> list[Any]:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return [d for d in compare_metadata(context, Base.metadata) if of_the_outbox(d)]


def test_a_migrated_database_has_every_table_column_and_index() -> None:
    assert differences(memory_database()) == []


def test_what_is_missing_would_be_seen() -> None:
    found = differences(Database("sqlite://", clock=HandClock()))
    assert {d[1].name for d in found if d[0] == "add_table"} == TABLES
