"""The room for groups against a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AclOperation, AIOKafkaAdminClient, GroupState, GroupType
from aiokafka.errors import GroupIdNotFound
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from tests.kafka.fixtures import Kafka, MakeTopic

# Starting a broker counts as part of the first test.
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
async def admin(kafka: Kafka) -> AsyncIterator[AIOKafkaAdminClient]:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        yield client


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


async def filled(kafka: Kafka, make_topic: MakeTopic, counts: list[int]) -> list[TopicPartition]:
    """Return the partitions of a new topic, with so many records each, a second apart."""
    topic = await make_topic(partitions=len(counts))
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for partition, count in enumerate(counts):
            for number in range(count):
                at = 1_700_000_000_000 + number * 1000
                await producer.send(topic, b"value", partition=partition, timestamp_ms=at)
    return [TopicPartition(topic, partition) for partition in range(len(counts))]


def member(kafka: Kafka, topic: str, group: str, protocol: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        group_protocol=protocol,
        group_instance_id="one",
        auto_offset_reset="earliest",
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_is_listed_and_described(
    admin: AIOKafkaAdminClient, kafka: Kafka, make_topic: MakeTopic, protocol: str
) -> None:
    group = new_group()
    tps = await filled(kafka, make_topic, [3, 4])
    async with member(kafka, tps[0].topic, group, protocol) as consumer:
        while len(consumer.assignment()) < 2:
            await asyncio.sleep(0.05)
        await consumer.getmany(timeout_ms=5000, max_records=1)
        await consumer.commit({tps[0]: OffsetAndMetadata(1, "note")})
        listed = await admin.groups.list(
            states=[GroupState.STABLE], types=[protocol], prefix="group-"
        )
        assert listed[group].type is GroupType(protocol)
        assert listed[group].protocol_type == "consumer"
        assert group not in await admin.groups.list(states=[GroupState.EMPTY])

        found = (await admin.groups.describe([group], include_authorized_operations=True))[group]
        assert (found.type, found.state) == (GroupType(protocol), GroupState.STABLE)
        assert found.authorized_operations is not None
        assert AclOperation.DESCRIBE in found.authorized_operations
        (one,) = found.members
        assert one.assignment == tuple(tps)
        assert (one.instance_id, one.topics) == ("one", (tps[0].topic,))
        assert (one.target == one.assignment) is (protocol == "consumer")
        offsets = await admin.groups.offsets({group: tps, "missing": None})
        assert offsets == {
            group: {tps[0]: OffsetAndMetadata(1, "note"), tps[1]: None},
            "missing": {},
        }
    with pytest.raises(GroupIdNotFound, match="missing"):
        await admin.groups.describe(["missing"])
