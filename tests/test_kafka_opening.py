"""A client that reaches no broker leaves nothing behind."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import KafkaConfigurationError, KafkaError

from serve.kafka.link import Link
from serve.kafka.opening import opened
from serve.kafka.settings import KafkaSettings


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


def test_a_consumer_that_cannot_subscribe_is_closed() -> None:
    closed: list[bool] = []
    answers = iter([KafkaError("not now"), None])

    class Refusing:
        def subscribe(self, topics: object, *, listener: object) -> None:
            if error := next(answers):
                raise error

        def close(self, *, autocommit: bool, timeout_ms: int) -> None:
            closed.append(autocommit)

    now = 0.0
    made: list[Any] = []

    def connect(*_: object) -> Any:
        made.append(Refusing())
        return made[-1]

    moves: Any = None
    link = Link(
        KafkaSettings(),
        connect,
        moves,
        counts=Counter(),
        monotonic=lambda: now,
        sleep=lambda _: None,
    )
    assert link.open(1.0) is None
    assert (closed, link.consumer) == ([False], None)
    assert "not now" in link.problem
    now = 60.0
    assert link.open(1.0) is made[1]
    assert (closed, link.problem) == ([False], "")
