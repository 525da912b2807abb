"""The page about notifications names everything there is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry

from serve.actions import ActionSettings
from serve.notify.config import AnyReceiverSettings, NotifySettings, RouteSettings
from serve.notify.dedup import REASONS
from serve.notify.events import DROPPED, NotifyEvents
from serve.notify.lanes import Outcome

PAGE = (Path(__file__).parent.parent / "docs" / "notifications.md").read_text(encoding="utf-8")
KINDS = get_args(get_args(AnyReceiverSettings)[0])
MODELS = [*KINDS, NotifySettings, RouteSettings, ActionSettings]
KEYS = sorted({(model.__name__, key) for model in MODELS for key in model.model_fields})


@pytest.mark.parametrize(("model", "key"), KEYS)
def test_every_key_stands_in_the_page(model: str, key: str) -> None:
    assert f"`{key}`" in PAGE, f"{model}.{key}"


def test_every_default_number_stands_beside_its_key() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| (\d+)", PAGE, re.M))
    fields = KINDS[0].model_fields
    assert {k: float(v) for k, v in table.items()} == {
        key: float(fields[key].default)
        for key in (
            "timeout_seconds",
            "rate_limit_per_minute",
            "rate_burst",
            "give_up_after_seconds",
        )
    }


def test_the_example_is_a_valid_configuration() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    settings = NotifySettings.model_validate(tomllib.loads(example)["notify"])
    assert [r.name for r in settings.receivers] == ["oncall", "chat", "am", "automation"]


def test_every_kind_of_receiver_stands_in_the_page() -> None:
    assert len(KINDS) == 7
    for kind in KINDS:
        assert f"| `{kind.model_fields['type'].default}` |" in PAGE


def test_every_metric_and_outcome_stands_in_the_page() -> None:
    registry = CollectorRegistry()
    NotifyEvents(registry)
    for family in registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        assert f"`{name}`" in PAGE
    for outcome in get_args(Outcome):
        assert f"`{outcome}`" in PAGE


def test_every_reason_not_to_send_stands_in_the_page() -> None:
    for reason in DROPPED:
        assert f"| `{reason}` |" in PAGE
    not_sent = {"known", "never_told", "already_over", "over_not_wanted"}
    assert set(DROPPED) == not_sent | {"silenced"}
    assert not_sent < set(REASONS)
