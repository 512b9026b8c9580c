"""What a client costs that does nothing, or has done much."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.messages import ListGroupsRequest, MetadataRequest
from aiokafka.testing.simulation import Simulation, simulate


def test_the_coordinators_that_are_remembered_have_a_bound() -> None:
    """An admin client, or a tool, goes through all groups of a cluster."""

    async def main(simulation: Simulation) -> tuple[int | None, int | None]:
        loop = asyncio.get_running_loop()
        async with (
            simulation.cluster(brokers=1) as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client,
        ):
            for number in range(1100):
                await client.coordinator(CoordinationType.GROUP, f"g{number}", loop.time() + 10)
            first, last = (
                client.known_coordinator(CoordinationType.GROUP, name) for name in ("g0", "g1099")
            )
            # One that was forgotten is looked up again.
            await client.coordinator(CoordinationType.GROUP, "g0", loop.time() + 10)
            return first, last

    assert simulate(main) == (None, 0)


def test_an_idle_client_is_seldom_woken_by_a_short_limit_for_idle_connections() -> None:
    """The limit of 1 ms woke the event loop a thousand times a second."""

    async def main(simulation: Simulation) -> int:
        loop: Any = asyncio.get_running_loop()
        timers = 0
        call_at = loop.call_at

        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal timers
            timers += 1
            return call_at(*arguments, **options)

        async with (
            simulation.cluster(brokers=1) as cluster,
            AIOKafkaClient(
                bootstrap_servers=cluster.bootstrap_servers, connections_max_idle_ms=1
            ) as client,
        ):
            cluster.faults.hang(0, [ListGroupsRequest])
            asking = asyncio.ensure_future(client.send(0, ListGroupsRequest()))
            await asyncio.sleep(1)
            loop.call_at = counted
            await asyncio.sleep(10)
            loop.call_at = call_at
            cluster.faults.revive(0)
            await asking
            # Not used any more, so it is closed.
            await cluster.wait_for(lambda: cluster.connections == 0)
            return timers

    assert simulate(main) <= 110


def test_metadata_of_no_age_is_not_asked_for_without_a_pause() -> None:
    async def main(simulation: Simulation) -> int:
        async with (
            simulation.cluster(brokers=1) as cluster,
            AIOKafkaClient(
                bootstrap_servers=cluster.bootstrap_servers,
                metadata_max_age_ms=1,
                retry_backoff_ms=0,
            ),
        ):
            before = cluster.count(MetadataRequest)
            await asyncio.sleep(10)
            return cluster.count(MetadataRequest) - before

    assert 100 <= simulate(main) <= 200
