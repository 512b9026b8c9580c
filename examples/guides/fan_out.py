"""Give every record to every listener of this process, as a server of web sockets does.

One consumer without a group reads for all of them. A listener that is too slow is told to leave,
so that it costs neither memory nor the others' time.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

Queue = asyncio.Queue[bytes | None]


class TooSlowError(Exception):
    """The listener was more than `limit` records behind."""


class FanOut:
    """Reads a topic once, for any number of listeners."""

    def __init__(self, consumer: AIOKafkaConsumer, limit: int = 1000) -> None:
        self._consumer = consumer
        self._limit = limit
        self._queues: set[Queue] = set()

    async def run(self) -> None:
        """Read; never ends by itself."""
        async for record in self._consumer:
            for queue in [*self._queues]:
                if queue.full():
                    self._queues.discard(queue)
                else:
                    queue.put_nowait(record.value)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[bytes | None]]:
        """Get the records from now on. The iterator raises TooSlowError."""
        queue: Queue = asyncio.Queue(self._limit)
        self._queues.add(queue)
        try:
            yield self._values(queue)
        finally:
            self._queues.discard(queue)

    async def _values(self, queue: Queue) -> AsyncIterator[bytes | None]:
        while queue in self._queues or not queue.empty():
            yield await queue.get()
        raise TooSlowError


async def listen(fan: FanOut, name: str, count: int) -> str:
    async with fan.listen() as values:
        seen = [await anext(values) for _ in range(count)]
    return f"{name}: {seen}"


async def run(bootstrap: str, topic: str) -> None:
    # No group: every process reads all partitions, from now on.
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="latest")
    async with consumer, AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        fan = FanOut(consumer)
        reading = asyncio.create_task(fan.run())
        try:
            listeners = [asyncio.create_task(listen(fan, f"listener {n}", 2)) for n in (1, 2)]
            await asyncio.sleep(0)  # both have begun
            for value in (b"one", b"two"):
                await producer.send_and_wait(topic, value)
            print("\n".join(await asyncio.gather(*listeners)))
        finally:
            reading.cancel()
            await asyncio.wait([reading])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="prices")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap, given.topic))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
