"""JSON of prometheus-kafka-adapter: one sample of one series a message.

``{"timestamp": RFC 3339, "value": "12.5", "name": "...", "labels": {...}}``; the value is a
text and may be ``NaN`` or ``+Inf``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ingest.formats.assembly import Assembler, Declared
from ingest.formats.protocol import Context, rejected, too_large
from ingest.samples import Decoded, Rejected
from ingest.timestamps import number_to_ns, parse_ns
from ingest.values import as_float


class _Sample(msgspec.Struct):
    timestamp: str | int | float
    value: str | int | float
    name: str
    labels: msgspec.Raw = msgspec.Raw(b"{}")


class PrometheusKafkaDecoder:
    """A scrape is spread over many messages, so folded series wait for the next scrape.

    Reasons: ``too_large``, ``undecodable``, ``bad_timestamp``, and those of `ingest.normalise`.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._assembler = Assembler(context, context.rules.identity.series_job, hold=True)
        self._decode = msgspec.json.Decoder(_Sample).decode
        self._labels = msgspec.json.Decoder(dict[str, str]).decode

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
        assembler = self._assembler
        try:
            sample = self._decode(message)
            key = (sample.name, bytes(sample.labels))
            target = assembler.known(key)
            if target is None:
                labels = self._labels(sample.labels)
                # The adapter does not pass TYPE on; by convention counters end in _total.
                name = sample.name
                declared: Declared = "counter" if name.endswith("_total") else "gauge"
                if "le" in labels or "quantile" in labels:
                    declared = "distribution"
                target = assembler.target(key, name, labels, declared)
            value = as_float(sample.value)
        except (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError) as error:
            return rejected("undecodable", origin, error, message)
        stamp = sample.timestamp
        ts_ns = parse_ns(stamp) if isinstance(stamp, str) else number_to_ns(stamp)
        if ts_ns is None:
            return rejected("bad_timestamp", origin, f"timestamp is {stamp!r}", message)
        if isinstance(target, str):
            assembler.counts[target] += 1
        else:
            assembler.add(target, ts_ns, value, origin)
        return None
