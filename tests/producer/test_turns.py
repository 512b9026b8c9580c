"""What happens in callbacks of the event loop: sending, and settling responses as they are read."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka._compat import timeout
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, values


def test_the_last_response_comes_while_the_application_is_busy() -> None:
    """A batch that is not full waits for a busy application. With nothing in flight any more, and
    no new batch, it was forgotten until its time was up.
    """

    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, 2)
            size: Any = {"max_batch_size": 90_000_000, "max_request_size": 100_000_000}
            async with new_producer(
                cluster,
                max_in_flight_requests_per_connection=1,
                buffer_memory=200_000_000,
                **size,
            ) as producer:
                await producer.send_and_wait(TOPIC, b"warm", partition=0)
                release = asyncio.Event()
                with cluster.intercept(ProduceRequest, Hold(release)) as held:
                    first = await producer.send(TOPIC, b"first", partition=0)
                    await held.wait()
                    sent = [await producer.send(TOPIC, b"next", partition=1)]
                    # Longer than a batch waits for company.
                    await asyncio.sleep(0.01)
                    release.set()
                    while not first.done():
                        sent.append(await producer.send(TOPIC, b"x" * 50_000, partition=1))
                async with timeout(5):
                    await asyncio.gather(*sent)
            assert len(values(cluster, 1)) == len(sent)

    simulate(main)
