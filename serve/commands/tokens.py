"""``weaklink tokens``."""

from __future__ import annotations

from pathlib import Path

import click

from replay.finite import Finite
from serve.commands.errors import BadInputError
from serve.commands.options import config_option


def _not_empty(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """A token is known to people by its name."""
    if not value.strip():
        raise click.BadParameter("must not be empty")
    return value


@click.group()
def tokens() -> None:
    """Create, list and revoke tokens of the API."""


@tokens.command()
@click.argument("name", callback=_not_empty)
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["read", "write"]),
    multiple=True,
    default=("read",),
    show_default=True,
    help="What its holder may do; write includes read.",
)
@click.option("--days", type=Finite(0.01, 36_500), help="Valid so long; default: for ever.")
@config_option
def create(name: str, scopes: tuple[str, ...], days: float | None, path: Path | None) -> None:
    """Make a token called NAME and print it. It is shown once; only its hash is kept."""
    from serve.commands.database import open_database
    from serve.tokens import create_token

    database = open_database(path)
    now_ns = database.clock()
    ends_ns = None if days is None else now_ns + round(days * 86_400e9)
    with database.write() as session:
        token = create_token(
            session,
            name,
            scopes,  # type: ignore[arg-type]
            now_ns=now_ns,
            expires_at_ns=ends_ns,
        )
    click.echo(token)


@tokens.command("list")
@config_option
def list_all(path: Path | None) -> None:
    """List tokens: id, name, scopes, times. Secrets are not known."""
    from detect.alert import rfc3339
    from serve.commands.database import open_database
    from serve.commands.tables import print_rows
    from serve.tokens import list_tokens

    database = open_database(path)
    with database.read() as session:
        rows = [
            (
                t.id,
                t.name,
                ", ".join(t.scopes),
                rfc3339(t.created_at_ns),
                rfc3339(t.expires_at_ns) if t.expires_at_ns else "never",
            )
            for t in list_tokens(session)
        ]
    print_rows(("id", "name", "scopes", "created", "expires"), rows)


@tokens.command()
@click.argument("token_id")
@config_option
def revoke(token_id: str, path: Path | None) -> None:
    """Revoke the token with TOKEN_ID at once."""
    from serve.commands.database import open_database
    from serve.tokens import revoke_token

    database = open_database(path)
    with database.write() as session:
        if not revoke_token(session, token_id):
            raise BadInputError(f"there is no token {token_id!r}")
    click.echo(f"{token_id} is revoked")
