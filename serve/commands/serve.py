"""``weaklink serve``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file; without it, defaults and WEAKLINK_SECTION__KEY variables.",
)
@click.option(
    "--role",
    type=click.Choice(["all", "api", "worker"]),
    default="all",
    show_default=True,
    help="Part of the work that this process does; all parts share one PostgreSQL.",
)
@click.option("--host", help="Address to listen on (http.host).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on (http.port).")
@click.option("--check", is_flag=True, help="Only check the configuration, then exit.")
def serve(path: Path | None, role: str, host: str | None, port: int | None, check: bool) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    SIGHUP reads the configuration again; the last good one stays if the new one is not.
    """
    import time

    from serve.config import load_config
    from serve.runtime import build_runtime
    from serve.server import run_service

    environ = _environment(host, port)
    config = load_config(path, environ)
    if check:
        build_runtime(config, role, clock=time.time_ns, dry=True)  # type: ignore[arg-type]
        click.echo("configuration is good")
        return
    run_service(config, role, lambda: load_config(path, environ))  # type: ignore[arg-type]


def _environment(host: str | None, port: int | None) -> dict[str, str]:
    """The environment, with what the command line says on top."""
    import json
    import os

    given = {"WEAKLINK_HTTP__HOST": host and json.dumps(host), "WEAKLINK_HTTP__PORT": port}
    return dict(os.environ) | {k: str(v) for k, v in given.items() if v is not None}
