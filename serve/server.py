"""Runs a runtime's app under uvicorn: ports, signals, a graceful end."""

from __future__ import annotations

import gc
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType

import structlog
import uvicorn

from serve.config import Config, ConfigError
from serve.logs import configure_logs
from serve.runtime import Role, Runtime, build_runtime

GRACE_SECONDS = 15
_log = structlog.stdlib.get_logger("weaklink")


class Server(uvicorn.Server):
    """Lets open event streams end before it waits for connections."""

    def __init__(self, runtime: Runtime):
        super().__init__(
            uvicorn.Config(
                runtime.app,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
                lifespan="on",
                # Nobody is believed about the client's address but a proxy on this machine.
                forwarded_allow_ips="127.0.0.1",
            )
        )
        self.runtime = runtime

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """SIGTERM or SIGINT: streams end, then connections, then the lifespan.

        Uvicorn would raise the signal again at the end; a service that has stopped in good
        order ends with status 0. A second SIGINT does not wait for connections.
        """
        self.runtime.services.broadcast.close()
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def listen(config: Config) -> socket.socket:
    """The listening socket; `ConfigError` with one line if the address cannot be had."""
    http = config.http
    family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
    try:
        listener = socket.create_server((http.host, http.port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"http: cannot listen on {http.host}:{http.port}: {reason}") from None
    # Accepted sockets inherit it. Asyncio would set it only where the protocol's number is known,
    # and without it every answer waits some 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def run_service(config: Config, role: Role, read: Callable[[], Config]) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads through ``read``."""
    configure_logs(config.log)
    _warn(config)
    listener = listen(config)
    try:
        runtime = build_runtime(config, role, clock=time.time_ns)
        server = Server(runtime)
        # What was built now stays until the end: the collector need not go through it again.
        gc.collect()
        gc.freeze()

        def reload(_signal: int, _frame: FrameType | None) -> None:
            # In a thread: what it takes to exchange receivers must not hold up requests.
            threading.Thread(target=runtime.reload, args=(read,), name="reload").start()

        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, reload)
        _log.info("listening", address=f"http://{config.http.host}:{listener.getsockname()[1]}")
        server.run(sockets=[listener])
    finally:
        listener.close()


def _warn(config: Config) -> None:
    if not config.auth_on and not config.http.loopback_only:
        _log.warning("anybody who reaches this address may do everything (auth.mode is off)")
