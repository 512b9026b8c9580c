"""Topics and partitions that do not exist: told soon by calls that leaders answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, OffsetSpec, RecordsToDelete, SendTo
from aiokafka.errors import AdminItemsError, KafkaTimeoutError, UnknownTopicOrPartitionError
from aiokafka.protocol.messages.topics import DeleteRecordsRequest
from aiokafka.protocol.messages.transaction_admin import DescribeProducersRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import Fail, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.admin.support import make_admin

ASK = DescribeProducersRequest(topics=[])
Call = Callable[[AIOKafkaAdminClient, TopicPartition], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "delete_records": lambda a, tp: a.delete_records({tp: RecordsToDelete(1)}),
    "records.delete": lambda a, tp: a.records.delete({tp: 1}),
    "send": lambda a, tp: a.send(ASK, SendTo.leader(tp)),
    "transactions.producers": lambda a, tp: a.transactions.producers([tp]),
    "offsets.list": lambda a, tp: a.offsets.list({tp: OffsetSpec.LATEST}),
}


async def timed(call: Awaitable[Any], error: type[BaseException], match: str) -> float:
    """Return after how many seconds a call raises an error."""
    began = asyncio.get_running_loop().time()
    with pytest.raises(error, match=match):
        await call
    return asyncio.get_running_loop().time() - began


@pytest.mark.parametrize("name", CALLS)
def test_what_does_not_exist_is_not_waited_for_to_the_end(name: str) -> None:
    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            async with make_admin(cluster, request_timeout_ms=3_600_000) as admin:
                for tp, text in (("nope", 0), "nope"), (("t", 7), "t-7"):
                    call = CALLS[name](admin, TopicPartition(*tp))
                    assert await timed(call, UnknownTopicOrPartitionError, text) < 3
            async with make_admin(cluster, request_timeout_ms=500, retry_backoff_ms=50) as admin:
                call = CALLS[name](admin, TopicPartition("nope", 0))
                assert await timed(call, UnknownTopicOrPartitionError, "nope") < 0.5
        assert "nope" not in cluster.state.topics

    simulate(main)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "offsets.list"])
def test_a_topic_that_was_made_a_moment_ago_is_found(name: str) -> None:
    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster, make_admin(cluster) as admin:
            calling = asyncio.ensure_future(CALLS[name](admin, TopicPartition("t", 0)))
            await asyncio.sleep(0.5)
            await cluster.create_topic("t")
            cluster.log("t").extend([(None, b"x", ())] * 3)
            await calling

    simulate(main)


def test_others_of_the_call_are_done() -> None:
    async def main(_: Simulation) -> Mapping[object, object]:
        async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
            await cluster.create_topic("t", partitions=2)
            for number in range(2):
                cluster.log("t", number).extend([(None, b"x", ())] * 3)
            places = {("gone", 0): 1, ("t", 0): 2, ("t", 1): 3, ("t", 7): 3}
            wanted = {TopicPartition(*place): offset for place, offset in places.items()}
            with pytest.raises(AdminItemsError) as caught:
                await admin.records.delete(wanted)
            failed = {tp: type(each) for tp, each in caught.value.errors.items()}
            unknown = UnknownTopicOrPartitionError
            assert failed == {("gone", 0): unknown, ("t", 7): unknown}
            return caught.value.results

    assert simulate(main) == {("t", 0): 2, ("t", 1): 3}


def test_a_leader_that_does_not_know_its_partition_yet_is_asked_until_the_end() -> None:
    """The metadata has it: the leader is about to learn of it."""

    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster, make_admin(cluster) as admin:
            await cluster.create_topic("t")
            cluster.log("t").extend([(None, b"x", ())])
            tp = TopicPartition("t", 0)
            with cluster.intercept(DeleteRecordsRequest, Fail(3)):
                call = admin.records.delete({tp: 1}, timeout_ms=4000)
                assert await timed(call, KafkaTimeoutError, "UnknownTopicOrPartition") > 2
            assert await admin.records.delete({tp: 1}) == {tp: 1}

    simulate(main)
