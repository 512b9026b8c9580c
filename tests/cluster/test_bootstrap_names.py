"""Names in bootstrap_servers that lead to several brokers."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.testing import FaultProxy
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
