"""With auto_offset_reset="latest" nothing is missed that is written after start() returned, and
nothing is read again that was there before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import (
    BrokerResponseError,
    LeaderNotAvailableError,
    NoOffsetForPartitionError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.list_offsets import ListOffsetsRequest
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.testing import Edit, Fail, FakeCluster, Hold
from tests.support.consumers import T0, T1, T2, Start, client_of, fill, read

WAYS = ["subscribed", "group", "consumer protocol", "assigned", "assigned in a group", "pattern"]


async def begin(start: Start, cluster: FakeCluster, way: str, **options: Any) -> AIOKafkaConsumer:
    options = {
        "auto_offset_reset": "latest",
        "metadata_max_age_ms": 200,
        "max_poll_interval_ms": 60_000,
        **options,
    }
    if "group" in way or "protocol" in way:
        options["group_id"] = "g"
    if "protocol" in way:
        options["group_protocol"] = "consumer"
    if "assigned" in way:
        return await start(cluster, assign=[T0], **options)
    if way == "pattern":
        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, **options)
        consumer.subscribe(pattern="t")
        await consumer.start()
        return consumer
    return await start(cluster, "t", **options)


def missing_at_first(error: type[BrokerResponseError], times: int = 1) -> Any:
    """Have a broker make the topic `t` as real ones do: the first answers say that it is not
    there."""
    left = times

    def change(response: MetadataResponse) -> None:
        nonlocal left
        for topic in response.topics:
            if topic.name == "t" and left:
                left -= 1
                topic.error_code = error.errno
                topic.partitions = []

    return Edit(change)


@pytest.mark.parametrize("error", [UnknownTopicOrPartitionError, LeaderNotAvailableError])
@pytest.mark.parametrize("way", [way for way in WAYS if way != "pattern"])
async def test_a_topic_that_is_made_while_it_starts(
    cluster: FakeCluster, start: Start, way: str, error: type[BrokerResponseError]
) -> None:
    cluster.intercept(MetadataRequest, missing_at_first(error, 2))
    # Written by the client that made the topic, before the position is looked up.
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await begin(start, cluster, way)
    assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_written_when_it_has_started(
    cluster: FakeCluster, start: Start, way: str
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await begin(start, cluster, way)
    if way == "pattern":
        await cluster.wait_for(lambda: cluster.count(ListOffsetsRequest) > 0)
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 3)]
    await consumer.stop()


@pytest.mark.parametrize("way", ["subscribed", "group", "consumer protocol", "pattern"])
async def test_partitions_that_are_added(cluster: FakeCluster, start: Start, way: str) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await begin(start, cluster, way)
    await cluster.wait_for(lambda: cluster.count(FetchRequest) > 0)
    await grow(cluster, 2)
    fill(cluster, 1, 2)
    assert await read(consumer, 2) == [(1, 0), (1, 1)]
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 3)]
    await consumer.stop()


async def test_an_assigned_partition_that_is_added(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 1, 3)
    consumer = await start(
        cluster, assign=[T0, T1, T2], auto_offset_reset="latest", metadata_max_age_ms=200
    )
    await grow(cluster, 3)
    fill(cluster, 2, 2)
    assert await read(consumer, 2) == [(2, 0), (2, 1)]


async def test_topics_that_match_later(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t1")
    fill(cluster, 0, 3, topic="t1")
    consumer = await begin(start, cluster, "pattern")
    await cluster.wait_for(lambda: cluster.count(FetchRequest) > 0)
    await cluster.create_topic("t2")
    fill(cluster, 0, 2, topic="t2")
    records = [await consumer.getone() for _ in range(2)]
    assert [(record.topic, record.offset) for record in records] == [("t2", 0), ("t2", 1)]
    await consumer.stop()


async def test_a_topic_that_is_not_there_is_waited_for(cluster: FakeCluster, start: Start) -> None:
    """It is asked for again soon, not only after `metadata_max_age_ms`."""
    options = {"allow_auto_create_topics": False, "auto_offset_reset": "latest"}
    await cluster.create_topic("t")
    consumer = await start(cluster, "t", **options)
    consumer.subscribe(["t", "later"])
    seen = cluster.count(MetadataRequest)
    await cluster.wait_for(lambda: cluster.count(MetadataRequest) > seen + 2)
    await cluster.create_topic("later")
    fill(cluster, 0, 1, topic="later")
    assert (await consumer.getone()).topic == "later"


async def test_a_missing_topic_is_asked_for_less_and_less(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, "t", allow_auto_create_topics=False)
    consumer.subscribe(["t", "never"])
    cluster.forget_requests()
    # With 10 ms that double there are some seven in a second; asked for without a pause, thousands.
    await asyncio.sleep(1.0)
    assert 3 <= cluster.count(MetadataRequest) <= 70


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_who_comes_later_reads_nothing_again(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """The partition is new to the first member only; a process that is started again finds it."""
    await cluster.create_topic("t")
    options = {"group_id": "g", "group_protocol": protocol, "enable_auto_commit": False}
    first = await begin(start, cluster, "subscribed", **options)
    await grow(cluster, 2)
    fill(cluster, 1, 2)
    assert await read(first, 2) == [(1, 0), (1, 1)]
    await first.stop()
    second = await begin(start, cluster, "subscribed", **options)
    fill(cluster, 1, 1)
    assert await read(second, 1) == [(1, 2)]


async def test_a_topic_that_was_not_to_be_found_long_ago(
    cluster: FakeCluster, start: Start
) -> None:
    """An old "no such topic" says nothing of the time when the application begins to read it."""
    options = {"auto_offset_reset": "latest", "allow_auto_create_topics": False}
    consumer = await start(cluster, default_api_timeout_ms=1000, **options)
    with pytest.raises(Exception, match="t"):
        await consumer.end_offsets([T0])
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer.assign([T0])
    assert await consumer.position(T0) == 3


async def test_partitions_that_an_answer_leaves_out_are_not_new(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 1, 3)
    consumer = await start(cluster, assign=[T0], auto_offset_reset="latest")
    left = 2

    def change(response: MetadataResponse) -> None:
        nonlocal left
        for topic in response.topics:
            if left and topic.name == "t":
                left -= 1
                topic.partitions = [p for p in topic.partitions if p.partition_index == 0]

    cluster.intercept(MetadataRequest, Edit(change))
    for _ in range(3):
        await client_of(consumer).force_metadata_update()
    consumer.assign([T0, T1])
    assert await consumer.position(T1) == 3


@pytest.mark.parametrize("count", [2, 8], ids=["shorter", "longer"])
@pytest.mark.parametrize("policy", ["latest", "earliest", "by_duration:PT1H"])
async def test_a_topic_that_is_made_anew(
    cluster: FakeCluster, start: Start, policy: str, count: int
) -> None:
    """Whether or not the old position is in the new log."""
    await cluster.create_topic("t")
    fill(cluster, 0, 5)
    consumer = await start(cluster, "t", auto_offset_reset=policy, metadata_max_age_ms=50)
    consumer.seek(T0, 4)
    assert await read(consumer, 1) == [(0, 4)]
    await cluster.delete_topic("t")
    await cluster.create_topic("t")
    fill(cluster, 0, count)
    assert await read(consumer, count) == [(0, n) for n in range(count)]


async def test_without_a_policy_a_topic_that_is_made_anew_is_reported(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 5)
    consumer = await start(cluster, "t", auto_offset_reset="none", metadata_max_age_ms=50)
    consumer.seek(T0, 5)
    await cluster.delete_topic("t")
    await cluster.create_topic("t")
    fill(cluster, 0, 8)
    with pytest.raises(NoOffsetForPartitionError):
        await consumer.getone()


async def test_a_broker_that_is_behind_tells_of_the_old_topic(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    old = cluster.state.topics["t"].topic_id
    consumer = await start(cluster, "t", metadata_max_age_ms=50)
    await cluster.delete_topic("t")
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
    left = 3

    def change(response: MetadataResponse) -> None:
        nonlocal left
        for topic in response.topics:
            if left:
                left -= 1
                topic.topic_id = old

    cluster.intercept(MetadataRequest, Edit(change))
    await cluster.wait_for(lambda: not left)
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 3)]


async def test_start_does_not_wait_for_a_leader_that_is_away(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        fill(cluster, 0, 1)
        cluster.intercept(ListOffsetsRequest, Fail(LeaderNotAvailableError), broker=1)
        consumer = await start(cluster, "t", auto_offset_reset="latest")
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 1)]


async def test_a_start_that_is_cancelled_while_it_looks(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    hold = Hold(asyncio.Event())
    script = cluster.intercept(ListOffsetsRequest, hold)
    starting = asyncio.create_task(start(cluster, "t", auto_offset_reset="latest"))
    await cluster.wait_for(lambda: script.hits)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()


async def test_nothing_is_missed_between_a_time_and_the_end(
    cluster: FakeCluster, start: Start
) -> None:
    """By duration: no record is young enough; one is written before the end is asked for."""
    await cluster.create_topic("t")
    cluster.log("t").append(b"old", timestamp_ms=1000)
    script = cluster.intercept(ListOffsetsRequest, lambda request, context: after_each(cluster))
    consumer = await start(cluster, "t", auto_offset_reset="by_duration:PT1H")
    script.remove()
    assert (await consumer.getone()).offset == 1


def after_each(cluster: FakeCluster) -> Edit:
    def change(response: Any) -> None:
        cluster.log("t").append(b"new")

    return Edit(change)


async def grow(cluster: FakeCluster, count: int) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_partitions({"t": NewPartitions(count)})
    finally:
        await admin.close()
