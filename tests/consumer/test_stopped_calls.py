"""Calls of other tasks that are under way when the consumer stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka import TopicPartition
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.errors import ConsumerStoppedError, UnknownTopicOrPartitionError
from aiokafka.interceptors import ConsumerInterceptor
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest
from aiokafka.protocol.messages.list_offsets import ListOffsetsRequest
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest
from aiokafka.protocol.messages.sync_group import SyncGroupRequest
from aiokafka.testing import Edit, Fail, FakeCluster, Hold
from aiokafka.testing.script import RequestContext
from tests.support.consumers import T0, Start, fill, read

_LOADING = 14
CALLS: dict[str, tuple[Any, Callable[[Any], Awaitable[Any]]]] = {
    "commit": (OffsetCommitRequest, lambda consumer: consumer.commit({T0: 1})),
    "committed": (OffsetFetchRequest, lambda consumer: consumer.committed(T0)),
    "committed_offsets": (OffsetFetchRequest, lambda consumer: consumer.committed_offsets([T0])),
    "seek_to_committed": (OffsetFetchRequest, lambda consumer: consumer.seek_to_committed(T0)),
    "seek_to_end": (ListOffsetsRequest, lambda consumer: consumer.seek_to_end(T0)),
    "end_offsets": (ListOffsetsRequest, lambda consumer: consumer.end_offsets([T0])),
    "offsets_for_times": (ListOffsetsRequest, lambda consumer: consumer.offsets_for_times({T0: 1})),
    "topics": (MetadataRequest, lambda consumer: consumer.topics()),
}


@pytest.mark.parametrize("name", CALLS)
async def test_they_hear_that_it_stopped(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """`stop()` has no time to wait for them, and no broker is to blame."""
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    consumer = await start(cluster, "t", group_id="g")
    await read(consumer, 1)
    request, call = CALLS[name]
    with cluster.intercept(request, Hold(asyncio.Event())) as script:
        task = asyncio.ensure_future(call(consumer))
        await script.wait()
        with caplog.at_level(logging.WARNING, "aiokafka"):
            await consumer.stop(timeout=0)
            with pytest.raises(ConsumerStoppedError):
                async with timeout(10):
                    await task
    assert caplog.messages == []
    with pytest.raises(ConsumerStoppedError):
        await call(consumer)


@pytest.mark.parametrize("partition", [TopicPartition("t", 1), TopicPartition("u", 0)])
async def test_they_hear_of_it_without_a_broker_to_ask(
    cluster: FakeCluster, start: Start, partition: TopicPartition
) -> None:
    """There is no such partition, or no such topic; they went on until their own time was over."""
    await cluster.create_topic("t")
    cluster.intercept(MetadataRequest, Edit(lacks_u))
    consumer = await start(cluster, assign=[T0])
    call = asyncio.ensure_future(consumer.end_offsets([partition]))
    asked = cluster.count(MetadataRequest)
    await cluster.wait_for(lambda: cluster.count(MetadataRequest) > asked + 2)
    await consumer.stop(timeout=0)
    async with timeout(10):
        with pytest.raises(ConsumerStoppedError):
            await call


def lacks_u(response: MetadataResponse) -> None:
    for topic in response.topics:
        if topic.name == "u":
            topic.error_code, topic.partitions = UnknownTopicOrPartitionError.errno, []


async def test_a_commit_is_made_before_the_group_is_left(
    cluster: FakeCluster, start: Start
) -> None:
    """Though its first attempt meets a coordinator that loads."""
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    consumer = await start(cluster, "t", group_id="g", enable_auto_commit=False)
    await read(consumer, 1)
    with cluster.intercept(OffsetCommitRequest, Fail(_LOADING), times=1) as script:
        commit = asyncio.ensure_future(consumer.commit())
        await script.wait()
    await consumer.stop()
    await commit
    assert cluster.groups.committed("g", "t", 0) == 1
    sent = [type(one.request) for one in cluster.requests()]
    assert sent.index(LeaveGroupRequest) > max(
        place for place, kind in enumerate(sent) if kind is OffsetCommitRequest
    )


async def test_a_commit_is_made_in_the_generation_that_a_join_brings(
    cluster: FakeCluster, start: Start
) -> None:
    """It waits for the join. All members have joined by now, so that the generation before is
    over; a cooperative member has its partitions in the next one, too."""
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    options: dict[str, Any] = {
        "group_id": "g",
        "heartbeat_interval_ms": 20,
        "enable_auto_commit": False,
        "partition_assignment_strategy": [CooperativeStickyAssignor],
    }
    consumer = await start(cluster, "t", client_id="me", **options)
    await read(consumer, 1)
    is_answered = asyncio.Event()

    def hold(_: Any, context: RequestContext) -> Hold | None:
        return Hold(is_answered) if context.client_id == "me" else None

    with cluster.intercept(SyncGroupRequest, hold) as script:
        joining = asyncio.ensure_future(start(cluster, "t", **options))
        await script.wait()
        commit = asyncio.ensure_future(consumer.commit({T0: 1}))
        # It waits for the join.
        await asyncio.sleep(0)
        stop = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0.1)
        is_answered.set()
        await stop
    await commit
    assert cluster.groups.committed("g", "t", 0) == 1
    await joining


class Slow(ConsumerInterceptor):
    """Takes longer over a commit than `stop()` waits."""

    async def on_commit(self, offsets: Any) -> None:
        await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("protocol", "instance_id"), [("classic", None), ("consumer", None), ("consumer", "me")]
)
async def test_no_commit_is_made_behind_the_goodbye(
    cluster: FakeCluster, start: Start, protocol: str, instance_id: str | None
) -> None:
    """Of a client outside the group it would be taken once that has no members, over what these
    have committed; a member that is only away it tells that others have read its records."""
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    consumer = await start(
        cluster,
        "t",
        group_id="g",
        group_protocol=protocol,
        group_instance_id=instance_id,
        enable_auto_commit=False,
        interceptors=[Slow()],
    )
    await read(consumer, 1)
    await consumer.commit({T0: 0})
    script = cluster.intercept(OffsetCommitRequest, Fail(_LOADING))

    def end_loading(request: Any, _: Any) -> None:
        if isinstance(request, LeaveGroupRequest) or request.member_epoch < 0:
            script.remove()

    for kind in (LeaveGroupRequest, ConsumerGroupHeartbeatRequest):
        cluster.intercept(kind, end_loading)
    commit = asyncio.ensure_future(consumer.commit({T0: 1}))
    await script.wait()
    await consumer.stop(timeout=1)
    with pytest.raises(ConsumerStoppedError):
        await commit
    commits = [seen.request for seen in cluster.requests(OffsetCommitRequest)]
    assert all(commit.generation_id_or_member_epoch > 0 for commit in commits)
    assert cluster.groups.committed("g", "t", 0) == 0
