"""docs/telemetry.md says what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from ingest.catalogue import Catalogue
from ingest.formats.registry import CONTENT_TYPES, FORMATS, format_of
from ingest.rules import Rules

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")


def reasons_in_code() -> set[str]:
    """Words given to Rejected and to counters anywhere in the decoding code."""
    sources = [*(ROOT / "ingest" / "formats").glob("*.py")]
    names = ("normalise", "values", "assignments")
    sources += [ROOT / "ingest" / f"{name}.py" for name in names]
    found: set[str] = set()
    for source in sources:
        text = source.read_text(encoding="utf-8")
        found |= set(re.findall(r'(?:Rejected|rejected)\(\s*"([a-z_]+)"', text))
        found |= set(re.findall(r'counts\["([a-z_]+)"\]', text))
        found |= set(re.findall(r'return "([a-z_]+)"', text))
        found |= set(re.findall(r'_drop\([^\n]*"([a-z_]+)", counts\)', text))
        found |= set(re.findall(r'^        "([a-z_]+)": (?:~|np\.)', text, re.MULTILINE))
    return found - {"counter", "gauge", "distribution"}


def test_every_reason_stands_in_the_page() -> None:
    found = reasons_in_code()
    assert len(found) > 20
    assert {reason for reason in found if f"`{reason}`" not in TEXT} == set()


def test_every_format_and_content_type_stands_in_the_page() -> None:
    for name in (*FORMATS, *CONTENT_TYPES):
        assert f"`{name}`" in TEXT


def test_every_content_type_of_the_page_means_the_format_of_its_line() -> None:
    table = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", TEXT.split("###")[0], re.MULTILINE)
    assert {name for name, _ in table} == set(FORMATS)
    for name, types in table:
        for content_type in re.findall(r"`([^`]+)`", types):
            assert format_of(content_type) == name


def test_the_example_of_the_page_is_a_valid_extension() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    catalogue = Catalogue.default().extended(tomllib.loads(example))
    assert catalogue.resolve("acme_gpu_mw").factor == 0.001
    assert catalogue.metric("fan_speed_ratio").upper == 1


def test_the_bound_on_unknown_names_is_the_one_in_the_page() -> None:
    assert f"up to {Rules().max_unknown_metrics} names" in TEXT
