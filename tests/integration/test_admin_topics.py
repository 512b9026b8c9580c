"""Topics of the admin client against a real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from aiokafka.admin import (
    AclOperation,
    AIOKafkaAdminClient,
    ConfigSource,
    NewPartitions,
    NewTopic,
)
from aiokafka.errors import (
    AdminItemsError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    TopicAlreadyExistsError,
    UnknownTopicId,
    UnknownTopicOrPartitionError,
)
from tests.kafka.fixtures import Kafka

# Starting a broker counts as part of the first test.
pytestmark = pytest.mark.timeout(180)


def new_name() -> str:
    return f"admin-topics-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def admin(kafka: Kafka) -> AsyncIterator[AIOKafkaAdminClient]:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        yield client


async def test_the_life_of_topics(admin: AIOKafkaAdminClient) -> None:
    one, two = new_name(), new_name()
    new = [NewTopic(one, 3, 1, topic_configs={"retention.ms": "3600000"}), NewTopic(two, 1, 1)]
    checked = await admin.topics.create(new, validate_only=True)
    assert checked[one].num_partitions == 3
    made = await admin.topics.create(new)
    configs = made[one].configs
    assert configs is not None
    assert configs["retention.ms"].value == "3600000"
    assert configs["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    await admin.topics.wait_until_ready([one, two])

    listed = {topic.name: topic for topic in await admin.topics.list("admin-topics-*")}
    assert (listed[one].partitions, listed[one].replication_factor) == (3, 1)
    assert listed[one].topic_id == made[one].topic_id
    assert not [topic for topic in await admin.topics.list() if topic.name.startswith("__")]

    topic_id = made[one].topic_id
    assert topic_id is not None
    found = await admin.topics.describe([one, topic_id], include_authorized_operations=True)
    assert found[one] == found[topic_id]
    assert [partition.partition for partition in found[one].partitions] == [0, 1, 2]
    first = found[one].partitions[0]
    assert (first.replicas, first.isr) == ((first.leader,), (first.leader,))
    assert first.eligible_leader_replicas == ()
    assert AclOperation.READ in (found[one].authorized_operations or ())

    await admin.topics.create_partitions({two: NewPartitions(3, [[first.replicas[0]]] * 2)})
    with pytest.raises(InvalidPartitionsError):
        await admin.topics.create_partitions({two: 2})

    await admin.topics.delete([topic_id, two])
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.topics.delete([one])
    with pytest.raises(UnknownTopicId):
        await admin.topics.delete([topic_id])


async def test_topics_that_cannot_be_made(admin: AIOKafkaAdminClient) -> None:
    good, bad = new_name(), new_name()
    with pytest.raises(AdminItemsError) as caught:
        await admin.topics.create([NewTopic(good, 1, 1), NewTopic(bad, 1, 99)])
    assert isinstance(caught.value.errors[bad], InvalidReplicationFactorError)
    assert list(caught.value.results) == [good]
    with pytest.raises(TopicAlreadyExistsError):
        await admin.topics.create([NewTopic(good, 1, 1)])
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.topics.describe([bad])
    await admin.topics.delete([good])


async def test_all_topics_are_described(admin: AIOKafkaAdminClient) -> None:
    many = new_name()
    await admin.topics.create([NewTopic(many, 40, 1)])
    await admin.topics.wait_until_ready([many])
    found = await admin.topics.describe()
    assert len(found[many].partitions) == 40
    await admin.topics.delete([many])


async def test_a_declared_state(admin: AIOKafkaAdminClient) -> None:
    one, two = new_name(), new_name()
    declared = {one: {"partitions": 2, "configs": {"retention.ms": 70_000}}, two: {}}
    steps = await admin.topics.apply(declared)
    assert [step.action.name for step in steps] == ["CREATE", "CREATE"]
    await admin.topics.wait_until_ready([one, two])
    assert await admin.topics.apply(declared) == []
    further = {one: {"partitions": 3, "configs": {"segment.ms": 80_000}}, two: None}
    planned = await admin.topics.apply(further, dry_run=True)
    assert [step.action.name for step in planned] == ["GROW", "CONFIGURE", "DELETE"]
    assert planned[1].configs == {"segment.ms": "80000", "retention.ms": None}
    assert await admin.topics.apply(further) == planned
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.topics.delete([two])
    await admin.topics.delete([one])
