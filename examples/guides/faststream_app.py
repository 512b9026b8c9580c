"""A FastStream application: `faststream run faststream_app:app`."""

from __future__ import annotations

import os

from faststream import FastStream
from faststream.kafka import KafkaBroker

broker = KafkaBroker(os.environ.get("BOOTSTRAP", "localhost:9092"))
app = FastStream(broker)


@broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
@broker.publisher("bills")
async def bill(order: dict[str, int]) -> dict[str, int]:
    return {"total": order["price"] * order["count"]}
