"""ACLs that are withdrawn, and quotas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka.protocol.messages.fetch import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokafka.protocol.messages.group_members import HeartbeatRequest
from aiokafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from aiokafka.protocol.messages.metadata import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from aiokafka.protocol.messages.produce import InitProducerIdRequest
from aiokafka.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from aiokafka.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from aiokafka.testing import FakeCluster
from aiokafka.testing.handlers import load
from aiokafka.testing.versions import profile

from .examples import example_request
from .support import RawClient, batch, fetch_request, produce, produce_request

TOPIC, GROUP, CLUSTER, TRANSACTIONAL = 29, 30, 31, 53


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as started:
        await started.create_topic("t")
        yield started
        assert started.failures == []


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[RawClient]:
    async with RawClient(cluster.address(0)) as connected:
        yield connected


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=False)


def listing() -> ListOffsetsRequest:
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[part])])


def adding() -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )


def committing() -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[part])]
    )


def beating() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def initing(name: str | None) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)


def of_parts(answer: Any) -> int:
    code: int = answer.topics[0].partitions[0].error_code
    return code


def of_topic(answer: Any) -> int:
    code: int = answer.topics[0].error_code
    return code


def of_all(answer: Any) -> int:
    code: int = answer.error_code
    return code


@pytest.mark.parametrize(
    ("resource", "name", "operation", "request_", "version", "read", "errno"),
    [
        ("topic", "t", "read", fetch_request("t"), 12, lambda a: of_parts_of(a), TOPIC),
        ("topic", "t", "describe", listing(), 7, of_parts, TOPIC),
        ("topic", "t", "read", committing(), 7, of_parts, TOPIC),
        ("group", "g", "read", committing(), 7, of_parts, GROUP),
        ("topic", "new", "create", creation("new"), 5, of_topic, TOPIC),
        (
            "topic",
            "t",
            "delete",
            DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000),
            5,
            lambda a: a.responses[0].error_code,
            TOPIC,
        ),
        (
            "topic",
            "t",
            "describe",
            OffsetFetchRequest(
                group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
            ),
            7,
            of_parts,
            TOPIC,
        ),
        ("group", "g", "describe", OffsetFetchRequest(group_id="g"), 7, of_all, GROUP),
        ("group", "g", "read", beating(), 3, of_all, GROUP),
        ("group", "g", "describe", FindCoordinatorRequest(key="g", key_type=0), 3, of_all, GROUP),
        (
            "transactional_id",
            "x",
            "describe",
            FindCoordinatorRequest(key="x", key_type=1),
            3,
            of_all,
            TRANSACTIONAL,
        ),
        ("transactional_id", "x", "write", initing("x"), 4, of_all, TRANSACTIONAL),
        ("cluster", None, "idempotent_write", initing(None), 4, of_all, CLUSTER),
        (
            "transactional_id",
            "x",
            "write",
            adding(),
            3,
            lambda a: (
                a.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
            TRANSACTIONAL,
        ),
        (
            "topic",
            "t",
            "write",
            adding(),
            3,
            lambda a: (
                a.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
            TOPIC,
        ),
    ],
)
async def test_what_is_not_allowed(
    cluster: FakeCluster,
    client: RawClient,
    resource: str,
    name: str | None,
    operation: str,
    request_: Any,
    version: int,
    read: Callable[[Any], int],
    errno: int,
) -> None:
    cluster.acls.withdraw(resource, name, "alter_configs")
    assert read(await client.call(request_, version)) != errno
    cluster.acls.withdraw(resource, name, operation)
    assert read(await client.call(request_, version)) == errno
    cluster.acls.restore(resource, name, operation)
    cluster.acls.withdraw(resource, principal="another user")
    assert read(await client.call(request_, version)) != errno
    cluster.acls.withdraw(resource, principal="ANONYMOUS")
    assert read(await client.call(request_, version)) == errno
    cluster.faults.heal()
    assert read(await client.call(request_, version)) != errno


@pytest.mark.parametrize(
    ("api_key", "operation"),
    [
        (27, "alter"),  # WriteTxnMarkers
        (34, "alter"),  # AlterReplicaLogDirs
        (35, "describe"),  # DescribeLogDirs
        (43, "alter"),  # ElectLeaders
        (45, "alter"),  # AlterPartitionReassignments
        (46, "describe"),  # ListPartitionReassignments
        (48, "describe_configs"),  # DescribeClientQuotas
        (49, "alter_configs"),  # AlterClientQuotas
        (50, "describe"),  # DescribeUserScramCredentials
        (51, "alter"),  # AlterUserScramCredentials
        (55, "describe"),  # DescribeQuorum
        (57, "alter"),  # UpdateFeatures
        (64, "alter"),  # UnregisterBroker
        (74, "describe_configs"),  # ListConfigResources
        (80, "alter"),  # AddRaftVoter
        (81, "alter"),  # RemoveRaftVoter
    ],
)
async def test_what_needs_a_permission_on_the_cluster(
    cluster: FakeCluster, client: RawClient, api_key: int, operation: str
) -> None:
    version = profile("4.3").ranges[api_key][1]
    request = example_request(load(api_key).request_class, version)
    cluster.acls.withdraw("cluster", None, operation)
    refused = repr(await client.call(request, version))
    assert f"error_code={CLUSTER}" in refused
    cluster.acls.restore("cluster", None, operation)
    assert f"error_code={CLUSTER}" not in repr(await client.call(request, version))


def of_parts_of(answer: Any) -> int:
    code: int = answer.responses[0].partitions[0].error_code
    return code


async def test_a_topic_that_may_not_be_written(cluster: FakeCluster, client: RawClient) -> None:
    cluster.acls.withdraw("topic", "t", "write")
    assert (await produce(client, "t", batch(b"x"))).error_code == TOPIC
    assert cluster.log("t").end_offset == 0
    cluster.acls.heal()
    cluster.acls.withdraw("transactional_id")
    records = batch(b"x", pid=1, epoch=0, sequence=0, transactional=True)
    request = produce_request("t", records, transactional_id="x")
    answer = (await client.call(request, 9)).responses[0].partition_responses[0]
    assert answer.error_code == TRANSACTIONAL


async def test_what_may_not_be_seen(cluster: FakeCluster, client: RawClient) -> None:
    await cluster.create_topic("open")
    cluster.acls.withdraw("topic", "t")
    named = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    assert of_topic(named) == TOPIC
    everything = await client.call(MetadataRequest(topics=None), 9)
    assert [topic.name for topic in everything.topics] == ["open"]
    cluster.acls.restore("topic", "t")
    everything = await client.call(MetadataRequest(topics=None), 9)
    assert [topic.name for topic in everything.topics] == ["t", "open"]


# -- quotas


async def test_who_produces_too_much_waits(cluster: FakeCluster, client: RawClient) -> None:
    cluster.quotas.limit("produce", 10_000)
    loop = asyncio.get_running_loop()
    first = await client.call(produce_request("t", batch(b"x" * 5000)), 9)
    assert first.throttle_time_ms == 0
    second = await client.call(produce_request("t", batch(b"x" * 7000)), 9)
    assert 100 < second.throttle_time_ms < 400
    start = loop.time()
    await client.call(MetadataRequest(topics=[]), 9)  # the connection is not read meanwhile
    assert loop.time() - start > 0.08
    async with RawClient(cluster.address(0), client_id="modest") as other:
        third = await other.call(produce_request("t", batch(b"x")), 9)
        assert third.throttle_time_ms == 0


async def test_who_produces_too_much_without_acks_waits(
    cluster: FakeCluster, client: RawClient
) -> None:
    cluster.quotas.limit("produce", 10_000)
    loop = asyncio.get_running_loop()
    began = loop.time()
    client.send(produce_request("t", batch(bytes(12_000)), acks=0), 9)
    await client.call(MetadataRequest(topics=[]), 9)
    assert loop.time() - began > 0.15


async def test_a_fetch_over_the_quota_brings_nothing(
    cluster: FakeCluster, client: RawClient
) -> None:
    cluster.log("t").append(b"x" * 1000)
    cluster.quotas.limit("fetch", 500, client_id="raw")
    answer = await client.call(fetch_request("t"), 12)
    assert answer.throttle_time_ms > 0
    assert answer.responses[0].partitions[0].records == b""
    cluster.quotas.lift("fetch", "raw")
    async with RawClient(cluster.address(0)) as other:
        answer = await other.call(fetch_request("t"), 12)
    assert answer.responses[0].partitions[0].records


async def test_too_many_changes(cluster: FakeCluster, client: RawClient) -> None:
    cluster.quotas.limit("mutation", 0.1)
    assert of_topic(await client.call(creation("a"), 6)) == 0
    assert of_topic(await client.call(creation("b"), 6)) == 89
    assert of_topic(await client.call(creation("b"), 5)) == 0  # older clients do not know it
    cluster.quotas.limit("request", 1)
    async with RawClient(cluster.address(0), client_id="new") as other:
        await other.call(MetadataRequest(topics=[]), 9)
        assert (await other.call(MetadataRequest(topics=[]), 9)).throttle_time_ms > 0


def test_wrong_arguments() -> None:
    cluster = FakeCluster()
    for call in (cluster.quotas.lift, cluster.acls.withdraw, cluster.acls.restore):
        with pytest.raises(ValueError, match="must be one of"):
            call("nothing")  # type: ignore[operator]
    for change in (cluster.acls.withdraw, cluster.acls.restore):
        with pytest.raises(ValueError, match="operation must be one of read, write"):
            change("topic", "orders", "wirte")
    with pytest.raises(ValueError, match="above 0"):
        cluster.quotas.limit("fetch", 0)
