"""Bootstrap servers that know no brokers: fenced, because they have just started."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, MetadataEmptyBrokerList
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.testing import Edit
from aiokafka.testing.simulation import Simulation, simulate


def forget(response: Any) -> None:
    response.brokers = []


def test_a_server_that_knows_no_brokers_yet_is_asked_again() -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=2) as cluster:
            with cluster.intercept(MetadataRequest, Edit(forget), times=4):
                async with AIOKafkaClient(
                    bootstrap_servers=f"{cluster.bootstrap_servers},127.0.0.1:1"
                ) as client:
                    assert client.cluster.node_ids == (0, 1)
            assert cluster.count(MetadataRequest) == 5

    simulate(main)


def test_it_is_asked_until_the_time_is_up() -> None:
    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with simulation.cluster(brokers=2) as cluster:
            cluster.intercept(MetadataRequest, Edit(forget))
            servers, began = cluster.bootstrap_servers, loop.time()
            client = AIOKafkaClient(
                bootstrap_servers=servers, request_timeout_ms=7_000, retry_backoff_max_ms=900
            )
            with pytest.raises(
                KafkaConnectionError, match="returned metadata without brokers"
            ) as caught:
                await client.bootstrap()
            assert isinstance(caught.value.__cause__, MetadataEmptyBrokerList)
            assert loop.time() - began == pytest.approx(7, abs=0.1)
            assert 14 < cluster.count(MetadataRequest) < 40
            await client.close()

    simulate(main)


def test_of_servers_that_nobody_serves_there_is_an_error_at_once() -> None:
    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        client = AIOKafkaClient(bootstrap_servers=["127.0.0.1:1", "127.0.0.1:2"])
        with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1:2"):
            await client.bootstrap()
        assert loop.time() - began < 1
        await client.close()

    simulate(main)
