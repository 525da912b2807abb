"""When to send: back-off after failures, and the rate limit. Nothing here reads a clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

SECOND_NS = 1_000_000_000
RETRY_AFTER_CAP_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits after failures: doubled each time, capped, and spread over their upper half so that
    receivers are not hit in step."""

    base_seconds: float = 2.0
    cap_seconds: float = 300.0
    random: Random = field(default_factory=Random)

    def seconds(self, failures: int) -> float:
        """Wait after so many failures in a row (from 1)."""
        longest = min(self.cap_seconds, self.base_seconds * 2.0 ** min(failures - 1, 30))
        return longest * self.random.uniform(0.5, 1.0)

    def retry_seconds(self, failures: int, after_seconds: float | None) -> float:
        """What the receiver asked for if it did, within an hour, but never less than
        `seconds`."""
        wait = self.seconds(failures)
        if after_seconds is None:
            return wait
        asked = min(after_seconds, RETRY_AFTER_CAP_SECONDS)
        return max(asked + self.random.uniform(0.0, 1.0), wait)


def take_slot(next_slot_ns: int, now_ns: int, per_minute: float, burst: int) -> tuple[int, int]:
    """Rate limit as one number, the generic cell rate algorithm (ITU-T I.371, annex A).

    Returns ``(wait_ns, next_slot_ns)``: with ``wait_ns`` 0 the message may go and the second
    value is to be stored; else nothing changes.
    """
    interval = int(60 * SECOND_NS / per_minute)
    earliest = next_slot_ns - interval * (burst - 1)
    if earliest > now_ns:
        return earliest - now_ns, next_slot_ns
    return 0, max(next_slot_ns, now_ns) + interval
