"""A producer made before its event loop runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.testing import FakeCluster
from tests.support.producers import TOPIC, new_producer, values


def made_outside(loop: asyncio.AbstractEventLoop, **options: Any) -> AIOKafkaProducer:
    with pytest.warns(DeprecationWarning, match="without a running event loop") as seen:
        producer = AIOKafkaProducer(loop=loop, **options)
    assert seen[0].filename == __file__
    return producer


@pytest.mark.parametrize("transactional_id", [None, "id"])
def test_made_for_a_loop_that_runs_later(transactional_id: str | None) -> None:
    async def use(cluster: FakeCluster, producer: AIOKafkaProducer) -> None:
        async with producer:
            if transactional_id is None:
                await producer.send_and_wait(TOPIC, b"v", partition=0)
            else:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v", partition=0)
        assert values(cluster) == [b"v"]

    async def start() -> FakeCluster:
        cluster = FakeCluster()
        await cluster.start()
        await cluster.create_topic(TOPIC)
        return cluster

    loop = asyncio.new_event_loop()
    try:
        cluster = loop.run_until_complete(start())
        producer = made_outside(
            loop, bootstrap_servers=cluster.bootstrap_servers, transactional_id=transactional_id
        )
        loop.run_until_complete(use(cluster, producer))
        loop.run_until_complete(cluster.stop())
    finally:
        loop.close()


def test_no_loop_runs_after_it_was_made() -> None:
    loop = asyncio.new_event_loop()
    try:
        made_outside(loop)
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        with pytest.raises(ValueError, match="linger_ms"):
            AIOKafkaProducer(loop=loop, linger_ms=-1)
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
    finally:
        loop.close()


def test_without_any_loop_the_class_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"AIOKafkaProducer.*async def"):
        AIOKafkaProducer()


def test_no_loop_is_a_wrong_argument() -> None:
    with pytest.raises(TypeError, match="loop"):
        AIOKafkaProducer(loop="uvloop")


async def test_the_running_loop_counts(cluster: FakeCluster) -> None:
    with pytest.warns(DeprecationWarning, match="no effect"):
        producer = new_producer(cluster, loop=asyncio.get_running_loop())
    async with producer:
        await producer.send_and_wait(TOPIC, b"v")
