"""What is left of an assignment that is over, when a member unsubscribes and comes back."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.errors import GroupLoadInProgressError
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.protocol.messages.sync_group import SyncGroupRequest
from aiokafka.testing import Fail, FakeCluster, Hold
from aiokafka.testing.script import RequestContext
from tests.support.consumers import T0, Start, fill, read
from tests.support.groups import Log, until

OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "heartbeat_interval_ms": 20,
    "auto_commit_interval_ms": 60_000,
    "partition_assignment_strategy": [CooperativeStickyAssignor],
}


async def test_an_assignment_that_was_over_is_not_committed_with_a_later_one(
    cluster: FakeCluster, start: Start
) -> None:
    """The member had left because of its application, which unsubscribed at that moment."""
    await cluster.create_topic("t")
    fill(cluster, 0, 4)
    idle = await start(cluster, "t", client_id="idle", max_poll_interval_ms=100, **OPTIONS)
    assert await read(idle, 1) == [(0, 0)]
    assert await read(idle, 1) == [(0, 1)]
    goes_on = asyncio.Event()
    with cluster.intercept(LeaveGroupRequest, Hold(goes_on)) as script:
        await script.wait()
        idle.unsubscribe()
        goes_on.set()
        await until(cluster, lambda: cluster.groups.state_of("g") == "Empty")
    owner = await start(cluster, "t", **OPTIONS)
    assert await read(owner, 4) == [(0, n) for n in range(4)]
    await owner.commit()
    answer = asyncio.Event()

    def hold(request: Any, context: RequestContext) -> Hold | None:
        return Hold(answer) if context.client_id == "idle" else None

    count = cluster.count(LeaveGroupRequest)
    with cluster.intercept(SyncGroupRequest, hold) as script:
        idle.subscribe(["t"])
        await until(cluster, lambda: script.hits)
        idle.unsubscribe()
        answer.set()
        # It commits before it leaves.
        await until(cluster, lambda: cluster.count(LeaveGroupRequest) > count)
    assert cluster.groups.committed("g", "t") == 4


async def test_an_offset_that_was_put_back_meanwhile_is_committed_again(
    cluster: FakeCluster, start: Start
) -> None:
    """What a member had committed in a former assignment says nothing about the next one."""
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await start(cluster, "t", **OPTIONS)
    assert len(await read(consumer, 3)) == 3
    await consumer.commit()
    consumer.unsubscribe()
    await until(cluster, lambda: cluster.groups.state_of("g") == "Empty")
    other = await start(cluster, "t", **{**OPTIONS, "enable_auto_commit": False})
    await other.commit({T0: 1})
    await other.stop()
    consumer.subscribe(["t"])
    assert await read(consumer, 2) == [(0, 1), (0, 2)]
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 3)]
    consumer.unsubscribe()
    await until(cluster, lambda: cluster.groups.state_of("g") == "Empty")
    assert cluster.groups.committed("g", "t") == 3


async def test_a_commit_that_is_tried_again_puts_back_nothing_of_the_last_one(
    cluster: FakeCluster, start: Start
) -> None:
    """What `unsubscribe()` leaves to commit comes behind what was sent before."""
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    goes_on = asyncio.Event()

    class Slow(Log):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await goes_on.wait()

    delays: dict[str, Any] = {"retry_backoff_ms": 200, "retry_backoff_max_ms": 200}
    consumer = await start(cluster, **delays, **OPTIONS)
    consumer.subscribe(["t"], listener=Slow())
    assert len(await read(consumer, 3)) == 3
    assert await consumer.getmany() == {}
    with cluster.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError), times=1) as script:
        earlier = asyncio.ensure_future(consumer.commit({T0: 1}))
        await script.wait()
        consumer.unsubscribe()
        await earlier
        await until(cluster, lambda: cluster.count(OffsetCommitRequest) > 2)
        goes_on.set()
        await until(cluster, lambda: cluster.groups.state_of("g") == "Empty")
    assert cluster.groups.committed("g", "t") == 3
