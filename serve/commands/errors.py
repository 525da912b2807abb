"""How commands end: 0 done, 1 a gate was not met, 2 bad usage or unreadable input."""

from __future__ import annotations

import click


class BadInputError(click.ClickException):
    """One line on stderr and exit status 2."""

    exit_code = 2

    def show(self, file: object = None) -> None:  # noqa: ARG002 - click's signature
        """One line, whatever the message holds."""
        click.echo(f"weaklink: {' '.join(self.format_message().split())}", err=True)


class GateError(click.ClickException):
    """A gate given with ``--fail-…`` was not met: one line and exit status 1."""

    exit_code = 1

    def show(self, file: object = None) -> None:  # noqa: ARG002 - click's signature
        """One line."""
        click.echo(f"weaklink: {' '.join(self.format_message().split())}", err=True)
