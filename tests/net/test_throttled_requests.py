"""Requests that are sent while a broker reads nothing from their connection, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokafka.errors import KafkaError
from aiokafka.net.connection import BrokerConnection, SendGate
from aiokafka.net.pool import ConnectionPool
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.net.support import pooled, split

THROTTLE_S = 10.0
TIMEOUT_S = 2.0


# The first that responds at once, and reads nothing for the time of the throttle, is Kafka 2.0.
SILENT_ONES = ["2.1", "2.8", "4.3"]


@asynccontextmanager
async def pool_of_one(release: str = "4.3") -> AsyncIterator[tuple[FakeCluster, ConnectionPool]]:
    """A cluster of one broker, and a pool whose requests have little time."""
    async with FakeCluster(as_version=release) as cluster:
        limit_ms = TIMEOUT_S * 1000
        async with pooled(cluster.bootstrap_servers, request_timeout_ms=limit_ms) as pool:
            yield cluster, pool


@pytest.mark.parametrize("release", SILENT_ONES)
@pytest.mark.parametrize("is_patient", [True, False])
def test_the_time_of_a_throttle_is_granted_on_top(is_patient: bool, release: str) -> None:
    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        async with pool_of_one(release) as (cluster, pool):
            connection = await pool.get(0)
            cluster.throttle(int(THROTTLE_S * 1000))
            await connection.request(MetadataRequest(topics=[]))
            cluster.throttle(0)
            began = loop.time()
            request = MetadataRequest(topics=[])
            if is_patient:
                await connection.request(request)
            else:
                await connection.send_nowait(request)
            assert connection.is_open
            return loop.time() - began

    assert simulate(main) == pytest.approx(THROTTLE_S, abs=0.5)


def test_the_time_of_throttles_that_begin_meanwhile_is_granted_as_well() -> None:
    """Each response to what is in flight brings one, and what waits to be sent had the first."""

    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        async with pool_of_one() as (cluster, pool):
            connection = await pool.get(0)
            cluster.throttle(int(THROTTLE_S * 1000))
            began = loop.time()
            sent = [connection.send_nowait(MetadataRequest(topics=[])) for _ in range(3)]
            await sent[0]
            await connection.request(MetadataRequest(topics=[]))
            assert connection.is_open
            assert all(future.done() for future in sent)
            cluster.throttle(0)
            return loop.time() - began

    assert simulate(main) == pytest.approx(3 * THROTTLE_S, abs=0.5)


@pytest.mark.parametrize("release", SILENT_ONES)
def test_a_throttle_in_the_handshake_counts(release: str) -> None:
    """It was not heard of, so that the first request was late, and ended the connection."""

    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        async with pool_of_one(release) as (cluster, pool):
            # From here on brokers before 2.4 are asked in a version that has room for it.
            former = await pool.get(0)
            former.close()
            await former.closed
            cluster.throttle(int(THROTTLE_S * 1000))
            began = loop.time()
            connection = await pool.get(0)
            assert not connection.is_ready
            await connection.request(MetadataRequest(topics=[]))
            cluster.throttle(0)
            return loop.time() - began

    assert simulate(main) == pytest.approx(THROTTLE_S, abs=0.5)


@pytest.mark.parametrize("release", ["0.11", "1.1"])
def test_brokers_that_wait_before_they_respond_may_be_asked_at_once(release: str) -> None:
    """Up to Kafka 1.1 the time of a throttle is over when a response tells of it."""

    async def main(simulation: Simulation) -> None:
        async with pool_of_one(release) as (cluster, pool):
            cluster.throttle(int(THROTTLE_S * 1000))
            connection = await pool.get(0)
            assert connection.is_ready
            await connection.request(MetadataRequest(topics=[]), timeout=2 * THROTTLE_S)
            assert connection.is_ready

    simulate(main)


def test_after_a_throttle_silence_is_a_failure_again() -> None:
    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        async with pool_of_one() as (cluster, pool):
            connection = await pool.get(0)
            cluster.throttle(int(THROTTLE_S * 1000))
            await connection.request(MetadataRequest(topics=[]))
            began = loop.time()
            simulation.network.line(*split(cluster.bootstrap_servers)).lose()
            with pytest.raises(KafkaError):
                await connection.send_nowait(MetadataRequest(topics=[]))
            return loop.time() - began

    assert simulate(main) == pytest.approx(THROTTLE_S + TIMEOUT_S, abs=0.5)


def test_a_broker_that_takes_no_bytes_is_given_up() -> None:
    """Requests without a response would have waited for the system to give up, a quarter of an
    hour; slow ones, and those of a broker that throttles, are patient."""

    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            address = cluster.bootstrap_servers
            async with pooled(address, request_timeout_ms=TIMEOUT_S * 1000) as pool:
                connection = await pool.get(0)
                line = simulation.network.line(*split(cluster.bootstrap_servers))
                for _ in range(3):
                    line.lose()
                    fill(connection)
                    await asyncio.sleep(0.9 * TIMEOUT_S)
                    line.restore()
                    await connection.request(MetadataRequest(topics=[]))
                line.lose()
                began = loop.time()
                fill(connection)
                await connection.closed
                assert loop.time() - began == pytest.approx(TIMEOUT_S, abs=0.5)
                assert "read no bytes for 2 s" in str(connection.error)

    simulate(main)


def fill(connection: BrokerConnection) -> None:
    """Send requests without a response until no more may be sent."""
    batch = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 60_000)
    batch.append(0, 1, None, b"x" * 50_000, [])
    partition = PartitionProduceData(index=0, records=bytes(batch.build()))
    topic = TopicProduceData(name="t", partition_data=[partition])
    while connection.is_ready:
        connection.send_nowait(
            ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic]), version=8
        )


async def test_no_broker_silences_a_connection_for_weeks() -> None:
    """The field has room for 24 days."""
    loop = asyncio.get_running_loop()
    gate = SendGate(loop)
    assert gate.throttle(2.0**31 / 1000) == 60.0
    assert gate.throttled_until <= loop.time() + 60.0
    assert gate.throttle(5.0) == 5.0
    assert gate.throttled_until > loop.time() + 30.0
