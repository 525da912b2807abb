"""Normalisation: blanks first, then units, then limits; every row accounted for."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.assignments import Assignment, Assignments
from ingest.catalogue import Catalogue
from ingest.normalise import ITEMISED, normalise
from ingest.rules import Identity, NameBudget, Rules
from ingest.samples import KEY_FIELDS, Decoded
from tests.formats_support import (
    FUZZ,
    T0_NS,
    metrics,
    origins,
    payload,
    raw,
    reasons,
    rows,
    values,
)

CATALOGUE = Catalogue.default()


def run(table: pa.Table, rules: Rules | None = None, **more: Any) -> Decoded:
    return normalise(table, CATALOGUE, "file", rules, **more)


def test_a_batch_has_the_key_columns_in_order() -> None:
    samples = run(raw(gpu=3, gpu_power_watts=1.0)).samples
    assert list(samples.schema)[:4] == list(KEY_FIELDS)
    assert rows(Decoded(samples)) == [
        {"ts": T0_NS, "job": "j", "machine": "n1", "gpu": 3, "gpu_power_watts": 1.0}
    ]


def test_an_empty_table_is_an_empty_batch() -> None:
    done = run(raw(gpu_power_watts=pa.array([], pa.float64())).slice(0, 0))
    assert (done.samples.num_rows, done.rejected) == (0, [])


def blanks() -> list[Any]:
    cases = json.loads(payload("edge_cases/edge_cases.json"))
    (case,) = (c for c in cases if c["case"] == "DCGM blanks")
    return [value for group in case["values"].values() for value in group]


def test_every_published_blank_is_missing_and_counted() -> None:
    for blank in blanks():
        kinds: list[Any] = [pa.array([blank])]
        if not isinstance(blank, str):
            kinds += [pa.array([float(blank)]), pa.array([str(blank)])]
        for column in kinds:
            done = run(raw(DCGM_FI_DEV_POWER_USAGE=column))
            assert metrics(done) == [], (blank, column.type)
            assert done.counts == {"blank": 1}, (blank, column.type)


@pytest.mark.parametrize("text", ["N/A", "[N/A]", "N/A (no PMA)", "", " ", "<<<NULL>>>"])
def test_a_text_that_means_no_value_is_missing_beside_good_rows(text: str) -> None:
    done = run(raw(port_xmit_data=["12", text]))
    assert values(done, "ib_tx_bytes_per_second:counter") == [48.0, None]
    assert done.counts == {"blank": 1}


def test_the_largest_number_that_is_no_blank_stays() -> None:
    below = [2147483631.0, 2147483648.0, 140737488355327.0, 140737488355344.0]
    assert values(run(raw(anything=below)), "anything") == below


def test_a_metric_without_blank_rule_keeps_sentinel_numbers() -> None:
    catalogue = CATALOGUE.extended({"metrics": {"count": {"blank": "none"}}})
    done = normalise(raw(count=[2147483632]), catalogue, "file")
    assert values(done, "count") == [2147483632.0]


def test_corrupt_utilisation_is_missing_and_counted() -> None:
    corrupt = [808334905, 686103, 627618, 127622, 2619, 1980, 4294967295]
    done = run(raw(DCGM_FI_DEV_GPU_UTIL=[97, *corrupt]))
    assert values(done, "gpu_utilization_ratio") == [0.97] + [None] * len(corrupt)
    assert done.counts == {"limit": len(corrupt)}


def test_profiling_fields_that_are_blank_do_not_touch_the_power_beside_them() -> None:
    table = raw(
        DCGM_FI_DEV_POWER_USAGE=69.437,
        DCGM_FI_PROF_SM_ACTIVE=140737488355328.0,
        DCGM_FI_PROF_PCIE_TX_BYTES=pa.array([9223372036854775792]),
        DCGM_FI_PROF_NVLINK_TX_BYTES=pa.array([9223372036854775792], pa.uint64()),
    )
    done = run(table)
    assert metrics(done) == ["gpu_power_watts"]
    assert done.counts == {"blank": 3}


def test_nan_and_infinity_are_missing_and_counted() -> None:
    done = run(raw(x=[1.0, math.nan, math.inf, -math.inf, None]))
    assert values(done, "x") == [1.0, None, None, None, None]
    assert done.counts == {"not_finite": 3}


@pytest.mark.parametrize("text", ["nan", "NaN", "+Inf", "-inf", "Infinity"])
def test_a_text_that_is_no_finite_number_is_missing(text: str) -> None:
    done = run(raw(x=["1", text]))
    assert (values(done, "x"), done.counts) == ([1.0, None], {"not_finite": 1})


def test_the_port_counters_of_sysfs_are_read_as_they_stand_in_the_files() -> None:
    files = json.loads(payload("infiniband/sysfs_node_exporter.json"))
    ports: dict[str, dict[str, str]] = {}
    for path, text in files.items():
        head, _, counter = path.partition("/counters/")
        if counter:
            ports.setdefault(head, {})[counter] = text
    done = run(raw(**{c: [p.get(c) for p in ports.values()] for c in ("port_xmit_data",)}))
    expected = [
        None if "N/A" in text else 4.0 * int(text)
        for text in (port.get("port_xmit_data", "N/A") for port in ports.values())
    ]
    assert values(done, "ib_tx_bytes_per_second:counter") == expected
    assert 14933760.0 in expected
    assert done.counts == {"blank": 1}


def test_columns_glued_together_are_no_number() -> None:
    done = run(raw(x=["0           N/A161262243332996445", "7"]))
    assert (values(done, "x"), done.counts) == ([None, 7.0], {"non_numeric": 1})


@pytest.mark.parametrize("text", ["+7", "7", "7.", " 7 ", "70e-1", "0.7E1"])
def test_a_number_may_arrive_as_a_text(text: str) -> None:
    assert values(run(raw(x=[text])), "x") == [7.0]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([5], pa.int8()),
        pa.array([5], pa.uint64()),
        pa.array([5.0], pa.float16()),
        pa.array([5.0], pa.float32()),
        pa.array(["5"]).dictionary_encode(),
        pa.array([5]).dictionary_encode(),
        pa.array(["5"], pa.large_string()),
        pa.array(["5"], pa.string_view()),
        pa.array([5], pa.int64()).cast(pa.decimal128(21, 2)),
    ],
    ids=lambda column: str(column.type),
)
def test_a_metric_may_have_any_numeric_type(column: Any) -> None:
    assert values(run(raw(x=column)), "x") == [5.0]


@pytest.mark.parametrize(
    "column",
    [pa.array([True]), pa.array([[1.0]]), pa.array([{"a": 1}]), pa.array([b"1"])],
    ids=lambda column: str(column.type),
)
def test_a_column_that_holds_no_numbers_is_counted_and_dropped(column: Any) -> None:
    done = run(raw(x=column, y=1.0))
    assert (metrics(done), done.counts) == (["y"], {"non_numeric": 1})


def test_a_saturated_counter_says_nothing() -> None:
    name = "node_infiniband_port_transmit_wait_total"
    done = run(raw(**{name: [4294967294.0, 4294967295.0]}))
    column = "ib_transmit_wait_per_second:counter"
    assert (values(done, column), done.counts) == ([4294967294.0, None], {"saturated": 1})


def test_a_counter_is_not_judged_by_the_limits_of_its_rate() -> None:
    done = run(raw(node_disk_read_bytes_total=[5e15, -1.0]))
    assert values(done, "disk_read_bytes_per_second:counter") == [5e15, None]


def test_the_canonical_column_wins_and_an_alias_fills_its_gaps() -> None:
    done = run(raw(nvidia_smi_utilization_gpu=[10, 20, 30], gpu_utilization_ratio=[0.5, None, 0.7]))
    assert values(done, "gpu_utilization_ratio") == [0.5, 0.2, 0.7]


def test_the_order_of_columns_does_not_decide_between_aliases() -> None:
    first = run(raw(power_draw=[1.0], DCGM_FI_DEV_POWER_USAGE=[2.0]))
    second = run(raw(DCGM_FI_DEV_POWER_USAGE=[2.0], power_draw=[1.0]))
    assert values(first, "gpu_power_watts") == values(second, "gpu_power_watts") == [2.0]


def test_a_rate_and_a_counter_of_one_metric_do_not_speak_in_the_same_row() -> None:
    done = run(raw(DCGM_FI_PROF_PCIE_TX_BYTES=[5.0, None], PCIE_TX_BYTES_TOTAL=[1e9, 2e9]))
    assert values(done, "pcie_tx_bytes_per_second") == [5.0, None]
    assert values(done, "pcie_tx_bytes_per_second:counter") == [None, 2e9]


def test_raw_words_and_scaled_bytes_are_not_mixed() -> None:
    done = run(raw(port_xmit_data=[10], node_infiniband_port_data_transmitted_bytes_total=[41]))
    assert values(done, "ib_tx_bytes_per_second:counter") == [41.0]


def test_priorities_are_parts_of_one_whole() -> None:
    done = run(raw(tx_prio0_pause=[1, 2, None], tx_prio3_pause=[10, None, None]))
    assert values(done, "pfc_tx_packets_per_second:counter") == [11.0, 2.0, None]


def test_memory_in_use_comes_from_two_columns() -> None:
    table = raw(
        node_memory_MemAvailable_bytes=[25.0, 25.0, 25.0],
        node_memory_MemTotal_bytes=[100, 0, None],
    )
    done = run(table)
    assert metrics(done) == ["memory_usage_ratio"]
    assert values(done, "memory_usage_ratio") == [0.75, None, None]


def test_a_column_given_twice_is_coalesced() -> None:
    table = pa.table(
        [[1_700_000_000_000] * 2, ["j"] * 2, ["n1"] * 2, [1.0, None], [9.0, 2.0]],
        names=["ts", "job", "machine", "x", "x"],
    )
    assert values(run(table), "x") == [1.0, 2.0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ts": None}, "bad_timestamp"),
        ({"ts": 17}, "bad_timestamp"),
        ({"ts": "yesterday"}, "bad_timestamp"),
        ({"machine": None}, "no_machine"),
        ({"machine": "  "}, "no_machine"),
        ({"machine": "localhost"}, "localhost"),
        ({"machine": "LocalHost"}, "localhost"),
        ({"machine": "127.0.0.1"}, "localhost"),
        ({"job": None}, "no_job"),
        ({"job": ""}, "no_job"),
        ({"job": "a\0b"}, "bad_name"),
        ({"machine": "n\x1b[2J"}, "bad_name"),
        ({"gpu": -1}, "bad_gpu"),
        ({"gpu": 1.5}, "bad_gpu"),
        ({"gpu": "GPU-7"}, "bad_gpu"),
        ({"gpu": 10_000}, "bad_gpu"),
    ],
)
def test_a_row_without_identity_is_rejected_and_its_neighbour_stays(
    change: dict[str, Any], reason: str
) -> None:
    good = {"ts": "2024-01-01T00:00:00Z", "job": "j", "machine": "n1", "gpu": None, "x": 1.0}
    bad = {**good, **change}
    if isinstance(bad["ts"], int):
        good["ts"] = 1_700_000_000_000
    if isinstance(bad["gpu"], str):
        good["gpu"] = "0"
    done = run(pa.Table.from_pylist([good, bad, good]))
    assert reasons(done) == {reason: 1}
    assert origins(done) == ["file, row 1"]
    assert values(done, "x") == [1.0, 1.0]


def test_refused_names_are_configurable() -> None:
    rules = Rules(identity=Identity(refused=frozenset({"n1"})))
    assert reasons(run(raw(x=1.0), rules)) == {"localhost": 1}


def test_many_rejected_rows_share_one_summary() -> None:
    count = 10 * ITEMISED
    done = run(raw(x=[1.0] * count, machine=None))
    assert reasons(done) == {"no_machine": count}
    assert len(done.rejected) == ITEMISED + 1
    assert done.rejected[-1].origin == f"file, row {ITEMISED}"


@pytest.mark.parametrize("label", ["machine", "Hostname", "hostname", "host", "node"])
def test_a_machine_is_found_under_its_usual_names(label: str) -> None:
    table = pa.table({"ts": [T0_NS], "job": ["j"], label: ["n7"], "x": [1.0]})
    assert rows(run(table)) == [{"ts": T0_NS, "job": "j", "machine": "n7", "x": 1.0}]


def test_a_column_called_index_is_no_gpu() -> None:
    done = run(raw(index=[7, 123456], x=1.0))
    assert (done.samples.num_rows, done.samples.column("gpu").null_count) == (2, 2)


def test_a_job_may_be_a_number_even_where_some_are_missing() -> None:
    done = run(raw(job=pa.array([12345.0, None]), x=[1.0, 2.0]))
    assert done.samples.column("job").to_pylist() == ["12345"]
    assert reasons(done) == {"no_job": 1}


def test_an_assignment_gives_the_job_that_a_row_does_not_say() -> None:
    assignments = Assignments()
    assignments.add(Assignment("night", ("n1",), 0, T0_NS))
    assignments.add(Assignment("day", ("n1",), T0_NS))
    table = raw(
        ts=pa.array([T0_NS - 1, T0_NS, T0_NS, T0_NS], pa.timestamp("ns")),
        job=pa.array([None, None, "own", None]),
        machine=["n1", "n1", "n1", "n2"],
        x=1.0,
    )
    done = run(table, assignments=assignments)
    assert done.samples.column("job").to_pylist() == ["night", "day", "own"]
    assert reasons(done) == {"no_job": 1}


def test_labels_that_are_texts_are_no_metrics() -> None:
    done = run(raw(UUID="GPU-604ac76c", modelName="H100", x=1.0))
    assert (metrics(done), done.counts) == (["x"], {})


def test_unknown_names_are_bounded_over_calls() -> None:
    budget = NameBudget(2)
    first = run(raw(a=1.0, b=1.0, c=1.0), budget=budget)
    second = run(raw(b=1.0, d=[1.0, 2.0]), budget=budget)
    assert (metrics(first), metrics(second)) == (["a", "b"], ["b"])
    assert (first.counts, second.counts) == ({"unknown_name": 1}, {"unknown_name": 2})


def test_a_name_of_absurd_length_is_dropped() -> None:
    done = run(raw(**{"x" * 300: 1.0, "y": 1.0}))
    assert (metrics(done), done.counts) == (["y"], {"unknown_name": 1})


def mig_table() -> pa.Table:
    return raw(
        gpu=[0, 0, 0, 1],
        GPU_I_ID=[None, "1", "2", "7"],
        DCGM_FI_DEV_POWER_USAGE=[300.0, None, None, None],
        DCGM_FI_PROF_SM_ACTIVE=[None, 0.25, 0.75, 0.5],
        DCGM_FI_DEV_FB_USED=[None, 1.0, 2.0, 4.0],
    )


def test_mig_instances_are_left_out_by_default() -> None:
    done = run(mig_table())
    assert rows(done) == [
        {"ts": T0_NS, "job": "j", "machine": "n1", "gpu": 0, "gpu_power_watts": 300.0}
    ]
    assert done.counts == {"mig": 3}


def test_mig_instances_are_folded_by_each_metrics_rule() -> None:
    done = run(mig_table(), Rules(mig="sum"))
    by_gpu = {(r["gpu"], "gpu_power_watts" in r): r for r in rows(done)}
    assert by_gpu[0, False]["gpu_sm_active_ratio"] == 0.5
    assert by_gpu[0, False]["gpu_memory_used_bytes"] == 3 * 1048576
    assert by_gpu[1, False]["gpu_sm_active_ratio"] == 0.5
    assert len(by_gpu) == 3


@pytest.mark.parametrize(
    "column",
    [
        pa.array([T0_NS // 10**9], pa.timestamp("s")),
        pa.array([T0_NS // 10**6], pa.timestamp("ms", tz="UTC")),
        pa.array([T0_NS // 10**6], pa.timestamp("ms", tz="Europe/Berlin")),
        pa.array([T0_NS // 10**3], pa.timestamp("us")),
        pa.array([T0_NS], pa.timestamp("ns")),
        pa.array([T0_NS // 10**9]),
        pa.array([T0_NS // 10**6]),
        pa.array([T0_NS], pa.uint64()),
        pa.array([T0_NS / 1e9]),
        pa.array(["2023-11-14T22:13:20Z"]),
        pa.array(["2023-11-14T23:13:20+01:00"]).dictionary_encode(),
        pa.array(["2023-11-14 22:13:20.000"]),
        pa.array([datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_time_may_have_any_form(column: Any) -> None:
    (row,) = rows(run(raw(ts=column, x=1.0)))
    assert row["ts"] == T0_NS


def test_rows_survive_in_their_order_and_the_input_is_not_changed() -> None:
    table = raw(x=[3.0, 1.0, 2.0], DCGM_FI_DEV_GPU_UTIL=[1.0, 4e9, 3.0])
    before = table.to_pylist()
    assert values(run(table), "x") == [3.0, 1.0, 2.0]
    assert table.to_pylist() == before


@FUZZ
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "ts": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.just(T0_NS)),
                "job": st.one_of(st.none(), st.sampled_from(["", " ", "j"])),
                "machine": st.one_of(st.none(), st.sampled_from(["n1", "localhost", "", "n2"])),
                "gpu": st.one_of(st.none(), st.integers(-(2**31), 2**31)),
                "x": st.one_of(st.none(), st.floats(), st.just(2147483632.0)),
            }
        ),
        max_size=20,
    )
)
def test_every_row_comes_out_or_is_rejected(content: list[dict[str, Any]]) -> None:
    schema = pa.schema(
        [("ts", "int64"), ("job", "string"), ("machine", "string"), ("gpu", "int64"), ("x", "f8")]
    )
    done = run(pa.Table.from_pylist(content, schema=schema))
    assert done.samples.num_rows + sum(reasons(done).values()) == len(content)
    if "x" in metrics(done):
        assert np.isfinite(done.samples.column("x").drop_null().to_numpy()).all()
