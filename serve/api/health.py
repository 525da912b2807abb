"""``/healthz``, ``/readyz``, ``/metrics``: for the machines that look after the service."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from serve.api.auth import Reader, Using
from serve.api.problems import responses
from serve.api.schemas import Health

router = APIRouter(tags=["operation"])


@router.get("/healthz", response_model=Health)
async def healthz() -> dict[str, object]:
    """The process lives and answers. Independent of data, source and database."""
    return {"status": "ok", "checks": {}}


@router.get(
    "/readyz",
    response_model=Health,
    responses={503: {"model": Health, "description": "At least one check fails."}},
)
def readyz(services: Using) -> Response:
    """The database answers, detection lives, the source is connected, the lag is within bounds."""
    checks = {check.name: check.run() for check in services.checks}
    well = not any(checks.values())
    body = {"status": "ok" if well else "failing", "checks": checks}
    return JSONResponse(body, 200 if well else 503)


@router.get(
    "/metrics",
    response_class=Response,
    responses=responses() | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(services: Using, _who: Reader) -> Response:
    """The service's own metrics, for Prometheus."""
    return Response(services.metrics.render(), media_type=services.metrics.content_type)
