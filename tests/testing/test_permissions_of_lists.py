"""What clients may do with some of the names in a request, and get to know of what there is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.admin import (
    AclBinding,
    AclOperation,
    AIOKafkaAdminClient,
    ResourcePattern,
    ResourceType,
)
from aiokafka.errors import TopicAuthorizationFailedError
from aiokafka.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from aiokafka.protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from aiokafka.protocol.messages.metadata import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from aiokafka.protocol.messages.transaction_admin import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from aiokafka.testing import FakeCluster, Security

from .group_scenarios import commit
from .support import RawClient

TOPIC, GROUP, TRANSACTIONAL = 29, 30, 53
NAMES = ["open", "secret"]
_GROUP = 32  # the resource type


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as started:
        for name in NAMES:
            await started.create_topic(name)
        yield started
        assert started.failures == []


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[RawClient]:
    async with RawClient(cluster.address(0)) as connected:
        yield connected


LISTS: dict[str, tuple[str, str, Any, int, str]] = {
    # resource, operation, request, version, where the response has the entries
    "FindCoordinator of groups": (
        *("group", "describe"),
        *(FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES), 4, "coordinators"),
    ),
    "FindCoordinator of transactions": (
        *("transactional_id", "describe"),
        *(FindCoordinatorRequest(key_type=1, coordinator_keys=NAMES), 4, "coordinators"),
    ),
    "OffsetFetch": (
        *("group", "describe"),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=n, topics=[]) for n in NAMES]),
        *(8, "groups"),
    ),
    "DescribeGroups": ("group", "describe", DescribeGroupsRequest(groups=NAMES), 5, "groups"),
    "ConsumerGroupDescribe": (
        *("group", "describe"),
        ConsumerGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=False),
        *(1, "groups"),
    ),
    "DeleteGroups": ("group", "delete", DeleteGroupsRequest(groups_names=NAMES), 2, "results"),
    "DescribeTransactions": (
        *("transactional_id", "describe"),
        *(DescribeTransactionsRequest(transactional_ids=NAMES), 0, "transaction_states"),
    ),
}


@pytest.mark.parametrize("api", LISTS)
async def test_each_name_is_judged_by_itself(
    cluster: FakeCluster, client: RawClient, api: str
) -> None:
    resource, operation, request, version, field = LISTS[api]
    before = [entry.error_code for entry in getattr(await client.call(request, version), field)]
    cluster.acls.withdraw(resource, "secret", operation)
    codes = [entry.error_code for entry in getattr(await client.call(request, version), field)]
    assert codes == [before[0], GROUP if resource == "group" else TRANSACTIONAL]


async def test_groups_that_may_not_be_described_are_not_listed(
    cluster: FakeCluster, client: RawClient
) -> None:
    for name in NAMES:
        assert await commit(client, name, "open") == 0

    async def listed() -> list[str]:
        return [found.group_id for found in (await client.call(ListGroupsRequest(), 4)).groups]

    cluster.acls.withdraw("group", "secret", "describe")
    assert await listed() == NAMES  # who may describe the cluster, may see all groups
    cluster.acls.withdraw("cluster", None, "describe")
    assert await listed() == ["open"]


async def test_transactions_that_may_not_be_described_are_not_listed(
    cluster: FakeCluster, client: RawClient
) -> None:
    for name in NAMES:
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id=name
        ):
            pass
    cluster.acls.withdraw("transactional_id", "secret", "describe")
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    answer = await client.call(request, 0)
    assert [found.transactional_id for found in answer.transaction_states] == ["open"]


@pytest.mark.parametrize("version", [7, 8])
async def test_positions_in_topics_that_may_not_be_described_are_left_out(
    cluster: FakeCluster, client: RawClient, version: int
) -> None:
    for name in NAMES:
        assert await commit(client, "g", name) == 0
    cluster.acls.withdraw("topic", "secret", "describe")
    if version < 8:
        request = OffsetFetchRequest(group_id="g", topics=None)
        topics: Any = (await client.call(request, version)).topics
    else:
        asked = OffsetFetchRequestGroup(group_id="g", topics=None)
        request = OffsetFetchRequest(groups=[asked])
        topics = (await client.call(request, version)).groups[0].topics
    assert [topic.name for topic in topics] == ["open"]


async def test_who_may_not_create_topics_creates_none_by_asking_for_them(
    cluster: FakeCluster, client: RawClient
) -> None:
    cluster.acls.withdraw("topic", "new", "create")
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    assert (await client.call(asked, 9)).topics[0].error_code == TOPIC
    asked.allow_auto_topic_creation = False
    assert (await client.call(asked, 9)).topics[0].error_code == 3
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait("new", b"x")
    assert sorted(cluster.state.topics) == NAMES


async def test_the_right_to_write_is_none_to_create() -> None:
    """By entries, as an administrator makes them for a service."""
    security = Security({"admin": "a", "alice": "b"})
    config = {"authorizer.class.name": "an.Authorizer", "super.users": "User:admin"}
    async with FakeCluster(security=security, config=config) as cluster:

        def login(user: str) -> dict[str, Any]:
            return {
                "bootstrap_servers": cluster.bootstrap_servers,
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": user,
                "sasl_plain_password": security.users[user],
            }

        orders = ResourcePattern(ResourceType.TOPIC, "orders")
        rights = [AclBinding(orders, "User:alice", AclOperation.WRITE)]
        async with (
            AIOKafkaAdminClient(**login("admin")) as admin,
            AIOKafkaProducer(**login("alice")) as producer,
        ):
            await admin.acls.create(rights)
            with pytest.raises(TopicAuthorizationFailedError):
                await producer.send_and_wait("orders", b"x")
            assert "orders" not in cluster.state.topics
            await admin.acls.create([AclBinding(orders, "User:alice", AclOperation.CREATE)])
            await producer.send_and_wait("orders", b"x")
        assert len(cluster.log("orders").records()) == 1


async def test_settings_of_groups_need_rights_on_the_group(
    cluster: FakeCluster, client: RawClient
) -> None:
    resources = [
        DescribeConfigsResource(resource_type=_GROUP, resource_name=name, configuration_keys=None)
        for name in NAMES
    ]
    cluster.acls.withdraw("group", "secret", "describe_configs")
    cluster.acls.withdraw("cluster", None, "describe_configs")
    answer = await client.call(DescribeConfigsRequest(resources=resources), 4)
    assert [result.error_code for result in answer.results] == [0, GROUP]


async def test_who_asks_what_is_allowed_is_told_so(cluster: FakeCluster, client: RawClient) -> None:
    write, describe = 1 << 4, 1 << 8
    cluster.acls.withdraw("topic", "secret", "write")
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in NAMES],
        include_topic_authorized_operations=True,
    )
    topics = (await client.call(request, 9)).topics
    told = [topic.topic_authorized_operations & (write | describe) for topic in topics]
    assert told == [write | describe, describe]
