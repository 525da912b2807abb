"""How every client of this package connects, and whether its fast parts are in use."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import crc32c
import httpx
import kafka.codec
import kafka.record.util
from kafka.net.sasl.oauth import AbstractTokenProvider

from serve.kafka.settings import KafkaSettings, SaslSettings, TlsSettings
from serve.section import read_secret_file


class KafkaSetupError(Exception):
    """Kafka cannot be used as configured; the message is one line for a person."""


def check_client() -> list[str]:
    """What slows the client down, one line each; `KafkaSetupError` if a codec is missing.

    kafka-python falls back in silence to a checksum in pure Python (an eighth of the speed)
    and fails on the first compressed batch that it has no codec for.
    """
    missing = [
        name
        for name, present in (
            ("zstandard", kafka.codec.has_zstd()),
            ("lz4", kafka.codec.has_lz4()),
            ("python-snappy", kafka.codec.has_snappy()),
        )
        if not present
    ]
    if kafka.record.util.crc32c_c is None:
        missing.append("crc32c")
    if missing:
        raise KafkaSetupError(f"kafka: cannot work without the package {', '.join(missing)}")
    if not crc32c.hardware_based:
        return ["kafka: CRC-32C runs in software on this processor; reading is slower"]
    return []


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """Keyword arguments common to consumer, producer and admin client."""
    options: dict[str, Any] = {
        "bootstrap_servers": list(settings.bootstrap_servers),
        "client_id": settings.client_id,
        "request_timeout_ms": int(settings.request_timeout_seconds * 1000),
        "reconnect_backoff_ms": 100,
        "reconnect_backoff_max_ms": 5_000,
        "retry_backoff_ms": 200,
        # The caller retries with its own back-off and must not hang in a constructor.
        "bootstrap_timeout_ms": 5_000,
        # Also how long an update of metadata that crossed a subscription is missed.
        "metadata_max_age_ms": 10_000,
    }
    kind = "SSL" if settings.tls else "PLAINTEXT"
    options["security_protocol"] = f"SASL_{kind}" if settings.sasl else kind
    if settings.tls:
        options["ssl_context"] = tls_context(settings.tls)
    if settings.sasl:
        options |= _sasl_options(settings.sasl)
    return options


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """A context that verifies the broker; `KafkaSetupError` names the file that is wrong."""
    try:
        context = ssl.create_default_context(cafile=str(tls.ca_file) if tls.ca_file else None)
    except (OSError, ssl.SSLError) as error:
        raise KafkaSetupError(f"kafka.tls.ca_file {tls.ca_file}: {_cause(error)}") from None
    context.check_hostname = tls.check_hostname
    if tls.certificate_file:
        password = tls.key_password.get_secret_value() if tls.key_password else ""
        try:
            context.load_cert_chain(tls.certificate_file, tls.key_file, password)
        except (OSError, ssl.SSLError) as error:
            where = f"{tls.certificate_file}, {tls.key_file}"
            raise KafkaSetupError(f"kafka.tls.certificate_file {where}: {_cause(error)}") from None
    return context


def _sasl_options(sasl: SaslSettings) -> dict[str, Any]:
    if sasl.mechanism == "OAUTHBEARER":
        provider = TokenProvider(sasl, now_seconds=time.monotonic)
        return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider}
    return {
        "sasl_mechanism": sasl.mechanism,
        "sasl_plain_username": sasl.username,
        "sasl_plain_password": sasl.password.get_secret_value() if sasl.password else "",
    }


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Bearer tokens from a file, or from an OAuth 2 client-credentials grant (RFC 6749, 4.4).

    A fetched token is used again until four fifths of its life are over.
    """

    def __init__(
        self,
        sasl: SaslSettings,
        *,
        now_seconds: Callable[[], float],
        post: Callable[..., httpx.Response] = httpx.post,
    ):
        super().__init__()
        self._sasl = sasl
        self._now = now_seconds
        self._post = post
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0

    def token(self) -> str:
        """A token that is valid now."""
        sasl = self._sasl
        if sasl.token_file is not None:
            return read_secret_file("kafka.sasl.token_file", sasl.token_file).strip()
        with self._lock:
            if self._now() >= self._until:
                client_secret = sasl.client_secret.get_secret_value() if sasl.client_secret else ""
                form = {"grant_type": "client_credentials"}
                if sasl.scope:
                    form["scope"] = sasl.scope
                try:
                    answer = self._post(
                        sasl.token_url,
                        data=form,
                        auth=(sasl.client_id, client_secret),
                        timeout=10.0,
                    )
                    answer.raise_for_status()
                    body = answer.json()
                    self._token = str(body["access_token"])
                except (httpx.HTTPError, ValueError, KeyError) as error:
                    raise KafkaSetupError(
                        f"kafka.sasl.token_url {sasl.token_url}: {type(error).__name__}: {error}"
                    ) from None
                self._until = self._now() + 0.8 * float(body.get("expires_in", 60))
            return self._token


def _cause(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or getattr(error, "reason", None) or error)
