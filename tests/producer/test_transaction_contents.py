"""What becomes part of a transaction: partitions and offsets that are entered, refused, or late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka._tasks import TaskOwner
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OperationNotAttempted,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.producer.transaction_manager import Transaction
from aiokafka.producer.transaction_requests import PendingTxnRequest, PendingTxnRequests
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import Delay, Fail, FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, committed, results, send_all, transactional

T0 = TopicPartition(TOPIC, 0)


def stored(cluster: FakeCluster, group: str = "group", partition: int = 0) -> int | None:
    return cluster.groups.committed(group, TOPIC, partition)


# -- no offsets


@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
async def test_no_offsets_enter_nothing(release: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            async with producer.transaction():
                await producer.send_offsets_to_transaction({}, "group")
            with pytest.raises(ValueError, match="group"):
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({}, "")
        for request_type in (AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest):
            assert cluster.count(request_type) == 0


# -- responses without a word about a partition


@pytest.mark.parametrize("release", ["0.11", "2.1", "2.8", "4.3"])
async def test_offsets_that_a_response_leaves_out_are_sent_again(release: str) -> None:
    """They were not stored, as far as the producer knows."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        silent = TxnOffsetCommitResponse(throttle_time_ms=0, topics=[])
        with cluster.intercept(TxnOffsetCommitRequest, silent, times=2) as script:
            async with transactional(cluster) as producer:
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({T0: 2}, "group")
        assert (stored(cluster), script.hits) == (2, 2)


@pytest.mark.parametrize("release", ["0.11", "2.8"])
async def test_partitions_that_a_response_leaves_out_are_entered_again(release: str) -> None:
    """A record that is sent before its partition was entered is not part of the transaction."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        with cluster.intercept(AddPartitionsToTxnRequest, answer(("b", 0)), times=2) as script:
            async with transactional(cluster) as producer:
                async with producer.transaction():
                    sent = await producer.send(TOPIC, b"1", partition=0)
                    await cluster.wait_for(lambda: script.hits == 2)
                    assert cluster.count(ProduceRequest) == 0
                    await sent
        assert committed(cluster) == [b"1"]


def test_a_word_about_a_partition_is_not_waited_for_without_end() -> None:
    missing = f"the response lacks {TOPIC}-0"

    async def main(_: Simulation) -> None:
        async with FakeCluster(as_version="2.8") as cluster:
            await cluster.create_topic(TOPIC)
            async with transactional(cluster, max_block_ms=300) as producer:
                with cluster.intercept(AddPartitionsToTxnRequest, answer(("b", 0))):
                    with pytest.raises(KafkaTimeoutError, match=missing):
                        async with producer.transaction():
                            await producer.send_and_wait(TOPIC, b"1", partition=0)
                async with producer.transaction():
                    await producer.send_and_wait(TOPIC, b"2", partition=0)
            assert committed(cluster) == [b"2"]

    simulate(main)


# -- AddPartitionsToTxn


def answer(*codes: tuple[str, int]) -> AddPartitionsToTxnResponse:
    topics = [
        AddPartitionsToTxnTopicResult(
            name=name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
            ],
        )
        for name, code in codes
    ]
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=topics)


async def commit_two(cluster: FakeCluster, *codes: tuple[str, int]) -> None:
    """A transaction over topics a and b, whose entering is answered with `codes` once."""
    for name in ("a", "b"):
        await cluster.create_topic(name)
    async with transactional(cluster) as producer:
        await producer.partitions_for("a")
        await producer.partitions_for("b")

        def once(request: AddPartitionsToTxnRequest, context: object) -> Any:
            return answer(*codes) if len(request.v3_and_below_topics) == 2 else None

        cluster.intercept(AddPartitionsToTxnRequest, once, times=1)
        async with producer.transaction():
            # Both before the event loop turns.
            await producer.send("a", b"v", partition=0)
            await producer.send("b", b"v", partition=0)


NOT_ATTEMPTED = OperationNotAttempted.errno
UNKNOWN = UnknownTopicOrPartitionError.errno
DENIED = TopicAuthorizationFailedError.errno


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("release", ["0.11", "2.1", "2.8", "3.9"])
async def test_a_partition_that_passes_by_itself(release: str, order: int) -> None:
    async with FakeCluster(as_version=release) as cluster:
        codes = [("a", NOT_ATTEMPTED), ("b", UNKNOWN)][::order]
        await commit_two(cluster, *codes)
        assert cluster.count(AddPartitionsToTxnRequest) >= 2
        assert len(list(cluster.log("a").records())) == 1


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("other", [NOT_ATTEMPTED, UNKNOWN])
async def test_the_partition_that_is_refused_is_named(other: int, order: int) -> None:
    async with FakeCluster(as_version="2.8") as cluster:
        with pytest.raises(TopicAuthorizationFailedError, match="b-0"):
            await commit_two(cluster, *[("a", other), ("b", DENIED)][::order])


async def test_nothing_attempted_and_no_reason_given() -> None:
    async with FakeCluster(as_version="2.8") as cluster:
        with pytest.raises(OperationNotAttempted) as caught:
            await commit_two(cluster, ("a", NOT_ATTEMPTED), ("b", NOT_ATTEMPTED))
        assert caught.value.requires_abort


# -- offsets on their way when the transaction ends


@pytest.mark.parametrize("is_cancelled", [True, False])
@pytest.mark.parametrize("release", ["0.11", "2.1", "2.8", "3.9", "4.3"])
async def test_late_offsets_are_not_of_the_next_transaction(
    release: str, is_cancelled: bool
) -> None:
    """The group's coordinator is slow; the caller gives up, or another task aborts meanwhile."""
    async with FakeCluster(brokers=2, as_version=release) as cluster:
        await cluster.create_topic(TOPIC, partitions=2)
        cluster.move_coordinator("transaction", "worker", 0)
        cluster.move_coordinator("group", "group", 1)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            slow = cluster.intercept(TxnOffsetCommitRequest, Delay(0.3), times=1)
            sending = asyncio.ensure_future(
                producer.send_offsets_to_transaction({T0: 100}, "group")
            )
            await slow.wait()
            if is_cancelled:
                sending.cancel()
                await asyncio.wait([sending])
            await producer.abort_transaction()
            assert isinstance((await results([sending]))[0], BaseException)
            async with producer.transaction():
                await producer.send(TOPIC, b"v", partition=0)
                await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 1): 1}, "group")
            await asyncio.sleep(0.4)  # until the slow request would have had its effect
            async with producer.transaction():
                await producer.send(TOPIC, b"v", partition=0)
                await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 1): 2}, "group")
        assert stored(cluster) is None
        assert cluster.failures == []


@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
async def test_a_commit_waits_for_offsets_that_are_being_sent(release: str) -> None:
    event = asyncio.Event()
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            await producer.send(TOPIC, b"v", partition=0)
            with cluster.intercept(TxnOffsetCommitRequest, Hold(event), times=1) as held:
                sending = asyncio.ensure_future(
                    producer.send_offsets_to_transaction({T0: 7}, "group")
                )
                await held.wait()
                committing = asyncio.ensure_future(producer.commit_transaction())
                await asyncio.sleep(0.05)
                assert cluster.count(EndTxnRequest) == 0
                event.set()
                await asyncio.gather(sending, committing)
        assert stored(cluster) == 7


@pytest.mark.parametrize("release", ["0.11", "2.8", "4.3"])
async def test_offsets_whose_caller_is_cancelled_are_part_of_the_commit(release: str) -> None:
    """Their records are, so others would process them once more."""
    first = TxnOffsetCommitRequest if release == "4.3" else AddOffsetsToTxnRequest
    event = asyncio.Event()
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer, producer.transaction():
            await producer.send(TOPIC, b"v", partition=0)
            loading = Hold(event, Fail(CoordinatorLoadInProgressError))
            with cluster.intercept(first, loading, times=1) as held:
                offsets = producer.send_offsets_to_transaction({T0: 7}, "group")
                sending = asyncio.ensure_future(offsets)
                await held.wait()
                sending.cancel()
                await asyncio.wait([sending])
                event.set()
        assert (stored(cluster), committed(cluster)) == (7, [b"v"])


# -- a commit after a failure


@pytest.mark.parametrize("when", ["before", "during"])
@pytest.mark.parametrize("release", ["0.11", "2.1", "2.8", "4.3"])
@pytest.mark.parametrize(
    "error", [MessageSizeTooLargeError, InvalidTopicError, OutOfOrderSequenceNumber]
)
async def test_a_commit_raises_what_failed(release: str, error: Any, when: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            cluster.intercept(ProduceRequest, Fail(error), times=1)
            futures = await send_all(producer, [b"lost"])
            if when == "before":
                await results(futures)
            for _ in range(2):
                with pytest.raises(error):
                    await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(TOPIC, b"next", partition=0)
        assert committed(cluster) == [b"next"]


@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
async def test_a_commit_raises_what_offsets_failed_with(release: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            cluster.intercept(TxnOffsetCommitRequest, Fail(GroupAuthorizationFailedError), times=1)
            with pytest.raises(GroupAuthorizationFailedError):
                await producer.send_offsets_to_transaction({T0: 1}, "group")
            for _ in range(2):
                with pytest.raises(GroupAuthorizationFailedError) as caught:
                    await producer.commit_transaction()
                assert isinstance(caught.value, KafkaError)
            await producer.abort_transaction()


@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
def test_a_commit_does_not_overtake_the_refusal_of_offsets(release: str) -> None:
    """The commit waits for a record, whose response is read together with the refusal: it is
    through before the caller of send_offsets_to_transaction() wakes up."""

    async def main(simulation: Simulation) -> None:
        event = asyncio.Event()
        async with simulation.cluster(1, as_version=release) as cluster:
            await cluster.create_topic(TOPIC)
            async with transactional(cluster) as producer:
                await put_both(producer)
                await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"no", partition=0)
                refusal = Hold(event, Fail(GroupAuthorizationFailedError))
                cluster.intercept(TxnOffsetCommitRequest, refusal, times=1)
                sending = asyncio.ensure_future(
                    producer.send_offsets_to_transaction({T0: 5}, "group")
                )
                await cluster.wait_for(lambda: cluster.count(TxnOffsetCommitRequest) > 1)
                await producer.send(TOPIC, b"no", partition=0)
                committing = asyncio.ensure_future(producer.commit_transaction())
                await asyncio.sleep(1)
                event.set()
                for failure in await results([sending, committing]):
                    assert isinstance(failure, GroupAuthorizationFailedError)
                await producer.abort_transaction()
                assert (committed(cluster), stored(cluster)) == ([b"1"], 1)
                await put_both(producer)
                assert committed(cluster) == [b"1", b"1"]

    for seed in range(5):
        simulate(main, seed=seed)


async def put_both(producer: Any) -> None:
    """A transaction of a record and an offset."""
    async with producer.transaction():
        await producer.send(TOPIC, b"1", partition=0)
        await producer.send_offsets_to_transaction({T0: 1}, "group")


async def test_offsets_that_are_refused_while_their_caller_is_cancelled() -> None:
    """No caller is left to say so."""
    transaction = Transaction("worker", lambda: None)
    transaction.end()
    transaction.begin(is_version_2=True)

    async def work(_: PendingTxnRequest) -> None:
        caller.cancel()
        raise GroupAuthorizationFailedError("group")

    pending = PendingTxnRequests(transaction, TaskOwner("producer"))
    deadline = asyncio.get_running_loop().time() + 10
    caller = asyncio.ensure_future(pending.run("offsets", work, deadline))
    assert isinstance((await results([caller]))[0], asyncio.CancelledError)
    with pytest.raises(GroupAuthorizationFailedError):
        transaction.raise_failure()


def test_what_fails_while_a_commit_is_out_cannot_be_aborted() -> None:
    """The coordinator may have committed by then: no abort can take that back."""
    transaction = Transaction("worker", lambda: None)
    transaction.end()
    transaction.begin(is_version_2=True)
    transaction.begin_commit()
    transaction.begin_end(is_commit=True)
    transaction.fail(GroupAuthorizationFailedError("group"))
    assert not transaction.is_undecided
    with pytest.raises(GroupAuthorizationFailedError):
        transaction.begin_abort()


@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
async def test_a_batch_in_flight_that_expires(release: str) -> None:
    """Its response comes after the transaction was aborted, or not at all."""
    event = asyncio.Event()
    options = {"delivery_timeout_ms": 400, "request_timeout_ms": 350, "max_block_ms": 5000}
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster, **options) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"before", partition=0)
            with cluster.intercept(ProduceRequest, Hold(event)):
                (failure,) = await results(await send_all(producer, [b"late"]))
                assert isinstance(failure, KafkaTimeoutError)
                with pytest.raises(KafkaTimeoutError, match="not delivered"):
                    await producer.commit_transaction()
                event.set()
                await producer.abort_transaction()
            for number in range(3):
                async with producer.transaction():
                    await producer.send(TOPIC, b"%d" % number, partition=0)
        assert committed(cluster) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("release", ["0.11", "2.1", "2.8", "3.9"])
@pytest.mark.parametrize("then", ["commit", "abort"])
async def test_partitions_that_may_not_be_entered(release: str, then: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC, partitions=2)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"no", partition=1)
            cluster.intercept(
                AddPartitionsToTxnRequest, Fail(TopicAuthorizationFailedError), times=1
            )
            (failure,) = await results(await send_all(producer, [b"no"]))
            assert isinstance(failure, TopicAuthorizationFailedError)
            if then == "commit":
                with pytest.raises(TopicAuthorizationFailedError, match=f"{TOPIC}-0"):
                    await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(TOPIC, b"next", partition=0)
        assert committed(cluster) == [b"next"]
        assert committed(cluster, 1) == []


@pytest.mark.parametrize("release", ["0.11", "2.8", "3.9"])
async def test_an_abort_while_partitions_are_being_entered(release: str) -> None:
    """The request is slow: overtaken by the end, it would enter the partition into the next."""
    event = asyncio.Event()
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC, partitions=2)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"no", partition=0)
            with cluster.intercept(AddPartitionsToTxnRequest, Hold(event), times=1) as held:
                future = await producer.send(TOPIC, b"no", partition=1)
                await held.wait()
                aborting = asyncio.ensure_future(producer.abort_transaction())
                await asyncio.sleep(0.05)
                assert cluster.count(EndTxnRequest) == 0
                event.set()
                await aborting
            assert isinstance((await results([future]))[0], KafkaError)
            async with producer.transaction():
                await producer.send(TOPIC, b"next", partition=0)
        assert committed(cluster) == [b"next"]
        log = cluster.log(TOPIC, 1)
        assert log.last_stable_offset == log.end_offset


@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
async def test_a_commit_waits_for_offsets_that_wait_for_their_turn(release: str) -> None:
    event = asyncio.Event()
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            with cluster.intercept(TxnOffsetCommitRequest, Hold(event), times=1) as held:
                sending = [
                    asyncio.ensure_future(producer.send_offsets_to_transaction({T0: at}, "group"))
                    for at in range(5)
                ]
                await held.wait()
                committing = asyncio.ensure_future(producer.commit_transaction())
                await asyncio.sleep(0.05)
                event.set()
                await asyncio.gather(*sending, committing)
            assert stored(cluster) == 4
            async with producer.transaction():
                await producer.send(TOPIC, b"v", partition=0)
        assert stored(cluster) == 4
        assert cluster.failures == []


# -- offsets of partitions that there are not


@pytest.mark.parametrize("release", ["2.1", "4.3"])
async def test_offsets_of_a_partition_that_there_is_not_are_refused_soon(release: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster, max_block_ms=600_000) as producer:
            with pytest.raises(UnknownTopicOrPartitionError, match=f"{TOPIC}-7 of group 'group'"):
                async with producer.transaction():
                    offsets = {T0: 1, TopicPartition(TOPIC, 7): 1}
                    await producer.send_offsets_to_transaction(offsets, "group")
            assert stored(cluster) is None
            async with producer.transaction():
                await producer.send_offsets_to_transaction({T0: 2}, "group")
        assert stored(cluster) == 2


async def test_a_coordinator_may_hear_late_of_a_partition() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            error = Fail(UnknownTopicOrPartitionError.errno)
            with cluster.intercept(TxnOffsetCommitRequest, error, times=3):
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({T0: 2}, "group")
        assert stored(cluster) == 2
