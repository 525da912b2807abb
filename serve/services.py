"""Everything that the API answers from, handed to `serve.app.create_app`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from detect.alert import Alert
from serve.broadcast import Broadcast
from serve.config import Config
from serve.lifecycle import Applied, Lifecycle
from serve.links import Links
from serve.metrics import Metrics
from serve.observe import LifeApplied
from serve.picture.pictures import Pictures
from serve.push import PushDecoder
from serve.seams import Outbox
from serve.source import PushSource
from serve.store.base import Database
from serve.store.history import HistoryStore


class Command(Protocol):
    """A command line that a person may copy."""

    @property
    def purpose(self) -> str:
        """What it is for."""
        ...

    @property
    def text(self) -> str:
        """The command."""
        ...


@dataclass(slots=True)
class Check:
    """One condition of readiness: ``run`` returns what is wrong, empty if nothing is."""

    name: str
    run: Callable[[], str]


@dataclass(slots=True)
class Services:
    """Built once per process; ``config`` is exchanged by a reload."""

    config: Config
    database: Database
    lifecycle: Lifecycle
    outbox: Outbox
    history: HistoryStore
    metrics: Metrics
    broadcast: Broadcast
    version: str
    push: PushSource | None = None
    decoder: PushDecoder | None = None
    checks: Sequence[Check] = ()
    commands: Callable[[Alert], Sequence[Command]] = lambda _alert: ()
    metric_unit: Callable[[str], str] = lambda _metric: ""
    wake_notifications: Callable[[], None] = lambda: None
    pictures: Pictures = field(default_factory=Pictures)
    verified_tokens: set[str] = field(default_factory=set)
    """Digests of tokens that were valid when last seen; only these get a rate limit each."""

    @property
    def links(self) -> Links:
        """Addresses under the public URL in force."""
        return self.lifecycle.links

    def told(self, applied: Applied) -> None:
        """After the commit of a step that a person took."""
        LifeApplied(applied).emit(self.metrics)
        self.broadcast.notify()
        if applied.notices:
            self.wake_notifications()
