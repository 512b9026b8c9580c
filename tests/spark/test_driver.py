"""What the driver asks the cluster and makes of the responses, without Spark and PySpark: bounds,
limits, and what is not there or not the same any more."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages.fetch import ListOffsetsRequest, ListOffsetsResponse
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from aiokafka.ranges import DataLossError
from aiokafka.spark._loop import loop_thread
from aiokafka.spark._plan import PushedFilters, batch_tasks
from aiokafka.testing import Cut, Edit, Fail, FakeCluster
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
    options,
    read,
    stream,
)

ZERO = {"t": BEGIN["t"]}


async def ranges(cluster: FakeCluster, **given: Any) -> list[tuple[str, int, int, int]]:
    """What a batch query reads."""
    return sorted(r[:4] for task in await batch(cluster, **given) for r in task)


# -- where a batch query begins and ends


async def test_bounds_by_offset(cluster: FakeCluster) -> None:
    fill(cluster, 30, 30, 5)
    begin, until = {"t": {"0": 5, "1": -2, "2": 0}}, {"t": {"0": 7, "1": -1, "2": 0}}
    given = {"startingOffsets": json.dumps(begin), "endingOffsets": json.dumps(until)}
    assert await ranges(cluster, **given) == [("t", 0, 5, 7), ("t", 1, 0, 30)]


async def test_bounds_by_time(cluster: FakeCluster) -> None:
    for millis in (1000, 2000, 3000):
        fill(cluster, 10, 10, at=millis)
    given = {"startingTimestamp": "1001", "endingTimestamp": "3000"}
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    found = await ranges(cluster, **given, **latest)
    assert found == [("t", 0, 10, 20), ("t", 1, 10, 20)]
    # Nothing is as young: no end, but no beginning either.
    assert await ranges(cluster, startingTimestamp="1000", endingTimestamp="9000", **latest) == [
        ("t", 0, 0, 30),
        ("t", 1, 0, 30),
    ]
    with pytest.raises(
        ValueError, match="no record has the requested timestamp or a later one: t-2 from 1001"
    ):
        await ranges(cluster, **given)


async def test_a_filter_of_times_moves_the_beginning(cluster: FakeCluster) -> None:
    """Never before where the query begins, and not beyond its end."""
    for millis in (1000, 2000, 3000):
        fill(cluster, 10, 10, at=millis)
    fill(cluster, 0, 0, 4, at=1000)
    begin = {"t": {"0": 0, "1": 25, "2": 0}}
    until = {"t": {"0": 18, "1": -1, "2": -1}}
    wanted = options(
        cluster,
        streaming=False,
        startingOffsets=json.dumps(begin),
        endingOffsets=json.dumps(until),
    )
    pushed = PushedFilters()
    pushed.from_millis = 1500
    tasks = await asyncio.to_thread(batch_tasks, wanted, pushed)
    found = sorted(r[:4] for task in tasks for r in task)
    assert found == [("t", 0, 10, 18), ("t", 1, 25, 30)]


async def test_a_log_that_ends_before_the_query_begins(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a job goes on at offsets that it has kept, and the topic was made again."""
    fill(cluster, 30, 30, 5)
    begin = {"t": {"0": 40, "1": 30, "2": -2}}
    given = {"startingOffsets": json.dumps(begin)}
    with pytest.raises(DataLossError, match="t-0: offsets 30 to 39 are gone: the log ends earlier"):
        await ranges(cluster, **given)
    assert await ranges(cluster, **given, **TOLERANT) == [("t", 2, 0, 5)]
    assert "skipped: t-0: offsets 30 to 39 are gone" in caplog.text
    # No end was looked up, or no beginning named.
    until = {"t": {"0": 40, "1": 30, "2": 0}}
    assert await ranges(cluster, **given, endingOffsets=json.dumps(until)) == []
    cluster.log("t", 0).delete_before(20)
    until = {"t": {"0": 10, "1": -1, "2": 0}}
    assert await ranges(cluster, endingOffsets=json.dumps(until)) == [("t", 1, 0, 30)]


CROSSED: list[dict[str, str]] = [
    {"startingTimestamp": "3000", "endingTimestamp": "1500"},
    {"startingTimestamp": "3000", "endingOffsets": '{"t": {"0": 10}}'},
    {"startingOffsets": '{"t": {"0": 25}}', "endingTimestamp": "3000"},
    {"startingOffsetsByTimestamp": '{"t": {"0": 3000}}', "endingTimestamp": "1500"},
    {"startingTimestamp": "3000", "endingTimestamp": "1500", **TOLERANT},
]


@pytest.mark.parametrize("given", CROSSED, ids=str)
async def test_bounds_that_cross_are_refused_when_they_are_known(
    cluster: FakeCluster, given: dict[str, str]
) -> None:
    """As Spark's own source does; the query read nothing, and succeeded."""
    for millis in (1000, 2000, 3000):
        fill(cluster, 10, at=millis)
    assign = {"subscribe": None, "assign": '{"t": [0]}'}
    with pytest.raises(ValueError, match=r"t-0: the query would begin at offset 2[05] and end bef"):
        await ranges(cluster, **assign, **given)


async def test_a_group_may_be_beyond_the_end_that_is_asked_for(cluster: FakeCluster) -> None:
    """Nothing is left to read."""
    fill(cluster, 30)
    async with AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="g"
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        await consumer.commit({TopicPartition("t", 0): 20})
    given = {"startingOffsets": "committed", "kafka.group.id": "g"}
    given["kafka.request.timeout.ms"] = "20000"
    until = json.dumps({"t": {"0": 10, "1": 0, "2": 0}})
    assert await ranges(cluster, **given, endingOffsets=until) == []


async def test_a_leader_that_is_behind_the_record_that_a_time_found(cluster: FakeCluster) -> None:
    for millis in (1000, 2000):
        fill(cluster, 10, 10, 10, at=millis)

    def stale(response: ListOffsetsResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.timestamp == -1:  # the end, not a record of that time
                    partition.offset = 5

    given = {"startingTimestamp": "2000"}
    expected = [("t", number, 10, 20) for number in range(3)]
    with cluster.intercept(ListOffsetsRequest, Edit(stale), times=2):
        assert await ranges(cluster, **given) == expected
    with (
        cluster.intercept(ListOffsetsRequest, Edit(stale)),
        pytest.raises(DataLossError, match="t-0: offsets 5 to 9 are gone: the log ends earlier"),
    ):
        await ranges(cluster, **given)


async def test_a_group_that_is_beyond_the_end_of_the_log(cluster: FakeCluster) -> None:
    fill(cluster, 30)
    async with AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="g"
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        await consumer.commit({TopicPartition("t", 0): 40})
    given = {"startingOffsets": "committed", "kafka.group.id": "g"}
    given["kafka.request.timeout.ms"] = "20000"
    with pytest.raises(DataLossError, match="t-0: offsets 30 to 39 are gone: the log ends earlier"):
        await ranges(cluster, **given)


async def test_a_leader_that_is_behind_where_the_query_begins(cluster: FakeCluster) -> None:
    fill(cluster, 30, 30, 5)

    def stale(response: ListOffsetsResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.offset -= 3

    given = {"startingOffsets": json.dumps({"t": {"0": 30, "1": 28, "2": 5}})}
    with cluster.intercept(ListOffsetsRequest, Edit(stale), times=1) as script:
        assert await ranges(cluster, **given) == [("t", 1, 28, 30)]
    assert script.hits == 1


# -- what is assigned


async def test_assigned_partitions(cluster: FakeCluster) -> None:
    fill(cluster, 5, 5, 5)
    given = {"subscribe": None, "assign": '{"t": [0, 2]}'}
    assert await ranges(cluster, **given) == [("t", 0, 0, 5), ("t", 2, 0, 5)]


async def test_assigned_partitions_that_are_not_there(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 5, 5)
    given = {"subscribe": None, "assign": '{"t": [0, 7], "u": [1]}'}
    given["fetchOffset.numRetries"] = "0"
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic u"):
        await ranges(cluster, **given)
    await cluster.create_topic("u", partitions=1)
    with pytest.raises(UnknownTopicOrPartitionError, match="assign: there is no t-7, u-1"):
        await ranges(cluster, **given)
    assert await ranges(cluster, **given, **TOLERANT) == [("t", 0, 0, 5)]
    assert "assign: there is no t-7, u-1" in caplog.text


async def test_a_topic_that_is_missing_is_told_once(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 5)
    for _ in range(3):
        assert await ranges(cluster, **BOTH, **TOLERANT) == [("t", 0, 0, 5)]
    told = [r for r in caplog.records if "there is no topic u" in r.getMessage()]
    assert [r.levelno for r in told] == [logging.WARNING]


async def test_a_driver_that_may_not_connect_leaves_nothing(cluster: FakeCluster) -> None:
    """The first connection works, the question for the topics does not."""
    given = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    given |= {"kafka.sasl.jaas.config": 'x.PlainLoginModule required username="a" password="b";'}
    with pytest.raises(Exception, match=r"SASL|authentication"):
        await ranges(cluster, **given)
    await cluster.wait_for(lambda: cluster.connections == 0)
    assert len(loop_thread().clients) == 0


async def test_a_driver_that_connects_by_half_leaves_nothing(cluster: FakeCluster) -> None:
    """The client has its connection, the consumer gets none: again and again, then it is told."""
    connections = 0

    def cut_others(request: Any, context: Any) -> Cut | None:
        nonlocal connections
        connections += 1
        return None if connections == 1 else Cut()

    cluster.intercept(ApiVersionsRequest, cut_others)
    with pytest.raises(KafkaConnectionError):
        await ranges(cluster, **{"kafka.request.timeout.ms": "300"})
    await cluster.wait_for(lambda: cluster.connections == 0)
    assert len(loop_thread().clients) == 0


# -- how much a stream takes


async def test_a_stream_waits_until_there_is_enough(cluster: FakeCluster) -> None:
    given = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h", "startingOffsets": "earliest"}
    plan = stream(cluster, **given)
    at = await initial(plan)
    fill(cluster, 2)
    at = await end(plan, at, 100)
    assert at["t"]["0"] == 2  # The first batch does not wait.
    fill(cluster, 4)
    assert await end(plan, at, 100) == at
    assert (await end(plan, at))["t"]["0"] == 6  # Spark does not wait for more.
    fill(cluster, 1)
    assert (await end(plan, at, 100))["t"]["0"] == 7


async def test_a_stream_does_not_wait_for_ever(cluster: FakeCluster) -> None:
    given = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "50ms", "startingOffsets": "earliest"}
    plan = stream(cluster, **given)
    at = await initial(plan)
    fill(cluster, 2)
    at = await end(plan, at, 100)
    fill(cluster, 1)
    while (following := await end(plan, at, 100)) == at:
        await asyncio.sleep(0.01)
    assert following["t"]["0"] == 3


async def test_an_idle_stream_asks_now_and_then(cluster: FakeCluster) -> None:
    given = {"latestOffset.minIntervalMs": "3600000", "startingOffsets": "earliest"}
    plan = stream(cluster, **given)
    start = await initial(plan)
    assert plan.latest() is None
    fill(cluster, 5)
    first = await end(plan, start)
    assert plan.latest() == {"t": {"0": 5, "1": 0, "2": 0}}
    asked = cluster.count(ListOffsetsRequest)
    fill(cluster, 5)
    for _ in range(10):
        assert await end(plan, first) == first
    assert cluster.count(ListOffsetsRequest) == asked


async def test_an_empty_batch_has_no_tasks_and_asks_nothing(cluster: FakeCluster) -> None:
    fill(cluster, 5)
    plan = stream(cluster, startingOffsets="earliest")
    at = await end(plan, await initial(plan))
    asked = cluster.count(MetadataRequest)
    assert await read(plan, at, at) == []
    assert cluster.count(MetadataRequest) == asked


# -- what is not as it was


@pytest.mark.parametrize(
    ("given", "is_taken"),
    [
        ({}, False),
        ({"startingOffsets": "earliest"}, True),
        ({"startingOffsets": '{"t": {"0": 3, "1": 0, "2": 0}}'}, True),
        ({"startingOffsets": '{"t": {"0": -1, "1": 0, "2": 0}}'}, False),
        ({"startingTimestamp": "1000"}, True),
        ({"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "latest"}, False),
    ],
    ids=str,
)
async def test_a_first_batch_that_another_source_did_not_finish(
    cluster: FakeCluster, given: dict[str, str], is_taken: bool
) -> None:
    """Its end does not say where it began, so that must be the same now."""
    fill(cluster, 20, 20, 20, at=1000)
    plan = stream(cluster, **given)
    start = await initial(plan)
    until = {"t": {"0": 20, "1": 20, "2": 20}}
    if is_taken:
        first = start["t"]["0"]
        assert (await read(plan, start, until))[0] == ("t", 0, first, 20)
    else:
        with pytest.raises(ValueError, match="sources/0/0"):
            await read(plan, start, until)


async def test_partitions_that_are_gone(cluster: FakeCluster) -> None:
    start, until = {"t": {"0": 0}, "u": {"0": 3}}, {"t": {"0": 0}}
    with pytest.raises(
        RuntimeError, match="partitions do not exist any more: u-0; set failOnDataLoss to false"
    ):
        await read(stream(cluster), start, until)
    assert await read(stream(cluster, **TOLERANT), start, until) == []


async def test_new_partitions_that_have_lost_records_already(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """They are read from their first offset on, which was 0 when they were made."""
    fill(cluster, 5, 5)
    cluster.log("t", 1).delete_before(3)
    start, until = {"t": {"0": 0}}, {"t": {"0": 5, "1": 5, "2": 0}}
    message = "t-1: offsets 0 to 2 are gone: the log begins later"
    with pytest.raises(DataLossError, match=message):
        await end(stream(cluster), start)
    with pytest.raises(DataLossError, match=message):
        await read(stream(cluster), start, until)
    found = await read(stream(cluster, **TOLERANT), start, until)
    assert found == [("t", 0, 0, 5), ("t", 1, 3, 5)]
    assert f"skipped: {message}" in caplog.text


async def test_a_topic_that_is_made_anew(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 20)
    strict, tolerant = stream(cluster), stream(cluster, **TOLERANT)
    until = {"t": {"0": 10, "1": 0, "2": 0}}
    for plan in (strict, tolerant):
        assert await read(plan, ZERO, until) == [("t", 0, 0, 10)]
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions=3)
    fill(cluster, 30)
    following = {"t": {"0": 30, "1": 0, "2": 0}}
    with pytest.raises(DataLossError, match=r"t-0: offsets 10 to 29 are gone: .* created again"):
        while True:  # It is noticed within a second.
            await read(strict, until, following)
            await asyncio.sleep(0.05)
    while "created again, but are read from the same offsets: ['t']" not in caplog.text:
        assert await read(tolerant, until, following) == [("t", 0, 10, 30)]
        await asyncio.sleep(0.05)


async def test_a_topic_that_is_made_anew_while_others_are_read(cluster: FakeCluster) -> None:
    """What is noticed while nothing of it is to be read is not forgotten until there is."""
    await cluster.create_topic("u", partitions=2)
    fill(cluster, 20)
    fill(cluster, 20, topic="u")
    plan = stream(cluster, **BOTH)
    at = {"t": {"0": 5, "1": 0, "2": 0}, "u": {"0": 0, "1": 0}}
    assert await read(plan, BEGIN, at) == [("t", 0, 0, 5)]
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions=3)
    fill(cluster, 20)
    begun = time.monotonic()
    while time.monotonic() < begun + 1.2:  # the driver looks for topics once in a second
        following = {**at, "u": {"0": at["u"]["0"] + 1, "1": 0}}
        assert await read(plan, at, following) == [("u", 0, at["u"]["0"], at["u"]["0"] + 1)]
        await asyncio.sleep(0.3)
    with pytest.raises(DataLossError, match=r"t-0: offsets 5 to 9 are gone: .* created again"):
        await read(plan, at, {**at, "t": {"0": 10, "1": 0, "2": 0}})


# -- the group that shows progress


async def test_progress_that_stays_is_committed_once(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    plan = stream(cluster, **MIRRORED)
    first = await end(plan, await initial(plan), 10)
    assert cluster.count(OffsetCommitRequest) == 0  # nothing is finished yet
    at = await end(plan, first, 10)
    for _ in range(5):
        assert await end(plan, first, 10) == at
    while await committed(cluster) != 10:
        await asyncio.sleep(0.01)
    assert cluster.count(OffsetCommitRequest) == 1


async def test_a_query_begins_where_a_group_is(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    plan = stream(cluster, **MIRRORED)
    at = await end(plan, await initial(plan), 10)
    await end(plan, at, 10)
    while await committed(cluster) != 10:
        await asyncio.sleep(0.01)
    begin = {"kafka.group.id": "g", "startingOffsets": "committed"}
    assert await initial(stream(cluster, **begin)) == {"t": {"0": 10, "1": 0, "2": 0}}
    cluster.intercept(OffsetFetchRequest, Fail(GroupAuthorizationFailedError))
    with pytest.raises(GroupAuthorizationFailedError):
        await initial(stream(cluster, **begin))
