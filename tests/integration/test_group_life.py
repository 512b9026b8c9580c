"""The life of a group's member on a real broker: start, topics that come and go, stop."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.errors import (
    ConsumerStoppedError,
    FencedInstanceId,
    InvalidSessionTimeoutError,
    UnknownTopicOrPartitionError,
)
from tests.kafka.fixtures import Kafka, MakeTopic

PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 200},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def member(kafka: Kafka, protocol: str, *topics: str, **options: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        **{"group_id": f"life-{uuid.uuid4().hex}", **PROTOCOLS[protocol], **options},
    )


async def write(kafka: Kafka, topic: str, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send_and_wait(topic, b"%d" % number)


async def test_start_with_a_pattern(kafka: Kafka, make_topic: MakeTopic, protocol: str) -> None:
    topic = await make_topic(partitions=3)
    await write(kafka, topic, 1)
    consumer = member(kafka, protocol, exclude_internal_topics=False)
    consumer.subscribe(pattern=f"({topic}|__consumer_offsets)$")
    async with consumer:
        # The broker's own topic came into being with the first group, which may be this one.
        assert topic in consumer.subscription()
        wanted = {TopicPartition(topic, number) for number in range(3)}
        if protocol == "consumer":
            # The coordinator assigns what it knows. A busy broker serves the metadata of a new
            # topic, and records of it, before its coordinator has heard of the topic.
            assert consumer.assignment()
            async with timeout(20):
                while not wanted <= consumer.assignment():
                    await consumer.getmany(timeout_ms=50)
        assert wanted <= consumer.assignment()
        await consumer.seek_to_beginning()
        assert (await consumer.getone(*(TopicPartition(topic, n) for n in range(3)))).value == b"0"
    consumer = member(kafka, protocol, exclude_internal_topics=False)
    consumer.subscribe(pattern=f"({topic}|__consumer_offsets)$")
    async with consumer:
        assert consumer.subscription() == {topic, "__consumer_offsets"}
        assert len(consumer.assignment()) > 3
    consumer = member(kafka, protocol)
    consumer.subscribe(pattern=f"({topic}|__consumer_offsets)$")
    async with consumer:
        assert consumer.subscription() == {topic}
        assert len(consumer.assignment()) == 3


async def test_a_deleted_topic_does_not_hold_up_the_other(
    kafka: Kafka, make_topic: MakeTopic, protocol: str
) -> None:
    stays, goes = await make_topic(), await make_topic()
    await write(kafka, stays, 5)
    await write(kafka, goes, 5)
    kept, gone = TopicPartition(stays, 0), TopicPartition(goes, 0)
    consumer = member(kafka, protocol, stays, goes, auto_commit_interval_ms=100)
    async with consumer:
        for _ in range(5):
            await consumer.getone(kept)
            await consumer.getone(gone)
        async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
            await admin.delete_topics([goes])
        async with timeout(20):
            if protocol == "classic":
                # Only then does the broker forget it, and the partition stays ours.
                with pytest.raises(UnknownTopicOrPartitionError, match=goes):
                    while True:
                        await consumer.commit({kept: 1, gone: 2})
                        await asyncio.sleep(0.1)
            await write(kafka, stays, 1)
            assert (await consumer.getone(kept)).offset == 5
            await consumer.getmany(kept)
            while await consumer.committed(kept) != 6:
                await asyncio.sleep(0.05)
        async with timeout(8):
            await consumer.stop()


async def test_stopping(kafka: Kafka, make_topic: MakeTopic, protocol: str) -> None:
    topic = await make_topic()
    await write(kafka, topic, 3)
    group = f"life-{uuid.uuid4().hex}"
    consumer = member(kafka, protocol, topic, group_id=group)
    await consumer.start()
    for _ in range(3):
        await consumer.getone()
    await consumer.getmany()
    async with timeout(10):
        await asyncio.gather(consumer.stop(), consumer.stop(), consumer.stop())
    with pytest.raises(ConsumerStoppedError, match="was stopped; make a new one"):
        await consumer.start()
    # The group was left, so the next member need not wait for the session's end.
    async with timeout(8), member(kafka, protocol, topic, group_id=group) as successor:
        assert await successor.committed(TopicPartition(topic, 0)) == 3
        late = member(kafka, protocol, topic, group_id=group)
        starting = asyncio.get_running_loop().create_task(late.start())
        # It has begun, and no broker can have answered yet.
        await asyncio.sleep(0)
        await late.stop(timeout=2)
        with pytest.raises(ConsumerStoppedError, match="while it started"):
            await starting


async def test_a_static_leader_notices_new_partitions(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic()
    options = {
        "group_id": f"life-{uuid.uuid4().hex}",
        "group_instance_id": "one",
        "metadata_max_age_ms": 200,
    }
    async with member(kafka, "classic", topic, **options) as first:
        assert len(first.assignment()) == 1
    async with member(kafka, "classic", topic, **options) as second:
        assert len(second.assignment()) == 1
        async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
            await admin.create_partitions({topic: NewPartitions(3)})
        async with timeout(20):
            while len(second.assignment()) != 3:
                await asyncio.sleep(0.05)
        third = member(kafka, "classic", topic, **options)
        async with third:
            with pytest.raises(FencedInstanceId, match="joined with group_instance_id='one'"):
                async with timeout(20):
                    await second.getone()


async def test_a_static_leader_that_is_back_notices_what_was_added_meanwhile(
    kafka: Kafka, make_topic: MakeTopic
) -> None:
    """Its group does not rebalance for it, and its own share stands (KIP-814)."""
    topic = await make_topic(partitions=2)
    options = {"group_id": f"life-{uuid.uuid4().hex}", "metadata_max_age_ms": 200}
    leader = {**options, "group_instance_id": "one"}
    async with member(kafka, "classic", topic, **leader) as first:
        other = member(kafka, "classic", topic, group_instance_id="two", **options)
        await other.start()
        assert len(other.assignment()) == 1
        async with timeout(20):
            while len(first.assignment()) != 1:
                await asyncio.sleep(0.05)
    try:
        async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
            await admin.create_partitions({topic: NewPartitions(4)})
        async with member(kafka, "classic", topic, **leader) as second, timeout(20):
            while len(second.assignment() | other.assignment()) != 4:
                await asyncio.sleep(0.05)
    finally:
        await other.stop()


async def test_a_session_timeout_that_the_broker_refuses(kafka: Kafka, topic: str) -> None:
    consumer = member(kafka, "classic", topic, session_timeout_ms=3_600_001)
    with pytest.raises(
        InvalidSessionTimeoutError,
        match=r"(?s)session_timeout_ms=3600001.*group\.max\.session\.timeout\.ms",
    ):
        await consumer.start()


@pytest.mark.parametrize("caller", [0, 1])
async def test_the_group_rebalances_whichever_member_enforces_it(
    kafka: Kafka, make_topic: MakeTopic, caller: int
) -> None:
    """KIP-568. By itself a coordinator does not rebalance for a follower that joins again."""
    topic = await make_topic(partitions=2)
    options: Any = {"bootstrap_servers": kafka.bootstrap_servers, "group_id": topic}
    async with (
        AIOKafkaConsumer(topic, **options, heartbeat_interval_ms=200) as first,
        AIOKafkaConsumer(topic, **options, heartbeat_interval_ms=200) as second,
        timeout(40),
    ):
        both = (first, second)
        while not all(len(each.assignment()) == 1 for each in both):
            await asyncio.sleep(0.05)
        before = first.group_metadata().generation_id
        both[caller].enforce_rebalance("a test")
        while min(each.group_metadata().generation_id for each in both) == before:
            await asyncio.sleep(0.05)
        while not all(len(each.assignment()) == 1 for each in both):
            await asyncio.sleep(0.05)
        assert first.group_metadata().generation_id == before + 1


@pytest.mark.parametrize("instance_id", [None, "one"])
@pytest.mark.parametrize("leave", [None, True, False])
async def test_who_leaves_the_group(
    kafka: Kafka, make_topic: MakeTopic, protocol: str, instance_id: str | None, leave: bool | None
) -> None:
    """KIP-1092."""
    topic = await make_topic()
    options = {"group_id": topic, "group_instance_id": instance_id}
    consumer = member(kafka, protocol, topic, **options)
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await consumer.start()
        async with timeout(40):
            while not consumer.assignment():
                await asyncio.sleep(0.05)
        await consumer.stop(leave=leave)
        found = (await admin.groups.describe([topic]))[topic]
    stays = (instance_id is not None) if leave is None else not leave
    assert len(found.members) == (1 if stays else 0)
