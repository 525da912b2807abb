"""One HTTP request and what its outcome means, the same for every receiver.

========================================= ==============================================
outcome                                   result
========================================= ==============================================
2xx                                       delivered
307, 308 to the same origin               followed, at most three times
other 3xx, 401, 403, 404, 405, 407, 421   retry, the whole receiver waits: somebody has to
                                          mend an address, a token or a proxy
408, 425, 500, 501, other 5xx             retry this message
429, 502, 503, 504                        retry, the whole receiver waits
400, 410, 413, 422, other 4xx             gave up: the same message is never taken
no connection, hang, closed, broken       retry, the whole receiver waits
========================================= ==============================================

`Retry-After` counts in every retried answer. An answer that comes after the time limit is not
read: the message is sent again under the same idempotency key.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import urljoin, urlsplit

import httpx

from serve.notify.note import Note
from serve.notify.receiver import Context, Traits
from serve.notify.result import Delivered, GaveUp, HttpRequest, Result, Retry
from serve.notify.settings import HttpReceiverSettings, checked_url

_MISCONFIGURED = frozenset({401, 403, 404, 405, 407, 421})
_RETRIED_4XX = frozenset({408, 425, 429})
_DOWN = frozenset({429, 502, 503, 504})
_FOLLOWED = frozenset({307, 308})
_MAX_REDIRECTS = 3
_ANSWER_BYTES = 16_384
_EXCERPT_CHARACTERS = 200

Settings = TypeVar("Settings", bound=HttpReceiverSettings)


def classify(status: int, headers: Mapping[str, str], excerpt: str, now_ns: int) -> Result:
    """What an HTTP answer means (the module's table). ``headers`` has lower-case names."""
    said = f"HTTP {status}" + (f": {excerpt}" if excerpt else "")
    if 200 <= status < 300:
        return Delivered(f"HTTP {status}")
    if 400 <= status < 500 and status not in _MISCONFIGURED | _RETRIED_4XX:
        return GaveUp(said)
    whole = status < 400 or status in _MISCONFIGURED | _DOWN
    return Retry(said, retry_after(headers.get("retry-after"), now_ns), whole)


def retry_after(value: str | None, now_ns: int) -> float | None:
    """Seconds to wait by a `Retry-After` header: a number or an HTTP date; None if unusable."""
    if value is None:
        return None
    value = value.strip()
    if re.fullmatch(r"\d{1,9}", value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() - now_ns / 1e9)


def redact(text: str, secrets: Mapping[str, str]) -> str:
    """One printable line without any of the secrets."""
    for secret in secrets.values():
        for part in secret.splitlines():
            text = text.replace(part, "***") if part else text
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


class HttpReceiver(Generic[Settings]):
    """Base of the receivers that speak HTTP: they render requests, this sends them.

    A new connection for every attempt: notifications are rare, and a connection that died
    while idle cannot be mistaken for a receiver that is down.
    """

    traits: Traits
    stops_at_failure: ClassVar[bool] = True
    """Whether a failed request makes the following ones pointless."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # Built once, here: it takes longer than some receivers do.
        path = settings.ca_path
        self._tls = (
            ssl.create_default_context(cafile=str(path)) if path else httpx.create_ssl_context()
        )

    def render(self, note: Note, context: Context) -> list[HttpRequest]:
        """The requests that tell the note, in order; no effects, no clock, no randomness."""
        raise NotImplementedError

    def labels(self, note: Note) -> dict[str, str]:  # noqa: ARG002
        """Nothing to remember; overridden where the receiver needs it."""
        return {}

    def judge(self, results: list[Result]) -> Result:
        """One result of several requests: the first that was not delivered."""
        failed = (r for r in results if not isinstance(r, Delivered))
        return next(failed, results[-1] if results else Delivered("nothing to send"))

    def send(self, note: Note, context: Context) -> Result:
        """Render and send; see `Receiver.send`."""
        context = replace(context, secrets=self.settings.secrets())
        results: list[Result] = []
        for request in self.render(note, context):
            results.append(self._send(request, context))
            if self.stops_at_failure and not isinstance(results[-1], Delivered):
                break
        return self.judge(results)

    def _send(self, request: HttpRequest, context: Context) -> Result:
        try:
            checked_url(request.url)
        except ValueError as error:
            return GaveUp(f"url {error}")
        secrets = {**context.secrets, "url of this request": request.url}
        try:
            status, headers, body = asyncio.run(self._exchange(request))
        except TimeoutError:
            limit = self.settings.timeout_seconds
            return Retry(f"no complete answer within {limit:g} s", whole_receiver=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return Retry(redact(cause, secrets)[:_EXCERPT_CHARACTERS], whole_receiver=True)
        excerpt = redact(body.decode("utf-8", "replace"), secrets)[:_EXCERPT_CHARACTERS]
        return classify(status, headers, excerpt, context.now_ns)

    async def _exchange(self, request: HttpRequest) -> tuple[int, dict[str, str], bytes]:
        url = request.url
        async with asyncio.timeout(self.settings.timeout_seconds):
            async with self._client() as client:
                for _ in range(_MAX_REDIRECTS + 1):
                    async with client.stream(
                        request.method, url, content=request.body, headers=request.headers
                    ) as answer:
                        headers = {k.lower(): v for k, v in answer.headers.items()}
                        body = await _limited(answer)
                    target = urljoin(url, headers.get("location", ""))
                    if answer.status_code not in _FOLLOWED or not _same_origin(url, target):
                        break
                    url = target
        return answer.status_code, headers, body

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            verify=self._tls,
            trust_env=False,
            proxy=self.settings.proxy_url,
            headers={"accept-encoding": "identity", "user-agent": "weaklink"},
            timeout=self.settings.timeout_seconds,
        )


async def _limited(answer: httpx.Response) -> bytes:
    body = b""
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) >= _ANSWER_BYTES:
            break
    return body[:_ANSWER_BYTES]


def _same_origin(one: str, other: str) -> bool:
    return _origin(one) == _origin(other)


def _origin(url: str) -> tuple[Any, ...]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, port or default
