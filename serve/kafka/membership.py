"""Whether the consumer group has taken this worker in."""

from __future__ import annotations

from kafka.structs import MemberState

from serve.kafka.consumer import Consumer


class Membership:
    """A worker that its group does not take in reads nothing, and nobody would notice: without
    it for longer than a session it counts as not connected."""

    def __init__(self, group: str, session_seconds: float):
        self._group = group
        self._session_seconds = session_seconds
        self._joined_at = float("-inf")
        self.problem = ""

    def look(self, consumer: Consumer | None, now: float) -> bool:
        """Whether it is in, or was a session ago at most; ``problem`` says that it is not now."""
        joined = consumer is not None and consumer.group_metadata().state is MemberState.STABLE
        if joined:
            self._joined_at = now
        self.problem = "" if joined else f"joining the group {self._group}"
        return now - self._joined_at <= self._session_seconds
