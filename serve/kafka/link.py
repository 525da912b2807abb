"""The connection to Kafka: opened with back-off, never given up, its trouble told in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import structlog
from kafka import TopicPartition
from kafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kafka.structs import OffsetAndMetadata

from serve.kafka.consumer import Connect, Consumer, Moves
from serve.kafka.security import KafkaSetupError
from serve.kafka.settings import KafkaSettings

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
PROBE_SECONDS = 2.0

_MOVING = (
    CommitFailedError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

_log = structlog.stdlib.get_logger("weaklink")


class Link:
    """Holds the consumer while there is one. ``problem`` is one line, empty if all is well.

    ``counts`` gets ``restarts`` (of the connection) and ``commit_failures``.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        connect: Connect,
        moves: Moves,
        *,
        counts: Counter[str],
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
    ):
        self.settings = settings
        self.consumer: Consumer | None = None
        self.problem = "not connected yet"
        self._connect = connect
        self._moves = moves
        self._counts = counts
        self._monotonic = monotonic
        self._sleep = sleep
        self._retry_at = 0.0
        self._pause = FIRST_PAUSE_SECONDS
        self._probe_at = 0.0
        self._commit_at = 0.0

    def open(self, timeout_seconds: float) -> Consumer | None:
        """The consumer; None (after waiting) while there is no connection."""
        if self.consumer is not None:
            return self.consumer
        wait = self._retry_at - self._monotonic()
        if wait > 0:
            self._sleep(min(wait, timeout_seconds))
            return None
        try:
            self.consumer = consumer = self._connect(self.settings, self._counts)
            consumer.subscribe(list(self.settings.topics), listener=self._moves)
        except (KafkaError, KafkaSetupError, OSError) as error:
            self.drop()
            self._failed(error)
            return None
        self.problem, self._pause = "", FIRST_PAUSE_SECONDS
        _log.info("connected to kafka", group=self.settings.group)
        return consumer

    def trouble(self, error: Exception) -> bool:
        """A call has failed. True if the connection is gone and everything with it."""
        if isinstance(error, KafkaError) and error.retriable:
            self.problem = _line(error)
            return False
        self._counts["restarts"] += 1
        self.drop()
        self._failed(error)
        return True

    def drop(self) -> None:
        """Close without a word to the group's partitions."""
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            try:
                consumer.close(autocommit=False, timeout_ms=2_000)
            except Exception as error:  # noqa: BLE001 - it is thrown away, whatever ails it
                _log.debug("closing a broken consumer", reason=_line(error))

    def probe(self, idle: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Now and then: where partitions that bring nothing end; empty if not asked or told.

        An idle partition and one whose broker is away look the same to a poll. If none is
        ``idle``, all is well.
        """
        now = self._monotonic()
        if not idle:
            self.problem = ""
            return {}
        if self.consumer is None or now < self._probe_at:
            return {}
        self._probe_at = now + PROBE_SECONDS
        try:
            ends = self.consumer.end_offsets(idle, timeout_ms=int(1000 * PROBE_SECONDS))
        except KafkaError as error:
            self.problem = f"no answer about {len(idle)} partitions: {_line(error)}"
            return {}
        self.problem = ""
        return ends

    def commit(self, offsets: dict[TopicPartition, int], *, last: bool = False) -> bool:
        """Tell Kafka how far we are, every ``commit_interval_seconds`` or for the ``last`` time.
        A failure costs nothing: the checkpoints count. True if Kafka is told."""
        now = self._monotonic()
        if self.consumer is None or not offsets or (now < self._commit_at and not last):
            return False
        self._commit_at = now + self.settings.commit_interval_seconds
        body = {tp: OffsetAndMetadata(offset, "", -1) for tp, offset in offsets.items()}
        try:
            if last:
                self.consumer.commit(body, timeout_ms=3_000)
            else:
                self.consumer.commit_async(body, callback=self._committed)
        except (KafkaError, RuntimeError) as error:
            self._committed(body, error)
        return True

    def _committed(self, offsets: object, result: Any) -> None:  # noqa: ARG002
        if not isinstance(result, Exception):
            return
        self._counts["commit_failures"] += 1
        level = "info" if isinstance(result, _MOVING) else "warning"
        getattr(_log, level)("offsets not committed to kafka", reason=_line(result))

    def _failed(self, error: Exception) -> None:
        line = _line(error)
        if line != self.problem:
            _log.error("kafka does not serve", reason=line, retry_seconds=self._pause)
        self.problem = line
        self._retry_at = self._monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)


def _line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    name = type(error).__name__
    first = text[0] if text else ""
    if isinstance(error, KafkaSetupError):
        return first
    return first if first.startswith(name) else f"{name}: {first}".rstrip(": ")
