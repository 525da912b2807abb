"""The consumer of the telemetry topics, and what it tells when partitions move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Protocol

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import OffsetAndMetadata

from serve.kafka.opening import opened
from serve.kafka.orphans import OrphanWatch
from serve.kafka.rejoin import finish_joins
from serve.kafka.security import client_options
from serve.kafka.settings import KafkaSettings
from serve.kafka.topics import prepare_topics

LEAST_SESSION_SECONDS = 6.0
"""The default of the broker's ``group.min.session.timeout.ms``."""


class Consumer(Protocol):
    """What is used of `kafka.KafkaConsumer`."""

    def subscribe(self, topics: Collection[str], *, listener: Any) -> None: ...
    def poll(self, timeout_ms: float, max_records: int) -> dict[TopicPartition, list[Any]]: ...
    def assignment(self) -> set[TopicPartition]: ...
    def pause(self, *partitions: TopicPartition) -> None: ...
    def resume(self, *partitions: TopicPartition) -> None: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...
    def highwater(self, partition: TopicPartition) -> int | None: ...
    def committed(self, partition: TopicPartition, *, timeout_ms: int) -> int | None: ...
    def beginning_offsets(
        self, partitions: Collection[TopicPartition], *, timeout_ms: int
    ) -> dict[TopicPartition, int]: ...
    def end_offsets(
        self, partitions: Collection[TopicPartition], *, timeout_ms: int
    ) -> dict[TopicPartition, int]: ...
    def commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], *, timeout_ms: int
    ) -> None: ...
    def commit_async(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], *, callback: Any
    ) -> Any: ...
    def group_metadata(self) -> Any: ...
    def close(self, *, autocommit: bool, timeout_ms: int) -> None: ...


def connect(settings: KafkaSettings, counts: Counter[str]) -> Consumer:
    """Make sure that the topics are there and open a consumer (not subscribed yet).

    ``counts`` gets what its `OrphanWatch` does.

    Raises
    ------
    KafkaSetupError
        A topic is missing or wrong, or a file of the configuration cannot be read.
    KafkaError
        No broker answers, or it refuses us.
    """
    prepare_topics(settings)
    client: Any = opened(
        KafkaConsumer,
        **client_options(settings),
        metrics_enabled=False,
        group_id=settings.group,
        group_instance_id=settings.instance_id or None,
        partition_assignment_strategy=(CooperativeStickyAssignor,),
        session_timeout_ms=int(told_session_seconds(settings) * 1000),
        heartbeat_interval_ms=int(settings.heartbeat_interval_seconds * 1000),
        max_poll_interval_ms=int(settings.max_poll_interval_seconds * 1000),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        allow_auto_create_topics=False,
        # The broker gathers for a moment: fewer, larger batches cost far less to decode.
        fetch_min_bytes=64 << 10,
        fetch_max_wait_ms=200,
        fetch_max_bytes=settings.fetch_bytes,
        max_partition_fetch_bytes=settings.partition_fetch_bytes,
    )
    finish_joins(client._coordinator)
    OrphanWatch(client, settings, counts).start()
    consumer: Consumer = client
    return consumer


Connect = Callable[[KafkaSettings, Counter[str]], Consumer]
"""`connect`, or what a test has in its place."""


def told_session_seconds(settings: KafkaSettings) -> float:
    """The session time-out that the broker is told, so that another worker reads within
    ``session_timeout_seconds``.

    The others hear of a lost member in the answer to their next heartbeat, up to one interval
    after the broker has missed it, and must then join and fetch: two intervals are set aside
    for that. Brokers refuse less than six seconds unless told otherwise.
    """
    wanted = settings.session_timeout_seconds
    earlier = wanted - 2 * settings.heartbeat_interval_seconds
    return min(wanted, max(LEAST_SESSION_SECONDS, earlier))


def topic_id(consumer: Consumer, topic: str) -> str:
    """The topic's unique id; empty if the broker or client does not tell."""
    # No public way yet; without it a topic made anew is told by its end offset only.
    cluster: Any = getattr(consumer, "_cluster", None)
    found = cluster.topic_id(topic) if hasattr(cluster, "topic_id") else None
    return str(found) if found else ""


class Moves(ConsumerRebalanceListener):  # type: ignore[misc]
    """Passes on what Kafka decides. Called in the client's thread, while ours waits in a poll;
    works with the cooperative and with the eager protocol."""

    def __init__(
        self,
        *,
        assigned: Callable[[Collection[TopicPartition]], None],
        revoked: Callable[[Collection[TopicPartition]], None],
        lost: Callable[[Collection[TopicPartition]], None],
    ):
        self._assigned = assigned
        self._revoked = revoked
        self._lost = lost

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Ours from now on."""
        self._assigned(assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Ours until this returns."""
        self._revoked(revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """No longer ours, for some time already."""
        self._lost(lost)
