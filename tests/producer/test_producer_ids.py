"""A producer without transactions gets another producer id when the brokers refuse the old one."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    CoordinatorLoadInProgressError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaTimeoutError,
)
from aiokafka.protocol.messages.produce import InitProducerIdRequest, ProduceRequest
from aiokafka.testing import Cut, Edit, Fail, FakeCluster
from tests.support.producers import TOPIC, new_producer, numbers, results, send_all, values

NO_ID = [
    pytest.param((), id="at once"),
    pytest.param((Cut(), Cut(handled=True)), id="cut"),
    pytest.param((Fail(CoordinatorLoadInProgressError),) * 2, id="loading"),
    pytest.param((Fail(InvalidProducerIdMapping),) * 2, id="refused at first"),
]


def ids(cluster: FakeCluster) -> list[tuple[int, int]]:
    """Producer id and epoch of each batch in the log."""
    return [(batch.producer_id, batch.producer_epoch) for batch in cluster.log(TOPIC).batches]


@pytest.mark.parametrize("answers", NO_ID)
@pytest.mark.parametrize("release", ["0.11", "2.1", "2.8", "4.3"])
async def test_a_leader_that_refuses_the_epoch(release: str, answers: Any) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic(TOPIC)
        async with new_producer(cluster, max_batch_size=100) as producer, timeout(20):
            await results(await send_all(producer, [b"0"]))
            cluster.intercept(ProduceRequest, Fail(InvalidProducerEpoch), times=1)
            rest = list(answers)
            cluster.intercept(
                InitProducerIdRequest,
                lambda request, context: rest.pop(0) if rest else None,
            )
            futures = await send_all(producer, numbers(30)[1:])
            offsets = [(await future).offset for future in futures]
            assert not rest
        assert offsets == list(range(1, 30))
        assert values(cluster) == numbers(30)
        first, *others = dict.fromkeys(ids(cluster))
        assert others and first not in others
        assert cluster.failures == []


async def test_the_last_epoch() -> None:
    """No epoch is left for a partition whose sequence is broken: it takes a new producer id."""
    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC)

        def at_the_end(response: Any) -> None:
            response.producer_epoch = 0x7FFF

        cluster.intercept(InitProducerIdRequest, Edit(at_the_end), times=1)
        async with new_producer(cluster) as producer, timeout(20):
            await results(await send_all(producer, [b"0"]))
            cluster.intercept(ProduceRequest, Fail(45), times=1)
            await results(await send_all(producer, [b"1"]))
            await results(await send_all(producer, [b"2"]))
        assert values(cluster) == numbers(3)
        (first, last), *others = dict.fromkeys(ids(cluster))
        assert last == 0x7FFF
        assert others and all(producer_id != first for producer_id, _ in others)


async def test_records_say_that_there_is_no_producer_id(cluster: FakeCluster) -> None:
    """And not that something is wrong with the leader."""
    async with new_producer(cluster, delivery_timeout_ms=5000, request_timeout_ms=1000) as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        cluster.intercept(ProduceRequest, Fail(InvalidProducerEpoch), times=1)
        with cluster.intercept(InitProducerIdRequest, Fail(ClusterAuthorizationFailedError)):
            with pytest.raises(KafkaTimeoutError, match="InvalidProducerEpoch"):
                await producer.send_and_wait(TOPIC, b"2", partition=0)
            with pytest.raises(KafkaTimeoutError, match=r"no producer id: .*authori") as caught:
                await producer.send_and_wait(TOPIC, b"3", partition=0)
            assert isinstance(caught.value.__cause__, ClusterAuthorizationFailedError)
            health = producer.health()
            assert isinstance(health.last_exception, KafkaTimeoutError)
            await asyncio.sleep(2)
            health = producer.health()
            assert isinstance(health.last_exception, ClusterAuthorizationFailedError)
        # It is over as soon as there is one.
        await producer.send_and_wait(TOPIC, b"4", partition=0)
    assert values(cluster) == [b"1", b"4"]


async def test_records_of_other_partitions_do_not_wait_for_an_id(cluster: FakeCluster) -> None:
    """They go on under the one that they have, so it is nothing that they lack."""
    async with new_producer(cluster, delivery_timeout_ms=5000, request_timeout_ms=1000) as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        await producer.send_and_wait(TOPIC, b"1", partition=1)
        cluster.intercept(ProduceRequest, Fail(InvalidProducerEpoch), times=1)
        with cluster.intercept(InitProducerIdRequest, Fail(ClusterAuthorizationFailedError)):
            lost = await producer.send(TOPIC, b"2", partition=0)
            await asyncio.sleep(0.5)
            await producer.send_and_wait(TOPIC, b"2", partition=1)
            with pytest.raises(KafkaTimeoutError):
                await lost
    assert values(cluster, 1) == [b"1", b"2"]


def forget_first_id() -> Callable[[ProduceRequest, Any], Fail | None]:
    """A handler that takes one request, and then refuses its producer id for good."""
    known: list[int] = []

    def handle(request: ProduceRequest, context: Any) -> Fail | None:
        records = request.topic_data[0].partition_data[0].records
        (producer_id,) = struct.unpack_from(">q", bytes(records or b""), 43)
        if not known:
            known.append(producer_id)
            return None
        return Fail(InvalidProducerIdMapping) if producer_id in known else None

    return handle


async def test_a_producer_id_that_is_forgotten_for_good(cluster: FakeCluster) -> None:
    """As by Azure Event Hubs after requests that took too long: each later record failed."""
    cluster.intercept(ProduceRequest, forget_first_id())
    async with new_producer(cluster, max_batch_size=100) as producer, timeout(20):
        await results(await send_all(producer, [b"0"]))
        futures = await send_all(producer, numbers(30)[1:])
        assert [(await future).offset for future in futures] == list(range(1, 30))
    assert values(cluster) == numbers(30)


async def test_a_record_that_may_be_written_under_a_forgotten_id(cluster: FakeCluster) -> None:
    """It is not sent under another id, where it would be written twice."""
    async with new_producer(cluster) as producer, timeout(20):
        await results(await send_all(producer, [b"0"]))
        cluster.intercept(ProduceRequest, Cut(handled=True), times=1)
        cluster.intercept(ProduceRequest, Fail(InvalidProducerIdMapping), times=1)
        (future,) = await send_all(producer, [b"1"])
        with pytest.raises(InvalidProducerIdMapping, match="may have been written"):
            await future
        await results(await send_all(producer, [b"2"]))
    assert values(cluster) == numbers(3)
    (first, *_), *_, (last, _) = ids(cluster)
    assert first != last
