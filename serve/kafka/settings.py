"""The section ``[kafka]`` of the configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from serve.section import Seconds, Secret, Section

_SERVER = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]]+)(:(?P<port>[0-9]{1,5}))?")


class TlsSettings(Section):
    """TLS to the brokers; ``ca_file`` unset trusts the system's authorities."""

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password: Secret | None = None
    check_hostname: bool = True


class SaslSettings(Section):
    """Who we are. OAUTHBEARER takes a ``token_file``, read anew for every connection, or asks
    ``token_url`` for a token (client-credentials grant)."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    username: str = ""
    password: Secret | None = None
    token_file: Path | None = None
    token_url: str = ""
    client_id: str = ""
    client_secret: Secret | None = None
    scope: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.mechanism == "OAUTHBEARER":
            if (self.token_file is None) == (not self.token_url):
                raise ValueError("OAUTHBEARER needs either token_file or token_url")
            if self.token_url and not (self.client_id and self.client_secret):
                raise ValueError("token_url needs client_id and client_secret")
        elif not (self.username and self.password):
            raise ValueError(f"{self.mechanism} needs username and password")
        return self


class TopicSettings(Section):
    """How missing topics are created."""

    create: bool = True
    partitions: int = Field(default=12, ge=1)
    replication_factor: int = Field(default=-1, ge=-1)
    """-1 = the broker's default."""
    telemetry_retention_hours: float = Field(default=24.0, gt=0)
    dead_letter_retention_hours: float = Field(default=168.0, gt=0)


class KafkaSettings(Section):
    """The service's side of Kafka."""

    bootstrap_servers: tuple[str, ...] = ("localhost:9092",)
    topics: dict[str, str] = Field(default={"telemetry": "json"}, min_length=1)
    """Each telemetry topic, and the format of messages without a header ``content-type``."""
    group: str = Field(default="weaklink", min_length=1)
    instance_id: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,249}$")
    """Unique per worker and the same after its restart (the name of a stateful set's pod):
    then a restart within ``session_timeout_seconds`` less two heartbeats moves no partition."""
    client_id: str = "weaklink"
    start: Literal["earliest", "latest"] = "earliest"
    """Where to begin without a checkpoint and without a committed offset."""
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    topic: TopicSettings = TopicSettings()

    session_timeout_seconds: Seconds = 15.0
    heartbeat_interval_seconds: Seconds = 1.0
    max_poll_interval_seconds: Seconds = 300.0
    request_timeout_seconds: Seconds = 15.0
    commit_interval_seconds: Seconds = 1.0

    poll_messages: int = Field(default=20_000, ge=1)
    fetch_bytes: int = Field(default=32 << 20, ge=1 << 16)
    partition_fetch_bytes: int = Field(default=4 << 20, ge=1 << 16)
    message_bytes: int = Field(default=8 << 20, ge=1 << 10)
    """Larger messages are refused."""
    job_messages_per_second: int = Field(default=100_000, ge=1)
    """What one job sends beyond that is refused, so that it cannot starve the others."""

    snapshot_seconds: Seconds = 30.0
    """A restart re-reads at most about so much input."""
    snapshot_bytes: int = Field(default=256 << 20, ge=1 << 20)
    """Bound of one job's state before compression."""

    dead_letter_topic: str = "telemetry.dead-letter"
    dead_letter_payload_bytes: int = Field(default=64 << 10, ge=0)
    """So much of an unusable message is kept."""
    alerts_topic: str = "weaklink.alerts"
    heartbeat_topic: str = ""
    """Gets a sign of life of every worker after each ``worker.heartbeat_seconds``; empty: none."""
    compression: Literal["none", "zstd", "lz4", "snappy", "gzip"] = "zstd"

    @field_validator("bootstrap_servers", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("bootstrap_servers")
    @classmethod
    def _addresses(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            found = _SERVER.fullmatch(server)
            if found is None or not 0 < int(found["port"] or 9092) < 65_536:
                raise ValueError(f"{server!r} is not HOST:PORT")
        return servers

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.bootstrap_servers:
            raise ValueError("bootstrap_servers is empty")
        if self.heartbeat_interval_seconds * 2 > self.session_timeout_seconds:
            raise ValueError(
                "heartbeat_interval_seconds must be at most half of session_timeout_seconds"
            )
        own = [self.dead_letter_topic, self.alerts_topic, *self.topics]
        if self.heartbeat_topic:
            own.append(self.heartbeat_topic)
        if len(set(own)) < len(own):
            raise ValueError("topics, dead_letter, alerts and heartbeat topic must all differ")
        return self
