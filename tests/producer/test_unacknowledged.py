"""acks=0: no response says anything of the connection."""

from __future__ import annotations

import asyncio

from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, values


def test_a_dead_connection_is_given_up() -> None:
    """A firewall forgets the connection: what is sent gets lost, and nothing resets it."""

    async def main(simulation: Simulation) -> tuple[bool, str, list[bytes | None]]:
        async with simulation.cluster(1) as cluster:
            await cluster.create_topic(TOPIC)
            faults = simulation.faults(cluster)
            options = {"acks": 0, "request_timeout_ms": 10_000, "delivery_timeout_ms": 30_000}
            async with new_producer(cluster, max_batch_size=100_000, **options) as producer:
                await producer.send_and_wait(TOPIC, b"first")
                connection = await producer.client.connection(0)
                faults.silence(0)
                sent = []
                for _ in range(60):
                    sent.append(await producer.send(TOPIC, bytes(50_000)))
                    await asyncio.sleep(1)
                await faults.heal()
                await asyncio.gather(*sent, return_exceptions=True)
                await producer.send_and_wait(TOPIC, b"last")
                await asyncio.sleep(1)
            return connection.is_open, str(connection.error), values(cluster)

    is_open, error, written = simulate(main, seed=1)
    assert not is_open and "took no byte of a full write buffer for 10 s" in error
    assert written[-1] == b"last"
