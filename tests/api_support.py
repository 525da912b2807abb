"""The real app over a database in memory, and a client that speaks to it in process."""

from __future__ import annotations

from typing import Any

import httpx
from fastapi import FastAPI

from serve.app import create_app
from serve.broadcast import Broadcast
from serve.config import Config
from serve.lifecycle import Lifecycle
from serve.links import Links
from serve.metrics import Metrics
from serve.services import Services
from serve.store.base import Database
from serve.store.history import HistoryStore
from serve.tokens import Scope, create_token
from tests.page_support import Caller
from tests.serve_support import HandClock, KeptOutbox, change, make_alert, memory_database


class Api:
    """The app, its parts, and short words for requests. ``config`` is given by section."""

    def __init__(self, database: Database | None = None, **config: Any) -> None:
        self.database = database or memory_database()
        assert isinstance(self.database.clock, HandClock)
        self.clock = self.database.clock
        sections: dict[str, Any] = {"http": {"trusted_hosts": ["testserver"]}}
        for name, values in config.items():
            sections[name] = {**sections.get(name, {}), **values}
        self.outbox = KeptOutbox()
        settings = Config.model_validate(sections)
        self.services = Services(
            config=settings,
            database=self.database,
            lifecycle=Lifecycle(settings.alerts, Links("http://wl")),
            outbox=self.outbox,
            history=HistoryStore(self.database),
            metrics=Metrics("test"),
            broadcast=Broadcast(),
            version="test",
        )
        self.token = ""
        self._app: FastAPI | None = None

    @property
    def app(self) -> FastAPI:
        """Made at the first request, so that a test can change the services before."""
        if self._app is None:
            self._app = create_app(self.services)
        return self._app

    def ask(self, method: str, path: str, **how: Any) -> httpx.Response:
        """One request; paths without a slash at the start are under ``/api/v1/``."""
        headers = dict(how.pop("headers", {}))
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        where = path if path.startswith("/") else f"/api/v1/{path}"
        return Caller(self.app).send(method, where, headers=headers, **how)

    def get(self, path: str, **how: Any) -> httpx.Response:
        """GET."""
        return self.ask("GET", path, **how)

    def post(self, path: str, json: Any = None, **how: Any) -> httpx.Response:
        """POST, with JSON if given."""
        return self.ask("POST", path, **({"json": json} if json is not None else {}), **how)

    def find(self, *machines: str, **fields: Any) -> None:
        """Let detection open an alert of each machine."""
        changes = [change("opened", make_alert(machine, **fields)) for machine in machines]
        with self.database.write() as session:
            self.services.lifecycle.apply(session, changes, now_ns=self.clock())

    def new_token(self, *scopes: Scope) -> str:
        """A token with these scopes."""
        with self.database.write() as session:
            return create_token(session, "-".join(scopes), scopes, now_ns=self.clock())
