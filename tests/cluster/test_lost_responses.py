"""One response that never comes: calls whose time is far from over ask again, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.messages import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListGroupsRequest,
    MetadataRequest,
)
from aiokafka.testing import FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate


@pytest.mark.parametrize("release", ["1.1", "2.8", "4.3"])
@pytest.mark.parametrize("handled", [False, True])
def test_a_transactional_producer_starts_without_one_response(release: str, handled: bool) -> None:
    """The request had as much time as `start()`."""

    async def main(simulation: Simulation) -> list[bytes | None]:
        async with simulation.cluster(brokers=2, as_version=release) as cluster:
            await cluster.create_topic("t")
            cluster.intercept(InitProducerIdRequest, Silence(handled=handled), times=1)
            async with AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers,
                transactional_id="x",
                request_timeout_ms=5000,
            ) as producer:
                for number in range(3):
                    async with producer.transaction():
                        await producer.send("t", b"%d" % number)
            return [record.value for record in cluster.log("t").records()]

    assert simulate(main) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("brokers", [1, 2])
@pytest.mark.parametrize("api", [ApiVersionsRequest, MetadataRequest, InitProducerIdRequest])
def test_a_producer_starts_without_one_response(api: Any, brokers: int) -> None:
    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        async with simulation.cluster(brokers=brokers) as cluster:
            await cluster.create_topic("t")
            cluster.intercept(api, Silence(handled=True), times=1)
            began = loop.time()
            async with AIOKafkaProducer(bootstrap_servers=cluster.address(0)) as producer:
                await producer.send_and_wait("t", b"x")
            return loop.time() - began

    assert simulate(main) < 45


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_coordinator_is_looked_up_again_without_one_response(brokers: int) -> None:
    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        async with simulation.cluster(brokers=brokers) as cluster:
            await cluster.create_topic("t")
            cluster.intercept(FindCoordinatorRequest, Silence(handled=True), times=1)
            began = loop.time()
            async with AIOKafkaConsumer(
                "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g"
            ):
                return loop.time() - began

    assert simulate(main) < 25


def test_requests_take_another_connection_when_one_gives_no_response() -> None:
    """A firewall forgot it. What was sent behind the first request waited as long as that."""
    dead: set[int] = set()

    def forget(request: Any, context: Any) -> Silence | None:
        if not dead:
            dead.add(context.connection_id)
        return Silence() if context.connection_id in dead else None

    async def main(simulation: Simulation) -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        async with (
            FakeCluster() as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client,
        ):
            cluster.intercept(None, forget)
            began = loop.time()
            first = asyncio.ensure_future(client.send(0, ListGroupsRequest()))
            await asyncio.sleep(12)
            await client.send(0, ListGroupsRequest())
            second = loop.time() - began
            with pytest.raises(RequestTimedOutError):
                await first
            return second, loop.time() - began

    second, first = simulate(main)
    assert second < 13
    assert 39 < first < 41


def test_a_connection_that_was_left_is_closed_when_its_response_comes() -> None:
    async def main(simulation: Simulation) -> None:
        async with (
            FakeCluster() as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client,
        ):
            cluster.faults.hang(0, [ListGroupsRequest])
            first = asyncio.ensure_future(client.send(0, ListGroupsRequest()))
            await asyncio.sleep(12)
            await client.send(0, MetadataRequest(topics=[]))
            assert cluster.connections == 2
            cluster.faults.revive(0)
            await first
            await cluster.wait_for(lambda: cluster.connections == 1)

    simulate(main)
