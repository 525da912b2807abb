"""What each view of the page shows, asked of the API: from a request to its template's values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request

from serve.page.filters import path_segment
from serve.page.inside import Refused, ask, items
from serve.paging import REASONS

SHOWN_ALERTS = 50
SHOWN_RESOLVED = 5

Values = dict[str, Any]
View = Callable[[Request], Awaitable[Values]]


async def overview(request: Request) -> Values:
    """Every job, and what is open."""
    active, more = await _active(request)
    jobs = [_summary(j, active) for j in items(await ask(request, "/jobs"))]
    jobs.sort(key=lambda j: (-j["alert_count"], j["job"]))
    return {
        **_beat(jobs),
        "active": active,
        "more": more,
        "jobs": jobs,
        "resolved": await _resolved(request),
    }


async def job(request: Request) -> Values:
    """A job: its machines, its alerts, its scores."""
    name = request.path_params["job"]
    found = await ask(request, f"/jobs/{path_segment(name)}")
    active, _ = await _active(request, job=name)
    return {
        **_beat([found]),
        "job": _summary(found, active),
        "active": active,
        "resolved": await _resolved(request, job=name),
    }


async def machine(request: Request) -> Values:
    """A machine of a job against its peers."""
    name = request.query_params.get("machine", "")
    job_name = request.query_params.get("job", "")
    found = await ask(request, f"/jobs/{path_segment(job_name)}")
    query = {"job": job_name, "machine": name, "limit": str(SHOWN_ALERTS)}
    alerts = items(await ask(request, "/alerts", query))
    return {**_beat([found]), "job": _summary(found, []), "machine": name, "alerts": alerts}


async def alerts(request: Request) -> Values:
    """The list of alerts, filtered."""
    keys = ("status", "job", "machine", "cursor")
    given = {key: request.query_params.get(key, "") for key in keys}
    query = {key: value for key, value in given.items() if value}
    answer = await ask(request, "/alerts", query | {"limit": str(SHOWN_ALERTS)})
    cursor = answer.get("next_cursor") if isinstance(answer, dict) else None
    following = urlencode({**query, "cursor": cursor}) if cursor else ""
    return {"alerts": items(answer), "next": following, "given": given}


async def alert(request: Request) -> Values:
    """An alert's story."""
    found = await ask(request, f"/alerts/{path_segment(request.path_params['alert_id'])}")
    active, _ = await _active(request, job=found["job"])
    reason = REASONS.get(found.get("page_reason", ""), "")
    return {
        "alert": found,
        **_beat(await _job_of(request, found["job"])),
        "commands": found.get("commands") or [],
        "earlier": _repeated(found.get("earlier_incidents") or {}),
        "marked": [found, *(a for a in active if a["id"] != found["id"])],
        "feedback": found.get("feedback") or [],
        "links": _links(found.get("links") or {}),
        "page_reason": f"Paging: {reason}." if reason else "",
    }


async def silences(request: Request) -> Values:
    """Silences, in force and to come."""
    return {"silences": items(await ask(request, "/silences"))}


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


def _summary(job: dict[str, Any], active: list[dict[str, Any]]) -> dict[str, Any]:
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


VIEWS: dict[str, View] = {
    "/": overview,
    "/jobs/{job:path}": job,
    "/machine": machine,
    "/alerts": alerts,
    "/alerts/{alert_id}": alert,
    "/silences": silences,
}
"""By path; a view's template has the view's name."""
