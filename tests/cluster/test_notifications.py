"""Coroutines of interceptors that wait for their client, in tasks of their own as well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.interceptors import ProducerInterceptor, ProducerRecord
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC

# More than may wait for their turn.
BURST = 1500


async def plainly(call: Awaitable[Any]) -> None:
    await call


async def with_a_limit(call: Awaitable[Any]) -> None:
    """Before Python 3.12 in a task."""
    await asyncio.wait_for(call, 60)


async def beside_others(call: Awaitable[Any]) -> None:
    await asyncio.gather(call, asyncio.sleep(0))


HOW = [plainly, with_a_limit, beside_others]


@pytest.mark.parametrize("wait", HOW)
def test_what_it_sends_does_not_wait_for_room_that_it_makes_itself(wait: Any) -> None:
    class Copies(ProducerInterceptor):
        async def on_acknowledgement(
            self, record: ProducerRecord, metadata: Any, error: Any
        ) -> None:
            if record.topic == TOPIC:
                await wait(producer.send_and_wait("copies", record.value, partition=0))

    async def main(_: Simulation) -> None:
        nonlocal producer
        loop = asyncio.get_running_loop()
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            await cluster.create_topic("copies")
            producer = AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, interceptors=[Copies()]
            )
            async with producer:
                began = loop.time()
                for _ in range(BURST):
                    await producer.send(TOPIC, b"x", partition=0)
                await producer.flush()
                copies = cluster.log("copies")
                await cluster.wait_for(lambda: copies.end_offset == BURST, 60)
                assert loop.time() - began < 20

    producer: Any = None
    simulate(main)


@pytest.mark.parametrize("wait", HOW)
def test_it_may_stop_its_client(wait: Any) -> None:
    stopped = []

    class Stops(ProducerInterceptor):
        async def on_acknowledgement(
            self, record: ProducerRecord, metadata: Any, error: Any
        ) -> None:
            await wait(producer.stop())
            stopped.append(asyncio.get_running_loop().time())

    async def main(_: Simulation) -> None:
        nonlocal producer
        loop = asyncio.get_running_loop()
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            producer = AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, interceptors=[Stops()]
            )
            await producer.start()
            await producer.send_and_wait(TOPIC, b"x")
            began = loop.time()
            await asyncio.sleep(15)
            assert [at - began < 1 for at in stopped] == [True]
            assert producer.health().state == "closed"
            assert cluster.connections == 0

    producer: Any = None
    simulate(main)
