"""A member of a group in a process of its own, which a test may freeze: it reads, and says how it
is doing.

``python -m tests.integration.frozen_member SERVERS TOPIC PROTOCOL`` prints a JSON object a line:
``{"state": ..., "joined": ..., "heartbeat_age_ms": ...}`` ten times a second, ``{"values": [...]}``
for what it reads.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError


def say(**words: Any) -> None:
    print(json.dumps(words), flush=True)


async def report(consumer: AIOKafkaConsumer) -> None:
    while True:
        health = consumer.health()
        say(
            state=health.state,
            joined=health.joined,
            heartbeat_age_ms=health.heartbeat_age_ms,
            partitions=len(consumer.assignment()),
        )
        await asyncio.sleep(0.1)


async def main(servers: str, topic: str, protocol: str) -> None:
    options: dict[str, Any] = {"group_protocol": protocol}
    if protocol == "classic":
        options.update(session_timeout_ms=2000, heartbeat_interval_ms=300)
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    ) as consumer:
        reporter = asyncio.get_running_loop().create_task(report(consumer))
        while not reporter.done():
            batches = await consumer.getmany(timeout_ms=200)
            values = [int(r.value or b"") for records in batches.values() for r in records]
            if values:
                say(values=values)
                # Frozen in between it may be too late, and others read the records again.
                with suppress(CommitFailedError):
                    await consumer.commit()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
