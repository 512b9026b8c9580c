"""Transactions one after the other, on a cluster that needs some time for the markers (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, committed, transactional

LEADER_BACKOFF = 0.0205
"""Seconds after which a leader asks a coordinator again that is still writing markers."""


LATENCY = 0.0001

QUICK = 0.001
"""More seconds than a transaction takes without waits."""


class SlowMarkers:
    """Delays Produce requests as leaders do until the markers are written.

    markers: seconds from EndTxn until then. response: seconds for every Produce request.
    """

    def __init__(self, markers: float = 0.0, response: float = 0.0) -> None:
        self.markers = markers
        self.response = response
        self.refused = 0
        """Requests that came too early."""
        self._written_at = 0.0

    async def on_end(self, _request: Any, _context: Any) -> None:
        self._written_at = asyncio.get_running_loop().time() + self.markers

    async def on_produce(self, _request: Any, _context: Any) -> None:
        while asyncio.get_running_loop().time() < self._written_at:
            self.refused += 1
            await asyncio.sleep(LEADER_BACKOFF)
        await asyncio.sleep(self.response)


def run(slow: SlowMarkers, work: Callable[[AIOKafkaProducer], Any], release: str = "4.3") -> Any:
    """Return the result of `work`, in virtual time."""

    async def main(simulation: Simulation) -> Any:
        async with FakeCluster(as_version=release) as cluster:
            simulation.faults(cluster).slow(0, LATENCY, LATENCY)
            await cluster.create_topic(TOPIC)
            cluster.intercept(EndTxnRequest, slow.on_end)
            cluster.intercept(ProduceRequest, slow.on_produce)
            cluster.intercept(TxnOffsetCommitRequest, slow.on_produce)
            async with transactional(cluster) as producer:
                result = await work(producer)
            assert None not in committed(cluster)
            return result

    return simulate(main)


async def write(producer: AIOKafkaProducer, count: int, pause: float = 0.0) -> float:
    """Write `count` transactions; return the mean time in seconds of each."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for _ in range(count):
        await asyncio.sleep(pause)
        async with producer.transaction():
            await producer.send(TOPIC, b"v")
    return (loop.time() - begin) / count - pause


@pytest.mark.parametrize("markers", [0.0005, 0.0035])
def test_records_wait_for_the_markers_of_the_last_transaction(markers: float) -> None:
    slow = SlowMarkers(markers)
    took = run(slow, lambda producer: write(producer, 400))
    assert slow.refused < 30
    assert markers < took < markers + 0.004


def test_a_transaction_of_many_requests_waits_as_well() -> None:
    async def work(producer: AIOKafkaProducer) -> None:
        for _ in range(20):
            async with producer.transaction():
                for _ in range(30):
                    await producer.send_and_wait(TOPIC, b"v")

    slow = SlowMarkers(0.0015)
    run(slow, work)
    assert slow.refused < 12


def test_offsets_wait_for_the_markers_of_the_last_transaction() -> None:
    async def work(producer: AIOKafkaProducer) -> None:
        await write(producer, 50)
        refused = slow.refused
        for number in range(20):
            async with producer.transaction():
                offsets = {TopicPartition(TOPIC, 0): number}
                await producer.send_offsets_to_transaction(offsets, "group")
        assert slow.refused == refused

    slow = SlowMarkers(0.0015)
    run(slow, work)


def test_without_late_markers_nothing_waits() -> None:
    assert run(SlowMarkers(), lambda producer: write(producer, 50)) < QUICK


def test_the_pause_ends_when_markers_are_written_sooner() -> None:
    async def work(producer: AIOKafkaProducer) -> float:
        assert await write(producer, 50) > slow.markers
        slow.markers = 0.0
        await write(producer, 450)
        return await write(producer, 50)

    slow = SlowMarkers(0.0015)
    assert run(slow, work) < QUICK


def test_an_application_that_takes_longer_than_the_markers_does_not_wait() -> None:
    async def work(producer: AIOKafkaProducer) -> float:
        await write(producer, 50)
        return await write(producer, 50, pause=0.006)

    slow = SlowMarkers(0.0035)
    assert run(slow, work) < QUICK


def test_brokers_that_are_slow_for_another_reason_are_not_made_slower() -> None:
    async def work(producer: AIOKafkaProducer) -> float:
        await write(producer, 60)
        return await write(producer, 60)

    slow = SlowMarkers(response=0.03)
    assert run(slow, work) < slow.response + QUICK


def test_slow_responses_long_after_the_last_transaction_cause_no_pause() -> None:
    async def work(producer: AIOKafkaProducer) -> float:
        await write(producer, 30, pause=0.02)
        slow.response = 0.0
        return await write(producer, 30)

    slow = SlowMarkers(response=0.03)
    assert run(slow, work) < QUICK


def test_a_rare_slow_response_causes_no_pause() -> None:
    async def work(producer: AIOKafkaProducer) -> float:
        took = 0.0
        for _ in range(8):
            slow.response = 0.05
            await write(producer, 1)
            slow.response = 0.0
            took = max(took, await write(producer, 30))
        return took

    slow = SlowMarkers()
    assert run(slow, work) < QUICK


def test_transactions_of_version_1_have_no_pause() -> None:
    """The coordinator refuses to add their partitions, so the client sees the reason."""
    slow = SlowMarkers(response=0.03)
    assert run(slow, lambda producer: write(producer, 60), release="3.9") < slow.response + QUICK
