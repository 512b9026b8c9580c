"""Consumers of a fake cluster, stopped at the end of the test; records to consume."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, TopicPartition
from aiokafka.errors import BrokerResponseError
from aiokafka.protocol.messages.fetch import FetchResponse
from aiokafka.protocol.messages.metadata import MetadataResponse
from aiokafka.testing import Edit, FakeCluster

Start = Callable[..., Awaitable[AIOKafkaConsumer]]

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """`await start(cluster, *topics, **options)`: a started consumer that reads from the
    beginning."""
    consumers: list[tuple[AIOKafkaConsumer, FakeCluster]] = []

    async def make(
        fake: FakeCluster,
        *topics: str,
        assign: Any = (),
        kind: type[AIOKafkaConsumer[Any, Any]] = AIOKafkaConsumer,
        **options: Any,
    ) -> Any:
        options.setdefault("auto_offset_reset", "earliest")
        options.setdefault("retry_backoff_ms", 10)
        options.setdefault("fetch_max_wait_ms", 100)
        consumer = kind(*topics, bootstrap_servers=fake.bootstrap_servers, **options)
        consumers.append((consumer, fake))
        if assign:
            consumer.assign(assign)
        await consumer.start()
        return consumer

    yield make
    for consumer, fake in consumers:
        # If the test has stopped all brokers, do not wait for the last commit.
        await consumer.stop(timeout=None if fake.state.live_nodes() else 0)


def client_of(consumer: AIOKafkaConsumer) -> AIOKafkaClient:
    """Return the client of a consumer, for example to refresh its metadata at once."""
    return consumer._client


def queued(consumer: AIOKafkaConsumer) -> list[int]:
    """Return the number of fetched, unread record sets of each partition."""
    return [state.cursor.queued for state in consumer._subscription.assignment.states()]


def fill(
    fake: FakeCluster, partition: int, count: int, *, topic: str = "t", batch: int = 1
) -> None:
    """Write `count` numbered records, in batches of `batch` records."""
    log = fake.log(topic, partition)
    start = log.end_offset
    numbers = range(start, start + count)
    for first in range(0, count, batch):
        log.extend([(None, b"%d" % n, ()) for n in numbers[first : first + batch]])


async def read(consumer: AIOKafkaConsumer, count: int) -> list[tuple[int, int]]:
    """Return (partition, offset) of the next `count` records."""
    records = [await consumer.getone() for _ in range(count)]
    assert all(int(record.value) == record.offset for record in records)
    return [(record.partition, record.offset) for record in records]


def partition_error(error: type[BrokerResponseError], number: int = 0) -> Edit:
    """Return an Edit that gives partition `number` this error in each response that contains the
    partition."""

    def change(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == number:
                    data.error_code = error.errno
                    data.records = None

    return Edit(change)


def name_epochs_of_before(response: MetadataResponse) -> None:
    """Give all partitions their previous leader epoch, as Kafka 2.1 to 2.3 do in metadata during a
    reassignment (KAFKA-9212)."""
    for topic in response.topics:
        for data in topic.partitions:
            data.leader_epoch = max(data.leader_epoch - 1, -1)
