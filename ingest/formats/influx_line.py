"""InfluxDB line protocol: ``measurement,tag=value field=1.5,other=2i 1700000000000000000``.

One line is one measurement; see the line protocol reference of InfluxDB 2 for the escapes. No
maintained Python library reads it (the clients only write), hence these few lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ingest.formats.fields import FieldReader, Tags
from ingest.formats.protocol import Context, rejected, too_large
from ingest.samples import Decoded, Rejected
from ingest.timestamps import number_to_ns

_KEY = r"(?:[^\\,= ]|\\.)+"
_HEAD = re.compile(r"((?:[^\\, ]|\\.)+)((?:," + _KEY + "=" + _KEY + r")*) +")
_TAG = re.compile(r",(" + _KEY + r")=(" + _KEY + r")")
_FIELD = re.compile(r"(" + _KEY + r')=("(?:[^"\\]|\\.)*"|[^", ]+)')
_ESCAPED = re.compile(r"\\([,= \"\\])")
_BOOLEAN = re.compile(r"t|T|true|True|TRUE|f|F|false|False|FALSE")
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[iu]?")


class InfluxLineDecoder:
    """Lines without a time take the time when their message was received.

    Reasons: ``too_large``, ``undecodable``, ``bad_line``, ``no_time``, and those of normalise.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._fields = FieldReader(context)
        self._heads: dict[str, tuple[str, Tags]] = {}

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
        return self._fields.assembler.take(refused)

    def flush(self) -> Decoded:
        """See `Decoder`."""
        return self._fields.assembler.take([], all_of_it=True)

    def _read(self, message: bytes, origin: str, at_ns: int | None) -> Rejected | None:
        try:
            text = message.decode("utf-8")
        except UnicodeDecodeError as error:
            return rejected("undecodable", origin, error, message)
        bad: list[tuple[int, str, str]] = []
        for number, line in enumerate(text.split("\n"), 1):
            line = line.strip()
            if line and line[0] != "#":
                reason = self._line(line, origin, at_ns)
                if reason:
                    bad.append((number, line, reason))
        if not bad:
            return None
        number, line, reason = bad[0]
        more = f" and {len(bad) - 1} more lines" if len(bad) > 1 else ""
        fault = rejected(reason, origin, f"line {number}{more}: {line}", line.encode())
        return Rejected(reason, origin, fault.detail, fault.payload, rows=len(bad))

    def _line(self, line: str, origin: str, at_ns: int | None) -> str | None:
        head = _HEAD.match(line)
        if head is None:
            return "bad_line"
        fields: list[tuple[str, str | float | bool]] = []
        position = head.end()
        while True:
            found = _FIELD.match(line, position)
            if found is None:
                return "bad_line"
            value = _value(found[2])
            if value is None:
                return "bad_line"
            fields.append((_plain(found[1]), value))
            position = found.end()
            if line[position : position + 1] != ",":
                break
            position += 1
        rest = line[position:].strip()
        if rest and not re.fullmatch(r"-?\d{1,19}", rest):
            return "bad_line"
        ts_ns = number_to_ns(int(rest)) if rest else at_ns
        if ts_ns is None:
            return "no_time"
        name, tags = self._head(head[1], head[2])
        self._fields.add(name, tags, fields, ts_ns, origin)
        return None

    def _head(self, name: str, tags: str) -> tuple[str, Tags]:
        key = name + tags
        found = self._heads.get(key)
        if found is None:
            if len(self._heads) >= self.context.rules.max_series:
                self._heads.clear()
            found = self._heads[key] = _plain(name), tuple(sorted(_tags(tags)))
        return found


def _tags(text: str) -> Iterator[tuple[str, str]]:
    for tag in _TAG.finditer(text):
        yield _plain(tag[1]), _plain(tag[2])


def _plain(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def _value(text: str) -> str | float | bool | None:
    if text[0] == '"':
        return _plain(text[1:-1])
    number = _NUMBER.fullmatch(text)
    if number is not None:
        return float(number[1])
    return text[0] in "tT" if _BOOLEAN.fullmatch(text) else None
