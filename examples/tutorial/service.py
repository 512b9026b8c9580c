"""Write an invoice for each order, exactly once: python service.py NAME"""

import asyncio
import json
import os
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TransactionalSession
from aiokafka.errors import KafkaError

SERVERS = os.environ.get("AIOKAFKA_BOOTSTRAP_SERVERS", "localhost:9092")


def invoice(order: bytes) -> bytes:
    """Return the invoice for an order. Raises ValueError for what is no order."""
    found = json.loads(order)
    try:
        result = {"order": found["number"], "total": found["cents"] / 100}
        return json.dumps(result).encode()
    except (KeyError, TypeError) as error:
        raise ValueError(f"no order: {error}") from error


async def serve(servers: str, name: str) -> None:
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="invoicing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name)
    async with TransactionalSession(consumer, producer) as session:
        async for transaction in session:
            async with transaction as records:
                for record in records:
                    try:
                        topic, value = "invoices", invoice(record.value)
                    except ValueError as error:
                        print(f"{name}: offset {record.offset}: {error}")
                        topic, value = "orders-dead-letter", record.value
                    await transaction.send(topic, value, key=record.key)
            if transaction.is_committed:
                print(f"{name}: {len(records)} orders")


if __name__ == "__main__":
    try:
        asyncio.run(serve(SERVERS, sys.argv[1]))
    except KeyboardInterrupt:
        pass
    except KafkaError as error:
        sys.exit(str(error))
