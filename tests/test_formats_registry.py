"""Which format a name or content type means, and what every decoder keeps to."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.formats.registry import CONTENT_TYPES, FORMATS, format_of, make_decoder
from ingest.samples import KEY_FIELDS
from tests.formats_support import FUZZ, T0_MS, T0_NS, context, raw, reasons
from tests.test_formats_arrow import stream


@pytest.mark.parametrize(
    ("content_type", "name"),
    [
        ("application/json", "json"),
        ("application/json; charset=utf-8", "json"),
        ("Application/JSON", "json"),
        ("application/x-ndjson", "json"),
        ("application/json; format=otlp_json", "otlp_json"),
        ('application/json;format="telegraf_json"', "telegraf_json"),
        ("application/json; format=nothing", None),
        ("application/vnd.apache.arrow.stream", "arrow"),
        ("text/plain; version=0.0.4; charset=utf-8", "prometheus"),
        ("application/openmetrics-text; version=1.0.0", "prometheus"),
        ("prometheus_kafka_adapter", "prometheus_kafka_adapter"),
        ("influx_line", "influx_line"),
        ("image/png", None),
        ("", None),
    ],
)
def test_a_content_type_means_a_format(content_type: str, name: str | None) -> None:
    assert format_of(content_type) == name


def test_every_content_type_has_a_decoder() -> None:
    assert set(CONTENT_TYPES.values()) <= set(FORMATS)


def test_an_unknown_format_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"unknown telemetry format 'xml'; known: json, arrow"):
        make_decoder("xml", context())


def good(name: str, index: int) -> bytes:
    """One message of a format that holds gpu_power_watts of machine m<index>."""
    machine = f"m{index}"
    labels = {"Hostname": machine, "hpc_job": "j", "gpu": "0"}
    attributes = [{"key": k, "value": {"stringValue": v}} for k, v in labels.items()]
    attributes[0]["key"] = "host.name"
    point = {"asDouble": 5, "timeUnixNano": str(T0_NS), "attributes": attributes}
    contents: dict[str, bytes] = {
        "json": json.dumps(
            {"ts": T0_MS, "job": "j", "machine": machine, "gpu": 0, "gpu_power_watts": 5}
        ).encode(),
        "arrow": stream(raw(machine=machine, gpu_power_watts=5.0)),
        "prometheus": (
            f'gpu_power_watts{{Hostname="{machine}",hpc_job="j",gpu="0"}} 5 {T0_MS}\n'
        ).encode(),
        "otlp_json": json.dumps(
            {
                "resourceMetrics": [
                    {
                        "scopeMetrics": [
                            {
                                "metrics": [
                                    {"name": "gpu_power_watts", "gauge": {"dataPoints": [point]}}
                                ]
                            }
                        ]
                    }
                ]
            }
        ).encode(),
        "telegraf_json": json.dumps(
            {
                "name": "gpu",
                "tags": {"host": machine, "job": "j", "gpu": "0"},
                "fields": {"power_watts": 5},
                "timestamp": T0_MS,
            }
        ).encode(),
        "influx_line": f"gpu,host={machine},job=j,gpu=0 power_watts=5 {T0_NS}".encode(),
        "prometheus_kafka_adapter": json.dumps(
            {
                "timestamp": "2023-11-14T22:13:20Z",
                "value": "5",
                "name": "gpu_power_watts",
                "labels": labels,
            }
        ).encode(),
    }
    return contents[name]


poison = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")),
    st.builds(
        lambda name, cut, extra: good(name, 0)[:cut] + extra,
        st.sampled_from(sorted(FORMATS)),
        st.integers(0, 300),
        st.binary(max_size=3),
    ),
    st.builds(lambda name: good(name, 9).replace(b'"', b"'"), st.sampled_from(sorted(FORMATS))),
)


@pytest.mark.parametrize("name", sorted(FORMATS))
@FUZZ
@given(st.lists(poison, max_size=5), st.integers(0, 5))
def test_no_decoder_raises_and_good_neighbours_survive(
    name: str, fuzz: list[bytes], place: int
) -> None:
    messages = [*fuzz[:place], good(name, 1), good(name, 2), *fuzz[place:]]
    names = [f"o{index}" for index in range(len(messages))]
    decoder = make_decoder(name, context())
    done = decoder.decode(messages, names, [T0_NS] * len(messages))
    held = decoder.flush()
    found = zip(
        done.samples.column("machine").to_pylist(),
        done.samples.column("gpu_power_watts").to_pylist(),
        strict=True,
    )
    assert {("m1", 5.0), ("m2", 5.0)} <= set(found)
    assert list(done.samples.schema)[:4] == list(held.samples.schema)[:4] == list(KEY_FIELDS)
    assert all(item.reason and item.origin and "\n" not in item.detail for item in done.rejected)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_batch_of_no_messages_is_empty(name: str) -> None:
    decoder = make_decoder(name, context())
    assert decoder.decode([], []).samples.num_rows == decoder.flush().samples.num_rows == 0


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_message_of_too_many_bytes_is_refused_unread(name: str) -> None:
    ctx = context()
    limit = ctx.rules.max_message_bytes
    done = make_decoder(name, ctx).decode([b"x" * (limit + 1)], ["o"], [T0_NS])
    assert reasons(done) == {"too_large": 1}
