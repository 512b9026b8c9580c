"""A record through the installed package: ``smoke.py [--compiled]``. Needs nothing but aiokafka."""

from __future__ import annotations

import asyncio
import sys

import aiokafka
from aiokafka.record import batch
from aiokafka.testing import FakeCluster


async def round_trip() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("smoke")
        servers = cluster.bootstrap_servers
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("smoke", b"value", key=b"key")
        consumer = aiokafka.AIOKafkaConsumer(
            "smoke", bootstrap_servers=servers, auto_offset_reset="earliest"
        )
        async with consumer:
            record = await asyncio.wait_for(consumer.getone(), 10)
        if (record.key, record.value) != (b"key", b"value"):
            sys.exit(f"read back {record}")


def main() -> None:
    compiled = not str(batch.__file__).endswith(".py")
    if "--compiled" in sys.argv[1:] and not compiled:
        sys.exit("the extensions are missing from this package")
    asyncio.run(round_trip())
    print(f"aiokafka {aiokafka.__version__}, {'compiled' if compiled else 'pure Python'}")


if __name__ == "__main__":
    main()
