"""The database: SQLite in a file by default, PostgreSQL by its URL.

Every table of the service hangs on `Base`. Times are nanoseconds since the epoch in
``BIGINT`` columns, JSON is text through `Json`, so both databases store the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from sqlalchemy import (
    BigInteger,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    create_engine,
    event,
    text,
)
from sqlalchemy.engine import Dialect, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Session, sessionmaker
from sqlalchemy.pool import StaticPool
from sqlalchemy.types import TypeDecorator

Clock = Callable[[], int]
"""Wall-clock time in nanoseconds since the epoch; `time.time_ns` at the edge."""

BigId = BigInteger().with_variant(Integer, "sqlite")
"""A 64-bit key that the database counts up by itself (SQLite only counts INTEGER keys)."""

_BEGIN = "weaklink_begin"


class Json(TypeDecorator[Any]):
    """Any JSON value as text; NaN and infinity become null."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        """To the database."""
        return None if value is None else orjson.dumps(value).decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002
        """From the database."""
        return None if value is None else orjson.loads(value)


class Base(DeclarativeBase):
    """The one declarative base of the service (life cycle, notifications, checkpoints)."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {int: BigInteger, str: Text, bytes: LargeBinary}  # noqa: RUF012


class DatabaseError(Exception):
    """The database cannot be used as configured; the message is one line for a person."""


class Database:
    """Engine, sessions, schema and clock. Thread-safe; one per process.

    ``url`` is an SQLAlchemy URL: ``sqlite:///FILE``, ``sqlite://`` (memory, for tests) or
    ``postgresql+psycopg://…`` (``postgresql://`` and ``postgres://`` mean the same here).
    Nothing is opened before the first use.
    """

    def __init__(self, url: str, *, clock: Clock):
        self.clock = clock
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise DatabaseError("database url cannot be read as an SQLAlchemy URL") from None
        if parsed.drivername in {"postgresql", "postgres"}:
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
            raise DatabaseError(f"database url: {parsed.drivername!r} is not sqlite or postgresql")
        self.url = parsed
        options: dict[str, Any] = {}
        if self.is_sqlite and parsed.database in {None, "", ":memory:"}:
            options = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
        elif not self.is_sqlite:
            options = {"pool_pre_ping": True, "pool_size": 10, "max_overflow": 10}
        try:
            self.engine: Engine = create_engine(parsed, **options)
        except NoSuchModuleError:
            raise DatabaseError(f"database url: unknown driver {parsed.drivername!r}") from None
        except ImportError as error:
            raise DatabaseError(f"{error.name} is missing; install weaklink[postgresql]") from None
        if self.is_sqlite:
            event.listen(self.engine, "connect", _sqlite_connect)
            event.listen(self.engine, "begin", _sqlite_begin)
        writer = self.engine.execution_options(**{_BEGIN: "IMMEDIATE"})
        self._read = sessionmaker(self.engine, expire_on_commit=False)
        self._write = sessionmaker(writer, expire_on_commit=False)

    @property
    def is_sqlite(self) -> bool:
        """Whether SQLite serves (one process), else PostgreSQL (any number)."""
        return self.url.get_backend_name() == "sqlite"

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction that may write: committed at the end, rolled back on any error."""
        with self._write() as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One transaction that only reads (never waits for a writer)."""
        with self._read() as session, session.begin():
            yield session

    def ping(self) -> None:
        """Raise `DatabaseError` if the database does not answer."""
        try:
            with self.engine.connect() as connection:
                connection.execute(text("SELECT 1"))
        except SQLAlchemyError as error:
            raise DatabaseError(_one_line(error, self)) from None

    def migrate(self) -> None:
        """Bring the schema up to this version; safe from several processes at once."""
        from serve.store.migrate import upgrade

        try:
            upgrade(self.engine)
        except SQLAlchemyError as error:
            raise DatabaseError(_one_line(error, self)) from None

    def close(self) -> None:
        """Give every connection back."""
        self.engine.dispose()


def lock_writers(session: Session, key: int) -> None:
    """Let one transaction at a time past this point, until it ends.

    On PostgreSQL an advisory lock; on SQLite `Database.write` holds the only write lock
    already. Needed where rows must become visible in the order of their ids.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def _one_line(error: SQLAlchemyError, database: Database) -> str:
    cause = str(getattr(error, "orig", None) or error).strip().splitlines()
    return f"database {database.url.render_as_string(hide_password=True)}: {cause[0]}"


def _sqlite_connect(connection: Any, record: object) -> None:  # noqa: ARG001
    connection.isolation_level = None  # transactions are begun by `_sqlite_begin` alone
    cursor = connection.cursor()
    # WAL: readers and the one writer do not wait for each other. FULL: a commit that was
    # acknowledged to the source survives a power cut.
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "busy_timeout=10000",
        "foreign_keys=ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _sqlite_begin(connection: Connection) -> None:
    # A transaction that begins as a reader cannot always become a writer; say so at once.
    kind = connection.get_execution_options().get(_BEGIN, "")
    connection.exec_driver_sql(f"BEGIN {kind}".rstrip())
