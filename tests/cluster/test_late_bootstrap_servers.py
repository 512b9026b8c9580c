"""Bootstrap servers that answer when another one has already, or to two calls at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.messages import MetadataRequest
from aiokafka.testing import Delay, FakeCluster, FaultProxy, Silence
from aiokafka.testing.simulation import Simulation, simulate


async def test_a_connection_that_comes_too_late_is_closed() -> None:
    """Else it would be open for minutes, of no use to anything."""
    async with FakeCluster() as cluster, FaultProxy(cluster.bootstrap_servers) as slow:
        slow.stall("responses")
        servers = [slow.address, cluster.bootstrap_servers]
        client = AIOKafkaClient(bootstrap_servers=servers)
        async with timeout(30), client:
            assert client.cluster.node_ids == (0,)
            assert slow.connections == 1
            slow.restore()
            while slow.connections:
                await asyncio.sleep(0.01)
            assert slow.forwarded["responses"] > 0


def test_a_server_that_responds_to_apiversions_alone_leaves_time_for_others() -> None:
    """With less than ten seconds it had all of them."""

    async def main(simulation: Simulation) -> tuple[int, ...]:
        async with simulation.cluster(brokers=3) as cluster:
            cluster.intercept(MetadataRequest, Silence(), broker=0)
            servers = cluster.bootstrap_servers
            async with AIOKafkaClient(bootstrap_servers=servers, request_timeout_ms=5000) as client:
                return client.cluster.node_ids

    assert simulate(main) == (0, 1, 2)


def test_the_canonical_names_of_servers_are_looked_up_at_once() -> None:
    """One after the other they used up all of the time, and no server was asked."""

    async def main(simulation: Simulation) -> tuple[int, ...]:
        async with simulation.cluster(brokers=1) as cluster:
            port = cluster.bootstrap_servers.partition(":")[2]
            names = [f"{letter}.example" for letter in "abcd"]
            simulation.network.names.update((name, ["127.0.0.1"]) for name in names)
            simulation.network.name_delay = 3.0
            async with AIOKafkaClient(
                bootstrap_servers=[f"{name}:{port}" for name in names],
                client_dns_lookup="resolve_canonical_bootstrap_servers_only",
                request_timeout_ms=10_000,
            ) as client:
                return client.cluster.node_ids

    assert simulate(main) == (0,)


async def test_a_name_that_the_resolver_hangs_on_leaves_time_for_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    look_up = loop.getaddrinfo

    async def hang(host: Any, *args: Any, **options: Any) -> Any:
        if host == "hangs.example":
            await loop.create_future()
        return await look_up(host, *args, **options)

    monkeypatch.setattr(loop, "getaddrinfo", hang)
    async with FakeCluster() as cluster:
        async with AIOKafkaClient(
            bootstrap_servers=["hangs.example:1", cluster.bootstrap_servers],
            client_dns_lookup="resolve_canonical_bootstrap_servers_only",
            request_timeout_ms=3000,
        ) as client:
            assert client.cluster.node_ids == (0,)


def test_two_calls_that_ask_one_bootstrap_server_both_get_its_response() -> None:
    """The first response closed the connection on which the second was waited for."""

    async def main(simulation: Simulation) -> list[int]:
        async with simulation.cluster(brokers=2) as cluster:
            server = cluster.bootstrap_servers.split(",")[0]
            for broker in range(2):
                cluster.advertise(broker, "127.0.0.1", 1)
            async with AIOKafkaClient(bootstrap_servers=server) as client:
                cluster.intercept(MetadataRequest, Delay(0.3))
                both = await asyncio.gather(client.fetch_all_topics(), client.fetch_all_topics())
                return [len(response.brokers) for response in both]

    assert simulate(main) == [2, 2]
