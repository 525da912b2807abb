"""Everything else (Teams, Telegram, Matrix, Opsgenie, …) through the Apprise library.

https://github.com/caronc/apprise/wiki lists the URL of each service. Apprise only says whether
it worked, so every failure is retried.
"""

from __future__ import annotations

import logging
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from serve.actions import ActionSettings
from serve.notify.http import redact
from serve.notify.note import Note
from serve.notify.receiver import Context, Traits
from serve.notify.result import Delivered, Result, Retry
from serve.notify.settings import ReceiverSettings
from serve.notify.text import message
from serve.section import Secret

_MISSING = "needs the Apprise library; install weaklink[apprise]"
# They reach into this machine rather than out of it.
_REFUSED = frozenset({"file", "exec", "syslog", "dbus", "gnome", "macosx", "windows", "glib", "qt"})


class AppriseSettings(ReceiverSettings):
    """A service that Apprise knows."""

    type: Literal["apprise"] = "apprise"
    urls: tuple[Secret, ...] = Field(min_length=1)
    """Apprise URLs, themselves secrets."""

    @property
    def longest_seconds(self) -> float:
        """Services are told one after the other."""
        return 3 * len(self.urls) * self.timeout_seconds

    @field_validator("urls")
    @classmethod
    def _known(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        library = _library()
        for number, url in enumerate(value):
            text = url.get_secret_value()
            scheme = urlsplit(text).scheme
            if scheme in _REFUSED or not library.Apprise().add(text):
                raise ValueError(f"entry {number}: Apprise cannot use a {scheme or 'bare'} URL")
        return value


class AppriseReceiver:
    """One message a change; what happened while the service was down comes as one message."""

    traits: ClassVar[Traits] = Traits(pending="latest", past=True)

    def __init__(self, settings: AppriseSettings, actions: ActionSettings | None = None) -> None:
        self.settings = settings
        self.actions = actions or ActionSettings()

    def labels(self, note: Note) -> dict[str, str]:  # noqa: ARG002
        """Nothing to remember."""
        return {}

    def render(self, note: Note, context: Context) -> tuple[str, str]:
        """Title and body."""
        words = message(note, context.now_ns, self.actions)
        return words.title, words.plain.partition("\n")[2].strip()

    def send(self, note: Note, context: Context) -> Result:
        """Hand the message to Apprise."""
        library = _library()
        secrets = self.settings.secrets()
        limit = self.settings.timeout_seconds
        apprise = library.Apprise()
        for url in secrets["urls"].splitlines():
            more = "&" if "?" in url else "?"
            apprise.add(f"{url}{more}cto={limit:g}&rto={limit:g}")
        title, body = self.render(note, context)
        kind = library.NotifyType.SUCCESS if note.resolves else library.NotifyType.FAILURE
        try:
            with library.LogCapture(level=logging.WARNING) as log:
                if apprise.notify(body=body, title=title, notify_type=kind):
                    return Delivered("taken")
                said = log.getvalue()
        except Exception as error:  # noqa: BLE001 - a plugin of the library may raise anything
            said = f"{type(error).__name__}: {error}"
        return Retry(redact(said, secrets)[:200] or "Apprise could not send", whole_receiver=True)


def _library() -> Any:
    try:
        import apprise
    except ImportError:
        raise ValueError(_MISSING) from None
    return apprise
