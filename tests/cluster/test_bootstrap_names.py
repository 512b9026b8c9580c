"""Names in bootstrap_servers that lead to several brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
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
