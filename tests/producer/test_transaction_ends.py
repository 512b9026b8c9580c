"""How transactions end: two calls at once, a call that is cancelled, `stop` in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import (
    CoordinatorNotAvailableError,
    IllegalOperation,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
    TransactionAbortable,
)
from aiokafka.protocol.messages.produce import InitProducerIdRequest, ProduceRequest
from aiokafka.protocol.messages.transactions import EndTxnRequest
from aiokafka.testing import Cut, Delay, Fail, FakeCluster, Hold, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import (
    TOPIC,
    committed,
    new_producer,
    numbers,
    results,
    send_all,
    transactional,
)

RELEASES = ["0.11", "2.1", "2.8", "3.9", "4.3"]


@pytest.fixture(params=["2.1", "2.8", "4.3"])
async def any_cluster(request: pytest.FixtureRequest) -> AsyncIterator[FakeCluster]:
    async with FakeCluster(as_version=request.param) as fake:
        await fake.create_topic(TOPIC, partitions=3)
        yield fake
        assert fake.failures == []


def ends(cluster: FakeCluster) -> list[bool]:
    """What the coordinator was told, in order: whether to commit."""
    return [seen.request.committed for seen in cluster.requests(EndTxnRequest)]


def is_settled(cluster: FakeCluster, partition: int = 0) -> bool:
    """Whether no open transaction keeps readers back."""
    log = cluster.log(TOPIC, partition)
    return log.last_stable_offset == log.end_offset


async def check_next(cluster: FakeCluster, producer: Any, *before: bytes) -> None:
    """The next transaction works, and counts beside what was committed before."""
    async with producer.transaction():
        await producer.send(TOPIC, b"next", partition=0)
    assert committed(cluster) == [*before, b"next"]
    assert is_settled(cluster)


# -- batches that come back while the transaction ends

COMES_BACK = [Fail(NotLeaderForPartitionError), Cut(), Cut(handled=True)]


@pytest.mark.parametrize("answer", COMES_BACK, ids=repr)
async def test_a_request_that_fails_during_an_abort_is_not_waited_for(
    any_cluster: FakeCluster, answer: Any
) -> None:
    release = asyncio.Event()
    async with transactional(any_cluster) as producer:
        await producer.begin_transaction()
        with any_cluster.intercept(ProduceRequest, Hold(release, answer), times=1) as held:
            future = await producer.send(TOPIC, b"no", partition=0)
            await held.wait()
            aborting = asyncio.ensure_future(producer.abort_transaction())
            await asyncio.sleep(0)
            release.set()
            async with timeout(20):
                await aborting
        (failure,) = await results([future])
        assert isinstance(failure, Exception)
        await check_next(any_cluster, producer)


async def test_what_the_body_raised_is_not_hidden(any_cluster: FakeCluster) -> None:
    async with transactional(any_cluster, max_block_ms=300) as producer:
        with any_cluster.intercept(EndTxnRequest, Silence()):
            with pytest.raises(LookupError):
                async with producer.transaction():
                    await producer.send_and_wait(TOPIC, b"no", partition=0)
                    raise LookupError
        any_cluster.drop_connections()
        # abort_transaction() is not called again: the next transaction goes on with it.
        await check_next(any_cluster, producer)


@pytest.mark.parametrize("answer", COMES_BACK, ids=repr)
@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
async def test_a_request_that_comes_back_after_a_failure_ends_at_once(
    release: str, answer: Any
) -> None:
    event = asyncio.Event()
    async with FakeCluster(brokers=2, as_version=release) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0, 1), 1: (1, 0)})
        cluster.move_coordinator("transaction", "worker", 0)
        async with transactional(cluster) as producer:
            await producer.begin_transaction()
            cluster.intercept(ProduceRequest, Hold(event, answer), broker=1, times=1)
            cluster.intercept(ProduceRequest, Fail(OutOfOrderSequenceNumber), broker=0, times=1)
            slow = await producer.send(TOPIC, b"slow", partition=1)
            await cluster.wait_for(lambda: cluster.count(ProduceRequest) == 1)
            bad = await producer.send(TOPIC, b"bad", partition=0)
            assert isinstance((await results([bad]))[0], OutOfOrderSequenceNumber)
            event.set()
            async with timeout(20):
                assert isinstance((await results([slow]))[0], OutOfOrderSequenceNumber)
            await producer.abort_transaction()
            await check_next(cluster, producer)
        assert committed(cluster, 1) == []
        assert cluster.failures == []


async def test_commit_is_stopped_by_what_comes_back_in_pieces(any_cluster: FakeCluster) -> None:
    """A batch that is too large, answered while the transaction is aborted, is not split."""
    release = asyncio.Event()
    async with transactional(any_cluster) as producer:
        await producer.begin_transaction()
        # Learnt now, the partition keeps no later call waiting: they are one batch.
        await producer.partitions_for(TOPIC)
        with any_cluster.intercept(ProduceRequest, Hold(release, Fail(10)), times=1) as held:
            futures = await send_all(producer, numbers(5))
            await held.wait()
            (seen,) = any_cluster.requests(ProduceRequest)
            records = bytes(seen.request.topic_data[0].partition_data[0].records)
            assert int.from_bytes(records[57:61], "big") == 5
            aborting = asyncio.ensure_future(producer.abort_transaction())
            await asyncio.sleep(0)
            release.set()
            async with timeout(20):
                await aborting
                await results(futures)
        await check_next(any_cluster, producer)


# -- two calls at once


async def test_an_abort_during_a_commit_is_refused(any_cluster: FakeCluster) -> None:
    release = asyncio.Event()
    async with transactional(any_cluster, max_batch_size=100) as producer:
        await producer.begin_transaction()
        with any_cluster.intercept(ProduceRequest, Hold(release), times=1) as held:
            futures = await send_all(producer, numbers(10))
            committing = asyncio.ensure_future(producer.commit_transaction())
            await held.wait()
            with pytest.raises(IllegalOperation, match="committing"):
                await producer.abort_transaction()
            release.set()
            await committing
        await results(futures)
        assert committed(any_cluster) == numbers(10)
        assert ends(any_cluster) == [True]


@pytest.mark.parametrize("request_type", [ProduceRequest, EndTxnRequest])
async def test_two_commits_at_once_are_one(any_cluster: FakeCluster, request_type: Any) -> None:
    release = asyncio.Event()
    async with transactional(any_cluster) as producer:
        await producer.begin_transaction()
        with any_cluster.intercept(request_type, Hold(release), times=1) as held:
            await producer.send(TOPIC, b"1", partition=0)
            calls = [asyncio.ensure_future(producer.commit_transaction()) for _ in range(3)]
            await held.wait()
            release.set()
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"half", partition=0)
        assert [await call for call in calls] == [None] * 3
        assert committed(any_cluster) == [b"1"]
        await producer.abort_transaction()
        assert ends(any_cluster) == [True, False]


async def test_two_aborts_at_once_are_one(any_cluster: FakeCluster) -> None:
    release = asyncio.Event()
    async with transactional(any_cluster) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"no", partition=0)
        with any_cluster.intercept(EndTxnRequest, Hold(release), times=1) as held:
            calls = [asyncio.ensure_future(producer.abort_transaction()) for _ in range(3)]
            await held.wait()
            with pytest.raises(IllegalOperation, match="aborting"):
                await producer.commit_transaction()
            release.set()
            await asyncio.gather(*calls)
        await check_next(any_cluster, producer)
        assert ends(any_cluster) == [False, True]


async def test_a_second_commit_takes_over_from_one_that_is_cancelled(
    any_cluster: FakeCluster,
) -> None:
    release = asyncio.Event()
    async with transactional(any_cluster) as producer:
        await producer.begin_transaction()
        with any_cluster.intercept(ProduceRequest, Hold(release), times=1) as held:
            await producer.send(TOPIC, b"1", partition=0)
            first = asyncio.ensure_future(producer.commit_transaction())
            await held.wait()
            second = asyncio.ensure_future(producer.commit_transaction())
            await asyncio.sleep(0)
            first.cancel()
            release.set()
            await second
        await check_next(any_cluster, producer, b"1")


async def test_an_abort_right_after_a_cancellation(any_cluster: FakeCluster) -> None:
    """The cancelled commit has not run yet when the abort is called."""
    release = asyncio.Event()
    async with transactional(any_cluster) as producer:
        await producer.begin_transaction()
        with any_cluster.intercept(ProduceRequest, Hold(release), times=1) as held:
            await producer.send(TOPIC, b"no", partition=0)
            committing = asyncio.ensure_future(producer.commit_transaction())
            await held.wait()
            committing.cancel()
            release.set()
            await producer.abort_transaction()
        assert committing.cancelled()
        await check_next(any_cluster, producer)


async def test_a_send_that_waited_is_not_part_of_the_next_transaction(
    any_cluster: FakeCluster,
) -> None:
    async with transactional(any_cluster, buffer_memory=2000, linger_ms=60_000) as producer:
        await producer.begin_transaction()
        await producer.send(TOPIC, bytes(1500), partition=0)
        waiting = asyncio.ensure_future(producer.send(TOPIC, bytes(1500), partition=1))
        await asyncio.sleep(0)
        await producer.abort_transaction()
        await producer.begin_transaction()
        with pytest.raises(IllegalOperation):
            await waiting
        await producer.abort_transaction()
    assert committed(any_cluster, 1) == []


# -- stop


async def test_a_block_does_not_end_well_when_the_producer_was_stopped(
    any_cluster: FakeCluster,
) -> None:
    producer = transactional(any_cluster)
    await producer.start()
    with pytest.raises(ProducerClosed):
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"no", partition=0)
            await producer.stop()
    with pytest.raises(LookupError):
        async with new_producer(any_cluster, transactional_id="other") as producer:
            async with producer.transaction():
                await producer.stop()
                raise LookupError
    assert committed(any_cluster) == []


async def test_stop_aborts_a_commit_that_waited_for_records(any_cluster: FakeCluster) -> None:
    release = asyncio.Event()
    with any_cluster.intercept(ProduceRequest, Hold(release), times=1) as held:

        async def work() -> None:
            async with transactional(any_cluster) as producer, producer.transaction():
                await producer.send(TOPIC, b"no", partition=0)

        task = asyncio.ensure_future(work())
        await held.wait()
        task.cancel()
        await asyncio.sleep(0)
        release.set()
        async with timeout(20):
            await asyncio.wait([task])
    assert task.cancelled()
    assert committed(any_cluster) == []
    assert is_settled(any_cluster)
    assert ends(any_cluster) == [False]


async def test_a_block_that_is_cancelled_in_its_commit_leaves_nothing_open(
    any_cluster: FakeCluster,
) -> None:
    release = asyncio.Event()
    async with transactional(any_cluster) as producer:

        async def work() -> None:
            async with producer.transaction():
                await producer.send(TOPIC, b"no", partition=0)

        with any_cluster.intercept(ProduceRequest, Hold(release), times=1) as held:
            task = asyncio.ensure_future(work())
            await held.wait()
            task.cancel()
            await asyncio.sleep(0)
            release.set()
            await asyncio.wait([task])
        assert task.cancelled()
        await check_next(any_cluster, producer)


@pytest.mark.parametrize("request_type", [ProduceRequest, EndTxnRequest])
async def test_stop_waits_for_the_commit_of_another_task(
    any_cluster: FakeCluster, request_type: Any
) -> None:
    release = asyncio.Event()
    producer = transactional(any_cluster)
    await producer.start()
    await producer.begin_transaction()
    with any_cluster.intercept(request_type, Hold(release), times=1) as held:
        await producer.send(TOPIC, b"1", partition=0)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await held.wait()
        stopping = asyncio.ensure_future(producer.stop())
        ended, _ = await asyncio.wait([stopping, committing], timeout=0.3)
        assert not ended
        release.set()
        async with timeout(20):
            await committing
            await stopping
    assert committed(any_cluster) == [b"1"]


async def test_stop_finishes_a_commit_that_was_cancelled(any_cluster: FakeCluster) -> None:
    """Its request is lost, so that only another one can commit."""
    release = asyncio.Event()
    producer = transactional(any_cluster)
    await producer.start()
    await producer.begin_transaction()
    await producer.send(TOPIC, b"1", partition=0)
    with any_cluster.intercept(EndTxnRequest, Hold(release, Cut()), times=1) as held:
        committing = asyncio.ensure_future(producer.commit_transaction())
        await held.wait()
        committing.cancel()
        await asyncio.wait([committing])
        release.set()
        await producer.stop()
    assert committed(any_cluster) == [b"1"]
    assert is_settled(any_cluster)


# -- a commit that was left is finished by the next transaction


async def leave_commit(cluster: FakeCluster, producer: Any, answer: Any) -> None:
    """A block whose end is cancelled once the commit was sent, to which there is this answer."""
    release = asyncio.Event()
    with cluster.intercept(EndTxnRequest, Hold(release, answer), times=1) as held:

        async def work() -> None:
            async with producer.transaction():
                await producer.send(TOPIC, b"left", partition=0)

        task = asyncio.ensure_future(work())
        await held.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        release.set()


@pytest.mark.parametrize("answer", [None, Cut(), Cut(handled=True)], ids=repr)
async def test_the_next_block_finishes_a_commit_that_was_cancelled(
    any_cluster: FakeCluster, answer: Any
) -> None:
    async with transactional(any_cluster) as producer:
        await leave_commit(any_cluster, producer, answer)
        await check_next(any_cluster, producer, b"left")


@pytest.mark.parametrize("handled", [False, True])
async def test_the_next_block_finishes_a_commit_that_had_no_time(
    any_cluster: FakeCluster, handled: bool
) -> None:
    async with transactional(any_cluster, max_block_ms=400) as producer:
        with any_cluster.intercept(EndTxnRequest, Silence(handled=handled)):
            for _ in range(3):
                with pytest.raises(KafkaTimeoutError, match="EndTxn"):
                    async with producer.transaction():
                        await producer.send(TOPIC, b"left", partition=0)
        any_cluster.drop_connections()
        await check_next(any_cluster, producer, b"left")


@pytest.mark.parametrize("then", ["begin", "abort"])
async def test_a_commit_that_was_left_and_is_refused(any_cluster: FakeCluster, then: str) -> None:
    """The next block says so once, and the one after that begins."""
    async with transactional(any_cluster) as producer:
        await leave_commit(any_cluster, producer, Cut())
        any_cluster.intercept(EndTxnRequest, Fail(TransactionAbortable), times=1)
        with pytest.raises(TransactionAbortable):
            async with producer.transaction():
                raise AssertionError("it has begun")
        if then == "abort":
            await producer.abort_transaction()
        await check_next(any_cluster, producer)


async def test_a_begin_that_finishes_a_commit_is_cancelled(any_cluster: FakeCluster) -> None:
    release = asyncio.Event()
    async with transactional(any_cluster) as producer:
        await leave_commit(any_cluster, producer, Cut())
        with any_cluster.intercept(
            EndTxnRequest, Hold(release, Cut(handled=True)), times=1
        ) as held:
            beginning = asyncio.ensure_future(producer.begin_transaction())
            async with timeout(20):
                await held.wait()
            beginning.cancel()
            await asyncio.wait([beginning])
            release.set()
        await check_next(any_cluster, producer, b"left")


async def test_a_begin_right_after_a_commit_is_cancelled(any_cluster: FakeCluster) -> None:
    """The cancelled commit has not run yet when the next transaction begins."""
    release = asyncio.Event()
    async with transactional(any_cluster) as producer:
        await producer.begin_transaction()
        await producer.send(TOPIC, b"left", partition=0)
        with any_cluster.intercept(EndTxnRequest, Hold(release), times=1) as held:
            committing = asyncio.ensure_future(producer.commit_transaction())
            await held.wait()
            committing.cancel()
            release.set()
            await check_next(any_cluster, producer, b"left")
        assert committing.cancelled()


async def test_two_begins_after_a_commit_was_left(any_cluster: FakeCluster) -> None:
    """One of them begins, the other is refused."""
    async with transactional(any_cluster) as producer:
        await leave_commit(any_cluster, producer, Cut())
        both = [asyncio.ensure_future(producer.begin_transaction()) for _ in range(2)]
        begun, refused = await results(both)
        assert begun is None
        assert isinstance(refused, IllegalOperation)
        await producer.send(TOPIC, b"next", partition=0)
        await producer.commit_transaction()
        assert committed(any_cluster) == [b"left", b"next"]


async def test_a_begin_during_a_commit_is_refused(any_cluster: FakeCluster) -> None:
    release = asyncio.Event()
    async with transactional(any_cluster) as producer:
        await producer.begin_transaction()
        await producer.send(TOPIC, b"1", partition=0)
        with any_cluster.intercept(EndTxnRequest, Hold(release), times=1) as held:
            committing = asyncio.ensure_future(producer.commit_transaction())
            await held.wait()
            with pytest.raises(IllegalOperation, match="committing"):
                await producer.begin_transaction()
            release.set()
            await committing
        await check_next(any_cluster, producer, b"1")


# -- an abort that is made again


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("handled", [False, True])
async def test_an_abort_that_timed_out_while_it_renewed_its_epoch(
    release: str, handled: bool
) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster, max_block_ms=400) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"no", partition=0)
            cluster.intercept(ProduceRequest, Fail(OutOfOrderSequenceNumber), times=1)
            await results(await send_all(producer, [b"lost"]))
            with cluster.intercept(InitProducerIdRequest, Silence(handled=handled)) as silent:
                if release == "4.3":
                    await producer.abort_transaction()
                else:
                    with pytest.raises(KafkaTimeoutError):
                        await producer.abort_transaction()
                    assert silent.hits
            cluster.drop_connections()
            if release != "4.3":
                await producer.abort_transaction()
            await check_next(cluster, producer)
        assert cluster.failures == []


@pytest.mark.parametrize("release", ["2.8", "4.3"])
def test_stop_aborts_even_if_that_takes_longer_than_max_block_ms(release: str) -> None:
    """Nobody calls it again, and readers would wait until the transaction times out."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(as_version=release) as cluster:
            await cluster.create_topic(TOPIC)
            producer = transactional(cluster, max_block_ms=500, transaction_timeout_ms=60_000)
            await producer.start()
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"v", partition=0)
            log = cluster.log(TOPIC, 0)
            assert log.last_stable_offset == 0
            with cluster.intercept(EndTxnRequest, Delay(5)):
                await producer.stop()
            assert log.last_stable_offset == log.end_offset
            assert committed(cluster) == []

    simulate(main)


def test_stop_gives_an_abort_up_when_brokers_have_aborted_by_themselves() -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster() as cluster:
            await cluster.create_topic(TOPIC)
            producer = transactional(cluster, max_block_ms=500, transaction_timeout_ms=20_000)
            await producer.start()
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"v", partition=0)
            began_at = asyncio.get_running_loop().time()
            with cluster.intercept(EndTxnRequest, Fail(CoordinatorNotAvailableError)):
                await producer.stop()
            assert asyncio.get_running_loop().time() - began_at < 30

    simulate(main)
