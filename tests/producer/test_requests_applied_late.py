"""Requests that a broker carries out after their client has given them up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka.errors import (
    KafkaTimeoutError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import (
    TOPIC,
    committed,
    new_producer,
    results,
    transactional,
    values,
)

OLD_RELEASES = ["0.11", "2.8"]

TIMES = {"request_timeout_ms": 1000, "delivery_timeout_ms": 1500, "retry_backoff_ms": 100}

# Of 0.8 s. Sent once more then, a record is given up 0.7 s later, with its request in flight.
FIRST_ATTEMPT = Delay(0.7, Fail(NotLeaderForPartitionError))


def test_what_followed_a_record_without_answer_is_not_written_twice() -> None:
    """It is refused while the first is missing, and then both are written after all."""

    async def main(simulation: Simulation) -> tuple[list[Any], list[bytes | None]]:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster, max_batch_size=100, **TIMES) as producer:
                await producer.send_and_wait(TOPIC, b"known", partition=0)
                goes_on = asyncio.Event()
                # The first, and the first once more; the second waits behind it.
                cluster.intercept(ProduceRequest, Hold(goes_on), times=2)
                cluster.intercept(ProduceRequest, Edit(lambda _: goes_on.set()))
                first = await producer.send(TOPIC, b"1" * 80, partition=0)
                await asyncio.sleep(0.9)
                second = await producer.send(TOPIC, b"2" * 80, partition=0)
                (lost,) = await results([first])
                found = await results([second])
            return [lost, *found], values(cluster)

    (lost, second), written = simulate(main)
    assert isinstance(lost, KafkaTimeoutError)
    assert written == [b"known", b"1" * 80, b"2" * 80]
    assert isinstance(second, OutOfOrderSequenceNumber)
    assert "may have been written" in str(second)


def test_what_followed_a_record_refused_when_it_came_again_is_not_written_twice() -> None:
    """The first request got no response. It is carried out behind the one that was refused."""

    async def main(simulation: Simulation) -> tuple[list[Any], list[bytes | None]]:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster, max_batch_size=100, **TIMES) as producer:
                await producer.send_and_wait(TOPIC, b"known", partition=0)
                goes_on = asyncio.Event()
                cluster.intercept(ProduceRequest, Hold(goes_on), times=1)
                cluster.intercept(ProduceRequest, Fail(TopicAuthorizationFailedError), times=1)
                cluster.intercept(ProduceRequest, Edit(lambda _: goes_on.set()))
                payloads = [b"1" * 80, b"2" * 80]
                sent = [await producer.send(TOPIC, each, partition=0) for each in payloads]
                found = await results(sent)
                await producer.send_and_wait(TOPIC, b"last", partition=0)
            return found, values(cluster)

    (refused, behind), written = simulate(main)
    assert written == [b"known", b"1" * 80, b"2" * 80, b"last"]
    assert isinstance(refused, TopicAuthorizationFailedError)
    assert "may have been written" in str(refused)
    assert isinstance(behind, OutOfOrderSequenceNumber)
    assert "may have been written" in str(behind)


def test_what_was_refused_behind_a_record_whose_time_is_up_goes_on() -> None:
    """Every request of both was answered, so none can be carried out any more."""

    async def main(simulation: Simulation) -> tuple[list[Any], list[bytes | None]]:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            times = {"delivery_timeout_ms": 6000, "request_timeout_ms": 5000}
            async with new_producer(cluster, max_batch_size=100, **times) as producer:
                await producer.send_and_wait(TOPIC, b"known", partition=0)
                loop = asyncio.get_running_loop()
                until = loop.time() + 6

                def lack_replicas(request: Any, context: Any) -> Any:
                    is_slow = cluster.count(ProduceRequest) == 2
                    refusal = Fail(NotEnoughReplicasError)
                    if loop.time() < until:
                        return Delay(4, refusal) if is_slow else refusal
                    return None

                cluster.intercept(ProduceRequest, lack_replicas)
                first = await producer.send(TOPIC, b"1" * 80, partition=0)
                await asyncio.sleep(3.5)
                second = await producer.send(TOPIC, b"2" * 80, partition=0)
                found = await results([first, second])
            return found, values(cluster)

    (late, behind), written = simulate(main)
    assert isinstance(late, KafkaTimeoutError)
    assert not isinstance(behind, BaseException)
    assert written == [b"known", b"2" * 80]


def test_an_aborted_record_that_is_written_late_is_not_in_the_next_transaction() -> None:
    """Its time is up while the leader still works; before KIP-890 leaders take it at any time."""

    async def main(simulation: Simulation) -> tuple[list[Any], list[bytes | None]]:
        async with FakeCluster(brokers=2, as_version="2.8") as cluster:
            await cluster.create_topic(TOPIC)
            # A broker that leads as well would end the transaction behind the record.
            cluster.move_leader((TOPIC, 0), 0)
            cluster.move_coordinator("transaction", "worker", 1)
            async with transactional(cluster, **TIMES) as producer:
                await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"first", partition=0)
                cluster.intercept(ProduceRequest, FIRST_ATTEMPT, times=1)
                goes_on = asyncio.Event()
                cluster.intercept(ProduceRequest, Hold(goes_on), times=1)
                given_up = await results([await producer.send(TOPIC, b"late", partition=0)])
                asyncio.get_running_loop().call_later(0.1, goes_on.set)
                await producer.abort_transaction()
                await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"next", partition=0)
                await producer.commit_transaction()
                assert goes_on.is_set()
            assert values(cluster)[:2] == [b"first", b"late"]
            return given_up, committed(cluster)

    (given_up,), seen = simulate(main)
    assert isinstance(given_up, KafkaTimeoutError)
    assert seen == [b"next"]


# -- requests that got no response while they were waited for, and still arrive


async def make_cluster(cluster: FakeCluster) -> None:
    """The coordinator of the transactions is another broker than the one that is late."""
    await cluster.create_topic(TOPIC)
    cluster.move_leader((TOPIC, 0), 0)
    cluster.move_coordinator("group", "group", 0)
    cluster.move_coordinator("transaction", "worker", 1)


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_a_record_without_a_response_is_not_in_the_transaction_after_its_abort(
    release: str,
) -> None:
    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=2, as_version=release) as cluster:
            await make_cluster(cluster)
            async with transactional(cluster, request_timeout_ms=1000) as producer:
                await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"first", partition=0)
                goes_on = asyncio.Event()
                with cluster.intercept(ProduceRequest, Hold(goes_on), times=1) as held:
                    await producer.send(TOPIC, b"late", partition=0)
                    await held.wait()
                    await producer.abort_transaction()
                goes_on.set()
                await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"next", partition=0)
                await producer.commit_transaction()
            return committed(cluster)

    assert simulate(main) == [b"next"]


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_a_record_without_a_response_is_refused_when_another_has_the_id(release: str) -> None:
    """A successor begins under an epoch that leaders have not heard of, either."""

    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=2, as_version=release) as cluster:
            await make_cluster(cluster)
            goes_on = asyncio.Event()
            async with transactional(cluster, request_timeout_ms=1000) as producer:
                await producer.begin_transaction()
                with cluster.intercept(ProduceRequest, Hold(goes_on), times=1) as held:
                    await producer.send(TOPIC, b"late", partition=0)
                    await held.wait()
                    await producer.abort_transaction()
            async with transactional(cluster) as successor, successor.transaction():
                goes_on.set()
                await successor.send(TOPIC, b"next", partition=0)
            return committed(cluster)

    assert simulate(main) == [b"next"]


def test_offsets_that_come_again_late_do_not_go_back() -> None:
    async def main(simulation: Simulation) -> int | None:
        async with FakeCluster(brokers=2, as_version="2.8") as cluster:
            await make_cluster(cluster)
            goes_on = asyncio.Event()
            place = TopicPartition(TOPIC, 0)
            async with transactional(cluster, request_timeout_ms=1000) as producer:
                cluster.intercept(TxnOffsetCommitRequest, Hold(goes_on), times=1)
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({place: 10}, "group")
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({place: 20}, "group")
                    goes_on.set()
            return cluster.groups.committed("group", TOPIC, 0)

    assert simulate(main) == 20


def test_offsets_that_come_again_late_are_not_pending_for_ever() -> None:
    """No reader could begin: a coordinator holds back offsets that may change."""

    async def main(simulation: Simulation) -> bool:
        async with FakeCluster(brokers=2, as_version="2.8") as cluster:
            await make_cluster(cluster)
            goes_on = asyncio.Event()
            async with transactional(cluster, request_timeout_ms=1000) as producer:
                cluster.intercept(TxnOffsetCommitRequest, Hold(goes_on), times=1)
                async with producer.transaction():
                    offsets = {TopicPartition(TOPIC, 0): 10}
                    await producer.send_offsets_to_transaction(offsets, "group")
                goes_on.set()
                async with producer.transaction():
                    await producer.send(TOPIC, b"other", partition=0)
            return cluster.groups.offsets_of("group").is_unstable((TOPIC, 0))

    assert not simulate(main)


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_an_end_that_comes_again_late_does_not_end_the_next_transaction(release: str) -> None:
    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=2, as_version=release) as cluster:
            await make_cluster(cluster)
            goes_on = asyncio.Event()
            async with transactional(cluster, request_timeout_ms=1000) as producer:
                cluster.intercept(EndTxnRequest, Hold(goes_on), times=1)
                async with producer.transaction():
                    await producer.send(TOPIC, b"first", partition=0)
                await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"no", partition=0)
                goes_on.set()
                await producer.send_and_wait(TOPIC, b"nor this", partition=0)
                await producer.abort_transaction()
            return committed(cluster)

    assert simulate(main) == [b"first"]


def test_a_partition_that_is_gone_needs_no_protection() -> None:
    """Nothing can be added to a transaction for it, and an abort ends all the same."""

    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=2, as_version="2.8") as cluster:
            await make_cluster(cluster)
            await cluster.create_topic("other")
            goes_on = asyncio.Event()
            async with transactional(cluster, request_timeout_ms=1000) as producer:
                await producer.begin_transaction()
                cluster.intercept(ProduceRequest, Hold(goes_on), times=2)
                await producer.send(TOPIC, b"late", partition=0)
                await producer.send("other", b"late", partition=0)
                await cluster.wait_for(lambda: cluster.count(ProduceRequest) > 0)
                await cluster.delete_topic("other")
                await producer.abort_transaction()
                goes_on.set()
                async with producer.transaction():
                    await producer.send(TOPIC, b"next", partition=0)
            return committed(cluster)

    assert simulate(main) == [b"next"]


def test_a_protection_without_a_response_is_tried_again() -> None:
    async def main(simulation: Simulation) -> tuple[list[bytes | None], list[bool]]:
        async with FakeCluster(brokers=2, as_version="2.8") as cluster:
            await make_cluster(cluster)
            goes_on, later = asyncio.Event(), asyncio.Event()
            options = {"request_timeout_ms": 1000, "max_block_ms": 1500}
            async with transactional(cluster, **options) as producer:
                await producer.begin_transaction()
                with cluster.intercept(ProduceRequest, Hold(goes_on), times=1) as held:
                    await producer.send(TOPIC, b"late", partition=0)
                    await held.wait()
                cluster.intercept(AddPartitionsToTxnRequest, Hold(later), times=1)
                with pytest.raises(KafkaTimeoutError):
                    await producer.abort_transaction()
                await producer.abort_transaction()
                goes_on.set()
                later.set()
                async with producer.transaction():
                    await producer.send(TOPIC, b"next", partition=0)
            ends = [seen.request.committed for seen in cluster.requests(EndTxnRequest)]
            return committed(cluster), ends

    seen, ends = simulate(main)
    assert seen == [b"next"]
    # The transaction, the protection, and before each of two epochs: whether the id is still ours.
    assert ends == [False, False, False, False, True]


@pytest.mark.parametrize(
    "answer",
    [
        lambda goes_on: Hold(goes_on),
        lambda goes_on: Hold(goes_on, Fail(NotLeaderForPartitionError)),
        lambda goes_on: Hold(goes_on, Cut()),
        lambda goes_on: Silence(),
    ],
    ids=["refused by its epoch", "another error", "no connection", "no response"],
)
def test_a_late_response_to_an_aborted_record_is_nothing_to_the_next_transaction(
    answer: Callable[[asyncio.Event], Any],
) -> None:
    """Since KIP-890 an abort does not wait for it."""

    async def main(simulation: Simulation) -> tuple[list[Any], list[bytes | None]]:
        async with FakeCluster(brokers=2) as cluster:
            await cluster.create_topic(TOPIC, partitions=2)
            # To a broker that leads as well the abort would be behind the record.
            cluster.move_leader((TOPIC, 0), 0)
            cluster.move_leader((TOPIC, 1), 1)
            cluster.move_coordinator("transaction", "worker", 1)
            async with transactional(cluster, **TIMES) as producer:
                await producer.begin_transaction()
                goes_on = asyncio.Event()
                cluster.intercept(ProduceRequest, FIRST_ATTEMPT, times=1)
                cluster.intercept(ProduceRequest, answer(goes_on), times=1)
                given_up = await results([await producer.send(TOPIC, b"late", partition=0)])
                await producer.abort_transaction()
                await producer.begin_transaction()
                await producer.send(TOPIC, b"next", partition=1)
                # Waits for the response as well: it follows the record that was given up.
                behind = await producer.send(TOPIC, b"behind", partition=0)
                goes_on.set()
                await behind
                await producer.commit_transaction()
            return given_up, committed(cluster) + committed(cluster, partition=1)

    (given_up,), seen = simulate(main)
    assert isinstance(given_up, KafkaTimeoutError)
    assert seen == [b"behind", b"next"]
