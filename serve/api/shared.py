"""Parameters, cursors, entity tags: what every route needs."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from fastapi import Path, Query
from pydantic import AwareDatetime, BeforeValidator, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from serve.api.problems import ProblemError

PREFIX = "/api/v1"
LARGEST_NS = (1 << 63) - 1

Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
"""Text that every database can hold."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=r"^[^\x00]+$")]
"""A job, machine, metric or id."""

JobName = Annotated[str, Path(min_length=1, max_length=300, pattern=r"^[^\x00]+$")]
MachineName = Annotated[str, Path(min_length=1, max_length=300, pattern=r"^[^\x00]+$")]
EntityId = Annotated[str, Path(min_length=1, max_length=600, pattern=r"^[^\x00/]+$")]
Limit = Annotated[int, Query(ge=1, le=500)]


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:?\d\d)")


def _text_only(value: object) -> object:
    # Bare numbers mean seconds to one and milliseconds to another.
    if isinstance(value, datetime) or (isinstance(value, str) and _RFC3339.fullmatch(value)):
        return value
    raise ValueError("must be a time with its offset from UTC, such as 2026-01-31T12:00:00Z")


Instant = Annotated[AwareDatetime, BeforeValidator(_text_only)]
"""RFC 3339 with its offset from UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def nanoseconds_of(instant: datetime) -> int:
    """Exact, unlike `datetime.timestamp`; what lies beyond 64 bits becomes the nearest."""
    delta = instant - _EPOCH
    exact = (delta.days * 86_400 + delta.seconds) * 10**9 + delta.microseconds * 1000
    return min(max(exact, 0), LARGEST_NS)


def encode_cursor(*parts: int | str) -> str:
    """An opaque position in a list."""
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode().rstrip("=")


def decode_cursor(cursor: str, kinds: Sequence[type]) -> list[Any]:
    """Inverse of `encode_cursor`; a problem if it is not one of ours."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        parts = orjson.loads(raw)
        fits = len(parts) == len(kinds) and all(
            type(p) is k for p, k in zip(parts, kinds, strict=True)
        )
    except (binascii.Error, ValueError, TypeError):
        fits = False
    if not fits or any(isinstance(p, int) and abs(p) > LARGEST_NS for p in parts):
        raise ProblemError(422, "query.cursor: not a cursor that this list gave")
    if any(isinstance(p, str) and "\x00" in p for p in parts):
        raise ProblemError(422, "query.cursor: not a cursor that this list gave")
    return list(parts)


def answer(request: Request, payload: Any) -> Response:
    """JSON with an entity tag; 304 if the client has it already."""
    body = orjson.dumps(payload, option=orjson.OPT_SERIALIZE_NUMPY)
    return tagged(request, body, tag_of(body), "application/json")


def tag_of(body: bytes) -> str:
    """The entity tag of a body."""
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def created(payload: Any, status: int = 201) -> Response:
    """JSON of something new."""
    return Response(orjson.dumps(payload), status, media_type="application/json")


def tagged(request: Request, body: bytes, tag: str, media_type: str) -> Response:
    """A body under its entity tag; 304 if the client has it already."""
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept, Authorization"}
    if _has(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, media_type)


def check_if_match(request: Request, payload: Any) -> None:
    """412 if the client would change what it has not seen; ``payload`` is what GET answers now."""
    wanted = request.headers.get("if-match")
    if wanted is not None and not _has(wanted, tag_of(orjson.dumps(payload))):
        raise ProblemError(412, "It has changed since; look at it again.")


def _has(header: str, tag: str) -> bool:
    tags = [part.strip().removeprefix("W/") for part in header.split(",")]
    return "*" in tags or tag.removeprefix("W/") in tags
