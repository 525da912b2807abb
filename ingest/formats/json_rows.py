"""JSON rows ``{"ts", "job", "machine", "gpu"?, METRIC: number|null, ...}``.

A message is one row, an array of rows, or newline-delimited rows. The decoder learns the keys
of a topic's rows and compiles them into a typed decoder, which reads a row without building a
dict. What that decoder refuses (a new key, an odd value, broken JSON) is read again slowly and
alone, so that a poison message costs only itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from ingest.assignments import Assignment, parse_assignment
from ingest.formats.json_text import TwiceAKeyError, parse, with_twice_a_key
from ingest.formats.protocol import Context, rejected, too_large
from ingest.formats.raw_table import RawTable
from ingest.formats.row_shape import RowShape
from ingest.normalise import normalise
from ingest.samples import Decoded, Rejected, empty_samples
from ingest.values import as_float

CHUNK_ROWS = 1000
"""Rows turned into columns together; few enough that they are still in the CPU's cache."""

T = TypeVar("T")

_FAULTS = (msgspec.MsgspecError, RecursionError, UnicodeError)


class JsonDecoder:
    """See the module; ``NaN`` and ``Infinity``, which JSON does not have, are missing values.

    Reasons: ``too_large``, ``undecodable``, ``too_deep``, ``not_a_row``, ``too_many_rows``,
    ``duplicate_key``, ``bad_assignment``, and those of `ingest.normalise`.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._budget = context.budget()
        self._shape = RowShape(context, self._budget)

    def decode(
        self,
        messages: Sequence[bytes],
        origins: Sequence[str],
        received_ns: Sequence[int] | None = None,
    ) -> Decoded:
        """See `Decoder`."""
        del received_ns
        batch = _Batch()
        self._read(messages, origins, batch)
        self._take(batch)
        self._take_slow(batch)
        if not batch.raw.rows:
            return Decoded(empty_samples(), batch.rejected, +batch.counts)
        context = self.context
        done = normalise(
            batch.raw.finish(),
            context.catalogue,
            batch.raw.origin,
            context.rules,
            self._budget,
            context.assignments,
        )
        return Decoded(done.samples, batch.rejected + done.rejected, batch.counts + done.counts)

    def flush(self) -> Decoded:
        """Rows are never held back."""
        return Decoded(empty_samples())

    # ------------------------------------------------------------ the fast way

    def _read(self, messages: Sequence[bytes], origins: Sequence[str], batch: _Batch) -> None:
        limit = self.context.rules.max_message_bytes
        for start in range(0, len(messages), CHUNK_ROWS):
            some = messages[start : start + CHUNK_ROWS]
            places = origins[start : start + CHUNK_ROWS]
            if max(map(len, some)) <= limit:
                try:
                    rows = list(map(self._shape.one, some))
                except _FAULTS:
                    pass
                else:
                    self._take(batch)
                    batch.add(some, places, range(len(rows)), rows)
                    continue
            for message, origin in zip(some, places, strict=True):
                self._read_one(message, origin, batch)

    def _read_one(self, message: bytes, origin: str, batch: _Batch) -> None:
        fault = too_large(message, origin, self.context.rules)
        if fault is not None:
            batch.reject(fault)
            return
        try:
            rows = self._shape.many(message) if message[:1] == b"[" else [self._shape.one(message)]
        except _FAULTS:
            self._read_slowly(message, origin, batch)
        else:
            if len(rows) > self.context.rules.max_rows_per_message:
                batch.reject(rejected("too_many_rows", origin, len(rows), b""), len(rows))
                return
            batch.add([message], [origin], [len(batch.rows)], rows)
            if len(batch.rows) >= CHUNK_ROWS:
                self._take(batch)

    def _take(self, batch: _Batch) -> None:
        """The rows read so far become a chunk of columns."""
        rows, messages, origins, first = batch.rows, batch.messages, batch.origins, batch.first
        batch.rows, batch.messages, batch.origins, batch.first = [], [], [], []
        if not rows:
            return
        columns, present = self._shape.columns(rows)
        twice = with_twice_a_key(messages, present)
        if not twice:
            batch.raw.append(len(rows), columns, origins, first)
            return
        # Which of the two values holds is anybody's guess, so such messages are refused.
        ends = [*first[1:], len(rows)]
        for index in sorted(twice):
            detail = "a key stands twice in a row"
            fault = rejected("duplicate_key", origins[index], detail, messages[index])
            batch.reject(fault, ends[index] - first[index])
        kept = [index for index in range(len(messages)) if index not in twice]
        self._read([messages[i] for i in kept], [origins[i] for i in kept], batch)
        self._take(batch)

    # ------------------------------------------------------------ the slow way

    def _read_slowly(self, message: bytes, origin: str, batch: _Batch) -> None:
        try:
            content = parse(message)
        except RecursionError:
            return batch.reject(rejected("too_deep", origin, "nested too deeply", message))
        except TwiceAKeyError as error:
            return batch.reject(rejected("duplicate_key", origin, error, message))
        except ValueError as error:
            if message.count(b"\n") > 0 and b"}" in message:
                return self._read_lines(message, origin, batch)
            return batch.reject(rejected("undecodable", origin, error, message))
        rows = content if isinstance(content, list) else [content]
        if len(rows) > self.context.rules.max_rows_per_message:
            return batch.reject(rejected("too_many_rows", origin, len(rows), b""), len(rows))
        if isinstance(content, dict) and isinstance(content.get("machines"), list):
            return self._assign(message, origin, batch)
        if self._learn(rows, batch):
            return self._read_one(message, origin, batch)
        for number, row in enumerate(rows):
            place = origin if content is not rows else f"{origin}, row {number}"
            if isinstance(row, dict):
                batch.slow.append((place, row))
            else:
                batch.reject(rejected("not_a_row", place, "not a JSON object", message))
        return None

    def _read_lines(self, message: bytes, origin: str, batch: _Batch) -> None:
        lines = message.count(b"\n") + 1
        if lines > self.context.rules.max_rows_per_message:
            return batch.reject(rejected("too_many_rows", origin, f"{lines} lines", b""), lines)
        rows, places = [], []
        other: list[tuple[int, bytes]] = []
        for number, line in enumerate(message.split(b"\n"), 1):
            text = line.strip()
            if text.startswith(b"{") and text.endswith(b"}"):
                rows.append(text)
                places.append(f"{origin}, line {number}")
            elif text:
                other.append((number, text))
        if other:
            place = f"{origin}, line {other[0][0]}"
            detail = f"not a JSON object, nor are {len(other) - 1} other lines"
            payload = b"\n".join(text for _, text in other)
            batch.reject(rejected("undecodable", place, detail, payload), len(other))
        return self._read(rows, places, batch)

    def _assign(self, message: bytes, origin: str, batch: _Batch) -> None:
        assignment = parse_assignment(message, origin)
        if isinstance(assignment, Assignment):
            self.context.assignments.add(assignment)
            batch.counts["assignments"] += 1
        else:
            batch.reject(assignment)

    def _learn(self, rows: Sequence[Any], batch: _Batch) -> bool:
        """Whether the rows had keys that the compiled decoder did not know, and now does."""
        new = self._shape.unknown(row for row in rows if isinstance(row, dict))
        if new:
            self._take(batch)
            self._shape.learn(new)
        return bool(new)

    def _take_slow(self, batch: _Batch) -> None:
        rows, batch.slow = batch.slow, []
        if not rows:
            return
        columns: dict[str, list[Any]] = {name: [None] * len(rows) for name in self._shape.builds}
        for index, (_, row) in enumerate(rows):
            for key, value in row.items():
                if key not in columns:
                    batch.counts["unknown_name"] += value is not None
                elif isinstance(value, (bool, dict, list)):
                    batch.counts["non_numeric"] += 1
                else:
                    columns[key][index] = _bounded(value)
        arrays = {name: self._shape.builds[name](values) for name, values in columns.items()}
        batch.raw.append(len(rows), arrays, [place for place, _ in rows], range(len(rows)))


class _Batch:
    """What one call of `decode` has gathered so far."""

    def __init__(self) -> None:
        self.raw = RawTable()
        self.rejected: list[Rejected] = []
        self.counts: Counter[str] = Counter()
        self.rows: list[msgspec.Struct] = []
        self.messages: Sequence[bytes] = []
        self.origins: Sequence[str] = []
        self.first: Sequence[int] = []
        self.slow: list[tuple[str, dict[str, Any]]] = []

    def add(
        self,
        messages: Sequence[bytes],
        origins: Sequence[str],
        first: Sequence[int],
        rows: list[msgspec.Struct],
    ) -> None:
        if not self.rows:
            # As they are: origins may be written only when somebody asks for them.
            self.messages, self.origins, self.first = messages, origins, first
            self.rows = rows
            return
        self.messages = _extended(self.messages, messages)
        self.origins = _extended(self.origins, origins)
        self.first = _extended(self.first, first)
        self.rows += rows

    def reject(self, fault: Rejected | None, rows: int = 1) -> None:
        if fault is not None:
            fault = Rejected(fault.reason, fault.origin, fault.detail, fault.payload, max(rows, 1))
            self.rejected.append(fault)


def _extended(items: Sequence[T], more: Sequence[T]) -> list[T]:
    """``items`` itself, grown, if it is a list."""
    grown: list[T] = items if isinstance(items, list) else list(items)
    grown.extend(more)
    return grown


def _bounded(value: Any) -> Any:
    return as_float(value) if isinstance(value, int) and abs(value) >= 2**63 else value
