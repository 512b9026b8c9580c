"""Serializers that return an awaitable: TypeError with the name of the option, on every path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka.interceptors import ProducerInterceptor
from aiokafka.testing import FakeCluster
from tests.support.producers import TOPIC, new_producer, transactional, values

# That no coroutine is left to be collected unawaited is what the suite's filter of warnings says.

SIDES = pytest.mark.parametrize("side", ["key", "value"])


async def serialize(data: Any) -> bytes:
    return bytes(data)


class Awaitable:
    def __await__(self) -> Any:
        yield


def options(side: str, serializer: Callable[[Any], Any] = serialize) -> dict[str, Any]:
    return {f"{side}_serializer": serializer}


def refused(side: str) -> Any:
    return pytest.raises(TypeError, match=f"^{side}_serializer returned an awaitable")


@SIDES
@pytest.mark.parametrize("interceptors", [(), (ProducerInterceptor(),)])
async def test_send(cluster: FakeCluster, side: str, interceptors: Any) -> None:
    async with new_producer(cluster, interceptors=interceptors, **options(side)) as producer:
        with refused(side):
            await producer.send(TOPIC, b"value", b"key", 0)
        with refused(side):
            await producer.send_and_wait(TOPIC, b"value", b"key", 0)
    assert values(cluster) == []


@SIDES
async def test_send_that_is_too_late(cluster: FakeCluster, side: str) -> None:
    """The serializers come first, so the coroutine is there, and nothing else looks at it."""
    producer = new_producer(cluster, **options(side))
    await producer.start()
    await producer.stop()
    with refused(side):
        await producer.send(TOPIC, b"value", b"key")


@SIDES
async def test_batches(cluster: FakeCluster, side: str) -> None:
    async with new_producer(cluster, **options(side)) as producer:
        batch = producer.create_batch()
        with refused(side):
            batch.append(timestamp=None, key=b"key", value=b"value")
        assert batch.record_count() == 0


@SIDES
async def test_transactions(cluster: FakeCluster, side: str) -> None:
    async with transactional(cluster, **options(side)) as producer:
        with refused(side):
            async with producer.transaction():
                await producer.send(TOPIC, b"value", b"key", 0)
    assert values(cluster) == []


@pytest.mark.parametrize("make", [lambda _: asyncio.Future(), lambda _: Awaitable()])
async def test_awaitables_besides_coroutines(
    cluster: FakeCluster, make: Callable[[Any], Any]
) -> None:
    async with new_producer(cluster, **options("value", make)) as producer:
        with refused("value"):
            await producer.send(TOPIC, b"value")


async def test_other_results_are_blamed_on_the_serializer(cluster: FakeCluster) -> None:
    async with new_producer(cluster, value_serializer=str) as producer:
        with pytest.raises(TypeError, match="value_serializer returned str"):
            await producer.send(TOPIC, b"value")
