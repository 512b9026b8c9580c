"""Brokers that are at another address now, while connections to where they were are still open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.protocol.messages import FetchRequest, MetadataRequest
from aiokafka.testing import Edit, FakeCluster, FaultProxy
from aiokafka.testing.simulation import Simulation, simulate


def test_a_consumer_reads_where_its_broker_is_now() -> None:
    """It went on at the address of before for as long as that kept the connection open."""

    async def main(simulation: Simulation) -> int:
        async with (
            simulation.cluster(brokers=1) as cluster,
            FaultProxy(cluster.address(0)) as old,
            FaultProxy(cluster.address(0)) as new,
        ):
            await cluster.create_topic("t")
            _advertise(cluster, old)
            async with AIOKafkaConsumer(
                "t", bootstrap_servers=old.address, metadata_max_age_ms=1000
            ):
                fetched = cluster.intercept(FetchRequest, lambda *_: None)
                await fetched.wait()
                _advertise(cluster, new)
                async with timeout(60):
                    while old.connections:
                        await fetched.wait(fetched.hits + 1)
                await fetched.wait(fetched.hits + 2)
                return new.connections

    assert simulate(main) == 2


def test_a_producer_connects_to_where_its_broker_is_now() -> None:
    """It waited for the connection to where the broker was before, up to 30 seconds: packets to the
    address of a pod that is gone get lost."""

    async def main(simulation: Simulation) -> int:
        before, now = "10.0.0.1", "10.0.0.2"
        async with (
            simulation.cluster(brokers=2) as cluster,
            FaultProxy(cluster.address(0), host=before, port=9092) as gone,
            FaultProxy(cluster.address(0), host=now, port=9092),
        ):
            cluster.advertise(0, before, 9092)
            await cluster.create_topic("t")
            cluster.move_leader(TopicPartition("t", 0), 0)
            async with AIOKafkaProducer(bootstrap_servers=cluster.address(1)) as producer:
                await producer.send_and_wait("t", b"record")
                gone.cut()
                simulation.network.line(before, 9092).lose(to_client=False)
                sent = await producer.send("t", b"record")
                # The second attempt has 20 seconds.
                await asyncio.sleep(12)
                cluster.advertise(0, now, 9092)
                assert await producer.client.force_metadata_update()
                async with timeout(5):
                    return (await sent).offset

    assert simulate(main) == 1


def _advertise(cluster: FakeCluster, proxy: FaultProxy, broker_id: int = 0) -> None:
    host, _, port = proxy.address.rpartition(":")
    cluster.advertise(broker_id, host, int(port))


def _send_back(response: Any) -> None:
    response.error_code = 129  # REBOOTSTRAP_REQUIRED (KIP-1102)


def test_a_producer_that_is_sent_back_to_bootstrap_sends_to_the_new_cluster() -> None:
    """To most partitions it could not deliver: the former brokers do not know the new topic."""
    partitions = range(3)

    async def main(simulation: Simulation) -> list[int]:
        async with (
            simulation.cluster(brokers=3) as former,
            simulation.cluster(brokers=3) as new,
            FaultProxy(former.address(0)) as server,
        ):
            for cluster in (former, new):
                await cluster.create_topic("t", partitions=len(partitions))
            async with AIOKafkaProducer(bootstrap_servers=server.address) as producer:
                for partition in partitions:
                    await producer.send_and_wait("t", b"record", partition=partition)
                server.target = new.address(0)
                former.intercept(MetadataRequest, Edit(_send_back))
                assert await producer.client.force_metadata_update()
                for partition in partitions:
                    await producer.send_and_wait("t", b"record", partition=partition)
            return [new.log("t", partition).end_offset for partition in partitions]

    assert simulate(main) == [1, 1, 1]


def test_a_consumer_that_is_sent_back_to_bootstrap_reads_in_the_new_cluster() -> None:
    """It asked the former one for a topic that was never there, for ever."""

    async def main(simulation: Simulation) -> bytes | None:
        async with (
            simulation.cluster(brokers=1) as former,
            simulation.cluster(brokers=1) as new,
            FaultProxy(former.address(0)) as server,
        ):
            for cluster in (former, new):
                await cluster.create_topic("t")
            async with AIOKafkaConsumer(
                "t", bootstrap_servers=server.address, metadata_max_age_ms=1000
            ) as consumer:
                server.target = new.address(0)
                with former.intercept(MetadataRequest, Edit(_send_back)) as sent_back:
                    await sent_back.wait()
                new.log("t").append(b"record")
                async with timeout(60):
                    return (await consumer.getone()).value

    assert simulate(main) == b"record"


@pytest.mark.parametrize("has_same_id", [False, True])
def test_a_producer_leaves_the_former_cluster_where_the_new_one_has_its_addresses(
    has_same_id: bool,
) -> None:
    """Where names lead to another cluster now: connections to the former one stayed, and records
    were not delivered."""
    partitions = range(2)

    async def main(simulation: Simulation) -> list[int]:
        async with (
            simulation.cluster(brokers=2) as former,
            simulation.cluster(brokers=2) as new,
            FaultProxy(former.address(0)) as first,
            FaultProxy(former.address(1)) as second,
        ):
            names = {first: new.address(0), second: new.address(1)}
            is_over = False
            former.intercept(MetadataRequest, lambda *_: Edit(_send_back) if is_over else None)
            for cluster in (former, new):
                await cluster.create_topic("t", partitions=len(partitions))
                for broker_id, proxy in enumerate(names):
                    _advertise(cluster, proxy, broker_id)
                if has_same_id:
                    cluster.state.cluster_id = "logical"
            async with AIOKafkaProducer(bootstrap_servers=first.address) as producer:
                for partition in partitions:
                    await producer.send_and_wait("t", b"record", partition=partition)
                for proxy, target in names.items():
                    proxy.target = target
                is_over = True
                assert await producer.client.force_metadata_update()
                for partition in partitions:
                    await producer.send_and_wait("t", b"record", partition=partition)
            return [new.log("t", partition).end_offset for partition in partitions]

    assert simulate(main) == [1, 1]
