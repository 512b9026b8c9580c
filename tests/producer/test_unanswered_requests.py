"""How brokers are told to refuse what got no response, before KIP-890: what can go wrong then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailableError,
    InvalidProducerIdMapping,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    TransactionStateError,
)
from aiokafka.producer import AIOKafkaProducer
from aiokafka.protocol.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
)
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, committed, results, transactional

OLD_RELEASES = ["0.11", "2.8"]


async def make_cluster(cluster: FakeCluster) -> None:
    """The coordinator of the transactions is another broker than the one that loses responses."""
    await cluster.create_topic(TOPIC)
    cluster.move_leader((TOPIC, 0), 0)
    cluster.move_coordinator("group", "group", 0)
    cluster.move_coordinator("transaction", "worker", 1)


async def begin_with_stray_offsets(cluster: FakeCluster, producer: AIOKafkaProducer) -> None:
    """Begin a transaction with offsets that were sent twice: the first response was lost."""
    await producer.begin_transaction()
    cluster.intercept(TxnOffsetCommitRequest, Cut(handled=True), times=1)
    await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 10}, "group")


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_a_call_that_is_repeated_does_not_begin_the_protection_again(release: str) -> None:
    """No single call has the time for all of it."""

    async def main(simulation: Simulation) -> bool:
        async with FakeCluster(brokers=2, as_version=release) as cluster:
            await make_cluster(cluster)
            async with transactional(cluster, max_block_ms=500) as producer:
                await begin_with_stray_offsets(cluster, producer)
                for slow in (AddOffsetsToTxnRequest, EndTxnRequest):
                    cluster.intercept(slow, Delay(0.3))
                await producer.commit_transaction()
                for _ in range(9):
                    await asyncio.sleep(0.3)  # until what was given up is off the connection
                    with contextlib.suppress(KafkaTimeoutError):
                        await producer.begin_transaction()
                        return True
        return False

    assert simulate(main)


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_a_commit_that_is_stored_returns_without_time_for_its_protection(release: str) -> None:
    """An error could make the program do the work again."""

    async def main(simulation: Simulation) -> tuple[int | None, list[bytes | None]]:
        async with FakeCluster(brokers=2, as_version=release) as cluster:
            await make_cluster(cluster)
            async with transactional(cluster, max_block_ms=500) as producer:
                await begin_with_stray_offsets(cluster, producer)
                with cluster.intercept(InitProducerIdRequest, Fail(ConcurrentTransactions)):
                    await producer.commit_transaction()
                    with pytest.raises(TransactionStateError, match="no transaction is open"):
                        await producer.abort_transaction()
                    with pytest.raises(TransactionStateError, match="not in transaction"):
                        await producer.send(TOPIC, b"too early", partition=0)
                    with pytest.raises(KafkaTimeoutError):
                        await producer.begin_transaction()
                async with producer.transaction():
                    await producer.send(TOPIC, b"next", partition=0)
            return cluster.groups.committed("group", TOPIC, 0), committed(cluster)

    assert simulate(main) == (10, [b"next"])


def test_stop_goes_on_with_the_protection_of_a_commit() -> None:
    async def main(simulation: Simulation) -> list[bool]:
        async with FakeCluster(brokers=2, as_version="2.8") as cluster:
            await make_cluster(cluster)
            async with transactional(cluster, max_block_ms=500) as producer:
                await begin_with_stray_offsets(cluster, producer)
                with cluster.intercept(InitProducerIdRequest, Fail(ConcurrentTransactions)):
                    await producer.commit_transaction()
            return [seen.request.committed for seen in cluster.requests(EndTxnRequest)]

    # The last one is the protection's; before each epoch one asks whether the id is still ours.
    assert simulate(main) == [True, False, False, False]


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_a_protection_that_goes_on_late_does_not_fence_a_successor(release: str) -> None:
    """InitProducerId ends the open transaction of another producer, also where it is refused.
    Before Kafka 2.5 it gives an epoch to any producer that asks.
    """

    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=2, as_version=release) as cluster:
            await make_cluster(cluster)
            async with transactional(cluster, max_block_ms=500) as producer:
                await begin_with_stray_offsets(cluster, producer)
                with cluster.intercept(InitProducerIdRequest, Fail(ConcurrentTransactions)):
                    await producer.commit_transaction()
                async with transactional(cluster) as successor, successor.transaction():
                    await successor.send_and_wait(TOPIC, b"next", partition=0)
                    await producer.stop()
            return committed(cluster)

    assert simulate(main) == [b"next"]


def test_a_protection_goes_on_after_the_id_was_forgotten() -> None:
    """By default that takes seven days without a transaction."""

    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=2, as_version="2.8") as cluster:
            await make_cluster(cluster)
            async with transactional(cluster, max_block_ms=500) as producer:
                await begin_with_stray_offsets(cluster, producer)
                with cluster.intercept(InitProducerIdRequest, Fail(ConcurrentTransactions)):
                    await producer.commit_transaction()
                cluster.intercept(EndTxnRequest, Fail(InvalidProducerIdMapping), times=1)
                async with producer.transaction():
                    await producer.send(TOPIC, b"next", partition=0)
            return committed(cluster)

    assert simulate(main) == [b"next"]


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_an_epoch_that_an_abort_had_no_time_for_does_not_fence_a_successor(release: str) -> None:
    """It is for a record that was refused, and `stop()` asks for it later."""

    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(as_version=release) as cluster:
            await cluster.create_topic(TOPIC)
            async with transactional(cluster, max_block_ms=500) as producer:
                await producer.begin_transaction()
                cluster.intercept(ProduceRequest, Fail(TopicAuthorizationFailedError), times=1)
                await results([await producer.send(TOPIC, b"refused", partition=0)])
                with cluster.intercept(InitProducerIdRequest, Fail(ConcurrentTransactions)):
                    with pytest.raises(KafkaTimeoutError):
                        await producer.abort_transaction()
                async with transactional(cluster) as successor, successor.transaction():
                    await successor.send_and_wait(TOPIC, b"next", partition=0)
                    await producer.stop()
            return committed(cluster)

    assert simulate(main) == [b"next"]


def stored_perhaps(response: InitProducerIdResponse) -> None:
    response.error_code = CoordinatorNotAvailableError.errno


@pytest.mark.parametrize("release", OLD_RELEASES)
@pytest.mark.parametrize("answer", [Cut(handled=True), Edit(stored_perhaps)], ids=["lost", "open"])
def test_an_epoch_that_comes_without_a_response_is_not_taken_for_a_successors(
    release: str, answer: Any
) -> None:
    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=2, as_version=release) as cluster:
            await make_cluster(cluster)
            async with transactional(cluster, max_block_ms=500) as producer:
                await begin_with_stray_offsets(cluster, producer)
                with cluster.intercept(InitProducerIdRequest, answer) as cuts:
                    await producer.commit_transaction()
                assert cuts.hits
                async with producer.transaction():
                    await producer.send(TOPIC, b"next", partition=0)
            return committed(cluster)

    assert simulate(main) == [b"next"]


async def abort_with_strays(
    cluster: FakeCluster, count: int, change: Callable[[], Awaitable[None]], **options: Any
) -> list[bytes | None]:
    """Abort a transaction whose record got no response, nor did records to `count` partitions of
    another topic. `change` happens meanwhile. Return what is there after the next transaction.
    """
    await make_cluster(cluster)
    await cluster.create_topic("other", partitions=count)
    cluster.move_leader((TOPIC, 0), 0)
    goes_on = asyncio.Event()
    async with transactional(cluster, request_timeout_ms=200, **options) as producer:
        await producer.begin_transaction()
        cluster.intercept(ProduceRequest, Hold(goes_on), times=2)
        await producer.send(TOPIC, b"late", partition=0)
        for number in range(count):
            await producer.send("other", b"late", partition=number)
        await cluster.wait_for(lambda: cluster.count(ProduceRequest) == 2)
        await change()
        for _ in range(9):
            with contextlib.suppress(KafkaTimeoutError):
                await producer.abort_transaction()
                break
        goes_on.set()
        async with producer.transaction():
            await producer.send(TOPIC, b"next", partition=0)
    return committed(cluster)


def test_many_partitions_that_are_gone_cost_no_more_time_than_one() -> None:
    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=2, as_version="2.8") as cluster:
            return await abort_with_strays(
                cluster, 100, lambda: cluster.delete_topic("other"), retry_backoff_ms=100
            )

    assert simulate(main) == [b"next"]


def test_partitions_that_are_gone_do_not_outlast_every_abort() -> None:
    """No single call has the time to see them refused often enough."""

    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=2, as_version="2.8") as cluster:
            options = {"retry_backoff_ms": 100, "max_block_ms": 500}
            return await abort_with_strays(
                cluster, 2, lambda: cluster.delete_topic("other"), **options
            )

    assert simulate(main) == [b"next"]


def test_partitions_that_may_not_be_written_any_more_are_left_out() -> None:
    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=2, as_version="2.8") as cluster:

            async def withdraw() -> None:
                cluster.acls.withdraw("topic", "other", "write")

            return await abort_with_strays(cluster, 10, withdraw)

    assert simulate(main) == [b"next"]
