"""The service on a Kafka inside the test."""

import asyncio
import contextlib
import json

import pytest
import pytest_asyncio
from service import serve

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

pytestmark = pytest.mark.asyncio


async def place(cluster, orders: list[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number, value in enumerate(orders):
            await producer.send("orders", value, key=b"%d" % number)


@pytest_asyncio.fixture
async def cluster(kafka_cluster):
    for topic in ("orders", "invoices", "orders-dead-letter"):
        await kafka_cluster.create_topic(topic, partitions=3)
    return kafka_cluster


@contextlib.asynccontextmanager
async def running(servers: str, name: str):
    """Let the service run beside the test."""
    task = asyncio.create_task(serve(servers, name))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def read(servers: str, topic: str, count: int) -> list[bytes]:
    """Return the first `count` values that were committed."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with consumer:
        return [(await consumer.getone()).value for _ in range(count)]


def order(number: int) -> bytes:
    return json.dumps({"number": number, "cents": 100 * number}).encode()


async def test_an_order_has_an_invoice(cluster) -> None:
    servers = cluster.bootstrap_servers
    await place(cluster, [order(7), b"not an order"])
    async with running(servers, "one"):
        [invoice] = await read(servers, "invoices", 1)
        assert json.loads(invoice) == {"order": 7, "total": 7.0}
        assert await read(servers, "orders-dead-letter", 1) == [b"not an order"]


@pytest.mark.kafka_cluster(brokers=3)
async def test_no_order_is_lost_or_billed_twice(cluster) -> None:
    servers = cluster.bootstrap_servers
    for day in range(3):
        await place(cluster, [order(100 * day + number) for number in range(100)])
        async with running(servers, f"member-{day}"):
            cluster.drop_connections()
            await read(servers, "invoices", 100 * day + 1)
        # It ends as soon as the first invoice of the day is there.
    async with running(servers, "last"):
        invoices = await read(servers, "invoices", 300)
    assert sorted(json.loads(value)["order"] for value in invoices) == list(range(300))
