"""The registry of models: versions, names, promotion."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from models.evidence_model import EvidenceModel, MetricScale, ModelError, shipped_model
from models.registry import (
    ModelStore,
    default_store,
    differences,
    load_model,
    save_version,
    versions,
)


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    save_version(tmp_path / "mine", EvidenceModel(tail_slope=5.0))
    save_version(tmp_path / "mine", EvidenceModel(tail_slope=6.0))
    save_version(tmp_path / "other", EvidenceModel(tail_slope=7.0))
    return ModelStore(tmp_path)


def test_each_save_adds_a_version_named_after_the_folder(store: ModelStore) -> None:
    assert [str(ref) for ref in store.models()] == ["mine@1", "mine@2", "other@1"]
    loaded = store.resolve("mine").evidence()
    assert (loaded.name, loaded.version, loaded.tail_slope) == ("mine", 2, 6.0)


def test_a_version_is_found_by_number_and_by_folder(store: ModelStore) -> None:
    assert store.resolve("mine@1").version == 1
    assert store.resolve(str(store.root / "mine")).version == 2
    assert store.resolve(str(store.root / "mine" / "1")).version == 1


def test_nothing_is_left_of_an_unfinished_save(store: ModelStore) -> None:
    assert sorted(p.name for p in (store.root / "mine").iterdir()) == ["1", "2"]


def test_without_promotion_the_shipped_model_is_in_use(store: ModelStore) -> None:
    assert store.promoted() is None
    assert load_model("", store=store.root) is None


def test_a_promoted_model_is_what_an_empty_name_means(store: ModelStore) -> None:
    assert store.promote("mine@1") == "mine@1"
    found = load_model("", store=store.root)
    assert isinstance(found, EvidenceModel)
    assert found.tail_slope == 5.0


def test_rollback_returns_to_what_was_before(store: ModelStore) -> None:
    store.promote("mine@1")
    store.promote("other")
    assert store.rollback() == "mine@1"
    assert str(store.promoted()) == "mine@1"
    assert store.rollback() == "shipped"
    with pytest.raises(ModelError, match="nothing can be rolled back"):
        store.rollback()


def test_promoting_the_same_twice_is_one_step_back(store: ModelStore) -> None:
    store.promote("mine@1")
    store.promote("mine@1")
    assert store.history() == ["mine@1"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nobody", "neither a model's folder nor a model"),
        ("mine@9", "no such version; there are mine@1, mine@2"),
        ("..", "neither a model's folder nor a model"),
    ],
)
def test_an_unknown_name_tells_what_there_is(store: ModelStore, name: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        store.resolve(name)


def test_a_damaged_model_is_not_promoted(store: ModelStore) -> None:
    (store.root / "mine" / "2" / "model.json").write_text("{")
    with pytest.raises(ModelError, match=r"model\.json: not JSON"):
        store.promote("mine")
    assert store.promoted() is None


def test_a_damaged_promotion_is_told(store: ModelStore) -> None:
    (store.root / "promoted.json").write_text(json.dumps({"promoted": 3}))
    with pytest.raises(ModelError, match=r"promoted\.json: promoted must be a list"):
        load_model("", store=store.root)


def test_a_version_without_minder_says_how_to_train_one(store: ModelStore) -> None:
    with pytest.raises(ModelError, match="--denoiser"):
        load_model("mine", "minder", store.root)


def test_a_folder_that_cannot_be_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be a model's name"):
        save_version(tmp_path / "7", EvidenceModel())
    assert versions(tmp_path / "7") == []


def test_differences_name_key_and_both_values() -> None:
    one = EvidenceModel(metrics={"a": MetricScale(floor=0.01)}, quality={"f1": 0.9})
    other = replace(one, metrics={"a": MetricScale(floor=0.02)}, quality={"f1": 0.95})
    assert differences(one, other) == [
        ("quality.f1", "0.9", "0.95"),
        ("a.floor", "0.01", "0.02"),
    ]
    assert differences(shipped_model(), shipped_model()) == []


def test_the_store_is_where_the_environment_says() -> None:
    assert default_store({"WEAKLINK_MODELS": "/srv/models"}) == Path("/srv/models")
    assert default_store({}) == Path("weaklink-models")
