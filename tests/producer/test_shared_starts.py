"""Several calls of `start()` at once, as programs make them that start a shared producer late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    KafkaConnectionError,
    ProducerClosed,
    TransactionalIdAuthorizationFailed,
)
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.produce import InitProducerIdRequest
from aiokafka.testing import Fail, FakeCluster, Hold
from tests.support.producers import TOPIC, committed, new_producer, values

KINDS: list[dict[str, Any]] = [{}, {"transactional_id": "worker"}, {"enable_idempotence": False}]


def starts(producer: AIOKafkaProducer, number: int = 3) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(producer.start()) for _ in range(number)]


def tasks_of(producer: AIOKafkaProducer) -> list[str]:
    """Return the names of its tasks, connects that may still be under way left out."""
    prefix = f"{producer.client.config.client_id}:"
    names = [task.get_name() for task in asyncio.all_tasks()]
    return sorted(name for name in names if name.startswith(prefix) and "connect" not in name)


@pytest.mark.parametrize("options", KINDS)
async def test_only_one_does_the_work(cluster: FakeCluster, options: dict[str, Any]) -> None:
    producer = new_producer(cluster, **options)
    await asyncio.gather(*starts(producer))
    tasks = tasks_of(producer)
    assert len(tasks) == len(set(tasks))
    if "transactional_id" in options:
        assert cluster.count(InitProducerIdRequest) == 1
        async with producer.transaction():
            await producer.send(TOPIC, b"v", partition=0)
        assert committed(cluster) == [b"v"]
    else:
        await producer.send_and_wait(TOPIC, b"v", partition=0)
    await producer.stop()
    assert tasks_of(producer) == []


async def test_none_returns_before_it_is_done(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    producer = new_producer(cluster)
    with cluster.intercept(InitProducerIdRequest, Hold(release), times=1) as held:
        first, second = starts(producer, 2)
        await held.wait()
        third = asyncio.create_task(producer.start())
        await asyncio.sleep(1)
        assert not (first.done() or second.done() or third.done())
        release.set()
        await asyncio.gather(first, second, third)
    await producer.stop()


@pytest.mark.parametrize("options", KINDS[:2])
@pytest.mark.parametrize("request_class", [MetadataRequest, InitProducerIdRequest])
async def test_one_that_is_cancelled_leaves_the_work_to_the_next(
    cluster: FakeCluster, options: dict[str, Any], request_class: Any
) -> None:
    producer = new_producer(cluster, **options)
    release = asyncio.Event()
    with cluster.intercept(request_class, Hold(release), times=1) as held:
        first, second, third = starts(producer)
        await held.wait()
        first.cancel()
        await asyncio.wait((first,))
        assert first.cancelled()
        release.set()  # the broker answers the requests of a connection in order
        async with timeout(30):
            await asyncio.gather(second, third)
    async with producer:
        if options:
            await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"v", partition=0)
        tasks = tasks_of(producer)
        assert len(tasks) == len(set(tasks))
    assert tasks_of(producer) == []


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
async def test_all_that_are_cancelled_leave_nothing(
    cluster: FakeCluster, order: tuple[int, ...]
) -> None:
    producer = new_producer(cluster)
    with cluster.intercept(InitProducerIdRequest, Hold(asyncio.Event())) as held:
        calls = starts(producer)
        await held.wait()
        for number in order:
            calls[number].cancel()
        await asyncio.wait(calls)
        assert all(call.cancelled() for call in calls)
        assert tasks_of(producer) == []
    with pytest.raises(ProducerClosed):
        await producer.start()


async def test_the_last_one_is_cancelled_right_when_its_turn_comes(cluster: FakeCluster) -> None:
    producer = new_producer(cluster)
    with cluster.intercept(InitProducerIdRequest, Hold(asyncio.Event())) as held:
        first, second = starts(producer, 2)
        await held.wait()
        first.cancel()
        first.add_done_callback(lambda _: second.cancel())
        await asyncio.wait((first, second))
        assert second.cancelled()
        assert tasks_of(producer) == []


async def test_all_fail_with_one_error(cluster: FakeCluster) -> None:
    producer = new_producer(cluster, transactional_id="worker")
    with cluster.intercept(InitProducerIdRequest, Fail(TransactionalIdAuthorizationFailed)):
        found = await asyncio.gather(*starts(producer), return_exceptions=True)
    assert [type(one) for one in found] == [TransactionalIdAuthorizationFailed] * 3
    assert len({id(one) for one in found}) == 3
    assert cluster.count(InitProducerIdRequest) == 1
    assert tasks_of(producer) == []


async def test_a_later_call_may_try_again_where_no_broker_was_found() -> None:
    cluster = FakeCluster()
    async with cluster:
        await cluster.create_topic(TOPIC)
        await cluster.stop_broker(0)
        producer = new_producer(cluster)
        found = await asyncio.gather(*starts(producer), return_exceptions=True)
        assert [type(one) for one in found] == [KafkaConnectionError] * 3
        await cluster.start_broker(0)
        async with producer:
            await producer.send_and_wait(TOPIC, b"v", partition=0)
        assert values(cluster) == [b"v"]


@pytest.mark.parametrize("request_class", [MetadataRequest, InitProducerIdRequest])
async def test_stop_ends_all_of_them(cluster: FakeCluster, request_class: Any) -> None:
    producer = new_producer(cluster)
    with cluster.intercept(request_class, Hold(asyncio.Event())) as held:
        calls = starts(producer)
        await held.wait()
        async with timeout(10):
            await producer.stop()
            found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in found] == [ProducerClosed] * len(found)
    assert tasks_of(producer) == []


# -- clients


async def test_a_second_bootstrap_waits_for_the_first(cluster: FakeCluster) -> None:
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
    release = asyncio.Event()
    with cluster.intercept(MetadataRequest, Hold(release), times=1) as held:
        calls = [asyncio.create_task(client.bootstrap()) for _ in range(2)]
        await held.wait()
        done, _ = await asyncio.wait(calls, timeout=1)
        assert not done
        calls[0].cancel()
        release.set()
        await calls[1]
    assert client.cluster.node_ids == (0,)
    await client.close()


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_a_bootstrap_after_cancelled_ones_waits_until_they_are_undone(
    cluster: FakeCluster, turns: int
) -> None:
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
    with cluster.intercept(MetadataRequest, Hold(asyncio.Event()), times=1) as held:
        calls = [asyncio.create_task(client.bootstrap()) for _ in range(2)]
        await held.wait()
        for call in calls:
            call.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.bootstrap()
    await asyncio.gather(*calls, return_exceptions=True)
    assert client.cluster.node_ids == (0,)
    await client.close()
