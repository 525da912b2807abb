"""From the messages of one partition to samples: format by header, decoded in bulk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Protocol, overload

from ingest.assignments import Assignments
from ingest.formats.protocol import Decoder
from ingest.samples import Decoded, Rejected, empty_samples
from serve.kafka.flood import FloodGate
from serve.source import concat_decoded

CONTENT_TYPE = "content-type"
MAX_CONTENT_TYPES = 64

_VALUE, _OFFSET, _HEADERS = attrgetter("value"), attrgetter("offset"), attrgetter("headers")


class Message(Protocol):
    """What is used of `kafka.consumer.fetcher.ConsumerRecord`."""

    @property
    def offset(self) -> int:
        """Place in the partition."""
        ...

    @property
    def timestamp(self) -> int:
        """Arrival in milliseconds since the epoch (or as the producer says)."""
        ...

    @property
    def key(self) -> bytes | None:
        """The job."""
        ...

    @property
    def value(self) -> bytes | None:
        """Telemetry in some wire format."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """``content-type`` tells the format."""
        ...


class DecoderFactory(Protocol):
    """Makes a fresh decoder for a format's name or content type; None if nobody knows it."""

    def __call__(self, kind: str, assignments: Assignments) -> Decoder | None: ...


class Origins(Sequence[str]):
    """``topic/partition/offset`` of each message, written only when asked for."""

    def __init__(self, prefix: str, offsets: Sequence[int]):
        self._prefix = prefix
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[str]:
        prefix = self._prefix
        return (f"{prefix}/{offset}" for offset in self._offsets)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return Origins(self._prefix, self._offsets[index])
        return f"{self._prefix}/{self._offsets[index]}"


class PartitionReader:
    """Decodes the messages of one partition, in order.

    Deterministic in the messages, the calls' cuts and the state that `restore` took. What is
    of no use becomes `Rejected` with ``payload_bytes`` of the message; it never raises.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        make: DecoderFactory,
        default_format: str,
        *,
        payload_bytes: int,
        message_bytes: int,
        messages_per_second: int,
        job_of_machine: Mapping[str, str] | None = None,
    ):
        self.prefix = f"{topic}/{partition}"
        self.assignments = Assignments(job_of_machine or {})
        self._make = make
        self._default = default_format
        self._payload_bytes = payload_bytes
        self._message_bytes = message_bytes
        self._gate = FloodGate(messages_per_second)
        self._decoders: dict[bytes | str, Decoder | None] = {}

    def read(self, messages: Sequence[Message]) -> Decoded:
        """Samples of the messages (in their order within each format) and the rejected rest."""
        messages, floods = self._gate.admit(messages)
        rejected = [
            Rejected(
                "flood",
                f"{self.prefix}/{flood.first_offset}",
                f"{flood.messages} messages up to offset {flood.last_offset} with key "
                f"{flood.key!r}: over {self._gate.limit} within a second",
                rows=flood.messages,
            )
            for flood in floods
        ]
        groups: dict[bytes | str, Sequence[Message]] = {self._default: messages}
        if not self._all_plain(messages):
            groups = self._by_kind(messages, rejected)
        parts = [Decoded(empty_samples(), rejected)]
        parts += [self._decode(kind, group) for kind, group in groups.items() if group]
        return concat_decoded(parts)

    def _all_plain(self, messages: Sequence[Message]) -> bool:
        """Whether every message is of the default format and has a value of allowed size."""
        if any(map(_HEADERS, messages)):
            return False
        values = list(map(_VALUE, messages))
        return all(values) and max(map(len, values), default=0) <= self._message_bytes

    def _by_kind(
        self, messages: Sequence[Message], rejected: list[Rejected]
    ) -> dict[bytes | str, Sequence[Message]]:
        """The messages of each format; those without a value or too large are ``rejected``."""
        groups: dict[bytes | str, list[Message]] = {}
        default: bytes | str = self._default
        for message in messages:
            if not message.value or len(message.value) > self._message_bytes:
                rejected.append(self._unusable(message))
                continue
            kind = default
            for name, content in message.headers:
                if content and name.lower() == CONTENT_TYPE:
                    kind = content
            if kind in groups:
                groups[kind].append(message)
            else:
                groups[kind] = [message]
        return dict(groups)

    def flush(self) -> Decoded:
        """What decoders held back; they begin anew, so that a snapshot need not hold them."""
        parts = [d.flush() for d in self._decoders.values() if d is not None]
        self._decoders = {}
        return concat_decoded(parts)

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to continue after `flush`, as JSON."""
        return {"gate": self._gate.snapshot(), "assignments": self.assignments.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `snapshot`; an empty one is a fresh start."""
        self._gate.restore(state.get("gate", {}))
        self.assignments.restore(state.get("assignments", ()))
        self._decoders = {}

    def _decode(self, kind: bytes | str, messages: Sequence[Message]) -> Decoded:
        values: list[bytes] = list(map(_VALUE, messages))
        offsets: list[int] = list(map(_OFFSET, messages))
        origins = Origins(self.prefix, offsets)
        decoder = self._decoder(kind)
        if decoder is None:
            detail = f"no decoder for content-type {_text(kind)!r}"
            refused = [
                Rejected("unknown_format", origin, detail, value[: self._payload_bytes])
                for origin, value in zip(origins, values, strict=True)
            ]
            return Decoded(empty_samples(), refused)
        decoded = decoder.decode(values, origins, [m.timestamp * 1_000_000 for m in messages])
        if decoded.rejected:
            by_offset = dict(zip(offsets, values, strict=True))
            decoded.rejected = [self._with_payload(r, by_offset) for r in decoded.rejected]
        return decoded

    def _unusable(self, message: Message) -> Rejected:
        origin = f"{self.prefix}/{message.offset}"
        value = message.value
        if not value:
            return Rejected("empty", origin, "no value", value)
        detail = f"{len(value)} bytes, allowed are {self._message_bytes}"
        return Rejected("too_large", origin, detail, value[: self._payload_bytes])

    def _decoder(self, kind: bytes | str) -> Decoder | None:
        if kind not in self._decoders:
            if len(self._decoders) >= MAX_CONTENT_TYPES:
                return None  # somebody invents content types
            self._decoders[kind] = self._make(_text(kind), self.assignments)
        return self._decoders[kind]

    def _with_payload(self, rejected: Rejected, values: dict[int, bytes]) -> Rejected:
        payload = rejected.payload
        if payload is None:
            payload = values.get(offset_of(rejected.origin, self.prefix))
        if payload is not None:
            payload = payload[: self._payload_bytes]
        return replace(rejected, payload=payload)


def offset_of(origin: str, prefix: str) -> int:
    """The offset in an origin ``prefix/offset``, whatever stands behind it; -1 if none."""
    if not origin.startswith(prefix + "/"):
        return -1
    rest = origin[len(prefix) + 1 :]
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return int(digits) if digits else -1


def _text(kind: bytes | str) -> str:
    return kind if isinstance(kind, str) else kind[:200].decode("utf-8", "replace")
