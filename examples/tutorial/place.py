"""Place some orders: python place.py COUNT"""

import asyncio
import json
import os
import sys

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

SERVERS = os.environ.get("AIOKAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
CUSTOMERS = ["alice", "frank", "carol"]


async def place(count: int) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=SERVERS,
        key_serializer=str.encode,
        value_serializer=lambda order: json.dumps(order).encode(),
    )
    async with producer:
        for number in range(1, count + 1):
            customer = CUSTOMERS[number % 3]
            order = {"number": number, "cents": 250 * number}
            metadata = await producer.send_and_wait("orders", order, key=customer)
            print(f"{customer}: partition {metadata.partition}, offset {metadata.offset}")


if __name__ == "__main__":
    try:
        asyncio.run(place(int(sys.argv[1])))
    except KafkaError as error:
        sys.exit(str(error))
