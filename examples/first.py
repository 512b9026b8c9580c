"""Send a record and read it back, on a small Kafka inside this program."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.testing import FakeCluster


async def main() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("greetings")
        servers = cluster.bootstrap_servers  # or "localhost:9092": your own Kafka

        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("greetings", b"Hello", key=b"world")

        async with AIOKafkaConsumer(
            "greetings", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            record = await consumer.getone()
            print(record.offset, record.key, record.value)


asyncio.run(main())
