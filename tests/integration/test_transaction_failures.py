"""Transactions that fail on a real Kafka, in both versions of transactions that 4.3 knows."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import (
    IllegalOperation,
    InvalidTransactionTimeout,
    MessageSizeTooLargeError,
    ProducerFenced,
)
from tests.integration.support import read
from tests.kafka.fixtures import need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import Extras
from tests.kafka.topics import create_topic


@pytest.fixture(scope="module", params=["1", "2"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Bootstrap servers of a cluster with that version of transactions."""
    if request.param == "2":
        yield request.getfixturevalue("kafka").bootstrap_servers
        return
    need_own_brokers()
    options = ("--feature", f"transaction.version={request.param}")
    with KafkaCluster(extras=Extras(format_options=options)) as cluster:
        yield cluster.bootstrap_servers


async def new_topic(servers: str, partitions: int = 1, **config: str) -> str:
    name = f"failing-{uuid.uuid4().hex[:10]}"
    await create_topic(servers, name, partitions, 1, config)
    return name


def new_producer(servers: str, name: str, **options: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name, **options)


Call = Callable[[AIOKafkaProducer, str], Awaitable[Any]]

FIRST_CALLS: dict[str, Call] = {
    "send_and_wait": lambda producer, topic: producer.send_and_wait(topic, b"no", partition=0),
    "send elsewhere": lambda producer, topic: producer.send_and_wait(topic, b"no", partition=1),
    "offsets": lambda producer, topic: producer.send_offsets_to_transaction(
        {TopicPartition(topic, 0): 1}, f"group-{topic}"
    ),
    "commit": lambda producer, topic: producer.commit_transaction(),
    "abort": lambda producer, topic: producer.abort_transaction(),
}


@pytest.mark.parametrize("first", FIRST_CALLS)
async def test_a_fenced_producer_says_so(servers: str, first: str) -> None:
    topic = await new_topic(servers, 2)
    old = new_producer(servers, topic)
    await old.start()
    await old.begin_transaction()
    await old.send_and_wait(topic, b"before", partition=0)
    async with new_producer(servers, topic) as new, timeout(60):
        async with new.transaction():
            await new.send(topic, b"new", partition=0)
        with pytest.raises(ProducerFenced):
            await FIRST_CALLS[first](old, topic)
        again: list[Callable[[], Awaitable[Any]]] = [
            lambda: old.send(topic, b"no"),
            lambda: old.send_and_wait(topic, b"no"),
            old.begin_transaction,
            old.commit_transaction,
            old.abort_transaction,
        ]
        for call in again:
            with pytest.raises(ProducerFenced) as caught:
                await call()
            assert caught.value.is_fatal
        await old.stop()
        async with new.transaction():
            await new.send(topic, b"new", partition=0)
    assert [record.value for record in await read(servers, topic, 2)] == [b"new"] * 2


@pytest.mark.parametrize("when", ["before", "during"])
async def test_a_commit_raises_what_failed(servers: str, when: str) -> None:
    topic = await new_topic(servers, **{"max.message.bytes": "1000"})
    async with new_producer(servers, topic) as producer, timeout(60):
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"good")
        future = await producer.send(topic, bytes(5000))
        if when == "before":
            await asyncio.wait([future])
        for _ in range(2):
            with pytest.raises(MessageSizeTooLargeError):
                await producer.commit_transaction()
        with pytest.raises(IllegalOperation, match="abort_transaction"):
            await producer.send(topic, b"more")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"next")
    assert [record.value for record in await read(servers, topic, 1)] == [b"next"]


async def test_no_offsets_are_nothing_to_commit(servers: str) -> None:
    topic = await new_topic(servers)
    async with new_producer(servers, topic) as producer, timeout(60):
        async with producer.transaction():
            await producer.send_offsets_to_transaction({}, "group")
        async with producer.transaction():
            await producer.send_offsets_to_transaction({}, "group")
            await producer.send(topic, b"next")
    assert [record.value for record in await read(servers, topic, 1)] == [b"next"]


async def test_cancelled_offsets_are_not_of_the_next_transaction(servers: str) -> None:
    """Cancelled after n turns of the loop, whatever was sent by then."""
    topic = await new_topic(servers)
    place = TopicPartition(topic, 0)
    async with new_producer(servers, topic) as producer, timeout(60):
        for turns in range(12):
            await producer.begin_transaction()
            sending = asyncio.ensure_future(
                producer.send_offsets_to_transaction({place: 1000 + turns}, topic)
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            sending.cancel()
            await producer.abort_transaction()
            await asyncio.wait([sending])
            async with producer.transaction():
                await producer.send(topic, b"v")
    assert len(await read(servers, topic, 12)) == 12
    assert await committed(servers, topic) is None


async def committed(servers: str, topic: str) -> int | None:
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, group_id=topic)
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    async with consumer:
        return await consumer.committed(place)


async def test_two_commits_at_once(servers: str) -> None:
    topic = await new_topic(servers)
    async with new_producer(servers, topic) as producer, timeout(60):
        await producer.begin_transaction()
        await producer.send(topic, b"1")
        commits = [asyncio.ensure_future(producer.commit_transaction()) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(IllegalOperation, match="committing"):
            await producer.abort_transaction()
        await asyncio.gather(*commits)
        async with producer.transaction():
            await producer.send(topic, b"2")
    assert [record.value for record in await read(servers, topic, 2)] == [b"1", b"2"]


async def test_a_timeout_that_the_broker_refuses(servers: str) -> None:
    producer = new_producer(servers, "long", transaction_timeout_ms=2_000_000)
    with pytest.raises(InvalidTransactionTimeout, match="=2000000 ") as caught:
        await producer.start()
    assert "transaction.max.timeout.ms" in str(caught.value)
