"""``weaklink models``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from models.evidence_model import EvidenceModel

_store = click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIR",
    help="Folder of models; default: WEAKLINK_MODELS, or weaklink-models.",
)


@click.group()
def models() -> None:
    """List, compare, promote and roll back models.

    The promoted model is what 'weaklink serve' and 'weaklink replay' take unless told another;
    with nothing promoted it is the shipped one.
    """


@models.command("list")
@_store
def list_models(store: Path | None) -> None:
    """Every version of every model; a star marks the one in use."""
    from models.evidence_model import shipped_model
    from models.registry import ModelStore
    from serve.commands.tables import print_rows

    kept = ModelStore(store)
    used = kept.promoted()
    rows = [_row("shipped", used is None, shipped_model().quality, False)]
    for ref in kept.models():
        in_use = used is not None and str(ref) == str(used)
        rows.append(_row(str(ref), in_use, ref.evidence().quality, ref.has_minder))
    columns = ("", "model", "F1", "false alarms/job-week", "measured on", "minder")
    print_rows(columns, rows)


def _row(name: str, used: bool, quality: dict[str, object], minder: bool) -> tuple[str, ...]:
    def shown(key: str) -> str:
        value = quality.get(key)
        return f"{value:.3f}" if isinstance(value, int | float) else "-"

    on = f"{quality['incidents']} recordings" if "incidents" in quality else "-"
    return (
        "*" if used else "",
        name,
        shown("f1"),
        shown("false_alarms_per_job_week"),
        on,
        "yes" if minder else "-",
    )


@models.command()
@click.argument("model", metavar="NAME_OR_DIR")
@_store
def show(model: str, store: Path | None) -> None:
    """A model as JSON: scales, tail, what it was trained on, its measured quality."""
    import json

    click.echo(json.dumps(_load(model, store).to_json(), indent=1, sort_keys=True))


@models.command()
@click.argument("one", metavar="NAME_OR_DIR")
@click.argument("other", metavar="NAME_OR_DIR")
@_store
def compare(one: str, other: str, store: Path | None) -> None:
    """What two models differ in, measured quality first."""
    from models.registry import differences
    from serve.commands.tables import print_rows

    rows = differences(_load(one, store), _load(other, store))
    if not rows:
        click.echo("no difference")
        return
    print_rows(("", one, other), rows)


@models.command()
@click.argument("model", metavar="NAME[@VERSION]")
@_store
def promote(model: str, store: Path | None) -> None:
    """Take a model of the store into use; 'shipped' returns to the shipped one."""
    from models.registry import ModelStore

    click.echo(f"in use: {ModelStore(store).promote(model)}")


@models.command()
@_store
def rollback(store: Path | None) -> None:
    """Return to the model that was in use before the last promotion."""
    from models.registry import ModelStore

    click.echo(f"in use: {ModelStore(store).rollback()}")


def _load(name: str, store: Path | None) -> EvidenceModel:
    from models.evidence_model import shipped_model
    from models.minder_model import MinderModel
    from models.registry import load_model

    found = load_model(name, store=store)
    if found is None:
        return shipped_model()
    assert not isinstance(found, MinderModel)
    return found
