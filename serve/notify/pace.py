"""When to send: back-off after failures, and the rate limit. Pure functions."""

from __future__ import annotations

from random import Random

SECOND_NS = 1_000_000_000
BASE_SECONDS = 2.0
CAP_SECONDS = 300.0
RETRY_AFTER_CAP_SECONDS = 3_600.0


def backoff_seconds(failures: int, random: Random) -> float:
    """Wait after the given number (from 1) of failures in a row: doubled each time, capped,
    and spread over its upper half so that receivers are not hit in step."""
    longest = min(CAP_SECONDS, BASE_SECONDS * 2.0 ** min(failures - 1, 30))
    return longest * random.uniform(0.5, 1.0)


def retry_seconds(failures: int, after_seconds: float | None, random: Random) -> float:
    """Wait before the next attempt: what the receiver asked for if it did, within an hour,
    but never less than the back-off."""
    wait = backoff_seconds(failures, random)
    if after_seconds is None:
        return wait
    asked = min(after_seconds, RETRY_AFTER_CAP_SECONDS)
    return max(asked + random.uniform(0.0, 1.0), wait)


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
