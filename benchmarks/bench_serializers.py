"""What serializers that await cost: `python -m benchmarks.bench_serializers`.

One process sends records with confluent-kafka's `AsyncAvroSerializer`: by turns the producer calls
it, as its `value_serializer`, and the program calls it before `send`, with a context for each
record as in confluent-kafka's documentation. Then the process reads the records in both ways. The
brokers and the registry, of `aiokafka.testing`, are in another process. The turns are short, so
that a busy machine slows both alike. Ratios are taken within a turn; the median counts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.testing import FakeCluster, FakeSchemaRegistry
from tests.support.schemas import avro

TOPIC = "orders"
PLACE = TopicPartition(TOPIC, 0)
COUNT = 5000
AT_ONCE = 500
TARGET = 1.05

Pass = Callable[[], Awaitable[None]]


async def compare(name: str, by_hand: Pass, by_client: Pass, passes: int) -> None:
    """Print the CPU of both ways. They take turns."""
    ways = (by_hand, by_client)
    for way in ways:
        await way()  # to be warm
    figures: dict[Pass, list[float]] = {way: [] for way in ways}
    for number in range(passes):
        for way in ways if number % 2 else reversed(ways):
            gc.collect()
            begun = time.process_time()
            await way()
            figures[way].append((time.process_time() - begun) / COUNT * 1e6)
    pairs = zip(figures[by_client], figures[by_hand], strict=True)
    ratios = sorted(client / hand for client, hand in pairs)
    quarter = len(ratios) // 4
    verdict = "met" if median(ratios) <= TARGET else "missed"
    print(
        f"{name}: {median(figures[by_hand]):.2f} us a record by hand, "
        f"{median(figures[by_client]):.2f} us by the client; {median(ratios):.3f} (half of them "
        f"{ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}), target {TARGET:.2f}: {verdict}"
    )


async def measure(servers: str, url: str, passes: int) -> None:
    """Compare both ways to send, then both ways to read."""
    async with AsyncSchemaRegistryClient({"url": url}) as registry:
        serializer, deserializer, value = await avro(registry)
        async with (
            AIOKafkaProducer(bootstrap_servers=servers) as plain,
            AIOKafkaProducer(bootstrap_servers=servers, value_serializer=serializer) as producer,
        ):

            async def send_by_hand() -> None:
                for _ in range(COUNT // AT_ONCE):
                    futures = []
                    for _ in range(AT_ONCE):
                        context = SerializationContext(TOPIC, MessageField.VALUE)
                        data = await serializer(value, context)
                        futures.append(await plain.send(TOPIC, data, partition=0))
                    await asyncio.gather(*futures)

            async def send() -> None:
                for _ in range(COUNT // AT_ONCE):
                    futures = []
                    for _ in range(AT_ONCE):
                        futures.append(await producer.send(TOPIC, value, partition=0))
                    await asyncio.gather(*futures)

            await compare("send", send_by_hand, send, passes)
        async with (
            AIOKafkaConsumer(bootstrap_servers=servers) as raw,
            AIOKafkaConsumer(
                bootstrap_servers=servers, value_deserializer=deserializer
            ) as consumer,
        ):

            async def read_by_hand() -> None:
                async for records in batches(raw):
                    for record in records:
                        context = SerializationContext(
                            record.topic, MessageField.VALUE, list(record.headers)
                        )
                        assert await deserializer(record.value, context) is not None

            async def read() -> None:
                async for records in batches(consumer):
                    for record in records:
                        assert record.value is not None

            await compare("getmany", read_by_hand, read, passes)


async def batches(consumer: AIOKafkaConsumer[Any, Any]) -> AsyncIterator[list[Any]]:
    """Read the first COUNT records again."""
    consumer.assign([PLACE])
    consumer.seek(PLACE, 0)
    taken = 0
    while taken < COUNT:
        for records in (await consumer.getmany(timeout_ms=5000, max_records=AT_ONCE)).values():
            taken += len(records)
            yield records
    # Its fetch of what comes next must not run in the passes of others.
    consumer.unsubscribe()


async def serve() -> None:
    """Be the brokers and the registry until the input ends."""
    async with FakeCluster() as cluster, FakeSchemaRegistry() as registry:
        await cluster.create_topic(TOPIC)
        print(cluster.bootstrap_servers, registry.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def services() -> Iterator[list[str]]:
    """Start the brokers and the registry in another process, and give their addresses."""
    command = [sys.executable, "-m", "benchmarks.bench_serializers", "--serve"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process.stdout.readline().split()
        finally:
            process.stdin.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=60)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    with services() as (servers, url):
        asyncio.run(measure(servers, url, options.passes))


if __name__ == "__main__":
    main()
