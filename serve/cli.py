"""The command ``weaklink``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from serve.commands.errors import BadInputError

COMMANDS = {
    "demo": ("serve.commands.demo", "demo"),
    "serve": ("serve.commands.serve", "serve"),
    "replay": ("serve.commands.replay", "replay"),
    "train": ("serve.commands.train", "train"),
    "feedback": ("serve.commands.feedback", "feedback"),
    "models": ("serve.commands.models", "models"),
    "simulate": ("serve.commands.simulate", "simulate"),
    "publish": ("serve.commands.publish", "publish"),
    "notify": ("serve.commands.notify", "notify"),
    "tokens": ("serve.commands.tokens", "tokens"),
}
"""Where each command is; imported only when it is called, so that ``--help`` is instant."""

SUMMARIES = {
    "demo": "The whole product on this machine, with an injected fault.",
    "serve": "The service: source, detection, alerts, API and page.",
    "replay": "Recorded incidents through the code of the live path.",
    "train": "Learn a model from recordings.",
    "feedback": "What people said of alerts, for training.",
    "models": "List, compare, promote and roll back models.",
    "simulate": "Make labelled incidents.",
    "publish": "Send a recorded incident to Kafka as the live cluster would.",
    "notify": "Try receivers; look after messages that were not delivered.",
    "tokens": "Create, list and revoke tokens of the API.",
}


class LazyGroup(click.Group):
    """Loads a command's module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every command, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, or None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list in ``--help``, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="weaklink", message="%(prog)s %(version)s")
def cli() -> None:
    """Finds the one machine that is about to stall a synchronous training job."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: results on stdout, everything else on stderr, no traceback for bad input."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments),
            prog_name="weaklink",
            standalone_mode=False,
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "weaklink"
        text = " ".join(error.format_message().split())
        click.echo(f"{where}: {text} (see {where} --help)", err=True)
        return 2
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("weaklink: interrupted", err=True)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nobody is left to tell.
        sys.stdout = None
        return 0
    except Exception as error:
        if not _is_bad_input(error):
            raise
        BadInputError(str(error)).show()
        return 2
    return result if isinstance(result, int) else 0


def _is_bad_input(error: Exception) -> bool:
    """Errors whose message is one line for a person: the modules' own kinds, and the system's.

    Compared by name: the modules that define them are loaded only by commands that need them.
    """
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    return isinstance(error, OSError) or bool(kinds & BAD_INPUT)


BAD_INPUT = frozenset(
    {
        "serve.config.ConfigError",
        "serve.store.base.DatabaseError",
        "ingest.recording_label.RecordingError",
        "ingest.metric.CatalogueError",
        "ingest.simulate.spec.BadSimulationError",
        "ingest.simulate.spec.UnknownFaultError",
        "models.evidence_model.ModelError",
        "replay.feedback.FeedbackError",
        "serve.kafka.security.KafkaSetupError",
    }
)
"""Exceptions that mean bad usage or unreadable input, each with a one-line message."""
