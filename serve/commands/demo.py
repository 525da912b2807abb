"""``weaklink demo``."""

from __future__ import annotations

import click

from replay.finite import Finite
from serve.commands.errors import GateError


@click.command()
@click.option(
    "--duration",
    type=Finite(min=1, max=86_400),
    metavar="SECONDS",
    help="End by itself; otherwise Ctrl-C ends it.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port of page and API; 0 takes a free one.",
)
@click.option(
    "--machines",
    type=click.IntRange(3, 2_000),
    default=24,
    show_default=True,
    help="Machines of the larger job.",
)
@click.option("--fault", default="ecc_error", show_default=True, help="Type of the fault.")
@click.option("--seed", type=int, default=7, show_default=True, help="Of the simulation.")
@click.option("--fail-without-alert", is_flag=True, help="Exit 1 unless the machine is named.")
def demo(
    duration: float | None,
    host: str,
    port: int,
    machines: int,
    fault: str,
    seed: int,
    fail_without_alert: bool,
) -> None:
    """Show the whole product with nothing else installed.

    Simulated training jobs run at real time, half a minute later one machine fails, and the
    alert that names it is printed and shown on the page.
    """
    from ingest.simulate import FAULT_TYPES
    from serve.config import LogSettings
    from serve.demo import DemoOptions, run_demo
    from serve.logs import configure_logs

    if fault not in FAULT_TYPES:
        raise click.BadParameter(f"{fault!r} is not one of {', '.join(FAULT_TYPES)}")
    configure_logs(LogSettings(level="warning"))
    options = DemoOptions(duration, host, port, machines, fault, seed)
    named = run_demo(options, lambda text: click.echo(text))
    if fail_without_alert and not named:
        raise GateError("no alert named the faulty machine")
