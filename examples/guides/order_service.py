"""The Kafka part of a web service: it writes orders, and follows what becomes of them.

A framework starts and stops it with itself (`fastapi_app.py` does); by itself this program
places a few orders and prints what it has seen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from contextlib import AsyncExitStack
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError


def to_json(value: Any) -> bytes:
    return json.dumps(value).encode()


class OrderService:
    """One producer and one consumer for the whole process, and a task that reads."""

    def __init__(self, bootstrap: str, group: str = "order-service") -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._stack = AsyncExitStack()
        self.totals: dict[str, int] = {}
        self.changed = asyncio.Condition()

    async def __aenter__(self) -> OrderService:
        async with AsyncExitStack() as stack:
            self._producer = await stack.enter_async_context(
                AIOKafkaProducer(
                    bootstrap_servers=self._bootstrap,
                    value_serializer=to_json,
                    # The caller of an HTTP request does not wait for two minutes.
                    max_block_ms=2000,
                    delivery_timeout_ms=5000,
                    request_timeout_ms=2000,
                )
            )
            self._consumer = await stack.enter_async_context(
                AIOKafkaConsumer(
                    "orders",
                    bootstrap_servers=self._bootstrap,
                    group_id=self._group,
                    auto_offset_reset="earliest",
                    value_deserializer=json.loads,
                )
            )
            self._reading = asyncio.create_task(self._read())
            stack.push_async_callback(self._end_reading)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._stack.aclose()

    async def place(self, customer: str, amount: int) -> dict[str, int]:
        """Write an order; return where it is. Raises KafkaError within seven seconds."""
        order = {"customer": customer, "amount": amount}
        written = await self._producer.send_and_wait("orders", order, key=customer.encode())
        return {"partition": written.partition, "offset": written.offset}

    def is_well(self) -> bool:
        """Say whether the task that reads is alive; for the readiness probe."""
        return not self._reading.done()

    async def _read(self) -> None:
        try:
            async for record in self._consumer:
                order = record.value
                customer = order["customer"]
                async with self.changed:
                    self.totals[customer] = self.totals.get(customer, 0) + order["amount"]
                    self.changed.notify_all()
        except Exception:
            # Nothing waits for this task until the service ends.
            logging.exception("orders are not read any more")
            raise

    async def _end_reading(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])


async def run(bootstrap: str) -> None:
    async with OrderService(bootstrap) as service:
        try:
            for number in range(3):
                print(await service.place("ada", 10 + number))
        except KafkaError as error:
            raise SystemExit(f"the order was not placed: {error}") from None
        async with service.changed:
            await service.changed.wait_for(lambda: service.totals.get("ada") == 33)
        print(f"totals: {service.totals}, well: {service.is_well()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092", help="host:port of a broker")
    given = parser.parse_args()
    try:
        asyncio.run(run(given.bootstrap))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
