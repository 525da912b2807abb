"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The service's TOML file.",
)
"""``path``: the service's configuration; None = defaults and the environment."""
