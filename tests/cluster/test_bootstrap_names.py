"""Names in bootstrap_servers that lead to several brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaShareConsumer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.messages import MetadataRequest
from aiokafka.testing import Cut, FaultProxy
from aiokafka.testing.simulation import Simulation, simulate

PORT = 9999
ADDRESSES = ("127.0.0.1", "127.0.0.2")


def test_a_broker_found_by_a_name_of_several_is_reached_by_its_own_address() -> None:
    """As where a service of Kubernetes names all brokers, and each advertises its IP address.

    Further connections to the broker were made by the name, and led to another broker: a consumer
    got no records, for as long as that connection was open.
    """

    async def main(simulation: Simulation) -> bytes | None:
        async with (
            simulation.cluster(brokers=2) as cluster,
            FaultProxy(cluster.address(0), host=ADDRESSES[0], port=PORT),
            FaultProxy(cluster.address(1), host=ADDRESSES[1], port=PORT),
        ):
            for broker_id, address in enumerate(ADDRESSES):
                cluster.advertise(broker_id, address, PORT)
            await cluster.create_topic("t")
            names = simulation.network.names
            names["kafka.example"] = list(ADDRESSES)
            async with AIOKafkaConsumer(bootstrap_servers=f"kafka.example:{PORT}") as consumer:
                # Resolvers give the addresses in turn.
                names["kafka.example"] = list(reversed(ADDRESSES))
                consumer.assign([TopicPartition("t", 0)])
                await consumer.seek_to_beginning()
                cluster.log("t").append(b"record")
                async with timeout(60):
                    return (await consumer.getone()).value

    assert simulate(main) == b"record"


class InTurn(list[str]):
    """Begins with another one each time."""

    def __iter__(self) -> Iterator[str]:
        found = list(super().__iter__())
        self.append(self.pop(0))
        return iter(found)


def test_a_broker_is_known_by_the_name_that_its_connection_was_made_by() -> None:
    """Not by the one that has come to the same place in the list: records went to another broker,
    which did not lead their partition, until their time was over."""

    async def main(simulation: Simulation) -> list[int]:
        async with (
            simulation.cluster(brokers=2) as cluster,
            FaultProxy(cluster.address(0), host=ADDRESSES[0], port=PORT) as first,
            FaultProxy(cluster.address(1), host=ADDRESSES[1], port=PORT) as second,
        ):
            for broker_id, address in enumerate(ADDRESSES):
                cluster.advertise(broker_id, address, PORT)
            await cluster.create_topic("t", partitions=2)
            simulation.network.names["kafka.example"] = InTurn(reversed(ADDRESSES))
            async with AIOKafkaProducer(
                bootstrap_servers=f"kafka.example:{PORT}",
                client_dns_lookup="resolve_canonical_bootstrap_servers_only",
            ) as producer:
                for partition in range(2):
                    await producer.send_and_wait("t", b"record", partition=partition)
                for proxy in (first, second):
                    proxy.delay(0.05)
                # Two at once that find no known broker, and begin with the name again.
                cluster.intercept(MetadataRequest, Cut(), times=4)
                await asyncio.gather(*[producer.client.fetch_all_topics() for _ in range(2)])
                for partition in range(2):
                    await producer.send_and_wait("t", b"record", partition=partition)
            return [cluster.log("t", partition).end_offset for partition in range(2)]

    assert simulate(main) == [2, 2]


def test_names_that_get_an_address_later_are_waited_for() -> None:
    """KIP-909: a program may start before its brokers are in the DNS."""

    async def main(simulation: Simulation) -> tuple[tuple[int, ...], float]:
        loop = asyncio.get_running_loop()
        async with simulation.cluster(brokers=1) as cluster:
            port = cluster.bootstrap_servers.partition(":")[2]
            names = simulation.network.names
            loop.call_later(20.0, names.__setitem__, "late.example", ["127.0.0.1"])
            async with AIOKafkaClient(
                bootstrap_servers=[f"never.example:{port}", f"late.example:{port}"],
                bootstrap_resolve_timeout_ms=30_000,
                request_timeout_ms=5000,
            ) as client:
                return client.cluster.node_ids, loop.time()

    nodes, at = simulate(main)
    assert nodes == (0,)
    assert 20.0 <= at < 23.0


@pytest.mark.parametrize("is_share", [False, True], ids=["group", "share"])
def test_a_late_name_leaves_the_member_time_to_join(is_share: bool) -> None:
    """The name has no address for longer than `request_timeout_ms`. The topic is created when the
    consumer requests its metadata."""

    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        async with simulation.cluster(brokers=1) as cluster:
            port = cluster.bootstrap_servers.partition(":")[2]
            names = simulation.network.names
            loop.call_later(20.0, names.__setitem__, "late.example", ["127.0.0.1"])
            consumer_class: Any = AIOKafkaShareConsumer if is_share else AIOKafkaConsumer
            async with consumer_class(
                "t",
                group_id="g",
                bootstrap_servers=f"late.example:{port}",
                bootstrap_resolve_timeout_ms=30_000,
                request_timeout_ms=5000,
            ):
                return loop.time()

    assert 20.0 <= simulate(main) < 25.0


@pytest.mark.parametrize(("limit_ms", "expected"), [(0, 0.0), (3000, 3.0)])
def test_names_that_get_no_address_are_an_error(limit_ms: int, expected: float) -> None:
    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        client = AIOKafkaClient(
            bootstrap_servers=["a.example:9092", "b.example:9092"],
            bootstrap_resolve_timeout_ms=limit_ms,
        )
        with pytest.raises(KafkaConnectionError, match="Unable to bootstrap") as caught:
            await client.bootstrap()
        for name in ("a.example:9092", "b.example:9092", "cannot resolve the host name"):
            assert name in str(caught.value)
        assert ("bootstrap_resolve_timeout_ms=3000" in str(caught.value)) == bool(limit_ms)
        await client.close()
        return loop.time()

    assert expected <= simulate(main) <= expected + 0.6


def test_a_name_that_the_resolver_hangs_on_delays_no_other_name() -> None:
    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        async with simulation.cluster(brokers=1) as cluster:
            simulation.network.name_delay = 1.0
            server = cluster.bootstrap_servers
            async with AIOKafkaClient(
                bootstrap_servers=["slow.example:9092", server],
                bootstrap_resolve_timeout_ms=30_000,
            ):
                return loop.time()

    assert simulate(main) < 0.9


def test_a_cancelled_wait_for_names_ends_and_the_client_can_start_again() -> None:
    async def main(simulation: Simulation) -> tuple[int, ...]:
        async with simulation.cluster(brokers=1) as cluster:
            port = cluster.bootstrap_servers.partition(":")[2]
            client = AIOKafkaClient(
                bootstrap_servers=f"late.example:{port}", bootstrap_resolve_timeout_ms=30_000
            )
            with pytest.raises(asyncio.TimeoutError):
                async with timeout(2.0):
                    await client.bootstrap()
            simulation.network.names["late.example"] = ["127.0.0.1"]
            async with client:
                return client.cluster.node_ids

    assert simulate(main) == (0,)
