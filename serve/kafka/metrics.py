"""What the source tells Prometheus: every partition as it stands, and what has happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

EVENTS: dict[str, str] = {
    "rebalances": "partitions were assigned, revoked or lost",
    "takeovers": "a partition's checkpoint was read and reading began",
    "snapshots": "the states of a partition's jobs were stored",
    "replayed_rows": "rows read again, without effect, to bring states back",
    "rewinds": "a turn was given up and its input read again",
    "fenced": "another worker had taken a partition over",
    "cold_starts": "a stored state was of no use; its job began anew",
    "lost_messages": "messages that retention deleted before they were read",
    "truncations": "a partition ended before what had been read of it",
    "topics_made_anew": "a topic had been deleted and created again",
    "restarts": "the connection was given up and opened again",
    "orphans": "a group at rest had given partitions to nobody; a new round was asked for",
    "blind_looks": "whether there are such partitions could not be told",
    "commit_failures": "Kafka did not take our offsets (the checkpoints count)",
}
"""Every value of the label ``event`` of ``weaklink_kafka_events_total``."""

_GAUGES = {
    "lag_messages": ("weaklink_kafka_lag_messages", "Messages of a partition not yet read."),
    "next_offset": ("weaklink_kafka_offset", "Everything below is stored with its effect."),
    "watermark_seconds": (
        "weaklink_kafka_watermark_timestamp_seconds",
        "Event time up to which the furthest job of a partition is judged.",
    ),
    "up_to_date": (
        "weaklink_kafka_up_to_date",
        "1 if a partition was seen at its end, or brought young messages, just now.",
    ),
    "jobs": ("weaklink_kafka_jobs", "Jobs that live in a partition."),
}


class Observed(Protocol):
    """What is read of `serve.kafka.source.KafkaSource`, from any thread."""

    counts: Any

    def partitions(self) -> list[dict[str, Any]]:
        """Every assigned partition."""
        ...


class KafkaCollector(Collector):
    """Register it with the process's registry."""

    def __init__(self, source: Observed):
        self._source = source

    def collect(self) -> Iterable[Metric]:
        """Fresh families, with every event present from the start."""
        partitions = self._source.partitions()
        for key, (name, text) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["topic", "partition"])
            for one in partitions:
                if one.get(key) is not None:
                    gauge.add_metric([one["topic"], str(one["partition"])], float(one[key]))
            yield gauge
        counts: Mapping[str, int] = dict(self._source.counts)
        events = CounterMetricFamily(
            "weaklink_kafka_events", "What has happened to the Kafka source.", labels=["event"]
        )
        for event in EVENTS:
            events.add_metric([event], counts.get(event, 0))
        yield events
