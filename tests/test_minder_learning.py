"""Learning the Minder detector: order of metrics, LSTM-VAE, training and tuning on recordings."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from detect.minder import MinderSettings
from ingest.catalogue import Catalogue
from ingest.simulate import FaultSpec, JobSpec, simulate, write_incident
from models.denoise import registry
from models.denoise.lstm_vae import LstmVaeDenoiser, weight_shapes
from models.minder_model import MINDER_METRICS, MinderModel, shipped_minder_model
from models.priority import learn_priority
from replay.blocks import recorded_blocks
from replay.train_minder import train_minder
from replay.tune_minder import metric_choices, tune_minder
from replay.zscore_tape import ZScoreTape, taped_detector

CATALOGUE = Catalogue.default()


def steady_windows(rows: int, seed: int = 0) -> NDArray[np.float64]:
    """Windows at any level with 0.5 % noise: ``[row, 8]``."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.1, 0.9, (rows, 1)) + rng.normal(0.0, 0.005, (rows, 8))


def test_the_metric_that_tells_faulty_windows_best_comes_first() -> None:
    rng = np.random.default_rng(0)
    faulty = np.arange(600) % 3 == 0
    features = rng.normal(2.0, 0.3, (600, 3))
    features[faulty, 2] += 4.0
    features[faulty, 0] += 0.3
    assert learn_priority(features, faulty, ("a", "b", "c"))[0] == "c"


def test_metrics_that_the_tree_does_not_need_come_last_in_their_order() -> None:
    faulty = np.arange(100) < 50
    features = np.zeros((100, 4))
    features[:, 2] = faulty
    assert learn_priority(features, faulty, ("a", "b", "c", "d")) == ("c", "a", "b", "d")


def test_missing_features_count_as_nobody_standing_out() -> None:
    faulty = np.arange(100) < 50
    features = np.full((100, 2), np.nan)
    features[faulty, 1] = 5.0
    assert learn_priority(features, faulty, ("a", "b")) == ("b", "a")


@pytest.mark.parametrize("label", [True, False])
def test_an_order_cannot_be_learned_from_one_kind_of_windows(label: bool) -> None:
    with pytest.raises(ValueError, match="both healthy and faulty"):
        learn_priority(np.zeros((4, 1)), np.full(4, label), ("a",))


def test_training_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_jax(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if name.split(".")[0] == "jax" or name.endswith("lstm_vae_train"):
            raise ImportError("No module named 'jax'")
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", without_jax)
    with pytest.raises(ImportError, match=r"pip install 'weaklink\[lstm\]'"):
        LstmVaeDenoiser().fit(steady_windows(20))


def test_inference_needs_no_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jax", None)
    made = registry.from_state(shipped_minder_model().denoisers["cpu_usage_ratio"].state())
    assert np.isfinite(made.denoise(steady_windows(4))).all()


def test_inference_is_the_network_written_out() -> None:
    rng = np.random.default_rng(5)
    weights = {k: rng.normal(0.0, 0.7, s) for k, s in weight_shapes(4, 8).items()}
    made = LstmVaeDenoiser()
    made.restore({**made.state(), "weights": weights})
    window = rng.uniform(0.0, 1.0, 8)

    def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(1.0 / (1.0 + np.exp(-x)))

    def step(
        driven: NDArray[np.float64],
        hidden: NDArray[np.float64],
        cell: NDArray[np.float64],
        recurrent: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        into, forget, candidate, out = np.split(driven + hidden @ recurrent, 4)
        cell = sigmoid(forget) * cell + sigmoid(into) * np.tanh(candidate)
        return sigmoid(out) * np.tanh(cell), cell

    hidden = cell = np.zeros(4)
    for x in window:
        driven = x * weights["enc_x"][0] + weights["enc_b"]
        hidden, cell = step(driven, hidden, cell, weights["enc_h"])
    latent = hidden @ weights["mu_w"] + weights["mu_b"]
    np.testing.assert_allclose(made.encode(window[None])[0], latent, rtol=1e-12)
    hidden = cell = np.zeros(4)
    for x in made.denoise(window[None])[0]:
        driven = latent @ weights["dec_x"] + weights["dec_b"]
        hidden, cell = step(driven, hidden, cell, weights["dec_h"])
        assert x == pytest.approx(float(hidden @ weights["out_w"][:, 0] + weights["out_b"][0]))


def test_weights_of_another_size_are_refused() -> None:
    made = LstmVaeDenoiser()
    weights = {k: np.zeros(s) for k, s in weight_shapes(5, 8).items()}
    with pytest.raises(ValueError, match="do not fit its sizes"):
        made.restore({**made.state(), "weights": weights})


@pytest.mark.slow
def test_training_reaches_minder_s_reconstruction_error() -> None:
    pytest.importorskip("jax", reason="training needs the extra 'lstm'")
    made = LstmVaeDenoiser(steps=1_000)
    made.fit(steady_windows(3_000))
    assert made.reconstruction_error_ is not None
    assert made.reconstruction_error_ < 1e-4
    fresh = steady_windows(1_000, seed=1)
    assert np.mean((made.denoise(fresh) - fresh) ** 2) < 1e-4


def test_another_seed_gives_other_weights() -> None:
    pytest.importorskip("jax", reason="training needs the extra 'lstm'")
    outputs = []
    for seed in (0, 1):
        made = LstmVaeDenoiser(steps=20, seed=seed)
        made.fit(steady_windows(200))
        outputs.append(made.denoise(steady_windows(5)))
    assert not np.array_equal(outputs[0], outputs[1])


def test_the_shipped_weights_reconstruct_as_well_as_they_say() -> None:
    model = shipped_minder_model()
    errors = model.trained_on["reconstruction_error"]
    assert set(errors) == set(model.metrics)
    # The paper's 1e-4 is reached on steady windows only (above); real jobs are livelier.
    assert max(errors.values()) < 1e-2


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two healthy jobs and two with a machine that fails in minute 5."""
    folder = tmp_path_factory.mktemp("recordings")
    paths = []
    for seed in range(4):
        faults: tuple[FaultSpec, ...] = ()
        if seed >= 2:
            faults = (FaultSpec("ecc_error", machines=(1,), onset_s=300.0),)
        spec = JobSpec(job=f"job-{seed}", machines=6, minutes=12.0, faults=faults)
        paths.append(write_incident(folder / f"r{seed}", simulate(spec, seed=seed)))
    return paths


@pytest.fixture(scope="module")
def trained(recordings: list[Path]) -> MinderModel:
    """A model on a denoiser that trains in no time."""
    return train_minder(recordings, denoiser_name="pca", name="trained", catalogue=CATALOGUE)


def test_training_learns_every_metric_that_the_recordings_have(trained: MinderModel) -> None:
    assert set(trained.metrics) <= set(MINDER_METRICS)
    assert "gpu_power_watts" in trained.metrics
    assert set(trained.denoisers) == set(trained.limits) == set(trained.metrics)


def test_ratios_are_normalised_as_they_are_and_other_metrics_by_what_was_seen(
    trained: MinderModel,
) -> None:
    assert trained.limits["cpu_usage_ratio"] == (0.0, 1.0)
    low, high = trained.limits["gpu_power_watts"]
    assert low == 0.0
    assert 100.0 < high < 20_000.0


def test_training_twice_gives_the_same_file(
    recordings: list[Path], trained: MinderModel, tmp_path: Path
) -> None:
    again = train_minder(recordings, denoiser_name="pca", name="trained", catalogue=CATALOGUE)
    trained.save(tmp_path / "a.npz")
    again.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_without_faulty_recordings_the_published_order_stays(recordings: list[Path]) -> None:
    model = train_minder(recordings[:2], denoiser_name="identity")
    assert model.metrics == tuple(m for m in MINDER_METRICS if m in model.metrics)


def test_recordings_without_minder_s_metrics_teach_nothing(tmp_path: Path) -> None:
    spec = JobSpec(machines=3, minutes=3.0, metrics=("gpu_temperature_celsius",))
    path = write_incident(tmp_path / "r", simulate(spec, seed=1))
    with pytest.raises(ValueError, match="no recording has a metric"):
        train_minder([path], denoiser_name="identity")


def test_a_tape_changes_no_verdict(recordings: list[Path], trained: MinderModel) -> None:
    _, stream = recorded_blocks(recordings[2], CATALOGUE)
    blocks = list(stream)
    tape: ZScoreTape = {}
    said = []
    for _ in range(2):
        detector = taped_detector("job", CATALOGUE, trained, MinderSettings.best(), tape)
        said.append([c for b in blocks for c in detector.update(b)])
    assert said[0] == said[1]
    assert tape


def test_tuning_ranks_every_combination_by_errors(
    recordings: list[Path], trained: MinderModel
) -> None:
    steps: list[tuple[int, int]] = []
    tried = tune_minder(
        recordings,
        [trained],
        thresholds=(3.0, 1e9),
        ceiling_shares=(None, 0.8),
        continuity_seconds=(60.0,),
        progress=lambda done, total: steps.append((done, total)),
    )
    assert len(tried) == 4
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    keys = ("wrong", "miss", "false_alarms")
    errors = [sum(t.summary[k] for k in keys) for t in tried]
    assert errors == sorted(errors)
    assert errors[0] < errors[-1]
    # Six machines never reach a z-score of 3, and nothing reaches 1e9.
    assert {t.settings.ceiling_share for t in tried[:2]} == {0.8}
    assert tried[-1].summary["right"] == 0


def test_tuning_needs_labels(recordings: list[Path], trained: MinderModel, tmp_path: Path) -> None:
    unlabelled = tmp_path / "unlabelled"
    unlabelled.mkdir()
    for file in recordings[0].glob("*.parquet"):
        (unlabelled / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match="unlabelled: tuning needs a label"):
        tune_minder([unlabelled], [trained], thresholds=(3.0,))


def test_a_tape_of_all_metrics_serves_fewer(recordings: list[Path], trained: MinderModel) -> None:
    _, stream = recorded_blocks(recordings[0], CATALOGUE)
    blocks = list(stream)

    def said(model: MinderModel, tape: ZScoreTape) -> list[tuple[int, str | None]]:
        settings = MinderSettings(threshold=1.5, continuity_seconds=30.0)
        detector = taped_detector("job", CATALOGUE, model, settings, tape)
        return [(c.at_ns, c.alert.machine) for b in blocks for c in detector.update(b)]

    whole, fewer = metric_choices(trained)[:2]
    assert len(fewer.metrics) < len(whole.metrics)
    tape: ZScoreTape = {}
    said(whole, tape)
    assert said(fewer, tape) == said(fewer, {})
    assert said(fewer, tape)
