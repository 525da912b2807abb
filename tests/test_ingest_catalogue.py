"""The catalogue: what names mean, and what a user may add."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any

import pytest

from ingest.catalogue import Catalogue, CatalogueError
from tests.formats_support import payload

CATALOGUE = Catalogue.default()


@pytest.mark.parametrize(
    ("column", "metric", "raw", "value"),
    [
        ("DCGM_FI_DEV_POWER_USAGE", "gpu_power_watts", 700.0, 700.0),
        ("BOARD_POWER_WATTS", "gpu_power_watts", 700.0, 700.0),
        ("nvidia_smi_power_draw", "gpu_power_watts", 700.0, 700.0),
        ("accelerator_nvidia_power_current_usage_milli_watts", "gpu_power_watts", 7e5, 700.0),
        ("hw.gpu.power.draw", "gpu_power_watts", 700.0, 700.0),
        ("DCGM_FI_DEV_GPU_UTIL", "gpu_utilization_ratio", 50.0, 0.5),
        ("DEV_GPU_UTIL_RATIO", "gpu_utilization_ratio", 0.5, 0.5),
        ("nvidia_smi_utilization_gpu", "gpu_utilization_ratio", 50.0, 0.5),
        ("PROF_GR_ENGINE_UTIL_RATIO", "gpu_graphics_engine_active_ratio", 0.5, 0.5),
        ("DCGM_FI_PROF_SM_ACTIVE", "gpu_sm_active_ratio", 0.5, 0.5),
        ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", "gpu_tensor_active_ratio", 0.5, 0.5),
        ("DCGM_FI_PROF_DRAM_ACTIVE", "gpu_dram_active_ratio", 0.5, 0.5),
        ("DCGM_FI_DEV_SM_CLOCK", "gpu_sm_clock_hertz", 1980.0, 1.98e9),
        ("GPU_TEMP_CELSIUS", "gpu_temperature_celsius", 60.0, 60.0),
        ("DCGM_FI_DEV_FB_USED", "gpu_memory_used_bytes", 1.0, 1048576.0),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "nvlink_bytes_per_second", 2.0, 2e6),
        ("port_xmit_data", "ib_tx_bytes_per_second", 10.0, 40.0),
        ("infiniband_port_rcv_data", "ib_rx_bytes_per_second", 10.0, 40.0),
        ("node_infiniband_port_data_transmitted_bytes_total", "ib_tx_bytes_per_second", 10.0, 10.0),
        ("cpu_usage_idle", "cpu_usage_ratio", 80.0, 0.2),
        ("mem_used_percent", "memory_usage_ratio", 25.0, 0.25),
    ],
)
def test_an_alias_is_converted_to_the_canonical_unit(
    column: str, metric: str, raw: float, value: float
) -> None:
    found = CATALOGUE.resolve(column)
    assert found.metric.name == metric
    assert found.factor * raw + found.offset == pytest.approx(value)


@pytest.mark.parametrize(
    ("column", "counter"),
    [
        ("DCGM_FI_PROF_PCIE_TX_BYTES", False),
        ("DCGM_FI_PROF_NVLINK_RX_BYTES", False),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", False),
        ("PCIE_TX_BYTES_TOTAL", True),
        ("DCGM_FI_PROF_PCIE_RX_BYTES_TOTAL", True),
        ("node_cpu_seconds_total", True),
        ("node_disk_read_bytes_total", True),
        ("node_infiniband_link_downed_total", True),
        ("ib_link_downed", True),
        ("tx_prio3_pause", True),
        ("gpu_power_watts", False),
        ("ib_tx_bytes_per_second", False),
        ("ib_tx_bytes_per_second:counter", True),
    ],
)
def test_only_true_counters_are_counters(column: str, counter: bool) -> None:
    assert CATALOGUE.resolve(column).counter is counter


def test_a_canonical_name_is_in_its_own_unit() -> None:
    for metric in CATALOGUE:
        found = CATALOGUE.resolve(metric.name)
        assert (found.metric, found.factor, found.offset, found.rank) == (metric, 1.0, 0.0, 0)


def test_an_unknown_name_is_an_unbounded_gauge_of_its_own() -> None:
    found = CATALOGUE.resolve("disk_latency")
    metric = found.metric
    assert (metric.name, metric.known, metric.kind, metric.family) == (
        "disk_latency",
        False,
        "gauge",
        "other",
    )
    assert (metric.lower, metric.upper) == (-math.inf, math.inf)
    assert CATALOGUE.metric("disk_latency") == metric


@pytest.mark.parametrize("near", ["gpu_power_watt", "GPU_POWER_WATTS", "gpu.power.watts", "power"])
def test_a_name_that_is_only_similar_is_not_guessed(near: str) -> None:
    assert not CATALOGUE.resolve(near).metric.known


def test_dcgm_names_are_known_in_any_case() -> None:
    found = CATALOGUE.resolve("dcgm_fi_dev_gpu_util")
    assert found == CATALOGUE.resolve("DCGM_FI_DEV_GPU_UTIL")


def test_a_dcgm_field_id_is_a_name_only_where_ids_are_expected() -> None:
    assert not CATALOGUE.resolve("155").metric.known
    assert CATALOGUE.resolve("155", dcgm_ids=True).metric.name == "gpu_power_watts"
    assert CATALOGUE.resolve("203", dcgm_ids=True).factor == 0.01


@pytest.mark.parametrize(
    "old_and_new",
    [
        ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
        ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
        ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL"),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"),
    ],
)
def test_names_before_and_after_dcgm_4_6_mean_the_same(old_and_new: tuple[str, str]) -> None:
    old, new = map(CATALOGUE.resolve, old_and_new)
    assert (old.metric, old.factor, old.counter) == (new.metric, new.factor, new.counter)


def test_every_metric_has_limits_on_both_sides_unless_it_is_a_count() -> None:
    for metric in CATALOGUE:
        assert math.isfinite(metric.lower)
        assert math.isfinite(metric.upper) or metric.kind == "counter"


def test_a_counted_metric_is_seen_as_its_rate() -> None:
    assert CATALOGUE.metric("ib_link_downed").seen_unit == "1/s"
    assert CATALOGUE.metric("gpu_power_watts").seen_unit == "W"


def test_xid_is_sticky_and_32_bit_port_counters_saturate() -> None:
    assert CATALOGUE.metric("gpu_xid_error").sticky
    assert CATALOGUE.metric("ib_transmit_wait_per_second").saturating


def test_every_active_counter_of_dcgm_exporter_that_the_table_names_is_known() -> None:
    text = payload("dcgm_exporter/default-counters.csv").decode()
    names = {row[0].strip() for row in csv.reader(text.splitlines()) if len(row) > 1}
    expected = {
        "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE",
        "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE",
        "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES",
    }  # fmt: skip
    assert expected <= names
    assert all(CATALOGUE.resolve(name).metric.known for name in expected)


def test_a_user_may_add_a_metric_with_aliases() -> None:
    entries = {
        "metrics": {
            "fan_speed_ratio": {
                "unit": "ratio",
                "scope": "machine",
                "family": "thermal",
                "upper": 1,
                "aliases": ["fan", {"name": "fan_percent", "factor": 0.01}],
            }
        }
    }
    extended = CATALOGUE.extended(entries)
    found = extended.resolve("fan_percent")
    assert (found.metric.name, found.factor, found.rank) == ("fan_speed_ratio", 0.01, 2)
    assert not CATALOGUE.resolve("fan_percent").metric.known


def test_a_user_may_override_a_limit_and_every_alias_obeys() -> None:
    extended = CATALOGUE.extended({"metrics": {"gpu_power_watts": {"upper": 400}}})
    assert extended.metric("gpu_power_watts").upper == 400
    assert extended.resolve("DCGM_FI_DEV_POWER_USAGE").metric.upper == 400
    assert extended.metric("gpu_power_watts").unit == "W"


def test_a_user_may_correct_the_factor_of_an_alias() -> None:
    alias = {"name": "DCGM_FI_DEV_GPU_UTIL_RATIO", "factor": 0.01}
    extended = CATALOGUE.extended({"metrics": {"gpu_utilization_ratio": {"aliases": [alias]}}})
    assert extended.resolve("DCGM_FI_DEV_GPU_UTIL_RATIO").factor == 0.01


def test_an_alias_takes_its_name_out_of_the_ignored_ones() -> None:
    assert CATALOGUE.ignored("node_load15")
    extended = CATALOGUE.extended({"metrics": {"load": {"aliases": ["node_load15"]}}})
    assert not extended.ignored("node_load15")
    assert extended.ignored("node_load5")


def test_entries_may_stand_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[metrics.fan]\nunit = "1/s"\naliases = ["fan_rpm"]\n')
    assert CATALOGUE.extended(path).resolve("fan_rpm").metric.unit == "1/s"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"metrix": {}}, "catalogue.metrix: unknown key"),
        ({"metrics": []}, "metrics: must be a table"),
        ({"metrics": {"a": 1}}, "metrics.a: must be a table"),
        ({"metrics": {"ts": {}}}, "metrics.ts: this name cannot be a metric"),
        ({"metrics": {"a:counter": {}}}, "metrics.a:counter: this name cannot be a metric"),
        ({"metrics": {"a": {"uppr": 1}}}, "metrics.a.uppr: unknown key"),
        ({"metrics": {"a": {"kind": "rate"}}}, "metrics.a.kind: 'rate' is not one of"),
        ({"metrics": {"a": {"family": "x"}}}, "metrics.a.family: 'x' is not one of"),
        ({"metrics": {"a": {"upper": "1"}}}, "metrics.a.upper: '1' is not a number"),
        ({"metrics": {"a": {"upper": True}}}, "metrics.a.upper: True is not a number"),
        ({"metrics": {"a": {"lower": 2, "upper": 1}}}, "metrics.a.lower: 2 is not below upper 1"),
        ({"metrics": {"a": {"unit": 3}}}, "metrics.a.unit: 3 is not a str"),
        ({"metrics": {"a": {"aliases": "b"}}}, "metrics.a.aliases: must be a list"),
        ({"metrics": {"a": {"aliases": [{}]}}}, "metrics.a.aliases[0].name: None cannot be"),
        ({"metrics": {"a": {"aliases": ["b", "b"]}}}, "metrics.a.aliases[1]: 'b' is already"),
        (
            {"metrics": {"a": {"aliases": ["gpu_power_watts"]}}},
            "metrics.a.aliases[0]: 'gpu_power_watts' is itself a metric",
        ),
        (
            {"metrics": {"a": {"aliases": [{"name": "b", "factor": 0}]}}},
            "metrics.a.aliases[0].factor: must be finite and not 0",
        ),
        (
            {"metrics": {"a": {"aliases": [{"name": "b", "counter": True, "factor": -1}]}}},
            "metrics.a.aliases[0].factor: a counter cannot be inverted",
        ),
        (
            {"metrics": {"a": {"aliases": [{"name": "b", "where": {"cpu": "["}}]}}},
            "metrics.a.aliases[0].where.cpu: not a regular expression",
        ),
        (
            {"metrics": {"a": {"aliases": [{"name": "b", "scale": 2}]}}},
            "metrics.a.aliases[0].scale: unknown key",
        ),
        ({"ignore": {"names": [1]}}, "ignore.names: must be texts"),
    ],
)
def test_a_bad_entry_gets_one_line_that_names_the_key(entries: Any, message: str) -> None:
    with pytest.raises(CatalogueError, match=re.escape(message)) as caught:
        CATALOGUE.extended(entries)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"none\.toml: cannot be read"):
        CATALOGUE.extended(tmp_path / "none.toml")


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("metrics = [")
    with pytest.raises(CatalogueError, match=r"bad\.toml: not valid TOML"):
        CATALOGUE.extended(path)


def test_a_bad_entry_changes_nothing() -> None:
    before = dict(CATALOGUE.entries.aliases)
    with pytest.raises(CatalogueError):
        CATALOGUE.extended({"metrics": {"a": {"aliases": ["b"]}, "c": {"kind": "x"}}})
    assert dict(CATALOGUE.entries.aliases) == before
