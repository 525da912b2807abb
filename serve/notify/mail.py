"""E-mail over SMTP: one thread of messages an incident.

========================================= ==============================================
outcome                                   result
========================================= ==============================================
taken for at least one recipient          delivered (the refused ones are named)
4xx (RFC 5321, section 4.2.1)             retry this message
5xx                                       gave up: the same message is never taken
wrong password, no STARTTLS, no server,   retry, the whole receiver waits
no answer in time, connection lost
========================================= ==============================================
"""

from __future__ import annotations

import re
import smtplib
import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from serve.actions import ActionSettings
from serve.notify.http import redact
from serve.notify.note import Note
from serve.notify.receiver import Context, Traits
from serve.notify.result import Delivered, GaveUp, Result, Retry
from serve.notify.settings import ReceiverSettings, checked_authorities
from serve.notify.text import message
from serve.section import Secret

_SUBJECT_CHARACTERS = 200
_REASON_CHARACTERS = 200


def _address(value: str) -> str:
    if not re.fullmatch(r"[^@\s<>,;:\"]+@[^@\s<>,;:\"]+", value):
        raise ValueError("must be one address, such as oncall@example.org")
    return value


Address = Annotated[str, AfterValidator(_address)]


class MailSettings(ReceiverSettings):
    """A mail server and who gets the mail."""

    type: Literal["email"] = "email"
    host: str = Field(min_length=1)
    port: int = Field(default=587, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    """``tls``: encrypted from the first byte (port 465)."""
    username: str = ""
    password: Secret | None = None
    sender: Address
    recipients: tuple[Address, ...] = Field(min_length=1)
    ca_path: Annotated[Path | None, AfterValidator(checked_authorities)] = None
    """PEM file of the authorities to trust instead of the built-in ones."""

    @property
    def longest_seconds(self) -> float:
        """The limit holds for each of the server's answers."""
        return 12 * self.timeout_seconds

    @model_validator(mode="after")
    def _sane(self) -> Self:
        if bool(self.username) != (self.password is not None):
            raise ValueError("username and password belong together")
        if self.username and self.security == "none":
            raise ValueError("a password is not sent unencrypted; set security")
        return self


class MailReceiver:
    """One mail a change; what happened while the server was down comes as one mail."""

    traits: ClassVar[Traits] = Traits(pending="latest", past=True)

    def __init__(self, settings: MailSettings, actions: ActionSettings | None = None) -> None:
        self.settings = settings
        self.actions = actions or ActionSettings()

    def labels(self, note: Note) -> dict[str, str]:  # noqa: ARG002
        """Nothing to remember: the thread's id follows from the incident's key."""
        return {}

    def render(self, note: Note, context: Context) -> EmailMessage:
        """The mail; its Message-ID is the same for every attempt."""
        words = message(note, context.now_ns, self.actions)
        mail = EmailMessage()
        mail["Subject"] = words.title[:_SUBJECT_CHARACTERS]
        mail["From"] = self.settings.sender
        mail["To"] = ", ".join(self.settings.recipients)
        mail["Date"] = format_datetime(datetime.fromtimestamp(note.at_ns // 1_000_000_000, UTC))
        domain = self.settings.sender.rpartition("@")[2]
        mail["Message-ID"] = _message_id(f"{note.key}:{note.sequence}", domain)
        thread = _message_id(note.key, domain)
        mail["In-Reply-To"] = thread
        mail["References"] = thread
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(words.plain + "\n")
        return mail

    def send(self, note: Note, context: Context) -> Result:
        """Hand the mail to the server."""
        secrets = self.settings.secrets()
        try:
            refused = self._send(self.render(note, context), secrets.get("password", ""))
        except smtplib.SMTPAuthenticationError as error:
            return Retry(_said(error.smtp_code, error.smtp_error, secrets), whole_receiver=True)
        except smtplib.SMTPRecipientsRefused as error:
            return _judge(*max(error.recipients.values()), secrets)
        except smtplib.SMTPResponseException as error:
            return _judge(error.smtp_code, error.smtp_error, secrets)
        except (smtplib.SMTPException, OSError) as error:
            reason = redact(f"{type(error).__name__}: {error}", secrets)[:_REASON_CHARACTERS]
            return Retry(reason, whole_receiver=True)
        names = ", ".join(sorted(refused))
        return Delivered(f"refused for {names}" if refused else "taken")

    def _send(self, mail: EmailMessage, password: str) -> dict[str, tuple[int, bytes]]:
        s = self.settings
        if s.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                s.host, s.port, timeout=s.timeout_seconds, context=self._tls
            )
        else:
            server = smtplib.SMTP(s.host, s.port, timeout=s.timeout_seconds)
        with server:
            if s.security == "starttls":
                server.starttls(context=self._tls)
            if s.username:
                server.login(s.username, password)
            return server.send_message(mail)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        path = self.settings.ca_path
        return ssl.create_default_context(cafile=str(path) if path else None)


def _message_id(text: str, domain: str) -> str:
    # A hash: keys may hold what a Message-ID must not.
    return f"<weaklink.{sha256(text.encode()).hexdigest()[:32]}@{domain}>"


def _judge(code: int, text: bytes | str, secrets: dict[str, str]) -> Result:
    said = _said(code, text, secrets)
    return GaveUp(said) if code >= 500 else Retry(said)


def _said(code: int, text: bytes | str, secrets: dict[str, str]) -> str:
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return redact(f"SMTP {code}: {words}", secrets)[:_REASON_CHARACTERS]
