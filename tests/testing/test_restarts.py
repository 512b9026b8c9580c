"""The whole cluster is stopped and started again: what was under way goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka._compat import timeout
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, transactional


async def restart(cluster: FakeCluster) -> None:
    await cluster.stop()
    await cluster.start()


def reader(cluster: FakeCluster, **options: Any) -> AIOKafkaConsumer[bytes, bytes]:
    return AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_that_went_away_meanwhile_expire(protocol: str) -> None:
    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            cluster.log(TOPIC).append(b"x")
            options = {"group_id": "g", "group_protocol": protocol}
            gone = reader(cluster, **options)
            await gone.start()
            await gone.getone()
            await cluster.stop()
            await gone.stop()
            await cluster.start()
            async with timeout(60), reader(cluster, **options) as consumer:
                assert (await consumer.getone()).value == b"x"

    simulate(main)


def test_a_member_that_waits_for_others_has_its_assignment() -> None:
    async def main(_: Simulation) -> None:
        config = {"group.initial.rebalance.delay.ms": 3000}
        async with FakeCluster(config=config) as cluster:
            await cluster.create_topic(TOPIC)
            consumer = reader(cluster, group_id="g")
            starting = asyncio.create_task(consumer.start())
            await asyncio.sleep(1)
            assert not starting.done()
            await restart(cluster)
            async with timeout(30):
                await starting
            await consumer.stop()

    simulate(main)


def test_a_transaction_that_was_open_ends_in_its_time() -> None:
    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            producer = transactional(cluster, transaction_timeout_ms=10_000)
            await producer.start()
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"aborted", partition=0)
            await cluster.stop()
            await producer.stop(0)
            await asyncio.sleep(4)
            await cluster.start()
            cluster.log(TOPIC).append(b"read")
            loop = asyncio.get_running_loop()
            began = loop.time()
            async with timeout(60), reader(cluster, isolation_level="read_committed") as consumer:
                assert (await consumer.getone()).value == b"read"
            assert 3 < loop.time() - began < 8

    simulate(main)


def test_a_controller_that_was_to_come_is_there() -> None:
    async def main(_: Simulation) -> None:
        async with FakeCluster(brokers=2) as cluster:
            cluster.controller.fail_over(5, 1)
            assert not cluster.controller.is_available
            await restart(cluster)
            assert cluster.controller.is_available
            assert cluster.controller.broker_id == 1
            await cluster.create_topic(TOPIC)

    simulate(main)


def test_a_controller_that_was_stopped_stays_so() -> None:
    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            cluster.controller.fail_over(5)
            cluster.controller.stop()
            await restart(cluster)
            assert not cluster.controller.is_available

    simulate(main)


def test_a_second_start_interrupts_nothing() -> None:
    async def main(_: Simulation) -> None:
        config = {"group.initial.rebalance.delay.ms": 3000}
        async with FakeCluster(config=config) as cluster:
            await cluster.create_topic(TOPIC)
            consumer = reader(cluster, group_id="g")
            loop = asyncio.get_running_loop()
            began = loop.time()
            starting = asyncio.create_task(consumer.start())
            await asyncio.sleep(1)
            await cluster.start()
            await starting
            assert loop.time() - began < 3.5
            await consumer.stop()

    simulate(main)
