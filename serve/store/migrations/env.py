"""Alembic's environment: the caller's connection, the caller's transaction."""

from __future__ import annotations

from alembic import context

from serve.store.base import Base

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
