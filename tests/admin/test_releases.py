"""What brokers of other releases, and other brokers than the first, have to say."""

from __future__ import annotations

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import ConfigResource, ConfigResourceType, NewTopic
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupLoadInProgressError,
    NotControllerError,
)
from aiokafka.protocol.messages.configs import DescribeConfigsRequest
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.protocol.messages.groups import ConsumerGroupDescribeRequest, DescribeGroupsRequest
from aiokafka.protocol.messages.topics import CreateTopicsRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import Fail, FakeCluster
from tests.admin.support import make_admin


async def test_loggers_of_a_broker_are_asked_of_that_broker() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        for node_id in (2, 0, 1):
            cluster.forget_requests()
            await admin.describe_configs(
                [ConfigResource(ConfigResourceType.BROKER_LOGGER, str(node_id))]
            )
            (seen,) = cluster.requests(DescribeConfigsRequest)
            assert seen.broker_id == node_id


async def test_members_of_the_next_protocol_tell_what_they_own() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            group_protocol="consumer",
        )
        async with consumer:
            both = {TopicPartition("t", 0), TopicPartition("t", 1)}
            await cluster.wait_for(lambda: consumer.assignment() == both)
            (answer,) = await admin.describe_consumer_groups(
                ["g"], include_authorized_operations=True
            )
            (found,) = answer.groups[0].members
            metadata = ConsumerProtocolMemberMetadata.decode(found.member_metadata)
            assert set(metadata.owned()) == both
        (seen,) = cluster.requests(ConsumerGroupDescribeRequest)
        assert seen.request.include_authorized_operations


@pytest.mark.parametrize("version", ["1.1", "2.8", "3.9"])
async def test_offsets_are_not_taken_from_a_coordinator_that_loads(version: str) -> None:
    """Before Kafka 3.0 there is one error for all of the response."""
    tp = TopicPartition("t", 0)
    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        async with AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, group_id="g"
        ) as consumer:
            consumer.assign([tp])
            await consumer.commit({tp: 7})
        cluster.intercept(OffsetFetchRequest, Fail(GroupLoadInProgressError), times=2)
        found = await admin.list_consumer_group_offsets("g", partitions=[tp])
        assert found[tp].offset == 7
        cluster.intercept(OffsetFetchRequest, Fail(GroupAuthorizationFailedError))
        with pytest.raises(GroupAuthorizationFailedError):
            await admin.list_consumer_group_offsets("g", partitions=[tp])


@pytest.mark.parametrize("version", ["0.11", "2.8", "4.3"])
@pytest.mark.parametrize("key_type", [0, 1])
async def test_coordinators_of_groups_and_of_transactions(version: str, key_type: int) -> None:
    async with FakeCluster(brokers=3, as_version=version) as cluster:
        kind, other = ("group", "transaction") if key_type == 0 else ("transaction", "group")
        cluster.move_coordinator(kind, "name", 2)
        cluster.move_coordinator(other, "name", 1)
        async with make_admin(cluster) as admin:
            assert await admin.find_coordinator("name", key_type) == 2


async def test_groups_of_a_coordinator_that_loads_are_asked_for_again() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        refused = cluster.intercept(DescribeGroupsRequest, Fail(GroupLoadInProgressError), times=2)
        (answer,) = await admin.describe_consumer_groups(["g"])
        assert refused.hits == 2
        assert answer.groups[0].error_code != GroupLoadInProgressError.errno


async def test_the_controller_that_took_over_is_asked() -> None:
    """Not the old one again and again: it knows only that it is none."""
    async with FakeCluster(brokers=3, as_version="2.1") as cluster, make_admin(cluster) as admin:
        await admin.create_topics([NewTopic("a", 1, 1)])
        cluster.controller.start(2)
        cluster.intercept(CreateTopicsRequest, Fail(NotControllerError), broker=0)
        (result,) = (await admin.create_topics([NewTopic("b", 1, 1)])).topic_error_codes
        assert result == ("b", 0)
    asked = [seen.broker_id for seen in cluster.requests(CreateTopicsRequest)]
    assert asked[-1] == 2
    assert len(asked) <= 10
