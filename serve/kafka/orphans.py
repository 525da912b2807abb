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
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from serve.kafka.opening import opened
from serve.kafka.security import client_options
from serve.kafka.settings import KafkaSettings

LOOK_SECONDS = 15.0
"""Seen at two looks in a row, they are no round that is under way."""

NOTICE_SECONDS = 1.0
"""How long the watch may outlive its consumer."""

Places = frozenset[tuple[str, int]]

_log = structlog.stdlib.get_logger("weaklink")


def _open_admin(settings: KafkaSettings) -> Any:
    return opened(KafkaAdminClient, **client_options(settings))


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

    Any member may ask; only the leader's asking begins a round. ``counts`` gets ``orphans``
    (rounds asked for) and ``blind_looks``: whatever ails a look, it is logged once, counted each
    time, and the next look begins with a new connection.
    """

    def __init__(
        self,
        client: Any,
        settings: KafkaSettings,
        counts: Counter[str],
        admin: Callable[[KafkaSettings], Any] = _open_admin,
    ) -> None:
        self._client = weakref.ref(client)
        self._settings = settings
        self._counts = counts
        self._open = admin
        self._admin: Any = None
        self._before: Places = frozenset()
        self._problem = ""

    def start(self) -> threading.Thread:
        """Begin; the thread ends by itself with the consumer."""
        thread = threading.Thread(target=self._run, name="kafka-orphans", daemon=True)
        thread.start()
        return thread

    def look(self) -> bool:
        """One look; False once there is no consumer any more."""
        client = self._living()
        if client is None:
            return False
        try:
            found = unassigned(self._describe(), self._partitions(client))
            if found and found == self._before:
                _log.warning("partitions that nobody has; joining again", partitions=len(found))
                self._counts["orphans"] += 1
                client._coordinator.request_rejoin()
                found = frozenset()
            self._before, self._problem = found, ""
        except Exception as error:  # noqa: BLE001 - a watch that ended would be missed by nobody
            self._failed(error)
        return True

    def _run(self) -> None:
        while self._rest() and self.look():
            pass
        self._close()

    def _rest(self) -> bool:
        """Until the next look; False as soon as there is no consumer any more."""
        began = time.monotonic()
        while self._living() is not None:
            left = began + LOOK_SECONDS - time.monotonic()
            if left <= 0:
                return True
            time.sleep(min(left, NOTICE_SECONDS))
        return False

    def _living(self) -> Any:
        client = self._client()
        return None if client is None or getattr(client, "_closed", False) else client

    def _failed(self, error: Exception) -> None:
        self._before = frozenset()
        self._counts["blind_looks"] += 1
        self._close()
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        if line != self._problem:
            _log.warning("cannot look for partitions that nobody has", reason=line)
        self._problem = line

    def _describe(self) -> Mapping[str, Any]:
        if self._admin is None:
            self._admin = self._open(self._settings)
        group = self._admin.describe_groups([self._settings.group])[self._settings.group]
        # Also of a coordinator that moved: this client would ask the old one for ever.
        if group.get("error"):
            raise KafkaError(group["error"])
        return dict(group)

    def _close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is None:
            return
        try:
            admin.close()
        except Exception as error:  # noqa: BLE001 - it is thrown away, whatever ails it
            _log.debug("closing a broken admin client", reason=str(error))

    def _partitions(self, client: Any) -> list[tuple[str, int]]:
        cluster = client._cluster
        return [
            (t, p) for t in self._settings.topics for p in cluster.partitions_for_topic(t) or ()
        ]
