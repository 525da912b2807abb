from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from replay.view.grid import SCALE, ScoreGrid, decode_grid, even_grid

SECOND = 1_000_000_000
START = 1_760_000_000 * SECOND


def f32(values: object) -> NDArray[np.float32]:
    return np.asarray(values, np.float32)


def grid(scores: object, machines: tuple[str, ...] | None = None) -> ScoreGrid:
    values = f32(scores)
    names = machines or tuple(f"m{i}" for i in range(values.shape[0]))
    return ScoreGrid("job", START, SECOND, names, values, ((START, "train"),))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    arrays.arrays(
        np.float32,
        arrays.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.one_of(st.just(np.nan), st.floats(0, 600, width=32)),
    )
)
def test_grid_survives_encoding_to_its_resolution(scores: NDArray[np.float32]) -> None:
    back = decode_grid(grid(scores).encode())
    np.testing.assert_allclose(back.scores, scores, atol=SCALE * 0.51, rtol=1e-5)
    assert (back.machines, back.start_ns, back.step_ns) == (
        grid(scores).machines,
        START,
        SECOND,
    )
    assert back.phases == ((START, "train"),)


def test_no_data_is_code_zero_and_health_is_code_one() -> None:
    assert grid([[np.nan, 0.0, 1.0, np.inf, -3.0]]).codes().tolist() == [[0, 1, 101, 65535, 1]]


def test_codes_start_at_a_multiple_of_eight() -> None:
    for length in range(9):
        data = grid([[1.0]], ("m" * length,)).encode()
        assert (len(data) - 2) % 8 == 0


def test_malformed_grids_are_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="WLG1"):
        decode_grid(b"GIF89a")
    with pytest.raises(ValueError, match="1 cells, expected 1 x 2"):
        decode_grid(grid([[0.0, 1.0]]).encode()[:-2])


def test_pooling_keeps_the_worst_cell_and_ignores_missing_ones() -> None:
    pooled = grid([[0.1, 5.0, np.nan, 0.2, 0.3], [np.nan] * 5]).pooled(3)
    assert pooled.step_ns == 2 * SECOND
    np.testing.assert_array_equal(pooled.scores, f32([[5.0, 0.2, 0.3], [np.nan, np.nan, np.nan]]))


def test_pooling_leaves_a_small_grid_alone() -> None:
    small = grid([[0.0, 1.0]])
    assert small.pooled(2) is small


def test_worst_rows_keeps_named_and_highest_machines_in_order() -> None:
    chosen = grid([[0.1], [9.0], [0.2], [np.nan]]).worst_rows(2, keep=("m3",))
    assert chosen.machines == ("m1", "m3")


def test_uneven_times_become_an_even_grid_with_gaps_and_merged_phases() -> None:
    times = np.array([START, START + SECOND, START + 4 * SECOND], np.int64)
    made = even_grid("job", ["a"], times, f32([[1, 2, 3]]), ["start", "train", "train"])
    np.testing.assert_array_equal(made.scores, f32([[1, 2, np.nan, np.nan, 3]]))
    assert (made.start_ns, made.step_ns) == (START, SECOND)
    assert made.phases == ((START, "start"), (START + SECOND, "train"))


def test_a_grid_of_no_times_is_empty() -> None:
    made = even_grid("job", ["a"], np.zeros(0, np.int64), np.zeros((1, 0), np.float32))
    assert decode_grid(made.encode()).scores.shape == (1, 0)
