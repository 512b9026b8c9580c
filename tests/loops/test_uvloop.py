"""Producers, consumers, groups, transactions and TLS on uvloop, with a fake cluster."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaConnectionError
from aiokafka.helpers import create_ssl_context
from aiokafka.parallel import ParallelConsumer
from aiokafka.protocol.messages import ProduceRequest
from aiokafka.structs import ConsumerRecord
from aiokafka.testing import Cut, FakeCluster, Security
from tests.net.support import Certificates
from tests.support.consumer_protocol import CONFIG
from tests.support.producers import QUICK, TOPIC, committed, new_producer, values

uvloop = pytest.importorskip("uvloop")


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=3, config=CONFIG) as cluster:
        await cluster.create_topic(TOPIC, partitions=4)
        yield cluster


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def new_consumer(cluster: FakeCluster, **options: Any) -> AIOKafkaConsumer:
    own = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    return AIOKafkaConsumer(TOPIC, **{**own, **QUICK, **options})


async def fill(cluster: FakeCluster, count: int) -> None:
    async with new_producer(cluster) as producer:
        sent = [
            await producer.send(TOPIC, b"%d" % number, partition=number % 4)
            for number in range(count)
        ]
        await asyncio.gather(*sent)


async def read_by_hundreds(consumer: AIOKafkaConsumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        for records in (await consumer.getmany(timeout_ms=10_000, max_records=100)).values():
            found += [int(record.value) for record in records]
    return sorted(found)


async def test_the_loop_is_uvloops() -> None:
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)


@pytest.mark.parametrize("compression_type", [None, "gzip", "lz4", "snappy", "zstd"])
async def test_records_of_every_codec_come_back(
    cluster: FakeCluster, compression_type: str | None
) -> None:
    async with new_producer(cluster, compression_type=compression_type) as producer:
        sent = [
            await producer.send(TOPIC, b"%d" % number, partition=number % 4)
            for number in range(2000)
        ]
        assert len({(m.partition, m.offset) for m in await asyncio.gather(*sent)}) == 2000
    async with new_consumer(cluster) as consumer:
        assert await read_by_hundreds(consumer, 2000) == list(range(2000))


async def test_many_tasks_wait_for_their_record(cluster: FakeCluster) -> None:
    async def work(producer: AIOKafkaProducer, number: int) -> None:
        for _ in range(5):
            await producer.send_and_wait(TOPIC, b"%d" % number, partition=number % 4)

    async with new_producer(cluster) as producer:
        await asyncio.gather(*(work(producer, number) for number in range(100)))
    for partition in range(4):
        wanted = sorted(b"%d" % number for number in range(partition, 100, 4) for _ in range(5))
        assert sorted(values(cluster, partition)) == wanted


async def test_a_record_that_fills_many_packets_passes(cluster: FakeCluster) -> None:
    large = bytes(range(256)) * 32 * 1024  # 8 MiB: the socket takes it in many pieces
    limit = 16 * 1024 * 1024
    await cluster.create_topic("large", config={"max.message.bytes": limit})
    async with new_producer(cluster, max_request_size=limit) as producer:
        await producer.send_and_wait("large", large)
    async with new_consumer(cluster, max_partition_fetch_bytes=limit) as consumer:
        consumer.subscribe(["large"])
        assert (await asyncio.wait_for(consumer.getone(), 30)).value == large


async def test_a_lost_connection_is_made_again(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"before", partition=0)
        cluster.intercept(ProduceRequest, Cut(), times=1)
        await producer.send_and_wait(TOPIC, b"behind", partition=0)
    assert values(cluster) == [b"before", b"behind"]


async def test_nobody_listens() -> None:
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(KafkaConnectionError, match=address):
            async with AIOKafkaProducer(bootstrap_servers=address, request_timeout_ms=1000):
                pass


@pytest.mark.parametrize(
    "options", [{"heartbeat_interval_ms": 20}, {"group_protocol": "consumer"}], ids=str
)
async def test_members_of_a_group_share_the_partitions(
    cluster: FakeCluster, options: dict[str, Any]
) -> None:
    options = {"group_id": "group", **options}
    async with new_consumer(cluster, **options) as one, new_consumer(cluster, **options) as two:
        while not (len(one.assignment()) == len(two.assignment()) == 2):
            await asyncio.gather(one.getmany(timeout_ms=10), two.getmany(timeout_ms=10))
        assert not one.assignment() & two.assignment()
        await fill(cluster, 400)
        found = await asyncio.gather(read_by_hundreds(one, 200), read_by_hundreds(two, 200))
    assert sorted(found[0] + found[1]) == list(range(400))


async def test_committed_positions_are_where_the_next_one_begins(cluster: FakeCluster) -> None:
    await fill(cluster, 40)
    options = {"group_id": "group", "enable_auto_commit": False}
    async with new_consumer(cluster, **options) as consumer:
        await read_by_hundreds(consumer, 40)
        await consumer.commit()
    await fill(cluster, 8)
    async with new_consumer(cluster, **options) as consumer:
        assert await read_by_hundreds(consumer, 8) == list(range(8))


async def test_records_are_handled_side_by_side(cluster: FakeCluster) -> None:
    await fill(cluster, 200)
    handled: list[int] = []

    async def handle(record: ConsumerRecord[bytes, bytes]) -> None:
        await asyncio.sleep(0)
        handled.append(int(record.value))
        if len(handled) == 200:
            parallel.request_stop()

    parallel = ParallelConsumer(new_consumer(cluster, group_id="g", enable_auto_commit=False))
    async with parallel:
        await parallel.run(handle)
    assert sorted(handled) == list(range(200))


async def test_transactions_end_as_they_were_told_to(cluster: FakeCluster) -> None:
    async with new_producer(cluster, transactional_id="id") as producer:
        async with producer.transaction():
            await producer.send(TOPIC, b"kept", partition=0)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send(TOPIC, b"dropped", partition=0)
                raise ZeroDivisionError
    assert committed(cluster) == [b"kept"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_tls_and_a_password(certificates: Certificates, mechanism: str) -> None:
    login = {
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(cafile=certificates.cafile),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }
    server = certificates.server_context("127.0.0.1")
    security = Security(users={"alice": "secret"})
    async with FakeCluster(ssl_context=server, security=security) as cluster:
        await cluster.create_topic(TOPIC)
        async with new_producer(cluster, **login) as producer:
            sent = [await producer.send(TOPIC, b"v" * 1000) for _ in range(2000)]
            await asyncio.gather(*sent)
        async with new_consumer(cluster, **login) as consumer:
            consumer_at = TopicPartition(TOPIC, 0)
            while await consumer.position(consumer_at) < 2000:
                await consumer.getmany(timeout_ms=10_000)


async def test_a_certificate_of_an_unknown_authority_is_named(certificates: Certificates) -> None:
    server = certificates.server_context("127.0.0.1")
    async with FakeCluster(ssl_context=server) as cluster:
        with pytest.raises(KafkaConnectionError, match="certificate"):
            async with new_producer(
                cluster, security_protocol="SSL", ssl_context=create_ssl_context()
            ):
                pass
