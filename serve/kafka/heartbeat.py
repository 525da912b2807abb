"""A sign of life on a topic: for those who watch Kafka and not Prometheus."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import structlog
from kafka.errors import KafkaError

from detect.alert import rfc3339
from serve.kafka.producer import Outgoing, Producer
from serve.source import SourceHealth

CONTENT_TYPE = (("content-type", b"application/json"),)

_log = structlog.stdlib.get_logger("weaklink")


class Heartbeat:
    """Sends ``{"worker", "at", "lag_seconds", "lag_messages"}`` with the worker's name as key,
    after a completed turn, at most every ``every_seconds``. Its absence is the alarm, so a
    failure is only logged. An empty topic gets none."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        owner: str,
        *,
        every_seconds: float,
        now_ns: Callable[[], int],
    ):
        self._producer = producer
        self._topic = topic
        self._owner = owner
        self._every_ns = round(every_seconds * 1e9)
        self._now_ns = now_ns
        self._next_ns = 0

    def beat(self, health: SourceHealth) -> None:
        """A turn is completed; everything of it is stored."""
        now_ns = self._now_ns()
        if not self._topic or now_ns < self._next_ns or not health.connected:
            return
        self._next_ns = now_ns + self._every_ns
        body = {
            "worker": self._owner,
            "at": rfc3339(now_ns),
            "lag_seconds": health.lag_seconds,
            "lag_messages": health.lag_messages,
        }
        message = Outgoing(self._owner.encode(), orjson.dumps(body), CONTENT_TYPE)
        try:
            self._producer.send(self._topic, [message])
        except KafkaError as error:
            _log.warning("heartbeat not sent", topic=self._topic, reason=str(error))
