"""Transactions that span a consumer and a producer, on a real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, TransactionalSession
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortable,
    UnknownTopicId,
)
from tests.integration.support import numbers, read
from tests.kafka.fixtures import Kafka, MakeTopic, Scale, need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.topics import create_topic

PARTITIONS = 4

PROTOCOLS = [
    pytest.param({"partition_assignment_strategy": [RangePartitionAssignor]}, id="eager"),
    pytest.param({"partition_assignment_strategy": [CooperativeStickyAssignor]}, id="cooperative"),
    pytest.param({"group_protocol": "consumer"}, id="consumer"),
]


def new_consumer(servers: str, group: str, **options: Any) -> AIOKafkaConsumer:
    if options.get("group_protocol") != "consumer":
        options = {"heartbeat_interval_ms": 200, **options}
    return AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        rebalance_timeout_ms=2000,
        **options,
    )


def new_producer(servers: str, name: str, **options: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name, **options)


async def fill(servers: str, topic: str, count: int, partitions: int = PARTITIONS) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


Member = Callable[[str, str, str, str, Any], Any]


async def in_session(servers: str, source: str, target: str, name: str, options: Any) -> None:
    """A member that works with the session, until cancelled."""
    consumer = new_consumer(servers, f"group-{source}", **options)
    consumer.subscribe([source])
    producer = new_producer(servers, f"{source}-{name}")
    async with TransactionalSession(consumer, producer, max_records=50) as session:
        async for transaction in session:
            async with transaction as records:
                for record in records:
                    await transaction.send(target, record.value, partition=0)
                await asyncio.sleep(0.02)


async def by_hand(servers: str, source: str, target: str, name: str, options: Any) -> None:
    """The same as programs for aiokafka do it: the group is given by its name."""
    group = f"group-{source}"
    async with new_producer(servers, f"{source}-{name}") as producer:
        while True:
            consumer = new_consumer(servers, group, **options)
            consumer.subscribe([source])
            with contextlib.suppress(KafkaError):
                async with consumer:
                    while True:
                        batches = await consumer.getmany(timeout_ms=500, max_records=50)
                        async with producer.transaction():
                            for records in batches.values():
                                for record in records:
                                    await producer.send(target, record.value, partition=0)
                            offsets = {tp: found[-1].offset + 1 for tp, found in batches.items()}
                            await asyncio.sleep(0.02)
                            await producer.send_offsets_to_transaction(offsets, group)


@pytest.mark.parametrize("options", PROTOCOLS)
@pytest.mark.parametrize("member", [in_session, by_hand])
async def test_each_record_once_while_members_come_and_go(
    kafka: Kafka, make_topic: MakeTopic, scale: Scale, member: Member, options: Any
) -> None:
    servers, count = kafka.bootstrap_servers, scale(2_000, 50_000)
    source, target = await make_topic(partitions=PARTITIONS), await make_topic()
    await fill(servers, source, count)
    tasks = [asyncio.ensure_future(member(servers, source, target, name, options)) for name in "ab"]
    reading = asyncio.ensure_future(read(servers, target, count))
    try:
        async with timeout(scale(60, 600)):
            turn = 0
            while not reading.done():
                await asyncio.sleep(0.7)
                failed = [task for task in tasks if task.done()]
                assert not failed, failed
                # Another member comes, and the oldest goes in the midst of what it does.
                turn += 1
                name = f"member-{turn}"
                tasks.append(asyncio.ensure_future(member(servers, source, target, name, options)))
                await asyncio.sleep(0.7)
                oldest = tasks.pop(0)
                oldest.cancel()
                await asyncio.wait([oldest])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    seen = Counter(record.value for record in await reading)
    assert seen == Counter(numbers(count))


@pytest.mark.parametrize("version", ["0.11.0.3", "2.8.2"])
async def test_sessions_on_older_brokers(version: str) -> None:
    need_own_brokers()
    with KafkaCluster(version) as cluster:
        servers = cluster.bootstrap_servers
        for topic, partitions in (("source", 2), ("target", 1)):
            await create_topic(servers, topic, partitions, 1, {})
        await fill(servers, "source", 200, partitions=2)
        for assigned in (False, True, True):
            consumer = new_consumer(servers, "group")
            if assigned:
                await asyncio.wait_for(fill(servers, "source", 100, partitions=2), 60)
                consumer.assign([TopicPartition("source", number) for number in (0, 1)])
            else:
                consumer.subscribe(["source"])
            await copy_all(consumer, new_producer(servers, "one"), 100 if assigned else 200)
        found = await read(servers, "target", 400)
        expected = Counter(numbers(200)) + Counter(numbers(100)) + Counter(numbers(100))
        assert Counter(record.value for record in found) == expected


async def copy_all(consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, count: int) -> None:
    """Copy `count` records; every second transaction is aborted once."""
    done = tries = 0
    async with TransactionalSession(consumer, producer, max_records=30) as session:
        async for transaction in session:
            tries += 1
            with contextlib.suppress(LookupError):
                async with transaction as records:
                    for record in records:
                        await transaction.send("target", record.value, partition=0)
                    if tries % 2:
                        raise LookupError
                done += len(records)
            if done == count:
                break


async def test_an_offset_in_a_deleted_topic_is_not_stored_for_its_successor() -> None:
    """KIP-1319: since Kafka 4.4, offsets in transactions have the id of their topic."""
    need_own_brokers()
    with KafkaCluster("4.4.0") as kafka:
        servers, source = kafka.bootstrap_servers, "again"
        tp, group = TopicPartition(source, 0), "group"
        producer = new_producer(servers, "transactional-id")
        async with producer, AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
            await admin.topics.create([NewTopic(source, 1, 1)])
            await admin.topics.wait_until_ready([source])
            await producer.partitions_for(source)
            async with producer.transaction():
                await producer.send_offsets_to_transaction({tp: 1}, group)
            found = await admin.groups.offsets({group: [tp]}, require_stable=True)
            assert getattr(found[group][tp], "offset", None) == 1
            await admin.topics.delete([source])
            await admin.topics.create([NewTopic(source, 1, 1)])
            await admin.topics.wait_until_ready([source])
            with pytest.raises(UnknownTopicId):
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({tp: 2}, group)
            assert await admin.groups.offsets({group: [tp]}) == {group: {tp: None}}
            # The producer has the new id by then.
            async with producer.transaction():
                await producer.send_offsets_to_transaction({tp: 3}, group)
            found = await admin.groups.offsets({group: [tp]}, require_stable=True)
            assert getattr(found[group][tp], "offset", None) == 3


async def test_a_transaction_that_takes_too_long() -> None:
    need_own_brokers()
    # Else coordinators look for late transactions every ten seconds.
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with KafkaCluster(config=config) as cluster:
        servers, topic = cluster.bootstrap_servers, "topic"
        await create_topic(servers, topic, 1, 1, {})
        await outstay(servers, topic)


async def outstay(servers: str, topic: str) -> None:
    async with new_producer(servers, "late", transaction_timeout_ms=300) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"late")
        # The transaction is over when readers are not held back by it any more.
        consumer = new_consumer(servers, "other")
        consumer.assign([TopicPartition(topic, 0)])
        async with consumer:
            while await consumer.end_offsets([TopicPartition(topic, 0)]) == {
                TopicPartition(topic, 0): 0
            }:
                await asyncio.sleep(0.1)
        with pytest.raises(TransactionAbortable, match="transaction_timeout_ms=300"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"next")
    assert [record.value for record in await read(servers, topic, 1)] == [b"next"]


async def test_no_coordinator_can_be_had() -> None:
    need_own_brokers()
    config = {"transaction.state.log.replication.factor": "3"}
    with KafkaCluster(config=config) as cluster:
        options = {"request_timeout_ms": 3000, "max_block_ms": 3000}
        producer = new_producer(cluster.bootstrap_servers, "one", **options)
        async with timeout(30):
            with pytest.raises(KafkaTimeoutError, match=r"transaction\.state\.log\.replication"):
                await producer.start()
