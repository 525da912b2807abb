"""The seam between the dispatcher and a receiver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from serve.notify.note import Note, Told
from serve.notify.result import Result
from serve.notify.settings import ReceiverSettings


@dataclass(frozen=True, slots=True)
class Traits:
    """What a kind of receiver means by a message; the dispatcher asks nothing else about it.

    Attributes
    ----------
    pending
        ``every``: each message counts; an older one that is stuck blocks the newer ones of
        its incident until it is delivered or dead. ``latest``: a message is the state of an
        incident; a newer one replaces what is still pending.
    past
        Whether an incident that began and ended unheard is still told (as one message).
        An incident that no longer exists must not be opened in a pager just to be closed.
    resend_seconds
        How often an open incident is told again while it lasts; None: never.
    """

    pending: Literal["every", "latest"]
    past: bool
    resend_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """Everything beside the note that a rendering may depend on.

    ``secrets`` are the receiver's own, by configuration key; ``told`` is what it knows of the
    incident; ``now_ns`` is the time of this attempt.
    """

    now_ns: int
    told: Told = field(default_factory=Told)
    secrets: dict[str, str] = field(default_factory=dict)


class Receiver(Protocol):
    """Tells one place of incidents. The dispatcher calls it from one thread at a time.

    A receiver keeps nothing between calls (another process may deliver the next message),
    never raises for anything that the other side does, and never writes a log.
    """

    @property
    def settings(self) -> ReceiverSettings:
        """The configuration, as given."""
        ...

    @property
    def traits(self) -> Traits:
        """How its messages are to be treated."""
        ...

    def labels(self, note: Note) -> dict[str, str]:
        """What the receiver knows the incident by, kept until the next delivery."""
        ...

    def send(self, note: Note, context: Context) -> Result:
        """Deliver once; returns within about twice ``timeout_seconds``."""
        ...
