"""The requests about producer ids: what is asked of which broker, and what the answers mean."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka._backoff import Backoff
from aiokafka._compat import timeout_at
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, for_code
from aiokafka.protocol.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient

__all__ = ["init_producer_id"]

_NO_TIMEOUT = 0x7FFFFFFF


async def init_producer_id(client: AIOKafkaClient, deadline: float) -> tuple[int, int]:
    """A producer id and its first epoch, for a producer without transactions.

    Any broker can give them; what passes by itself is tried again with another one. Raises
    KafkaTimeoutError at `deadline` (loop time) with the last failure as its cause,
    UnsupportedVersionError before Kafka 0.11, other refusals as they are.
    """
    backoff = Backoff(client.config.retry_backoff, client.config.retry_backoff_max)
    failure: KafkaError | None = None
    try:
        async with timeout_at(deadline):
            while True:
                try:
                    return await _ask_for_producer_id(client)
                except KafkaError as error:
                    if not error.retriable:
                        raise
                    failure = error
                await asyncio.sleep(backoff.next())
    except asyncio.TimeoutError:
        raise KafkaTimeoutError(
            f"no producer id, which enable_idempotence needs, in time; last failure: {failure}"
        ) from failure


async def _ask_for_producer_id(client: AIOKafkaClient) -> tuple[int, int]:
    node_id = client.get_random_node()
    if node_id is None:
        raise KafkaConnectionError("no broker is known")
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT)
    response = await client.send(node_id, request)
    if response.error_code:
        raise for_code(response.error_code)(f"node {node_id} gave no producer id")
    return response.producer_id, response.producer_epoch
