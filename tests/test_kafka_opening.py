"""A client that reaches no broker leaves nothing behind."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import KafkaConfigurationError, KafkaError

from serve.kafka.opening import opened


def io_threads() -> set[threading.Thread]:
    """Of kafka-python's clients in this process."""
    return {t for t in threading.enumerate() if t.name.startswith("kafka-io")}


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("kind", [KafkaAdminClient, KafkaConsumer])
def test_no_thread_stays_of_a_client_that_reaches_no_broker(kind: type[Any], nobody: str) -> None:
    before = io_threads()
    with pytest.raises(KafkaError):
        opened(kind, bootstrap_servers=nobody, bootstrap_timeout_ms=200)
    assert io_threads() <= before


@pytest.mark.parametrize("kind", [KafkaAdminClient, KafkaConsumer])
def test_refused_options_are_told_as_they_are(kind: type[Any]) -> None:
    with pytest.raises((KafkaConfigurationError, AssertionError)):
        opened(kind, no_such_option=1)
