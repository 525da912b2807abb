"""A member of a group that finishes every join that it began.

`kafka.KafkaConsumer.poll` gives up waiting for a join when its time is over and means to go on
with it at the next call. kafka-python 3.0.12 forgets it in two ways: a rebalance that began
because the topic's metadata changed no longer counts as needed once the leader has assigned, and
the result of a join that ended between two polls is thrown away for a new join. In the first
case the consumer owns nothing for ever, without heartbeats and without an error; in the second
every such join disturbs the whole group again.
"""

from __future__ import annotations

from typing import Any

from kafka.structs import MemberState


def finish_joins(coordinator: Any) -> None:
    """Mend a `kafka.coordinator.consumer.ConsumerCoordinator` before its first join.

    Like the Java client, a join that is pending counts as needed; and its result is kept until
    it is taken, as long as the member is still of that generation.
    """
    need_rejoin, join_and_sync = coordinator.need_rejoin, coordinator._do_join_and_sync_async
    kept: list[tuple[Any, bytes]] = []

    def need_or_pending() -> bool:
        # ``rejoining`` is true from before the request until its result is taken.
        return bool(coordinator.rejoining or need_rejoin())

    async def join_once() -> bytes:
        if kept:
            generation, ended_with = kept.pop()
            unused = coordinator.state is MemberState.REBALANCING
            if unused and coordinator._generation is generation:
                return ended_with
        assignment: bytes = await join_and_sync()
        kept[:] = [(coordinator._generation, assignment)]
        return assignment

    coordinator.need_rejoin = need_or_pending
    coordinator._do_join_and_sync_async = join_once
