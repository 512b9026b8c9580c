"""Topics for tests, made through the admin client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code


async def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Return when every partition has a leader; raises what the broker answers."""
    topic = NewTopic(name, partitions, replication_factor, topic_configs=dict(config or {}))
    async with AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        for _topic, code, message in (await admin.create_topics([topic])).topic_errors:
            if code:
                raise for_code(code)(message)
        while not await _is_led(admin, name, partitions):
            await asyncio.sleep(0.05)


async def _is_led(admin: AIOKafkaAdminClient, name: str, partitions: int) -> bool:
    (topic,) = await admin.describe_topics([name])
    led = [partition for partition in topic["partitions"] if partition["leader"] >= 0]
    return len(led) == partitions
