"""The documentation says what the code says: commands, keys, metrics, files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pytest
import yaml
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from detect.registry import DETECTORS
from serve.cli import cli
from serve.config import Config, load_config
from serve.kafka.metrics import EVENTS, KafkaCollector
from serve.metrics import REJECT_REASONS, STAGES, Metrics
from serve.notify.events import NotifyEvents
from serve.paging import REASONS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CLI = (DOCS / "cli.md").read_text(encoding="utf-8")
CONFIGURATION = (DOCS / "configuration.md").read_text(encoding="utf-8")
METRICS = (DOCS / "metrics.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("decisions/*.md")], key=lambda p: p.name
)


# Commands.


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that is no group, with what one types."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from commands(inner, f"{path} {name}")


ALL_COMMANDS = dict(commands(cli, "weaklink"))


def flags(command: click.Command) -> set[str]:
    """Every flag of a command."""
    options = [p for p in command.params if isinstance(p, click.Option)]
    return {flag for o in options for flag in (*o.opts, *o.secondary_opts)}


def section(page: str, title: str) -> str:
    """The text under a heading of any level, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", page, re.M | re.S)
    assert found, f"no heading {title!r}"
    return found[1]


@pytest.mark.parametrize("path", sorted(ALL_COMMANDS))
def test_the_page_of_commands_has_exactly_the_flags_of_a_command(path: str) -> None:
    rows = re.findall(r"^\| (`--[^|]*) \|", section(CLI, path), re.M)
    shown = {flag for row in rows for flag in re.findall(r"`(--[\w-]+)`", row)}
    assert shown == flags(ALL_COMMANDS[path])


def test_the_page_of_commands_names_no_command_that_does_not_exist() -> None:
    groups = {path.rsplit(" ", 1)[0] for path in ALL_COMMANDS} - {"weaklink"}
    assert set(re.findall(r"^##+ (weaklink .+)$", CLI, re.M)) == set(ALL_COMMANDS) | groups


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_command_shown_in_a_page_exists_with_its_flags(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^\s*(?:\$ )?(weaklink [a-z][^\n]*)", text, re.M):
        words = line.split(" #")[0].split()
        path = next(
            (" ".join(words[:n]) for n in (3, 2) if " ".join(words[:n]) in ALL_COMMANDS), ""
        )
        if not path:
            continue  # a sentence that begins with the product's name
        used = {word.split("=")[0] for word in words if word.startswith("--") and len(word) > 2}
        assert used <= flags(ALL_COMMANDS[path]) | {"--help"}, line


def test_replay_offers_every_detector() -> None:
    (option,) = [p for p in ALL_COMMANDS["weaklink replay"].params if p.name == "detector"]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == DETECTORS


# Configuration.


def sections(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Every section but the notifications', which have a page and a test of their own."""
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        inner = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        if inner and name != "notify":
            full = f"{path}.{name}".lstrip(".")
            yield full, inner[0]
            yield from sections(inner[0], full)


SECTIONS = dict(sections(Config))


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_the_page_of_settings_has_exactly_the_keys_of_a_section(name: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section(CONFIGURATION, f"[{name}]"), re.M)
    assert sorted(rows) == sorted(SECTIONS[name].model_fields)


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_default_numbers_stand_beside_their_keys(name: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (-?[\d.e+]+) \|", section(CONFIGURATION, f"[{name}]"), re.M)
    defaults = {k: f.default for k, f in SECTIONS[name].model_fields.items()}
    numbers = {k for k, v in defaults.items() if type(v) in (int, float)}
    assert {k: float(v) for k, v in rows} == {k: float(defaults[k]) for k in numbers}


def test_the_page_of_settings_names_no_section_that_does_not_exist() -> None:
    assert set(re.findall(r"^## \[([\w.]+)\]$", CONFIGURATION, re.M)) == set(SECTIONS)


def test_every_key_has_a_meaning() -> None:
    assert re.findall(r"^\| `\w+` \|[^|]*\| *\|$", CONFIGURATION, re.M) == []


# Metrics.


class _NoPartitions:
    counts: dict[str, int] = {}  # noqa: RUF012 - never written

    def partitions(self) -> list[dict[str, Any]]:
        return []


def series() -> dict[str, set[str]]:
    """Every metric's name as Prometheus shows it, with the names of its samples."""
    metrics = Metrics("1")
    NotifyEvents(metrics.registry)
    metrics.registry.register(KafkaCollector(_NoPartitions()))
    assert isinstance(metrics.registry, CollectorRegistry)
    found: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        suffixes = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
        found[name] = {name + suffix for suffix in suffixes}
    return found


SERIES = series()
OURS = {name for name in SERIES if name.startswith("weaklink_")}


def test_the_page_of_metrics_has_exactly_the_metrics_there_are() -> None:
    assert set(re.findall(r"^\| `(weaklink_\w+)` \|", METRICS, re.M)) == OURS


@pytest.mark.parametrize("value", sorted({*STAGES, *REJECT_REASONS, *REASONS, *EVENTS}))
def test_the_page_of_metrics_has_every_value_of_a_label(value: str) -> None:
    assert f"`{value}`" in METRICS


def rules() -> list[dict[str, Any]]:
    """Every alert rule."""
    text = (DOCS / "operations" / "alerts.yaml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = [r for g in yaml.safe_load(text)["groups"] for r in g["rules"]]
    assert len(found) > 5
    return found


def panels() -> list[dict[str, Any]]:
    """Every panel of the dashboard."""
    text = (DOCS / "operations" / "dashboard.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)["panels"]
    assert len(found) > 5
    return found


EXPRESSIONS = [r["expr"] for r in rules()] + [t["expr"] for p in panels() for t in p["targets"]]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_uses_only_series_that_exist(expression: str) -> None:
    used = set(re.findall(r"\b(?:weaklink|process|python)_\w+", expression))
    assert used
    assert used <= {sample for samples in SERIES.values() for sample in samples}


def test_every_rule_says_what_it_means_and_how_urgent_it_is() -> None:
    for rule in rules():
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in {"page", "ticket"}


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in panels()
        for g in [panel["gridPos"]]
        for x in range(g["x"], g["x"] + g["w"])
        for y in range(g["y"], g["y"] + g["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


# Files.


def test_every_file_named_in_the_architecture_exists() -> None:
    named = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", ARCHITECTURE))
    assert len(named) > 40
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "configuration.md"])
def test_every_example_of_a_configuration_is_valid(page: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sqlite://")
    examples = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    assert examples
    for number, example in enumerate(examples):
        path = tmp_path / f"{number}.toml"
        path.write_text(re.sub(r'"/run/secrets/[^"]*"', f'"{secret}"', example))
        load_config(path, {})
