"""Sessions whose partitions, consumer or commit are taken from them at an awkward moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import TransactionalSession
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
    OutOfOrderSequenceNumber,
    TransactionAbortable,
)
from aiokafka.interceptors import ConsumerInterceptor, Records
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from aiokafka.session import SessionTransaction, session
from aiokafka.structs import TopicPartition
from aiokafka.testing import Fail, FakeCluster, Hold, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, Start, fill
from tests.support.producers import numbers
from tests.support.sessions import RecordingListener, consumer_of, copy, session_of
from tests.support.transactions import READING, committed_values, stored, until

T1 = TopicPartition("t", 1)


def expel(cluster: FakeCluster, of: TransactionalSession) -> None:
    """The group forgets the session's consumer, as if it had been silent for too long."""
    cluster.groups.expire("g", of.consumer.group_metadata().member_id)


# -- nothing at hand


class OddOnly(ConsumerInterceptor):
    """Leaves out records with even numbers, and keeps the partition where nothing is left."""

    def __init__(self) -> None:
        self.calls = 0

    def on_consume(self, records: Records) -> Records:
        self.calls += 1
        return {tp: [one for one in some if int(one.value) % 2] for tp, some in records.items()}


async def test_records_that_an_interceptor_leaves_out_count_as_read(cluster: FakeCluster) -> None:
    fill(cluster, 0, 1)
    odd_only = OddOnly()
    async with session_of(cluster, reading={"interceptors": [odd_only]}) as filtered:
        looking = asyncio.ensure_future(copy(filtered, 1))
        await until(lambda: odd_only.calls)
        fill(cluster, 0, 1)
        assert await looking == [numbers(2)[1:]]
    assert stored(cluster) == [2, None]


class FirstOnly(ConsumerInterceptor):
    """Leaves out the records of all partitions but 0."""

    def on_consume(self, records: Records) -> Records:
        return {tp: [] if tp.partition else some for tp, some in records.items()}


async def test_a_partition_is_revoked_of_which_an_interceptor_left_out_all(
    cluster: FakeCluster, start: Start
) -> None:
    """The transaction has no records of it, and need not be aborted; its next owner commits it."""
    fill(cluster, 0, 3)
    fill(cluster, 1, 3)
    cooperative = {"partition_assignment_strategy": [CooperativeStickyAssignor]}

    async def hand_over(transaction: SessionTransaction) -> None:
        assert set(transaction.next) == {T0, T1}
        other = await start(cluster, "t", **{**READING, **cooperative})
        await until(lambda: other.assignment() == {T1})
        assert kept.consumer.assignment() == {T0}

    reading = {"interceptors": [FirstOnly()], **cooperative}
    async with session_of(cluster, retries=0, linger_ms=200, reading=reading) as kept:
        assert await copy(kept, 3, hand_over) == [numbers(3)]
    assert committed_values(cluster) == numbers(3)
    assert stored(cluster) == [3, None]


async def test_a_session_without_records_ends_when_asked_to(cluster: FakeCluster) -> None:
    async with session_of(cluster) as idle, timeout(10):
        looking = asyncio.ensure_future(copy(idle, 1))
        await until(idle.consumer.assignment)
        idle.request_stop()
        assert await looking == []


async def test_records_come_after_a_long_time_without_any(cluster: FakeCluster) -> None:
    """The session looks again and again; each look that finds nothing is given back."""
    async with session_of(cluster) as idle:
        looking = asyncio.ensure_future(copy(idle, 3))
        await until(idle.consumer.assignment)
        assert not (await asyncio.wait([looking], timeout=0.7))[0]
        fill(cluster, 0, 3)
        assert await looking == [numbers(3)]
    assert stored(cluster) == [3, None]


async def test_a_session_that_found_no_broker_is_entered_again(cluster: FakeCluster) -> None:
    """The application's listener is called as usual."""
    told = RecordingListener()
    session = session_of(cluster, listener=told, writing={"request_timeout_ms": 200})
    await cluster.stop_broker(0)
    with pytest.raises(KafkaConnectionError):
        await session.__aenter__()
    await cluster.start_broker(0)
    fill(cluster, 0, 3)
    async with session, timeout(10):
        assert await copy(session, 3) == [numbers(3)]
    assert [method for method, _ in told.calls] == ["assigned"]


async def test_a_stopped_consumer_ends_the_loop(cluster: FakeCluster) -> None:
    async with session_of(cluster) as stopped, timeout(10):
        looking = asyncio.ensure_future(copy(stopped, 1))
        await until(stopped.consumer.assignment)
        await stopped.consumer.stop()
        assert await looking == []


async def test_partitions_are_lost_before_the_first_record(cluster: FakeCluster) -> None:
    told = RecordingListener()
    async with session_of(cluster, listener=told) as early:
        await until(early.consumer.assignment)
        expel(cluster, early)
        await until(lambda: ("lost", {T0, T1}) in told.calls)
        fill(cluster, 0, 3)
        assert await copy(early, 3) == [numbers(3)]
    assert committed_values(cluster) == numbers(3)


async def test_partitions_are_lost_while_more_records_are_waited_for(cluster: FakeCluster) -> None:
    """The block is not given records that are another's already."""
    fill(cluster, 0, 3)
    told = RecordingListener()
    async with session_of(cluster, listener=told, linger_ms=500) as slow:
        copying = asyncio.ensure_future(copy(slow, 3))
        await until(lambda: slow.consumer.lag().get(T0) == 0)
        expel(cluster, slow)
        await until(lambda: "lost" in [kind for kind, _ in told.calls])
        assert await copying == [numbers(3)]
    assert committed_values(cluster) == numbers(3)


async def test_an_abort_goes_back_to_the_first_of_several_reads(cluster: FakeCluster) -> None:
    fill(cluster, 0, 1)
    cluster.intercept(ProduceRequest, Fail(TransactionAbortable), times=1)
    async with session_of(cluster, linger_ms=10_000, max_records=3) as several:
        copying = asyncio.ensure_future(copy(several, 3))
        await until(lambda: several.consumer.lag().get(T0) == 0)
        fill(cluster, 0, 2)
        assert await copying == [numbers(3)] * 2
    assert committed_values(cluster) == numbers(3)


async def test_retries_are_counted_in_a_row(cluster: FakeCluster) -> None:
    """Each transaction fails once, which is once in a row as long as the others are committed."""
    fill(cluster, 0, 4)
    failed: set[int] = set()

    async def fail_once(transaction: SessionTransaction) -> None:
        offset = transaction.records[0].offset
        if offset not in failed:
            failed.add(offset)
            raise TransactionAbortable

    async with session_of(cluster, max_records=1, retries=1) as often:
        tries = await copy(often, 4, fail_once)
    assert tries == [[b"%d" % n] for n in range(4) for _ in range(2)]
    assert committed_values(cluster) == numbers(4)


# -- while a block runs


async def test_an_exception_after_unsubscribing_goes_its_way(cluster: FakeCluster) -> None:
    """There is no partition left to go back in."""
    fill(cluster, 0, 3)
    async with session_of(cluster) as left:
        with pytest.raises(LookupError, match="mine"):
            async for transaction in left:
                async with transaction:
                    left.consumer.unsubscribe()
                    raise LookupError("mine")
        assert "aborted" in repr(transaction)
    assert committed_values(cluster) == []
    assert stored(cluster) == [None, None]


async def test_an_error_that_the_block_hides_is_still_the_reason(cluster: FakeCluster) -> None:
    """What it does next is refused for being too late, which no second try would mend."""
    fill(cluster, 0, 3)
    tries = 0
    async with session_of(cluster) as hidden, timeout(20):
        with cluster.intercept(ProduceRequest, Fail(OutOfOrderSequenceNumber), times=1):
            async for transaction in hidden:
                async with transaction as records:
                    tries += 1
                    for record in records:
                        future = await transaction.send("out", record.value, partition=0)
                        await asyncio.wait([future])
                if transaction.is_committed:
                    break
    assert tries == 2
    assert committed_values(cluster) == numbers(3)


async def test_batches_of_a_transaction_that_is_not_open(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    async with session_of(cluster) as closed:
        batch = closed.producer.create_batch()
        batch.append(key=None, value=b"batch", timestamp=None)
        transaction = await anext(aiter(closed))
        with pytest.raises(IllegalStateError, match="not open: its records are taken"):
            await transaction.send_batch(batch, "out", partition=0)
        async with transaction:
            expel(cluster, closed)
            await until(lambda: transaction.is_void)
            with pytest.raises(CommitFailedError, match="revoked"):
                await transaction.send_batch(batch, "out", partition=0)
        assert not transaction.is_committed
    assert committed_values(cluster) == []


async def test_other_partitions_do_not_count(cluster: FakeCluster) -> None:
    """Only what its records are of makes a transaction void."""
    fill(cluster, 0, 3)
    async with session_of(cluster) as some:
        transaction = await anext(aiter(some))
        transaction.give_up([T1])
        assert not transaction.is_void
        transaction.give_up([T1, T0])
        assert transaction.is_void


# -- while it is committed


@pytest.mark.parametrize("release", ["2.1", "4.3"])
async def test_partitions_lost_between_the_offsets_and_the_commit(release: str) -> None:
    """Brokers before 2.5 take the offsets of one that is no member any more."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("out")
        fill(cluster, 0, 3)
        event = asyncio.Event()
        seen: list[SessionTransaction] = []

        async def note(transaction: SessionTransaction) -> None:
            seen.append(transaction)

        async with session_of(cluster) as late:
            with cluster.intercept(TxnOffsetCommitRequest, Hold(event), times=1) as held:
                copying = asyncio.ensure_future(copy(late, 3, note))
                await held.wait()
                expel(cluster, late)
                await until(lambda: seen[0].is_void)
                event.set()
                assert await copying == [numbers(3)] * 2
            assert not seen[0].is_committed
        assert committed_values(cluster) == numbers(3)
        assert stored(cluster, [0]) == [3]
        assert cluster.failures == []


async def test_a_commit_that_stays_open_is_not_taken_for_either(cluster: FakeCluster) -> None:
    """Each next step asks again, until the coordinator tells."""
    fill(cluster, 0, 3)
    seen: list[SessionTransaction] = []

    async def note(transaction: SessionTransaction) -> None:
        seen.append(transaction)

    async with session_of(cluster, writing={"max_block_ms": 300}) as unsure, timeout(20):
        with cluster.intercept(EndTxnRequest, Silence()):
            for _ in range(3):
                with pytest.raises(KafkaTimeoutError):
                    await copy(unsure, 3, note)
                assert not seen[0].is_committed
        fill(cluster, 0, 1)
        assert await copy(unsure, 1, note) == [[b"3"]]
    assert [transaction.is_committed for transaction in seen] == [True, True]
    assert committed_values(cluster) == numbers(4)
    assert stored(cluster) == [4, None]


async def test_a_rebalance_does_not_wait_for_a_commit_for_ever(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session, "_MAX_REVOKE_WAIT", 0.05)
    fill(cluster, 0, 3)
    told = RecordingListener()
    release = asyncio.Event()
    options = {"rebalance_timeout_ms": 1000}
    async with session_of(cluster, reading=options, listener=told) as held_up:
        with cluster.intercept(EndTxnRequest, Hold(release)) as held:
            copying = asyncio.ensure_future(copy(held_up, 3))
            await held.wait()
            cluster.groups.rebalance("g")
            await until(lambda: "revoked" in [kind for kind, _ in told.calls])
            assert "while a transaction is still ending" in caplog.text
            release.set()
            assert await copying == [numbers(3)]
    assert committed_values(cluster) == numbers(3)
    assert stored(cluster) == [3, None]


COOPERATIVE: dict[str, dict[str, Any]] = {
    "classic": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
    "consumer": {"group_protocol": "consumer"},
}


async def fill_both(cluster: FakeCluster) -> None:
    await cluster.create_topic("t", partitions=2)
    await cluster.create_topic("out")
    for partition in range(2):
        fill(cluster, partition, 3)


@pytest.mark.parametrize("kind", COOPERATIVE)
def test_a_rebalance_does_not_wait_for_an_abort(kind: str) -> None:
    """It commits nothing, and may take as long as the coordinator of transactions is away."""
    reading = COOPERATIVE[kind]

    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with simulation.cluster(1) as cluster:
            await fill_both(cluster)

            async def fail(transaction: SessionTransaction) -> None:
                await aborting.producer.flush()
                raise ZeroDivisionError

            async with session_of(cluster, linger_ms=100, reading=reading) as aborting:
                with cluster.intercept(EndTxnRequest, Silence()) as silent:
                    copying = asyncio.ensure_future(copy(aborting, 6, fail))
                    await silent.wait()
                    began = loop.time()
                    async with consumer_of(cluster, "t", **reading) as other:
                        while not other.assignment():
                            await asyncio.sleep(0.1)
                        assert loop.time() - began < 15
                        assert not copying.done()
                cluster.drop_connections()
                with pytest.raises(ZeroDivisionError):
                    await copying
            assert committed_values(cluster) == []

    simulate(main)


@pytest.mark.parametrize("kind", COOPERATIVE)
def test_nor_for_one_that_begins_while_it_waits(kind: str) -> None:
    """It waits for the commit, whose offsets are refused: what is left is an abort."""
    reading = COOPERATIVE[kind]

    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with simulation.cluster(1) as cluster:
            await fill_both(cluster)
            refuse = asyncio.Event()
            refusal = Hold(refuse, Fail(TransactionAbortable))
            other = consumer_of(cluster, "t", **reading)
            async with session_of(cluster, linger_ms=100, reading=reading) as aborting:
                with (
                    cluster.intercept(TxnOffsetCommitRequest, refusal, times=1) as held,
                    cluster.intercept(EndTxnRequest, Silence()),
                ):
                    copying = asyncio.ensure_future(copy(aborting, 3))
                    await held.wait()
                    joining = asyncio.ensure_future(other.start())
                    await asyncio.sleep(5)
                    assert not other.assignment()
                    refuse.set()
                    began = loop.time()
                    while not other.assignment():
                        await asyncio.sleep(0.1)
                    assert loop.time() - began < 10
                    assert not copying.done()
                cluster.drop_connections()
                await joining
                assert len(await copying) == 2
            await other.stop()
            assert len(committed_values(cluster)) == 3

    simulate(main)
