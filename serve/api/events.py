"""``/events``: what happens, as server-sent events that resume where a reader stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query
from sqlalchemy import func, select
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse

from serve.api.auth import Reader, Using
from serve.api.problems import ProblemError, responses
from serve.api.shared import LARGEST_NS, PREFIX, Name
from serve.services import Services
from serve.store.events import events_after, last_event_id
from serve.store.tables import EventRow

router = APIRouter(prefix=PREFIX, tags=["events"])

LOOK_SECONDS = 1.0
"""How often the log is read for what other processes wrote."""

HEARTBEAT_SECONDS = 5.0
RETRY_MS = 2_000
BATCH = 200

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events: ``id``, ``event`` (kind) and ``data`` (JSON) each.",
        "content": {
            "text/event-stream": {
                "schema": {
                    "type": "object",
                    "required": ["event", "data"],
                    "properties": {
                        "id": {"type": "string"},
                        "event": {"type": "string"},
                        "data": {"type": "string", "contentMediaType": "application/json"},
                    },
                }
            }
        },
    }
}


@router.get("/events", response_class=StreamingResponse, responses=responses() | _STREAM)
async def events(
    request: Request,
    services: Using,
    _who: Reader,
    job: Annotated[Name | None, Query(description="Only events of this job.")] = None,
    follow: Annotated[bool, Query(description="Stay; else end after what is stored.")] = True,
    after: Annotated[int | None, Query(ge=0, le=LARGEST_NS)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Alerts, silences, storms and the breaker as they change.

    ``Last-Event-ID`` (or ``after``) resumes after that event; without it the stream begins
    now. ``reset`` says that retention has removed what a reader missed: read everything
    anew. ``heartbeat`` comes every few seconds.
    """
    begin = _begin(last_event_id, after)
    if services.broadcast.streams >= services.config.http.event_streams:
        raise ProblemError(429, "Too many event streams are open.", headers={"Retry-After": "10"})
    if begin is None and follow:
        begin = await run_in_threadpool(_newest, services)
    stream = _stream(request, services, begin or 0, job, follow=follow)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


def _begin(header: str | None, after: int | None) -> int | None:
    if not header:
        return after
    try:
        value = int(header)
    except ValueError:
        value = -1
    if not 0 <= value <= LARGEST_NS:
        raise ProblemError(422, "header.Last-Event-ID: not an id that this stream gave")
    return value


async def _stream(
    request: Request, services: Services, seen: int, job: str | None, *, follow: bool
) -> AsyncIterator[bytes]:
    services.broadcast.streams += 1
    services.metrics.event_streams.set(services.broadcast.streams)
    try:
        yield f"retry: {RETRY_MS}\n\n".encode()
        if await run_in_threadpool(_missed, services, seen):
            yield _event("reset", {}, None)
        quiet = 0.0
        while True:
            rows = await run_in_threadpool(_read, services, seen)
            for row in rows:
                seen = row.id
                if job is None or row.job == job:
                    quiet = 0.0
                    yield _event(row.kind, row.body, row.id)
            if len(rows) == BATCH:
                continue
            if not follow or services.broadcast.closed or await request.is_disconnected():
                return
            await services.broadcast.wait(LOOK_SECONDS)
            quiet += LOOK_SECONDS
            if quiet >= HEARTBEAT_SECONDS:
                quiet = 0.0
                yield _event("heartbeat", {}, None)
    finally:
        services.broadcast.streams -= 1
        services.metrics.event_streams.set(services.broadcast.streams)


def _event(kind: str, body: object, event_id: int | None) -> bytes:
    identity = f"id: {event_id}\n" if event_id is not None else ""
    return f"{identity}event: {kind}\ndata: ".encode() + orjson.dumps(body) + b"\n\n"


def _read(services: Services, seen: int) -> list[EventRow]:
    with services.database.read() as session:
        return events_after(session, seen, limit=BATCH)


def _newest(services: Services) -> int:
    with services.database.read() as session:
        return last_event_id(session)


def _missed(services: Services, seen: int) -> bool:
    """Whether retention has removed events after ``seen`` (or the log is another one)."""
    if seen == 0:
        return False
    with services.database.read() as session:
        oldest = session.scalar(select(func.min(EventRow.id)))
        newest = last_event_id(session)
    return (oldest is not None and oldest > seen + 1) or newest < seen
