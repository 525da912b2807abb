"""The page's modules in Node.js, where it is installed: arithmetic that needs no browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay.view.grid import ScoreGrid
from replay.view.words import format_value

STATIC = Path(__file__).parent.parent / "replay" / "view" / "static"
START_MS = 1_760_000_000_000
MS = 1_000_000


def node(script: str, *files: Path) -> Any:
    """The JSON that a module prints."""
    found = shutil.which("node")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("node is missing: apt-get install nodejs")
        pytest.skip("node is missing: apt-get install nodejs")
    done = subprocess.run(
        [found, "--input-type=module", "-", *map(str, files)],
        input=script,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def made(machines: str, start_s: int, step_s: int, scores: list[list[float]]) -> ScoreGrid:
    """A grid; machines are single letters."""
    start_ns = (START_MS + start_s * 1000) * MS
    values = np.asarray(scores, np.float32)
    phases = ((start_ns, f"p{start_s}"),)
    return ScoreGrid("j", start_ns, step_s * 1000 * MS, tuple(machines), values, phases)


def joined(tmp_path: Path, old: ScoreGrid, new: ScoreGrid, most: int = 100) -> Any:
    """What the page makes of two grids: start, step, rows by machine, phases; null = no fit."""
    for name, grid in (("old", old), ("new", new)):
        (tmp_path / name).write_bytes(grid.encode())
    script = f"""
    import {{ readFileSync }} from "node:fs";
    import {{ Grid }} from "{STATIC.as_uri()}/grid.js";
    const read = (path) => {{ const b = readFileSync(path);
      return Grid.decode(b.buffer.slice(b.byteOffset, b.byteOffset + b.byteLength)); }};
    const g = read(process.argv[2]).joined(read(process.argv[3]), {most});
    console.log(JSON.stringify(g && {{
      start: (g.startMs - {START_MS}) / 1000,
      phases: g.phases.map((p) => p[1]),
      rows: Object.fromEntries(g.machines.map((m, r) =>
        [m, [...Array(g.columns).keys()].map((c) => g.score(r, c))])) }}));
    """
    return node(script, tmp_path / "old", tmp_path / "new")


def test_newer_columns_follow_and_win_where_they_overlap(tmp_path: Path) -> None:
    got = joined(tmp_path, made("a", 0, 1, [[1, 2, 3]]), made("a", 2, 1, [[9, 4, 5]]))
    assert got == {"start": 0, "phases": ["p0", "p2"], "rows": {"a": [1, 2, 9, 4, 5]}}


def test_a_gap_between_grids_has_no_data(tmp_path: Path) -> None:
    got = joined(tmp_path, made("a", 0, 1, [[1, 2]]), made("a", 4, 1, [[5]]))
    assert got["rows"] == {"a": [1, 2, None, None, 5]}


def test_machines_that_join_or_leave_have_no_data_elsewhere(tmp_path: Path) -> None:
    got = joined(tmp_path, made("ac", 0, 1, [[1], [3]]), made("bc", 1, 1, [[2], [4]]))
    assert got["rows"] == {"a": [1, None], "b": [None, 2], "c": [3, 4]}


def test_the_oldest_columns_and_phases_go_beyond_the_width(tmp_path: Path) -> None:
    got = joined(tmp_path, made("a", 0, 1, [[1, 2, 3]]), made("a", 3, 1, [[4, 5]]), most=2)
    assert got == {"start": 3, "phases": ["p3"], "rows": {"a": [4, 5]}}


def test_finer_columns_are_pooled_by_their_maximum(tmp_path: Path) -> None:
    got = joined(tmp_path, made("a", 0, 4, [[1, 2]]), made("a", 4, 1, [[3, 7, 1, 0, 5, 6]]))
    assert got["rows"] == {"a": [1, 7, 6]}


@pytest.mark.parametrize("newer", [made("a", 0, 2, [[1]]), made("a", -1, 1, [[1]])])
def test_coarser_or_older_grids_do_not_fit(tmp_path: Path, newer: ScoreGrid) -> None:
    assert joined(tmp_path, made("a", 0, 1, [[1, 2]]), newer) is None


def test_numbers_read_the_same_in_both_languages() -> None:
    cases = [(0.02, "1"), (0.5, ""), (12.34, "1"), (612.4, "W"), (4.2e10, "B/s"), (83.0, "°C")]
    cases += [(1.41e9, "Hz"), (0.0, "B/s"), (1.5, "s"), (2.5e12, "B")]
    cases += [(0.004, "ratio"), (9.999, "1"), (999.9, "W"), (0.0049, "s"), (0.0004, "s")]
    cases += [(0.0, "s"), (0.0, ""), (-2500.0, "B/s"), (1234567.0, "1"), (0.00123, "1/s")]
    cases += [(3.14159e-9, "1"), (2e-12, "W")]
    script = f"""
    import {{ quantity }} from "{STATIC.as_uri()}/format.js";
    console.log(JSON.stringify({json.dumps(cases)}.map(([v, u]) => quantity(v, u))));
    """
    assert node(script) == [format_value(value, unit) for value, unit in cases]
