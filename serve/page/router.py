"""Routes of the page. Every view is a client of the public API, asked in process.

A view is answered whole, or as a fragment (its ``<main>`` alone) to the page's script, which
swaps changed parts in. What the API refuses (no token) becomes a locked page; the script
then asks for a token and fetches the fragment with it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import APIRouter
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from replay.view.words import FILTERS as WORDS
from serve.page.assets import page_assets
from serve.page.filters import FILTERS
from serve.page.inside import Refused
from serve.page.security import PAGE_HEADERS
from serve.page.views import VIEWS, View

FRAGMENT_HEADER = "x-weaklink-fragment"


def page_router() -> APIRouter:
    """The page's routes; reads no data of its own and keeps no state."""
    assets = page_assets()
    templates = _templates()
    router = APIRouter(include_in_schema=False)

    def render(request: Request, name: str, code: int = 200, **values: Any) -> HTMLResponse:
        fragment = FRAGMENT_HEADER in request.headers
        base = str(request.scope.get("root_path", "")).rstrip("/")
        body = templates.get_template(f"{name}.html").render(
            layout="fragment.html" if fragment else "layout.html",
            view=name,
            base=base,
            assets=f"{base}/assets/{assets.version}",
            **values,
        )
        headers = PAGE_HEADERS | {"Vary": f"Authorization, {FRAGMENT_HEADER}"}
        return HTMLResponse(body, code, headers=headers)

    def register(path: str, view: View) -> None:
        async def answer(request: Request) -> Response:
            try:
                return render(request, view.__name__, **await view(request))
            except Refused as refused:
                heading, text = _refusal(refused)
                return render(
                    request,
                    "locked",
                    refused.status,
                    heading=heading,
                    text=text,
                    locked=refused.status in (401, 403),
                )

        router.add_api_route(path, answer, methods=["GET"], response_class=HTMLResponse)

    for path, view in VIEWS.items():
        register(path, view)

    @router.get("/assets/{version}/{name:path}")
    @router.head("/assets/{version}/{name:path}")
    async def asset(request: Request, version: str, name: str) -> Response:
        return assets.respond(request, version, name)

    return router


@cache  # templates do not change while the service runs
def _templates() -> Environment:
    loader = ChoiceLoader([PackageLoader("serve.page"), PackageLoader("replay.view")])
    made = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(WORDS | FILTERS)
    return made


def _refusal(refused: Refused) -> tuple[str, str]:
    if refused.status in (401, 403):
        return "Locked", "This service shows its data only to those who hold a token for it."
    if refused.status == 404:
        return "Not here", "There is no such job or alert, or retention has removed it."
    return "No answer", f"The API answered {refused.status} ({refused.title})."
