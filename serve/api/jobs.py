"""``/jobs``: what is under detection, and how it stands."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import select
from starlette.requests import Request
from starlette.responses import Response

from detect.alert import rfc3339
from serve.api.auth import Reader, Using
from serve.api.problems import ProblemError, responses
from serve.api.schemas import JobDetail, JobPage
from serve.api.shared import PREFIX, JobName, Limit, answer, decode_cursor, encode_cursor
from serve.services import Services
from serve.store.tables import JobRow

router = APIRouter(prefix=PREFIX, tags=["jobs"])


@router.get("/jobs", response_model=JobPage, responses=responses())
def list_jobs(
    request: Request,
    services: Using,
    _who: Reader,
    limit: Limit = 200,
    cursor: Annotated[str | None, Query(max_length=2000)] = None,
) -> Response:
    """Jobs by name."""
    query = select(JobRow).order_by(JobRow.job).limit(limit + 1)
    if cursor is not None:
        (last,) = decode_cursor(cursor, (str,))
        query = query.where(JobRow.job > last)
    with services.database.read() as session:
        rows = list(session.scalars(query))
    following = encode_cursor(rows[limit - 1].job) if len(rows) > limit else None
    items = [_summary(services, row) for row in rows[:limit]]
    return answer(request, {"items": items, "next_cursor": following})


last_router = APIRouter(prefix=PREFIX, tags=["jobs"])
"""Routes that must come after all others under ``/jobs``: a job's name may hold slashes."""


@last_router.get("/jobs/{job:path}", response_model=JobDetail, responses=responses(404))
def get_job(request: Request, services: Using, _who: Reader, job: JobName) -> Response:
    """One job: machines, phase, state, lag."""
    with services.database.read() as session:
        row = session.get(JobRow, job)
    if row is None:
        raise ProblemError(404, f"There is no job {job!r}.")
    span = services.history.span(job)
    view = _summary(services, row) | {
        "machines": row.body["machines"],
        "run": row.body["run"],
        "tick_seconds": row.body["tick_ns"] / 1e9 or None,
        "rejected": row.body["rejected"],
        "metrics": services.history.metrics(job),
        "history_start": rfc3339(span[0]) if span else None,
        "history_end": rfc3339(span[1]) if span else None,
    }
    return answer(request, view)


def _summary(services: Services, row: JobRow) -> dict[str, Any]:
    body, now_ns = row.body, services.database.clock()
    silent = now_ns - row.updated_at_ns
    unattended = silent > services.config.worker.heartbeat_limit_seconds * 1e9
    state = body["state"]
    watermark = body["watermark_ns"] or None
    return {
        "job": row.job,
        "state": "unattended" if unattended and state != "ended" else state,
        "phase": body["phase"],
        "machines": len(body["machines"]),
        "watermark": rfc3339(watermark) if watermark else None,
        "lag_seconds": round((now_ns - watermark) / 1e9, 3) if watermark else None,
        "worker": row.worker,
        "updated_at": rfc3339(row.updated_at_ns),
        "links": services.links.job(row.job),
    }
