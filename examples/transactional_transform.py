"""Read, process, write, exactly once: step by step, as with aiokafka.

What the session does by itself is done by hand here: when a transaction fails, its records have to
be read again, from the positions that were committed last.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

GROUP = "shouters"


async def process_some(consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, target: str) -> int:
    """One transaction; returns how many records it holds."""
    batches = await consumer.getmany(timeout_ms=1000, max_records=100)
    if not batches:
        return 0
    async with producer.transaction():
        for records in batches.values():
            for record in records:
                await producer.send(target, record.value.upper(), key=record.key)
        # The offset to go on with: that of the next record, not of the last one.
        offsets = {tp: records[-1].offset + 1 for tp, records in batches.items()}
        await producer.send_offsets_to_transaction(offsets, GROUP)
    return sum(map(len, batches.values()))


async def transform(bootstrap: str, source: str, target: str, name: str, count: int) -> None:
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    async with consumer, producer:
        while count > 0:
            try:
                count -= await process_some(consumer, producer, target)
            except KafkaError as error:
                if not error.requires_abort:
                    raise
                # transaction() has aborted already.
                print(f"again: {error}")
                committed = await consumer.seek_to_committed()
                new = [tp for tp, offset in committed.items() if offset is None]
                if new:
                    await consumer.seek_to_beginning(*new)
    print("done")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--source", default="my-topic")
    parser.add_argument("--target", default="my-shouts")
    parser.add_argument("--name", default="shouter-1", help="one for each that runs at a time")
    parser.add_argument("--count", type=int, default=10, help="records to process")
    given = parser.parse_args()
    try:
        asyncio.run(transform(given.bootstrap, given.source, given.target, given.name, given.count))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
