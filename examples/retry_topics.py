"""Try records that fail again after a while, and put those that never work aside.

The retry topics `<topic>-retry-1` and `<topic>-retry-2` and `<topic>-dead-letter` have to exist.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.parallel import ParallelConsumer, RetryInfo, RetryTopics

SUFFIXES = ["", "-retry-1", "-retry-2", "-dead-letter"]


async def handle(record: ConsumerRecord[Any, Any]) -> None:
    print(f"{record.topic}: {record.value.decode()} / 7 = {int(record.value) / 7:.2f}")


async def process(bootstrap: str, topic: str, delays_ms: list[int]) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="retry-example",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        retry = RetryTopics(producer, delays_ms)
        async with ParallelConsumer(consumer, retry=retry) as parallel:
            await parallel.run(handle)


async def watch(bootstrap: str, topic: str) -> None:
    """Wait for the first dead letter, and say what it died of."""
    consumer = AIOKafkaConsumer(
        f"{topic}-dead-letter", bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    )
    async with consumer:
        info = RetryInfo.of(await consumer.getone())
    if info is not None:
        print(f"dead after {info.attempts} attempts: {info.exception}: {info.message}")


async def check_topics(bootstrap: str, names: list[str]) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        missing = sorted(set(names) - set(await admin.list_topics()))
    if missing:
        raise SystemExit(f"create these topics first: {', '.join(missing)}")


async def run(bootstrap: str, topic: str, delays_ms: list[int]) -> None:
    """Process until there is a dead letter, or until one of the two fails."""
    await check_topics(bootstrap, [f"{topic}{suffix}" for suffix in SUFFIXES])
    tasks = [
        asyncio.create_task(process(bootstrap, topic, delays_ms)),
        asyncio.create_task(watch(bootstrap, topic)),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--delays-ms", type=int, nargs=2, default=[1000, 10_000])
    given = parser.parse_args()
    # It tells of each dead letter, which `watch()` prints.
    logging.getLogger("aiokafka.parallel").setLevel(logging.CRITICAL)
    try:
        asyncio.run(run(given.bootstrap, given.topic, given.delays_ms))
    except KeyboardInterrupt:
        pass
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
