"""Ends of a transaction that the coordinator refuses, or does not explain in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceId,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFenced,
    TransactionAbortable,
    TransactionStateError,
    UnknownError,
    for_code,
)
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import Cut, Edit, Fail, FakeCluster, Hold, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, committed, transactional


@pytest.mark.parametrize("release", ["2.8", "4.3"])
async def test_an_abort_that_is_refused_is_the_end_of_the_producer(release: str) -> None:
    """What the coordinator holds open cannot be ended any more: nothing may be added to it."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"v", partition=0)
            with cluster.intercept(EndTxnRequest, Fail(InvalidProducerIdMapping), times=1):
                with pytest.raises(InvalidProducerIdMapping):
                    await producer.abort_transaction()
            for call in (producer.begin_transaction, producer.abort_transaction):
                with pytest.raises(InvalidProducerIdMapping):
                    await call()
            with pytest.raises(InvalidProducerIdMapping):
                await producer.send(TOPIC, b"w")
        assert committed(cluster) == []


@pytest.mark.parametrize("release", ["2.8", "4.3"])
async def test_a_commit_that_is_refused_can_be_aborted(release: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"no", partition=0)
            with cluster.intercept(EndTxnRequest, Fail(InvalidProducerIdMapping), times=1):
                with pytest.raises(InvalidProducerIdMapping):
                    await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(TOPIC, b"yes", partition=0)
        assert committed(cluster) == [b"yes"]


def fenced_commits(request: EndTxnRequest, _: Any) -> Fail | None:
    return Fail(ProducerFenced) if request.committed else None


async def test_no_time_to_find_out_whether_the_producer_was_fenced(cluster: FakeCluster) -> None:
    """Nothing is known then, and the call can be made again. An abort finds it out."""
    async with transactional(cluster, max_block_ms=500) as producer, timeout(30):
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"no", partition=0)
        with cluster.intercept(EndTxnRequest, fenced_commits):
            with cluster.intercept(EndTxnRequest, Silence()):
                with pytest.raises(KafkaTimeoutError):
                    await producer.commit_transaction()
            cluster.drop_connections()
            with pytest.raises(TransactionAbortable, match="ended by its coordinator"):
                await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"yes", partition=0)
    assert committed(cluster) == [b"yes"]


@pytest.mark.parametrize("call", ["commit", "begin"])
def test_a_silent_coordinator_is_left_though_calls_are_short(call: str) -> None:
    """Another one has taken over. No call lasts until the silent one counts as gone."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(3) as cluster:
            await cluster.create_topic(TOPIC, assignment={0: (0,)})
            cluster.move_coordinator("transaction", "worker", 2)
            async with transactional(cluster, max_block_ms=1000) as producer:
                if call == "commit":
                    await producer.begin_transaction()
                    await producer.send_and_wait(TOPIC, b"v", partition=0)
                faults = simulation.faults(cluster)
                faults.silence(2)
                cluster.move_coordinator("transaction", "worker", 1)
                if call == "begin":
                    await asyncio.sleep(700)  # the idle connection is closed
                method = getattr(producer, f"{call}_transaction")
                with pytest.raises(KafkaTimeoutError):
                    await method()
                await asyncio.sleep(20)
                await method()
                await faults.heal()

    simulate(main)


@pytest.mark.parametrize("release", ["2.8", "4.3"])
def test_a_timeout_that_no_other_commit_mends_says_so(release: str) -> None:
    """A program calls a commit again after a KafkaTimeoutError. That must have an end: it aborts
    when the time of a record is over, not only that of the call."""
    seen: list[bool] = []

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(3, as_version=release) as cluster:
            await cluster.create_topic(TOPIC, replication_factor=3)
            options = {"max_block_ms": 1000, "delivery_timeout_ms": 2500, "request_timeout_ms": 900}
            async with transactional(cluster, **options) as producer:
                await producer.begin_transaction()
                with cluster.intercept(ProduceRequest, Fail(NotEnoughReplicasError)):
                    sent = await producer.send(TOPIC, b"no")
                    for _ in range(3):
                        with pytest.raises(KafkaTimeoutError) as caught:
                            await producer.commit_transaction()
                        seen.append(caught.value.requires_abort)
                    with pytest.raises(KafkaTimeoutError) as late:
                        await sent
                    assert late.value.requires_abort and not late.value.is_fatal
                with pytest.raises(KafkaTimeoutError) as failed:
                    await producer.begin_transaction()
                assert failed.value.requires_abort
                await producer.abort_transaction()
                async with producer.transaction():
                    await producer.send(TOPIC, b"yes")
            assert committed(cluster) == [b"yes"]

    simulate(main)
    assert seen == [False, False, True]


async def test_a_second_commit_waits_no_longer_than_its_own_time(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    async with transactional(cluster, max_block_ms=400) as producer, timeout(30):
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"v", partition=0)
        with cluster.intercept(EndTxnRequest, Hold(release), times=1) as held:
            first = asyncio.ensure_future(producer.commit_transaction())
            await held.wait()
            await asyncio.sleep(0.05)
            second = asyncio.ensure_future(producer.commit_transaction())
            with pytest.raises(KafkaTimeoutError):
                await first
            # It goes on by itself once the first has given up.
            release.set()
            await second
    assert committed(cluster) == [b"v"]


# -- a commit that is refused after one without a response


def answer_with(errno: int) -> Edit:
    """Store the end of the transaction, and say that this is not certain."""

    def edit(response: EndTxnResponse) -> None:
        response.error_code = errno

    return Edit(edit)


OPEN = [
    Cut(handled=True),
    answer_with(CoordinatorNotAvailableError.errno),
    answer_with(NotCoordinatorError.errno),
]
UNSURE = [-1, TransactionAbortable.errno, InvalidProducerIdMapping.errno]
VERSIONS = ["2.1", "2.8", "3.9", "4.0", "4.3"]


@pytest.mark.parametrize("release", VERSIONS)
@pytest.mark.parametrize("code", UNSURE)
@pytest.mark.parametrize("first", OPEN, ids=["lost", "not available", "moved"])
async def test_what_was_committed_cannot_be_aborted(release: str, code: int, first: Any) -> None:
    """A program that aborts it and does it again would write every record twice."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            await producer.send(TOPIC, b"v", partition=0)
            cluster.intercept(EndTxnRequest, first, times=1)
            cluster.intercept(EndTxnRequest, Fail(code), times=1)
            for call in (
                producer.commit_transaction,
                producer.abort_transaction,
                producer.begin_transaction,
            ):
                with pytest.raises(InvalidTxnState, match="was committed"):
                    await call()
        assert committed(cluster) == [b"v"]


@pytest.mark.parametrize("release", VERSIONS)
async def test_an_unexpected_error_of_a_commit_leaves_it_open(release: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            await producer.send(TOPIC, b"v", partition=0)
            cluster.intercept(EndTxnRequest, answer_with(UnknownError.errno), times=1)
            with pytest.raises(InvalidTxnState, match="was committed"):
                await producer.commit_transaction()
        assert committed(cluster) == [b"v"]


@pytest.mark.parametrize("release", VERSIONS)
async def test_a_cancelled_commit_that_is_refused_later(release: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            await producer.send(TOPIC, b"v", partition=0)
            with cluster.intercept(EndTxnRequest, Silence(handled=True)) as silent:
                committing = asyncio.ensure_future(producer.commit_transaction())
                await silent.wait()
                committing.cancel()
                await asyncio.wait([committing])
            cluster.drop_connections()
            cluster.intercept(EndTxnRequest, Fail(-1), times=1)
            with pytest.raises(InvalidTxnState, match="was committed"):
                await producer.commit_transaction()
        assert committed(cluster) == [b"v"]


@pytest.mark.parametrize("release", VERSIONS)
@pytest.mark.parametrize("code", UNSURE)
async def test_what_was_not_committed_is_aborted(release: str, code: int) -> None:
    """The request without a response was lost, or arrives when it is too late."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            await producer.send(TOPIC, b"no", partition=0)
            cluster.intercept(EndTxnRequest, Cut(), times=1)
            cluster.intercept(EndTxnRequest, Fail(code), times=1)
            for _ in range(2):
                with pytest.raises(for_code(code)):
                    await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(TOPIC, b"yes", partition=0)
        told = [seen.request.committed for seen in cluster.requests(EndTxnRequest)]
        # Before KIP-890 a transaction of nothing may follow the abort, which shuts out what strays.
        assert (told[:3], told[-1]) == ([True, True, False], True)
        assert committed(cluster) == [b"yes"]
        assert cluster.failures == []


@pytest.mark.parametrize("release", VERSIONS)
async def test_nothing_is_decided_until_the_coordinator_has_answered(release: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster, max_block_ms=500) as producer:
            await producer.begin_transaction()
            await producer.send(TOPIC, b"v", partition=0)
            cluster.intercept(EndTxnRequest, Cut(), times=1)
            cluster.intercept(EndTxnRequest, Fail(-1), times=1)
            with cluster.intercept(EndTxnRequest, Silence()):
                with pytest.raises(KafkaTimeoutError):
                    await producer.commit_transaction()
            cluster.drop_connections()
            with pytest.raises(TransactionStateError, match="committing"):
                await producer.abort_transaction()
            await producer.commit_transaction()
        assert committed(cluster) == [b"v"]


async def test_a_coordinator_that_refuses_everything_ends_the_producer(
    cluster: FakeCluster,
) -> None:
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        await producer.send(TOPIC, b"v", partition=0)
        cluster.intercept(EndTxnRequest, Cut(handled=True), times=1)
        with cluster.intercept(EndTxnRequest, Fail(-1)):
            for call in (producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(UnknownError) as caught:
                    await call()
                assert caught.value.is_fatal, call
        with pytest.raises(UnknownError) as caught:
            await producer.begin_transaction()
        assert caught.value.is_fatal


@pytest.mark.parametrize("release", ["4.0", "4.3"])
async def test_an_abort_in_an_invalid_state_was_not_of_nothing(release: str) -> None:
    """In transactions of version 2 an abort of nothing succeeds."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"v", partition=0)
            cluster.intercept(EndTxnRequest, Fail(InvalidTxnState), times=1)
            for call in (producer.abort_transaction, producer.begin_transaction):
                with pytest.raises(InvalidTxnState):
                    await call()


@pytest.mark.parametrize("release", ["0.11", "3.9"])
@pytest.mark.parametrize("has_records", [False, True])
async def test_a_transaction_that_others_have_ended_is_not_as_good_as_aborted(
    release: str, has_records: bool
) -> None:
    """In version 1 only an abort of nothing is refused like this."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            if has_records:
                await producer.send_and_wait(TOPIC, b"v", partition=0)
            else:
                # Such a request leaves nothing behind, but may have reached the coordinator.
                cluster.intercept(AddPartitionsToTxnRequest, Fail(TransactionAbortable), times=1)
                with pytest.raises(KafkaError):
                    await producer.send_and_wait(TOPIC, b"v", partition=0)
            cluster.intercept(EndTxnRequest, Fail(InvalidTxnState), times=1)
            if has_records:
                for call in (producer.abort_transaction, producer.begin_transaction):
                    with pytest.raises(InvalidTxnState):
                        await call()
            else:
                await producer.abort_transaction()
                await producer.begin_transaction()


@pytest.mark.parametrize("release", ["2.8", "4.3"])
async def test_a_fenced_consumer_is_not_the_end_of_the_producer(release: str) -> None:
    """Another consumer has its group_instance_id. The producer aborts, and goes on."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            with cluster.intercept(TxnOffsetCommitRequest, Fail(FencedInstanceId)):
                with pytest.raises(FencedInstanceId) as caught:
                    async with producer.transaction():
                        await producer.send(TOPIC, b"no", partition=0)
                        await producer.send_offsets_to_transaction(
                            {TopicPartition(TOPIC, 0): 1}, "g"
                        )
            assert caught.value.requires_abort and not caught.value.is_fatal
            async with producer.transaction():
                await producer.send(TOPIC, b"yes", partition=0)
        assert committed(cluster) == [b"yes"]
