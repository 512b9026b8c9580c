"""Transactions that are aborted before the coordinator has heard of them: while it is still writing
the markers of the one before, it lets every request wait.

In transactions of version 2 (KIP-890) there is nothing to enter; records and offsets wait instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import Delay, FakeCluster
from tests.support.producers import TOPIC, committed, new_producer

OFFSETS = {TopicPartition(TOPIC, 0): 1}


@pytest.fixture(params=["0.11", "2.8", "3.9"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[FakeCluster]:
    async with FakeCluster(as_version=request.param) as fake:
        await fake.create_topic(TOPIC, partitions=3)
        yield fake
        assert fake.failures == []


@pytest.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[Any]:
    async with new_producer(cluster, transactional_id="worker") as made:
        yield made


async def end_one(cluster: FakeCluster, producer: Any, *, commit: bool) -> None:
    """A transaction whose markers are not written yet."""
    cluster.transactions.pause_markers()
    await producer.begin_transaction()
    await producer.send_and_wait(TOPIC, b"first", partition=0)
    await (producer.commit_transaction() if commit else producer.abort_transaction())
    cluster.forget_requests()


async def check_next(cluster: FakeCluster, producer: Any, *, first: bool) -> None:
    """The next transaction is whole, and is ended."""
    cluster.forget_requests()
    async with producer.transaction():
        await producer.send(TOPIC, b"next", partition=0)
    assert cluster.count(EndTxnRequest) >= 1
    assert committed(cluster) == [b"first"] * first + [b"next"]
    log = cluster.log(TOPIC)
    assert log.last_stable_offset == log.end_offset


async def abort_while_offsets_wait(
    cluster: FakeCluster, producer: Any, waiting: type[Any], *, commit: bool
) -> None:
    """Begin a transaction behind one that is not over, and abort it while `waiting`, by which its
    offsets come to the coordinator, is sent again and again."""
    await end_one(cluster, producer, commit=commit)
    await producer.begin_transaction()
    adding = asyncio.create_task(producer.send_offsets_to_transaction(OFFSETS, "group"))
    await cluster.wait_for(lambda: cluster.count(waiting) > 1)
    adding.cancel()
    await asyncio.gather(adding, return_exceptions=True)
    aborting = asyncio.create_task(producer.abort_transaction())
    await cluster.wait_for(lambda: cluster.count(EndTxnRequest) > 1)
    cluster.transactions.resume_markers()
    await aborting
    await check_next(cluster, producer, first=commit)


@pytest.mark.parametrize("commit", [True, False])
async def test_while_a_group_waits_to_be_entered(
    cluster: FakeCluster, producer: Any, commit: bool
) -> None:
    await abort_while_offsets_wait(cluster, producer, AddOffsetsToTxnRequest, commit=commit)


@pytest.mark.parametrize("commit", [True, False])
async def test_while_a_partition_waits_to_be_entered(
    cluster: FakeCluster, producer: Any, commit: bool
) -> None:
    await end_one(cluster, producer, commit=commit)
    await producer.begin_transaction()
    dropped = await producer.send(TOPIC, b"dropped", partition=0)
    await cluster.wait_for(lambda: cluster.count(AddPartitionsToTxnRequest) > 1)
    aborting = asyncio.create_task(producer.abort_transaction())
    await asyncio.gather(dropped, return_exceptions=True)
    cluster.transactions.resume_markers()
    await aborting
    await check_next(cluster, producer, first=commit)


@pytest.mark.parametrize("commit", [True, False])
async def test_while_offsets_of_version_2_wait(commit: bool) -> None:
    async with FakeCluster(as_version="4.3") as cluster:
        await cluster.create_topic(TOPIC, partitions=3)
        async with new_producer(cluster, transactional_id="worker") as producer:
            await abort_while_offsets_wait(cluster, producer, TxnOffsetCommitRequest, commit=commit)
        assert cluster.failures == []


@pytest.mark.parametrize("release", ["0.11", "2.8", "4.3"])
async def test_records_have_results_when_the_abort_returns(release: str) -> None:
    """Their leader is slower than the coordinator, which is another broker."""
    async with FakeCluster(brokers=2, as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        cluster.move_leader((TOPIC, 0), 0)
        cluster.move_coordinator("transaction", "worker", 1)
        async with new_producer(cluster, transactional_id="worker") as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"written", partition=0)
            with cluster.intercept(ProduceRequest, Delay(0.1)):
                in_flight = await producer.send(TOPIC, b"in flight", partition=0)
                await cluster.wait_for(lambda: cluster.count(ProduceRequest) == 2)
                waiting = await producer.send(TOPIC, b"waiting", partition=0)
                await producer.abort_transaction()
            assert in_flight.done() and waiting.done()
            await asyncio.gather(in_flight, waiting, return_exceptions=True)
        assert cluster.failures == []
