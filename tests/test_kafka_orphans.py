"""Partitions that a resting group has given to nobody are given out again."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaError

from serve.kafka import orphans
from serve.kafka.orphans import OrphanWatch, unassigned
from serve.kafka.security import KafkaSetupError
from serve.kafka.settings import KafkaSettings
from tests.kafka_support import wait_until

SETTINGS = KafkaSettings(bootstrap_servers=("127.0.0.1:1",), group="g", topics={"t": "json"})
ALL = [("t", p) for p in range(4)]


def group(*assigned: tuple[int, ...], state: str = "Stable") -> dict[str, Any]:
    """As the admin client tells it: each member's partitions of the topic."""
    return {
        "group_state": state,
        "members": [
            {"member_assignment": {"assigned_partitions": [{"topic": "t", "partitions": list(a)}]}}
            for a in assigned
        ],
    }


class Cluster:
    """A client of a group, and the admin client that tells of it."""

    def __init__(self, *told: dict[str, Any] | Exception) -> None:
        self.told = list(told)
        self.asked = self.opened = self.closed = 0
        self.counts: Counter[str] = Counter()
        self._closed = False
        self._cluster = SimpleNamespace(partitions_for_topic=lambda _: {0, 1, 2, 3})
        self._coordinator = SimpleNamespace(request_rejoin=self._ask)
        self.watch = OrphanWatch(self, SETTINGS, self.counts, admin=self._open)

    def _open(self, _: KafkaSettings) -> Cluster:
        self.opened += 1
        return self

    def _ask(self) -> None:
        self.asked += 1

    def describe_groups(self, names: list[str]) -> dict[str, Any]:
        told = self.told.pop(0) if self.told else group((0, 1, 2, 3))
        if isinstance(told, Exception):
            raise told
        return dict.fromkeys(names, told)

    def close(self) -> None:
        self.closed += 1

    def looks(self) -> int:
        """How often the consumer was told to join again."""
        while self.told:
            assert self.watch.look()
        return self.asked


class Forgotten:
    """A consumer that was dropped without being closed."""

    _closed = False


def test_what_no_member_has_is_found() -> None:
    assert unassigned(group((0, 1), ()), ALL) == {("t", 2), ("t", 3)}
    assert unassigned(group((0, 1), (3, 2)), ALL) == frozenset()


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Empty", "Dead"])
def test_a_group_that_moves_has_no_orphans(state: str) -> None:
    assert unassigned(group((0, 1), (), state=state), ALL) == frozenset()


def test_a_member_without_an_assignment_has_nothing() -> None:
    told = {"group_state": "Stable", "members": [{"member_assignment": None}]}
    assert unassigned(told, ALL) == set(ALL)


def test_orphans_seen_twice_begin_a_round_once() -> None:
    assert Cluster(group((0, 1), ())).looks() == 0
    assert Cluster(group((0, 1), ()), group((0, 1), ())).looks() == 1
    assert Cluster(*[group((0, 1), ())] * 3).looks() == 1


def test_a_round_under_way_is_left_alone() -> None:
    assert Cluster(group((0, 1), ()), group((0, 1), (2, 3)), group((0, 1), ())).looks() == 0
    assert Cluster(group((0, 1), ()), group((0,), (1, 2))).looks() == 0


@pytest.mark.parametrize(
    "error",
    [KafkaError("away"), RuntimeError("IO loop crashed"), KeyError("g"), KafkaSetupError("a file")],
)
def test_whatever_ails_a_look_is_counted_and_the_next_one_begins_anew(error: Exception) -> None:
    cluster = Cluster(group((0,), ()), error, group((0,), ()), group((0,), ()))
    assert cluster.looks() == 1
    assert (cluster.opened, cluster.closed) == (2, 1)
    assert cluster.counts == {"blind_looks": 1, "orphans": 1}


def test_one_connection_serves_all_looks() -> None:
    cluster = Cluster(*[group((0, 1, 2, 3))] * 5)
    assert cluster.looks() == 0
    assert (cluster.opened, cluster.closed) == (1, 0)


def test_a_coordinator_that_has_moved_is_looked_up_anew() -> None:
    moved = {"group_state": "", "members": [], "error": "[Error 16] NotCoordinatorError"}
    cluster = Cluster(moved, group((0, 1), ()), group((0, 1), ()))
    assert cluster.looks() == 1
    assert (cluster.opened, cluster.counts["blind_looks"]) == (2, 1)


def test_a_client_that_cannot_be_opened_is_tried_again() -> None:
    cluster = Cluster()
    opened = iter([OSError("no more files"), cluster])

    def open_admin(_: KafkaSettings) -> Any:
        found = next(opened)
        if isinstance(found, Exception):
            raise found
        return found

    watch = OrphanWatch(cluster, SETTINGS, cluster.counts, admin=open_admin)
    assert watch.look()
    assert cluster.counts["blind_looks"] == 1
    assert watch.look()
    assert cluster.counts["blind_looks"] == 1


def test_a_connection_that_cannot_be_closed_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(KafkaError("away"), group((0,), ()), group((0,), ()))

    def close(_: Cluster) -> None:
        raise RuntimeError("already closed")

    monkeypatch.setattr(Cluster, "close", close)
    assert cluster.looks() == 1


def test_the_thread_outlives_every_error_and_ends_with_the_consumer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(orphans, "LOOK_SECONDS", 0.01)
    cluster = Cluster(ValueError("odd"), KafkaError("away"), group((0, 1), ()), group((0, 1), ()))
    thread = cluster.watch.start()
    wait_until(lambda: cluster.asked == 1, "the consumer is told to join again", 30)
    assert thread.is_alive()
    cluster._closed = True
    thread.join(30)
    assert not thread.is_alive()
    assert cluster.opened == cluster.closed


def test_the_watch_ends_with_the_consumer() -> None:
    cluster = Cluster()
    cluster._closed = True
    assert not cluster.watch.look()
    dropped = Forgotten()
    watch = OrphanWatch(dropped, SETTINGS, Counter())
    del dropped
    assert not watch.look()
