"""One bad partition, topic, group or broker of a call: the others are done, each is named, soon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, ConfigKey, OffsetSpec
from aiokafka.errors import AdminItemsError, KafkaTimeoutError, LeaderNotAvailableError
from aiokafka.protocol.messages import (
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.admin.support import commit, make_admin, simulated

FIRST, SECOND = (TopicPartition("t", number) for number in range(2))
Call = Callable[[AIOKafkaAdminClient, list[TopicPartition]], Awaitable[Any]]

BY_LEADER: dict[str, Call] = {
    "offsets.list": lambda a, tps: a.offsets.list(dict.fromkeys(tps, OffsetSpec.LATEST)),
    "records.delete": lambda a, tps: a.records.delete(dict.fromkeys(tps, 1)),
    "transactions.producers": lambda a, tps: a.transactions.producers(tps),
}


async def filled(cluster: FakeCluster) -> None:
    """Make a partition on broker 0 and one on broker 1, with records."""
    await cluster.create_topic("t", assignment={0: [0], 1: [1]})
    for number in range(2):
        cluster.log("t", number).extend([(None, b"x", ())] * 3)


@pytest.mark.parametrize("name", BY_LEADER)
@simulated
async def test_a_partition_without_a_leader_does_not_hold_up_the_others(name: str) -> None:
    """The call took all of its time, 40 s by default."""
    loop = asyncio.get_running_loop()
    async with FakeCluster(3) as cluster, make_admin(cluster, request_timeout_ms=40_000) as admin:
        await filled(cluster)
        await cluster.stop_broker(1)
        began = loop.time()
        with pytest.raises(AdminItemsError) as caught:
            await BY_LEADER[name](admin, [FIRST, SECOND])
        assert loop.time() - began < 5
    assert list(caught.value.results) == [FIRST]
    assert isinstance(caught.value.errors[SECOND], LeaderNotAvailableError)


@pytest.mark.parametrize("name", BY_LEADER)
@simulated
async def test_an_election_is_waited_for(name: str) -> None:
    async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await cluster.stop_broker(1)
        calling = asyncio.ensure_future(BY_LEADER[name](admin, [FIRST, SECOND]))
        await asyncio.sleep(1)
        await cluster.start_broker(1)
        assert list(await calling) == [FIRST, SECOND]


STALE: dict[str, Callable[[AIOKafkaAdminClient], Awaitable[Any]]] = {
    name: lambda admin, call=call: call(admin, [FIRST])  # type: ignore[misc]
    for name, call in BY_LEADER.items()
}
STALE["topics.describe"] = lambda a: a.topics.describe(["t"])
STALE["configs.describe"] = lambda a: a.configs.describe([ConfigKey.topic("t")])


@pytest.mark.parametrize("release", ["2.8", "4.3"])
@pytest.mark.parametrize("name", STALE)
def test_a_topic_that_one_broker_does_not_know_is_found(name: str, release: str) -> None:
    """The first broker that was asked, by chance, was believed."""

    async def main(_: Simulation) -> None:
        async with FakeCluster(3, as_version=release) as cluster, make_admin(cluster) as admin:
            cluster.faults.mislead(2)
            await filled(cluster)
            assert await STALE[name](admin)

    for seed in range(5):
        simulate(main, seed=seed)


def test_the_flat_method_finds_a_topic_that_one_broker_does_not_know() -> None:
    async def main(_: Simulation) -> None:
        async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
            cluster.faults.mislead(2)
            await filled(cluster)
            found = await admin.describe_topics(["nope", "t"])
            assert [(each["topic"], each["error_code"]) for each in found] == [
                ("nope", 3),
                ("t", 0),
            ]

    for seed in range(5):
        simulate(main, seed=seed)


@simulated
async def test_groups_and_transactions_of_other_brokers_are_listed_beside_a_silent_one() -> None:
    async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        for name in "abcdef":
            await commit(cluster, name, {FIRST: 1})
        every = await admin.groups.list()
        silent = next(iter(every.values())).coordinator
        cluster.intercept(ListGroupsRequest, Silence(), broker=silent)
        with pytest.raises(AdminItemsError) as caught:
            await admin.groups.list()
    others = {name for name, each in every.items() if each.coordinator != silent}
    assert others
    assert set(caught.value.results) == others
    assert list(caught.value.errors) == [silent]
    assert isinstance(caught.value.errors[silent], KafkaTimeoutError)


@simulated
async def test_a_silent_coordinator_leaves_time_for_the_lag_of_other_groups() -> None:
    """The error was about another broker, for which no time was left."""
    async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        for name in "abcdef":
            await commit(cluster, name, {FIRST: 1})
        every = await admin.groups.list()
        silent = next(iter(every.values())).coordinator
        cluster.intercept(DescribeGroupsRequest, Silence(), broker=silent)
        with pytest.raises(AdminItemsError) as caught:
            await admin.groups.lag(list(every))
    lost = {name for name, each in every.items() if each.coordinator == silent}
    assert set(caught.value.errors) == lost
    assert {lag.lag for lag in caught.value.results.values()} == {2}


@simulated
async def test_a_dead_connection_is_left_by_calls_that_come_one_by_one() -> None:
    """A firewall forgot it. Each call saw the next one in flight when its time was over."""
    dead: set[int] = set()

    def forget(request: Any, context: Any) -> Silence | None:
        if not dead:
            dead.add(context.connection_id)
        return Silence() if context.connection_id in dead else None

    async with FakeCluster() as cluster:
        async with make_admin(cluster, request_timeout_ms=40_000) as admin:
            await admin.list_topics()
            cluster.intercept(None, forget)
            calls = []
            for _ in range(10):
                calls.append(asyncio.ensure_future(admin.acls.describe(timeout_ms=1000)))
                await asyncio.sleep(0.4)
            ends = await asyncio.gather(*calls, return_exceptions=True)
    late = [isinstance(end, KafkaTimeoutError) for end in ends]
    assert late[:2] == [True, True]
    assert not any(late[4:])
