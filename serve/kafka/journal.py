"""Re-reading cuts messages exactly as they were cut before.

Detection is deterministic in the calls made to it, and the wall clock is one of them (an idle
source closes ticks). So between two snapshots the calls are written down - where each batch
ended, and which time it was - and after a restart the very same calls are made again. What
they lead to is stored already and is dropped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from serve.kafka.checkpoint import JournalEntry


class HasOffset(Protocol):
    """A message of one partition."""

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        ...


M = TypeVar("M", bound=HasOffset)


@dataclass(frozen=True, slots=True)
class Step(Generic[M]):
    """One call as it was made: the messages fed, then the time that passed."""

    messages: list[M]
    advanced_ns: int | None


class Rerun(Generic[M]):
    """Cuts the messages from ``start`` on into the steps of a journal."""

    def __init__(self, start: int, journal: Sequence[JournalEntry]):
        self._reached = start
        self._left = deque(journal)
        self._waiting: list[M] = []

    @property
    def finished(self) -> bool:
        """Whether every step has been given out."""
        return not self._left

    def add(self, messages: Sequence[M], *, end: bool = False) -> list[Step[M]]:
        """Take in messages in offset order; return the steps that are complete.

        ``end``: there are no further messages below the journal's last offset (they were
        deleted, or were markers that no consumer sees), so every step is complete.
        """
        self._waiting.extend(messages)
        offsets = [message.offset for message in self._waiting]
        if offsets:
            self._reached = max(self._reached, offsets[-1] + 1)
        steps = []
        start = 0
        while self._left and (end or self._left[0][0] <= self._reached):
            cut, advanced_ns = self._left.popleft()
            stop = bisect_left(offsets, cut, lo=start)
            steps.append(Step(self._waiting[start:stop], advanced_ns))
            start = stop
        del self._waiting[:start]
        return steps

    def rest(self) -> list[M]:
        """The messages beyond the journal, once it is finished; they are new."""
        rest, self._waiting = self._waiting, []
        return rest
