"""A producer whose transactional id was taken hears so from every call; nothing of it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionAbortable,
)
from aiokafka.protocol.messages.produce import InitProducerIdRequest, ProduceRequest
from aiokafka.protocol.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import Cut, Fail, FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, committed, results, transactional

RELEASES = ["0.11", "2.1", "2.8", "3.9", "4.3"]
OFFSETS = {TopicPartition(TOPIC, 0): 1}

Call = Callable[[Any], Awaitable[Any]]

FIRST_CALLS: dict[str, Call] = {
    "send_and_wait": lambda producer: producer.send_and_wait(TOPIC, b"no", partition=0),
    "send elsewhere": lambda producer: producer.send_and_wait(TOPIC, b"no", partition=1),
    "offsets": lambda producer: producer.send_offsets_to_transaction(OFFSETS, "group"),
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
}


async def begun(cluster: FakeCluster) -> Any:
    """Return a producer whose transaction is open, with a record in partition 0."""
    producer = transactional(cluster)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(TOPIC, b"before", partition=0)
    return producer


async def check_fenced(producer: Any) -> None:
    """Every call says so, as often as it is made."""
    calls = [
        *FIRST_CALLS.values(),
        lambda producer: producer.send(TOPIC, b"no"),
        lambda producer: producer.begin_transaction(),
    ]
    for call in calls * 2:
        with pytest.raises(ProducerFenced) as caught:
            await call(producer)
        assert caught.value.is_fatal
    with pytest.raises(ProducerFenced):
        async with producer.transaction():
            pass


@pytest.mark.parametrize("first", FIRST_CALLS)
@pytest.mark.parametrize("release", RELEASES)
async def test_every_call_says_so(release: str, first: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC, partitions=2)
        old = await begun(cluster)
        async with transactional(cluster) as new:
            async with new.transaction():
                await new.send(TOPIC, b"new", partition=0)
            async with timeout(20):
                with pytest.raises(ProducerFenced):
                    await FIRST_CALLS[first](old)
                await check_fenced(old)
            async with new.transaction():
                await new.send(TOPIC, b"new", partition=0)
        async with timeout(20):
            await old.stop()
        assert committed(cluster) == [b"new", b"new"]
        assert committed(cluster, 1) == []
        assert cluster.failures == []


@pytest.mark.parametrize("first", FIRST_CALLS)
@pytest.mark.parametrize("release", RELEASES)
async def test_the_open_transaction_of_the_successor_goes_on(release: str, first: str) -> None:
    """A coordinator that is asked for the next epoch of the old producer would end it."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC, partitions=2)
        old = await begun(cluster)
        async with transactional(cluster) as new, timeout(20):
            async with new.transaction():
                await new.send_and_wait(TOPIC, b"new", partition=0)
                with pytest.raises(ProducerFenced):
                    await FIRST_CALLS[first](old)
                await old.stop()
                await new.send_and_wait(TOPIC, b"newer", partition=0)
        assert committed(cluster) == [b"new", b"newer"]


@pytest.mark.parametrize("release", RELEASES)
async def test_records_of_many_partitions(release: str) -> None:
    """All of them fail with the same error, and the coordinator is asked once."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC, partitions=6)
        old = transactional(cluster, max_batch_size=100)
        await old.start()
        await old.begin_transaction()
        for number in range(6):
            await old.send_and_wait(TOPIC, b"before", partition=number)
        async with transactional(cluster):
            cluster.forget_requests()
            futures = [await old.send(TOPIC, b"no", partition=n % 6) for n in range(60)]
            assert {type(one) for one in await results(futures)} == {ProducerFenced}
            assert cluster.count(InitProducerIdRequest) <= 1
            await check_fenced(old)
        await old.stop()


@pytest.mark.parametrize("then", ["commit", "abort", "stop"])
@pytest.mark.parametrize("release", RELEASES)
async def test_a_call_that_comes_while_the_coordinator_is_asked(release: str, then: str) -> None:
    event = asyncio.Event()
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        old = await begun(cluster)
        async with transactional(cluster):
            with cluster.intercept(InitProducerIdRequest, Hold(event)):
                future = await old.send(TOPIC, b"no", partition=0)
                await asyncio.sleep(0.05)
                call = asyncio.ensure_future(
                    old.stop() if then == "stop" else FIRST_CALLS[then](old)
                )
                await asyncio.sleep(0.05)
                event.set()
                async with timeout(20):
                    (result,) = await results([call])
                    (failure,) = await results([future])
            assert isinstance(failure, KafkaError)
            if then != "stop":
                assert isinstance(result, ProducerFenced)
                await check_fenced(old)
            await old.stop()


async def take_too_long(cluster: FakeCluster, producer: Any) -> None:
    """Begin a transaction, and wait until its coordinator has aborted it."""
    await producer.begin_transaction()
    await producer.send_and_wait(TOPIC, b"late", partition=0)
    log = cluster.log(TOPIC)
    await cluster.wait_for(lambda: log.last_stable_offset == log.end_offset)


@pytest.mark.parametrize("request_type", [ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest])
async def test_late_but_not_fenced(request_type: Any) -> None:
    """The transaction took too long: it is over, the producer is not."""
    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster, transaction_timeout_ms=100) as producer:
            await take_too_long(cluster, producer)
            with pytest.raises(TransactionAbortable, match="transaction_timeout_ms=100"):
                if request_type is ProduceRequest:
                    await producer.send_and_wait(TOPIC, b"late", partition=0)
                elif request_type is TxnOffsetCommitRequest:
                    await producer.send_offsets_to_transaction(OFFSETS, "group")
                else:
                    await producer.commit_transaction()
            for _ in range(2):
                with pytest.raises(TransactionAbortable):
                    await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(TOPIC, b"next", partition=0)
        assert committed(cluster) == [b"next"]


@pytest.mark.parametrize("error", [InvalidProducerEpoch, InvalidTxnState, ProducerFenced])
@pytest.mark.parametrize("release", RELEASES)
async def test_a_leader_that_is_wrong(release: str, error: Any) -> None:
    """It says that the epoch is old, or the transaction over; the coordinator denies it."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            cluster.intercept(ProduceRequest, Fail(error), times=1)
            cluster.intercept(InitProducerIdRequest, Cut(handled=True), times=1)
            with pytest.raises((InvalidProducerEpoch, TransactionAbortable)) as caught:
                await producer.send_and_wait(TOPIC, b"no", partition=0)
            assert caught.value.requires_abort and not caught.value.is_fatal
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(TOPIC, b"next", partition=0)
        assert committed(cluster) == [b"next"]
        assert cluster.failures == []


async def test_late_in_the_words_of_a_leader() -> None:
    """Before KAFKA-19690 it says so to a record that comes together with the marker."""
    async with FakeCluster(as_version="4.0") as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster, transaction_timeout_ms=100) as producer:
            await take_too_long(cluster, producer)
            cluster.intercept(ProduceRequest, Fail(InvalidTxnState), times=1)
            with pytest.raises(TransactionAbortable, match="transaction_timeout_ms=100"):
                await producer.send_and_wait(TOPIC, b"late", partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(TOPIC, b"next", partition=0)
        assert committed(cluster) == [b"next"]


@pytest.mark.parametrize("release", ["0.11", "2.8", "4.3"])
def test_a_topic_of_the_transaction_is_gone(release: str) -> None:
    """A coordinator has no word about the epoch for those who name that topic."""

    async def main(_: Simulation) -> None:
        async with FakeCluster(as_version=release) as cluster:
            await cluster.create_topic(TOPIC)
            await cluster.create_topic("gone")
            old = transactional(cluster)
            await old.start()
            await old.begin_transaction()
            for topic in ("gone", TOPIC):
                await old.send_and_wait(topic, b"before", partition=0)
            await cluster.delete_topic("gone")
            async with transactional(cluster):
                with pytest.raises(ProducerFenced):
                    await old.send_and_wait(TOPIC, b"no", partition=0)
            await old.stop()

    simulate(main)
