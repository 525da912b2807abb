"""The configuration file (TOML): every key, its unit and its default.

A file is read whole or not at all: a mistake becomes one line that names the file, the key
and the reason. Any key can also stand in the environment as ``WEAKLINK_SECTION__KEY``
(lists and numbers in TOML notation), which wins over the file.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator

from serve.kafka.settings import KafkaSettings
from serve.notify.config import NotifySettings
from serve.section import Seconds, Secret, Section
from serve.telemetry_settings import AlignmentSettings, TelemetrySettings

PREFIX = "WEAKLINK_"
LEAST_KEY_CHARACTERS = 32


class ConfigError(Exception):
    """The configuration cannot be used; the message is one line for a person."""


class DatabaseSettings(Section):
    """Where alerts and history are kept."""

    url: Secret = SecretStr("sqlite:///weaklink.db")


class HttpSettings(Section):
    """The API and the page."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    public_url: str = ""
    """The page's address in messages; empty = http://HOST:PORT."""
    picture_key: Secret | None = None
    """Signs the links of alerts' pictures, so that chat services may fetch them."""
    picture_days: float = Field(default=7.0, gt=0, le=3650)
    """Such a link is valid so long."""
    body_limit_bytes: int = Field(default=32 << 20, ge=1024)
    requests_per_second: float = Field(default=50.0, gt=0)
    """Allowed of one client (token or address) on average."""
    burst_requests: int = Field(default=200, ge=1)
    event_streams: int = Field(default=100, ge=1)
    """Open server-sent event streams at once."""
    cors_origins: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    """Host headers answered besides the service's own; empty = any, or, on a loopback address,
    its own only. Probes (``/healthz``, ``/readyz``) are answered under any."""

    @field_validator("public_url")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        return value.rstrip("/")

    @field_validator("picture_key")
    @classmethod
    def _hard_to_guess(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value()) < LEAST_KEY_CHARACTERS:
            raise ValueError(f"must have at least {LEAST_KEY_CHARACTERS} characters")
        return key

    @property
    def loopback_only(self) -> bool:
        """Whether nobody but this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class AuthSettings(Section):
    """Who may call the API. ``auto``: on, unless only this machine can reach it."""

    mode: Literal["auto", "on", "off"] = "auto"


class LogSettings(Section):
    """Structured logs on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


class AlertSettings(Section):
    """The life of an alert, and what wakes people."""

    age_limit_seconds: Seconds = 900.0
    """What is older when it is seen fills the history and does not page."""
    settle_seconds: Seconds = 30.0
    """A correction waits so long after the last message about the same alert."""
    resolve_hold_seconds: Seconds = 120.0
    """The end of an alert is told so long after it; if it comes back before, nothing is."""
    reopen_seconds: Seconds = 600.0
    """The same machine within this time after its alert's end is the same incident."""
    storm_alerts: int = Field(default=4, ge=2)
    """From so many alerts of one job on, within ``storm_window_seconds``, one message."""
    storm_window_seconds: Seconds = 300.0
    storm_update_seconds: Seconds = 300.0
    """A growing storm is told again after this time, or when it has doubled."""
    breaker_pages: int = Field(default=10, ge=1)
    """So many pages within ``breaker_window_seconds`` hold all further ones."""
    breaker_window_seconds: Seconds = 600.0
    shadow_jobs: tuple[str, ...] = ()
    """Patterns (``*``, ``?``) of jobs that are recorded and never paged."""


class RetentionSettings(Section):
    """How long each table keeps its rows."""

    alerts_days: float = Field(default=90.0, gt=0)
    events_days: float = Field(default=14.0, gt=0)
    silences_days: float = Field(default=30.0, gt=0)
    feedback_days: float = Field(default=730.0, gt=0)
    offenders_days: float = Field(default=365.0, gt=0)
    jobs_days: float = Field(default=7.0, gt=0)
    outbox_days: float = Field(default=14.0, gt=0)
    scores_hours: float = Field(default=48.0, gt=0)
    metrics_hours: float = Field(default=2.0, gt=0)
    history_bytes: int = Field(default=4 << 30, ge=1 << 20)
    """All stored scores and metrics together; the oldest go first."""


class SourceSettings(Section):
    """Where telemetry comes from."""

    kind: Literal["push", "kafka", "none"] = "push"
    queue_rows: int = Field(default=2_000_000, ge=1)
    """Rows pushed and not yet processed; beyond, pushes get 429."""
    batch_rows: int = Field(default=200_000, ge=1)
    reject_file: Path | None = None
    """Unusable rows, one JSON object a line (None: only counted). Kafka has its topic."""
    reject_file_bytes: int = Field(default=64 << 20, ge=4096)


class DetectionSettings(Section):
    """What judges the telemetry."""

    detector: Literal["evidence", "minder"] = "evidence"
    model: str = ""
    """A model's name or directory; empty = the promoted or the shipped one."""
    models_dir: Path | None = None
    """Folder of models; default: ``WEAKLINK_MODELS`` or ``weaklink-models``."""
    catalogue_file: Path | None = None
    """TOML with further metrics and aliases."""
    topology_file: Path | None = None
    """JSON as of a recorded incident: machines with leaf_switch, rack, pipeline_stage."""
    max_jobs: int = Field(default=5_000, ge=1)
    history_bytes_per_job: int = Field(default=64 << 20, ge=1 << 20)
    forget_job_seconds: Seconds = 3_600.0


class WorkerSettings(Section):
    """The detection loop."""

    id: str = ""
    """Name of this worker; empty = the host's name."""
    poll_seconds: Seconds = 1.0
    lag_limit_seconds: Seconds = 120.0
    """Beyond, the service says that it is not ready."""
    history_flush_seconds: Seconds = 10.0
    heartbeat_seconds: Seconds = 5.0
    heartbeat_limit_seconds: Seconds = 60.0
    """A worker not heard of for so long counts as stopped."""

    @property
    def name(self) -> str:
        """The id in force."""
        return self.id or socket.gethostname()


class Config(Section):
    """The whole file."""

    http: HttpSettings = HttpSettings()
    auth: AuthSettings = AuthSettings()
    log: LogSettings = LogSettings()
    database: DatabaseSettings = DatabaseSettings()
    retention: RetentionSettings = RetentionSettings()
    source: SourceSettings = SourceSettings()
    kafka: KafkaSettings = KafkaSettings()
    detection: DetectionSettings = DetectionSettings()
    worker: WorkerSettings = WorkerSettings()
    alerts: AlertSettings = AlertSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    align: AlignmentSettings = AlignmentSettings()
    notify: NotifySettings = NotifySettings()

    @model_validator(mode="after")
    def _sane(self) -> Self:
        if self.alerts.storm_alerts > self.alerts.breaker_pages:
            raise ValueError("alerts.storm_alerts must not be above alerts.breaker_pages")
        return self

    @property
    def auth_on(self) -> bool:
        """Whether requests need a token."""
        if self.auth.mode == "auto":
            return not self.http.loopback_only
        return self.auth.mode == "on"

    @property
    def public_url(self) -> str:
        """The page's address, without a slash at its end."""
        host = f"[{self.http.host}]" if ":" in self.http.host else self.http.host
        return self.http.public_url or f"http://{host}:{self.http.port}"


def load_config(path: Path | None, environ: Mapping[str, str] | None = None) -> Config:
    """Read and check the configuration; `ConfigError` with one line if it cannot be used."""
    environ = os.environ if environ is None else environ
    where = str(path) if path else "configuration"
    data: dict[str, Any] = {}
    if path is not None:
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: is not UTF-8 text") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: not valid TOML: {error}") from None
    from_environment = _merge_environment(data, environ)
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError(describe(error, where, from_environment)) from None


def describe(error: ValidationError, where: str, from_environment: Mapping[str, str]) -> str:
    """A validation error as one line: file (or variable), key, reason."""
    lines = []
    for item in error.errors(include_url=False, include_input=False):
        key = ".".join(str(part) for part in item["loc"])
        origin = from_environment.get(key.split(".0", 1)[0])
        reason = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            reason = "unknown key" + _suggestion(item["loc"])
        place = f"{where}: {key}" if key else where
        lines.append(f"{f'environment: {origin}' if origin else place}: {reason}")
    more = f" (and {len(lines) - 3} more)" if len(lines) > 3 else ""
    return "; ".join(lines[:3]).replace("\n", " ") + more


def _suggestion(loc: tuple[int | str, ...]) -> str:
    model: Any = Config
    for part in loc[:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        kinds = (field.annotation, *get_args(field.annotation)) if field else ()
        model = next((kind for kind in kinds if hasattr(kind, "model_fields")), None)
    names = list(getattr(model, "model_fields", {}))
    close = difflib.get_close_matches(str(loc[-1]), names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _merge_environment(data: dict[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    origins: dict[str, str] = {}
    for name, raw in sorted(environ.items()):
        if not name.startswith(PREFIX) or "__" not in name:
            continue
        path = name.removeprefix(PREFIX).lower().split("__")
        table = data
        for part in path[:-1]:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"environment: {name}: {part} is not a table")
            table = inner
        # A file twin of the same secret in the file gives way to the environment.
        table.pop(f"{path[-1]}_file", None)
        table.pop(path[-1].removesuffix("_file"), None)
        table[path[-1]] = _value(raw)
        origins[".".join(path)] = name
    return origins


def _value(raw: str) -> Any:
    try:
        return tomllib.loads(f"v = {raw}")["v"]
    except tomllib.TOMLDecodeError:
        return raw
