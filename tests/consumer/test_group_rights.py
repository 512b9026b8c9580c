"""A group whose right is taken from a member, and given back: it is asked again and again, with a
back-off, and readers hear of it as long as it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka._compat import timeout
from aiokafka.errors import GroupAuthorizationFailedError
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiokafka.protocol.messages.heartbeat import HeartbeatRequest
from aiokafka.protocol.messages.join_group import JoinGroupRequest
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest
from aiokafka.protocol.messages.sync_group import SyncGroupRequest
from aiokafka.testing import Fail, FakeCluster
from tests.support.consumers import Start, fill, read
from tests.support.groups import until

BEATS = {"classic": HeartbeatRequest, "consumer": ConsumerGroupHeartbeatRequest}
NEEDS_THE_RIGHT = [
    *BEATS.values(),
    FindCoordinatorRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
]
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 20},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(config={"group.consumer.heartbeat.interval.ms": "20"}) as fake:
        await fake.create_topic("t", partitions=2)
        yield fake
        assert fake.failures == []


def without_right(cluster: FakeCluster) -> ExitStack:
    stack = ExitStack()
    for api in NEEDS_THE_RIGHT:
        stack.enter_context(cluster.intercept(api, Fail(GroupAuthorizationFailedError)))
    return stack


async def hear_of_it(consumer: AIOKafkaConsumer) -> None:
    with pytest.raises(GroupAuthorizationFailedError, match="g"):
        async with timeout(10):
            await consumer.getone()


@pytest.mark.parametrize("is_removed", [False, True])
async def test_reading_goes_on_when_the_right_is_back(
    cluster: FakeCluster, start: Start, protocol: str, is_removed: bool
) -> None:
    fill(cluster, 0, 3)
    consumer = await start(cluster, "t", group_id="g", **PROTOCOLS[protocol])
    await read(consumer, 3)
    await consumer.commit()
    with without_right(cluster):
        if is_removed:
            cluster.groups.expire("g", consumer.group_metadata().member_id)
            cluster.drop_connections()
        for _ in range(3):
            await hear_of_it(consumer)
        with pytest.raises(GroupAuthorizationFailedError):
            await consumer.commit(dict.fromkeys(consumer.assignment(), 3))
    fill(cluster, 0, 1)
    async with timeout(10):
        while True:
            try:
                record = await consumer.getone()
                break
            except GroupAuthorizationFailedError:
                await asyncio.sleep(0)
    assert record.offset == 3


async def test_what_is_over_is_not_told(cluster: FakeCluster, start: Start, protocol: str) -> None:
    fill(cluster, 0, 4)
    consumer = await start(cluster, "t", group_id="g", **PROTOCOLS[protocol])
    await read(consumer, 3)
    beat = BEATS[protocol]
    with cluster.intercept(beat, Fail(GroupAuthorizationFailedError)) as script:
        await until(cluster, lambda: script.hits >= 3)
        # An application that did not ask hears of it once, not for each refusal.
        await hear_of_it(consumer)
        hits = script.hits
        await until(cluster, lambda: script.hits > hits)
    beats = cluster.count(beat)
    await until(cluster, lambda: cluster.count(beat) > beats + 1)
    async with timeout(10):
        assert (await consumer.getone()).offset == 3


async def test_the_group_is_asked_with_a_back_off(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    consumer = await start(cluster, "t", group_id="g", retry_backoff_ms=50, **PROTOCOLS[protocol])
    with without_right(cluster):
        cluster.groups.expire("g", consumer.group_metadata().member_id)
        cluster.forget_requests()
        deadline = asyncio.get_running_loop().time() + 0.5
        while asyncio.get_running_loop().time() < deadline:
            await hear_of_it(consumer)
        # By the pauses of 50 ms and more about five; without them thousands.
        asked = sum(cluster.count(api) for api in NEEDS_THE_RIGHT)
        assert asked < 100
