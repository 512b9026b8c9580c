"""Calls about several items: what is asked again, what is returned, what is raised."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest

from aiokafka.admin.enums import AclOperation, operations_of
from aiokafka.errors import (
    AdminItemsError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.topics import DeleteRecordsRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import Cut, Edit, Fail, FakeCluster, Silence
from tests.admin.support import make_admin, simulated

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


async def filled(cluster: FakeCluster, partitions: int = 2) -> None:
    await cluster.create_topic("t", partitions=partitions)
    for partition in range(partitions):
        cluster.log("t", partition).extend([(None, b"value", ())] * 10)


def leader(cluster: FakeCluster, partition: int) -> int:
    return cluster.partition("t", partition).leader


async def test_each_item_gets_its_value_in_the_order_asked_for() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        found = await admin.records.delete({SECOND: 4, FIRST: -1})
        assert list(found.items()) == [(SECOND, 4), (FIRST, 10)]


async def test_one_item_raises_its_own_error() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        with pytest.raises(OffsetOutOfRangeError, match="t-0"):
            await admin.records.delete({FIRST: 11})


async def test_several_items_raise_all_errors_and_keep_what_succeeded() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        missing = TopicPartition("missing", 0)
        cluster.intercept(
            DeleteRecordsRequest, Fail(PolicyViolationError), broker=leader(cluster, 1)
        )
        with pytest.raises(AdminItemsError, match="2 of 3 items failed") as caught:
            await admin.records.delete({FIRST: 3, SECOND: 3, missing: 0})
        assert caught.value.results == {FIRST: 3}
        assert isinstance(caught.value.errors[SECOND], PolicyViolationError)
        assert isinstance(caught.value.errors[missing], UnknownTopicOrPartitionError)
        for twin in (copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
            assert (str(twin), twin.results) == (str(caught.value), caught.value.results)


async def test_only_what_may_pass_is_asked_again() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)

        def moved(response: object) -> None:
            for each in response.topics[0].partitions:  # type: ignore[attr-defined]
                if each.partition_index == 1:
                    each.error_code = NotLeaderForPartitionError.errno

        cluster.intercept(DeleteRecordsRequest, Edit(moved), times=1)
        assert await admin.records.delete({FIRST: 1, SECOND: 2}) == {FIRST: 1, SECOND: 2}
        first, again = cluster.requests(DeleteRecordsRequest)
        assert [len(seen.request.topics[0].partitions) for seen in (first, again)] == [2, 1]


async def test_an_item_that_the_response_leaves_out_is_an_error() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        cluster.intercept(
            DeleteRecordsRequest, Edit(lambda response: response.topics[0].partitions.clear())
        )
        with pytest.raises(KafkaTimeoutError, match="the response does not name it"):
            await admin.records.delete({FIRST: 1}, timeout_ms=1_000)


@simulated
async def test_a_node_that_fails_takes_only_its_items_along() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        assert leader(cluster, 0) != leader(cluster, 1)
        cluster.intercept(DeleteRecordsRequest, Silence(), broker=leader(cluster, 1))
        with pytest.raises(AdminItemsError) as caught:
            await admin.records.delete({FIRST: 1, SECOND: 2}, timeout_ms=300)
        assert (caught.value.results, list(caught.value.errors)) == ({FIRST: 1}, [SECOND])


async def test_a_lost_connection_is_tried_again() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        cluster.intercept(DeleteRecordsRequest, Cut(), times=2)
        assert await admin.records.delete({FIRST: 1}) == {FIRST: 1}


async def test_no_items_ask_for_nothing() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        assert await admin.records.delete({}) == {}
        assert not cluster.requests(DeleteRecordsRequest)


async def test_wrong_arguments() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        with pytest.raises(ValueError, match=r"before: .*-2"):
            await admin.records.delete({FIRST: -2})


async def test_cancelled_while_it_waits() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        cluster.intercept(DeleteRecordsRequest, Silence())
        task = asyncio.create_task(admin.records.delete({FIRST: 1}))
        await cluster.wait_for(lambda: cluster.requests(DeleteRecordsRequest))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_what_fails_as_a_whole_is_raised_as_it_is() -> None:
    async with FakeCluster(as_version="0.10.2") as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        with pytest.raises(UnsupportedVersionError, match="DeleteRecords"):
            await admin.records.delete({FIRST: 1, SECOND: 2})


def test_operations_of_a_bit_field() -> None:
    assert operations_of(1 << 3 | 1 << 8) == {AclOperation.READ, AclOperation.DESCRIBE}
    assert operations_of(0) == frozenset()
    assert operations_of(-(2**31)) is None
    assert operations_of(1 << 30) == {AclOperation.UNKNOWN}
