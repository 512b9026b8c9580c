"""Requests that any broker can answer, and brokers that do not answer them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from aiokafka import AIOKafkaClient
from aiokafka._compat import timeout
from aiokafka._retry import RetryNodes
from aiokafka.client import CoordinationType
from aiokafka.errors import (
    GroupLoadInProgressError,
    KafkaConnectionError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest
from aiokafka.protocol.messages.produce import InitProducerIdRequest
from aiokafka.testing import Fail, FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import new_producer


@pytest.fixture
async def three() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=3) as cluster:
        yield cluster
        assert cluster.failures == []


@pytest.fixture
async def client(three: FakeCluster) -> AsyncIterator[AIOKafkaClient]:
    async with AIOKafkaClient(bootstrap_servers=three.bootstrap_servers) as client:
        yield client


def soon(seconds: float = 10.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_brokers_that_failed_are_asked_again_when_all_have(client: AIOKafkaClient) -> None:
    nodes, asked = RetryNodes(client), Counter[int]()

    async def fail(node_id: int) -> None:
        asked[node_id] += 1
        raise GroupLoadInProgressError

    last = -1
    for _ in range(20):
        before = asked.copy()
        with pytest.raises(GroupLoadInProgressError):
            await nodes.ask(fail, soon())
        (node_id,) = asked - before
        assert node_id != last
        last = node_id
        if asked.total() == 3:
            assert set(asked.values()) == {1}


async def test_an_error_that_does_not_pass_says_nothing_about_the_broker(
    client: AIOKafkaClient,
) -> None:
    nodes, asked = RetryNodes(client), set[int]()

    async def fail(node_id: int) -> None:
        asked.add(node_id)
        raise TopicAuthorizationFailedError

    async with timeout(10):
        while len(asked) < 3:
            with pytest.raises(TopicAuthorizationFailedError):
                await nodes.ask(fail, soon())


@pytest.mark.parametrize(
    ("total", "ends"),
    [
        (9.0, [3.0, 5.0, 9.0]),
        (90.0, [10.0, 20.0, 90.0]),
        (0.5, [0.2, 0.4, 0.5]),  # a third would be less than what is worth it
        (0.3, [0.2, 0.3]),  # no time for a third broker
    ],
)
def test_a_silent_broker_gets_a_part_of_the_time(total: float, ends: list[float]) -> None:
    """A third of what is left, 0.2 s at least and 10 s at most, and the last one all of it."""

    async def be_silent(node_id: int) -> None:
        await asyncio.get_running_loop().create_future()

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster() as cluster:
            servers = cluster.bootstrap_servers
            async with AIOKafkaClient(bootstrap_servers=servers) as client:
                nodes, began = RetryNodes(client), soon(0)
                before = 0.0
                for end in ends[:-1]:
                    text = rf"node \d: no response in {end - before:.1f} s"
                    with pytest.raises(RequestTimedOutError, match=text):
                        await nodes.ask(be_silent, began + total)
                    assert soon(0) - began == pytest.approx(end, abs=0.001)
                    before = end
                with pytest.raises(asyncio.TimeoutError):
                    await nodes.ask(be_silent, began + total)
                assert soon(0) - began == pytest.approx(ends[-1], abs=0.001)

    simulate(main)


async def test_no_broker_is_known(three: FakeCluster) -> None:
    nodes = RetryNodes(AIOKafkaClient(bootstrap_servers=three.bootstrap_servers))

    async def ask(node_id: int) -> None:
        raise AssertionError(node_id)

    with pytest.raises(KafkaConnectionError, match="no broker is known"):
        await nodes.ask(ask, soon())


@pytest.mark.parametrize("broker", range(3))
async def test_a_producer_starts_beside_a_broker_that_gives_no_ids(
    three: FakeCluster, broker: int
) -> None:
    """No start asks it twice."""
    error = Fail(GroupLoadInProgressError)
    with three.intercept(InitProducerIdRequest, error, broker=broker) as script:
        for _ in range(20):
            hits = script.hits
            async with new_producer(three, retry_backoff_ms=10):
                pass
            assert script.hits <= hits + 1


@pytest.mark.parametrize("broker", range(3))
async def test_a_producer_starts_beside_a_silent_broker(three: FakeCluster, broker: int) -> None:
    with three.intercept(InitProducerIdRequest, Silence(), broker=broker) as script:
        async with timeout(30):
            while not script.hits:
                async with new_producer(three, request_timeout_ms=3000, retry_backoff_ms=10):
                    pass


@pytest.mark.parametrize("broker", range(3))
async def test_a_coordinator_is_found_beside_a_silent_broker(
    three: FakeCluster, client: AIOKafkaClient, broker: int
) -> None:
    with three.intercept(FindCoordinatorRequest, Silence(), broker=broker) as script:
        async with timeout(30):
            number = 0
            while not script.hits:
                number += 1
                key = f"g{number}"
                assert await client.coordinator(CoordinationType.GROUP, key, soon(1.5)) >= 0


def test_a_broker_that_cannot_be_reached_is_left_until_it_can() -> None:
    """Every third call would wait for it, as long as others have it among the brokers that run."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=3) as cluster:
            async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
                faults = simulation.faults(cluster)
                faults.silence(2)
                assert not await client.ready(2)
                await asyncio.sleep(60)
                assert 2 in client.cluster.node_ids
                assert {client.get_random_node() for _ in range(100)} == {0, 1}
                await faults.heal()
                assert await client.ready(2)
                assert {client.get_random_node() for _ in range(100)} == {0, 1, 2}

    simulate(main)
