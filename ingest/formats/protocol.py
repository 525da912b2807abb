"""The seam between wire formats and everything behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ingest.assignments import Assignments
from ingest.catalogue import Catalogue
from ingest.rules import NameBudget, Rules
from ingest.samples import Decoded, Rejected

MAX_DETAIL = 200
"""Longest detail of a rejection; parsers quote what they could not read."""


class Decoder(Protocol):
    """Turns messages of one wire format into canonical samples.

    A source calls `decode` with what it has just received, in order, from one thread, and
    `flush` when nothing more comes. A decoder never raises for what is in a message, never
    lets one message spoil another, and reads no clock. It may remember names and series within
    fixed bounds; a source that goes back to re-read messages makes a new decoder.
    """

    def decode(
        self,
        messages: Sequence[bytes],
        origins: Sequence[str],
        received_ns: Sequence[int] | None = None,
    ) -> Decoded:
        """Decode some messages.

        ``origins`` names each message's place (such as ``telemetry/3@1042``).
        ``received_ns`` is when each was sent or received (nanoseconds since the epoch), the
        event time of formats that may carry none.
        """
        ...

    def flush(self) -> Decoded:
        """What was held back, waiting for the rest of a scrape (formats of single series)."""
        ...


@dataclass(slots=True)
class Context:
    """What every decoder works with."""

    catalogue: Catalogue
    rules: Rules = field(default_factory=Rules)
    assignments: Assignments = field(default_factory=Assignments)

    def budget(self) -> NameBudget:
        """A fresh bound on unknown names, one per decoder."""
        return NameBudget.of(self.rules)


def too_large(message: bytes, origin: str, rules: Rules) -> Rejected | None:
    """A rejection if the message is longer than allowed (its payload is not kept)."""
    if len(message) <= rules.max_message_bytes:
        return None
    detail = f"{len(message)} bytes, allowed are {rules.max_message_bytes}"
    return Rejected("too_large", origin, detail)


def rejected(reason: str, origin: str, detail: object, payload: bytes) -> Rejected:
    """A rejection with its detail on one line of bounded length."""
    text = " ".join(str(detail)[: 4 * MAX_DETAIL].split())[:MAX_DETAIL]
    return Rejected(reason, origin, text.encode("utf-8", "replace").decode("utf-8"), payload)
