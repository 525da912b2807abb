"""Routes of the page. Every view is a client of the public API, asked in process.

A view is answered whole, or as a fragment (its ``<main>`` alone) to the page's script, which
swaps changed parts in. What the API refuses (no token) becomes a locked page; the script
then asks for a token and fetches the fragment with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from replay.view.words import FILTERS as WORDS
from serve.page.assets import page_assets
from serve.page.filters import FILTERS, path_segment
from serve.page.inside import Refused, ask, items
from serve.page.security import PAGE_HEADERS
from serve.paging import REASONS

FRAGMENT_HEADER = "x-weaklink-fragment"
SHOWN_ALERTS = 50
SHOWN_RESOLVED = 5

View = Callable[[Request], Awaitable[HTMLResponse]]


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

    def view(path: str) -> Callable[[View], View]:
        def register(make: View) -> View:
            async def answer(request: Request) -> Response:
                try:
                    return await make(request)
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
            return make

        return register

    @view("/")
    async def overview(request: Request) -> HTMLResponse:
        active, more = await _active(request)
        jobs = [_job(j, active) for j in items(await ask(request, "/jobs"))]
        jobs.sort(key=lambda j: (-j["alert_count"], j["job"]))
        return render(
            request,
            "overview",
            **_beat(jobs),
            active=active,
            more=more,
            jobs=jobs,
            resolved=await _resolved(request),
        )

    @view("/jobs/{job:path}")
    async def job(request: Request) -> HTMLResponse:
        name = request.path_params["job"]
        found = await ask(request, f"/jobs/{path_segment(name)}")
        active, _ = await _active(request, job=name)
        return render(
            request,
            "job",
            **_beat([found]),
            job=_job(found, active),
            active=active,
            resolved=await _resolved(request, job=name),
        )

    @view("/machine")
    async def machine(request: Request) -> HTMLResponse:
        name = request.query_params.get("machine", "")
        job_name = request.query_params.get("job", "")
        found = await ask(request, f"/jobs/{path_segment(job_name)}")
        query = {"job": job_name, "machine": name, "limit": str(SHOWN_ALERTS)}
        alerts = items(await ask(request, "/alerts", query))
        return render(
            request,
            "machine",
            **_beat([found]),
            job=_job(found, []),
            machine=name,
            alerts=alerts,
        )

    @view("/alerts")
    async def alerts(request: Request) -> HTMLResponse:
        keys = ("status", "job", "machine", "cursor")
        given = {key: request.query_params.get(key, "") for key in keys}
        query = {key: value for key, value in given.items() if value}
        answer = await ask(request, "/alerts", query | {"limit": str(SHOWN_ALERTS)})
        cursor = answer.get("next_cursor") if isinstance(answer, dict) else None
        following = urlencode({**query, "cursor": cursor}) if cursor else ""
        return render(request, "alerts", alerts=items(answer), next=following, given=given)

    @view("/alerts/{alert_id}")
    async def alert(request: Request) -> HTMLResponse:
        found = await ask(request, f"/alerts/{path_segment(request.path_params['alert_id'])}")
        active, _ = await _active(request, job=found["job"])
        reason = REASONS.get(found.get("page_reason", ""), "")
        return render(
            request,
            "alert",
            alert=found,
            **_beat(await _job_of(request, found["job"])),
            commands=found.get("commands") or [],
            earlier=_repeated(found.get("earlier_incidents") or {}),
            marked=[found, *(a for a in active if a["id"] != found["id"])],
            feedback=found.get("feedback") or [],
            links=_links(found.get("links") or {}),
            page_reason=f"Paging: {reason}." if reason else "",
        )

    @view("/silences")
    async def silences(request: Request) -> HTMLResponse:
        return render(request, "silences", silences=items(await ask(request, "/silences")))

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


async def _active(request: Request, **query: str) -> tuple[list[dict[str, Any]], bool]:
    """Open and acknowledged alerts, the paging and newest first, and whether there are more."""
    found: list[dict[str, Any]] = []
    for status in ("open", "acknowledged"):
        wanted = {"status": status, "limit": str(SHOWN_ALERTS), **query}
        found += items(await ask(request, "/alerts", wanted))
    found.sort(key=lambda a: a["detected_at"], reverse=True)
    found.sort(key=lambda a: (a["status"] != "open", not a["pages"]))
    return found[:SHOWN_ALERTS], len(found) > SHOWN_ALERTS


async def _resolved(request: Request, **query: str) -> list[dict[str, Any]]:
    wanted = {"status": "resolved", "limit": str(SHOWN_RESOLVED), **query}
    return items(await ask(request, "/alerts", wanted))


async def _job_of(request: Request, job: str) -> list[dict[str, Any]]:
    """The job, unless retention has forgotten it."""
    try:
        return [await ask(request, f"/jobs/{path_segment(job)}")]
    except Refused:
        return []


def _beat(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Detection's last sign of life, and how many jobs nobody watches."""
    alive = [j for j in jobs if j.get("state") in ("running", "waiting", "unattended")]
    return {
        "heart": max((str(j.get("updated_at") or "") for j in alive), default=""),
        "unattended": sum(j["state"] == "unattended" for j in alive),
    }


def _job(job: dict[str, Any], active: list[dict[str, Any]]) -> dict[str, Any]:
    machines = job.get("machines", 0)
    return {
        "phase": "",
        "state": "",
        "lag_seconds": None,
        **job,
        "machine_count": machines if isinstance(machines, int) else len(machines),
        "alert_count": sum(a["job"] == job["job"] for a in active),
    }


def _repeated(earlier: dict[str, int]) -> list[tuple[str, int]]:
    """Machines that were named before, the most often named first."""
    named = [(name, count) for name, count in earlier.items() if count > 0]
    return sorted(named, key=lambda item: (-item[1], item[0]))[:5]


def _links(links: dict[str, str]) -> list[tuple[str, str]]:
    """Links that may be shown: http(s) or within this service, not the page itself."""
    titles = {"job": "Heat map of the job", "api": "This alert as JSON"}
    return [
        (titles.get(title, title.replace("_", " ")), url)
        for title, url in links.items()
        if title != "page" and urlsplit(url).scheme in ("", "http", "https")
    ]


def _refusal(refused: Refused) -> tuple[str, str]:
    if refused.status in (401, 403):
        return "Locked", "This service shows its data only to those who hold a token for it."
    if refused.status == 404:
        return "Not here", "There is no such job or alert, or retention has removed it."
    return "No answer", f"The API answered {refused.status} ({refused.title})."
