"""A real PostgreSQL for the tests: Debian's, started on loopback, or one that is named.

``WEAKLINK_TEST_POSTGRES`` names a server to use instead (an SQLAlchemy URL of a role that may
create databases). Where neither is possible the tests are skipped with the reason in one line;
with ``CI=true`` they fail.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
from sqlalchemy.engine import URL, make_url

BINARIES = Path("/usr/lib/postgresql/15/bin")


def _cannot(reason: str) -> NoReturn:
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"no PostgreSQL: {reason}")
    pytest.skip(f"no PostgreSQL: {reason}")


def _account() -> str | None:
    """The server refuses root: the account to run it under, None for our own."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            pwd.getpwnam(name)
            return name
    _cannot("it refuses to run as root and there is no other account")


@contextlib.contextmanager
def running_server() -> Iterator[URL]:
    """A server on a free loopback port, gone at the end whatever happens."""
    if not (BINARIES / "initdb").exists():
        _cannot(f"{BINARIES} is not installed (apt-get install postgresql-15)")
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="weaklink-postgres-"))
    data = folder / "data"
    try:
        if account is not None:
            shutil.chown(folder, account)
        initdb = [
            str(BINARIES / "initdb"),
            "-D",
            str(data),
            "-U",
            "weaklink",
            "-A",
            "trust",
            "--no-sync",
        ]
        made = subprocess.run(
            [*initdb, "--encoding=UTF8", "--locale=C"],
            user=account,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        )
        if made.returncode:
            _cannot(f"initdb: {made.stderr.strip().splitlines()[-1]}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = ["-p", str(port), "-h", "127.0.0.1", "-k", str(folder), "-F"]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [BINARIES / "postgres", "-D", data, *options],
                user=account,
                stdout=log,
                stderr=log,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            )
        try:
            url = URL.create("postgresql+psycopg", "weaklink", None, "127.0.0.1", port, "postgres")
            _wait(url, server, folder / "log")
            yield url
        finally:
            server.terminate()  # fast shutdown would be SIGINT; connections are closed by now
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(url: URL, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        if server.poll() is not None:
            _cannot(f"it ended at once: {log.read_text(errors='replace').splitlines()[-1:]}")
        try:
            psycopg.connect(_conninfo(url), connect_timeout=2).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    _cannot("it did not answer within 30 s")


def _conninfo(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[URL]:
    """The server's URL, of a database from which others can be created."""
    named = os.environ.get("WEAKLINK_TEST_POSTGRES")
    if named:
        yield make_url(named)
        return
    with running_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: URL) -> Iterator[str]:
    """The SQLAlchemy URL of a fresh, empty database, dropped at the end."""
    name = f"weaklink_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(_conninfo(postgres_server), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield postgres_server.set(database=name).render_as_string(hide_password=False)
    finally:
        with psycopg.connect(_conninfo(postgres_server), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
