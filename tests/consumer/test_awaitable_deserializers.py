"""Deserializers that return an awaitable: TypeError with the name of the option, on every path."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka.testing import FakeCluster
from tests.parallel.support import make_parallel
from tests.support.consumers import Start

# That no coroutine is left to be collected unawaited is what the suite's filter of warnings says.

SIDES = pytest.mark.parametrize("side", ["key", "value"])


async def deserialize(data: bytes) -> str:
    return data.decode()


def refused(side: str) -> Any:
    return pytest.raises(TypeError, match=f"^{side}_deserializer returned an awaitable")


@pytest.fixture
async def topic(cluster: FakeCluster) -> str:
    await cluster.create_topic("t")
    for number in range(3):
        cluster.log("t").append(b"%d" % number, key=b"key")
    return "t"


@SIDES
async def test_reading(cluster: FakeCluster, start: Start, topic: str, side: str) -> None:
    consumer = await start(cluster, topic, **{f"{side}_deserializer": deserialize})
    for _ in range(2):  # the record is not passed
        with refused(side):
            await consumer.getone()
        with refused(side):
            await consumer.getmany(timeout_ms=5000)
        with refused(side):
            async for _ in consumer:
                pass


async def test_a_key_that_is_awaitable_beside_a_value_that_is_invalid(
    cluster: FakeCluster, start: Start, topic: str
) -> None:
    consumer = await start(
        cluster, topic, key_deserializer=deserialize, value_deserializer=lambda _: 1 / 0
    )
    with refused("key"):
        await consumer.getone()


async def test_an_awaitable_behind_plain_values(
    cluster: FakeCluster, start: Start, topic: str
) -> None:
    loop = asyncio.get_running_loop()
    results: list[Any] = [1, None, loop.create_future()]
    consumer = await start(cluster, topic, value_deserializer=lambda data: results[int(data)])
    assert [(await consumer.getone()).value for _ in range(2)] == [1, None]
    with refused("value"):
        await consumer.getone()


@SIDES
async def test_parallel(cluster: FakeCluster, topic: str, side: str) -> None:
    processor = make_parallel(cluster, topic, consumer={f"{side}_deserializer": deserialize})

    async def handle(_: Any) -> None:
        raise AssertionError("it was called with a record")

    with refused(side):
        async with processor:
            await processor.run(handle)
