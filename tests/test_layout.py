"""The five packages are where they belong, and the wheel holds all that they need."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("detect", "ingest", "models", "replay", "serve")
SOURCES = sorted(path for name in (*PACKAGES, "tests") for path in (ROOT / name).rglob("*.py"))


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_resolves_to_this_repository(name: str) -> None:
    file = import_module(name).__file__
    assert file is not None
    assert Path(file).resolve() == ROOT / name / "__init__.py"


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_says_that_it_is_typed(name: str) -> None:
    assert (ROOT / name / "py.typed").is_file()


@pytest.mark.parametrize("name", PACKAGES)
def test_every_folder_with_modules_is_a_package(name: str) -> None:
    folders = {path.parent for path in (ROOT / name).rglob("*.py")}
    assert [str(f) for f in sorted(folders) if not (f / "__init__.py").is_file()] == []


def test_tests_are_no_package() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_imports_are_absolute() -> None:
    assert len(SOURCES) > 200
    relative = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a freshly built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("weaklink-*.whl")
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_the_wheel_holds_every_file_of_a_package(wheel: set[str], name: str) -> None:
    ours = {
        str(path.relative_to(ROOT))
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours - wheel == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "ingest/catalogue.toml",
        "models/data/evidence.json",
        "replay/view/static/vendor/uplot/uPlot.iife.min.js",
        "replay/view/templates/report.html",
        "serve/page/static/main.js",
        "serve/page/templates/layout.html",
        "serve/store/migrations/script.py.mako",
        "serve/store/migrations/versions/0001_core.py",
    ],
)
def test_the_wheel_holds_what_is_read_at_run_time(wheel: set[str], name: str) -> None:
    assert name in wheel


@pytest.mark.slow
def test_the_wheel_holds_nothing_else(wheel: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


@pytest.mark.slow
def test_the_wheel_carries_the_licence_and_the_command(wheel: set[str]) -> None:
    inside = {name.split(".dist-info/")[1] for name in wheel if ".dist-info/" in name}
    assert {"licenses/LICENSE", "licenses/NOTICE", "entry_points.txt"} <= inside
