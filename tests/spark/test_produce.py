"""Rows on their way to Kafka: partitions, batches, failures, and transactions that mark a batch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaClient
from aiokafka.errors import (
    InvalidProducerEpoch,
    MessageSizeTooLargeError,
    ProducerFenced,
    TopicAuthorizationFailedError,
)
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.ranges import PartitionRange, RangeReader
from aiokafka.spark._options import parse_write
from aiokafka.spark._produce import (
    Identity,
    NotRepeatedError,
    RecordWriter,
    Transaction,
    WriteColumns,
    make_producer,
)
from aiokafka.testing import Fail, FakeCluster


def columns(rows: list[dict[str, Any]]) -> WriteColumns:
    def column(name: str) -> list[Any] | None:
        return [row.get(name) for row in rows] if any(name in row for row in rows) else None

    return WriteColumns(
        len(rows),
        [row.get("value") for row in rows],
        column("key"),
        column("topic"),
        column("partition"),
        column("headers"),
        column("timestamp"),
    )


def options(cluster: FakeCluster, streaming: bool = True, **given: Any) -> Any:
    given = {"topic": "t", "kafka.bootstrap.servers": cluster.bootstrap_servers, **given}
    return parse_write({k: v for k, v in given.items() if v is not None}, streaming=streaming)


async def write(cluster: FakeCluster, *parts: WriteColumns, **given: Any) -> RecordWriter:
    parsed = options(cluster, **given)
    producer = await make_producer(parsed)
    try:
        writer = RecordWriter(producer, parsed.topic)
        for part in parts:
            await writer.add(part)
        await writer.finish()
        return writer
    finally:
        writer.drop()
        await producer.stop()


def written(cluster: FakeCluster, topic: str = "t", partitions: int = 3) -> dict[int, list[Any]]:
    return {p: cluster.log(topic, p).records() for p in range(partitions)}


async def test_keys_go_where_java_sends_them(cluster: FakeCluster) -> None:
    keys = [b"k%d" % n for n in range(100)]
    writer = await write(cluster, columns([{"key": key, "value": key} for key in keys]))
    choose = DefaultPartitioner()
    wanted = {p: [k for k in keys if choose(k, [0, 1, 2], []) == p] for p in range(3)}
    assert {p: [r.key for r in records] for p, records in written(cluster).items()} == wanted
    assert writer.counts == {("t", p): len(found) for p, found in wanted.items()}
    assert writer.rows == 100


async def test_rows_without_keys_fill_batch_after_batch(cluster: FakeCluster) -> None:
    rows = [{"value": bytes(100)}] * 100
    await write(cluster, columns(rows), **{"kafka.batch.size": "1000"})
    found = written(cluster)
    assert sum(len(records) for records in found.values()) == 100
    assert all(len(records) >= 20 for records in found.values())


async def test_all_columns(cluster: FakeCluster) -> None:
    row = {
        "key": None,
        "value": None,
        "partition": 2,
        "headers": [("h", b"1"), ("h", None)],
        "timestamp": 1_600_000_000_000,
    }
    await write(cluster, columns([row]))
    (record,) = cluster.log("t", 2).records()
    assert (record.key, record.value, record.timestamp) == (None, None, 1_600_000_000_000)
    assert record.headers == (("h", b"1"), ("h", None))


async def test_the_option_wins_over_the_column(cluster: FakeCluster) -> None:
    await cluster.create_topic("u", partitions=1)
    await write(cluster, columns([{"value": b"1", "topic": "u"}]))
    assert not cluster.log("u", 0).records()
    await write(cluster, columns([{"value": b"2", "topic": "u"}]), topic=None)
    assert [r.value for r in cluster.log("u", 0).records()] == [b"2"]


async def test_a_row_without_a_topic(cluster: FakeCluster) -> None:
    with pytest.raises(ValueError, match="topic: a row has none"):
        await write(cluster, columns([{"value": b"1", "topic": None}]), topic=None)


async def test_a_row_that_is_too_large(cluster: FakeCluster) -> None:
    with pytest.raises(MessageSizeTooLargeError):
        await write(cluster, columns([{"value": bytes(2**21)}]))


async def test_failures_are_told(cluster: FakeCluster) -> None:
    with cluster.intercept(ProduceRequest, Fail(TopicAuthorizationFailedError)):
        with pytest.raises(TopicAuthorizationFailedError):
            await write(cluster, columns([{"value": b"1"}]))


async def test_many_open_batches_do_not_pile_up(cluster: FakeCluster) -> None:
    await cluster.create_topic("many", partitions=300)
    producer = await make_producer(options(cluster))
    writer = RecordWriter(producer, "many")
    value = bytes(120_000)
    await writer.add(columns([{"value": value, "partition": n} for n in range(300)]))
    await producer.flush()
    assert cluster.log("many", 0).end_offset == 1
    await writer.finish()
    await producer.stop()


# -- exactly once


ROWS = columns([{"key": b"%d" % n, "value": b"v%d" % n} for n in range(50)])
ONE = Identity("query", 3, 0)


async def once(
    cluster: FakeCluster, identity: Identity, rows: WriteColumns = ROWS, commit: bool = True
) -> bool:
    """One attempt of a task; whether it wrote."""
    parsed = options(cluster, deliveryGuarantee="exactly-once")
    transaction = Transaction(parsed, identity)
    try:
        producer, marker = await transaction.begin()
        writer = RecordWriter(producer, "t")
        if marker is not None:
            writer.check(rows)
            transaction.check(marker, writer)
            return False
        await writer.add(rows)
        writer.sum_up(rows)
        await writer.finish()
        if commit:
            await transaction.commit(writer)
        return True
    finally:
        await transaction.close()


async def visible(cluster: FakeCluster) -> list[bytes]:
    """Values that are committed."""
    servers = cluster.bootstrap_servers
    found: list[bytes] = []
    async with AIOKafkaClient(bootstrap_servers=servers) as client:
        logs = [cluster.log("t", p) for p in range(3)]
        ranges = [PartitionRange("t", p, 0, log.last_stable_offset) for p, log in enumerate(logs)]
        async with RangeReader(client, ranges, read_committed=True) as reader:
            while (records := await reader.next()) is not None:
                while (rows := records.read(1000)) is not None:
                    ends = memoryview(rows.columns.values.offsets).cast("i")
                    data = bytes(rows.columns.values.data)
                    found += [data[ends[i] : ends[i + 1]] for i in range(rows.size)]
    return sorted(found)


WANTED = sorted(b"v%d" % n for n in range(50))


async def test_a_batch_is_written_once(cluster: FakeCluster) -> None:
    assert await once(cluster, ONE)
    assert not await once(cluster, ONE)
    assert await visible(cluster) == WANTED


async def test_an_attempt_that_died_leaves_nothing(cluster: FakeCluster) -> None:
    assert await once(cluster, ONE, commit=False)
    assert await visible(cluster) == []
    assert await once(cluster, ONE)
    assert await visible(cluster) == WANTED


async def test_other_tasks_and_batches_are_others(cluster: FakeCluster) -> None:
    for identity in (ONE, ONE._replace(task=1), ONE._replace(batch=4), Identity("q2", 3, 0)):
        assert await once(cluster, identity)
    assert await visible(cluster) == sorted(WANTED * 4)


async def test_an_older_batch_is_not_written_again(cluster: FakeCluster) -> None:
    assert await once(cluster, ONE)
    assert not await once(cluster, ONE._replace(batch=2))


async def test_a_zombie_is_fenced(cluster: FakeCluster) -> None:
    parsed = options(cluster, deliveryGuarantee="exactly-once")
    zombie = Transaction(parsed, ONE)
    producer, marker = await zombie.begin()
    assert marker is None
    writer = RecordWriter(producer, "t")
    await writer.add(ROWS)
    assert await once(cluster, ONE)
    with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
        await writer.finish()
        await zombie.commit(writer)
    writer.drop()
    await zombie.close()
    assert await visible(cluster) == WANTED


async def test_a_repetition_with_other_rows_fails_loudly(cluster: FakeCluster) -> None:
    assert await once(cluster, ONE)
    fewer = columns([{"key": b"1", "value": b"x"}])
    with pytest.raises(NotRepeatedError, match="50 rows were written, but its repetition has 1"):
        await once(cluster, ONE, fewer)
    others = columns([{"key": b"%d" % n, "value": b"w%d" % n} for n in range(50)])
    with pytest.raises(NotRepeatedError):
        await once(cluster, ONE, others)


async def test_the_order_of_rows_may_be_another(cluster: FakeCluster) -> None:
    assert await once(cluster, ONE)
    turned = columns([{"key": b"%d" % n, "value": b"v%d" % n} for n in reversed(range(50))])
    assert not await once(cluster, ONE, turned)


async def test_cancelled_in_the_middle(cluster: FakeCluster) -> None:
    task = asyncio.create_task(once(cluster, ONE))
    await cluster.wait_for(lambda: cluster.count(ProduceRequest) >= 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await once(cluster, ONE)
    assert await visible(cluster) == WANTED
