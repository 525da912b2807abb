"""Partitions that a group at rest has given to nobody, and what ends that.

A cooperative rebalance takes two rounds: who has too much gives it up, and asks for the second
round, in which others get it. A static member (`group_instance_id`) that dies between the two
comes back to what it kept without any round at all, and what it gave up belongs to nobody, for
ever, while all members are well. The group's leader asking to join again begins a round.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from serve.kafka.security import client_options
from serve.kafka.settings import KafkaSettings

LOOK_SECONDS = 15.0
"""Seen at two looks in a row, they are no round that is under way."""

Places = frozenset[tuple[str, int]]

_log = structlog.stdlib.get_logger("weaklink")


def unassigned(group: Mapping[str, Any], partitions: Collection[tuple[str, int]]) -> Places:
    """Of a group as `KafkaAdminClient.describe_groups` tells it; empty while it is moving."""
    if group.get("group_state") != "Stable":
        return frozenset()
    given = {
        (topic["topic"], partition)
        for member in group["members"]
        for topic in (member["member_assignment"] or {}).get("assigned_partitions", ())
        for partition in topic["partitions"]
    }
    return frozenset(partitions) - given


class OrphanWatch:
    """Looks now and then, in a thread of its own, as long as the consumer lives.

    Any member may ask; only the leader's asking begins a round.
    """

    def __init__(
        self,
        client: Any,
        settings: KafkaSettings,
        admin: Callable[..., Any] = KafkaAdminClient,
    ) -> None:
        self._client = weakref.ref(client)
        self._settings = settings
        self._admin = admin
        self._before: Places = frozenset()

    def start(self) -> None:
        """Begin; ends by itself with the consumer."""
        threading.Thread(target=self._run, name="kafka-orphans", daemon=True).start()

    def look(self) -> bool:
        """One look; False once there is no consumer any more."""
        client = self._client()
        if client is None or client._closed:
            return False
        try:
            found = unassigned(self._describe(), self._partitions(client))
        except (KafkaError, OSError):
            found = frozenset()  # brokers that do not answer are told elsewhere
        if found and found == self._before:
            _log.warning("partitions that nobody has; joining again", partitions=len(found))
            client._coordinator.request_rejoin()
            found = frozenset()
        self._before = found
        return True

    def _run(self) -> None:
        time.sleep(LOOK_SECONDS)
        while self.look():
            time.sleep(LOOK_SECONDS)

    def _describe(self) -> Mapping[str, Any]:
        admin = self._admin(**client_options(self._settings))
        try:
            groups = admin.describe_groups([self._settings.group])
            return dict(groups[self._settings.group])
        finally:
            admin.close()

    def _partitions(self, client: Any) -> list[tuple[str, int]]:
        cluster = client._cluster
        return [
            (t, p) for t in self._settings.topics for p in cluster.partitions_for_topic(t) or ()
        ]
