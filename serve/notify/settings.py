"""What every receiver's configuration has in common; secrets have a ``_file`` twin."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, field_validator

from serve.section import Secret, Section


def checked_url(url: str) -> str:
    """The URL if it is http or https with a host and without a password; else ValueError."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"is not a URL: {error}") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError("must be an http:// or https:// URL with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or password; use the authorization key")
    return url


def checked_authorities(path: Path | None) -> Path | None:
    """The path of a PEM file of certificates; else ValueError."""
    if path is not None:
        try:
            ssl.create_default_context(cafile=str(path))
        except OSError as error:
            reason = "holds no certificates" if isinstance(error, ssl.SSLError) else error.strerror
            raise ValueError(f"{path}: {reason}") from None
    return path


def _checked_secret_url(url: SecretStr) -> SecretStr:
    checked_url(url.get_secret_value())
    return url


Url = Annotated[str, AfterValidator(checked_url)]
SecretUrl = Annotated[SecretStr, AfterValidator(_checked_secret_url)]
"""A URL that lets whoever knows it send messages."""


class ReceiverSettings(Section):
    """Keys that every receiver has."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """Unique; routes name it."""
    timeout_seconds: float = Field(default=10.0, gt=0, le=60)
    """One attempt, from the look-up of the address to the end of the answer."""
    rate_limit_per_minute: float = Field(default=60.0, gt=0, le=60_000)
    rate_burst: int = Field(default=20, ge=1)
    """So many messages may follow each other at once after a quiet time."""
    give_up_after_seconds: float = Field(default=86_400.0, gt=0, le=30 * 86_400)
    """Age at which a message that is not taken becomes dead."""
    send_resolved: bool = True
    """Tell the end of an incident, too."""

    @property
    def longest_seconds(self) -> float:
        """More than one delivery can take, for the lease."""
        return 3 * self.timeout_seconds

    def secrets(self) -> dict[str, str]:
        """Every secret that is set, by key; several in one key stand one a line."""
        found = {}
        for key in type(self).model_fields:
            if text := _secret_text(getattr(self, key)):
                found[key] = text
        return found


class HttpReceiverSettings(ReceiverSettings):
    """Keys that every receiver over HTTP has. Proxies of the environment are not used."""

    proxy_url: Url | None = None
    """HTTP proxy to go through."""
    ca_path: Path | None = None
    """PEM file of the authorities to trust instead of the built-in ones."""

    @field_validator("ca_path")
    @classmethod
    def _usable(cls, value: Path | None) -> Path | None:
        return checked_authorities(value)


class AuthorizedSettings(HttpReceiverSettings):
    """Keys of receivers that may want an ``Authorization`` header."""

    authorization: Secret | None = None
    """The whole header, such as ``Bearer …``."""


def authorization(secrets: dict[str, str]) -> dict[str, str]:
    """The header for a receiver's ``authorization`` key, if set."""
    return {"authorization": secrets["authorization"]} if "authorization" in secrets else {}


def _secret_text(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, list | tuple):
        return "\n".join(filter(None, (_secret_text(item) for item in value)))
    return ""
