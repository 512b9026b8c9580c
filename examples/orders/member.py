"""A member of the group `billing`: writes an invoice for each order, exactly once.

The demo runs each member as a process of its own, so that it can be killed.

    python examples/orders/member.py localhost:9092 billing-1
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import threading
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TransactionalSession
from aiokafka.errors import KafkaError

WORK = 0.004  # seconds that an invoice takes
# A transaction must end within its timeout, also on a machine where each step takes ten times as
# long: so few records in each.
RECORDS = 25


def invoice(record: ConsumerRecord[Any, Any], name: str) -> bytes:
    """Return the invoice for an order: where the order stands, and which member has billed it."""
    order = json.loads(record.value)
    place = {"partition": record.partition, "offset": record.offset}
    return json.dumps({**place, "order": order["order"], "by": name}).encode()


async def bill(servers: str, name: str) -> None:
    """Read orders and write invoices; the invoices and the positions are committed together."""
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        client_id=name,
        group_id="billing",
        group_protocol="consumer",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id=name, transaction_timeout_ms=5000
    )
    clock = asyncio.get_running_loop().time
    async with TransactionalSession(
        consumer, producer, max_records=RECORDS, retries=1_000_000
    ) as session:
        async for transaction in session:
            async with transaction as records:
                done = clock()
                for record in records:
                    # If the machine is busy, a sleep takes longer, and the next ones are left out.
                    done += WORK
                    await asyncio.sleep(max(done - clock(), 0))
                    await transaction.send(
                        "invoices",
                        key=record.key,
                        value=invoice(record, name),
                        partition=record.partition,
                    )


async def run(servers: str, name: str) -> None:
    """Bill for ever; begin again when no broker can be reached."""
    while True:
        with contextlib.suppress(KafkaError):
            await bill(servers, name)
        await asyncio.sleep(0.5)


def end_with_the_parent() -> None:
    """End when stdin is closed, which the demo's end does, however it ends."""
    while os.read(0, 1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    # Brokers that are stopped on purpose are on the page.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(*sys.argv[1:]))
