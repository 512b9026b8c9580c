"""What a member of the consumer protocol confirms, so that the coordinator can go on, and when it
gives up what it would have confirmed (KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set

import pytest

from aiokafka import SubscriptionPattern, TopicPartition
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import FakeCluster, Hold
from aiokafka.testing.script import RequestContext
from tests.support.consumer_protocol import CONFIG, OPTIONS, beats, listening, shares
from tests.support.consumers import Start
from tests.support.groups import Log, until


@pytest.fixture
async def four() -> AsyncIterator[FakeCluster]:
    """A cluster with a topic of four partitions, that wants to hear of members often."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        yield cluster
        assert cluster.failures == []


class Slow(Log):
    """A listener whose first call takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.released = asyncio.Event(), asyncio.Event()

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        super().on_partitions_assigned(assigned)
        self.entered.set()
        await self.released.wait()


@pytest.mark.parametrize("in_flight", [False, True])
async def test_partitions_that_were_never_taken_over_are_given_back(
    four: FakeCluster, start: Start, in_flight: bool
) -> None:
    """They are assigned and taken away again while the listener is at work. As nothing changes by
    that for the member, it has nothing to give up; but the coordinator waits to be told.

    `in_flight`: the listener ends while a heartbeat is on its way that says nothing of it."""
    first = await listening(four, start, Log())
    log = Slow()
    second = await start(four, **OPTIONS)
    second.subscribe(["t"], listener=log)
    await log.entered.wait()
    assert log.calls == [("assigned", set())]

    async def hear() -> None:
        """Wait until the second member has had the responses to two more heartbeats."""
        member_id = second.group_metadata().member_id
        count = len(beats(four))
        await until(
            four,
            lambda: sum(beat.member_id == member_id for beat in beats(four)[count:]) >= 3,
        )

    await until(four, lambda: len(first.assignment()) == 2)
    await hear()
    four.groups.rebalance("g")
    await hear()
    if in_flight:
        member_id, response = second.group_metadata().member_id, asyncio.Event()

        def hold(request: ConsumerGroupHeartbeatRequest, _: RequestContext) -> Hold | None:
            return Hold(response) if request.member_id == member_id else None

        with four.intercept(ConsumerGroupHeartbeatRequest, hold) as script:
            await until(four, lambda: script.hits > 0)
            log.released.set()
            assert await second.getmany(timeout_ms=50) == {}
        response.set()
    log.released.set()
    await until(four, lambda: shares(first, second) == [2, 2])


async def test_who_is_removed_while_it_asks_for_a_name_gives_up_everything_at_once(
    four: FakeCluster, start: Start
) -> None:
    """Others have its partitions by then, and it returned their records until a broker had told it
    what another topic is called, which may take as long as a request."""
    log = Log()
    consumer = await start(four, **OPTIONS)
    consumer.subscribe(pattern=SubscriptionPattern("t.*"), listener=log)
    await until(four, lambda: shares(consumer) == [4])
    is_named = asyncio.Event()

    def hold(request: MetadataRequest, _: RequestContext) -> Hold | None:
        by_id = any(topic.topic_id != ZERO_UUID for topic in request.topics or ())
        return Hold(is_named) if by_id else None

    with four.intercept(MetadataRequest, hold) as script:
        await four.create_topic("tu")
        await until(four, lambda: script.hits > 0)
        four.groups.expire("g", consumer.group_metadata().member_id)
        await until(four, lambda: log.calls[-1] == ("lost", {0, 1, 2, 3}))
        assert consumer.assignment() == frozenset()
    is_named.set()
    await until(four, lambda: len(consumer.assignment()) == 5)
