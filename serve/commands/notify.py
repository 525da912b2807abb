"""``weaklink notify``."""

from __future__ import annotations

from pathlib import Path

import click

from serve.commands.errors import BadInputError, GateError
from serve.commands.options import config_option


@click.group()
def notify() -> None:
    """Try receivers; look after messages that were not delivered."""


@notify.command()
@click.argument("receiver")
@config_option
def test(receiver: str, path: Path | None) -> None:
    """Send a test alert to RECEIVER through the very code of real ones, and end it.

    Exit status 1 if the receiver did not take it.
    """
    import time

    from serve.config import load_config
    from serve.notify.check import UnknownReceiverError, notify_test
    from serve.notify.result import Delivered

    config = load_config(path)
    try:
        result = notify_test(
            config.notify, receiver, clock=time.time_ns, base_url=config.public_url
        )
    except UnknownReceiverError as error:
        raise BadInputError(str(error)) from None
    if not isinstance(result, Delivered):
        raise GateError(f"{receiver}: not delivered: {result.reason}")
    click.echo(f"{receiver}: delivered{f': {result.detail}' if result.detail else ''}")


@notify.command()
@config_option
def dead(path: Path | None) -> None:
    """List messages that were given up, newest first."""
    from detect.alert import rfc3339
    from serve.commands.database import open_database
    from serve.commands.tables import print_rows
    from serve.notify.outbox import dead as given_up

    database = open_database(path)
    with database.read() as session:
        rows = [
            (str(r.id), rfc3339(r.created_at_ns), r.receiver, r.kind, r.key, r.reason)
            for r in given_up(session)
        ]
    print_rows(("id", "created", "receiver", "kind", "incident", "reason"), rows)


@notify.command()
@click.argument("ids", type=click.IntRange(1, 2**63 - 1), nargs=-1, required=True)
@config_option
def replay(ids: tuple[int, ...], path: Path | None) -> None:
    """Try messages that were given up again, by their IDS; the running service sends them."""
    from serve.commands.database import open_database
    from serve.notify.outbox import replay as try_again

    database = open_database(path)
    with database.write() as session:
        count = try_again(session, ids, database.clock())
    click.echo(f"{count} of {len(ids)} will be tried again")
