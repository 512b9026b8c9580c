"""Wait for brokers that are unavailable for a while, as in a restart, so that queries go on.

A connected client does so by itself, but tasks create new clients all the time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiokafka._backoff import Backoff
from aiokafka.errors import KafkaConnectionError

__all__ = ["connected"]

log = logging.getLogger("aiokafka.spark")

T = TypeVar("T")


async def connected(make: Callable[[], Awaitable[T]], timeout: float) -> T:
    """Return the result of `make`, retried for `timeout` seconds while no broker is available.

    Raises the last KafkaConnectionError at the end; any other error at once.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    backoff = Backoff(0.1, 2.0)
    while True:
        try:
            return await make()
        except KafkaConnectionError as error:
            delay = backoff.next()
            if loop.time() + delay > deadline:
                raise
            if backoff.failures == 1:
                log.warning("waiting up to %.0f s for a broker: %s", timeout, error)
        await asyncio.sleep(delay)
