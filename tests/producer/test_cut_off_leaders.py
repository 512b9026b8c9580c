"""Leaders that were cut off from the other brokers. They take records, and get none replicated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Fail, FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, values


@pytest.mark.parametrize(
    "answer", [Silence(), Fail(RequestTimedOutError)], ids=["no response", "an error"]
)
@pytest.mark.parametrize("options", [{}, {"transactional_id": "worker"}], ids=["", "transactional"])
@pytest.mark.parametrize("version", ["0.11", "2.8", "4.3"])
def test_another_broker_is_asked_who_leads(
    version: str, options: dict[str, Any], answer: Any
) -> None:
    """The producer is connected to the former leader alone, which goes on naming itself."""

    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=3, as_version=version) as cluster:
            await cluster.create_topic(TOPIC, replication_factor=3)
            cluster.move_coordinator("transaction", "worker", 2)
            cluster.move_leader((TOPIC, 0), 0)
            cluster.faults.isolate(0)
            cluster.intercept(ProduceRequest, answer, broker=0)
            known = {"bootstrap_servers": cluster.address(0), "metadata_max_age_ms": 10**6}
            async with new_producer(cluster, **known, **options) as producer:
                if options:
                    await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"value", partition=0)
                if options:
                    await producer.commit_transaction()
            return values(cluster)

    assert simulate(main) == [b"value"]


def test_brokers_that_are_asked_for_certainty_alone_hold_up_nothing() -> None:
    """Now and then another one is asked, though nothing is wrong. A new topic does not wait for it
    long if it is silent."""

    async def main(simulation: Simulation) -> int:
        async with FakeCluster(brokers=3) as cluster:
            known = {"bootstrap_servers": cluster.address(0), "metadata_max_age_ms": 10**6}
            async with new_producer(cluster, **known) as producer:
                silent = [
                    cluster.intercept(MetadataRequest, Silence(), broker=broker)
                    for broker in (1, 2)
                ]
                # Simulated time, in which no other broker is asked.
                await asyncio.sleep(400)
                await cluster.create_topic(TOPIC)
                async with timeout(5):
                    await producer.partitions_for(TOPIC)
                return sum(answers.hits for answers in silent)

    assert simulate(main, limit_s=600) == 2
