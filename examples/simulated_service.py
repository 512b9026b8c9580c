"""A service and its test: it ships orders, and must ship each of them, whatever breaks.

Run it with pytest, or by itself::

    pytest examples/simulated_service.py
    python examples/simulated_service.py
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.testing.simulation import Simulation, simulate

ORDERS = 30
FAULTS = 15


async def ship(servers: str, shipped: list[bytes]) -> None:
    """The service: for every order, one line in the topic of shipments; never ends by itself."""
    async with (
        AIOKafkaProducer(bootstrap_servers=servers) as producer,
        AIOKafkaConsumer(
            "orders",
            bootstrap_servers=servers,
            group_id="shipping",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        while True:
            try:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    for record in records:
                        await producer.send_and_wait("shipments", record.value)
                        shipped.append(record.value)
                await consumer.commit()
            except KafkaError:
                # What was not committed comes again, so an order may be shipped twice: the topic
                # of shipments is read by programs that know what they have seen.
                await asyncio.sleep(1)


async def place_orders(simulation: Simulation, servers: str) -> None:
    """Another program, which the service knows nothing of."""
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(ORDERS):
            await producer.send_and_wait("orders", b"order %d" % number)
            simulation.note(f"order {number} was placed")
            await asyncio.sleep(simulation.random.random() * 10)


async def run(simulation: Simulation) -> int:
    """Let brokers fail while orders come in; return how many virtual seconds it took."""
    shipped: list[bytes] = []
    async with simulation.cluster(brokers=3) as cluster:
        for topic in ("orders", "shipments"):
            await cluster.create_topic(topic, partitions=2, replication_factor=3)
        servers = cluster.bootstrap_servers
        service = asyncio.create_task(ship(servers, shipped))
        async with simulation.chaos(cluster, every_s=10, lasting_s=10) as chaos:
            await asyncio.gather(place_orders(simulation, servers), chaos.happened(FAULTS))
        # All is well again: a minute is enough to catch up.
        deadline = simulation.loop.time() + 60
        while len(set(shipped)) < ORDERS:
            assert simulation.loop.time() < deadline, "an order is missing"
            await asyncio.sleep(1)
        service.cancel()
        await asyncio.wait([service])
    return round(simulation.loop.time())


@pytest.mark.simulated(seeds=5)
async def test_every_order_is_shipped(simulation: Simulation) -> None:
    await run(simulation)


if __name__ == "__main__":
    logging.disable()  # what the clients say of brokers that fail on purpose
    for seed in range(3):
        print(f"seed {seed}: {simulate(run, seed=seed)} virtual seconds, every order shipped")
