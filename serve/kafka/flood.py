"""A bound on what one job may send, so that it cannot starve the jobs beside it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol, TypeVar

_TIMESTAMP, _KEY = attrgetter("timestamp"), attrgetter("key")


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
        if not messages:
            return messages, []
        # Whole lists at once: this sees every message, and most are fine.
        stamps = list(map(_TIMESTAMP, messages))
        keys = list(map(_KEY, messages))
        first, last = min(stamps) // 1000, max(stamps) // 1000
        if first != last and stamps != sorted(stamps):
            return self._admit_each(messages)
        seen: Counter[bytes | None] = Counter()
        start = 0
        while start < len(keys):
            second = stamps[start] // 1000
            end = len(keys)
            if second != last:
                end = bisect_left(stamps, 1000 * (second + 1), lo=start)
            seen = Counter(keys[start:end])
            if second == self._second:
                seen.update(self._counts)
            if max(seen.values()) > self.limit:
                return self._admit_each(messages)
            start = end
        self._second, self._counts = last, seen
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
