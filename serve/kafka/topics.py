"""The topics that the service needs: created when allowed, else checked with a clear answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
)

from serve.kafka.opening import opened
from serve.kafka.security import KafkaSetupError, client_options
from serve.kafka.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as the service wants it. ``partitions`` counts for creation only."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str] = field(default_factory=dict)
    must_compact: bool = False


class Admin(Protocol):
    """What is used of `kafka.KafkaAdminClient`."""

    def list_topics(self) -> list[str]:
        """Names of all topics that we may see."""
        ...

    def create_topics(self, new_topics: Any, **options: Any) -> Any:
        """Create; raises KafkaError."""
        ...

    def describe_configs(self, config_resources: Any, **options: Any) -> Any:
        """Effective settings."""
        ...


def wanted_topics(settings: KafkaSettings) -> list[TopicSpec]:
    """Telemetry, dead letters and alerts, with settings that suit each."""
    topic = settings.topic
    hour_ms = 3_600_000
    size = str(settings.message_bytes)
    telemetry = {
        "cleanup.policy": "delete",
        "retention.ms": str(int(topic.telemetry_retention_hours * hour_ms)),
        "max.message.bytes": size,
        # Event time is in the samples; arrival time by one clock is what lag is told from.
        "message.timestamp.type": "LogAppendTime",
    }
    dead = {
        "cleanup.policy": "delete",
        "retention.ms": str(int(topic.dead_letter_retention_hours * hour_ms)),
    }
    alerts = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
    copies = topic.replication_factor
    beats = [TopicSpec(settings.heartbeat_topic, 1, copies, alerts)]
    return [
        *(TopicSpec(name, topic.partitions, copies, telemetry) for name in settings.topics),
        TopicSpec(settings.dead_letter_topic, 1, copies, dead),
        # One partition: changes of all alerts stand in one order.
        TopicSpec(settings.alerts_topic, 1, copies, alerts, must_compact=True),
        *(beats if settings.heartbeat_topic else ()),
    ]


def ensure_topics(admin: Admin, specs: list[TopicSpec], *, create: bool) -> list[str]:
    """Create what is missing; return the names created.

    Raises
    ------
    KafkaSetupError
        A topic is missing and may not be created, or a topic that must be compacted is not.
    """
    present = set(admin.list_topics())
    missing = [spec for spec in specs if spec.name not in present]
    if missing and not create:
        names = ", ".join(spec.name for spec in missing)
        raise KafkaSetupError(f"kafka: no topic {names} (create it, or set kafka.topic.create)")
    for spec in missing:
        body = {
            "num_partitions": spec.partitions,
            "replication_factor": spec.replication_factor,
            "configs": spec.configs,
        }
        try:
            admin.create_topics({spec.name: body}, wait_for_metadata=True)
        except TopicAlreadyExistsError:
            continue  # another worker was faster
        except (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
            raise KafkaSetupError(
                f"kafka: no topic {spec.name}, and we are not allowed to create it"
            ) from None
    existing = [spec.name for spec in specs if spec.must_compact and spec.name in present]
    for name in existing:
        policy = _config(admin, name, "cleanup.policy")
        if policy is not None and "compact" not in policy:
            raise KafkaSetupError(
                f"kafka: topic {name} has cleanup.policy={policy}, must be compact "
                "(alerts older than its retention would be lost)"
            )
    return [spec.name for spec in missing]


def prepare_topics(settings: KafkaSettings, only: str | None = None) -> list[str]:
    """`ensure_topics` on the configured cluster, for all topics or one telemetry topic.

    KafkaError if no broker answers.
    """
    if only is not None:
        settings = settings.model_copy(update={"topics": {only: "json"}})
    specs = [spec for spec in wanted_topics(settings) if only in (None, spec.name)]
    admin = opened(KafkaAdminClient, **client_options(settings))
    try:
        return ensure_topics(admin, specs, create=settings.topic.create)
    finally:
        admin.close()


def _config(admin: Admin, topic: str, key: str) -> str | None:
    """One effective setting of a topic; None if we are not allowed to see it."""
    try:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, [key])
        found = admin.describe_configs([resource], config_filter="all")
    except KafkaError:
        return None
    entry = found.get("topic", {}).get(topic, {}).get(key, {})
    return None if entry.get("value") is None else str(entry["value"])
