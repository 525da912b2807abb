"""OpenTelemetry metrics as OTLP/JSON, one ``ExportMetricsServiceRequest`` a message.

The collector's Kafka exporter writes these with ``encoding: otlp_json``; field names and the
JSON mapping are those of opentelemetry-proto (``metrics.proto``): 64-bit integers are texts,
enumerations are numbers (texts are accepted).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ingest.formats.assembly import Assembler, Declared
from ingest.formats.protocol import Context, rejected, too_large
from ingest.samples import Decoded, Rejected
from ingest.values import as_float

NO_RECORDED_VALUE = 1
"""Bit of a data point's flags: the series has just gone missing."""


class _Attribute(msgspec.Struct):
    key: str
    value: dict[str, Any] | None = None


class _Point(msgspec.Struct, rename="camel"):
    time_unix_nano: int | str = 0
    start_time_unix_nano: int | str = 0
    as_double: float | str | None = None
    as_int: int | str | None = None
    attributes: list[_Attribute] = []
    flags: int = 0


class _Gauge(msgspec.Struct, rename="camel"):
    data_points: list[_Point] = []


class _Sum(msgspec.Struct, rename="camel"):
    data_points: list[_Point] = []
    aggregation_temporality: int | str = 0
    is_monotonic: bool = False


class _Metric(msgspec.Struct):
    name: str
    gauge: _Gauge | None = None
    sum: _Sum | None = None


class _Scope(msgspec.Struct):
    metrics: list[_Metric] = []


class _Resource(msgspec.Struct):
    attributes: list[_Attribute] = []


class _ResourceMetrics(msgspec.Struct, rename="camel"):
    resource: _Resource | None = None
    scope_metrics: list[_Scope] = []


class _Request(msgspec.Struct, rename="camel"):
    resource_metrics: list[_ResourceMetrics]


class OtlpJsonDecoder:
    """Gauges and sums; histograms and summaries are no value of a machine and are ignored.

    A delta sum becomes a rate over its own interval. Reasons: ``too_large``, ``undecodable``,
    ``bad_point``, and those of `ingest.normalise`.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._assembler = Assembler(context, context.rules.identity.series_job, hold=True)
        self._decode = msgspec.json.Decoder(_Request).decode

    def decode(
        self,
        messages: Sequence[bytes],
        origins: Sequence[str],
        received_ns: Sequence[int] | None = None,
    ) -> Decoded:
        """See `Decoder`."""
        del received_ns
        refused: list[Rejected] = []
        for message, origin in zip(messages, origins, strict=True):
            fault = too_large(message, origin, self.context.rules) or self._read(message, origin)
            if fault is not None:
                refused.append(fault)
        return self._assembler.take(refused)

    def flush(self) -> Decoded:
        """See `Decoder`."""
        return self._assembler.take([], all_of_it=True)

    def _read(self, message: bytes, origin: str) -> Rejected | None:
        try:
            request = self._decode(message)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            return rejected("undecodable", origin, error, message)
        bad, example = 0, ""
        for labels, metric in _metrics(request):
            if metric.gauge is None and metric.sum is None:
                self._assembler.counts["ignored"] += 1
            elif metric.gauge is not None:
                for point in metric.gauge.data_points:
                    if not self._point(metric.name, labels, point, "gauge", None, origin):
                        bad, example = bad + 1, example or metric.name
            elif metric.sum is not None:
                counter: Declared = "counter" if metric.sum.is_monotonic else "gauge"
                delta = _is_delta(metric.sum.aggregation_temporality)
                if delta and not metric.sum.is_monotonic:
                    self._assembler.counts["ignored"] += len(metric.sum.data_points)
                    continue
                for point in metric.sum.data_points:
                    start = point.start_time_unix_nano if delta else None
                    if not self._point(metric.name, labels, point, counter, start, origin):
                        bad, example = bad + 1, example or metric.name
        if bad:
            detail = f"{bad} data points without a usable time or value, the first of {example}"
            fault = rejected("bad_point", origin, detail, message)
            return Rejected(fault.reason, origin, fault.detail, message, rows=bad)
        return None

    def _point(
        self,
        name: str,
        labels: Mapping[str, str],
        point: _Point,
        declared: Declared,
        delta_from: int | str | None,
        origin: str,
    ) -> bool:
        assembler = self._assembler
        if point.flags & NO_RECORDED_VALUE:
            assembler.counts["blank"] += 1
            return True
        raw = point.as_double if point.as_double is not None else point.as_int
        if raw is None:
            return False
        try:
            ts_ns = int(point.time_unix_nano)
            value = as_float(raw)
            seconds = 0.0 if delta_from is None else (ts_ns - int(delta_from)) / 1e9
        except ValueError:
            return False
        if not 0 < ts_ns < 2**63 or (delta_from is not None and seconds <= 0):
            return False
        own = {a.key: _text(a.value) for a in point.attributes}
        everything = {**labels, **own}
        if delta_from is not None:
            # A rate already: it goes where a canonical value goes.
            resolution = self.context.catalogue.resolve(name)
            value = value * resolution.factor / seconds
            name, declared = resolution.metric.name, "gauge"
        key = (name, declared, tuple(sorted(everything.items())))
        target = assembler.known(key)
        if target is None:
            target = assembler.target(key, name, everything, declared)
        if isinstance(target, str):
            assembler.counts[target] += 1
        else:
            assembler.add(target, ts_ns, value, origin)
        return True


def _metrics(request: _Request) -> Iterator[tuple[dict[str, str], _Metric]]:
    for group in request.resource_metrics:
        attributes = group.resource.attributes if group.resource is not None else []
        labels = {a.key: _text(a.value) for a in attributes}
        for scope in group.scope_metrics:
            for metric in scope.metrics:
                yield labels, metric


def _text(value: Mapping[str, Any] | None) -> str:
    """An attribute value as a label: texts, numbers and booleans; others are empty."""
    for kind, content in (value or {}).items():
        if kind in ("stringValue", "intValue", "doubleValue", "boolValue"):
            return str(content)
    return ""


def _is_delta(temporality: int | str) -> bool:
    return temporality in (1, "1", "AGGREGATION_TEMPORALITY_DELTA")
