"""What programs do every day, on each server that speaks Kafka's protocol."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import UnsupportedVersionError
from aiokafka.protocol.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aiokafka.testing import Edit, FakeCluster
from tests.support.consumers import T0, T1, Start, fill, read

TRANSACTIONS = 24


def has(cluster: FakeCluster, api_key: int) -> bool:
    """Whether the server has an API."""
    return api_key in cluster.state.profile.ranges


async def produce(cluster: FakeCluster, count: int = 50, **options: Any) -> None:
    """Send numbered records to partition 0."""
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options)
    async with producer:
        for number in range(count):
            await producer.send("t", b"%d" % number, partition=0)


def values(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.log("t", 0).records()]


@pytest.mark.parametrize("options", [{}, {"acks": 1}, {"acks": 0}, {"compression_type": "gzip"}])
async def test_producing(cluster: FakeCluster, options: dict[str, Any]) -> None:
    async with timeout(20):
        await produce(cluster, **options)
        await cluster.wait_for(lambda: len(values(cluster)) == 50)
    assert values(cluster) == [b"%d" % number for number in range(50)]


async def test_producing_while_metadata_changes(cluster: FakeCluster) -> None:
    """Also where each refresh names another leader, no record is lost, doubled or reordered."""
    async with timeout(30):
        await produce(cluster, 300, metadata_max_age_ms=20, linger_ms=1)
    assert values(cluster) == [b"%d" % number for number in range(300)]


async def test_a_group_goes_on_where_it_has_stopped(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 0, 6)
    fill(cluster, 1, 2)
    options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
    async with timeout(20):
        first = await start(cluster, "t", **options)
        assert await first.committed(T0) is None
        found = await read(first, 8)
        assert sorted(found) == [(0, n) for n in range(6)] + [(1, n) for n in range(2)]
        await first.commit({T0: 4})
        assert await first.committed(T0) == 4
        await first.stop()
        second = await start(cluster, "t", **options)
        assert sorted(await read(second, 4)) == [(0, 4), (0, 5), (1, 0), (1, 1)]
        await second.commit()
        fill(cluster, 0, 1)
        assert await read(second, 1) == [(0, 6)]


async def test_a_group_of_two_shares_the_partitions(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 0, 1)
    fill(cluster, 1, 1)
    async with timeout(30):
        first = await start(cluster, "t", group_id="g", heartbeat_interval_ms=50)
        second = await start(cluster, "t", group_id="g", heartbeat_interval_ms=50)
        await cluster.wait_for(lambda: len(first.assignment()) == len(second.assignment()) == 1)
        await asyncio.gather(first.getone(), second.getone())


@pytest.mark.parametrize(("policy", "first"), [("earliest", 0), ("latest", 3)])
async def test_reset_policies(cluster: FakeCluster, start: Start, policy: str, first: int) -> None:
    fill(cluster, 0, 3)
    async with timeout(20):
        consumer = await start(cluster, "t", group_id="g", auto_offset_reset=policy)
        assert await consumer.position(T0) == first
        fill(cluster, 0, 2)
        assert (await read(consumer, 1))[0] == (0, first)


async def test_seeking(cluster: FakeCluster, start: Start) -> None:
    for number in range(5):
        cluster.log("t", 0).append(b"%d" % number, timestamp_ms=1000 * number)
    async with timeout(20):
        consumer = await start(cluster, assign=[T0, T1])
        assert await read(consumer, 5) == [(0, n) for n in range(5)]
        assert await consumer.beginning_offsets([T0]) == {T0: 0}
        assert await consumer.end_offsets([T0, T1]) == {T0: 5, T1: 0}
        found = await consumer.offsets_for_times({T0: 1500, T1: 0})
        assert found[T1] is None
        assert found[T0] is not None
        assert (found[T0].offset, found[T0].timestamp) == (2, 2000)
        consumer.seek(T0, 3)
        assert await read(consumer, 1) == [(0, 3)]
        await consumer.seek_to_beginning(T0)
        assert await read(consumer, 1) == [(0, 0)]
        await consumer.seek_to_end(T0)
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 5)]


async def test_a_position_that_is_not_in_the_log(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 0, 3)
    async with timeout(20):
        consumer = await start(cluster, assign=[T0])
        consumer.seek(T0, 100)
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert "offset 100 is out of range, reset to 0" in warning
    caplog.clear()


async def test_reading_on_behind_another_leader(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 0, 3)
    async with timeout(30):
        consumer = await start(cluster, "t", group_id="g", enable_auto_commit=False)
        assert sorted(await read(consumer, 3)) == [(0, 0), (0, 1), (0, 2)]
        for _ in range(3):
            cluster.move_leader(T0, (cluster.partition("t", 0).leader + 1) % 3)
            fill(cluster, 0, 1)
            await read(consumer, 1)
            await consumer.commit()
            await consumer.seek_to_committed(T0)
        await consumer.stop()
        cluster.move_leader(T0, (cluster.partition("t", 0).leader + 1) % 3)
        fill(cluster, 0, 1)
        again = await start(cluster, "t", group_id="g", enable_auto_commit=False)
        assert await read(again, 1) == [(0, 6)]


async def test_producing_while_leaders_move(cluster: FakeCluster) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=10, linger_ms=1
    )
    async with timeout(30), producer:
        for number in range(200):
            await producer.send("t", b"%d" % number, partition=0)
            if number % 40 == 0:
                cluster.move_leader(T0, (cluster.partition("t", 0).leader + 1) % 3)
                await cluster.wait_for(lambda n=number: len(values(cluster)) > n)
    assert values(cluster) == [b"%d" % number for number in range(200)]


async def test_the_coordinator_of_a_key_that_the_response_leaves_out(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 0, 1)

    def leave_out(response: FindCoordinatorResponse) -> None:
        for coordinator in response.coordinators:
            coordinator.key = ""

    cluster.intercept(FindCoordinatorRequest, Edit(leave_out))
    async with timeout(20):
        consumer = await start(cluster, "t", group_id="g")
        assert await read(consumer, 1) == [(0, 0)]


async def test_topics_by_pattern(cluster: FakeCluster) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="g", metadata_max_age_ms=100
    )
    consumer.subscribe(pattern="^t")
    async with timeout(20), consumer:
        await cluster.create_topic("t2")
        await cluster.wait_for(lambda: len({tp.topic for tp in consumer.assignment()}) == 2)


async def test_transactions(cluster: FakeCluster, start: Start) -> None:
    """A consumer gets the records of those that were committed; without the APIs, `start()` says
    what is missing."""
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id="x", request_timeout_ms=5000
    )
    async with timeout(20):
        if not has(cluster, TRANSACTIONS):
            with pytest.raises(UnsupportedVersionError):
                await producer.start()
                async with producer.transaction():
                    await producer.send("t", b"0", partition=0)
            await producer.stop()
            return
        async with producer:
            for number in range(6):
                await producer.begin_transaction()
                await producer.send("t", b"%d" % number, partition=0)
                await producer.send_offsets_to_transaction({T0: number}, "side")
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        options = {"isolation_level": "read_committed", "group_id": "side"}
        consumer = await start(cluster, assign=[T0, T1], **options)
        assert await consumer.committed(T0) == 4
        await consumer.seek_to_beginning()
        found = [(await consumer.getone()).value for _ in range(3)]
        assert found == [b"0", b"2", b"4"]


async def test_the_next_group_protocol(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-848: whoever asks for it is told that the server does not have it."""
    if cluster.state.profile.level("group.version"):
        pytest.skip("the server has it")
    consumer = AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        group_protocol="consumer",
    )
    async with timeout(20):
        with pytest.raises(UnsupportedVersionError, match="group_protocol='consumer'"):
            await consumer.start()
        await consumer.stop()
    caplog.clear()


async def test_administering(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 0, 3)
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    async with timeout(20), admin:
        await admin.create_topics([NewTopic("made", 2, 1)])
        assert {"t", "made"} <= set(await admin.list_topics())
        described = {topic["topic"]: topic for topic in await admin.describe_topics(["t"])}
        assert len(described["t"]["partitions"]) == 2
        await admin.create_partitions({"made": 3})
        assert len((await admin.describe_cluster())["brokers"]) == 3
        consumer = await start(cluster, "t", group_id="g", enable_auto_commit=False)
        await read(consumer, 3)
        await consumer.commit()
        assert ("g", "consumer") in await admin.list_consumer_groups()
        offsets = await admin.list_consumer_group_offsets("g")
        assert offsets[T0].offset == 3
        await admin.describe_consumer_groups(["g"])
        lag = await admin.groups.lag(["g"])
        assert lag["g"] is not None
        await admin.delete_topics(["made"])
