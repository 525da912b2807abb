"""Telegraf's JSON: one metric, or a batch ``{"metrics": [...]}``.

A metric is ``{"name": "cpu", "tags": {...}, "fields": {"usage_idle": 97.1}, "timestamp": n}``;
its fields are known to the catalogue as ``cpu_usage_idle``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ingest.formats.fields import FieldReader
from ingest.formats.protocol import Context, rejected, too_large
from ingest.samples import Decoded, Rejected
from ingest.timestamps import number_to_ns, parse_ns


class _Metric(msgspec.Struct):
    name: str
    fields: dict[str, Any]
    timestamp: int | float | str
    tags: dict[str, str] = {}


class _Batch(msgspec.Struct):
    metrics: list[msgspec.Raw]


class TelegrafJsonDecoder:
    """Reasons: ``too_large``, ``undecodable``, ``bad_timestamp``, and those of normalise."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._fields = FieldReader(context)
        self._one = msgspec.json.Decoder(_Metric).decode
        self._batch = msgspec.json.Decoder(_Batch).decode

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
            fault = too_large(message, origin, self.context.rules)
            if fault is not None:
                refused.append(fault)
                continue
            try:
                metrics = [bytes(raw) for raw in self._batch(message).metrics]
            except (msgspec.MsgspecError, RecursionError, UnicodeError):
                self._read(message, origin, refused)
                continue
            for number, metric in enumerate(metrics):
                self._read(metric, f"{origin}, metric {number}", refused)
        return self._fields.assembler.take(refused)

    def flush(self) -> Decoded:
        """See `Decoder`."""
        return self._fields.assembler.take([], all_of_it=True)

    def _read(self, message: bytes, origin: str, refused: list[Rejected]) -> None:
        try:
            metric = self._one(message)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            refused.append(rejected("undecodable", origin, error, message))
            return
        stamp = metric.timestamp
        ts_ns = parse_ns(stamp) if isinstance(stamp, str) else number_to_ns(stamp)
        if ts_ns is None:
            detail = f"timestamp is {stamp!r}"
            refused.append(rejected("bad_timestamp", origin, detail, message))
            return
        tags = tuple(sorted(metric.tags.items()))
        self._fields.add(metric.name, tags, metric.fields.items(), ts_ns, origin)
