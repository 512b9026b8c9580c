"""Let blocking code process records: the ORM of Django, a library that knows no asyncio.

Each record is processed in a thread, at most `--threads` of them at once; records of a key stay in
order, and no offset is committed before the work is done.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import KafkaError
from aiokafka.parallel import ParallelConsumer


def charge(customer: bytes, amount: bytes) -> None:
    """Do the work, as it is written without asyncio."""
    time.sleep(0.01)  # a query that blocks
    print(f"charged {customer.decode()} {amount.decode()}", flush=True)


async def work(bootstrap: str, topic: str, threads: int) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="workers",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(threads) as pool:

        async def handle(record: ConsumerRecord[Any, Any]) -> None:
            await loop.run_in_executor(pool, charge, record.key, record.value)

        async with ParallelConsumer(consumer, concurrency=threads) as parallel:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, parallel.request_stop)
            await parallel.run(handle)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--topic", default="charges")
    parser.add_argument("--threads", type=int, default=8)
    given = parser.parse_args()
    try:
        asyncio.run(work(given.bootstrap, given.topic, given.threads))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
