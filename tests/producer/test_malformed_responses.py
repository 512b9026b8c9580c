"""Responses that are well-formed and make no sense: each record is written once or fails."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import KafkaProtocolError, KafkaTimeoutError, NotLeaderForPartitionError
from aiokafka.protocol.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from aiokafka.protocol.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from aiokafka.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from aiokafka.testing import Edit, FakeCluster
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


@pytest.fixture(autouse=True)
def nothing_unexpected(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nonsense of a broker is no reason for a traceback in the log."""
    yield
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


# -- producer ids

NO_IDS = [(-1, -1), (-1, 0), (5, -1), (-(2**63), 0)]


def giving(producer_id: int, epoch: int) -> Edit:
    def change(response: InitProducerIdResponse) -> None:
        response.producer_id, response.producer_epoch = producer_id, epoch

    return Edit(change)


@pytest.mark.parametrize("identity", NO_IDS)
async def test_what_is_no_producer_id_is_asked_for_again(
    cluster: FakeCluster, identity: tuple[int, int]
) -> None:
    """Under it no leader would know a batch that is sent again."""
    cluster.intercept(InitProducerIdRequest, giving(*identity), times=2)
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"v", partition=0)
    (batch,) = cluster.log(TOPIC, 0).batches
    assert min(batch.producer_id, batch.producer_epoch) >= 0
    assert cluster.count(InitProducerIdRequest) == 3


@pytest.mark.parametrize("identity", NO_IDS)
@pytest.mark.parametrize("release", ["0.11", "2.8", "4.3"])
async def test_records_without_a_producer_id_would_be_in_no_transaction(
    release: str, identity: tuple[int, int]
) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        cluster.intercept(InitProducerIdRequest, giving(*identity), times=1)
        async with transactional(cluster) as producer:
            with pytest.raises(LookupError):
                async with producer.transaction():
                    await producer.send_and_wait(TOPIC, b"no", partition=0)
                    raise LookupError
            async with producer.transaction():
                await producer.send(TOPIC, b"yes", partition=0)
        assert committed(cluster) == [b"yes"]


@pytest.mark.parametrize("make", [new_producer, transactional])
async def test_no_producer_id_at_all_fails_the_start(
    cluster: FakeCluster, make: Callable[..., Any]
) -> None:
    with cluster.intercept(InitProducerIdRequest, giving(-1, -1)):
        producer = make(cluster, request_timeout_ms=200)
        with pytest.raises(KafkaTimeoutError, match="the response has id -1, epoch -1") as caught:
            await producer.start()
        assert isinstance(caught.value.__cause__, KafkaProtocolError)


@pytest.mark.parametrize("identity", NO_IDS)
async def test_the_end_of_a_transaction_does_not_tell_the_next_epoch(
    cluster: FakeCluster, identity: tuple[int, int]
) -> None:
    def change(response: EndTxnResponse) -> None:
        response.producer_id, response.producer_epoch = identity

    cluster.intercept(EndTxnRequest, Edit(change), times=2)
    async with transactional(cluster) as producer:
        for number in range(4):
            async with producer.transaction():
                await producer.send(TOPIC, b"%d" % number, partition=0)
    assert committed(cluster) == numbers(4)


# -- places where no broker can be

PLACES = [
    (-1, "127.0.0.1", 1),
    (-1, "", -1),
    (0, "127.0.0.1", 0),
    (0, "127.0.0.1", 70_000),
    (0, "127.0.0.1", -1),
    (99, "", 9092),
    (99, "x\0y", 9092),
    (99, "x" * 300, 9092),
]


@pytest.mark.parametrize(("node_id", "host", "port"), PLACES)
async def test_a_coordinator_that_is_nowhere(
    cluster: FakeCluster, node_id: int, host: str, port: int
) -> None:
    def change(response: FindCoordinatorResponse) -> None:
        (found,) = response.coordinators
        found.node_id, found.host, found.port = node_id, host, port

    cluster.intercept(FindCoordinatorRequest, Edit(change), times=2)
    async with transactional(cluster) as producer, timeout(20):
        async with producer.transaction():
            await producer.send(TOPIC, b"v", partition=0)
    assert committed(cluster) == [b"v"]
    assert cluster.count(FindCoordinatorRequest) == 3


def telling(leader: int, epoch: int, *endpoints: NodeEndpoint) -> Callable[[ProduceResponse], None]:
    """Refuse, and name a leader (KIP-951)."""

    def change(response: ProduceResponse) -> None:
        for part in parts_of(response):
            part.error_code = NotLeaderForPartitionError.errno
            part.base_offset = -1
            # A new one: the default is shared by all messages.
            part.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        response.node_endpoints = list(endpoints)

    return change


def parts_of(response: ProduceResponse) -> Iterator[PartitionProduceResponse]:
    for topic in response.responses:
        yield from topic.partition_responses


@pytest.mark.parametrize(("node_id", "host", "port"), PLACES)
async def test_a_leader_that_is_nowhere(
    cluster: FakeCluster, node_id: int, host: str, port: int
) -> None:
    """Were it believed, its epoch would outlast all that is told in metadata."""
    endpoint = NodeEndpoint(node_id=node_id, host=host, port=port, rack=None)
    async with new_producer(cluster) as producer, timeout(20):
        await producer.send_and_wait(TOPIC, b"0", partition=0)
        cluster.intercept(ProduceRequest, Edit(telling(node_id, 1000, endpoint)), times=1)
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        cluster.intercept(ProduceRequest, Edit(telling(99, 1000)), times=1)
        await producer.send_and_wait(TOPIC, b"2", partition=0)
        # It is where it was: metadata may still move the partition.
        assert producer.client.cluster.leader_epoch((TOPIC, 0)) < 1000
    assert list(dict.fromkeys(values(cluster))) == numbers(3)


async def test_leaders_that_name_each_other() -> None:
    """There is a pause between attempts, or the three would keep each other busy."""
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0, 1)})
        told = 1000

        def other(request: ProduceRequest, context: Any) -> Edit:
            nonlocal told
            told += 1
            return Edit(telling(1 - context.node_id, told))

        options = {"retry_backoff_ms": 50, "retry_backoff_max_ms": 50, "delivery_timeout_ms": 600}
        async with new_producer(cluster, **options) as producer:
            with cluster.intercept(ProduceRequest, other) as refusals:
                with pytest.raises(KafkaTimeoutError, match="NotLeaderForPartition"):
                    await producer.send_and_wait(TOPIC, b"v", partition=0)
        # Without pauses there are some hundreds.
        assert refusals.hits < 40


async def test_brokers_that_are_gone_leave_nothing_behind(cluster: FakeCluster) -> None:
    """Each leader has a task; where brokers are replaced, ids do not come back."""
    leader = 100

    def another(response: MetadataResponse) -> None:
        nonlocal leader
        leader += 1
        for topic in response.topics:
            for part in topic.partitions:
                part.leader_id = leader

    async with new_producer(cluster, retry_backoff_max_ms=5) as producer, timeout(20):
        await producer.send_and_wait(TOPIC, b"0", partition=0)
        with cluster.intercept(MetadataRequest, Edit(another)):
            for _ in range(20):
                await producer.client.force_metadata_update()
            assert leader >= 120
        await producer.client.force_metadata_update()
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        name = producer.client.config.client_id
        senders = {
            task.get_name()
            for task in asyncio.all_tasks()
            if task.get_name().startswith(f"{name}:sender-")
        }
        assert senders == {f"{name}:sender-0"}
    assert values(cluster) == numbers(2)


# -- answers that contradict themselves


@pytest.mark.parametrize("is_last", [True, False])
async def test_a_partition_that_is_answered_twice(cluster: FakeCluster, is_last: bool) -> None:
    """Not written, says one of the two error codes, and it is right."""

    def refuse(request: ProduceRequest, context: Any) -> ProduceResponse:
        from aiokafka.testing.handlers.produce import refuse_produce

        response = refuse_produce(context, request, NotLeaderForPartitionError.errno)
        for topic in response.responses:
            (part,) = topic.partition_responses
            good = copy.copy(part)
            good.error_code, good.base_offset = 0, 17
            topic.partition_responses = [good, part] if is_last else [part, good]
        return response

    cluster.intercept(ProduceRequest, refuse, times=2)
    async with new_producer(cluster) as producer:
        sent = await producer.send_and_wait(TOPIC, b"v", partition=0)
    assert sent.offset == 0
    assert values(cluster) == [b"v"]


async def test_answers_for_partitions_that_nobody_asked_for(cluster: FakeCluster) -> None:
    def add(response: ProduceResponse) -> None:
        for topic in response.responses:
            (part,) = topic.partition_responses
            stranger, impossible = copy.copy(part), copy.copy(part)
            stranger.index, stranger.error_code = 55, NotLeaderForPartitionError.errno
            impossible.index, impossible.error_code = -1, -300
            topic.partition_responses = [stranger, part, impossible]

    async with new_producer(cluster) as producer:
        with cluster.intercept(ProduceRequest, Edit(add)):
            found = await results(await send_all(producer, numbers(3)))
    assert [getattr(one, "offset", one) for one in found] == [0, 1, 2]


async def test_an_offset_that_is_none(cluster: FakeCluster) -> None:
    def change(response: ProduceResponse) -> None:
        for part in parts_of(response):
            part.base_offset = part.log_append_time_ms = part.log_start_offset = -(2**63)

    cluster.intercept(ProduceRequest, Edit(change), times=1)
    async with new_producer(cluster) as producer:
        sent = await producer.send_and_wait(TOPIC, b"v", partition=0, timestamp_ms=5)
    assert (sent.offset, sent.timestamp, sent.log_start_offset) == (-1, 5, None)


async def test_partitions_with_negative_numbers(cluster: FakeCluster) -> None:
    def change(response: MetadataResponse) -> None:
        for topic in response.topics:
            wrong = [copy.copy(part) for part in topic.partitions]
            for part in wrong:
                part.partition_index = -1 - part.partition_index
            topic.partitions = [*topic.partitions, *wrong]

    with cluster.intercept(MetadataRequest, Edit(change)):
        async with new_producer(cluster, delivery_timeout_ms=2000) as producer:
            assert await producer.partitions_for(TOPIC) == {0, 1, 2}
            keyed = [await producer.send(TOPIC, b"v", key=b"%d" % n) for n in range(30)]
            assert {one.partition for one in await asyncio.gather(*keyed)} == {0, 1, 2}
