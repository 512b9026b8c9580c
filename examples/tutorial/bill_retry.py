"""Bill orders, several at a time; try those that fail again, and put the rest aside."""

import asyncio
import json
import logging
import os
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.parallel import ParallelConsumer, RetryTopics

SERVERS = os.environ.get("AIOKAFKA_BOOTSTRAP_SERVERS", "localhost:9092")


async def handle(record) -> None:
    print(f"{record.topic}: {record.value.decode()}")
    order = json.loads(record.value)
    await asyncio.sleep(0.01)  # a request to the bank
    print(f"paid {order['cents'] / 100:.2f}")


async def bill() -> None:
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=SERVERS,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with AIOKafkaProducer(bootstrap_servers=SERVERS) as producer:
        retry = RetryTopics(producer, delays_ms=[1000])
        async with ParallelConsumer(consumer, concurrency=50, retry=retry) as parallel:
            await parallel.run(handle)


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s %(message)s")
    try:
        asyncio.run(bill())
    except KeyboardInterrupt:
        pass
    except KafkaError as error:
        sys.exit(str(error))
