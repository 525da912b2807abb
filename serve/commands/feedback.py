"""``weaklink feedback``, and where ``weaklink train`` takes feedback from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from serve.commands.errors import BadInputError
from serve.commands.options import config_option

if TYPE_CHECKING:
    from replay.feedback import Opinion
    from serve.store.base import Database


@click.command()
@config_option
def feedback(path: Path | None) -> None:
    """Print what people said of alerts, one JSON line each, for 'weaklink train --feedback'."""
    import orjson

    from serve.commands.database import open_database

    for opinion in _stored(open_database(path)):
        click.echo(orjson.dumps(opinion.to_json()).decode())


def opinions_of(source: str) -> list[Opinion]:
    """Opinions of a database (its URL), a service (its TOML file) or a JSONL file.

    Bad input is one line; a URL's password is never in it.
    """
    import time

    from replay.feedback import read_feedback
    from serve.commands.database import open_database
    from serve.store.base import Database

    if "://" not in source:
        path = Path(source)
        return _stored(open_database(path)) if path.suffix == ".toml" else read_feedback(path)
    file = source.removeprefix("sqlite:///") if source.startswith("sqlite:///") else ""
    if file and not Path(file).is_file():
        # It would be made, and be empty.
        raise BadInputError(f"--feedback: {file}: does not exist")
    database = Database(source, clock=time.time_ns)
    database.migrate()
    return _stored(database)


def _stored(database: Database) -> list[Opinion]:
    from serve.opinions import stored_opinions

    with database.read() as session:
        found, lost = stored_opinions(session)
    database.close()
    if lost:
        click.echo(f"feedback: {lost} of no use: their alerts are gone", err=True)
    return found
