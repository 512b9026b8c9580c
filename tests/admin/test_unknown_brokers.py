"""Brokers that the user names and that do not run: told at once, not at the end of the call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, ConfigKey, ConfigResource, SendTo
from aiokafka.errors import (
    AdminItemsError,
    BrokerIdNotRegistered,
    KafkaTimeoutError,
    NoBrokersAvailable,
)
from aiokafka.protocol.messages.groups import ListGroupsRequest
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import Edit, FakeCluster, Hold, Silence
from tests.admin.support import commit, make_admin, simulated

TP = TopicPartition("t", 0)

# Calls about a broker of this id. They would wait for it for a whole hour.
CALLS: dict[str, Callable[[AIOKafkaAdminClient, int], Awaitable[Any]]] = {
    "alter_configs": lambda a, n: a.alter_configs([ConfigResource("broker", str(n), {"a": "b"})]),
    "describe_configs": lambda a, n: a.describe_configs([ConfigResource("broker", str(n))]),
    "describe_consumer_groups": lambda a, n: a.describe_consumer_groups(["g"], n),
    "list_consumer_groups": lambda a, n: a.list_consumer_groups([n]),
    "list_consumer_group_offsets": lambda a, n: a.list_consumer_group_offsets("g", n),
    "send": lambda a, n: a.send(ListGroupsRequest(), SendTo.broker(n)),
    "brokers.features": lambda a, n: a.brokers.features(n),
    "brokers.log_dirs": lambda a, n: a.brokers.log_dirs([n]),
    "brokers.move_replicas": lambda a, n: a.brokers.move_replicas(n, {TP: "/elsewhere"}),
    "configs.alter": lambda a, n: a.configs.alter({ConfigKey.broker_logger(n): {"root": "INFO"}}),
    "configs.describe": lambda a, n: a.configs.describe([ConfigKey.broker(n)]),
    "configs.set_exactly": lambda a, n: a.configs.set_exactly(ConfigKey.broker(n), {}),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_broker_that_there_is_not(name: str) -> None:
    async with FakeCluster(brokers=2) as cluster:
        async with make_admin(cluster, request_timeout_ms=3_600_000) as admin:
            asked = cluster.count(MetadataRequest)
            rule = r"broker 99 is not running; running: 0, 1\b"
            with pytest.raises(BrokerIdNotRegistered, match=rule):
                await CALLS[name](admin, 99)
            assert cluster.count(MetadataRequest) <= asked + 1


async def test_a_broker_that_has_gone_fails_and_the_others_do_not() -> None:
    async with FakeCluster(brokers=3) as cluster:
        async with make_admin(cluster, request_timeout_ms=3_600_000) as admin:
            await cluster.stop_broker(2)
            with pytest.raises(AdminItemsError) as caught:
                await admin.brokers.log_dirs([0, 1, 2])
            assert sorted(caught.value.results) == [0, 1]
            assert isinstance(caught.value.errors[2], BrokerIdNotRegistered)


async def test_a_broker_that_has_come_is_found() -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.stop_broker(1)
        async with make_admin(cluster) as admin:
            await cluster.start_broker(1)
            assert list(await admin.brokers.log_dirs([1])) == [1]


@simulated
async def test_nothing_is_concluded_while_no_broker_tells() -> None:
    async with FakeCluster(brokers=1) as cluster, make_admin(cluster) as admin:
        with cluster.intercept(MetadataRequest, Silence()):
            with pytest.raises(KafkaTimeoutError):
                await admin.brokers.log_dirs([99], timeout_ms=300)
        with pytest.raises(BrokerIdNotRegistered):
            await admin.brokers.log_dirs([99])


@pytest.mark.parametrize("call", ["groups.list", "topics.list", "brokers.log_dirs"])
@simulated
async def test_a_response_without_brokers_is_not_an_empty_cluster(call: str) -> None:
    """A broker that has just started may know of none yet."""
    room, _, method = call.partition(".")

    def forget(response: Any) -> None:
        response.brokers = []

    async with FakeCluster(brokers=1) as cluster, make_admin(cluster) as admin:
        ask = getattr(getattr(admin, room), method)
        expected = await ask()
        with cluster.intercept(MetadataRequest, Edit(forget), times=2):
            assert await ask() == expected
        with cluster.intercept(MetadataRequest, Edit(forget)):
            with pytest.raises(KafkaTimeoutError) as caught:
                await asyncio.wait_for(ask(timeout_ms=300), 10)
            assert isinstance(caught.value.__cause__, NoBrokersAvailable)


@pytest.mark.parametrize("call", ["list_consumer_groups", "groups.list"])
@simulated
async def test_a_broker_that_goes_was_not_named_where_all_are_asked(call: str) -> None:
    """What it cared for is found at the others."""
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await commit(cluster, "g", {TP: 1})
        cluster.move_coordinator("group", "g", 2)
        answer = asyncio.Event()
        room, _, method = call.rpartition(".")
        ask = getattr(getattr(admin, room) if room else admin, method)
        with cluster.intercept(ListGroupsRequest, Hold(answer), broker=0, times=1) as held:
            listing = asyncio.ensure_future(ask())
            await held.wait()
            await cluster.stop_broker(2)
            answer.set()
            # Pairs, or a dict.
            assert [one if isinstance(one, str) else one[0] for one in await listing] == ["g"]
