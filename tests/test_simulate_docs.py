"""The simulator's page says what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingest.simulate import FAULT_TYPES, HARD_SETS

PAGE = (Path(__file__).parent.parent / "docs" / "simulator.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*FAULT_TYPES, *HARD_SETS])
def test_every_fault_and_every_hard_set_stands_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_the_example_on_the_page_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict[str, object] = {}
    exec(example, found)
    assert {"incident", "history", "later"} <= set(found)
