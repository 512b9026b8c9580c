"""Take jobs from a queue: a share group, with a handler for each record."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaShareConsumer, RejectRecord, ShareRecord
from aiokafka.errors import KafkaError


async def consume(bootstrap: str, topic: str, group: str, concurrency: int, count: int) -> None:
    consumer = AIOKafkaShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group)
    done = asyncio.Event()
    results: list[str] = []

    async def handle(record: ShareRecord[Any, Any]) -> None:
        if not record.value:
            results.append("rejected")
            raise RejectRecord("a job needs a value")
        await asyncio.sleep(0.01)  # What takes time: a request, a query.
        results.append(f"{record.value.decode()} (delivery {record.delivery_count})")
        if len(results) >= count:
            done.set()

    async with consumer:
        processing = asyncio.ensure_future(consumer.process(handle, concurrency=concurrency))
        await asyncio.wait(
            [processing, asyncio.ensure_future(done.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        await consumer.stop()  # Acknowledges what is finished, and releases the rest.
        await processing
    for result in sorted(results):
        print(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--group", default="share-example")
    parser.add_argument("--concurrency", type=int, default=50, help="records in work at once")
    parser.add_argument("--count", type=int, default=1000, help="stop after so many records")
    given = parser.parse_args()
    try:
        asyncio.run(
            consume(given.bootstrap, given.topic, given.group, given.concurrency, given.count)
        )
    except KeyboardInterrupt:
        pass
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
