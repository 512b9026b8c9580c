"""What tests on real brokers share: reading to the end, groups with records."""

from __future__ import annotations

import asyncio
import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka.structs import TopicPartition
from tests.kafka.fixtures import Kafka, MakeTopic
from tests.kafka.jars import fetch_broker_jars, fetch_tools_jar
from tests.kafka.versions import DEFAULT_VERSION


async def read(
    servers: str, topic: str, count: int, *, partitions: int = 1, isolation: str = "read_committed"
) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    """The first `count` records that are seen, and whatever comes in the next moments."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
    )
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    found: list[ConsumerRecord[bytes | None, bytes | None]] = []
    async with consumer:
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found.extend(records)
        for records in (await consumer.getmany(timeout_ms=200)).values():
            found.extend(records)
    return found


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


START = 1_700_000_000_000


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


async def filled(kafka: Kafka, make_topic: MakeTopic, counts: list[int]) -> list[TopicPartition]:
    """Return the partitions of a new topic, with so many records each, a second apart."""
    topic = await make_topic(partitions=len(counts))
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for partition, count in enumerate(counts):
            for number in range(count):
                at = START + number * 1000
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


async def run_tool(tool: str, *arguments: str) -> str:
    """Run one of Kafka's own tools, by the name of its class, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        "java",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xshare:auto",
        "-cp",
        f"{fetch_tools_jar(DEFAULT_VERSION)}:{fetch_broker_jars(DEFAULT_VERSION) / '*'}",
        tool,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 100)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode()
