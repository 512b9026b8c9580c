"""What a producer says of waits: once in the log, for as long as they last in `health()`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import (
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
from aiokafka.health import ProducerState
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Delay, Edit, Fail, FakeCluster, Hold
from tests.support.producers import new_producer

LASTING = 7.0


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    return [line.partition(": ")[2] for line in lines]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        await fake.create_topic("t", partitions=2)
        yield fake


def refuse_partition(number: int) -> Edit:
    def change(response: Any) -> None:
        for topic in response.responses:
            for each in topic.partition_responses:
                if each.index == number:
                    each.error_code, each.base_offset = NotEnoughReplicasError.errno, -1

    return Edit(change)


async def test_one_partition_that_is_refused_shows_while_others_are_delivered(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_producer(cluster, retry_backoff_max_ms=500) as producer:
        refused = cluster.intercept(ProduceRequest, refuse_partition(1))
        waiting = await producer.send("t", b"1", partition=1)
        for _ in range(30):
            await producer.send_and_wait("t", b"0", partition=0)
            await asyncio.sleep(1)
        health = producer.health()
        assert health.state is ProducerState.RUNNING
        (stalled,) = health.stalled
        assert stalled.what == "delivery to t-1"
        assert "[Error 19] NotEnoughReplicasError" in stalled.reason
        assert producer.metrics().value("stalled-count") == 1
        (line,) = warnings(caplog)
        assert "delivery to t-1: the last attempt failed with: [Error 19]" in line
        refused.remove()
        async with timeout(20):
            await waiting
        assert producer.health().stalled == ()


async def test_when_nothing_is_delivered_the_state_says_why(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_producer(cluster, retry_backoff_max_ms=500) as producer:
        refused = cluster.intercept(ProduceRequest, Fail(NotEnoughReplicasError))
        waiting = await producer.send("t", b"1", partition=1)
        await asyncio.sleep(LASTING)
        health = producer.health()
        assert health.state is ProducerState.UNREACHABLE
        assert health.reason.startswith("Nothing is delivered to t-1: [Error 19]")
        (line,) = warnings(caplog)
        assert line.startswith("running -> unreachable: Nothing is delivered to t-1")
        refused.remove()
        async with timeout(20):
            await waiting
        assert producer.health().state is ProducerState.RUNNING


async def test_a_row_of_batches_that_moves_is_no_stall(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"max_batch_size": 200, "max_in_flight_requests_per_connection": 1}
    async with new_producer(cluster, **options) as producer:
        cluster.intercept(ProduceRequest, Delay(0.8))
        futures = [await producer.send("t", b"x" * 150, partition=0) for _ in range(20)]
        async with timeout(60):
            await asyncio.gather(*futures)
        assert warnings(caplog) == []


async def test_what_lingers_is_no_stall(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_producer(cluster, linger_ms=10_000) as producer:
        await producer.send("t", b"x", partition=0)
        await asyncio.sleep(LASTING)
        assert producer.health().stalled == ()
        assert warnings(caplog) == []


async def test_calls_that_wait_for_memory_show(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    release = asyncio.Event()
    options: dict[str, Any] = {"buffer_memory": 20_000, "max_batch_size": 2000}
    async with new_producer(cluster, **options) as producer:
        cluster.intercept(ProduceRequest, Hold(release))
        sends = [
            asyncio.ensure_future(producer.send("t", b"x" * 1000, partition=0)) for _ in range(40)
        ]
        await asyncio.sleep(LASTING)
        found = [each.what for each in producer.health().stalled]
        assert found.count("buffer memory") == 1
        assert [line for line in warnings(caplog) if "No progress" in line] != []
        release.set()
        async with timeout(20):
            await asyncio.gather(*await asyncio.gather(*sends))
        assert producer.health().stalled == ()


async def test_a_send_that_waits_for_metadata_shows(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_producer(cluster, max_block_ms=20_000) as producer:
        with cluster.intercept(MetadataRequest, Fail(LeaderNotAvailableError)):
            sending = asyncio.ensure_future(producer.send("t", b"x"))
            await asyncio.sleep(LASTING)
            (stalled,) = producer.health().stalled
            assert stalled.what == "partitions of topic 't'"
            assert "[Error 5] LeaderNotAvailableError" in stalled.reason
            (line,) = warnings(caplog)
            assert "partitions of topic 't': [Error 5]" in line
            with pytest.raises(
                LeaderNotAvailableError, match=r"instead of its partitions for 20\.0 s"
            ):
                await sending
        assert producer.health().stalled == ()


async def test_a_program_that_repeats_a_call_gets_one_warning(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_producer(cluster, max_block_ms=8000) as producer:
        with cluster.intercept(MetadataRequest, Fail(LeaderNotAvailableError)):
            for _ in range(10):
                with pytest.raises((LeaderNotAvailableError, KafkaTimeoutError)):
                    await producer.send("t", b"x")
                await asyncio.sleep(1)
        assert len(warnings(caplog)) == 1


async def test_a_topic_that_does_not_exist_says_so_and_what_to_do() -> None:
    async with FakeCluster(config={"auto.create.topics.enable": "false"}) as cluster:
        async with new_producer(cluster, max_block_ms=2000) as producer:
            with pytest.raises(UnknownTopicOrPartitionError) as caught:
                await producer.send("my-topik", b"x")
    text = str(caught.value)
    assert "topic 'my-topik': it does not exist, as brokers reported for 2.0 s" in text
    assert "auto.create.topics.enable" in text


def throttle(response: Any) -> None:
    response.throttle_time_ms = 30_000


async def test_a_leader_that_throttles_the_producer_shows(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_producer(cluster) as producer:
        with cluster.intercept(ProduceRequest, Edit(throttle), times=1):
            await producer.send_and_wait("t", b"0", partition=0)
        waiting = await producer.send("t", b"1", partition=0)
        await asyncio.sleep(LASTING)
        health = producer.health()
        assert health.state is ProducerState.RUNNING
        (stalled,) = health.stalled
        assert stalled.what == "delivery to t-0"
        assert "the leader throttles this client, which has exceeded a quota" in stalled.reason
        (line,) = warnings(caplog)
        assert "delivery to t-0: the leader throttles this client" in line
        async with timeout(30):
            await waiting


async def test_partitions_without_a_leader_are_the_reason(cluster: FakeCluster) -> None:
    def without_leader(response: Any) -> None:
        for topic in response.topics:
            for each in topic.partitions:
                each.leader_id, each.error_code = -1, LeaderNotAvailableError.errno

    async with new_producer(cluster) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        with (
            cluster.intercept(MetadataRequest, Edit(without_leader)),
            cluster.intercept(ProduceRequest, Fail(NotLeaderForPartitionError)),
        ):
            waiting = [await producer.send("t", b"0", partition=number) for number in (0, 1)]
            await asyncio.sleep(LASTING)
            health = producer.health()
            assert health.state is ProducerState.UNREACHABLE
            assert "Nothing is delivered to t-0, t-1: [Error 5] LeaderNotAvail" in health.reason
            reasons = {each.what: each.reason for each in health.stalled}
            assert reasons.keys() == {"delivery to t-0", "delivery to t-1"}
            for reason in reasons.values():
                assert reason.startswith("the partition has no leader")
        async with timeout(20):
            await asyncio.gather(*waiting)
        assert producer.health().state is ProducerState.RUNNING
