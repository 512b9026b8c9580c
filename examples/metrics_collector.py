"""Count how long batches wait and travel, with a collector."""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.metrics import ProducerMetricsCollector


class Durations(ProducerMetricsCollector):
    """Adds up how long batches wait and travel, by topic."""

    def __init__(self) -> None:
        self.waited: dict[str, float] = {}
        self.travelled: dict[str, float] = {}
        self.records: dict[str, int] = {}

    def on_batch_dispatched(self, *, topic: str, queue_time_seconds: float, **_: object) -> None:
        self.waited[topic] = self.waited.get(topic, 0.0) + queue_time_seconds

    def on_batch_completed(
        self, *, topic: str, send_to_completion_seconds: float, record_count: int, **_: object
    ) -> None:
        self.travelled[topic] = self.travelled.get(topic, 0.0) + send_to_completion_seconds
        self.records[topic] = self.records.get(topic, 0) + record_count


async def produce(bootstrap: str, topic: str, count: int) -> None:
    durations = Durations()
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, metrics_collector=durations, linger_ms=5
    ) as producer:
        for number in range(count):
            await producer.send(topic, b"Test message %d" % number)
    print(f"{durations.records[topic]} records to {topic}")
    print(f"batches waited {durations.waited[topic] * 1000:.1f} ms, all together")
    print(f"and were on their way for {durations.travelled[topic] * 1000:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--count", type=int, default=1000, help="records to send")
    given = parser.parse_args()
    try:
        asyncio.run(produce(given.bootstrap, given.topic, given.count))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
