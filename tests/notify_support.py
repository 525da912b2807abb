"""Helpers of the notification tests: notices made to order, and a receiver that misbehaves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, Literal

from prometheus_client import CollectorRegistry

from serve.notice import Notice, NoticeKind
from serve.notify.config import NotifySettings, build_receivers
from serve.notify.dispatcher import Dispatcher
from serve.notify.events import NotifyEvents
from serve.notify.note import Note, Severity, note_of
from serve.notify.outbox import NotifyOutbox
from serve.notify.pace import Backoff
from serve.notify.receiver import Context, Receiver, Traits
from serve.notify.result import Delivered, Result
from serve.notify.settings import ReceiverSettings
from serve.store.base import Database
from tests.serve_support import SECOND, START_NS, make_alert

SIGNING_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


def make_notice(
    kind: NoticeKind = "opened",
    *,
    sequence: int = 1,
    machine: str | None = "m-3",
    job: str = "llama",
    at_ns: int = START_NS + SECOND,
    alert_fields: dict[str, Any] | None = None,
    **fields: Any,
) -> Notice:
    """A notice about one machine; any field can be given."""
    resolves = kind in {"resolved", "breaker_closed"}
    alert = make_alert(machine, job=job, **(alert_fields or {}))
    if resolves:
        alert = replace(alert, status="resolved")
    elif kind == "acknowledged":
        alert = replace(alert, status="acknowledged")
    notice = Notice(
        key=alert.id,
        sequence=sequence,
        kind=kind,
        alert=alert,
        title=f"{machine} in job {job}",
        text="",
        job=job,
        at_ns=at_ns,
        machines=alert.machines,
        resolves=resolves,
        links={"page": f"https://weaklink.example/alerts/{alert.id}"},
    )
    return replace(notice, **fields)


def make_note(kind: NoticeKind = "opened", *, severity: Severity = "page", **fields: Any) -> Note:
    """The stored form of `make_notice`."""
    return note_of(make_notice(kind, **fields), severity)


@dataclass
class FakeReceiver:
    """Remembers what it was told; ``answers`` are used up first, then everything is taken."""

    settings: ReceiverSettings
    traits: Traits = field(default_factory=lambda: Traits(pending="every", past=True))
    answers: list[Result] = field(default_factory=list)
    told: list[Note] = field(default_factory=list)
    tried: list[Note] = field(default_factory=list)

    def labels(self, note: Note) -> dict[str, str]:
        return {"machine": str((note.alert or {}).get("machine"))}

    def send(self, note: Note, context: Context) -> Result:
        self.tried.append(note)
        result = self.answers.pop(0) if self.answers else Delivered()
        if isinstance(result, Delivered):
            self.told.append(note)
        return result


def fake(
    name: str = "fake",
    *answers: Result,
    pending: Literal["every", "latest"] = "every",
    past: bool = True,
    **settings: Any,
) -> FakeReceiver:
    """A `FakeReceiver` of the given kind."""
    return FakeReceiver(
        ReceiverSettings(name=name, **settings), Traits(pending=pending, past=past), list(answers)
    )


def make_dispatcher(database: Database, *receivers: Receiver, **fields: Any) -> Dispatcher:
    """A dispatcher with its own counters and a seeded random."""
    fields.setdefault("backoff", Backoff(random=Random(7)))
    return Dispatcher(
        database=database,
        receivers={r.settings.name: r for r in receivers},
        events=NotifyEvents(CollectorRegistry()),
        **fields,
    )


def settings_of(*receivers: dict[str, Any], **fields: Any) -> NotifySettings:
    """A ``notify`` section."""
    return NotifySettings.model_validate({"receivers": receivers, **fields})


def webhook_settings(url: str, name: str = "hook", **fields: Any) -> NotifySettings:
    """A section with one webhook."""
    return settings_of({"type": "webhook", "name": name, "url": url, **fields})


def only_receiver(settings: NotifySettings) -> Any:
    """The receiver of a section with one entry."""
    (receiver,) = build_receivers(settings).values()
    return receiver


def enqueue(database: Database, *notices: Notice, to: tuple[str, ...] = ("fake",)) -> None:
    """Store notices for receivers of these names."""
    outbox = NotifyOutbox(
        settings_of(*({"type": "webhook", "name": n, "url": "http://127.0.0.1:9/"} for n in to))
    )
    with database.write() as session:
        outbox.enqueue(session, notices)


def free_port() -> int:
    """A port of loopback that nobody listens on just now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@dataclass(frozen=True)
class Request:
    """What the server received; header names are lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


Behaviour = Callable[[BaseHTTPRequestHandler, threading.Event], None]


def answers(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    """Answer at once; underscores in header names become hyphens."""

    def act(handler: BaseHTTPRequestHandler, over: threading.Event) -> None:
        del over
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return act


def hangs(handler: BaseHTTPRequestHandler, over: threading.Event) -> None:
    """Take the request and never answer."""
    del handler
    over.wait(30)


def closes(handler: BaseHTTPRequestHandler, over: threading.Event) -> None:
    """Take the request and close the connection."""
    del over
    handler.close_connection = True


def late(seconds: float) -> Behaviour:
    """Answer 200, but only after some time."""

    def act(handler: BaseHTTPRequestHandler, over: threading.Event) -> None:
        over.wait(seconds)
        answers(200)(handler, over)

    return act


def drips(handler: BaseHTTPRequestHandler, over: threading.Event) -> None:
    """Send the head of an answer, then a byte at a time, for ever."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not over.wait(0.05):
        handler.wfile.write(b".")
        handler.wfile.flush()


@dataclass
class Misbehaving:
    """A local HTTP server; ``script`` is used up first, then everything gets ``default``."""

    url: str
    requests: list[Request] = field(default_factory=list)
    script: list[Behaviour] = field(default_factory=list)
    default: Behaviour = field(default_factory=lambda: answers(200))

    def keys(self) -> list[str]:
        """Idempotency keys in order of arrival."""
        return [r.headers.get("webhook-id", "") for r in self.requests]


@contextmanager
def misbehaving(*script: Behaviour, port: int = 0) -> Iterator[Misbehaving]:
    """Run the server on loopback."""
    over = threading.Event()
    lock = threading.Lock()
    state = Misbehaving(url="", script=list(script))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {k.lower(): v for k, v in self.headers.items()}
            with lock:
                state.requests.append(Request(self.path, headers, body))
                act = state.script.pop(0) if state.script else state.default
            try:
                act(self, over)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = True
        request_queue_size = 64

        def handle_error(self, request: Any, client_address: Any) -> None:
            del request, client_address

    server = Server(("127.0.0.1", port), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
