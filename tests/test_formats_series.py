"""Formats of single series: Prometheus text and adapter, OTLP, Telegraf, line protocol."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest

from ingest.catalogue import Catalogue
from ingest.formats.influx_line import InfluxLineDecoder
from ingest.formats.otlp_json import OtlpJsonDecoder
from ingest.formats.prometheus_kafka import PrometheusKafkaDecoder
from ingest.formats.prometheus_text import PrometheusTextDecoder
from ingest.formats.protocol import Context, Decoder
from ingest.formats.telegraf_json import TelegrafJsonDecoder
from ingest.rules import Identity, Rules
from ingest.samples import Decoded
from tests.formats_support import (
    T0_MS,
    T0_NS,
    close,
    context,
    metrics,
    origins,
    payload,
    reasons,
    rows,
    values,
)

SECOND = 10**9


def scrape(*texts: str, at: Sequence[int] | None = None, rules: Rules | None = None) -> Decoded:
    messages = [text.encode() for text in texts]
    received = at or [T0_NS + SECOND * index for index in range(len(texts))]
    return PrometheusTextDecoder(context(rules)).decode(
        messages, [f"s{index}" for index in range(len(texts))], received
    )


HOST = 'Hostname="n1",hpc_job="j"'

# ---------------------------------------------------------------- Prometheus text


def test_a_scrape_becomes_a_row_for_each_gpu_and_one_for_the_machine() -> None:
    done = scrape(
        f"""
        # TYPE DCGM_FI_DEV_GPU_UTIL gauge
        DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-a",{HOST}}} 50
        DCGM_FI_DEV_GPU_UTIL{{gpu="1",UUID="GPU-b",{HOST}}} 60
        DCGM_FI_DEV_POWER_USAGE{{gpu="1",UUID="GPU-b",{HOST}}} 700
        ipmi_dcmi_power_consumption_watts{{{HOST}}} 9000
        """
    )
    key = {"ts": T0_NS, "job": "j", "machine": "n1"}
    assert rows(done) == [
        {**key, "gpu": 0, "gpu_utilization_ratio": 0.5},
        {**key, "gpu": 1, "gpu_utilization_ratio": 0.6, "gpu_power_watts": 700.0},
        {**key, "machine_power_watts": 9000.0},
    ]


def test_a_time_in_the_line_wins_over_the_time_of_receipt() -> None:
    done = scrape(f"gpu_power_watts{{{HOST}}} 1 {T0_MS - 5000}", at=[T0_NS])
    assert rows(done)[0]["ts"] == T0_NS - 5 * SECOND


def test_a_scrape_without_any_time_is_rejected() -> None:
    decoder = PrometheusTextDecoder(context())
    done = decoder.decode([f"gpu_power_watts{{{HOST}}} 1\n".encode() * 3], ["s"])
    assert (reasons(done), done.samples.num_rows) == ({"no_time": 3}, 0)


@pytest.mark.parametrize(
    "line",
    [
        "gpu_power_watts{",
        f"gpu_power_watts{{{HOST}}}",
        f"gpu_power_watts{{{HOST}}} ",
        f"gpu_power_watts{{{HOST}}} 1 2 3",
        f"gpu_power_watts{{{HOST}}} one",
        "curl localhost:9400/metrics",
        "...",
        "<html>",
    ],
)
def test_a_broken_line_costs_only_itself(line: str) -> None:
    good = f"gpu_temperature_celsius{{{HOST}}} 50"
    done = scrape(f"{good}\n{line}\nstep_time_seconds{{{HOST}}} 2\n")
    assert reasons(done) == {"bad_line": 1}
    assert done.rejected[0].detail.startswith("line 2")
    assert metrics(done) == ["gpu_temperature_celsius", "step_time_seconds"]


def test_a_broken_line_is_still_broken_when_its_series_is_known() -> None:
    line = f"gpu_power_watts{{{HOST}}}"
    done = scrape(f"{line} 1", f"{line} \n{line} x\n{line} 1 2 3", f"{line} 3")
    assert values(done, "gpu_power_watts") == [1.0, 3.0]
    assert reasons(done) == {"bad_line": 3}


def test_a_scrape_that_is_no_text_is_rejected_alone() -> None:
    decoder = PrometheusTextDecoder(context())
    good = f"gpu_power_watts{{{HOST}}} 1".encode()
    done = decoder.decode([good, b"\xff\xfe", good], ["a", "b", "c"], [T0_NS] * 3)
    assert (reasons(done), origins(done)) == ({"undecodable": 1}, ["b"])


def test_labels_may_hold_braces_commas_and_escapes() -> None:
    line = 'gpu_power_watts{a="}{,\\"\\n # {x",' + HOST + "} 1"
    done = scrape(line, line)
    assert values(done, "gpu_power_watts") == [1.0, 1.0]


def test_an_exemplar_of_openmetrics_is_passed_over() -> None:
    done = scrape(f'step_time_seconds{{{HOST}}} 2 # {{trace_id="x"}} 0.5 1700000000\n# EOF')
    assert values(done, "step_time_seconds") == [2.0]


def test_ports_add_up_and_a_port_without_value_is_left_out() -> None:
    name = "node_infiniband_port_data_transmitted_bytes_total"
    done = scrape(
        f'{name}{{device="mlx5_0",port="1",{HOST}}} 10\n'
        f'{name}{{device="mlx5_1",port="1",{HOST}}} 20\n'
        f'{name}{{device="mlx5_2",port="1",{HOST}}} 9223372036854775794\n'
        f'{name}{{device="mlx5_3",port="1",{HOST}}} NaN\n'
    )
    assert values(done, "ib_tx_bytes_per_second:counter") == [30.0]


def test_busy_seconds_are_averaged_over_the_cpus() -> None:
    lines = [
        f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}",{HOST}}} {value}'
        for cpu in range(2)
        for mode, value in (("idle", 1000), ("user", 10 + cpu), ("system", 5))
    ]
    done = scrape("\n".join(lines))
    assert values(done, "cpu_usage_ratio:counter") == [15.5]


def test_partitions_and_loopback_do_not_count_twice() -> None:
    disk = "node_disk_read_bytes_total"
    net = "node_network_receive_bytes_total"
    lines = [
        f'{disk}{{device="{device}",{HOST}}} 1'
        for device in ("sda", "sda1", "nvme0n1", "nvme0n1p2", "dm-0", "md0", "loop3")
    ] + [f'{net}{{device="{device}",{HOST}}} 1' for device in ("eth0", "lo", "veth1", "docker0")]
    done = scrape("\n".join(lines))
    assert values(done, "disk_read_bytes_per_second:counter") == [2.0]
    assert values(done, "tcp_rx_bytes_per_second:counter") == [1.0]


def test_memory_in_use_comes_from_two_series() -> None:
    done = scrape(
        f"node_memory_MemTotal_bytes{{{HOST}}} 100\n"
        f"node_memory_MemAvailable_bytes{{{HOST}}} 25\n"
        f"node_memory_Cached_bytes{{{HOST}}} 25\n"
    )
    assert metrics(done) == ["memory_usage_ratio"]
    assert values(done, "memory_usage_ratio") == [0.75]


def test_a_gauge_that_is_declared_a_counter_stays_a_gauge() -> None:
    done = scrape(
        "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter\n"
        f'DCGM_FI_PROF_PCIE_TX_BYTES{{gpu="0",{HOST}}} 5e9'
    )
    assert metrics(done) == ["pcie_tx_bytes_per_second"]


def test_an_unknown_counter_is_a_counter_and_an_unknown_gauge_a_gauge() -> None:
    done = scrape(
        f"# TYPE errs counter\nerrs{{{HOST}}} 5\n# TYPE level gauge\nlevel{{{HOST}}} 6\n"
        f'# TYPE lat histogram\nlat_bucket{{le="1",{HOST}}} 7\nlat_sum{{{HOST}}} 7\n'
    )
    assert metrics(done) == ["errs:counter", "level"]
    assert done.counts == {"ignored": 2}


def test_series_about_the_exporter_are_ignored_and_counted() -> None:
    done = scrape(f"go_goroutines{{{HOST}}} 5\nup{{{HOST}}} 1\nnode_boot_time_seconds{{{HOST}}} 9")
    assert (done.samples.num_rows, done.counts) == (0, {"ignored": 3})


def test_a_blank_in_a_scrape_is_missing() -> None:
    done = scrape(
        f'DCGM_FI_DEV_MEMORY_TEMP{{gpu="0",{HOST}}} 9223372036854775794\n'
        f'DCGM_FI_DEV_SM_CLOCK{{gpu="0",{HOST}}} 139\n'
    )
    assert metrics(done) == ["gpu_sm_clock_hertz"]
    assert done.counts == {"blank": 1}


@pytest.mark.parametrize(
    ("labels", "machine"),
    [
        ('Hostname="a",instance="b:9400"', "a"),
        ('hostname="a",instance="b:9400"', "a"),
        ('Hostname="localhost",instance="b:9400"', "b"),
        ('instance="10.0.0.1:9400"', "10.0.0.1"),
        ('instance="[fe80::1]:9400"', "fe80::1"),
        ('node="a"', "a"),
    ],
)
def test_a_machine_is_named_by_its_best_label(labels: str, machine: str) -> None:
    done = scrape(f'gpu_power_watts{{{labels},hpc_job="j"}} 1')
    assert done.samples.column("machine").to_pylist() == [machine]


def test_localhost_is_refused() -> None:
    done = scrape('gpu_power_watts{instance="localhost:9400",hpc_job="j"} 1')
    assert reasons(done) == {"localhost": 1}


def test_the_scrape_job_is_not_the_training_job() -> None:
    done = scrape('gpu_power_watts{Hostname="a",job="dcgm-exporter"} 1')
    assert reasons(done) == {"no_job": 1}


def test_the_job_label_is_configurable() -> None:
    rules = Rules(identity=Identity(series_job=("pod",), machine=("where",)))
    done = scrape('gpu_power_watts{where="a",pod="p-7"} 1', rules=rules)
    assert rows(done)[0] == {"ts": T0_NS, "job": "p-7", "machine": "a", "gpu_power_watts": 1.0}


def test_mig_series_are_dropped_or_folded_by_the_rule() -> None:
    text = (
        f'DCGM_FI_PROF_SM_ACTIVE{{gpu="0",GPU_I_ID="1",{HOST}}} 0.2\n'
        f'DCGM_FI_PROF_SM_ACTIVE{{gpu="0",GPU_I_ID="2",{HOST}}} 0.4\n'
        f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",{HOST}}} 300\n'
    )
    dropped = scrape(text)
    assert (metrics(dropped)[0], dropped.samples.num_rows) == ("gpu_power_watts", 1)
    folded = scrape(text, rules=Rules(mig="sum"))
    ratio = [v for v in values(folded, "gpu_sm_active_ratio") if v is not None]
    assert len(ratio) == 1
    assert close(ratio[0], 0.30000000000000004)


def test_unknown_series_are_bounded() -> None:
    lines = "\n".join(f"m{index}{{{HOST}}} 1" for index in range(10))
    done = scrape(lines, rules=Rules(max_unknown_metrics=3))
    assert (len(metrics(done)), done.counts) == (3, {"unknown_name": 7})


def test_forgetting_series_loses_no_values() -> None:
    texts = [f'gpu_power_watts{{gpu="{gpu}",{HOST}}} {gpu}' for gpu in range(10)]
    done = scrape(*texts, rules=Rules(max_series=3))
    assert sorted(values(done, "gpu_power_watts")) == list(map(float, range(10)))  # type: ignore[type-var]


def test_the_sample_of_dcgm_exporter_loses_its_first_lines_only() -> None:
    text = payload("dcgm_exporter/readme_sample.prom").decode()
    done = scrape(text.replace('gpu="0"', f'gpu="0",{HOST}'))
    assert reasons(done) == {"bad_line": 4}
    assert values(done, "gpu_sm_clock_hertz") == [139e6]
    assert done.counts == {"blank": 1}


def test_the_scrape_of_node_exporter_is_read_whole() -> None:
    text = gzip.decompress(payload("node_exporter/e2e-output.txt.gz")).decode()
    labelled = [
        line
        if not line or line.startswith("#")
        else line.replace("{", f"{{{HOST},", 1)
        if "{" in line
        else line.replace(" ", f"{{{HOST}}} ", 1)
        for line in text.split("\n")
    ]
    done = scrape("\n".join(labelled))
    assert done.rejected == []
    (row,) = rows(done)
    assert row["ib_tx_bytes_per_second:counter"] == 14933760
    assert row["ib_rx_bytes_per_second:counter"] == 18527668
    assert row["disk_read_bytes_per_second:counter"] > 1e11
    assert close(row["cpu_usage_ratio:counter"], 527.3375)
    # The one port with a wait counter stands at the 32-bit maximum.
    assert "ib_transmit_wait_per_second:counter" not in row


def test_an_infiniband_scrape_without_host_names_nobody() -> None:
    done = scrape(payload("node_exporter/infiniband_only.prom").decode())
    assert (reasons(done), done.samples.num_rows) == ({"no_machine": 1}, 0)


# ---------------------------------------------------------------- prometheus-kafka-adapter


def adapter(name: str, value: str, at: float = 0, **labels: str) -> bytes:
    labels = {"instance": "n1:9100", "job": "node", "hpc_job": "j", **labels}
    stamp = f"2023-11-14T22:13:{20 + at:06.3f}Z"
    return json.dumps({"timestamp": stamp, "value": value, "name": name, "labels": labels}).encode()


def feed(decoder: Decoder, *messages: bytes) -> Decoded:
    return decoder.decode(messages, [f"t/0@{index}" for index in range(len(messages))])


def test_samples_of_one_instant_share_a_row() -> None:
    done = feed(
        PrometheusKafkaDecoder(context()),
        adapter("DCGM_FI_DEV_GPU_UTIL", "50", gpu="3"),
        adapter("DCGM_FI_DEV_POWER_USAGE", "700", gpu="3"),
        adapter("DCGM_FI_DEV_GPU_UTIL", "51", at=1, gpu="3"),
    )
    key = {"job": "j", "machine": "n1", "gpu": 3}
    assert rows(done) == [
        {"ts": T0_NS, **key, "gpu_utilization_ratio": 0.5, "gpu_power_watts": 700.0},
        {"ts": T0_NS + SECOND, **key, "gpu_utilization_ratio": 0.51},
    ]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_a_value_that_is_not_finite_is_missing(value: str) -> None:
    done = feed(PrometheusKafkaDecoder(context()), adapter("gpu_power_watts", value, gpu="0"))
    assert (metrics(done), done.counts) == ([], {"not_finite": 1})


@pytest.mark.parametrize(
    ("poison", "reason"),
    [
        (b"{}", "undecodable"),
        (adapter("x", "1")[:-4], "undecodable"),
        (adapter("x", "much"), "undecodable"),
        (adapter("x", "1").replace(b'"labels": {', b'"labels": 7, "l": {'), "undecodable"),
        (adapter("x", "1").replace(b"2023-11-14T", b""), "bad_timestamp"),
    ],
)
def test_a_poison_sample_is_rejected_alone(poison: bytes, reason: str) -> None:
    good = [adapter("gpu_power_watts", "1", at=index, gpu="0") for index in range(4)]
    done = feed(PrometheusKafkaDecoder(context()), *good[:2], poison, *good[2:])
    assert (reasons(done), origins(done)) == ({reason: 1}, ["t/0@2"])
    assert done.samples.num_rows == 4


def port(device: int, value: int, at: float) -> bytes:
    name = "node_infiniband_port_data_transmitted_bytes_total"
    return adapter(name, str(value), at, device=f"mlx5_{device}", port="1")


def test_a_scrape_cut_in_two_is_added_up_as_a_whole() -> None:
    messages = [port(device, 10 * at + device, at) for at in range(4) for device in range(3)]
    column = "ib_tx_bytes_per_second:counter"
    for step in range(1, 13):
        decoder = PrometheusKafkaDecoder(context())
        found: list[float | None] = []
        for start in range(0, len(messages), step):
            done = feed(decoder, *messages[start : start + step])
            found += values(done, column) if done.samples.num_rows else []
        found += values(decoder.flush(), column)
        assert found == [3.0, 33.0, 63.0, 93.0], step


def test_what_waits_is_released_once() -> None:
    decoder = PrometheusKafkaDecoder(context())
    assert feed(decoder, port(0, 1, 0)).samples.num_rows == 0
    assert decoder.flush().samples.num_rows == 1
    assert decoder.flush().samples.num_rows == 0


def test_a_port_of_a_scrape_that_is_over_is_counted_as_late() -> None:
    decoder = PrometheusKafkaDecoder(context())
    feed(decoder, port(0, 1, 0), port(0, 2, 1))
    assert feed(decoder, port(1, 1, 0)).counts == {"late_series": 1}


def test_a_sample_sent_twice_counts_once() -> None:
    decoder = PrometheusKafkaDecoder(context())
    feed(decoder, port(0, 1, 0), port(1, 2, 0), port(1, 2, 0))
    assert values(decoder.flush(), "ib_tx_bytes_per_second:counter") == [3.0]


HUGE = 10**400


def test_numbers_beyond_any_float_are_missing_in_every_format() -> None:
    sent = adapter("gpu_power_watts", "5", gpu="0").replace(b'"5"', str(HUGE).encode())
    told = feed(PrometheusKafkaDecoder(context()), sent)
    scraped = scrape(f"gpu_power_watts{{{HOST}}} {HUGE}")
    pushed = feed(TelegrafJsonDecoder(context()), telegraf("gpu", {"power_watts": HUGE}))
    written = line(f"gpu,{TAGS} power_watts={HUGE} {T0_NS}")
    for done in (told, scraped, pushed, written):
        assert (metrics(done), done.counts, done.rejected) == ([], {"not_finite": 1}, [])


# ---------------------------------------------------------------- OTLP/JSON


def otlp(*metrics_: dict[str, Any], host: str | None = "n1") -> bytes:
    attributes = [attribute("hpc_job", "j")]
    if host:
        attributes.append(attribute("host.name", host))
    return json.dumps(
        {
            "resourceMetrics": [
                {"resource": {"attributes": attributes}, "scopeMetrics": [{"metrics": metrics_}]}
            ]
        }
    ).encode()


def attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def point(value: Any, at: float = 0, **labels: str) -> dict[str, Any]:
    kind = "asDouble" if isinstance(value, float) else "asInt"
    return {
        kind: value,
        "timeUnixNano": str(T0_NS + int(at * SECOND)),
        "startTimeUnixNano": str(T0_NS - 10 * SECOND),
        "attributes": [attribute(key, text) for key, text in labels.items()],
    }


def gauge(name: str, *points: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "gauge": {"dataPoints": list(points)}}


def total(
    name: str, temporality: Any, *points: dict[str, Any], monotonic: bool = True
) -> dict[str, Any]:
    return {
        "name": name,
        "sum": {
            "aggregationTemporality": temporality,
            "isMonotonic": monotonic,
            "dataPoints": list(points),
        },
    }


def otel(*messages: bytes) -> Decoded:
    decoder = OtlpJsonDecoder(context())
    done = feed(decoder, *messages)
    rest = decoder.flush()
    done.samples = rest.samples if not done.samples.num_rows else done.samples
    return done


def test_gauges_and_integers_as_texts_are_read() -> None:
    done = otel(
        otlp(
            gauge("hw.gpu.utilization", point(0.5, gpu="2")),
            gauge("DCGM_FI_DEV_POWER_USAGE", point("700", gpu="2")),
        )
    )
    assert rows(done) == [
        {
            "ts": T0_NS,
            "job": "j",
            "machine": "n1",
            "gpu": 2,
            "gpu_utilization_ratio": 0.5,
            "gpu_power_watts": 700.0,
        }
    ]


@pytest.mark.parametrize("cumulative", [2, "2", "AGGREGATION_TEMPORALITY_CUMULATIVE"])
def test_a_cumulative_sum_is_a_counter(cumulative: Any) -> None:
    done = otel(otlp(total("my.errors", cumulative, point("7"))))
    assert (metrics(done), values(done, "my.errors:counter")) == (["my.errors:counter"], [7.0])


@pytest.mark.parametrize("delta", [1, "AGGREGATION_TEMPORALITY_DELTA"])
def test_a_delta_sum_is_a_rate_over_its_interval(delta: Any) -> None:
    done = otel(otlp(total("my.errors", delta, point("70"))))
    assert values(done, "my.errors") == [7.0]


def test_a_sum_that_goes_up_and_down_is_a_gauge() -> None:
    done = otel(otlp(total("my.level", 2, point("70"), monotonic=False)))
    assert values(done, "my.level") == [70.0]


def test_idle_shares_of_all_cpus_give_the_usage() -> None:
    points = [
        point(share, cpu=cpu, state=state)
        for cpu, idle in (("cpu0", 0.2), ("cpu1", 0.6))
        for state, share in (("idle", idle), ("user", 1 - idle))
    ]
    done = otel(otlp(gauge("system.cpu.utilization", *points)))
    assert close(values(done, "cpu_usage_ratio")[0], 0.6)


def test_a_point_without_recorded_value_is_a_blank() -> None:
    done = otel(otlp(gauge("x", {**point(1.0), "flags": 1})))
    assert (done.samples.num_rows, done.counts) == (0, {"blank": 1})


@pytest.mark.parametrize(
    "change", [{"asInt": "x"}, {"asInt": None}, {"timeUnixNano": "soon"}, {"timeUnixNano": 0}]
)
def test_a_bad_point_costs_only_itself(change: dict[str, Any]) -> None:
    done = otel(otlp(gauge("x", point(1), {**point(2), **change}), gauge("y", point(3))))
    assert reasons(done) == {"bad_point": 1}
    assert (values(done, "x"), values(done, "y")) == ([1.0], [3.0])


@pytest.mark.parametrize("poison", [b"", b"[]", b"{}", b'{"resourceMetrics": 5}', b"[" * 99999])
def test_a_poison_request_is_rejected_alone(poison: bytes) -> None:
    good = otlp(gauge("x", point(1)))
    done = otel(good, poison)
    assert (reasons(done), origins(done)) == ({"undecodable": 1}, ["t/0@1"])
    assert values(done, "x") == [1.0]


def test_the_sample_request_of_opentelemetry_names_no_machine() -> None:
    done = otel(payload("otlp/metrics.json"))
    assert reasons(done)["no_machine"] == 1
    assert (done.samples.num_rows, done.counts) == (0, {"ignored": 2})


def test_the_sample_request_with_a_host_is_read() -> None:
    request = json.loads(payload("otlp/metrics.json"))
    request["resourceMetrics"][0]["resource"]["attributes"] += [
        attribute("host.name", "n1"),
        attribute("hpc_job", "j"),
    ]
    done = otel(json.dumps(request).encode())
    assert rows(done) == [
        {"ts": 1544712660300000000, "job": "j", "machine": "n1", "my.gauge": 10.0}
    ]
    # The delta counter began when it ended: no interval, no rate.
    assert reasons(done) == {"bad_point": 1}


# ---------------------------------------------------------------- Telegraf and line protocol


def telegraf(name: str, fields: dict[str, Any], at: Any = T0_MS // 1000, **tags: str) -> bytes:
    tags = {"host": "n1", "job": "j", **tags}
    return json.dumps({"name": name, "tags": tags, "fields": fields, "timestamp": at}).encode()


def test_fields_are_named_after_their_measurement() -> None:
    done = feed(
        TelegrafJsonDecoder(context()),
        telegraf(
            "nvidia_smi", {"power_draw": 55.5, "utilization_gpu": 50, "pstate": "P0"}, index="1"
        ),
        telegraf("mem", {"used_percent": 25.0, "slab": None}),
    )
    key = {"ts": T0_NS, "job": "j", "machine": "n1"}
    assert rows(done) == [
        {**key, "gpu": 1, "gpu_power_watts": 55.5, "gpu_utilization_ratio": 0.5},
        {**key, "memory_usage_ratio": 0.75 - 0.5},
    ]
    assert done.counts == {"non_numeric": 1}


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_a_time_stamp_may_have_any_unit(unit: int) -> None:
    done = feed(TelegrafJsonDecoder(context()), telegraf("x", {"y": 1}, T0_NS // 10**9 * unit))
    assert rows(done)[0]["ts"] == T0_NS


def test_a_batch_holds_several_metrics_and_one_bad_one_is_named() -> None:
    batch = b'{"metrics": [%s, {"name": 7}, %s]}' % (
        telegraf("x", {"y": 1}),
        telegraf("x", {"y": 2}, T0_MS // 1000 + 1),
    )
    done = feed(TelegrafJsonDecoder(context()), batch)
    assert values(done, "x_y") == [1.0, 2.0]
    assert (reasons(done), origins(done)) == ({"undecodable": 1}, ["t/0@0, metric 1"])


def test_words_of_four_bytes_of_all_ports_add_up() -> None:
    decoder = TelegrafJsonDecoder(context())
    for device, value in (("mlx5_0", 10), ("mlx5_1", 20)):
        feed(decoder, telegraf("infiniband", {"port_xmit_data": value}, device=device, port="1"))
    assert values(decoder.flush(), "ib_tx_bytes_per_second:counter") == [120.0]


def test_the_total_of_all_cpus_is_taken_and_single_ones_are_not() -> None:
    shares = (("cpu0", 10.0), ("cpu1", 90.0), ("cpu-total", 60.0))
    messages = [telegraf("cpu", {"usage_idle": idle}, cpu=cpu) for cpu, idle in shares]
    done = feed(TelegrafJsonDecoder(context()), *messages)
    assert done.samples.num_rows == 1
    assert close(values(done, "cpu_usage_ratio")[0], 0.4)


def line(*texts: str, at: int | None = T0_NS) -> Decoded:
    decoder = InfluxLineDecoder(context())
    messages = [text.encode() for text in texts]
    received = None if at is None else [at] * len(texts)
    done = decoder.decode(messages, [f"l{i}" for i in range(len(texts))], received)
    if not done.samples.num_rows:
        done.samples = decoder.flush().samples
    return done


TAGS = "host=n1,job=j"


def test_a_line_is_read_with_every_kind_of_field() -> None:
    done = line(f'm,{TAGS} a=1,b=-2i,c=3u,d=1.5e3,e="text, = \\" x",f=true,g="4" {T0_NS}')
    (row,) = rows(done)
    assert {key: row[key] for key in row if key.startswith("m_")} == {
        "m_a": 1.0,
        "m_b": -2.0,
        "m_c": 3.0,
        "m_d": 1500.0,
        "m_g": 4.0,
    }
    assert done.counts == {"non_numeric": 2}


def test_escapes_in_names_and_tags_are_undone() -> None:
    done = line(f"my\\ m,a\\,b=c\\ d\\=e,host=rack\\ 1\\,n1,job=j x\\=y=1 {T0_NS}")
    assert rows(done) == [{"ts": T0_NS, "job": "j", "machine": "rack 1,n1", "my m_x=y": 1.0}]


def test_a_line_without_time_takes_the_time_of_receipt() -> None:
    assert rows(line(f"m,{TAGS} a=1"))[0]["ts"] == T0_NS
    assert reasons(line(f"m,{TAGS} a=1", at=None)) == {"no_time": 1}


@pytest.mark.parametrize(
    "bad",
    ["m", f"m,{TAGS}", f"m,{TAGS} ", f"m,{TAGS} a", f"m,{TAGS} a=", f"m,{TAGS} a=x",
     f"m,{TAGS} a=1 soon", f"m,{TAGS} a=1,", f'm,{TAGS} a="x', "m,host a=1", f"m,{TAGS} a=1 1 1"],
)  # fmt: skip
def test_a_bad_line_costs_only_itself(bad: str) -> None:
    done = line(f"m,{TAGS} a=1 {T0_NS}\n{bad}\n# comment\n\nm,{TAGS} a=2 {T0_NS + SECOND}")
    assert values(done, "m_a") == [1.0, 2.0]
    assert reasons(done) == {"bad_line": 1}
    assert done.rejected[0].detail.startswith("line 2")


@pytest.mark.parametrize("name", ["json_v2_large_numbers", "json_v2_null"])
def test_the_expected_lines_of_telegraf_are_read(name: str) -> None:
    text = payload(f"telegraf/{name}.expected.out").decode()
    tagged = "\n".join(
        part.replace("file", f"file,{TAGS}", 1) for part in text.splitlines() if part
    )
    done = line(tagged)
    assert reasons(done) == {}
    found = [v for m in metrics(done) for v in values(done, m) if v is not None]
    assert found


def test_a_user_may_add_an_alias_for_a_telegraf_field() -> None:
    entries = {"metrics": {"gpu_power_watts": {"aliases": ["acme_watts"]}}}
    decoder = TelegrafJsonDecoder(Context(Catalogue.default().extended(entries)))
    done = feed(decoder, telegraf("acme", {"watts": 7}, gpu="0"))
    assert metrics(done) == ["gpu_power_watts"]
