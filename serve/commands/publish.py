"""``weaklink publish``."""

from __future__ import annotations

from pathlib import Path

import click

from replay.finite import Finite


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--bootstrap-servers", metavar="HOST:PORT,…", help="Brokers (kafka.bootstrap_servers)."
)
@click.option("--topic", default="telemetry", show_default=True)
@click.option(
    "--speed",
    type=Finite(min=0),
    default=1.0,
    show_default=True,
    help="Event time per wall-clock time; 0 = as fast as possible.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "json-array", "arrow"]),
    default="json",
    show_default=True,
    help="One row a message, or up to --rows-per-message of a job and second.",
)
@click.option("--rows-per-message", type=click.IntRange(1, 100_000), default=50, show_default=True)
@click.option("--keep-times", is_flag=True, help="Do not shift time stamps to now.")
@click.option("--job", help="Send under this name instead of the recorded one.")
@click.option(
    "--disorder-seconds",
    type=Finite(0, 3600),
    default=0.0,
    help="Each message is late by up to so much.",
)
@click.option("--duplicates", type=Finite(0, 1), default=0.0, help="Share sent twice.")
@click.option("--poison", type=Finite(0, 1), default=0.0, help="Share of unreadable ones, on top.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of what goes wrong.")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The service's TOML file, for TLS and SASL.",
)
def publish(
    path: Path,
    bootstrap_servers: str | None,
    topic: str,
    speed: float,
    form: str,
    rows_per_message: int,
    keep_times: bool,
    job: str | None,
    disorder_seconds: float,
    duplicates: float,
    poison: float,
    seed: int,
    config_path: Path | None,
) -> None:
    """Send the recorded incident PATH to Kafka as the live cluster would.

    Messages are keyed by job. Time stamps are shifted so that the last one is now when it is
    sent; at speed 1 each is.
    """
    import os
    import time

    from serve.config import load_config
    from serve.kafka.outflow import Dirt
    from serve.kafka.publish import Published, PublishOptions
    from serve.kafka.publish import publish as send

    environ = dict(os.environ)
    if bootstrap_servers:
        environ["WEAKLINK_KAFKA__BOOTSTRAP_SERVERS"] = bootstrap_servers
    settings = load_config(config_path, environ).kafka

    def progress(sent: Published) -> None:
        click.echo(f"{sent.messages} messages, {sent.rows} rows", err=True)

    done = send(
        path,
        settings,
        topic,
        PublishOptions(
            speed=speed,
            form=form,  # type: ignore[arg-type]
            rows_per_message=rows_per_message,
            keep_times=keep_times,
            job=job,
            dirt=Dirt(disorder_seconds, duplicates, poison, seed),
        ),
        now_ns=time.time_ns,
        sleep=time.sleep,
        progress=progress,
    )
    poisoned = f", {done.poison} of them poison" if done.poison else ""
    click.echo(f"{done.messages} messages with {done.rows} rows sent to {topic}{poisoned}")
