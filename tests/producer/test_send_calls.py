"""Calls of `send`: wrappers, serializers, and the futures of batches that are split."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.testing import FakeCluster
from tests.producer.held import Held, Sent
from tests.support.producers import TOPIC, new_producer, numbers, values

# -- The call of `send` itself, who wraps it, and futures of batches that are divided


# -- the call


async def test_send_is_a_coroutine_function(held: Held) -> None:
    assert inspect.iscoroutinefunction(AIOKafkaProducer.send)
    assert inspect.iscoroutinefunction(held.producer.send)
    assert list(inspect.signature(AIOKafkaProducer.send).parameters) == [
        "self",
        "topic",
        "value",
        "key",
        "partition",
        "timestamp_ms",
        "headers",
    ]
    call = held.producer.send(TOPIC, b"v")
    assert asyncio.iscoroutine(call) and isinstance(call, Coroutine)
    task = asyncio.create_task(call)
    assert isinstance(await task, asyncio.Future)


async def test_tasks_send_in_the_order_of_their_making(cluster: FakeCluster, held: Held) -> None:
    tasks = [
        asyncio.create_task(held.producer.send(TOPIC, value, partition=0)) for value in numbers(20)
    ]
    await held.producer.send(TOPIC, b"before", partition=0)
    await asyncio.gather(*tasks)
    await held.deliver()
    assert values(cluster) == [b"before", *numbers(20)]


async def test_a_call_that_is_not_awaited_sends_nothing(cluster: FakeCluster, held: Held) -> None:
    call = held.producer.send(TOPIC, b"never", partition=0)
    call.close()
    with pytest.warns(RuntimeWarning, match="never awaited"):
        held.producer.send(TOPIC, b"never", partition=0)
        gc.collect()
    await held.send(b"sent")
    await held.deliver()
    assert values(cluster) == [b"sent"]


class Tracing(AIOKafkaProducer):
    """A subclass that overrides `send`, as tracing libraries wrap it."""

    calls = 0

    async def send(self, topic: str, *args: Any, **kwargs: Any) -> Sent:
        self.calls += 1
        future = await super().send(topic, *args, **kwargs)
        future.add_done_callback(lambda done: done.exception())
        return future


async def test_a_subclass_that_overrides_send(cluster: FakeCluster) -> None:
    async with Tracing(bootstrap_servers=cluster.bootstrap_servers) as producer:
        assert (await (await producer.send(TOPIC, b"1", partition=0))).offset == 0
        assert (await producer.send_and_wait(TOPIC, b"2", partition=0)).offset == 1
        assert producer.calls == 2


async def test_send_wrapped_in_another_future(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapper may return a future of its own."""
    inner = AIOKafkaProducer.send

    async def wrapped(self: AIOKafkaProducer, *args: Any, **kwargs: Any) -> Sent:
        future = await inner(self, *args, **kwargs)
        return asyncio.shield(future)

    monkeypatch.setattr(AIOKafkaProducer, "send", wrapped)
    async with new_producer(cluster) as producer:
        assert (await producer.send_and_wait(TOPIC, b"v", partition=0)).offset == 0


# -- batches that are divided


async def test_records_of_a_batch_that_is_split(cluster: FakeCluster) -> None:
    """Those who wait, call back, come later, and have cancelled: each gets what is its own."""
    await cluster.create_topic("narrow", config={"max.message.bytes": "400"})
    async with new_producer(cluster, linger_ms=20) as producer:
        futures = [
            await producer.send("narrow", b"%02d" % number + b"x" * 60, partition=0)
            for number in range(20)
        ]
        futures[3].cancel()
        called: list[int] = []
        futures[7].add_done_callback(lambda done: called.append(done.result().offset))
        task = asyncio.gather(*futures[10:12])
        futures[4].cancel()
        assert [metadata.offset for metadata in await task] == [10, 11]
        await producer.flush()
        assert [f.result().offset for f in futures if not f.cancelled()] == [
            number for number in range(20) if number not in (3, 4)
        ]
        assert called == [7]


async def test_one_of_a_split_batch_is_too_large(
    cluster: FakeCluster, complaints: list[dict[str, Any]]
) -> None:
    await cluster.create_topic("narrow", config={"max.message.bytes": "400"})
    async with new_producer(cluster, linger_ms=20) as producer:
        small = await producer.send("narrow", b"small", partition=0)
        await producer.send("narrow", b"x" * 800, partition=0)
        last = await producer.send("narrow", b"last", partition=0)
        await producer.flush()
        assert (small.result().offset, last.result().offset) == (0, 1)
    del producer
    gc.collect()
    await asyncio.sleep(0)
    assert [type(context["exception"]) for context in complaints] == [MessageSizeTooLargeError]


async def test_other_results_are_blamed_on_the_serializer(cluster: FakeCluster) -> None:
    async with new_producer(cluster, value_serializer=str) as producer:
        with pytest.raises(TypeError, match="value_serializer returned str"):
            await producer.send(TOPIC, b"value")
