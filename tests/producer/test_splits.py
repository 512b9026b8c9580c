"""Batches that are split more than once, and what may have been written before it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, ConfigResource, ConfigResourceType
from aiokafka.errors import (
    MessageSizeTooLargeError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
)
from aiokafka.protocol.messages.produce import ProduceRequest, ProduceResponse
from aiokafka.testing import Cut, Edit, Fail, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, numbers, results, send_all, values


@pytest.mark.parametrize("codec", [None, "gzip"])
async def test_a_record_too_large_fails_alone_among_many(codec: str | None) -> None:
    """What is behind it was refused as well, several times, but never written."""
    source = random.Random(1)
    before = [source.randbytes(80) for _ in range(40)]
    behind = [source.randbytes(80) for _ in range(110)]
    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC, config={"max.message.bytes": 1000})
        async with new_producer(cluster, linger_ms=20, compression_type=codec) as producer:
            payloads = [*before, source.randbytes(1500), *behind]
            found = await results(await send_all(producer, payloads))
        assert [isinstance(one, MessageSizeTooLargeError) for one in found].index(True) == 40
        assert sum(isinstance(one, BaseException) for one in found) == 1
        assert values(cluster) == before + behind


def answer_with(errno: int) -> Edit:
    """Write the batch, and say that it is not replicated."""

    def edit(response: ProduceResponse) -> None:
        response.responses[0].partition_responses[0].error_code = errno

    return Edit(edit)


@pytest.mark.parametrize("first", [[], [b"first"]])
@pytest.mark.parametrize(
    "answer",
    [
        Cut(handled=True),
        answer_with(NotEnoughReplicasAfterAppendError.errno),
        answer_with(RequestTimedOutError.errno),
        answer_with(NotLeaderForPartitionError.errno),
    ],
    ids=["lost", "not replicated", "timed out", "leads no more"],
)
async def test_what_may_be_written_is_not_written_in_parts(
    cluster: FakeCluster, answer: Any, first: list[bytes]
) -> None:
    """Wherever in the log it is: offset 0 is one as well."""
    payloads = numbers(50)
    async with new_producer(cluster, linger_ms=20) as producer:
        await results(await send_all(producer, first))
        cluster.intercept(ProduceRequest, answer, times=1)
        cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError), times=2)
        found = await results(await send_all(producer, payloads))
        await producer.send_and_wait(TOPIC, b"last", partition=0)
    assert values(cluster) == [*first, *payloads, b"last"]
    assert all(isinstance(one, MessageSizeTooLargeError) for one in found)
    assert all("may have been written" in str(one) for one in found)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_record_that_may_be_written_is_refused_for_its_size(
    cluster: FakeCluster, count: int
) -> None:
    """The limit became smaller meanwhile. A program that sends it again has to know."""
    async with new_producer(cluster, linger_ms=20) as producer:
        cluster.intercept(ProduceRequest, Cut(handled=True), times=1)
        cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError), times=2)
        found = await results(await send_all(producer, numbers(count)))
    assert values(cluster) == numbers(count)
    assert all(isinstance(one, MessageSizeTooLargeError) for one in found)
    assert all("may have been written" in str(one) for one in found)


def test_batches_grow_again_when_the_limit_of_a_topic_was_raised() -> None:
    """Also those of a topic that is used all the time."""

    async def main(simulation: Simulation) -> int:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, config={"max.message.bytes": 1000})
            servers = cluster.bootstrap_servers
            async with (
                new_producer(cluster) as producer,
                AIOKafkaAdminClient(bootstrap_servers=servers) as admin,
            ):
                await results(await send_all(producer, [b"x" * 100] * 500))
                raised = {"max.message.bytes": "1048588"}
                await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, raised)])
                for _ in range(10):
                    await asyncio.sleep(100)
                    before = len(cluster.log(TOPIC).batches)
                    found = await results(await send_all(producer, [b"x" * 100] * 500))
                    assert not any(isinstance(one, BaseException) for one in found)
                return len(cluster.log(TOPIC).batches) - before

    assert simulate(main) < 10


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_parts_of_large_batches_are_sent_one_behind_the_other(codec: str | None) -> None:
    """Batches had grown behind others when a broker far away refused them. Each part waited for the
    response to the one before it, and most records expired."""

    async def main(simulation: Simulation) -> list[Any]:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, config={"max.message.bytes": 200_000})
            simulation.chaos(cluster).faults.slow(0, 0.1, 0.1)
            source = random.Random(1)
            payloads = [b"%9d" % n + source.randbytes(991) for n in range(4000)]
            times = {"delivery_timeout_ms": 25_000, "request_timeout_ms": 20_000}
            async with new_producer(cluster, compression_type=codec, **times) as producer:
                found = await results(await send_all(producer, payloads))
            assert values(cluster) == payloads
            return found

    assert not any(isinstance(one, BaseException) for one in simulate(main))


async def test_the_first_part_goes_alone_to_a_leader_that_does_not_know_the_producer(
    cluster: FakeCluster,
) -> None:
    """It would take the second part for the first of the producer, and refuse the first for
    ever."""
    cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError), times=1)
    cluster.intercept(ProduceRequest, Fail(NotLeaderForPartitionError), times=1)
    async with new_producer(cluster, linger_ms=20) as producer:
        found = await results(await send_all(producer, numbers(50)))
    assert not any(isinstance(one, BaseException) for one in found)
    assert values(cluster) == numbers(50)
