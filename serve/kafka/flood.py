"""A bound on what one job may send, so that it cannot starve the jobs beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar


class Keyed(Protocol):
    """What is looked at of a message."""

    @property
    def key(self) -> bytes | None:
        """The job."""
        ...

    @property
    def timestamp(self) -> int:
        """Arrival in milliseconds since the epoch."""
        ...

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        ...


M = TypeVar("M", bound=Keyed)


@dataclass(frozen=True, slots=True)
class Flood:
    """Messages refused of one key within one second of arrival."""

    key: bytes | None
    second: int
    messages: int
    first_offset: int
    last_offset: int


class FloodGate:
    """Lets ``limit`` messages of a key pass per second of arrival time, in one partition.

    Arrival time stands in the message, so re-reading refuses the same ones.
    """

    def __init__(self, limit: int):
        self.limit = limit
        self._second = -1
        self._counts: Counter[bytes | None] = Counter()

    def admit(self, messages: Sequence[M]) -> tuple[Sequence[M], list[Flood]]:
        """The messages that pass, and what was refused."""
        seen = Counter((m.timestamp // 1000, m.key) for m in messages)
        seconds = {second for second, _ in seen}
        over = any(
            count + (self._counts[key] if second == self._second else 0) > self.limit
            for (second, key), count in seen.items()
        )
        if over or (len(seconds) > 1 and not _ascending(messages)):
            return self._admit_each(messages)
        if seconds:
            last = max(seconds)
            if last != self._second:
                self._second, self._counts = last, Counter()
            self._counts.update({key: n for (s, key), n in seen.items() if s == last})
        return messages, []

    def _admit_each(self, messages: Sequence[M]) -> tuple[list[M], list[Flood]]:
        passed: list[M] = []
        refused: dict[tuple[int, bytes | None], list[int]] = {}
        for message in messages:
            second = message.timestamp // 1000
            if second != self._second:
                self._second, self._counts = second, Counter()
            self._counts[message.key] += 1
            if self._counts[message.key] <= self.limit:
                passed.append(message)
            else:
                refused.setdefault((second, message.key), []).append(message.offset)
        floods = [
            Flood(key, second, len(offsets), offsets[0], offsets[-1])
            for (second, key), offsets in refused.items()
        ]
        return passed, floods

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to continue, as JSON."""
        counts = [
            [None if key is None else key.decode("latin-1"), n] for key, n in self._counts.items()
        ]
        return {"second": self._second, "counts": counts}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `snapshot` (an empty one is a fresh start)."""
        self._second = state.get("second", -1)
        counts: list[tuple[str | None, int]] = state.get("counts", [])
        self._counts = Counter(
            {None if key is None else key.encode("latin-1"): n for key, n in counts}
        )


def _ascending(messages: Sequence[Keyed]) -> bool:
    last = -1
    for message in messages:
        if message.timestamp < last:
            return False
        last = message.timestamp
    return True
