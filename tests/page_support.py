"""A small stand-in for the service: answers the API with synthetic data and serves the page."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx
import numpy as np
import orjson
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from numpy.typing import NDArray
from starlette.responses import JSONResponse, Response, StreamingResponse

from detect.alert import Alert, Evidence, rfc3339
from replay.view.grid import MEDIA_TYPE, even_grid
from serve.links import Links
from serve.page.router import page_router
from serve.page.security import SameSiteGuard

SECOND = 1_000_000_000
HOSTILE = "<img src=x onerror=alert(1)>&\"'`{{7*7}}"


def made_alert(
    machine: str, onset_ns: int, job: str = "llama-70b", alert_id: str = "a1", **changed: Any
) -> Alert:
    """An alert as detection would raise it 23 s after onset."""
    since = onset_ns + 4 * SECOND
    evidence = (
        Evidence("gpu_tensor_active_ratio", "1", 0.02, 0.55, 0.5, 0.6, "low", since, 0.46),
        Evidence("gpu_power_watts", "W", 131.0, 612.0, 590.0, 633.0, "low", since, 0.31),
        Evidence(
            "nvlink_tx_bytes_per_second", "B/s", 1.1e8, 4.2e10, 4e10, 4.4e10, "low", since, 0.14
        ),
        Evidence("cpu_usage_ratio", "1", 0.97, 0.31, 0.25, 0.38, "high", since, 0.09),
    )
    fields: dict[str, Any] = {
        "id": alert_id,
        "status": "open",
        "verdict": "machine",
        "job": job,
        "machine": machine,
        "machines": (machine,),
        "gpu": None,
        "manifestation": "fail_slow",
        "onset_ns": onset_ns,
        "detected_at_ns": onset_ns + 23 * SECOND,
        "score": 6.2,
        "false_alarms_per_job_week": 10**-6.2,
        "evidence": evidence,
        "fault_types": (("ecc_error", 0.61), ("pcie_downgrading", 0.22), ("gpu_card_drop", 0.09)),
        "recommended_action": "Drain the machine and reset the GPU.",
        "model": "evidence-1",
    }
    return Alert(**(fields | changed))


@dataclass
class FakeService:
    """What the fake API answers from; change it and call `emit`."""

    now_ns: int
    machines: list[str]
    job: str = "llama-70b"
    minutes: int = 30
    faulty: str | None = None
    onset_ns: int = 0
    token: str | None = None
    step_ns: int = SECOND
    alerts: dict[str, dict[str, Any]] = field(default_factory=dict)
    silences: list[dict[str, Any]] = field(default_factory=list)
    feedback: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    stopping: bool = False
    state: str = "running"
    beat_ns: int = 0
    refuse_writes: bool = False
    streams: bool = True
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def put(self, alert: Alert) -> None:
        """Store an alert and tell the stream."""
        links = Links("http://127.0.0.1").alert(alert.id, alert.job)
        self.alerts[alert.id] = alert.to_json(links) | {
            **dict.fromkeys(("paged_at", "acknowledged_at", "acknowledged_by", "storm")),
            **dict.fromkeys(("resolved_at", "resolved_by")),
            "version": 1,
            "episode": 1,
            "changed_at": rfc3339(alert.detected_at_ns),
            "earlier_incidents": {alert.machine: 0},
            "feedback": [],
            "page_reason": "page",
            "commands": [
                {
                    "purpose": "Drain it in Slurm",
                    "text": f"scontrol update nodename={alert.machine} state=drain",
                },
                {
                    "purpose": "Taint it in Kubernetes",
                    "text": f"kubectl taint nodes {alert.machine} weaklink/fault:NoSchedule",
                },
            ],
        }
        self.emit("alert.opened", self.alerts[alert.id])

    def emit(self, kind: str, body: dict[str, Any]) -> None:
        """One server-sent event."""
        self.events.append((kind, body))

    def scores(self, start_ns: int, end_ns: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Reproducible scores: quiet noise, one cron-like bump, one fault."""
        first = -(-max(start_ns, self.now_ns - 4 * 3600 * SECOND) // self.step_ns)
        last = min(end_ns, self.now_ns) // self.step_ns
        ticks = np.arange(first, max(first, last), dtype=np.int64)
        rows = np.arange(len(self.machines))
        random = np.random.default_rng(7)
        base = random.gamma(2.0, 0.05, (len(rows), 257)).astype(np.float32)
        scores = base[:, ticks % 257]
        walk = 0.1 * (1 + np.sin(ticks / 97.0)).astype(np.float32)
        scores += walk * random.random((len(rows), 1)).astype(np.float32)
        for k in range(min(5, len(rows))):
            at = ((ticks - 331 * k) % 1200) < 25
            scores[(k * 37 + 3) % len(rows), at] += 0.55
        if len(rows) > 12:
            scores[11, (ticks % 900) < 40] = np.nan
        times = ticks * self.step_ns
        if self.faulty in self.machines:
            since = (times - self.onset_ns) / SECOND
            growth = np.where(since > 0, np.minimum(since / 18.0, 3.4), 0.0)
            scores[self.machines.index(self.faulty)] += growth.astype(np.float32)
        return times, scores

    def metric(self, name: str, start_ns: int, end_ns: int, machine: str) -> dict[str, Any]:
        """One machine's metric over its peers' band."""
        centre, fault, unit = {
            "gpu_power_watts": (612.0, 131.0, "W"),
            "nvlink_tx_bytes_per_second": (4.2e10, 1.1e8, "B/s"),
            "cpu_usage_ratio": (0.31, 0.97, "1"),
        }.get(name, (0.55, 0.02, "1"))
        times = np.arange(-(-start_ns // SECOND), min(end_ns, self.now_ns) // SECOND)
        random = np.random.default_rng(3)
        beat = 1 + 0.03 * np.sin(times / 5.0)
        median = centre * beat
        value = centre * (beat + random.normal(0, 0.015, times.size))
        if machine == self.faulty:
            late = times * SECOND > self.onset_ns + 4 * SECOND
            value[late] = fault * (1 + random.normal(0, 0.05, int(late.sum())))
        return {
            "metric": name,
            "unit": unit,
            "times_ms": (times * 1000).tolist(),
            "value": value.tolist(),
            "low": (median * 0.94).tolist(),
            "median": median.tolist(),
            "high": (median * 1.06).tolist(),
        }


class Caller:
    """Calls an app in process, without a server."""

    def __init__(self, app: Any):
        self.transport = httpx.ASGITransport(app=app)

    def send(self, method: str, path: str, **how: Any) -> httpx.Response:
        """One request."""

        async def call() -> httpx.Response:
            base = "http://testserver"
            async with httpx.AsyncClient(transport=self.transport, base_url=base) as client:
                return await client.request(method, path, **how)

        return asyncio.run(call())

    def get(self, path: str, **how: Any) -> httpx.Response:
        """One GET."""
        return self.send("GET", path, **how)


def _ns(stamp: str | None, default: int) -> int:
    return round(datetime.fromisoformat(stamp).timestamp() * 1000) * 1_000_000 if stamp else default


def fake_app(service: FakeService) -> FastAPI:
    """The API of ``contracts`` as far as the page needs it, and the page."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(SameSiteGuard)
    api = "/api/v1"

    @app.middleware("http")
    async def note_and_authorise(request: Request, call_next: Any) -> Response:
        service.requests.append(f"{request.method} {request.url.path}")
        wanted = f"Bearer {service.token}"
        if (
            service.token
            and request.url.path.startswith(api)
            and request.headers.get("authorization") != wanted
        ):
            return JSONResponse({"title": "Unauthorized", "status": 401}, 401)
        if service.refuse_writes and request.method != "GET":
            return JSONResponse({"title": "No", "status": 507, "detail": "Storage is full."}, 507)
        answer: Response = await call_next(request)
        return answer

    def job_json() -> dict[str, Any]:
        return {
            "job": service.job,
            "machines": service.machines,
            "phase": "train",
            "state": service.state,
            "lag_seconds": 1.4,
            "watermark": rfc3339(service.now_ns),
            "updated_at": rfc3339(service.beat_ns or service.now_ns),
        }

    def known(alert_id: str) -> dict[str, Any]:
        if alert_id not in service.alerts:
            raise HTTPException(404)
        return service.alerts[alert_id]

    @app.get(api + "/jobs")
    def jobs() -> dict[str, Any]:
        return {"items": [job_json()]}

    @app.get(api + "/jobs/{job}")
    def job(job: str) -> dict[str, Any]:
        if job != service.job:
            raise HTTPException(404)
        return job_json()

    @app.get(api + "/jobs/{job}/scores")
    def scores(
        job: str,
        start: str,
        end: str | None = None,
        machine: str | None = None,
        max_columns: int = 4000,
    ) -> Response:
        times, values = service.scores(_ns(start, 0), _ns(end, service.now_ns))
        names = service.machines
        if machine is not None:
            names, values = [machine], values[[service.machines.index(machine)]]
        half = times.size // 3
        phases = ["start-up"] * min(120, half) + ["train"] * times.size
        phases[half * 2 : half * 2 + 60] = ["checkpoint"] * 60
        made = even_grid(job, names, times, values, phases).pooled(max_columns)
        return Response(made.encode(), media_type=MEDIA_TYPE)

    @app.get(api + "/jobs/{job}/machines/{machine:path}/metrics")
    def metrics(request: Request, job: str, machine: str, start: str, end: str) -> dict[str, Any]:
        names = request.query_params.getlist("metric") or ["gpu_power_watts", "cpu_usage_ratio"]
        span = (_ns(start, 0), _ns(end, service.now_ns))
        return {
            "job": job,
            "machine": machine,
            "series": [service.metric(n, *span, machine) for n in names],
        }

    @app.get(api + "/alerts")
    def alerts(
        status: str | None = None, job: str | None = None, machine: str | None = None
    ) -> dict[str, Any]:
        found = [
            a
            for a in service.alerts.values()
            if (not status or a["status"] == status)
            and (not job or a["job"] == job)
            and (not machine or machine in a["machines"])
        ]
        return {"items": found, "next_cursor": None}

    @app.get(api + "/alerts/{alert_id}")
    def alert(alert_id: str) -> dict[str, Any]:
        return known(alert_id)

    @app.post(api + "/alerts/{alert_id}/{action}")
    async def act(request: Request, alert_id: str, action: str) -> dict[str, Any]:
        found = known(alert_id)
        body = orjson.loads(await request.body() or b"{}")
        if action == "feedback":
            service.feedback.append(body)
            return {}
        if action == "acknowledge":
            found["acknowledged_by"] = body.get("by")
        found["status"] = {"acknowledge": "acknowledged", "resolve": "resolved"}[action]
        service.emit(f"alert.{found['status']}", found)
        return found

    @app.get(api + "/silences")
    def silences() -> dict[str, Any]:
        return {"items": service.silences}

    @app.post(api + "/silences", status_code=201)
    async def silence(request: Request) -> dict[str, Any]:
        given: dict[str, Any] = await request.json()
        body = {"kind": "silence", "starts_at": rfc3339(service.now_ns)} | given
        made = body | {"id": str(len(service.silences) + 1)}
        service.silences.append(made)
        service.emit("silence.created", made)
        return made

    @app.delete(api + "/silences/{silence_id}", status_code=204)
    def unsilence(silence_id: str) -> None:
        service.silences[:] = [s for s in service.silences if s["id"] != silence_id]

    @app.get(api + "/events")
    async def events() -> Response:
        if not service.streams:
            raise HTTPException(404)

        async def stream() -> AsyncIterator[str]:
            seen = len(service.events)
            for turn in itertools.count():
                if service.stopping:
                    return
                if turn % 40 == 0:
                    yield "event: heartbeat\ndata: {}\n\n"
                while seen < len(service.events):
                    kind, body = service.events[seen]
                    seen += 1
                    yield f"id: {seen}\nevent: {kind}\ndata: {orjson.dumps(body).decode()}\n\n"
                await asyncio.sleep(0.05)

        return StreamingResponse(stream(), media_type="text/event-stream")

    app.include_router(page_router())
    return app


@contextlib.contextmanager
def running(app: Any, service: FakeService, port: int = 0) -> Iterator[str]:
    """The app on a free (or the given) loopback port; yields its address, stops it at the end."""
    listener = socket.create_server(("127.0.0.1", port))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            thread.join(0.02)
        yield address
    finally:
        service.stopping = True
        server.should_exit = True
        thread.join(10)
        listener.close()
