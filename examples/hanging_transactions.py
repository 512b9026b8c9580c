"""Look for transactions that hang, and abort them."""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError


async def run(bootstrap: str, minutes: float) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        for found in await admin.transactions.find_hanging(older_than_ms=minutes * 60_000):
            at, producer = found.partition, found.producer
            print(f"{at.topic}-{at.partition}: producer {producer.producer_id} hangs")
            await admin.transactions.abort(
                at, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
            )
            print(f"{at.topic}-{at.partition}: aborted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    parser.add_argument("--minutes", type=float, default=20, help="since the last write")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap, given.minutes))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
