"""Prometheus text exposition and OpenMetrics, as exporters serve them.

Lines are read by prometheus_client's parser, one at a time, so that one broken line costs only
itself; a series seen before is recognised by its text and not parsed again.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families

from ingest.formats.assembly import Assembler, Declared, Target
from ingest.formats.protocol import Context, rejected, too_large
from ingest.samples import Decoded, Rejected
from ingest.timestamps import number_to_ns

_KINDS: dict[str, Declared] = {
    "counter": "counter",
    "histogram": "distribution",
    "gaugehistogram": "distribution",
    "summary": "distribution",
    "info": "distribution",
    "stateset": "distribution",
}
_FAULTS = (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError)
_PARTS = ("_bucket", "_count", "_sum", "_created")


class PrometheusTextDecoder:
    """One message is one scrape; its time is in the lines or else when it was received.

    Reasons: ``too_large``, ``undecodable`` (no UTF-8), ``bad_line``, ``no_time``, and those of
    `ingest.normalise`.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        labels = context.rules.identity.series_job
        self._assembler = Assembler(context, labels, hold=False)

    def decode(
        self,
        messages: Sequence[bytes],
        origins: Sequence[str],
        received_ns: Sequence[int] | None = None,
    ) -> Decoded:
        """See `Decoder`."""
        refused: list[Rejected] = []
        for index, (message, origin) in enumerate(zip(messages, origins, strict=True)):
            fault = too_large(message, origin, self.context.rules)
            if fault is None:
                at = received_ns[index] if received_ns is not None else None
                fault = self._read(message, origin, at)
            if fault is not None:
                refused.append(fault)
        return self._assembler.take(refused)

    def flush(self) -> Decoded:
        """A scrape is complete; nothing is held back."""
        return self._assembler.take([], all_of_it=True)

    def _read(self, message: bytes, origin: str, at_ns: int | None) -> Rejected | None:
        try:
            text = message.decode("utf-8")
        except UnicodeDecodeError as error:
            return rejected("undecodable", origin, error, message)
        kinds: dict[str, Declared] = {}
        bad: list[tuple[int, str]] = []
        timeless = 0
        for number, line in enumerate(text.split("\n"), 1):
            line = line.strip()
            if not line:
                continue
            if line[0] == "#":
                words = line.split(None, 3)
                if len(words) > 3 and words[1] == "TYPE":
                    kinds[words[2]] = _KINDS.get(words[3].strip(), "gauge")
                continue
            # What follows " # {" is an exemplar of OpenMetrics, unless it stands in a label.
            bare, exemplar, _ = line.rpartition(" # {")
            read = (self._line(bare, kinds) if exemplar else None) or self._line(line, kinds)
            if read is None:
                bad.append((number, line))
                continue
            target, value, ts_ns = read
            if isinstance(target, str):
                self._assembler.counts[target] += 1
            elif ts_ns is None and at_ns is None:
                timeless += 1
            else:
                self._assembler.add(target, ts_ns or at_ns or 0, value, origin)
        if bad:
            number, line = bad[0]
            more = f" and {len(bad) - 1} more lines" if len(bad) > 1 else ""
            detail = f"line {number}{more}: {line}"
            fault = rejected("bad_line", origin, detail, line.encode())
            return Rejected(fault.reason, origin, fault.detail, fault.payload, rows=len(bad))
        if timeless:
            detail = "no time stamps in it, and the source does not say when it was received"
            return Rejected("no_time", origin, detail, message, rows=timeless)
        return None

    def _line(
        self, line: str, kinds: dict[str, Declared]
    ) -> tuple[Target | str, float, int | None] | None:
        head, brace, tail = line.rpartition("}")
        if not brace:
            head, _, tail = line.partition(" ")
        words = tail.split()
        if not 1 <= len(words) <= 2:
            return None
        try:
            value = float(words[0])
            ts_ns = number_to_ns(float(words[1])) if words[1:] else None
        except ValueError:
            return None
        target = self._assembler.known(head)
        if target is None:
            try:
                (family,) = text_string_to_metric_families(line + "\n")
                (sample,) = family.samples
            except _FAULTS:
                return None
            declared = _declared(sample.name, kinds)
            target = self._assembler.target(head, sample.name, sample.labels, declared)
        return target, value, ts_ns


def _declared(name: str, kinds: dict[str, Declared]) -> Declared:
    if any(kinds.get(name.removesuffix(part)) == "distribution" for part in _PARTS):
        return "distribution"
    return kinds.get(name) or kinds.get(name.removesuffix("_total")) or "gauge"
