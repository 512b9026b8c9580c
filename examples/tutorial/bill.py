"""Bill orders, as a member of the group "billing"."""

import asyncio
import json
import os
import sys

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError

SERVERS = os.environ.get("AIOKAFKA_BOOTSTRAP_SERVERS", "localhost:9092")


class Tell(ConsumerRebalanceListener):
    async def on_partitions_revoked(self, revoked):
        pass

    async def on_partitions_assigned(self, assigned):
        print("I read the partitions", *sorted(tp.partition for tp in assigned))


async def bill() -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=SERVERS,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=500,  # how soon it hears of other members
    )
    consumer.subscribe(["orders"], listener=Tell())
    async with consumer:
        async for record in consumer:
            order = json.loads(record.value)
            print(f"{record.key.decode()} pays {order['cents'] / 100:.2f}")
            await consumer.commit()


if __name__ == "__main__":
    try:
        asyncio.run(bill())
    except KeyboardInterrupt:
        pass
    except KafkaError as error:
        sys.exit(str(error))
