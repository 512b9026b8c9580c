"""The health of a producer: its state, logged once, and the age of pending records."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer, ProducerState
from aiokafka._compat import timeout
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NotEnoughReplicasError,
    ProducerClosed,
    ProducerFenced,
)
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Fail, FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, results

# -- A producer says how it is doing, and says so once


QUICK: dict[str, Any] = {
    "retry_backoff_ms": 10,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
}


async def until_state(producer: AIOKafkaProducer, state: ProducerState) -> None:
    async with timeout(10):
        while producer.health().state is not state:
            await asyncio.sleep(0.005)


async def test_from_the_beginning_to_the_end(cluster: FakeCluster) -> None:
    await cluster.create_topic("t")
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    health = producer.health()
    assert health.state == "new"
    assert (health.pending, health.pending_age_ms, health.delivery_age_ms) == (0, None, None)
    assert (health.last_error, health.error_age_ms, health.unreachable) == (None, None, ())
    await producer.start()
    assert producer.health().state == "running"
    sent = await producer.send("t", b"v")
    health = producer.health()
    assert health.pending == 1
    assert health.pending_age_ms is not None
    await sent
    health = producer.health()
    assert health.pending == 0
    assert health.delivery_age_ms is not None
    await producer.stop()
    assert producer.health().state is ProducerState.CLOSED


async def test_brokers_go_and_come_back(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("t")
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **QUICK) as producer:
        await producer.send_and_wait("t", b"v")
        caplog.set_level(logging.INFO, logger="aiokafka")
        await cluster.stop_broker(0)
        sent = await producer.send("t", b"v")
        await until_state(producer, ProducerState.UNREACHABLE)
        health = producer.health()
        assert health.reason
        assert health.pending == 1
        assert isinstance(health.last_exception, KafkaConnectionError)
        # Hundreds of attempts, with these back-offs.
        await asyncio.sleep(1.5)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) <= 5, lines
        assert sum("running -> unreachable" in line for line in lines) == 1
        await cluster.start_broker(0)
        await sent
        health = producer.health()
        assert health.state is ProducerState.RUNNING
        assert (health.reason, health.unreachable) == ("", ())
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) <= 10, lines


async def test_what_keeps_records_from_being_written(cluster: FakeCluster) -> None:
    await cluster.create_topic("t")
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **QUICK) as producer:
        with cluster.intercept(ProduceRequest, Fail(NotEnoughReplicasError)) as refusal:
            sent = await producer.send("t", b"v")
            await refusal.wait(2)
            health = producer.health()
            assert health.state is ProducerState.RUNNING  # the broker answers
            assert isinstance(health.last_exception, NotEnoughReplicasError)
            assert health.pending == 1
        await sent


async def test_fenced(cluster: FakeCluster) -> None:
    await cluster.create_topic("t")
    options = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": "x"}
    async with AIOKafkaProducer(**options) as first:
        await first.begin_transaction()
        await first.send_and_wait("t", b"v")
        async with AIOKafkaProducer(**options):
            with pytest.raises(KafkaError):
                await first.send_and_wait("t", b"v")
            with pytest.raises(ProducerFenced):
                await first.abort_transaction()
            health = first.health()
            assert health.state is ProducerState.FAILED
            assert isinstance(health.last_exception, ProducerFenced)


def test_a_throttle_longer_than_a_request_may_take_is_no_outage() -> None:
    async def main(simulation: Simulation) -> set[ProducerState]:
        async with simulation.cluster(brokers=1) as cluster:
            await cluster.create_topic("t")
            servers = cluster.bootstrap_servers
            async with AIOKafkaProducer(
                bootstrap_servers=servers, request_timeout_ms=3000
            ) as producer:
                cluster.throttle(9000)
                await producer.send_and_wait("t", b"v")
                sent = await producer.send("t", b"v")
                states = set()
                while not sent.done():
                    states.add(producer.health().state)
                    await asyncio.sleep(0.5)
                cluster.throttle(0)
                return states

    assert simulate(main) == {ProducerState.RUNNING}


# -- How long the oldest record waits, in virtual time


def test_the_age_is_that_of_the_oldest() -> None:
    async def main(simulation: Simulation) -> float | None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, partitions=3)
            async with new_producer(cluster, request_timeout_ms=60_000) as producer:
                assert producer.health().pending_age_ms is None
                cluster.intercept(ProduceRequest, Silence())
                sent = []
                for partition in range(3):
                    sent.append(await producer.send(TOPIC, b"v", partition=partition))
                    await asyncio.sleep(10)
                health = producer.health()
                assert health.pending == 3
                await producer.stop(0)
                assert all(isinstance(one, ProducerClosed) for one in await results(sent))
                return health.pending_age_ms

    assert simulate(main) == pytest.approx(30_000, abs=100)
