"""The session: what is read, processed and written counts once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka import (
    TopicPartition,
    TransactionalSession,
)
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    IllegalStateError,
    InvalidTopicError,
    KafkaConfigurationError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    TransactionAbortable,
    UnknownMemberIdError,
)
from aiokafka.protocol.messages.group_members import JoinGroupRequest
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.session import SessionTransaction
from aiokafka.testing import Cut, Fail, FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, fill
from tests.support.producers import numbers
from tests.support.sessions import RecordingListener, consumer_of, copy, producer_of, session_of
from tests.support.transactions import committed_values, stored, until

MakeSession = Callable[..., TransactionalSession]

PROTOCOLS = [
    pytest.param({"partition_assignment_strategy": [RangePartitionAssignor]}, id="eager"),
    pytest.param({"partition_assignment_strategy": [CooperativeStickyAssignor]}, id="cooperative"),
    pytest.param({"group_protocol": "consumer"}, id="consumer"),
]


# -- as it should be


@pytest.mark.parametrize("release", ["0.11", "2.1", "2.8", "3.9", "4.3"])
@pytest.mark.parametrize("kind", ["assigned", "subscribed"])
async def test_everything_once(release: str, kind: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("out")
        fill(cluster, 0, 25, batch=5)
        assign = [T0] if kind == "assigned" else ()
        async with session_of(cluster, assign=assign, max_records=10) as session:
            tries = await copy(session, 25)
        assert [value for values in tries for value in values] == numbers(25)
        assert max(map(len, tries)) == 10
        assert committed_values(cluster) == numbers(25)
        assert stored(cluster, [0]) == [25]
        fill(cluster, 0, 5)
        async with session_of(cluster, assign=assign) as session:
            assert await copy(session, 5) == [numbers(30)[25:]]
        assert cluster.failures == []


@pytest.mark.parametrize("options", PROTOCOLS)
async def test_protocols(cluster: FakeCluster, options: Any) -> None:
    fill(cluster, 0, 10)
    async with session_of(cluster, reading=options) as session:
        await copy(session, 10)
        assert committed_values(cluster) == numbers(10)
        assert stored(cluster) == [10, None]


async def test_positions_pass_over_what_is_not_a_record(cluster: FakeCluster) -> None:
    async with producer_of(cluster, transactional_id="other") as producer:
        async with producer.transaction():
            await producer.send("t", b"0", partition=0)
    async with session_of(cluster) as session:
        await copy(session, 1)
    # Behind the record is the marker of its transaction.
    assert cluster.log("t", 0).end_offset == 2
    assert stored(cluster) == [2, None]


async def test_linger(cluster: FakeCluster) -> None:
    fill(cluster, 0, 1)
    async with session_of(cluster, linger_ms=10_000, max_records=3) as session:
        async with timeout(20):
            reading = asyncio.ensure_future(copy(session, 3))
            await until(lambda: session.consumer.assignment())
            fill(cluster, 0, 2)
            assert await reading == [numbers(3)]


async def test_batches(cluster: FakeCluster) -> None:
    fill(cluster, 0, 1)
    async with session_of(cluster) as session:
        async for transaction in session:
            async with transaction:
                batch = session.producer.create_batch()
                batch.append(key=None, value=b"batch", timestamp=None)
                await transaction.send_batch(batch, "out", partition=0)
            break
    assert committed_values(cluster) == [b"batch"]


async def test_request_stop_ends_the_loop(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    seen = 0
    async with session_of(cluster) as session:
        async for transaction in session:
            async with transaction as records:
                seen += len(records)
                if seen == 3:
                    session.request_stop()
    assert seen == 3
    assert stored(cluster) == [3, None]


# -- wrong use


@pytest.mark.parametrize(
    ("reading", "writing", "match"),
    [
        ({"group_id": None}, {}, "group_id"),
        ({"enable_auto_commit": True}, {}, "enable_auto_commit=False"),
        ({"isolation_level": "read_uncommitted"}, {}, "read_committed"),
        ({}, {"transactional_id": None}, "transactional_id"),
    ],
)
async def test_wrong_clients(cluster: FakeCluster, reading: Any, writing: Any, match: str) -> None:
    consumer = consumer_of(cluster, "t", **reading)
    producer = producer_of(cluster, **writing)
    with pytest.raises(KafkaConfigurationError, match=match):
        TransactionalSession(consumer, producer)
    await consumer.stop()
    await producer.stop()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"max_records": 0}, ValueError),
        ({"max_records": "1"}, TypeError),
        ({"retries": -1}, ValueError),
        ({"linger_ms": -1}, ValueError),
        ({"stop_timeout_ms": "5"}, TypeError),
        ({"consumer": None}, TypeError),
        ({"producer": "p"}, TypeError),
    ],
    ids=str,
)
async def test_wrong_options(cluster: FakeCluster, wrong: Any, error: type[Exception]) -> None:
    consumer, producer = consumer_of(cluster, "t"), producer_of(cluster)
    with pytest.raises(error, match=f"^{next(iter(wrong))}.*: must be "):
        TransactionalSession(**{"consumer": consumer, "producer": producer, **wrong})
    await consumer.stop()
    await producer.stop()


async def test_wrong_steps(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster, max_records=1) as session:
        iterator = aiter(session)
        transaction = await anext(iterator)
        with pytest.raises(IllegalStateError, match="not open"):
            await transaction.send("out", b"v")
        async with transaction:
            with pytest.raises(IllegalStateError, match="still open"):
                await anext(iterator)
        with pytest.raises(IllegalStateError, match="once"):
            await transaction.__aenter__()
    assert stored(cluster) == [1, None]


async def test_a_transaction_that_was_not_entered_comes_again(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster, max_records=1) as session:
        await anext(aiter(session))
        assert await copy(session, 3) == [[b"0"], [b"1"], [b"2"]]
    assert committed_values(cluster) == numbers(3)


async def test_subscribing_within_the_session(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster) as session:
        async for transaction in session:
            with pytest.raises(LookupError):
                async with transaction:
                    session.consumer.subscribe(["t"])
                    raise LookupError
            break
        with pytest.raises(IllegalStateError, match="subscribe"):
            await anext(aiter(session))
    assert committed_values(cluster) == []


# -- aborts


async def test_an_exception_aborts_and_the_records_come_again(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster) as session:
        with pytest.raises(LookupError, match="mine"):
            async for transaction in session:
                async with transaction as records:
                    await transaction.send("out", b"no", partition=0)
                    raise LookupError("mine")
        assert not transaction.is_committed
        assert "aborted" in repr(transaction)
        assert len(records) == 3
        assert await copy(session, 3) == [numbers(3)]
    assert committed_values(cluster) == numbers(3)
    assert stored(cluster) == [3, None]


MENDED = [
    pytest.param(TxnOffsetCommitRequest, Fail(IllegalGenerationError), id="generation"),
    pytest.param(TxnOffsetCommitRequest, Fail(UnknownMemberIdError), id="member"),
    pytest.param(TxnOffsetCommitRequest, Fail(RebalanceInProgressError), id="rebalance"),
    pytest.param(EndTxnRequest, Fail(TransactionAbortable), id="abortable end"),
    pytest.param(ProduceRequest, Fail(TransactionAbortable), id="abortable produce"),
    pytest.param(ProduceRequest, Fail(OutOfOrderSequenceNumber), id="sequence"),
    pytest.param(ProduceRequest, Fail(TopicAuthorizationFailedError), id="not authorized"),
]


@pytest.mark.parametrize(("request_type", "fault"), MENDED)
@pytest.mark.parametrize("release", ["2.8", "4.3"])
async def test_errors_that_need_an_abort(release: str, request_type: Any, fault: Any) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("out")
        fill(cluster, 0, 3)
        async with session_of(cluster) as session:
            faults = cluster.intercept(request_type, fault, times=1)
            tries = await copy(session, 3)
            assert faults.hits == 1
        assert tries == [numbers(3)] * 2
        assert committed_values(cluster) == numbers(3)
        assert stored(cluster, [0]) == [3]


async def test_errors_that_stay_are_raised_in_the_end(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster, retries=2) as session:
        with cluster.intercept(TxnOffsetCommitRequest, Fail(IllegalGenerationError)) as faults:
            with pytest.raises(IllegalGenerationError):
                await copy(session, 3)
        assert faults.hits == 3
        assert await copy(session, 3) == [numbers(3)]
    assert committed_values(cluster) == numbers(3)


async def test_errors_that_no_retry_mends(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster) as session:
        cluster.intercept(ProduceRequest, Fail(InvalidTopicError), times=1)
        with pytest.raises(InvalidTopicError):
            await copy(session, 3)
        assert await copy(session, 3) == [numbers(3)]
    assert committed_values(cluster) == numbers(3)


async def test_an_error_that_the_body_sees_is_mended_as_well(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster) as session:
        cluster.intercept(ProduceRequest, Fail(OutOfOrderSequenceNumber), times=1)
        seen = []
        async for transaction in session:
            async with transaction as records:
                future = await transaction.send("out", b"v", partition=0)
                seen.append(len(records))
                await future
                break
            if transaction.is_committed:
                break
        assert seen == [3, 3]
    assert committed_values(cluster) == [b"v"]


async def test_a_transaction_that_took_too_long(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    writing = {"transaction_timeout_ms": 200}
    async with session_of(cluster, writing=writing) as session:
        is_first = True

        async def linger(_: SessionTransaction) -> None:
            nonlocal is_first
            if is_first:
                is_first = False
                await session.producer.flush()
                epoch = cluster.transactions.by_id["worker"].epoch
                await until(lambda: cluster.transactions.by_id["worker"].epoch > epoch)

        assert await copy(session, 3, linger) == [numbers(3)] * 2
    assert committed_values(cluster) == numbers(3)


async def test_another_producer_of_the_id(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster) as session:

        async def fence(_: SessionTransaction) -> None:
            async with producer_of(cluster):
                pass

        with pytest.raises(ProducerFenced) as caught:
            await copy(session, 3, fence)
        assert caught.value.is_fatal
        with pytest.raises(ProducerFenced):
            await anext(aiter(session))
    assert committed_values(cluster) == []
    assert stored(cluster) == [None, None]


PASSING = [
    pytest.param(Fail(ConcurrentTransactions), id="concurrent"),
    pytest.param(Fail(NotCoordinatorError), id="not the coordinator"),
    pytest.param(Fail(CoordinatorNotAvailableError), id="no coordinator"),
    pytest.param(Cut(), id="cut before"),
    pytest.param(Cut(handled=True), id="cut after"),
]


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("request_type", [TxnOffsetCommitRequest, EndTxnRequest])
async def test_what_passes_by_itself(cluster: FakeCluster, request_type: Any, fault: Any) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster, max_records=1) as session:
        cluster.intercept(request_type, fault, times=2)
        assert await copy(session, 3) == [[b"0"], [b"1"], [b"2"]]
    assert committed_values(cluster) == numbers(3)


async def test_leaders_and_coordinators_move() -> None:
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("out")
        fill(cluster, 0, 9)
        cluster.intercept(ProduceRequest, Fail(NotLeaderForPartitionError), times=2)
        turn = 0

        async def move(_: SessionTransaction) -> None:
            nonlocal turn
            turn += 1
            cluster.move_coordinator("transaction", "worker", turn % 3)
            cluster.move_coordinator("group", "g", (turn + 1) % 3)

        async with session_of(cluster, max_records=1) as session:
            await copy(session, 9, move)
        assert committed_values(cluster) == numbers(9)


# -- the group


@pytest.fixture
async def second(cluster: FakeCluster) -> AsyncIterator[MakeSession]:
    """Makes sessions like `session_of`."""
    yield lambda **options: session_of(cluster, name="second", **options)


async def run(session: TransactionalSession, pause: float = 0.0) -> None:
    async with session:
        async for transaction in session:
            async with transaction as records:
                for record in records:
                    await asyncio.sleep(pause)
                    await transaction.send("out", record.value, partition=0)


@pytest.mark.parametrize("options", PROTOCOLS)
@pytest.mark.parametrize("release", ["2.1", "4.3"])
async def test_a_revoke_while_the_body_is_slow(release: str, options: Any) -> None:
    if release == "2.1" and "group_protocol" in options:
        return
    config = {"group.consumer.heartbeat.interval.ms": 20} if release == "4.3" else {}
    async with FakeCluster(as_version=release, config=config) as cluster:
        await cluster.create_topic("t", partitions=2)
        await cluster.create_topic("out")
        fill(cluster, 0, 20)
        fill(cluster, 1, 20)
        options = {**options, "rebalance_timeout_ms": 300}
        told = RecordingListener()
        session = session_of(cluster, reading=options, listener=told)
        is_joined = asyncio.Event()
        async with session:

            async def wait_for_other(transaction: SessionTransaction) -> None:
                if not is_joined.is_set():
                    is_joined.set()
                    await until(lambda: transaction.is_void)

            copying = asyncio.ensure_future(copy(session, 20, wait_for_other))
            await is_joined.wait()
            other = asyncio.ensure_future(run(session_of(cluster, name="other", reading=options)))
            expected = sorted([b"%d" % n for n in range(20)] * 2)
            await until(lambda: copying.done() or other.done() or told.calls)
            await until(lambda: sorted(committed_values(cluster)) == expected)
            for task in (copying, other):
                task.cancel()
            await asyncio.wait([copying, other])
        assert [kind for kind, _ in told.calls][:2] == ["assigned", "revoked"]
        assert sorted(committed_values(cluster)) == expected
        assert stored(cluster) == [20, 20]


async def test_a_rebalance_waits_for_the_commit(caplog: pytest.LogCaptureFixture) -> None:
    """Longer than the consumer itself waits for what it has returned."""
    async with FakeCluster(as_version="2.1") as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("out")
        fill(cluster, 0, 3)
        told = RecordingListener()
        options = {"rebalance_timeout_ms": 1500}
        release = asyncio.Event()
        async with session_of(cluster, reading=options, listener=told) as session:
            with cluster.intercept(EndTxnRequest, Hold(release)) as held:
                copying = asyncio.ensure_future(copy(session, 3))
                await held.wait()
                generation = cluster.groups.classic["g"].generation
                cluster.groups.rebalance("g")
                await until(lambda: "A rebalance waited" in caplog.text)
                await asyncio.sleep(0.1)
                assert [kind for kind, _ in told.calls] == ["assigned"]
                assert cluster.groups.classic["g"].generation == generation
                release.set()
                await copying
            await until(lambda: told.calls[-1][0] == "assigned" and len(told.calls) == 3)
        assert committed_values(cluster) == numbers(3)
        assert stored(cluster, [0]) == [3]


async def test_partitions_are_lost(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    told = RecordingListener()
    async with session_of(cluster, listener=told) as session:
        is_first = True

        async def lose(transaction: SessionTransaction) -> None:
            nonlocal is_first
            if is_first:
                is_first = False
                metadata = session.consumer.group_metadata()
                cluster.groups.expire("g", metadata.member_id)
                await until(lambda: transaction.is_void)

        assert await copy(session, 3, lose) == [numbers(3)] * 2
    assert ("lost", {T0, TopicPartition("t", 1)}) in told.calls
    assert committed_values(cluster) == numbers(3)


async def test_sending_ends_the_body_when_partitions_are_gone(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster) as session:
        sent = []
        async for transaction in session:
            async with transaction:
                if not sent:
                    metadata = session.consumer.group_metadata()
                    cluster.groups.expire("g", metadata.member_id)
                    await until(lambda now=transaction: now.is_void)
                    sent.append(False)
                await transaction.send("out", b"v", partition=0)
                sent.append(True)
            if transaction.is_committed:
                break
    assert sent == [False, True]
    assert committed_values(cluster) == [b"v"]


# -- cancellation


async def leave_early(cluster: FakeCluster, request_type: Any, handled: bool) -> None:
    release = asyncio.Event()
    with cluster.intercept(request_type, Hold(release), times=1) as held:
        task = asyncio.ensure_future(run(session_of(cluster, stop_timeout_ms=2000)))
        await held.wait()
        task.cancel()
        await asyncio.sleep(0)
        release.set()
        async with timeout(10):
            await asyncio.wait([task])
        assert task.cancelled()
    assert handled


@pytest.mark.parametrize("release", ["2.8", "4.3"])
@pytest.mark.parametrize(
    "request_type", [ProduceRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest]
)
async def test_cancelled_at_each_request(release: str, request_type: Any) -> None:
    if release == "4.3" and request_type is AddOffsetsToTxnRequest:
        return  # not sent in transactions of version 2
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("out")
        fill(cluster, 0, 3)
        await leave_early(cluster, request_type, True)
        async with session_of(cluster) as session:
            copying = asyncio.ensure_future(copy(session, 3))
            await until(lambda: committed_values(cluster) == numbers(3))
            copying.cancel()
            await asyncio.wait([copying])
        assert committed_values(cluster) == numbers(3)
        assert stored(cluster, [0]) == [3]
        assert cluster.failures == []


@pytest.mark.real_time
async def test_cancelled_at_every_step(cluster: FakeCluster) -> None:
    """The task that iterates is cancelled after n turns of the loop; the session goes on."""
    fill(cluster, 0, 60)
    turns = 0
    async with session_of(cluster, max_records=1) as session:
        while len(committed_values(cluster)) < 60:
            turns += 1
            task = asyncio.ensure_future(copy(session, 1))
            for _ in range(turns % 97):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if turns % 97 == 0:
                # Not three more: there may be fewer left, or one more committed than was told.
                wanted = min(60, len(committed_values(cluster)) + 3)
                task = asyncio.ensure_future(copy(session, 60))
                await cluster.wait_for(lambda n=wanted: len(committed_values(cluster)) >= n)
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
            assert turns < 2000
    assert committed_values(cluster) == numbers(60)
    assert stored(cluster) == [60, None]


def test_stopping_with_the_broker_gone_is_bounded() -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t")
            await cluster.create_topic("out")
            fill(cluster, 0, 3)
            writing = {"max_block_ms": 300}
            session = session_of(cluster, stop_timeout_ms=200, writing=writing)
            async with session:
                async for transaction in session:
                    with pytest.raises(LookupError):
                        async with transaction:
                            await transaction.send("out", b"v", partition=0)
                            await session.producer.flush()
                            await cluster.stop_broker(0)
                            began = asyncio.get_running_loop().time()
                            raise LookupError
                    break
            # The abort in the block has max_block_ms; then it is stop_timeout_ms, and the
            # consumer's farewell to its group.
            assert asyncio.get_running_loop().time() - began < 10

    simulate(main)


async def test_a_start_that_fails_leaves_nothing(cluster: FakeCluster) -> None:
    session = session_of(cluster)
    session.consumer.unsubscribe()
    with pytest.raises(IllegalStateError, match="subscribe"):
        await session.__aenter__()
    session.consumer.subscribe(["t"])
    cluster.intercept(JoinGroupRequest, Fail(GroupAuthorizationFailedError))
    with pytest.raises(GroupAuthorizationFailedError):
        await session.__aenter__()
    await until(lambda: cluster.connections == 0)
