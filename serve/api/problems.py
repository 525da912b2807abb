"""Every error as RFC 9457 problem details (``application/problem+json``)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import orjson
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import InterfaceError, OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from serve.observe import describe
from serve.store.base import DatabaseError

MEDIA_TYPE = "application/problem+json"

_log = structlog.stdlib.get_logger("weaklink.api")


class FieldProblem(BaseModel):
    """One thing that is wrong with a request."""

    where: str
    reason: str


class Problem(BaseModel):
    """What went wrong, for a program and for a person."""

    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] | None = None


class ProblemError(Exception):
    """Raised anywhere below a route; becomes the answer."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: dict[str, str] | None = None,
        errors: list[FieldProblem] | None = None,
    ):
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}
        self.errors = errors


def problem_response(
    status: int,
    detail: str,
    *,
    headers: dict[str, str] | None = None,
    errors: list[FieldProblem] | None = None,
) -> Response:
    """The answer itself."""
    title = HTTPStatus(status).phrase
    body = Problem(title=title, status=status, detail=detail or title, errors=errors)
    content = orjson.dumps(body.model_dump(exclude_none=True))
    # Errors are about this very moment: nobody may keep them.
    return Response(content, status, {"Cache-Control": "no-store"} | (headers or {}), MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Make every error of the app a problem document."""

    @app.exception_handler(ProblemError)
    async def on_problem(_request: Request, error: ProblemError) -> Response:
        return problem_response(
            error.status, error.detail, headers=error.headers, errors=error.errors
        )

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 400:  # FastAPI's answer to a body that is no text
            return problem_response(422, "body: cannot be read as JSON")
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(_allowed(app, request))
        return problem_response(error.status_code, str(error.detail), headers=headers)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_request: Request, error: RequestValidationError) -> Response:
        errors = [
            FieldProblem(
                where=_printable(".".join(str(part) for part in item["loc"])),
                reason=_printable(str(item["msg"]).removeprefix("Value error, ")),
            )
            for item in error.errors()[:20]
        ]
        first = f"{errors[0].where}: {errors[0].reason}" if errors else "The request is not valid."
        return problem_response(422, first, errors=errors)

    async def on_database(_request: Request, error: Exception) -> Response:
        _log.error("database", reason=describe(error))
        return problem_response(503, "The database does not answer.", headers={"Retry-After": "5"})

    for kind in (OperationalError, InterfaceError, DatabaseError):
        app.add_exception_handler(kind, on_database)


def _allowed(app: FastAPI, request: Request) -> list[str]:
    """Every method of the path: Starlette only knows those of the first route that has it."""
    methods: set[str] = set()
    for route in app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods)


def _printable(text: str) -> str:
    """Without lone surrogates, which JSON cannot carry."""
    return text.encode("utf-8", "replace").decode()


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of these errors, beside those every route may give."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status in sorted({400, 401, 403, 421, 422, 429, 503, *statuses})
    }
