"""What queries read, as Spark asks for it, but without Spark: the state of a stream, losses, the
group that shows progress."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import GroupAuthorizationFailedError, UnknownTopicOrPartitionError
from aiokafka.protocol.messages.fetch import ListOffsetsRequest, ListOffsetsResponse
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.ranges import DataLossError
from aiokafka.spark._offsets import corrected_pins
from aiokafka.structs import TopicPartition
from aiokafka.testing import Edit, Fail, FakeCluster, Hold
from tests.spark.support import (
    BEGIN,
    BOTH,
    MIRRORED,
    TOLERANT,
    batch,
    committed,
    end,
    fill,
    initial,
    read,
    stream,
)

# -- AvailableNow


def test_pinned_ends_are_not_before_the_start() -> None:
    pinned = {"t": {0: 10, 1: 20}}
    assert corrected_pins(pinned, {"t": {0: 5, 1: 20}}, {}) == pinned
    assert corrected_pins(pinned, {"t": {0: 12, 1: 1}}, {"t": {0: 15, 1: 30}}) == {
        "t": {0: 12, 1: 20}
    }
    assert corrected_pins(pinned, {"t": {0: 12}}, {"t": {0: 11}}) == {"t": {0: 11, 1: 20}}
    assert corrected_pins({}, {"u": {0: 0}, "v": {0: 7}}, {"u": {0: 9}}) == {"u": {0: 0}}


STARTS: list[dict[str, Any]] = [
    {},
    {"startingOffsets": '{"t": {"0": -1, "1": -2, "2": -1}}'},
    {"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"},
    {"startingOffsets": "committed", "kafka.group.id": "g"},
    {"startingOffsets": "earliest"},
]


@pytest.mark.parametrize("given", STARTS, ids=str)
async def test_available_now_of_a_topic_that_is_written_to(
    cluster: FakeCluster, given: dict[str, Any]
) -> None:
    """Spark pins the ends before it asks for the start, which may be later ones."""
    fill(cluster, 10, 10, at=1000)
    plan = stream(cluster, **given)
    await asyncio.to_thread(plan.pin)
    fill(cluster, 3, 3, 3, at=2000)
    if "kafka.group.id" in given:
        await _commit(cluster, "g", 12)
    at = await initial(plan)
    fill(cluster, 4, at=3000)
    first = at
    while (following := await end(plan, at, 4)) != at:
        assert await read(plan, at, following)
        at = following
    ends = {number: int(at["t"][str(number)]) for number in range(3)}
    starts = {number: int(first["t"][str(number)]) for number in range(3)}
    assert ends == {n: max(starts[n], [10, 10, 0][n]) for n in range(3)}


async def _commit(cluster: FakeCluster, group: str, offset: int) -> None:
    place = TopicPartition("t", 0)
    async with AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group
    ) as consumer:
        consumer.assign([place])
        await consumer.commit({place: offset})


async def test_available_now_with_topics_that_are_new(cluster: FakeCluster) -> None:
    plan = stream(cluster, subscribe=None, subscribePattern="t|a.*", startingOffsets="earliest")
    fill(cluster, 5)
    await asyncio.to_thread(plan.pin)
    await cluster.create_topic("a", partitions=1)
    fill(cluster, 5, topic="a")
    start = await initial(plan)
    assert start["a"] == {"0": 0}
    until = await end(plan, start)
    assert await read(plan, start, until) == [("t", 0, 0, 5)]
    assert await end(plan, until) == until
    again = stream(cluster, subscribe=None, subscribePattern="t|a.*")
    await asyncio.to_thread(again.pin)
    rest = await end(again, until)
    assert await read(again, until, rest) == [("a", 0, 0, 5)]


async def test_a_leader_that_was_behind_when_the_ends_were_pinned(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    start = {"t": {"0": 10, "1": 0, "2": 0}}
    plan = stream(cluster)

    def stale(response: ListOffsetsResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.offset = min(partition.offset, 7)

    with cluster.intercept(ListOffsetsRequest, Edit(stale), times=2) as script:
        await asyncio.to_thread(plan.pin)
        assert await end(plan, start) == start
    assert script.hits == 2


async def test_available_now_of_a_log_that_became_shorter(cluster: FakeCluster) -> None:
    fill(cluster, 5)
    start = {"t": {"0": 9, "1": 0, "2": 0}}
    plan = stream(cluster)
    await asyncio.to_thread(plan.pin)
    with pytest.raises(DataLossError, match="t-0: offsets 5 to 8 are gone: the log ends earlier"):
        await end(plan, start)
    tolerant = stream(cluster, **TOLERANT)
    await asyncio.to_thread(tolerant.pin)
    until = await end(tolerant, start)
    assert until == {"t": {"0": 5, "1": 0, "2": 0}}
    assert await read(tolerant, start, until) == []
    assert await end(tolerant, until) == until


# -- topics that are deleted


@pytest.fixture
async def two(cluster: FakeCluster) -> dict[str, Any]:
    """A batch of two topics that was planned and not finished: its end."""
    await cluster.create_topic("u", partitions=2)
    fill(cluster, 10, 10)
    fill(cluster, 10, 10, topic="u")
    return {"t": {"0": 10, "1": 10, "2": 0}, "u": {"0": 10, "1": 10}}


@pytest.mark.parametrize("left", [0, 1])
async def test_a_topic_that_was_deleted_while_a_batch_was_not_finished(
    cluster: FakeCluster, two: dict[str, Any], left: int
) -> None:
    """The rest of the batch is repeated without it, and the query goes on."""
    await cluster.delete_topic("u")
    if left:
        await cluster.create_topic("u", partitions=left)
        fill(cluster, 10, topic="u")
    plan = stream(cluster, **BOTH, **TOLERANT)
    wanted = [("t", 0, 0, 10), ("t", 1, 0, 10)] + [("u", 0, 0, 10)] * left
    assert await read(plan, BEGIN, two) == wanted
    fill(cluster, 5)
    following = await end(plan, two)
    assert following["t"]["0"] == 15
    assert await read(plan, two, following) == [("t", 0, 10, 15)]


async def test_without_tolerance_a_deleted_topic_ends_the_query(
    cluster: FakeCluster, two: dict[str, Any]
) -> None:
    await cluster.delete_topic("u")
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic u"):
        await read(stream(cluster, **BOTH), BEGIN, two)


async def test_a_topic_that_is_not_subscribed_to_any_more_is_still_repeated(
    cluster: FakeCluster, two: dict[str, Any]
) -> None:
    """A batch is repeated as it was planned, whatever the options are now."""
    plan = stream(cluster, **TOLERANT)
    assert len(await read(plan, BEGIN, two)) == 4


@pytest.mark.parametrize("given", [{}, TOLERANT], ids=["strict", "tolerant"])
async def test_a_partition_that_is_not_assigned_any_more_is_still_repeated(
    cluster: FakeCluster, given: dict[str, str]
) -> None:
    fill(cluster, 10, 10)
    plan = stream(cluster, subscribe=None, assign='{"t": [0]}', **given)
    start, until = {"t": {"0": 0, "1": 0}}, {"t": {"0": 5, "1": 5}}
    assert await read(plan, start, until) == [("t", 0, 0, 5), ("t", 1, 0, 5)]


async def test_a_missing_topic_is_waited_for_once(cluster: FakeCluster) -> None:
    fill(cluster, 5)
    given = {"startingOffsets": "earliest", "kafka.request.timeout.ms": "3000"}
    plan = stream(cluster, **BOTH, **TOLERANT, **given)
    at = await initial(plan)
    waited = len(cluster.requests(MetadataRequest))
    for _ in range(2):
        await asyncio.sleep(1.0)  # Until it looks for topics again.
        fill(cluster, 1)
        following = await end(plan, at)
        assert await read(plan, at, following)
        at = following
    # Who waits asks again and again.
    assert len(cluster.requests(MetadataRequest)) - waited < waited
    await cluster.create_topic("u", partitions=1)
    fill(cluster, 2, topic="u")
    while "u" not in (following := await end(plan, at)):
        await asyncio.sleep(0.1)
    assert ("u", 0, 0, 2) in await read(plan, at, following)


# -- the first record there is


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({}, [True, True]),
        ({"startingOffsets": '{"t": {"0": -2, "1": 0, "2": 0}}'}, [True, False]),
        ({"startingTimestamp": "1"}, [False, False]),
        ({"startingOffsets": "committed", "kafka.group.id": "g"}, [False, True]),
        ({"minPartitions": "4"}, [True, False, True, False]),
    ],
    ids=str,
)
async def test_a_batch_begins_at_the_first_record_there_is(
    cluster: FakeCluster, given: dict[str, Any], flags: list[bool]
) -> None:
    """Retention may take it before it is read: that is no loss, unless an offset was named."""
    fill(cluster, 10, 10, 0, at=1000)
    await _commit(cluster, "g", 3)
    tasks = await batch(
        cluster, endingOffsets='{"t": {"0": -1, "1": -1, "2": -1}}', **given, **_by_time(given)
    )
    assert [r.from_first for task in tasks for r in task] == flags


def _by_time(given: dict[str, Any]) -> dict[str, str]:
    is_by_time = "startingTimestamp" in given
    return {"startingOffsetsByTimestampStrategy": "latest"} if is_by_time else {}


async def test_a_stream_fixes_where_it_begins(cluster: FakeCluster) -> None:
    """A repeated batch has to have the same records."""
    fill(cluster, 10)
    plan = stream(cluster, startingOffsets="earliest")
    start = await initial(plan)
    (task,) = await asyncio.to_thread(plan.tasks, start, await end(plan, start))
    assert [r.from_first for r in task] == [False]


# -- the group that shows progress


async def test_a_coordinator_that_does_not_answer_holds_nothing_up(cluster: FakeCluster) -> None:
    fill(cluster, 100)
    plan = stream(cluster, **MIRRORED)
    at = await end(plan, await initial(plan), 10)
    is_over = asyncio.Event()
    with cluster.intercept(OffsetCommitRequest, Hold(is_over)) as script:
        # The response stays away until all five are planned.
        for _ in range(5):
            at = await end(plan, at, 10)
        assert script.hits == 1
        assert int(at["t"]["0"]) == 60
        is_over.set()
        # What came meanwhile follows, the last of it alone.
        while await committed(cluster) != 50:
            await asyncio.sleep(0.02)
        assert script.hits == 2


async def test_commits_that_fail_are_told_once_and_tried_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 100)
    plan = stream(cluster, **MIRRORED)
    at = await end(plan, await initial(plan), 10)
    with cluster.intercept(OffsetCommitRequest, Fail(GroupAuthorizationFailedError)) as script:
        for _ in range(3):
            at = await end(plan, at, 10)
        await cluster.wait_for(lambda: script.hits >= 2)
    assert (
        sum("no offsets were committed for group g" in r.getMessage() for r in caplog.records) == 1
    )
    while await committed(cluster) != int(at["t"]["0"]):
        await end(plan, at, 10)
        await asyncio.sleep(0.02)
