"""Messages out of the client's hands, and each partition's share of them as a `Batch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka import TopicPartition

from serve.kafka.consumer import Consumer
from serve.kafka.partition import Batch, Partition

FRESH_SECONDS = 5.0
"""A partition is up to date if within this time it was seen at its end or brought a message as
young as that; only then does the wall clock say anything about its jobs."""

WAIT_SECONDS = 0.2
"""How long a worker without new messages does not notice that partitions were assigned."""

MOST_CALLS = 2_000
"""Calls between snapshots, at most."""

Messages = dict[TopicPartition, list[Any]]


def wait(
    consumer: Consumer,
    timeout_seconds: float,
    *,
    most: int,
    interrupted: Callable[[], bool],
) -> Messages:
    """At most so many new messages; nothing as soon as it is ``interrupted``."""
    waits = max(1, round(timeout_seconds / WAIT_SECONDS))
    records: Messages = {}
    for _ in range(waits):
        records = consumer.poll(1000 * timeout_seconds / waits, max_records=most)
        if records or interrupted():
            break
    return records


def batches(
    consumer: Consumer,
    reading: Mapping[TopicPartition, Partition],
    records: Messages,
    ends: Mapping[TopicPartition, int],
    *,
    now: float,
    now_ms: int,
) -> dict[TopicPartition, Batch]:
    """What ``records`` bring to every partition that is read; ``ends`` tells where some end
    that bring nothing. ``now`` is monotonic, ``now_ms`` the wall clock."""
    found = {}
    for tp, partition in reading.items():
        messages = records.get(tp, [])
        known = consumer.highwater(tp) if messages else ends.get(tp)
        partition.end_offset = partition.end_offset if known is None else known
        at_end = not messages and tp in ends and partition.lag == 0
        due = now >= partition.snapshot_at or partition.calls >= MOST_CALLS
        found[tp] = partition.take(messages, snapshot_due=due, at_end=at_end)
        young = bool(messages) and now_ms - messages[-1].timestamp < 1000 * FRESH_SECONDS
        if at_end or young or (messages and partition.lag == 0):
            partition.fresh_at = now
    return found
