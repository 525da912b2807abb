"""One idempotent producer for everything that the service writes to Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kafka import KafkaProducer
from kafka.errors import KafkaError

from serve.kafka.security import client_options
from serve.kafka.settings import KafkaSettings

SEND_SECONDS = 30.0
MAX_REQUEST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


class Client(Protocol):
    """What is used of `kafka.KafkaProducer`."""

    def send(self, topic: str, **message: Any) -> Any: ...
    def flush(self, timeout: float | None = None) -> Any: ...
    def close(self, timeout: float | None = None) -> None: ...


class Producer:
    """Sends batches and returns when every replica that must have them has them.

    The client is opened on first use and thrown away after any failure, so that the next try
    begins with a clean one. Single-threaded use.
    """

    def __init__(self, settings: KafkaSettings, open_client: Callable[[], Client] | None = None):
        self.settings = settings
        self._open = open_client or self._real_client
        self._client: Client | None = None

    def send(self, topic: str, messages: Sequence[Outgoing]) -> None:
        """In order; all acknowledged when it returns. KafkaError if any was not."""
        if not messages:
            return
        if self._client is None:
            self._client = self._open()
        client = self._client
        try:
            futures = [
                client.send(topic, key=m.key, value=m.value, headers=list(m.headers))
                for m in messages
            ]
            client.flush(timeout=SEND_SECONDS)
            for future in futures:
                future.get(timeout=SEND_SECONDS)
        except (KafkaError, AssertionError, ValueError):
            self._client = None
            client.close(timeout=0)
            raise

    def close(self) -> None:
        """Give the connection back."""
        if self._client is not None:
            self._client.close(timeout=5.0)
            self._client = None

    def _real_client(self) -> Client:
        kind = self.settings.compression
        client: Client = KafkaProducer(
            **client_options(self.settings),
            metrics_enabled=False,
            acks="all",
            enable_idempotence=True,
            allow_auto_create_topics=False,
            compression_type=None if kind == "none" else kind,
            linger_ms=5,
            max_block_ms=int(1000 * self.settings.request_timeout_seconds),
            delivery_timeout_ms=int(1000 * SEND_SECONDS),
            max_request_size=MAX_REQUEST_BYTES,
        )
        return client
