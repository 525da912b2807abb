"""The listening socket."""

from __future__ import annotations

import socket
from contextlib import closing

from serve.config import Config
from serve.server import listen


def test_an_answer_does_not_wait_for_the_clients_acknowledgement() -> None:
    with (
        closing(listen(Config.model_validate({"http": {"port": 0}}))) as listener,
        closing(socket.create_connection(listener.getsockname())),
    ):
        accepted, _ = listener.accept()
        with closing(accepted):
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
