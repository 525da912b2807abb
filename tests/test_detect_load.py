"""What a row's load explains is no oddness; what it does not explain is."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from detect.load import LoadModel, loads
from detect.snapshot import decode_state, encode_state

Array = NDArray[np.float64]
METRICS = ("disk_latency", "disk_throughput")
FAMILIES = tuple(f"other:{m}" for m in METRICS)
ROWS = tuple(f"disk{i}" for i in range(8))
SLOPE = 0.5


def made() -> LoadModel:
    model = LoadModel()
    model.reindex(METRICS, FAMILIES, ROWS)
    return model


def tick(rng: np.random.Generator) -> Array:
    """Latency goes with the root of the throughput; rows differ for good in both."""
    throughput = 1e7 * np.exp(rng.normal(0.0, 0.4, len(ROWS))) * np.linspace(0.8, 1.2, len(ROWS))
    latency = 80.0 * (throughput / 1e7) ** SLOPE * np.linspace(1.3, 0.7, len(ROWS))
    return np.array([latency, throughput])


def learned(seed: int = 1) -> LoadModel:
    model, rng = made(), np.random.default_rng(seed)
    for _ in range(120):
        model.adjusted(tick(rng), 15.0)
    return model


@pytest.mark.parametrize(
    ("metrics", "load"),
    [
        (("disk_latency", "disk_throughput"), [False, True]),
        (("await", "Write.IOPS", "queue"), [False, True, False]),
        (("avg_rsp_us", "bw"), [False, True]),
        (("opsx", "latency"), [False, False]),
        (("cache_bytes", "read_bytes_per_sec", "latency"), [False, True, False]),
        # Where nothing else is known it is no load but what the row achieves.
        (("tokens_throughput",), [False]),
    ],
)
def test_which_unknown_metrics_are_load(metrics: tuple[str, ...], load: list[bool]) -> None:
    assert loads(metrics, [f"other:{m}" for m in metrics]) == load


def test_a_metric_that_is_known_is_no_load() -> None:
    assert (
        loads(("disk_read_bytes_per_second", "latency"), ["disk", "other:latency"]) == [False] * 2
    )


def test_a_busy_row_is_compared_at_its_peers_load() -> None:
    model, x = learned(), tick(np.random.default_rng(5))
    busy = x.copy()
    busy[1, 3] *= 3.0
    busy[0, 3] *= 3.0**SLOPE
    before, now = model.adjusted(x, 15.0), learned().adjusted(busy, 15.0)
    assert now[0, 3] / before[0, 3] == pytest.approx(1.0, abs=0.1)
    assert (now[1] == busy[1]).all()


def test_a_row_that_answers_later_at_the_same_load_stays_odd() -> None:
    x = tick(np.random.default_rng(5))
    slow = x.copy()
    slow[0, 3] *= 2.0
    ratio = learned().adjusted(slow, 15.0)[0] / learned().adjusted(x, 15.0)[0]
    assert ratio[3] == pytest.approx(2.0, rel=0.05)
    assert np.delete(ratio, 3) == pytest.approx(1.0, abs=0.05)


def test_what_is_not_known_yet_explains_nothing() -> None:
    x = tick(np.random.default_rng(5))
    assert (made().adjusted(x, 15.0) == x).all()


def test_a_load_that_is_missing_or_nothing_explains_nothing() -> None:
    model, x = learned(), tick(np.random.default_rng(5))
    x[1, 2], x[1, 4] = np.nan, 0.0
    now = model.adjusted(x, 15.0)
    assert now[0, [2, 4]] == pytest.approx(x[0, [2, 4]])
    assert np.isfinite(model.state["spread"]).all()


def test_its_values_are_left_as_they_are() -> None:
    model, x = learned(), tick(np.random.default_rng(5))
    copy = x.copy()
    model.adjusted(x, 15.0)
    assert (x == copy).all()


def test_a_restored_model_goes_on_to_the_last_bit() -> None:
    one, two, rng = learned(), made(), np.random.default_rng(7)
    two.state.restore(decode_state(encode_state(one.state.snapshot())))
    for _ in range(5):
        x = tick(rng)
        assert (one.adjusted(x, 15.0) == two.adjusted(x, 15.0)).all()
