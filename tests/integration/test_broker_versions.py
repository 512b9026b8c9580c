"""Produce and consume on brokers of every age, with each codec that the broker knows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from tests.kafka.fixtures import is_long_run, need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.versions import ALL_RUNS, GENERATIONS

COUNT = 1_000
FIRST_TIMESTAMP = 1_700_000_000_000

pytestmark = [pytest.mark.long]


@pytest.fixture(
    scope="module",
    params=ALL_RUNS if is_long_run() else GENERATIONS,
    ids=lambda run: f"{run[0]}-{run[1]}",
)
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One broker of each version in turn."""
    need_own_brokers()
    version, mode = request.param
    with KafkaCluster(version, mode=mode) as cluster:
        yield cluster


def codecs_of(broker: KafkaCluster) -> list[str | None]:
    codecs: list[str | None] = [None, "gzip", "snappy", "lz4"]
    return [*codecs, "zstd"] if broker.version.key >= (2, 1) else codecs


async def test_a_round_with_each_codec(broker: KafkaCluster) -> None:
    for codec in codecs_of(broker):
        topic = f"round-{codec}"
        await produce(broker, topic, codec)
        records = await consume(broker, topic)
        assert [record.offset for record in records] == list(range(COUNT)), codec
        for number, record in enumerate(records):
            check(broker, record, number)


async def produce(broker: KafkaCluster, topic: str, codec: str | None) -> None:
    with_headers = broker.version.key >= (0, 11)
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, compression_type=codec, linger_ms=5
    )
    async with producer:
        # The topic is created by being asked for: the oldest brokers have no other way.
        await producer.send_and_wait(topic, b"", partition=0, **record_of(0, with_headers))
        futures = [
            await producer.send(
                topic, b"v" * number, partition=0, **record_of(number, with_headers)
            )
            for number in range(1, COUNT)
        ]
        for future in futures:
            await future


def record_of(number: int, with_headers: bool) -> dict[str, object]:
    record: dict[str, object] = {
        "key": None if number % 3 == 0 else b"key-%d" % number,
        "timestamp_ms": FIRST_TIMESTAMP + number,
    }
    if with_headers:
        record["headers"] = [("number", b"%d" % number)]
    return record


async def consume(broker: KafkaCluster, topic: str) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    async with consumer:
        while len(records) < COUNT:
            got = await asyncio.wait_for(consumer.getmany(timeout_ms=5000), 20)
            records += got.get(partition, [])
        assert await consumer.end_offsets([partition]) == {partition: COUNT}
    return records


def check(broker: KafkaCluster, record: ConsumerRecord, number: int) -> None:
    wanted = record_of(number, with_headers=True)
    assert record.key == wanted["key"]
    assert record.value == b"v" * number
    if broker.version.key >= (0, 10):
        assert record.timestamp == wanted["timestamp_ms"]
    if broker.version.key >= (0, 11):
        assert list(record.headers) == wanted["headers"]
