"""Which decoder reads which wire format, by name and by content type."""

from __future__ import annotations

from collections.abc import Callable

from ingest.formats.arrow_stream import ArrowDecoder
from ingest.formats.influx_line import InfluxLineDecoder
from ingest.formats.json_rows import JsonDecoder
from ingest.formats.otlp_json import OtlpJsonDecoder
from ingest.formats.prometheus_kafka import PrometheusKafkaDecoder
from ingest.formats.prometheus_text import PrometheusTextDecoder
from ingest.formats.protocol import Context, Decoder
from ingest.formats.telegraf_json import TelegrafJsonDecoder

FORMATS: dict[str, Callable[[Context], Decoder]] = {
    "json": JsonDecoder,
    "arrow": ArrowDecoder,
    "prometheus": PrometheusTextDecoder,
    "otlp_json": OtlpJsonDecoder,
    "telegraf_json": TelegrafJsonDecoder,
    "influx_line": InfluxLineDecoder,
    "prometheus_kafka_adapter": PrometheusKafkaDecoder,
}
"""Every wire format by its name in configurations, record headers and ``format=`` parameters."""

CONTENT_TYPES: dict[str, str] = {
    "application/json": "json",
    "application/x-ndjson": "json",
    "application/jsonl": "json",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/vnd.apache.arrow.file": "arrow",
    "application/openmetrics-text": "prometheus",
    "text/plain": "prometheus",
    "application/x-influx-line": "influx_line",
    "text/x-influx-line": "influx_line",
}


def make_decoder(name: str, context: Context) -> Decoder:
    """A new decoder of a format; ValueError names the formats there are."""
    try:
        return FORMATS[name](context)
    except KeyError:
        known = ", ".join(FORMATS)
        raise ValueError(f"unknown telemetry format {name!r}; known: {known}") from None


def format_of(content_type: str) -> str | None:
    """The format that a content type means, None if none.

    A ``format`` parameter decides where several formats share a type, such as
    ``application/json; format=otlp_json``; a bare format name is understood, too.
    """
    kind, *parameters = (part.strip() for part in content_type.split(";"))
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "format":
            value = value.strip().strip('"')
            return value if value in FORMATS else None
    return kind if kind in FORMATS else CONTENT_TYPES.get(kind.lower())
