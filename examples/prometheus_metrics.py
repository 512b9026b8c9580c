"""Show what Prometheus would read of a producer."""

from __future__ import annotations

import argparse
import asyncio
import sys

from prometheus_client import REGISTRY, generate_latest

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.metrics.prometheus import KafkaCollector


async def produce(bootstrap: str, topic: str, count: int) -> None:
    REGISTRY.register(KafkaCollector())
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, client_id="example") as producer:
        for number in range(count):
            await producer.send(topic, b"Test message %d" % number)
        await producer.flush()
        # A service calls start_http_server() once instead, and Prometheus scrapes it.
        for line in generate_latest(REGISTRY).decode().splitlines():
            if line.startswith("kafka_producer_topic_record_"):
                print(line)


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
