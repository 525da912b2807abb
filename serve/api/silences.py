"""``/silences``: whom not to page for, until when."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import and_, or_, select
from starlette.requests import Request
from starlette.responses import Response

from serve.api.alerts import signed
from serve.api.auth import Reader, Using, Writer
from serve.api.problems import ProblemError, responses
from serve.api.schemas import SilenceBody, SilencePage, SilenceView
from serve.api.shared import (
    PREFIX,
    EntityId,
    Limit,
    answer,
    created,
    decode_cursor,
    encode_cursor,
    nanoseconds_of,
)
from serve.silences import NewSilence, add_silence, end_silence, silence_json
from serve.store.tables import SilenceRow

router = APIRouter(prefix=PREFIX, tags=["silences"])


@router.get("/silences", response_model=SilencePage, responses=responses())
def list_silences(
    request: Request,
    services: Using,
    _who: Reader,
    expired: Annotated[bool, Query(description="Those that are over, too.")] = False,
    limit: Limit = 200,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> Response:
    """Silences and maintenance windows in force and to come, by their end."""
    query = select(SilenceRow)
    if not expired:
        query = query.where(SilenceRow.ends_at_ns > services.database.clock())
    if cursor is not None:
        at, last = decode_cursor(cursor, (int, str))
        later = SilenceRow.ends_at_ns > at
        query = query.where(or_(later, and_(SilenceRow.ends_at_ns == at, SilenceRow.id > last)))
    query = query.order_by(SilenceRow.ends_at_ns, SilenceRow.id).limit(limit + 1)
    with services.database.read() as session:
        rows = list(session.scalars(query))
    more = rows[limit - 1] if len(rows) > limit else None
    following = encode_cursor(more.ends_at_ns, more.id) if more else None
    items = [silence_json(row) for row in rows[:limit]]
    return answer(request, {"items": items, "next_cursor": following})


@router.post("/silences", status_code=201, response_model=SilenceView, responses=responses())
def create_silence(services: Using, who: Writer, body: SilenceBody) -> Response:
    """Silence machines or jobs for a while. Detection goes on and everything is shown."""
    now_ns = services.database.clock()
    starts_ns = nanoseconds_of(body.starts_at) if body.starts_at else now_ns
    ends_ns = nanoseconds_of(body.ends_at)
    if ends_ns <= max(starts_ns, now_ns):
        raise ProblemError(422, "body.ends_at: must be later than its start and than now")
    new = NewSilence(
        kind=body.kind,
        job=body.job,
        machine=body.machine,
        starts_at_ns=starts_ns,
        ends_at_ns=ends_ns,
        comment=body.comment,
        created_by=signed(who, body.created_by),
    )
    with services.database.write() as session:
        view = silence_json(add_silence(session, new, now_ns=now_ns))
    services.metrics.events.labels(kind="silence.created").inc()
    services.broadcast.notify()
    return created(view)


@router.delete("/silences/{silence_id}", status_code=204, responses=responses(404))
def delete_silence(services: Using, who: Writer, silence_id: EntityId) -> Response:
    """End a silence now. What it covered and is still open pages."""
    with services.database.write() as session:
        row = session.get(SilenceRow, silence_id)
        if row is None:
            raise ProblemError(404, f"There is no silence {silence_id!r}.")
        end_silence(session, row, now_ns=services.database.clock(), by=who.name)
    services.metrics.events.labels(kind="silence.deleted").inc()
    services.broadcast.notify()
    return Response(status_code=204)
