"""Topics for tests, made with an admin client that is not under test."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, NewTopic


async def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Return when the topic is there; raises what the broker answers."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
    future = admin.create_topics([wanted], operation_timeout=20, request_timeout=20)[name]
    await asyncio.wrap_future(future)
