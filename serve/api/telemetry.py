"""``POST /telemetry``: samples without Kafka, in the same wire formats."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ingest.samples import Rejected
from serve.api.auth import Using, Writer
from serve.api.problems import FieldProblem, ProblemError, responses
from serve.api.schemas import Taken
from serve.api.shared import PREFIX, created
from serve.metrics import LOST_VALUES
from serve.push import TooLargeError, UnknownFormatError, decompress
from serve.services import Services
from serve.source import PushFullError

router = APIRouter(prefix=PREFIX, tags=["telemetry"])

SHOWN = 20

_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {}},
            "application/x-ndjson": {"schema": {"type": "string"}},
            "text/plain": {"schema": {"type": "string"}},
            "application/vnd.apache.arrow.stream": {
                "schema": {"type": "string", "format": "binary"}
            },
        },
    }
}


@router.post(
    "/telemetry",
    status_code=202,
    response_model=Taken,
    responses=responses(409, 413, 415),
    openapi_extra=_BODY,
)
async def push(
    request: Request,
    services: Using,
    _who: Writer,
    content_type: Annotated[str, Header()] = "application/json",
    content_encoding: Annotated[str, Header()] = "",
) -> Response:
    """Take in samples. What cannot be used is counted and told; the rest is taken.

    429 with ``Retry-After`` means that the queue is full and nothing of this request was
    taken: send the same again later.
    """
    if services.push is None or services.decoder is None:
        raise ProblemError(409, "This process takes no telemetry: its source is another one.")
    body = await request.body()
    return await run_in_threadpool(_take, services, content_type, content_encoding, body)


def _take(services: Services, content_type: str, encoding: str, body: bytes) -> Response:
    assert services.push is not None
    assert services.decoder is not None
    try:
        text = decompress(encoding, body, services.config.http.body_limit_bytes)
    except TooLargeError:
        limit = services.config.http.body_limit_bytes
        raise ProblemError(413, f"The body holds more than {limit} bytes.") from None
    except ValueError as error:
        raise ProblemError(415, str(error)) from None
    now_ns = services.database.clock()
    try:
        decoded = services.decoder.decode(content_type, text, "push", now_ns)
    except UnknownFormatError as error:
        raise ProblemError(415, str(error)) from None
    rows = decoded.samples.num_rows
    try:
        services.push.offer(decoded)
    except PushFullError as error:
        headers = {"Retry-After": str(error.retry_after_seconds)}
        raise ProblemError(429, "The queue is full; nothing was taken.", headers=headers) from None
    if not rows and decoded.rejected:
        errors = [FieldProblem(where=r.origin, reason=_reason(r)) for r in decoded.rejected[:SHOWN]]
        raise ProblemError(422, f"Nothing of it can be used: {errors[0].reason}", errors=errors)
    services.metrics.push_queue_rows.set(services.push.waiting_rows)
    taken = {
        "rows": rows,
        "rejected": sum(r.rows for r in decoded.rejected),
        "lost_values": {k: n for k, n in sorted(decoded.counts.items()) if k in LOST_VALUES},
        "examples": [
            {"reason": r.reason, "origin": r.origin, "detail": r.detail}
            for r in decoded.rejected[:SHOWN]
        ],
    }
    return created(taken, 202)


def _reason(rejected: Rejected) -> str:
    return f"{rejected.reason}: {rejected.detail}" if rejected.detail else rejected.reason
