"""Asks this very service's API, in process: the page shows what the API answers, no more.

The caller's credentials are handed on, so there is one place that decides who may read what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
from starlette.requests import Request

API = "/api/v1"
_FORWARDED = ("authorization", "cookie", "x-forwarded-for", "host")


class Refused(Exception):  # noqa: N818 - not a bug of this service: an answer that has no data
    """The API answered with a problem instead of data."""

    def __init__(self, status: int, title: str):
        super().__init__(title)
        self.status = status
        self.title = title


async def ask(request: Request, path: str, query: Mapping[str, str] | None = None) -> Any:
    """The JSON that ``GET /api/v1{path}`` answers this caller. Raises `Refused`."""
    client = (request.client.host, request.client.port) if request.client else ("127.0.0.1", 0)
    transport = httpx.ASGITransport(app=request.app, client=client)
    headers = {name: request.headers[name] for name in _FORWARDED if name in request.headers}
    headers["accept-encoding"] = "identity"  # nothing travels
    async with httpx.AsyncClient(transport=transport, base_url="http://page") as inside:
        answer = await inside.get(f"{API}{path}", params=dict(query or {}), headers=headers)
    if answer.is_success:
        return answer.json()
    try:
        title = str(answer.json()["title"])
    except (ValueError, KeyError, TypeError):
        title = answer.reason_phrase
    raise Refused(answer.status_code, title)


def items(answer: Any) -> list[dict[str, Any]]:
    """The rows of a list answer."""
    rows = answer["items"] if isinstance(answer, dict) else answer
    return list(rows)
