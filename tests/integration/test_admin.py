"""The admin client against a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import (
    AIOKafkaAdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
)
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from tests.kafka.fixtures import Kafka, MakeTopic

# Starting a broker counts as part of the first test.
pytestmark = pytest.mark.timeout(180)


def new_name() -> str:
    return f"admin-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def admin(kafka: Kafka) -> AsyncIterator[AIOKafkaAdminClient]:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        yield client


async def partitions_of(admin: AIOKafkaAdminClient, topic: str, count: int) -> list[dict[str, Any]]:
    """Wait until the broker has learnt of so many partitions with a leader; return them in order.

    The controller answers before the brokers know.
    """
    while True:
        (described,) = await admin.describe_topics([topic])
        found: list[dict[str, Any]] = described["partitions"]
        if len(found) == count and all(partition["leader"] >= 0 for partition in found):
            return sorted(found, key=lambda partition: partition["partition"])
        await asyncio.sleep(0.05)


async def until_gone(admin: AIOKafkaAdminClient, topic: str) -> None:
    while True:
        if topic not in await admin.list_topics():
            return
        await asyncio.sleep(0.05)


async def test_the_life_of_a_topic(admin: AIOKafkaAdminClient) -> None:
    name = new_name()
    wanted = NewTopic(name, 2, 1, topic_configs={"retention.ms": "3600000"})
    assert (await admin.create_topics([wanted], validate_only=True)).topic_errors[0][:2] == (
        name,
        0,
    )
    assert name not in await admin.list_topics()

    assert (await admin.create_topics([wanted])).topic_errors[0][:2] == (name, 0)
    again = (await admin.create_topics([wanted])).topic_errors
    assert [error.error_code for error in again] == [TopicAlreadyExistsError.errno]
    assert name in (again[0].error_message or "")
    partitions = await partitions_of(admin, name, 2)
    assert [partition["partition"] for partition in partitions] == [0, 1]
    assert all(partition["leader"] in partition["isr"] for partition in partitions)
    assert name in await admin.list_topics()

    await admin.create_partitions({name: NewPartitions(4)})
    assert len(await partitions_of(admin, name, 4)) == 4
    with pytest.raises(InvalidPartitionsError):
        await admin.create_partitions({name: 2})

    assert (await admin.delete_topics([name])).topic_error_codes == [(name, 0)]
    await until_gone(admin, name)
    codes = (await admin.delete_topics([name])).topic_error_codes
    assert codes == [(name, UnknownTopicOrPartitionError.errno)]


async def test_the_brokers_defaults_and_what_it_refuses(admin: AIOKafkaAdminClient) -> None:
    name, wrong = new_name(), new_name()
    result = await admin.create_topics([NewTopic(name, None, None), NewTopic(wrong, 1, 99)])
    codes = {error.topic: error.error_code for error in result.topic_errors}
    assert codes == {name: 0, wrong: InvalidReplicationFactorError.errno}
    await admin.delete_topics([name])


async def test_a_topic_by_assignment(admin: AIOKafkaAdminClient) -> None:
    name = new_name()
    broker = (await admin.describe_cluster())["brokers"][0]["node_id"]
    topic = NewTopic(name, -1, -1, replica_assignments={0: [broker], 1: [broker]})
    assert (await admin.create_topics([topic])).topic_errors[0].error_code == 0
    assert [p["replicas"] for p in await partitions_of(admin, name, 2)] == [[broker], [broker]]
    await admin.delete_topics([name])


async def test_describe_cluster(admin: AIOKafkaAdminClient, kafka: Kafka) -> None:
    described = await admin.describe_cluster()
    assert described["cluster_id"]
    assert described["controller_id"] in [broker["node_id"] for broker in described["brokers"]]
    port = int(kafka.bootstrap_servers.split(",")[0].rpartition(":")[2])
    assert port in [broker["port"] for broker in described["brokers"]]


async def test_configs(admin: AIOKafkaAdminClient, topic: str) -> None:
    change = ConfigResource("topic", topic, {"retention.ms": "1234567"})
    (changed,) = await admin.alter_configs([change])
    assert [resource.error_code for resource in changed.resources] == [0]
    wanted = ConfigResource("topic", topic, ["retention.ms", "cleanup.policy"])
    while True:  # the controller has the new value, and the broker learns of it a moment later
        (answer,) = await admin.describe_configs([wanted], include_synonyms=True)
        entries = {entry.config_name: entry for entry in answer.resources[0].config_entries}
        if entries["retention.ms"].config_value == "1234567":
            break
    assert entries["retention.ms"].config_synonyms[0].config_value == "1234567"
    assert entries["cleanup.policy"].config_value == "delete"

    broker = (await admin.describe_cluster())["brokers"][0]["node_id"]
    (answer,) = await admin.describe_configs([ConfigResource("broker", str(broker))])
    names = {entry.config_name for entry in answer.resources[0].config_entries}
    assert "num.io.threads" in names


async def test_delete_records(
    admin: AIOKafkaAdminClient, kafka: Kafka, make_topic: MakeTopic
) -> None:
    topic = await make_topic(partitions=2)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(20):
            await producer.send(topic, b"x", partition=number % 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    left = await admin.delete_records({first: RecordsToDelete(4), second: RecordsToDelete(-1)})
    assert left == {first: 4, second: 10}
    with pytest.raises(OffsetOutOfRangeError):
        await admin.delete_records({first: RecordsToDelete(999)})


async def test_groups(admin: AIOKafkaAdminClient, kafka: Kafka, topic: str) -> None:
    # A member of confluent-kafka's, so that the test does not stand on our own group code.
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as ConfluentPartition

    group = new_name()
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"x")
    member = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "client.id": "somebody",
        }
    )
    try:
        member.subscribe([topic])
        assert member.poll(30) is not None
        member.commit(
            offsets=[ConfluentPartition(topic, 0, 1, metadata="note")], asynchronous=False
        )

        assert (group, "consumer") in await admin.list_consumer_groups()
        coordinator = await admin.find_coordinator(group)
        brokers = (await admin.describe_cluster())["brokers"]
        assert coordinator in [broker["node_id"] for broker in brokers]

        (answer,) = await admin.describe_consumer_groups([group])
        (described,) = answer.groups
        assert (described.error_code, described.group, described.state) == (0, group, "Stable")
        (found,) = described.members
        assert found.client_id == "somebody"
        wish = ConsumerProtocolMemberMetadata.decode(found.member_metadata)
        assert wish.subscription == [topic]
        share = ConsumerProtocolMemberAssignment.decode(found.member_assignment)
        assert share.partitions() == [TopicPartition(topic, 0)]

        tp = TopicPartition(topic, 0)
        committed = await admin.list_consumer_group_offsets(group)
        assert list(committed) == [tp]
        assert committed[tp].offset == 1
        assert committed[tp].metadata.startswith("note")
        asked = await admin.list_consumer_group_offsets(group, coordinator, [tp])
        assert asked[tp].offset == 1
        other = TopicPartition(topic, 7)
        missing = await admin.list_consumer_group_offsets(group, partitions=[other])
        assert missing[other].offset == -1
    finally:
        member.close()


async def test_a_group_that_does_not_exist(admin: AIOKafkaAdminClient) -> None:
    name = new_name()
    assert await admin.list_consumer_group_offsets(name) == {}
    (answer,) = await admin.describe_consumer_groups([name])
    assert answer.groups[0].members == []


async def test_every_call_without_time(admin: AIOKafkaAdminClient) -> None:
    from aiokafka.errors import KafkaTimeoutError

    with pytest.raises(KafkaTimeoutError):
        await admin.create_topics([NewTopic(new_name(), 1, 1)], timeout_ms=0)
