"""What stands before every route: limits, host check, headers, counting. Pure ASGI."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import urlsplit

import structlog
from fastapi.exceptions import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.api.problems import problem_response
from serve.metrics import Metrics
from serve.observe import describe
from serve.services import Services
from serve.tokens import digest

_log = structlog.stdlib.get_logger("weaklink.api")

SMALL_BODY_BYTES = 1 << 20
"""Bound of every body that is not telemetry."""

TELEMETRY_PATH = "/api/v1/telemetry"
UNLIMITED_PATHS = frozenset({"/healthz", "/readyz", "/metrics", TELEMETRY_PATH})
"""Not limited by rate: telemetry has its queue, the others their watchers."""

PROBES = frozenset({"/healthz", "/readyz"})
"""Answered under any host name: Kubernetes asks by the pod's address, and there is no secret."""

MOST_CLIENTS = 10_000

DEFAULT_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Set where the route has not set its own."""


class Outermost:
    """Counts every request, adds the security headers, turns a bug into a problem document."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the class."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, stream = 0, False
        started = time.perf_counter()

        async def note(message: Message) -> None:
            nonlocal status, stream
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                stream = headers.get("content-type", "").startswith("text/event-stream")
                for name, value in DEFAULT_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, note)
        except Exception as error:
            if status:
                raise  # the answer has begun: the connection must break
            _log.error("request failed", path=scope["path"], error=describe(error), exc_info=error)
            await problem_response(500, "The service failed to answer; its log says why.")(
                scope, receive, note
            )
        finally:
            self._count(scope, status, None if stream else time.perf_counter() - started)

    def _count(self, scope: Scope, status: int, seconds: float | None) -> None:
        found = scope.get("route")
        route = getattr(found, "path", "other")
        method = scope["method"]
        if method not in (getattr(found, "methods", None) or ()):
            # No such route, or not by this method: whoever probes makes no new series.
            method = route = "other"
        label = f"{status // 100}xx" if 200 <= status < 600 else "5xx"
        self.metrics.http_requests.labels(method=method, route=route, status=label).inc()
        if seconds is not None:
            self.metrics.http_seconds.observe(seconds)


class HostCheck:
    """Refuses a foreign ``Host``: a service that trusts its machine must not be reached by a
    web page whose name was made to point at it (DNS rebinding)."""

    def __init__(self, app: ASGIApp, services: Services):
        self.app = app
        self.services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 421, or pass on."""
        checked = scope["type"] == "http" and scope["path"] not in PROBES
        if checked and not self._allowed(Headers(scope=scope).get("host", "")):
            detail = "This service does not answer under that host name (http.trusted_hosts)."
            await problem_response(421, detail)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _allowed(self, host: str) -> bool:
        config = self.services.config
        http = config.http
        if not http.trusted_hosts and not http.loopback_only:
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        own = {"localhost", "127.0.0.1", "::1"}
        own |= {trusted.lower() for trusted in (http.host, *http.trusted_hosts)}
        return name in own or name == urlsplit(config.public_url).hostname


class BodyLimit:
    """Refuses a body beyond the limit before it fills the memory."""

    def __init__(self, app: ASGIApp, services: Services):
        self.app = app
        self.services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 413, or pass on while counting."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        telemetry = scope["path"] == TELEMETRY_PATH
        limit = self.services.config.http.body_limit_bytes if telemetry else SMALL_BODY_BYTES
        detail = f"The body is larger than {limit} bytes."
        length = Headers(scope=scope).get("content-length", "")
        if length.isdigit() and int(length) > limit:
            await problem_response(413, detail)(scope, receive, send)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                raise HTTPException(413, detail)
            return message

        await self.app(scope, counted, send)


class RateLimit:
    """A token bucket per client: its token once that was found valid, else its address.

    Invented tokens share the bucket of the address that they come from.
    """

    def __init__(
        self, app: ASGIApp, services: Services, clock: Callable[[], float] = time.monotonic
    ):
        self.app = app
        self.services = services
        self.clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 429 with ``Retry-After``, or pass on."""
        if scope["type"] == "http" and scope["path"] not in UNLIMITED_PATHS:
            wait = self._take(self._client(scope))
            if wait > 0:
                headers = {"Retry-After": str(max(1, round(wait + 0.5)))}
                problem = problem_response(429, "Too many requests.", headers=headers)
                await problem(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _take(self, client: str) -> float:
        """Seconds to wait; 0 if the request may pass."""
        http, now = self.services.config.http, self.clock()
        tokens, at = self._buckets.pop(client, (float(http.burst_requests), now))
        tokens = min(http.burst_requests, tokens + (now - at) * http.requests_per_second)
        passes = tokens >= 1
        self._buckets[client] = (tokens - passes, now)
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if passes else (1 - tokens) / http.requests_per_second

    def _client(self, scope: Scope) -> str:
        token = digest(Headers(scope=scope).get("authorization", "")[len("Bearer ") :])
        if token in self.services.verified_tokens:
            return f"token {token}"
        client = scope.get("client")
        return f"address {client[0] if client else ''}"
