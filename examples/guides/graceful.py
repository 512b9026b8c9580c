"""End without losing or repeating work when Kubernetes sends SIGTERM.

The batch at work is finished and committed, then the member leaves its group (a static member, with
`--instance`, stays in it: its partitions wait for the pod that comes back).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from itertools import chain

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import CommitFailedError, KafkaError

Record = ConsumerRecord[bytes | None, bytes | None]


async def handle(record: Record) -> None:
    print(f"{record.partition}:{record.offset}", flush=True)


async def serve(bootstrap: str, topic: str, instance: str | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="graceful",
        group_instance_id=instance,
        # A static member that restarts within this time causes no rebalance.
        session_timeout_ms=60_000 if instance else 10_000,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    ) as consumer:
        while not stopping.is_set():
            batch = await consumer.getmany(timeout_ms=500, max_records=100)
            for record in chain.from_iterable(batch.values()):
                await handle(record)
            if batch:
                try:
                    await consumer.commit()
                except CommitFailedError as error:
                    # The partitions belong to another member, which reads these records again.
                    print(f"not committed: {error}", flush=True)
    print("ended in order", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="my-topic")
    parser.add_argument("--instance", help="group.instance.id: the name of the pod")
    given = parser.parse_args()
    try:
        asyncio.run(serve(given.bootstrap, given.topic, given.instance))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
