"""Transactions: all or nothing, whatever happens on the way."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aiokafka.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    IllegalGenerationError,
    IllegalOperation,
    InvalidProducerEpoch,
    InvalidTransactionTimeout,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TopicAuthorizationFailedError,
    TransactionAbortable,
)
from aiokafka.protocol.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aiokafka.protocol.messages.produce import InitProducerIdRequest, ProduceRequest
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold, Silence
from tests.support.producers import (
    TOPIC,
    committed,
    new_producer,
    numbers,
    results,
    send_all,
    transactional,
    values,
)

RELEASES = ["0.11", "2.1", "2.8", "3.9", "4.0", "4.3"]


@pytest.fixture(params=RELEASES)
async def any_cluster(request: pytest.FixtureRequest) -> Any:
    async with FakeCluster(as_version=request.param) as fake:
        await fake.create_topic(TOPIC, partitions=3)
        yield fake
        assert fake.failures == []


async def test_commit_and_abort(any_cluster: FakeCluster) -> None:
    async with transactional(any_cluster) as producer:
        for number in range(6):
            await producer.begin_transaction()
            await producer.send(TOPIC, b"%d" % number, partition=0)
            await producer.send_and_wait(TOPIC, b"%d" % number, partition=1)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    for partition in (0, 1):
        assert committed(any_cluster, partition) == [b"0", b"2", b"4"]


async def test_version_2_needs_no_requests_for_partitions(cluster: FakeCluster) -> None:
    async with transactional(cluster) as producer:
        for number in range(3):
            async with producer.transaction():
                await send_all(producer, numbers(number + 1))
    assert cluster.count(AddPartitionsToTxnRequest) == 0
    epochs = [batch.producer_epoch for batch in cluster.log(TOPIC).batches if not batch.is_control]
    assert epochs == [0, 1, 2]
    assert cluster.count(InitProducerIdRequest) == 1


async def test_before_version_2_partitions_are_entered_once(any_cluster: FakeCluster) -> None:
    is_version_2 = any_cluster.state.profile.level("transaction.version") >= 2
    async with transactional(any_cluster) as producer:
        async with producer.transaction():
            for number in range(30):
                await producer.send_and_wait(TOPIC, b"v", partition=number % 3)
    entered = sum(
        len(topic.partitions)
        for seen in any_cluster.requests(AddPartitionsToTxnRequest)
        for topic in seen.request.v3_and_below_topics
    )
    assert entered == (0 if is_version_2 else 3)


async def test_an_exception_aborts(any_cluster: FakeCluster) -> None:
    async with transactional(any_cluster) as producer:
        with pytest.raises(LookupError):
            async with producer.transaction():
                await producer.send_and_wait(TOPIC, b"no", partition=0)
                raise LookupError
        async with producer.transaction():
            await producer.send(TOPIC, b"yes", partition=0)
    assert committed(any_cluster) == [b"yes"]


async def test_an_empty_transaction_asks_nobody(cluster: FakeCluster) -> None:
    async with transactional(cluster) as producer:
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()
    assert cluster.count(EndTxnRequest) == 0


async def test_abort_drops_what_was_not_sent(cluster: FakeCluster) -> None:
    async with transactional(cluster, linger_ms=60_000) as producer:
        await producer.begin_transaction()
        futures = await send_all(producer, numbers(10))
        await producer.abort_transaction()
        assert all("aborted" in str(one) for one in await results(futures))
        assert cluster.count(ProduceRequest) == 0
        async with producer.transaction():
            await producer.send(TOPIC, b"next", partition=0)
    assert committed(cluster) == [b"next"]


async def test_batches_are_part_of_it(cluster: FakeCluster) -> None:
    async with transactional(cluster) as producer:
        for is_good in (False, True):
            await producer.begin_transaction()
            batch = producer.create_batch()
            batch.append(key=None, value=b"%d" % is_good, timestamp=None)
            await (await producer.send_batch(batch, TOPIC, partition=0))
            await (producer.commit_transaction() if is_good else producer.abort_transaction())
    assert committed(cluster) == [b"1"]


# -- offsets


async def test_offsets_are_committed_with_it(any_cluster: FakeCluster) -> None:
    partition = TopicPartition(TOPIC, 0)
    async with transactional(any_cluster) as producer:
        for offset in (5, 7):
            await producer.begin_transaction()
            await producer.send(TOPIC, b"v", partition=1)
            offsets = {partition: OffsetAndMetadata(offset, "note"), TopicPartition(TOPIC, 2): 3}
            await producer.send_offsets_to_transaction(offsets, "group")
            await producer.send_offsets_to_transaction({partition: (offset, "")}, "other-group")
            await (producer.commit_transaction() if offset == 5 else producer.abort_transaction())
    for group in ("group", "other-group"):
        stored = any_cluster.groups.offsets_of(group).committed.get((TOPIC, 0))
        assert stored is not None and stored.offset == 5


async def test_a_member_that_was_replaced_is_refused(cluster: FakeCluster) -> None:
    async with transactional(cluster) as producer:
        cluster.intercept(TxnOffsetCommitRequest, Fail(IllegalGenerationError), times=1)
        with pytest.raises(IllegalGenerationError):
            async with producer.transaction():
                await producer.send(TOPIC, b"no", partition=0)
                await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 1}, "group")
        async with producer.transaction():
            await producer.send(TOPIC, b"yes", partition=0)
    assert committed(cluster) == [b"yes"]


@pytest.mark.parametrize(
    ("offsets", "group", "error"),
    [
        ([], "group", TypeError),
        ([], "group", ValueError),
        ({"topic": 1}, "group", TypeError),
        ({TopicPartition(TOPIC, 0): "1"}, "group", TypeError),
        ({TopicPartition(TOPIC, 0): "1"}, "group", ValueError),
        ({TopicPartition(TOPIC, 0): (1, "a", "b")}, "group", ValueError),
        ({TopicPartition(TOPIC, 0): -1}, "group", ValueError),
        ({TopicPartition(TOPIC, 0): 1}, "", ValueError),
        ({TopicPartition(TOPIC, 0): 1}, None, ValueError),
    ],
)
async def test_wrong_offsets(
    cluster: FakeCluster, offsets: Any, group: Any, error: type[Exception]
) -> None:
    async with transactional(cluster) as producer:
        async with producer.transaction():
            with pytest.raises(error):
                await producer.send_offsets_to_transaction(offsets, group)


# -- wrong calls


async def test_wrong_states(cluster: FakeCluster) -> None:
    async with transactional(cluster) as producer:
        for caught in (IllegalOperation, AssertionError, KafkaError):
            with pytest.raises(caught, match=r"no transaction is open.* producer\.transaction\(\)"):
                await producer.send(TOPIC, b"v")
            with pytest.raises(caught, match=r"no transaction is open.* producer\.transaction\(\)"):
                await producer.commit_transaction()
            with pytest.raises(caught, match="ready to begin"):
                await producer.abort_transaction()
            with pytest.raises(caught):
                await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 1}, "g")
        await producer.begin_transaction()
        with pytest.raises(IllegalOperation, match="in a transaction"):
            await producer.begin_transaction()
        await producer.abort_transaction()


async def test_without_a_transactional_id(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        for call in (
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
        ):
            with pytest.raises(IllegalOperation, match="transactional_id"):
                await call()
        with pytest.raises(IllegalOperation):
            async with producer.transaction():
                pass


async def test_start_without_a_coordinator(cluster: FakeCluster) -> None:
    with cluster.intercept(FindCoordinatorRequest, Fail(CoordinatorNotAvailableError)):
        producer = transactional(cluster, request_timeout_ms=200)
        with pytest.raises(KafkaTimeoutError, match=r"transaction\.state\.log") as caught:
            await producer.start()
        assert "CoordinatorNotAvailable" in str(caught.value)


async def test_start_tells_the_reason_when_the_loop_was_busy(cluster: FakeCluster) -> None:
    """All timers that are due by then go off in one turn of the loop."""
    with cluster.intercept(FindCoordinatorRequest, Fail(CoordinatorNotAvailableError)) as refused:
        producer = transactional(cluster, request_timeout_ms=300)
        starting = asyncio.ensure_future(producer.start())
        await refused.wait(2)
        asyncio.get_running_loop().call_later(0.02, time.sleep, 0.4)
        with pytest.raises(KafkaTimeoutError, match=r"transaction\.state\.log") as caught:
            await starting
        assert "CoordinatorNotAvailable" in str(caught.value)


async def test_start_with_a_timeout_that_the_broker_refuses(cluster: FakeCluster) -> None:
    producer = transactional(cluster, transaction_timeout_ms=2**31 - 1)
    with pytest.raises(InvalidTransactionTimeout, match="transaction_timeout_ms=2147483647 ") as e:
        await producer.start()
    assert "transaction.max.timeout.ms" in str(e.value)


# -- faults

PASSING = [
    pytest.param(Fail(ConcurrentTransactions), id="concurrent"),
    pytest.param(Fail(NotCoordinatorError), id="not the coordinator"),
    pytest.param(Fail(CoordinatorLoadInProgressError), id="loading"),
    pytest.param(Cut(), id="cut before"),
    pytest.param(Cut(handled=True), id="cut after"),
]
REQUESTS = [
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
]


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("request_type", REQUESTS)
@pytest.mark.parametrize("release", ["2.8", "4.3"])
async def test_what_passes_by_itself(release: str, request_type: Any, fault: Any) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC, partitions=2)
        faults = cluster.intercept(request_type, fault, times=2)
        async with transactional(cluster) as producer:
            for number in range(4):
                await producer.begin_transaction()
                await producer.send(TOPIC, b"%d" % number, partition=0)
                await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 1): number}, "g")
                await (
                    producer.abort_transaction() if number % 2 else producer.commit_transaction()
                )
        assert faults.hits >= 2 or release == "4.3"
        assert committed(cluster) == [b"0", b"2"]
        stored = cluster.groups.offsets_of("g").committed.get((TOPIC, 1))
        assert stored is not None and stored.offset == 2


@pytest.mark.parametrize("release", ["2.8", "4.3"])
@pytest.mark.parametrize(
    "fault", [Cut(), Cut(handled=True), Fail(NotLeaderForPartitionError)], ids=repr
)
async def test_produce_faults(release: str, fault: Any) -> None:
    hits = 0

    def handler(request: ProduceRequest, context: object) -> Any:
        nonlocal hits
        hits += 1
        return fault if hits % 3 == 0 else None

    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        cluster.intercept(ProduceRequest, handler)
        async with transactional(cluster, max_batch_size=100) as producer:
            for start in range(0, 200, 20):
                async with producer.transaction():
                    for number in range(start, start + 20):
                        await producer.send(TOPIC, b"%d" % number, partition=0)
        assert committed(cluster) == numbers(200)


@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
@pytest.mark.parametrize("error", [OutOfOrderSequenceNumber, TopicAuthorizationFailedError])
async def test_a_refused_batch_fails_the_transaction(release: str, error: Any) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster) as producer:
            async with producer.transaction():
                await producer.send(TOPIC, b"first", partition=0)
            cluster.intercept(ProduceRequest, Fail(error), times=1)
            await producer.begin_transaction()
            await producer.send(TOPIC, b"lost", partition=0)
            with pytest.raises(error):
                await producer.commit_transaction()
            with pytest.raises(IllegalOperation, match="abort_transaction"):
                await producer.send(TOPIC, b"more", partition=0)
            with pytest.raises(error):
                await producer.commit_transaction()
            await producer.abort_transaction()
            for number in range(3):
                async with producer.transaction():
                    await producer.send(TOPIC, b"%d" % number, partition=0)
        assert committed(cluster) == [b"first", b"0", b"1", b"2"]


@pytest.mark.parametrize("release", ["2.8", "4.3"])
async def test_an_expired_batch_fails_the_transaction(release: str) -> None:
    options = {"delivery_timeout_ms": 700, "request_timeout_ms": 500}
    # Each cut makes the next attempt wait longer: the last pause is part of the next delivery.
    options |= {"reconnect_backoff_max_ms": 50, "retry_backoff_max_ms": 50}
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster, **options) as producer:
            with cluster.intercept(ProduceRequest, Cut(handled=True)):
                with pytest.raises(KafkaTimeoutError):
                    async with producer.transaction():
                        await producer.send(TOPIC, b"lost", partition=0)
            async with producer.transaction():
                await producer.send(TOPIC, b"next", partition=0)
        assert committed(cluster) == [b"next"]


async def test_a_batch_that_expires_in_flight_and_is_written_needs_no_new_epoch() -> None:
    options = {"delivery_timeout_ms": 700, "request_timeout_ms": 500}
    async with FakeCluster(as_version="2.8") as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster, **options) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"first", partition=0)
            # The response to the second attempt comes after the deadline.
            cluster.intercept(ProduceRequest, Delay(0.4, Fail(NotLeaderForPartitionError)), times=1)
            cluster.intercept(ProduceRequest, Delay(0.4), times=1)
            with pytest.raises(KafkaTimeoutError):
                await producer.send_and_wait(TOPIC, b"late", partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(TOPIC, b"next", partition=0)
            assert cluster.count(InitProducerIdRequest) == 1
        assert values(cluster) == [b"first", b"late", b"next"]
        assert committed(cluster) == [b"next"]


async def test_abortable_commit(cluster: FakeCluster) -> None:
    async with transactional(cluster) as producer:
        cluster.intercept(EndTxnRequest, Fail(TransactionAbortable), times=1)
        with pytest.raises(TransactionAbortable):
            async with producer.transaction():
                await producer.send(TOPIC, b"no", partition=0)
        async with producer.transaction():
            await producer.send(TOPIC, b"yes", partition=0)
    assert committed(cluster) == [b"yes"]


@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
async def test_fencing(release: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        old = transactional(cluster)
        await old.start()
        await old.begin_transaction()
        await old.send_and_wait(TOPIC, b"before", partition=0)
        async with transactional(cluster) as new:
            async with new.transaction():
                await new.send(TOPIC, b"new", partition=0)
            future = await old.send(TOPIC, b"after", partition=0)
            (failure,) = await results([future])
            assert isinstance(failure, (InvalidProducerEpoch, ProducerFenced))
            with pytest.raises(ProducerFenced, match="newer producer"):
                await old.abort_transaction()
            for _ in range(2):
                with pytest.raises(ProducerFenced):
                    await old.begin_transaction()
                with pytest.raises(ProducerFenced):
                    await old.send(TOPIC, b"v")
            async with new.transaction():
                await new.send(TOPIC, b"new", partition=0)
        await old.stop()
        assert committed(cluster) == [b"new", b"new"]


@pytest.mark.parametrize("release", ["2.8", "4.3"])
async def test_commit_can_be_repeated_after_a_timeout(release: str) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with transactional(cluster, max_block_ms=500) as producer:
            for handled in (False, True):
                await producer.begin_transaction()
                await producer.send(TOPIC, b"%d" % handled, partition=0)
                with cluster.intercept(EndTxnRequest, Silence(handled=handled)):
                    with pytest.raises(KafkaTimeoutError):
                        await producer.commit_transaction()
                with pytest.raises(IllegalOperation, match="committing"):
                    await producer.abort_transaction()
                cluster.drop_connections()
                await producer.commit_transaction()
            async with producer.transaction():
                await producer.send(TOPIC, b"2", partition=0)
        assert committed(cluster) == numbers(3)


async def test_a_commit_that_could_not_deliver_can_be_aborted(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    async with transactional(cluster, max_block_ms=700) as producer:
        await producer.begin_transaction()
        with cluster.intercept(ProduceRequest, Hold(release)):
            await producer.send(TOPIC, b"slow", partition=0)
            with pytest.raises(KafkaTimeoutError):
                await producer.commit_transaction()
            release.set()
            await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"next", partition=0)
    assert committed(cluster) == [b"next"]


async def test_cancelled_commit_goes_on(cluster: FakeCluster) -> None:
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        await producer.send(TOPIC, b"v", partition=0)
        release = asyncio.Event()
        with cluster.intercept(EndTxnRequest, Hold(release)) as held:
            task = asyncio.create_task(producer.commit_transaction())
            await held.wait()
            task.cancel()
            await asyncio.wait([task])
            release.set()
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"w", partition=0)
    assert committed(cluster) == [b"v", b"w"]


async def test_the_coordinator_moves() -> None:
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0, 1, 2)})
        async with transactional(cluster) as producer:
            for number in range(6):
                async with producer.transaction():
                    await producer.send(TOPIC, b"%d" % number, partition=0)
                    cluster.move_coordinator("transaction", "worker", number % 3)
        assert committed(cluster) == numbers(6)


@pytest.mark.parametrize("release", ["2.8", "4.3"])
async def test_the_coordinator_goes_down(release: str) -> None:
    async with FakeCluster(brokers=3, as_version=release) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0, 1, 2)})
        cluster.move_coordinator("transaction", "worker", 1)
        async with transactional(cluster) as producer:
            async with producer.transaction():
                await producer.send(TOPIC, b"0", partition=0)
            await cluster.stop_broker(1)
            cluster.move_coordinator("transaction", "worker", 2)
            async with producer.transaction():
                await producer.send(TOPIC, b"1", partition=0)
        assert committed(cluster) == numbers(2)


async def test_start_while_the_coordinator_is_down() -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0, 1)})
        host, port = cluster.address(1).split(":")
        await cluster.stop_broker(1)

        def name_the_dead(response: FindCoordinatorResponse) -> None:
            found = response.coordinators[0]
            found.node_id, found.host, found.port = 1, host, int(port)

        cluster.intercept(FindCoordinatorRequest, Edit(name_the_dead), times=2)
        async with transactional(cluster) as producer:
            async with producer.transaction():
                await producer.send(TOPIC, b"0", partition=0)
        assert committed(cluster) == numbers(1)


async def test_stop_aborts_what_is_open(cluster: FakeCluster) -> None:
    producer = transactional(cluster)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(TOPIC, b"v", partition=0)
    await producer.stop()
    assert cluster.count(EndTxnRequest) == 1
    assert committed(cluster) == []
