"""The application: built by a function from data, with a lifespan, without globals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

from serve.api import (
    alerts,
    docs,
    events,
    health,
    jobs,
    picture,
    problems,
    scores,
    silences,
    telemetry,
)
from serve.api.guards import BodyLimit, HostCheck, Outermost, RateLimit
from serve.api.shared import PREFIX
from serve.page.router import page_router
from serve.page.security import SameSiteGuard
from serve.services import Services

Running = Callable[[], AbstractContextManager[None]]


def create_app(
    services: Services,
    *,
    running: Running = nullcontext,
    with_api: bool = True,
    extra: Sequence[APIRouter] = (),
) -> FastAPI:
    """The app over these services.

    ``running`` is entered when the server starts and left when it stops (workers, deliveries);
    ``with_api=False`` leaves health and metrics only (a worker on its own); ``extra`` routers
    carry their own prefix.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        with running():
            yield

    app = FastAPI(
        title="weaklink",
        summary="Finds the one machine that is about to stall a synchronous training job.",
        version=services.version,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json" if with_api else None,
        middleware=_middleware(services),
        redirect_slashes=False,
    )
    app.state.services = services
    problems.install(app)
    routers = [health.router]
    if with_api:
        routers += [
            alerts.router,
            picture.router,
            silences.router,
            events.router,
            telemetry.router,
            *extra,
        ]
        routers += [jobs.router, scores.router, jobs.last_router, docs.router, page_router()]
    for router in routers:
        # Flat and in this order, so that a request's route says its whole path.
        app.router.routes.extend(router.routes)
    _describe_problems(app)
    for route in app.routes:
        if isinstance(route, APIRoute):
            for method in sorted(route.methods or ()):
                services.metrics.route(method, route.path)
    services.metrics.route("other", "other")
    return app


def _middleware(services: Services) -> list[Middleware]:
    """Outermost first."""
    origins = services.config.http.cors_origins
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "If-Match", "Last-Event-ID"],
        expose_headers=["ETag", "Retry-After"],
    )
    return [
        Middleware(Outermost, metrics=services.metrics),
        Middleware(HostCheck, services=services),
        *([cors] if origins else []),
        Middleware(SameSiteGuard, allowed_origins=origins),
        Middleware(RateLimit, services=services),
        Middleware(BodyLimit, services=services),
        # Level 1: scores shrink well, and a heat map should not wait for more.
        Middleware(GZipMiddleware, minimum_size=4096, compresslevel=1),
    ]


def _describe_problems(app: FastAPI) -> None:
    """Name the schema of problem documents in the OpenAPI description."""
    original = app.openapi

    def openapi() -> dict[str, object]:
        described = original()
        schemas = described.setdefault("components", {}).setdefault("schemas", {})
        schemas.setdefault(
            "Problem",
            problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}"),
        )
        for name, schema in schemas["Problem"].pop("$defs", {}).items():
            schemas.setdefault(name, schema)
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        return described

    app.openapi = openapi  # type: ignore[method-assign]
