"""What became of one attempt to tell a receiver something."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver has taken it. ``detail`` is one line for a person."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Retry:
    """Not taken, and the same message may be taken later.

    ``after_seconds`` is what the receiver asked for (`Retry-After`); None leaves it to the
    back-off. ``whole_receiver`` says that nothing else will be taken either (down, too many
    requests, not authorised): every message of the receiver waits, not just this one.
    """

    reason: str
    after_seconds: float | None = None
    whole_receiver: bool = False


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The same message will never be taken; sending it again is up to a person."""

    reason: str


Result = Delivered | Retry | GaveUp


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request that a receiver wants sent, as data.

    ``url`` and ``headers`` may hold secrets: never log them. Names of headers are lower case.
    """

    url: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"
