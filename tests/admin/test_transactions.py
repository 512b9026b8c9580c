"""Transactions: listed, described, fenced, and those that hang found and aborted."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import (
    AIOKafkaAdminClient,
    HangingTransaction,
    TransactionListing,
    TransactionState,
)
from aiokafka.errors import (
    AdminItemsError,
    ClusterAuthorizationFailedError,
    ConcurrentTransactions,
    GroupLoadInProgressError,
    InvalidProducerEpoch,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotCoordinatorForGroupError,
    NotLeaderForPartitionError,
    ProducerFenced,
    TransactionalIdNotFound,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.produce import InitProducerIdRequest
from aiokafka.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import Edit, Fail, FakeCluster, Silence
from tests.admin.support import make_admin, simulated
from tests.examples.scripts import run_script

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
ONGOING = TransactionState.ONGOING


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=3) as started:
        await started.create_topic("t", partitions=2)
        yield started
        assert started.failures == []


@pytest.fixture
async def admin(cluster: FakeCluster) -> AsyncIterator[AIOKafkaAdminClient]:
    async with make_admin(cluster) as client:
        yield client


def make_producer(cluster: FakeCluster, name: str) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name)


async def opened(cluster: FakeCluster, name: str, *partitions: int) -> AIOKafkaProducer:
    """Return a producer whose transaction is open in these partitions."""
    producer = make_producer(cluster, name)
    await producer.start()
    await producer.begin_transaction()
    for partition in partitions:
        await producer.send_and_wait("t", b"value", partition=partition)
    return producer


async def left_hanging(cluster: FakeCluster, name: str, *partitions: int) -> int:
    """Leave a transaction open that its coordinator has lost; return its producer id."""
    producer = await opened(cluster, name, *partitions)
    known = cluster.transactions.by_id.pop(name)
    assert known.expiry is not None
    known.expiry.cancel()
    await producer.stop()
    return known.producer_id


async def test_transactions_of_all_brokers(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    for node, name in enumerate(("a", "b", "c")):
        cluster.move_coordinator("transaction", name, node)
    a, b = await opened(cluster, "a", 0), await opened(cluster, "b", 1)
    async with make_producer(cluster, "c") as c:
        async with c.transaction():
            await c.send_and_wait("t", b"value")
    await b.abort_transaction()
    by_id = cluster.transactions.by_id
    found = {one.transactional_id: one for one in await admin.transactions.list()}
    assert found == {
        "a": TransactionListing("a", by_id["a"].producer_id, ONGOING, 0),
        "b": TransactionListing("b", by_id["b"].producer_id, TransactionState.COMPLETE_ABORT, 1),
        "c": TransactionListing("c", by_id["c"].producer_id, TransactionState.COMPLETE_COMMIT, 2),
    }

    async def names(**options: Any) -> set[str]:
        return {one.transactional_id for one in await admin.transactions.list(**options)}

    assert await names(states=[ONGOING]) == {"a"}
    assert await names(producer_ids=[by_id["b"].producer_id]) == {"b"}
    assert await names(duration_ms=3_600_000) == set()
    assert await names(duration_ms=0) == {"a", "b", "c"}
    assert await names(transactional_id_pattern="[bc]") == {"b", "c"}
    await a.stop()
    await b.stop()


async def test_a_coordinator_that_loads_is_asked_again(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    producer = await opened(cluster, "a", 0)
    cluster.intercept(ListTransactionsRequest, Fail(GroupLoadInProgressError), times=4)
    assert len(await admin.transactions.list()) == 1
    cluster.intercept(ListTransactionsRequest, Silence())
    with pytest.raises(KafkaTimeoutError):
        await admin.transactions.list(timeout_ms=200)
    await producer.stop()


async def test_describe(cluster: FakeCluster, admin: AIOKafkaAdminClient) -> None:
    a, b = await opened(cluster, "a", 0, 1), await opened(cluster, "b")
    cluster.intercept(DescribeTransactionsRequest, Fail(NotCoordinatorForGroupError), times=2)
    found = await admin.transactions.describe(["b", "a"])
    assert list(found) == ["b", "a"]
    known = cluster.transactions.by_id["a"]
    one = found["a"]
    assert one.partitions == {FIRST, SECOND}
    assert (one.state, one.start_ms) == (ONGOING, known.started_at_ms)
    assert (one.producer_id, one.producer_epoch) == (known.producer_id, known.epoch)
    assert (one.timeout_ms, one.coordinator) == (60_000, cluster.state.coordinator(1, "a"))
    assert (found["b"].state, found["b"].start_ms) == (TransactionState.EMPTY, None)
    assert one.as_dict()["state"] == "ONGOING"
    with pytest.raises(TransactionalIdNotFound, match="'c'"):
        await admin.transactions.describe(["c"])
    with pytest.raises(AdminItemsError) as caught:
        await admin.transactions.describe(["a", "c"])
    assert (list(caught.value.errors), list(caught.value.results)) == (["c"], ["a"])
    for producer in (a, b):
        await producer.stop()


async def test_a_coordinator_that_has_moved(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    producer = await opened(cluster, "a", 0)
    await admin.transactions.describe(["a"])
    home = cluster.state.coordinator(1, "a")
    cluster.move_coordinator("transaction", "a", (home + 1) % 3)
    found = await admin.transactions.describe(["a"])
    assert found["a"].coordinator == (home + 1) % 3
    await producer.stop()


async def test_producers_of_partitions(cluster: FakeCluster, admin: AIOKafkaAdminClient) -> None:
    producer = await opened(cluster, "a", 0)
    cluster.intercept(DescribeProducersRequest, Fail(NotLeaderForPartitionError), times=1)
    found = await admin.transactions.producers([FIRST, SECOND])
    (one,) = found[FIRST]
    assert found[SECOND] == ()
    known = cluster.transactions.by_id["a"]
    assert (one.producer_id, one.producer_epoch) == (known.producer_id, known.epoch)
    assert (one.last_sequence, one.transaction_start_offset) == (0, 0)
    await producer.commit_transaction()
    ((one,),) = (await admin.transactions.producers([FIRST])).values()
    assert one.transaction_start_offset is None
    await producer.stop()


async def test_a_fenced_producer_is_out(cluster: FakeCluster, admin: AIOKafkaAdminClient) -> None:
    """Its transaction is aborted first, and meanwhile the coordinator asks to come again."""
    a, b = await opened(cluster, "a", 0), await opened(cluster, "b", 1)
    ids = {name: cluster.transactions.by_id[name].producer_id for name in ("a", "b")}
    found = await admin.transactions.fence(["a", "b", "new"])
    assert {name: found[name].producer_id for name in ids} == ids
    assert found["new"].producer_epoch == 0
    assert len(cluster.requests(InitProducerIdRequest)) > 4
    for producer in (a, b):
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        await producer.stop()
    states = [one.state for one in await admin.transactions.list()]
    assert states == [TransactionState.EMPTY] * 3


@pytest.mark.parametrize("timeout_ms", [3_600_000, math.inf])
async def test_fencing_may_take_longer_than_any_transaction(
    cluster: FakeCluster, admin: AIOKafkaAdminClient, timeout_ms: float
) -> None:
    """Brokers refuse a session whose transactions may take longer than
    `transaction.max.timeout.ms`."""
    found = await admin.transactions.fence(["new"], timeout_ms=timeout_ms)
    assert found["new"].producer_epoch == 0
    await admin.transactions.force_terminate("new", timeout_ms=timeout_ms)
    assert cluster.transactions.by_id["new"].epoch == 1


@simulated
async def test_each_id_that_cannot_be_fenced_is_named() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        await (await opened(cluster, "a", 0)).stop()
        cluster.transactions.pause_markers()
        with pytest.raises(AdminItemsError) as caught:
            producer = await opened(cluster, "b", 0)
            await admin.transactions.fence(["b", "new"], timeout_ms=300)
        assert list(caught.value.errors) == ["b"]
        assert isinstance(caught.value.errors["b"].__cause__, ConcurrentTransactions)
        cluster.transactions.resume_markers()
        await producer.stop()


@pytest.mark.parametrize("release", ["0.11", "2.8", "4.3"])
async def test_a_transaction_is_terminated_by_its_id(release: str) -> None:
    async with FakeCluster(as_version=release) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        producer = await opened(cluster, "a", 0)
        await admin.transactions.force_terminate("a")
        assert cluster.log("t").last_stable_offset == cluster.log("t").end_offset
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        await producer.stop()
        if release == "4.3":
            with pytest.raises(TransactionalIdNotFound):
                await admin.transactions.force_terminate("nothing")


async def test_a_hanging_transaction_is_found_and_aborted(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    producer_id = await left_hanging(cluster, "lost", 0, 1)
    fine = await opened(cluster, "fine", 0)
    found = await admin.transactions.find_hanging(older_than_ms=0)
    assert [(one.partition, one.producer.producer_id) for one in found] == [
        (FIRST, producer_id),
        (SECOND, producer_id),
    ]
    assert await admin.transactions.find_hanging([SECOND], older_than_ms=0) == found[1:]
    assert await admin.transactions.find_hanging() == []  # it is too young
    for one in found:
        producer = one.producer
        await admin.transactions.abort(one.partition, producer_id, producer.producer_epoch)
    assert await admin.transactions.find_hanging(older_than_ms=0) == []
    await fine.commit_transaction()
    await fine.stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    async with consumer:
        consumer.assign([FIRST])
        assert (await consumer.getone()).offset == 1  # the first one was aborted


async def test_a_partition_that_its_coordinator_has_forgotten(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    """The id is known, and so is its producer; only this partition is not part of it any more."""
    producer = await opened(cluster, "a", 0, 1)
    cluster.transactions.by_id["a"].partitions.discard(("t", 0))
    (found,) = await admin.transactions.find_hanging(older_than_ms=0)
    assert (found.partition, found.transactional_id) == (FIRST, "a")
    await producer.stop()


async def test_a_later_session_of_its_id_does_not_end_a_hanging_transaction(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    """The later one has another producer id, and writes to the same partition."""
    former = await opened(cluster, "a", 0)
    cluster.transactions.by_id["a"].partitions.clear()
    producer_id = cluster.transactions.by_id["a"].producer_id
    later: list[AIOKafkaProducer] = []

    async def begin_again(request: Any, context: Any) -> None:
        expiry = cluster.transactions.by_id.pop("a").expiry
        assert expiry is not None
        expiry.cancel()
        later.append(await opened(cluster, "a", 0))

    cluster.intercept(DescribeTransactionsRequest, begin_again, times=1)
    (found,) = await admin.transactions.find_hanging(older_than_ms=0)
    assert (found.partition, found.producer.producer_id) == (FIRST, producer_id)
    assert cluster.transactions.by_id["a"].producer_id != producer_id
    for producer in (former, *later):
        await producer.stop()


async def test_a_broker_that_refuses_leaves_no_request_behind(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    await admin.transactions.list()  # all brokers are connected from here on
    before = asyncio.all_tasks()
    cluster.intercept(ListTransactionsRequest, Silence(), broker=0)
    cluster.intercept(ListTransactionsRequest, Fail(ClusterAuthorizationFailedError), broker=1)
    with pytest.raises(ClusterAuthorizationFailedError):
        await admin.transactions.list(timeout_ms=20_000)
    left = [task for task in asyncio.all_tasks() - before if "aiokafka/admin" in repr(task)]
    assert left == []


async def test_partitions_without_a_leader_do_not_hide_what_hangs_in_others(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    producer_id = await left_hanging(cluster, "lost", 0)
    away = SECOND  # each broker leads one of the partitions
    cluster.state.node_down(cluster.state.topics["t"].partitions[1].leader)
    for partitions in (None, [FIRST, away]):
        with pytest.raises(AdminItemsError, match="t-1") as caught:
            await admin.transactions.find_hanging(partitions, older_than_ms=0, timeout_ms=20_000)
        assert away in caught.value.errors
        assert FIRST not in caught.value.errors
        (found,) = caught.value.results[FIRST]
        assert found.producer.producer_id == producer_id
    with pytest.raises(LeaderNotAvailableError, match="t-1"):
        await admin.transactions.find_hanging([away], older_than_ms=0)


async def test_a_transaction_that_ends_meanwhile_does_not_hang(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    """Leaders say that it is open; it ends; coordinators do not know of it any more."""
    producer = await opened(cluster, "a", 0)

    async def end(request: Any, context: Any) -> None:
        await producer.commit_transaction()

    cluster.intercept(ListTransactionsRequest, end, times=1)
    assert await admin.transactions.find_hanging(older_than_ms=0) == []
    await producer.stop()


async def test_a_topic_that_is_deleted_meanwhile(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    producer_id = await left_hanging(cluster, "lost", 0)
    await cluster.create_topic("other")

    async def delete(request: Any, context: Any) -> None:
        if "other" in cluster.state.topics:
            await cluster.delete_topic("other")

    cluster.intercept(DescribeProducersRequest, delete)
    (found,) = await admin.transactions.find_hanging(older_than_ms=0)
    assert isinstance(found, HangingTransaction)
    assert found.producer.producer_id == producer_id


async def test_aborts_that_are_refused(cluster: FakeCluster, admin: AIOKafkaAdminClient) -> None:
    producer = await opened(cluster, "a", 0)
    await producer.commit_transaction()
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"value", partition=0)
    ((one,),) = (await admin.transactions.producers([FIRST])).values()
    with pytest.raises(InvalidProducerEpoch, match="t-0"):
        await admin.transactions.abort(FIRST, one.producer_id, one.producer_epoch - 1)
    cluster.intercept(WriteTxnMarkersRequest, Fail(NotLeaderForPartitionError), times=1)
    await admin.transactions.abort(FIRST, one.producer_id, one.producer_epoch, -1)
    ((one,),) = (await admin.transactions.producers([FIRST])).values()
    assert one.transaction_start_offset is None
    cluster.acls.withdraw("cluster")
    with pytest.raises(ClusterAuthorizationFailedError):
        await admin.transactions.abort(FIRST, one.producer_id, one.producer_epoch)
    await producer.stop()


async def test_the_leader_is_what_writes_the_marker(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    for tp in (FIRST, SECOND):
        await left_hanging(cluster, "lost", tp.partition)
        (found,) = await admin.transactions.find_hanging([tp], older_than_ms=0)
        cluster.forget_requests()
        await admin.transactions.abort(
            tp, found.producer.producer_id, found.producer.producer_epoch
        )
        (seen,) = cluster.requests(WriteTxnMarkersRequest)
        assert seen.broker_id == cluster.partition("t", tp.partition).leader
        (marker,) = seen.request.markers
        assert (marker.transaction_result, marker.coordinator_epoch) == (False, 0)


@pytest.mark.real_time
async def test_the_example(cluster: FakeCluster) -> None:
    producer_id = await left_hanging(cluster, "lost", 0)
    output = await run_script(
        "hanging_transactions.py", "--bootstrap", cluster.bootstrap_servers, "--minutes", "0"
    )
    assert output == f"t-0: producer {producer_id} hangs\nt-0: aborted\n"


async def test_brokers_without_the_apis() -> None:
    async with FakeCluster(as_version="2.8") as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        assert await admin.transactions.producers([FIRST]) == {FIRST: ()}
        with pytest.raises(UnsupportedVersionError, match="ListTransactions"):
            await admin.transactions.list()
        with pytest.raises(UnsupportedVersionError, match="DescribeTransactions"):
            await admin.transactions.describe(["a", "b"])
    async with FakeCluster(as_version="2.1") as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        with pytest.raises(UnsupportedVersionError, match="DescribeProducers"):
            await admin.transactions.find_hanging()
    async with FakeCluster(as_version="4.0") as cluster, make_admin(cluster) as admin:
        assert await admin.transactions.list(duration_ms=0) == []
        with pytest.raises(UnsupportedVersionError, match=r"Kafka 4\.1"):
            await admin.transactions.list(transactional_id_pattern="a")


async def test_states_that_are_not_known_yet(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    producer = await opened(cluster, "a", 0)

    def later(response: Any) -> None:
        for each in response.transaction_states:
            each.transaction_state = "Enlightened"

    cluster.intercept(ListTransactionsRequest, Edit(later))
    (found,) = await admin.transactions.list()
    assert found.state is TransactionState.UNKNOWN
    await producer.stop()


async def test_wrong_arguments(cluster: FakeCluster, admin: AIOKafkaAdminClient) -> None:
    with pytest.raises(TypeError, match="not one str"):
        await admin.transactions.describe("a")
    with pytest.raises(ValueError, match="transactional_ids: must not be empty"):
        await admin.transactions.fence([""])
    with pytest.raises(ValueError, match="states"):
        await admin.transactions.list(states=["Ongoing"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="duration_ms=-1"):
        await admin.transactions.list(duration_ms=-1)
    with pytest.raises(ValueError, match="producer_epoch=-1"):
        await admin.transactions.abort(FIRST, 1, -1)
    with pytest.raises(ValueError, match="older_than_ms=-1"):
        await admin.transactions.find_hanging(older_than_ms=-1)
    assert await admin.transactions.describe([]) == {}
    assert await admin.transactions.fence([]) == {}
    assert await admin.transactions.producers([]) == {}
