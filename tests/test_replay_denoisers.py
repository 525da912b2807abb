"""The comparison of denoisers, on a tiny configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from detect.minder import MinderSettings
from ingest.simulate import Wishes
from replay import denoisers
from replay.denoisers import (
    BEGIN,
    Candidate,
    Learning,
    as_markdown,
    chosen,
    learned,
    measured,
    microseconds_a_row,
    table,
)
from replay.quality.cache import ResultCache
from replay.quality.measure import Row
from replay.quality.report import END
from replay.quality.sources import Simulated
from replay.quality.workloads import Item

SHORT = Wishes(machines=4, minutes=8.0, cadence_seconds=2.0, per_gpu=False)
ITEMS = (
    Item("core", 1, "f199", Simulated(199, 0, wishes=replace(SHORT, fault="ecc_error"))),
    Item("healthy", 1, "h199", Simulated(199, 0, healthy=True, wishes=SHORT)),
)
TINY = Learning(healthy=1, steps=10, tuning=(1, 1))
NAMES = ("identity", "online")
SHARES = (0.9, 0.99)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def candidates(folder: Path) -> list[Candidate]:
    """Two denoisers, trained and tuned on short jobs."""
    sources = [item.source for item in ITEMS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(denoisers, "TRAINING_JOBS", SHORT)
        patch.setattr(denoisers, "CEILING_SHARES", SHARES)
        patch.setattr(denoisers, "development_jobs", lambda faulty, healthy: sources)
        return learned(TINY, folder, NAMES)


@pytest.fixture(scope="module")
def rows(candidates: list[Candidate], folder: Path) -> dict[str, list[Row]]:
    cache = ResultCache(folder)
    found: dict[str, list[Row]] = {}
    for _, some in measured(ITEMS, candidates, cache):
        for row in some:
            found.setdefault(row.detector, []).append(row)
    cache.close()
    return found


def test_every_denoiser_gets_a_threshold_of_the_grid(candidates: list[Candidate]) -> None:
    assert [c.model.name for c in candidates] == list(NAMES)
    for one in candidates:
        assert one.best.threshold in denoisers.THRESHOLDS
        assert one.best.ceiling_share in SHARES
        usual = MinderSettings.best()
        assert replace(one.best, threshold=8.0, ceiling_share=0.99) == usual


def test_denoisers_are_trained_on_the_same_limits(candidates: list[Candidate]) -> None:
    assert candidates[0].model.limits == candidates[1].model.limits
    assert candidates[0].model.metrics == candidates[1].model.metrics


def test_a_kept_model_is_not_trained_again(
    candidates: list[Candidate], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denoisers, "train_minder", None)
    again = learned(TINY, folder, NAMES)
    assert [c.best for c in again] == [c.best for c in candidates]


def test_a_denoiser_that_adapts_has_no_published_settings(candidates: list[Candidate]) -> None:
    ways = [list(c.settings) for c in candidates]
    assert ways == [["identity, published", "identity, best"], ["online, best"]]


def test_all_ways_are_measured_on_the_same_incidents(rows: dict[str, list[Row]]) -> None:
    assert list(rows) == ["evidence", "identity, published", "identity, best", "online, best"]
    assert {tuple(r.id for r in own) for own in rows.values()} == {tuple(item.id for item in ITEMS)}


def test_what_is_known_is_not_measured_again(
    candidates: list[Candidate],
    rows: dict[str, list[Row]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(denoisers, "replay_together", None)
    cache = ResultCache(folder)
    again = [r for _, found in measured(ITEMS, candidates, cache) for r in found]
    cache.close()
    assert sorted(map(repr, again)) == sorted(repr(r) for own in rows.values() for r in own)


def test_the_table_counts_outcomes_and_has_a_line_a_way(
    candidates: list[Candidate], rows: dict[str, list[Row]]
) -> None:
    made = table(rows, candidates)
    assert [line[0] for line in made.rows] == list(rows)
    at = {name: i for i, name in enumerate(made.columns)}
    for line in made.rows:
        assert sum(int(line[at[what]]) for what in ("right", "wrong", "miss")) == 1
    assert made.rows[0][at["µs a row"]] == "-"
    assert float(made.rows[1][at["µs a row"]]) < float(made.rows[3][at["µs a row"]])


def test_the_text_says_how_many_incidents_and_that_it_is_a_part(
    candidates: list[Candidate], rows: dict[str, list[Row]]
) -> None:
    text = as_markdown(rows, candidates, TINY, 90)
    assert "2 of 90 incidents: 1 of `core`, 1 of `healthy`" in text


def test_timing_leaves_the_model_as_it_is(candidates: list[Candidate]) -> None:
    made = candidates[1].model.denoisers[candidates[1].model.metrics[0]]
    seen = made.state()["seen"]
    assert microseconds_a_row(made, rows=256) > 0.0
    assert made.state()["seen"] == seen


def test_compared_incidents_of_both_workloads_are_chosen() -> None:
    items = chosen(4, 2)
    assert sorted(i.workload for i in items) == ["core"] * 4 + ["healthy"] * 2
    assert all(i.compared for i in items)


def test_the_page_has_a_place_for_the_table() -> None:
    page = (Path(__file__).parents[1] / denoisers.PAGE).read_text()
    assert END in page.partition(BEGIN)[2]


def test_the_command_prints_the_table_and_writes_it_into_the_page(
    candidates: list[Candidate],
    rows: dict[str, list[Row]],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    asked: list[Learning] = []

    def known(how: Learning, _: Path) -> list[Candidate]:
        asked.append(how)
        return candidates

    monkeypatch.setattr(denoisers, "learned", known)
    monkeypatch.setattr(denoisers, "chosen", lambda faulty, healthy: list(ITEMS))
    monkeypatch.setattr(denoisers, "ResultCache", lambda _: ResultCache(folder))
    monkeypatch.setattr(denoisers, "PAGE", page)
    arguments = ["--steps", "10", "--tuning", "2", "1", "--keep", str(tmp_path), "--page"]
    done = CliRunner().invoke(denoisers.main, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert asked == [Learning(healthy=12, steps=10, tuning=(2, 1))]
    text = as_markdown(rows, candidates, asked[0], 2)
    assert text in done.stdout
    assert page.read_text() == f"before\n{BEGIN}\n\n{text}\n\n{END}\nafter\n"
