"""FastStream and others read answers of the admin client as dicts, with `to_object()`."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, for_code
from aiokafka.testing import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        yield cluster


@pytest.fixture
async def admin(cluster: FakeCluster) -> AsyncIterator[AIOKafkaAdminClient]:
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin


async def test_created_topics(admin: AIOKafkaAdminClient) -> None:
    response = await admin.create_topics([NewTopic("new", 1, 1), NewTopic("t", 1, 1)])
    found = response.to_object()
    assert list(found) == ["throttle_time_ms", "topic_errors"]
    new, old = found["topic_errors"]
    assert new == {"topic": "new", "error_code": 0, "error_message": None}
    assert list(old) == ["topic", "error_code", "error_message"]
    assert for_code(old["error_code"]) is TopicAlreadyExistsError


async def test_deleted_topics(admin: AIOKafkaAdminClient) -> None:
    response = await admin.delete_topics(["t"])
    assert response.to_object() == {
        "throttle_time_ms": 0,
        "topic_error_codes": [{"topic": "t", "error_code": 0}],
    }
    assert response.topic_error_codes == [("t", 0)]


async def test_added_partitions(admin: AIOKafkaAdminClient) -> None:
    response = await admin.create_partitions({"t": NewPartitions(2)})
    assert response.to_object() == {
        "throttle_time_ms": 0,
        "topic_errors": [{"topic": "t", "error_code": 0, "error_message": None}],
    }


async def test_a_broker_goes_by_its_number(admin: AIOKafkaAdminClient) -> None:
    number = (await admin.describe_cluster())["brokers"][0]["node_id"]
    (response,) = await admin.describe_configs([ConfigResource("broker", number)])
    code, _, kind, name, *_ = response.resources[0]
    assert (code, kind, name) == (0, ConfigResourceType.BROKER, str(number))


async def test_configs(admin: AIOKafkaAdminClient) -> None:
    topic = ConfigResource(ConfigResourceType.TOPIC, "t", {"retention.ms": "1000"})
    (altered,) = await admin.alter_configs([topic])
    resource = {"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "t"}
    assert altered.to_object() == {"throttle_time_ms": 0, "resources": [resource]}
    asked = ConfigResource(ConfigResourceType.TOPIC, "t", {"retention.ms": None})
    (described,) = await admin.describe_configs([asked], include_synonyms=True)
    found = described.to_object()
    (entry,) = found["resources"][0].pop("config_entries")
    assert found == {"throttle_time_ms": 0, "resources": [resource]}
    # Not "config_name", which it is in a synonym.
    assert list(entry) == [
        "config_names",
        "config_value",
        "read_only",
        "config_source",
        "is_sensitive",
        "config_synonyms",
    ]
    assert (entry["config_names"], entry["config_value"]) == ("retention.ms", "1000")
    for synonym in entry["config_synonyms"]:
        assert list(synonym) == ["config_name", "config_value", "config_source"]


async def test_groups(cluster: FakeCluster, admin: AIOKafkaAdminClient) -> None:
    consumer = AIOKafkaConsumer(
        "t", group_id="g", group_instance_id="i", bootstrap_servers=cluster.bootstrap_servers
    )
    async with consumer:
        assert consumer.assignment() == {TopicPartition("t", 0)}
        (response,) = await admin.describe_consumer_groups(["g"])
    found: dict[str, Any] = response.to_object()
    (group,) = found.pop("groups")
    assert found == {"throttle_time_ms": 0}
    (member,) = group.pop("members")
    assert group == {
        "error_code": 0,
        "group": "g",
        "state": "Stable",
        "protocol_type": "consumer",
        "protocol": "roundrobin",
    }
    keys = ["member_id", "client_id", "client_host", "member_metadata", "member_assignment"]
    assert list(member) == keys
    # Programs take the tuples of six and five apart; what came later is beside them.
    error_code, name, _, _, _, members = response.groups[0]
    assert (error_code, name) == (0, "g")
    assert isinstance(response.groups[0].authorized_operations, int)
    again = pickle.loads(pickle.dumps(response.groups[0]))
    assert again == response.groups[0]
    assert again.authorized_operations == response.groups[0].authorized_operations
    (described,) = members
    assert list(described) == list(member.values())
    assert described.group_instance_id == "i"
    assert "group_instance_id='i'" in repr(described)
