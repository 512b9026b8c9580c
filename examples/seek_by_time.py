"""Read the records of the last minutes, then stop at what was the end."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError


async def consume(bootstrap: str, topic: str, minutes: float) -> None:
    since = int((time.time() - minutes * 60) * 1000)
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap) as consumer:
        # Without a group, all partitions of the topic are assigned at once.
        partitions = sorted(consumer.assignment())
        ends = await consumer.end_offsets(partitions)
        starts = await consumer.offsets_for_times(dict.fromkeys(partitions, since))
        for tp in partitions:
            found = starts[tp]
            # None: there is no record that new.
            consumer.seek(tp, ends[tp] if found is None else found.offset)

        while any([await consumer.position(tp) < ends[tp] for tp in partitions]):
            for tp, records in (await consumer.getmany(timeout_ms=1000)).items():
                for record in records:
                    print(f"{tp.partition}:{record.offset} at {record.timestamp}: {record.value!r}")
    print("that was all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--minutes", type=float, default=5)
    given = parser.parse_args()
    try:
        asyncio.run(consume(given.bootstrap, given.topic, given.minutes))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
