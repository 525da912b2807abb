"""Partitions that a resting group has given to nobody are given out again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaError

from serve.kafka.orphans import OrphanWatch, unassigned
from serve.kafka.settings import KafkaSettings

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

    def __init__(self, *told: dict[str, Any] | KafkaError) -> None:
        self.told = list(told)
        self.asked = 0
        self.closed = 0
        self._closed = False
        self._cluster = SimpleNamespace(partitions_for_topic=lambda _: {0, 1, 2, 3})
        self._coordinator = SimpleNamespace(request_rejoin=self._ask)
        self.watch = OrphanWatch(self, SETTINGS, admin=lambda **_: self)

    def _ask(self) -> None:
        self.asked += 1

    def describe_groups(self, names: list[str]) -> dict[str, Any]:
        told = self.told.pop(0)
        if isinstance(told, KafkaError):
            raise told
        return dict.fromkeys(names, told)

    def close(self) -> None:
        self.closed += 1

    def looks(self) -> int:
        """How often the consumer was told to join again."""
        while self.told:
            assert self.watch.look()
        return self.asked


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


def test_brokers_that_do_not_answer_end_nothing() -> None:
    cluster = Cluster(group((0,), ()), KafkaError("away"), group((0,), ()), group((0,), ()))
    assert cluster.looks() == 1
    assert cluster.closed == 4


def test_the_watch_ends_with_the_consumer() -> None:
    cluster = Cluster()
    cluster._closed = True
    assert not cluster.watch.look()
    watch = cluster.watch
    del cluster
    assert not watch.look()
