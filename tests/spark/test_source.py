"""The data source as Spark drives it, without Spark: pickling, offsets as a state machine, replay.

Needs pyspark to be importable, but no Java.
"""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pyarrow")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs PySpark 4.2 or newer")

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    ReadMinRows,
)
from pyspark.sql.types import StructType

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.ranges import DataLossError
from aiokafka.spark import KafkaSource
from aiokafka.spark._loop import loop_thread
from aiokafka.structs import TopicPartition
from aiokafka.testing import FakeCluster

ALL = ReadAllAvailable()


def source(cluster: FakeCluster, **options: Any) -> KafkaSource:
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.retry.backoff.ms": "10",
        "fetchoffset.retryintervalms": "10",
        "latestoffset.minintervalms": "0",
        "subscribe": "t",
        **options,
    }
    return KafkaSource({name.lower(): value for name, value in given.items() if value is not None})


def stream(cluster: FakeCluster, **options: Any) -> Any:
    made = source(cluster, **options)
    return made.streamReader(schema=made.schema())


def batch(cluster: FakeCluster, **options: Any) -> Any:
    made = source(cluster, **options)
    return made.reader(schema=made.schema())


async def call(function: Any, *arguments: Any) -> Any:
    """From another thread than the fake cluster's, as Spark would."""
    return await asyncio.to_thread(function, *arguments)


async def rows(reader: Any, tasks: Any) -> list[tuple[int, int]]:
    """(partition, offset) of what the tasks read, each by a copy of the reader."""

    def read() -> list[tuple[int, int]]:
        found = []
        for task in tasks:
            other, its_task = pickle.loads(pickle.dumps((reader, task)))
            for part in other.read(its_task):
                found += zip(
                    part.column("partition").to_pylist(),
                    part.column("offset").to_pylist(),
                    strict=True,
                )
        return sorted(found)

    return await call(read)


def offsets(start: dict[int, int], end: dict[int, int]) -> list[tuple[int, int]]:
    return [(p, o) for p in sorted(end) for o in range(start.get(p, 0), end[p])]


def fill(cluster: FakeCluster, *counts: int, timestamp_ms: int | None = None) -> None:
    for partition, count in enumerate(counts):
        for n in range(count):
            cluster.log("t", partition).append(b"%d" % n, timestamp_ms=timestamp_ms)


async def test_a_batch_query_reads_everything(cluster: FakeCluster) -> None:
    fill(cluster, 20, 5, 0)
    reader = await call(batch, cluster)
    tasks = await call(reader.partitions)
    assert len(tasks) == 2
    assert await rows(reader, tasks) == offsets({}, {0: 20, 1: 5})


async def test_nothing_to_read_is_one_empty_task(cluster: FakeCluster) -> None:
    reader = await call(batch, cluster)
    tasks = await call(reader.partitions)
    assert len(tasks) == 1
    assert await rows(reader, tasks) == []


@pytest.mark.parametrize("headers", ["true", "false"])
async def test_batches_have_the_schema_that_spark_demands(
    cluster: FakeCluster, headers: str
) -> None:
    fill(cluster, 3)
    made = source(cluster, includeHeaders=headers)
    schema = made.schema()
    assert ("headers" in schema.fieldNames()) == (headers == "true")
    reader = made.reader(schema=schema)
    (task,) = await call(reader.partitions)
    (found,) = await call(lambda: list(reader.read(task)))
    assert found.schema == to_arrow_schema(schema, timezone="UTC")


async def test_a_loss_names_the_option_that_tolerates_it(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    cluster.log("t", 0).delete_before(4)
    given = {"startingOffsets": '{"t": {"0": 2, "1": 0, "2": 0}}'}
    reader = await call(lambda: batch(cluster, **given))
    message = "t-0: offsets 2 to 3 are gone: .*; with failOnDataLoss=false a query skips"
    with pytest.raises(DataLossError, match=message):
        await rows(reader, await call(reader.partitions))
    other = await call(stream, cluster)
    with pytest.raises(DataLossError, match=r"t-0: offsets 10 to 19 .*; with failOnDataLoss=false"):
        await call(other.latestOffset, {"t": {"0": 20, "1": 0, "2": 0}}, ALL)


async def test_a_schema_of_the_users_is_a_projection(cluster: FakeCluster) -> None:
    fill(cluster, 3)
    made = source(cluster)
    schema = StructType().add("value", "binary").add("offset", "long")
    reader = made.reader(schema=schema)
    (task,) = await call(reader.partitions)
    (found,) = await call(lambda: list(reader.read(task)))
    assert found.schema == to_arrow_schema(schema, timezone="UTC")
    assert found.to_pylist()[2] == {"value": b"2", "offset": 2}


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [("value", "string", "value is binary"), ("vlaue", "binary", "no column vlaue")],
)
async def test_schemas_that_are_wrong(
    cluster: FakeCluster, name: str, kind: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        source(cluster).reader(schema=StructType().add(name, kind))


async def test_a_schema_with_not_null_is_refused_before_any_task(cluster: FakeCluster) -> None:
    """Spark would refuse the batches: their schema has to be equal, and values may be null."""
    schema = StructType().add("value", "binary", nullable=False)
    with pytest.raises(ValueError, match="schema: the column value must be nullable"):
        source(cluster).reader(schema=schema)
    with pytest.raises(ValueError, match="schema: the column value must be nullable"):
        source(cluster).streamReader(schema=schema)


async def test_batch_bounds(cluster: FakeCluster) -> None:
    for millis in (1000, 2000, 3000):
        fill(cluster, 10, 10, timestamp_ms=millis)
    begin, end = {"t": {"0": 5, "1": -2, "2": 0}}, {"t": {"0": 7, "1": -1, "2": -1}}
    given = {"startingOffsets": json.dumps(begin), "endingOffsets": json.dumps(end)}
    reader = await call(lambda: batch(cluster, **given))
    tasks = await call(reader.partitions)
    assert await rows(reader, tasks) == offsets({0: 5}, {0: 7, 1: 30})
    reader = await call(
        lambda: batch(
            cluster,
            startingTimestamp="1001",
            endingTimestamp="3000",
            startingOffsetsByTimestampStrategy="latest",
        )
    )
    tasks = await call(reader.partitions)
    assert await rows(reader, tasks) == offsets({0: 10, 1: 10}, {0: 20, 1: 20})


async def test_a_time_without_records(cluster: FakeCluster) -> None:
    fill(cluster, 10, timestamp_ms=1000)
    reader = await call(lambda: batch(cluster, startingTimestamp="2000"))
    with pytest.raises(ValueError, match="t-0 from 2000"):
        await call(reader.partitions)


async def test_many_partitions_in_one_task(cluster: FakeCluster) -> None:
    fill(cluster, 20, 5, 9)
    reader = await call(lambda: batch(cluster, maxPartitions="1"))
    tasks = await call(reader.partitions)
    assert len(tasks) == 1
    assert await rows(reader, tasks) == offsets({}, {0: 20, 1: 5, 2: 9})


async def test_a_stream_batch_by_batch(cluster: FakeCluster) -> None:
    fill(cluster, 10, 10, 10)
    reader = await call(lambda: stream(cluster, startingOffsets="earliest"))
    start = await call(reader.initialOffset)
    assert start == {"t": {"0": 0, "1": 0, "2": 0}}
    first = await call(reader.latestOffset, start, ReadMaxRows(15))
    assert first == {"t": {"00": 0, "01": 0, "02": 0, "0": 5, "1": 5, "2": 5}}
    tasks = await call(reader.partitions, start, first)
    assert await rows(reader, tasks) == offsets({}, {0: 5, 1: 5, 2: 5})
    second = await call(reader.latestOffset, first, ALL)
    assert second == {"t": {"0": 10, "1": 10, "2": 10}}
    tasks = await call(reader.partitions, first, second)
    assert await rows(reader, tasks) == offsets({0: 5, 1: 5, 2: 5}, {0: 10, 1: 10, 2: 10})
    third = await call(reader.latestOffset, second, ALL)
    assert third == second
    assert list(await call(reader.partitions, second, third)) == []
    assert await call(reader.reportLatestOffset) == second


async def test_the_first_batch_is_the_same_when_it_is_repeated(cluster: FakeCluster) -> None:
    """Spark keeps the end of the first batch, but asks for its start again after a restart."""
    fill(cluster, 5)
    reader = await call(stream, cluster)
    start = await call(reader.initialOffset)
    assert start["t"]["0"] == 5
    fill(cluster, 3)
    assert await call(reader.initialOffset) == start
    end = json.loads(json.dumps(await call(reader.latestOffset, start, ALL)))
    fill(cluster, 7)
    again = await call(stream, cluster)
    other_start = await call(again.initialOffset)
    assert other_start["t"]["0"] == 15
    tasks = await call(again.partitions, other_start, end)
    assert await rows(again, tasks) == offsets({0: 5}, {0: 8})
    following = await call(again.latestOffset, end, ALL)
    assert following == {"t": {"0": 15, "1": 0, "2": 0}}
    tasks = await call(again.partitions, end, following)
    assert await rows(again, tasks) == offsets({0: 8}, {0: 15})


async def test_a_checkpoint_of_the_connector_goes_on(cluster: FakeCluster) -> None:
    fill(cluster, 20, 20, 20)
    reader = await call(stream, cluster)
    start = {"t": {"0": 3, "1": 4, "2": 20}}
    end = await call(reader.latestOffset, start, ALL)
    assert end == {"t": {"0": 20, "1": 20, "2": 20}}
    tasks = await call(reader.partitions, start, end)
    assert await rows(reader, tasks) == offsets({0: 3, 1: 4}, {0: 20, 1: 20})


@pytest.mark.parametrize(
    ("options", "is_taken"),
    [
        ({}, False),
        ({"startingOffsets": "earliest"}, True),
        ({"startingOffsets": '{"t": {"0": 3, "1": 0, "2": 0}}'}, True),
        ({"startingOffsets": '{"t": {"0": -1, "1": 0, "2": 0}}'}, False),
        ({"startingTimestamp": "1000"}, True),
        ({"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "latest"}, False),
    ],
)
async def test_a_first_batch_that_the_connector_did_not_finish(
    cluster: FakeCluster, options: dict[str, str], is_taken: bool
) -> None:
    fill(cluster, 20, 20, 20, timestamp_ms=1000)
    reader = await call(lambda: stream(cluster, **options))
    start = await call(reader.initialOffset)
    end = {"t": {"0": 20, "1": 20, "2": 20}}
    if is_taken:
        tasks = await call(reader.partitions, start, end)
        assert await rows(reader, tasks) == offsets({0: start["t"]["0"]}, {0: 20, 1: 20, 2: 20})
    else:
        with pytest.raises(ValueError, match="sources/0/0"):
            await call(reader.partitions, start, end)


async def test_available_now_ends_where_it_began_to_look(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    reader = await call(lambda: stream(cluster, startingOffsets="earliest"))
    await call(reader.prepareForTriggerAvailableNow)
    fill(cluster, 10)
    at = await call(reader.initialOffset)
    seen = []
    while (following := await call(reader.latestOffset, at, ReadMaxRows(4))) != at:
        tasks = await call(reader.partitions, at, following)
        seen += await rows(reader, tasks)
        at = following
    assert seen == offsets({}, {0: 10})


async def test_limits_of_the_options(cluster: FakeCluster) -> None:
    assert (await call(stream, cluster)).getDefaultReadLimit() == ReadAllAvailable()
    limited = await call(
        lambda: stream(cluster, maxOffsetsPerTrigger="9", minOffsetsPerTrigger="5")
    )
    assert limited.getDefaultReadLimit() == ReadMaxRows(9)
    least = await call(lambda: stream(cluster, minOffsetsPerTrigger="5"))
    assert least.getDefaultReadLimit() == ReadMinRows(5)


async def test_it_waits_until_there_is_enough(cluster: FakeCluster) -> None:
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h"}
    reader = await call(lambda: stream(cluster, **given))
    limit = ReadMinRows(5)
    at = await call(reader.initialOffset)
    fill(cluster, 2)
    at = await call(reader.latestOffset, at, limit)
    assert at["t"]["0"] == 2  # The first batch does not wait.
    fill(cluster, 4)
    assert await call(reader.latestOffset, at, limit) == at
    assert (await call(reader.latestOffset, at, ALL))["t"]["0"] == 6
    fill(cluster, 1)
    assert (await call(reader.latestOffset, at, limit))["t"]["0"] == 7


async def test_it_does_not_wait_for_ever(cluster: FakeCluster) -> None:
    given = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1ms"}
    reader = await call(lambda: stream(cluster, **given))
    at = await call(reader.initialOffset)
    fill(cluster, 2)
    at = await call(reader.latestOffset, at, ReadMinRows(5))
    fill(cluster, 1)
    await asyncio.sleep(0.01)
    assert (await call(reader.latestOffset, at, ReadMinRows(5)))["t"]["0"] == 3


async def test_new_partitions_are_read_from_their_start() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("a1", partitions=1)
        given = {"subscribe": None, "subscribePattern": "a.*"}
        reader = await call(lambda: stream(cluster, **given))
        start = await call(reader.initialOffset)
        await cluster.create_topic("a2", partitions=1)
        for _ in range(5):
            cluster.log("a2", 0).append(b"x")
        again = await call(lambda: stream(cluster, **given))
        while (end := await call(again.latestOffset, start, ALL)) == start:
            await asyncio.sleep(0.1)
        assert end == {"a1": {"0": 0}, "a2": {"0": 5}}
        tasks = await call(again.partitions, start, end)
        assert await rows(again, tasks) == offsets({}, {0: 5})


async def test_a_first_batch_of_new_topics_is_the_same_when_it_is_repeated() -> None:
    """The query began at the latest offsets, when there was nothing to read yet."""
    async with FakeCluster() as cluster:
        given = {"subscribe": None, "subscribePattern": "a.*"}
        reader = await call(lambda: stream(cluster, **given))
        start = await call(reader.initialOffset)
        assert start == {}
        await cluster.create_topic("a1", partitions=1)
        for _ in range(5):
            cluster.log("a1", 0).append(b"x")
        while (end := await call(reader.latestOffset, start, ALL)) == start:
            await asyncio.sleep(0.1)
        again = await call(lambda: stream(cluster, **given))
        assert await call(again.initialOffset) == {"a1": {"0": 5}}
        tasks = await call(again.partitions, await call(again.initialOffset), end)
        assert await rows(again, tasks) == offsets({}, {0: 5})


async def test_records_that_are_gone(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    cluster.log("t", 0).delete_before(8)
    start, end = {"t": {"0": 5, "1": 0, "2": 0}}, {"t": {"0": 20, "1": 0, "2": 0}}
    reader = await call(stream, cluster)
    tasks = await call(reader.partitions, start, end)
    with pytest.raises(DataLossError, match="t-0: offsets 5 to 7 are gone: the log begins later"):
        await rows(reader, tasks)
    tolerant = await call(lambda: stream(cluster, failOnDataLoss="false"))
    tasks = await call(tolerant.partitions, start, end)
    assert await rows(tolerant, tasks) == offsets({0: 8}, {0: 20})


async def test_a_log_that_became_shorter(cluster: FakeCluster) -> None:
    fill(cluster, 5)
    start = {"t": {"0": 9, "1": 0, "2": 0}}
    reader = await call(stream, cluster)
    with pytest.raises(DataLossError, match="t-0: offsets 5 to 8 are gone: the log ends earlier"):
        await call(reader.latestOffset, start, ALL)
    tolerant = await call(lambda: stream(cluster, failOnDataLoss="false"))
    end = await call(tolerant.latestOffset, start, ALL)
    assert end == {"t": {"0": 5, "1": 0, "2": 0}}
    assert list(await call(tolerant.partitions, start, end)) == []


async def test_partitions_that_are_gone(cluster: FakeCluster) -> None:
    start, end = {"t": {"0": 0}, "u": {"0": 3}}, {"t": {"0": 0}}
    reader = await call(stream, cluster)
    with pytest.raises(RuntimeError, match="partitions do not exist any more: u-0"):
        await call(reader.partitions, start, end)
    tolerant = await call(lambda: stream(cluster, failOnDataLoss="false"))
    assert list(await call(tolerant.partitions, start, end)) == []


async def test_a_topic_made_anew_while_the_query_runs(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    given = {"startingOffsets": "earliest"}
    reader = await call(lambda: stream(cluster, **given))
    start = await call(reader.initialOffset)
    end = await call(reader.latestOffset, start, ReadMaxRows(10))
    tasks = await call(reader.partitions, start, end)
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions=3)
    fill(cluster, 30)
    with pytest.raises(DataLossError, match="created again"):
        await rows(reader, tasks)
    # The driver notices within a second.
    following = {"t": {"0": 30, "1": 0, "2": 0}}
    with pytest.raises(DataLossError, match=r"offsets 4 to 29 are gone: .* created again"):
        while True:
            await call(reader.partitions, {"t": {"0": 4, "1": 0, "2": 0}}, following)
            await asyncio.sleep(0.1)


async def test_a_topic_made_anew_is_read_on_if_loss_is_tolerated(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    reader = await call(lambda: stream(cluster, failOnDataLoss="false"))
    start, end = {"t": {"0": 0, "1": 0, "2": 0}}, {"t": {"0": 10, "1": 0, "2": 0}}
    tasks = await call(reader.partitions, start, end)
    assert await rows(reader, tasks) == offsets({}, {0: 10})
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions=3)
    fill(cluster, 30)
    following = {"t": {"0": 30, "1": 0, "2": 0}}
    tasks = await call(reader.partitions, end, following)
    assert await rows(reader, tasks) == offsets({0: 10}, {0: 30})


async def test_progress_is_mirrored_to_a_group(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    given = {"commitOffsets": "true", "kafka.group.id": "g", "startingOffsets": "earliest"}
    reader = await call(lambda: stream(cluster, **given))
    start = await call(reader.initialOffset)
    end = await call(reader.latestOffset, start, ReadMaxRows(10))
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert await admin.list_consumer_group_offsets("g") == {}
        await call(reader.latestOffset, end, ReadMaxRows(10))
        stored = await admin.list_consumer_group_offsets("g")
    assert stored[TopicPartition("t", 0)].offset == 10
    begin = {"kafka.group.id": "g", "startingOffsets": "committed"}
    other = await call(lambda: stream(cluster, **begin))
    assert await call(other.initialOffset) == {"t": {"0": 10, "1": 0, "2": 0}}


async def test_a_limit_stops_early(cluster: FakeCluster) -> None:
    fill(cluster, 100)
    reader = await call(lambda: batch(cluster, batchRows="10"))
    (task,) = await call(reader.partitions)

    def one() -> int:
        batches = reader.read(task)
        size: int = next(batches).num_rows
        batches.close()
        return size

    assert await call(one) == 10
    tasks = {t.get_name() for t in asyncio.all_tasks(loop_thread().loop)}
    assert not [name for name in tasks if ":fetch-" in name or ":ranges" in name]


async def test_there_is_no_such_topic(cluster: FakeCluster) -> None:
    reader = await call(lambda: batch(cluster, subscribe="nowhere"))
    with pytest.raises(Exception, match="nowhere"):
        await call(reader.partitions)


async def test_there_is_no_such_partition(cluster: FakeCluster) -> None:
    fill(cluster, 5)
    given = {"subscribe": None, "assign": '{"t": [0, 7]}'}
    reader = await call(lambda: batch(cluster, **given))
    with pytest.raises(UnknownTopicOrPartitionError, match="t-7"):
        await call(reader.partitions)
    tolerant = await call(lambda: batch(cluster, failOnDataLoss="false", **given))
    tasks = await call(tolerant.partitions)
    assert await rows(tolerant, tasks) == offsets({}, {0: 5})
