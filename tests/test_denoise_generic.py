"""What every denoiser must keep, whatever it does inside."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from models.denoise import registry
from models.denoise.lstm_vae import LstmVaeDenoiser
from models.denoise.protocol import Denoiser, OnlineDenoiser, Windows
from models.denoise.storage import load_state, save_state
from models.minder_model import shipped_minder_model

pytestmark = pytest.mark.parametrize("name", registry.DENOISERS)


def noisy_windows(rows: int, seed: int = 0, noise: float = 0.02) -> Windows:
    """Windows of machines at many levels that share a slow wave, plus noise: ``[row, 8]``."""
    rng = np.random.default_rng(seed)
    level = rng.uniform(0.1, 0.9, (rows, 1))
    phase = rng.uniform(0.0, 2.0 * np.pi, (rows, 1))
    wave = 0.05 * np.sin(phase + 2.0 * np.pi * np.arange(8) / 16.0)
    clean: NDArray[np.float64] = level + wave
    return clean + rng.normal(0.0, noise, clean.shape)


def trained(name: str) -> Denoiser:
    """A denoiser that has learned; the one that needs the extra comes from the shipped model."""
    if name == LstmVaeDenoiser.name:
        return registry.from_state(shipped_minder_model().denoisers["cpu_usage_ratio"].state())
    made = registry.denoiser(name)
    made.fit(noisy_windows(2000))
    return made


def quick(name: str, seed: int = 0) -> Denoiser:
    """A denoiser whose `fit` takes seconds."""
    if name == LstmVaeDenoiser.name:
        pytest.importorskip("jax", reason="training needs the extra 'lstm'")
        return LstmVaeDenoiser(steps=20, seed=seed)
    return registry.denoiser(name)


def test_the_input_is_not_changed(name: str) -> None:
    made, windows = trained(name), noisy_windows(50)
    before = windows.copy()
    made.denoise(windows)
    if isinstance(made, OnlineDenoiser):
        made.partial_fit(windows)
    assert np.array_equal(windows, before)


def test_fitting_does_not_change_the_input(name: str) -> None:
    windows = noisy_windows(200)
    before = windows.copy()
    quick(name).fit(windows)
    assert np.array_equal(windows, before)


def test_the_output_has_the_input_s_shape_and_is_finite(name: str) -> None:
    made = trained(name)
    for rows in (0, 1, 7, 1500):
        out = made.denoise(noisy_windows(rows))
        assert out.shape == (rows, 8)
        assert np.isfinite(out).all()


def test_the_output_is_finite_far_outside_what_was_learned(name: str) -> None:
    windows = np.array([[1e9] * 8, [-1e9] * 8, [0.0] * 8, [1e-300] * 8])
    assert np.isfinite(trained(name).denoise(windows)).all()


def test_denoising_does_not_change_the_denoiser(name: str) -> None:
    made, windows = trained(name), noisy_windows(40)
    first = made.denoise(windows)
    made.denoise(noisy_windows(300, seed=5))
    assert np.array_equal(made.denoise(windows), first)


def test_rows_in_another_order_give_the_same_rows_in_that_order(name: str) -> None:
    made, windows = trained(name), noisy_windows(1100)
    order = np.random.default_rng(3).permutation(len(windows))
    assert np.array_equal(made.denoise(windows[order]), made.denoise(windows)[order])


def test_a_batch_gives_the_same_bits_as_one_by_one(name: str) -> None:
    made, windows = trained(name), noisy_windows(1030)
    batch = made.denoise(windows)
    for rows in (slice(0, 1), slice(5, 6), slice(1023, 1026), slice(100, 117)):
        assert np.array_equal(made.denoise(windows[rows]), batch[rows])


def test_the_memory_layout_of_the_input_does_not_matter(name: str) -> None:
    made, windows = trained(name), noisy_windows(60)
    assert np.array_equal(made.denoise(np.asfortranarray(windows)), made.denoise(windows))


def test_a_row_with_a_gap_is_missing_and_its_neighbours_are_not_touched(name: str) -> None:
    made, windows = trained(name), noisy_windows(20)
    gappy = windows.copy()
    gappy[3, 4] = np.nan
    gappy[7] = np.nan
    out, whole = made.denoise(gappy), made.denoise(windows)
    untouched = np.delete(np.arange(20), [3, 7])
    if name != "identity":
        assert np.isnan(out[[3, 7]]).all()
    assert np.isnan(out[[3, 7]]).any(axis=1).all()
    assert np.array_equal(out[untouched], whole[untouched])


def test_rows_with_gaps_are_left_out_of_learning(name: str) -> None:
    windows = noisy_windows(120)
    gappy = np.concatenate([windows, np.full((30, 8), np.nan)])
    made, other = quick(name), quick(name)
    made.fit(windows)
    other.fit(gappy)
    assert np.array_equal(made.denoise(windows), other.denoise(windows))


def test_a_constant_metric_is_learned_and_passes(name: str) -> None:
    made = quick(name)
    made.fit(np.full((200, 8), 0.25))
    out = made.denoise(np.full((3, 8), 0.25))
    assert np.abs(out - 0.25).max() < 0.1


def test_a_machine_far_from_a_constant_metric_stays_far(name: str) -> None:
    if name == LstmVaeDenoiser.name:
        pytest.skip("saturates outside what it was trained on, as its documentation says")
    made = quick(name)
    made.fit(np.full((200, 8), 0.25))
    out = made.denoise(np.array([[0.25] * 8, [0.75] * 8]))
    assert np.abs(out[1] - out[0]).min() > 0.4


def test_the_same_rows_and_seed_give_the_same_bits(name: str) -> None:
    windows = noisy_windows(300)
    made, again = quick(name), quick(name)
    made.fit(windows)
    again.fit(windows)
    assert np.array_equal(made.denoise(windows), again.denoise(windows))


def test_fitting_again_forgets_what_was_learned(name: str) -> None:
    windows, other = noisy_windows(300), noisy_windows(300, seed=9, noise=0.2)
    made, fresh = quick(name), quick(name)
    made.fit(other)
    made.fit(windows)
    fresh.fit(windows)
    assert np.array_equal(made.denoise(windows), fresh.denoise(windows))


def test_a_saved_denoiser_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    made, windows = trained(name), noisy_windows(500, seed=2)
    registry.save(made, tmp_path / "denoiser.npz")
    loaded = registry.load(tmp_path / "denoiser.npz")
    assert loaded.name == name
    assert np.array_equal(loaded.denoise(windows), made.denoise(windows))


def test_a_saved_denoiser_learns_on_as_if_never_saved(name: str, tmp_path: Path) -> None:
    made = trained(name)
    if not isinstance(made, OnlineDenoiser):
        pytest.skip("does not learn on")
    registry.save(made, tmp_path / "denoiser.npz")
    loaded = registry.load(tmp_path / "denoiser.npz")
    assert isinstance(loaded, OnlineDenoiser)
    more, windows = noisy_windows(90, seed=4), noisy_windows(50, seed=5)
    made.partial_fit(more)
    loaded.partial_fit(more)
    assert np.array_equal(loaded.denoise(windows), made.denoise(windows))


def test_an_untrained_denoiser_can_be_saved(name: str, tmp_path: Path) -> None:
    registry.save(registry.denoiser(name), tmp_path / "denoiser.npz")
    windows = noisy_windows(5)
    assert np.array_equal(registry.load(tmp_path / "denoiser.npz").denoise(windows), windows)


def test_before_learning_windows_pass_as_they_are(name: str) -> None:
    windows = noisy_windows(30)
    out = registry.denoiser(name).denoise(windows)
    assert np.array_equal(out, windows)
    assert not np.shares_memory(out, windows)


def test_learning_on_needs_no_more_memory(name: str) -> None:
    made = trained(name)
    if not isinstance(made, OnlineDenoiser):
        pytest.skip("does not learn on")

    def size() -> int:
        return sum(
            value.nbytes if isinstance(value, np.ndarray) else sys.getsizeof(value)
            for value in made.state().values()
        )

    made.partial_fit(noisy_windows(40))
    before = size()
    for seed in range(50):
        made.partial_fit(noisy_windows(40, seed=seed))
    assert size() <= before + 8


def test_windows_of_another_width_are_refused(name: str) -> None:
    made = trained(name)
    with pytest.raises(ValueError, match=r"\[row, 8\]"):
        made.denoise(np.zeros((4, 7)))
    with pytest.raises(ValueError, match=r"\[row, 8\]"):
        made.fit(np.zeros((4, 7)))


def test_the_state_of_another_denoiser_is_refused(name: str) -> None:
    state = {**trained(name).state(), "name": "other"}
    with pytest.raises(ValueError, match=r"other|not a state"):
        registry.denoiser(name).restore(state)
    with pytest.raises(ValueError, match="unknown denoiser 'other'"):
        registry.from_state(state)


def test_the_state_of_another_window_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a state"):
        registry.denoiser(name, 4).restore(trained(name).state())


def test_equal_states_are_equal_files(name: str, tmp_path: Path) -> None:
    state = trained(name).state()
    save_state(tmp_path / "a.npz", state)
    save_state(tmp_path / "b.npz", load_state(tmp_path / "a.npz"))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
