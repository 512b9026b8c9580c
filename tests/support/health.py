"""Wait for states of a consumer; configuration of a cluster whose sessions expire soon."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka._compat import timeout
from aiokafka.health import ConsumerState

SHORT_SESSIONS = {
    "group.min.session.timeout.ms": "100",
    "group.consumer.heartbeat.interval.ms": "20",
    "group.consumer.session.timeout.ms": "200",
}
QUICK: dict[str, Any] = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50}


async def until_state(consumer: AIOKafkaConsumer, *states: ConsumerState) -> list[ConsumerState]:
    """Wait until the consumer has had these states, in this order; return all observed states."""
    seen: list[ConsumerState] = []
    wanted = list(states)
    async with timeout(10):
        while wanted:
            state = consumer.health().state
            if not seen or seen[-1] is not state:
                seen.append(state)
            if state is wanted[0]:
                wanted.pop(0)
            else:
                await asyncio.sleep(0.005)
    return seen
