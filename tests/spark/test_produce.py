"""Rows on their way to Kafka: partitions, batches, failures, and transactions that mark a batch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.errors import (
    InvalidProducerEpoch,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFenced,
    TopicAuthorizationFailedError,
)
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.protocol.messages.groups import ListGroupsRequest
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.ranges import PartitionRange, RangeReader
from aiokafka.record.rows import RowSource
from aiokafka.spark._options import parse_write
from aiokafka.spark._produce import (
    NotRepeatedError,
    RecordWriter,
    Tally,
    TaskIdentity,
    TaskTransaction,
    TopicRows,
    check_mark,
    make_producer,
    marker_partition,
    read_marker,
)
from aiokafka.spark._write import EndedBatch, RepetitionCheck
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from aiokafka.testing import Fail, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.rows import binary, numbers


def rows_of(rows: list[dict[str, Any]]) -> list[TopicRows]:
    """Rows as columns, of the topic `t` or another."""
    count = len(rows)
    keys = binary([row.get("key") for row in rows])
    values = binary([row.get("value") for row in rows])
    stamps = numbers("q", [row.get("timestamp", 1_500_000_000_000) for row in rows])
    partitions = numbers("i", [row.get("partition", -1) for row in rows])
    topics = {row.get("topic", "t") for row in rows}
    assert len(topics) == 1 <= count
    return [TopicRows(topics.pop(), RowSource(values, keys, None, stamps), partitions)]


def options(cluster: FakeCluster, streaming: bool = True, **given: Any) -> Any:
    given = {"topic": "t", "kafka.bootstrap.servers": cluster.bootstrap_servers, **given}
    return parse_write({k: v for k, v in given.items() if v is not None}, streaming=streaming)


async def write(cluster: FakeCluster, *batches: list[TopicRows], **given: Any) -> RecordWriter:
    producer = await make_producer(options(cluster, **given))
    try:
        writer = RecordWriter(producer)
        for batch in batches:
            await writer.add(batch)
        await writer.finish()
        return writer
    finally:
        writer.drop()
        await producer.stop()


def written(cluster: FakeCluster, topic: str = "t", partitions: int = 3) -> dict[int, list[Any]]:
    return {p: cluster.log(topic, p).records() for p in range(partitions)}


async def test_keys_go_where_java_sends_them(cluster: FakeCluster) -> None:
    keys = [b"k%d" % n for n in range(100)]
    writer = await write(cluster, rows_of([{"key": key, "value": key} for key in keys]))
    choose = DefaultPartitioner()
    wanted = {p: [k for k in keys if choose(k, [0, 1, 2], []) == p] for p in range(3)}
    assert {p: [r.key for r in records] for p, records in written(cluster).items()} == wanted
    assert writer.counts == {("t", p): len(found) for p, found in wanted.items()}
    assert writer.rows == 100


async def test_rows_without_keys_fill_batch_after_batch(cluster: FakeCluster) -> None:
    rows = [{"value": bytes(100)}] * 100
    await write(cluster, rows_of(rows), **{"kafka.batch.size": "1000"})
    found = written(cluster)
    assert sum(len(records) for records in found.values()) == 100
    assert all(len(records) >= 20 for records in found.values())


async def test_keys_and_none_side_by_side(cluster: FakeCluster) -> None:
    rows = [{"key": b"k%d" % n if n % 2 else None, "value": b"%d" % n} for n in range(60)]
    batches = [rows_of(rows[start : start + 20]) for start in (0, 20, 40)]
    await write(cluster, *batches, **{"kafka.batch.size": "400"})
    found = written(cluster)
    choose = DefaultPartitioner()
    for partition, records in found.items():
        assert all(r.key is None or choose(r.key, [0, 1, 2], []) == partition for r in records)
        in_order = [int(r.value) for r in records if r.key is not None]
        assert in_order == sorted(in_order)
    everything = sorted(int(r.value) for records in found.values() for r in records)
    assert everything == list(range(60))


async def test_rows_that_say_where_they_go(cluster: FakeCluster) -> None:
    rows = [{"key": b"k", "value": b"%d" % n, "partition": n % 3} for n in range(9)]
    await write(cluster, rows_of([*rows, {"value": None, "partition": 2, "timestamp": 7}]))
    found = {p: [r.value for r in records] for p, records in written(cluster).items()}
    assert found == {0: [b"0", b"3", b"6"], 1: [b"1", b"4", b"7"], 2: [b"2", b"5", b"8", None]}
    assert cluster.log("t", 2).records()[-1].timestamp == 7


async def test_a_partition_that_is_not_there(cluster: FakeCluster) -> None:
    with pytest.raises(ValueError, match="partition 3 of topic 't' does not exist"):
        await write(cluster, rows_of([{"value": b"1", "partition": 3}]))


async def test_a_partition_that_is_new(cluster: FakeCluster) -> None:
    producer = await make_producer(options(cluster))
    writer = RecordWriter(producer)
    await writer.add(rows_of([{"value": b"1", "partition": 0}]))
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_partitions({"t": NewPartitions(5)})
    await writer.add(rows_of([{"value": b"2", "partition": 4}]))
    await writer.finish()
    await producer.stop()
    assert [r.value for r in cluster.log("t", 4).records()] == [b"2"]


@pytest.mark.parametrize("version", ["0.9", "0.10.2"])
async def test_brokers_with_older_formats(version: str) -> None:
    async with FakeCluster(as_version=version) as old:
        await old.create_topic("t", partitions=1)
        rows = [{"key": b"k%d" % n, "value": b"v", "timestamp": 1000 + n} for n in range(20)]
        settings = {"kafka.enable.idempotence": "false", "kafka.compression.type": "gzip"}
        await write(old, rows_of(rows), **settings)
        assert [r.key for r in old.log("t", 0).records()] == [b"k%d" % n for n in range(20)]


async def test_several_topics(cluster: FakeCluster) -> None:
    await cluster.create_topic("u", partitions=1)
    both = rows_of([{"value": b"1"}]) + rows_of([{"value": b"2", "topic": "u"}])
    writer = await write(cluster, both, both)
    assert sorted(r.value for records in written(cluster).values() for r in records) == [b"1"] * 2
    assert [r.value for r in cluster.log("u", 0).records()] == [b"2"] * 2
    assert (writer.rows, writer.counts["u", 0]) == (4, 2)


async def test_a_row_that_is_too_large(cluster: FakeCluster) -> None:
    with pytest.raises(MessageSizeTooLargeError):
        await write(cluster, rows_of([{"value": bytes(2**21)}]))


@pytest.mark.parametrize(
    "given",
    [
        {"kafka.max.request.size": "100000"},
        {"kafka.buffer.memory": "200000"},
        {"kafka.batch.size": "2000000"},
    ],
    ids=str,
)
async def test_batches_fit_into_requests_and_memory(
    cluster: FakeCluster, given: dict[str, str]
) -> None:
    """As with Java's client, whose batches are smaller by default, and are divided."""
    writer = await write(cluster, rows_of([{"value": bytes(1000)}] * 3000), **given)
    assert sum(writer.counts.values()) == 3000
    assert sum(len(records) for records in written(cluster).values()) == 3000


@pytest.mark.parametrize("count", [1000, 50_000])
async def test_a_topic_that_takes_small_batches_only(cluster: FakeCluster, count: int) -> None:
    await cluster.create_topic("small", config={"max.message.bytes": 20_000})
    rows = rows_of([{"value": bytes(1000), "topic": "small"}] * 1000)
    with pytest.raises(MessageSizeTooLargeError, match=r"small-0.*set it below max.message.bytes"):
        await write(cluster, *[rows] * (count // 1000))
    await write(cluster, rows, **{"kafka.batch.size": "20000"})
    assert cluster.log("small", 0).end_offset == 1000


async def test_failures_are_told(cluster: FakeCluster) -> None:
    with cluster.intercept(ProduceRequest, Fail(TopicAuthorizationFailedError)):
        with pytest.raises(TopicAuthorizationFailedError):
            await write(cluster, rows_of([{"value": b"1"}]))


async def test_many_open_batches_do_not_pile_up(cluster: FakeCluster) -> None:
    await cluster.create_topic("many", partitions=300)
    producer = await make_producer(options(cluster))
    writer = RecordWriter(producer)
    row = {"value": bytes(120_000), "topic": "many"}
    await writer.add(rows_of([{**row, "partition": n} for n in range(300)]))
    await producer.flush()
    assert cluster.log("many", 0).end_offset == 1
    await writer.finish()
    await producer.stop()


# -- exactly once


ROWS = rows_of([{"key": b"%d" % n, "value": b"v%d" % n} for n in range(50)])
ONE = TaskIdentity("query", 3, 0)


async def once(
    cluster: FakeCluster, identity: TaskIdentity, rows: list[TopicRows] = ROWS, commit: bool = True
) -> bool:
    """One attempt of a task; whether it wrote."""
    parsed = options(cluster, deliveryGuarantee="exactly-once")
    transaction = TaskTransaction(parsed, identity)
    try:
        producer, marker = await transaction.begin()
        tally = Tally()
        tally.add(rows)
        if marker is not None:
            check_mark(identity, marker, tally)
            return False
        writer = RecordWriter(producer)
        await writer.add(rows)
        await writer.finish()
        if commit:
            await transaction.commit(tally)
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
    for identity in (ONE, ONE._replace(task=1), ONE._replace(batch=4), TaskIdentity("q2", 3, 0)):
        assert await once(cluster, identity)
    assert await visible(cluster) == sorted(WANTED * 4)


async def test_an_older_batch_is_not_written_again(cluster: FakeCluster) -> None:
    assert await once(cluster, ONE)
    assert not await once(cluster, ONE._replace(batch=2))


async def test_a_zombie_is_fenced(cluster: FakeCluster) -> None:
    parsed = options(cluster, deliveryGuarantee="exactly-once")
    zombie = TaskTransaction(parsed, ONE)
    producer, marker = await zombie.begin()
    assert marker is None
    writer = RecordWriter(producer)
    await writer.add(ROWS)
    assert await once(cluster, ONE)
    with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
        await writer.finish()
        await zombie.commit(Tally())
    writer.drop()
    await zombie.close()
    assert await visible(cluster) == WANTED


async def test_a_repetition_with_other_rows_fails_loudly(cluster: FakeCluster) -> None:
    assert await once(cluster, ONE)
    fewer = rows_of([{"key": b"1", "value": b"x"}])
    with pytest.raises(
        NotRepeatedError, match="50 rows were written before, but the repeated task"
    ):
        await once(cluster, ONE, fewer)
    others = rows_of([{"key": b"%d" % n, "value": b"w%d" % n} for n in range(50)])
    with pytest.raises(NotRepeatedError):
        await once(cluster, ONE, others)


async def test_the_order_of_rows_may_be_another(cluster: FakeCluster) -> None:
    assert await once(cluster, ONE)
    turned = rows_of([{"key": b"%d" % n, "value": b"v%d" % n} for n in reversed(range(50))])
    assert not await once(cluster, ONE, turned)


async def test_cancelled_in_the_middle(cluster: FakeCluster) -> None:
    task = asyncio.create_task(once(cluster, ONE))
    await cluster.wait_for(lambda: cluster.count(ProduceRequest) >= 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await once(cluster, ONE)
    assert await visible(cluster) == WANTED


async def store_mark(cluster: FakeCluster, identity: TaskIdentity, metadata: str) -> None:
    """A mark that another version of the library wrote."""
    name = f"aiokafka-spark-{identity.query}-{identity.task}"
    offset = OffsetAndMetadata(identity.batch + 1, metadata)
    servers = cluster.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name) as producer:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TopicPartition("t", 0): offset}, name)


async def test_a_mark_of_an_older_version_tells_the_number_of_rows(cluster: FakeCluster) -> None:
    await store_mark(cluster, ONE, '{"v": 1, "rows": 50, "hash": 12345}')
    assert not await once(cluster, ONE)
    with pytest.raises(NotRepeatedError, match="50 rows were written"):
        await once(cluster, ONE, rows_of([{"value": b"1"}]))


def test_a_mark_whose_transaction_does_not_end() -> None:
    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t", 1)
            servers = cluster.bootstrap_servers
            place = marker_partition(options(cluster))
            async with (
                AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer,
                AIOKafkaAdminClient(bootstrap_servers=servers) as admin,
            ):
                await producer.begin_transaction()
                await producer.send_offsets_to_transaction({place: 1}, "marks")
                with pytest.raises(KafkaTimeoutError, match=r"open for 60 s.*find_hanging"):
                    await read_marker(admin, "marks", place)

    simulate(main)


async def test_a_mark_that_is_damaged(cluster: FakeCluster) -> None:
    for metadata in ("", "[]", '{"v": 2, "rows": 50}', '{"rows": 50, "hash": 1}'):
        await store_mark(cluster, ONE, metadata)
        with pytest.raises(KafkaError, match="damaged"):
            await once(cluster, ONE)


# -- repeated by other tasks

ENDED = EndedBatch("query", "run 1", 3, 2, 3)


def part(start: int, until: int) -> list[TopicRows]:
    return rows_of([{"key": b"%d" % n, "value": b"v%d" % n} for n in range(start, until)])


async def check(
    cluster: FakeCluster, ended: EndedBatch, found: RepetitionCheck | None = None
) -> None:
    parsed = options(cluster, deliveryGuarantee="exactly-once")
    await (found or RepetitionCheck()).check(parsed, ended)


async def test_a_batch_that_fewer_tasks_repeat_is_found(cluster: FakeCluster) -> None:
    # The third of three tasks had committed; two tasks repeat the batch.
    assert await once(cluster, ONE._replace(task=2), part(30, 50))
    for task, rows in enumerate([part(0, 25), part(25, 50)]):
        assert await once(cluster, ONE._replace(task=task), rows)
    with pytest.raises(NotRepeatedError) as caught:
        await check(cluster, ENDED)
    assert "repeated by 2 tasks, but tasks 2 had written" in str(caught.value)
    assert "delete the groups aiokafka-spark-query-2" in str(caught.value)
    await check(cluster, ENDED._replace(tasks=3))


async def test_tasks_of_earlier_batches_and_other_queries_do_no_harm(cluster: FakeCluster) -> None:
    assert await once(cluster, TaskIdentity("query", 2, 5))
    assert await once(cluster, TaskIdentity("query-7", 3, 5))
    assert await once(cluster, TaskIdentity("quer", 3, 5))
    assert await once(cluster, TaskIdentity("query", 3, 1))
    await check(cluster, ENDED)


async def test_a_checkpoint_that_was_turned_back_is_checked_until_it_is_new_again(
    cluster: FakeCluster,
) -> None:
    found = RepetitionCheck()
    assert await once(cluster, TaskIdentity("query", 4, 6))
    # The batch has seven tasks again, so that of the seventh is no stranger.
    await check(cluster, ENDED._replace(tasks=7, last_marked=4), found)
    with pytest.raises(NotRepeatedError, match=r"batch 4.*tasks 6 had"):
        await check(cluster, ENDED._replace(batch=4), found)


async def test_groups_are_listed_once_in_a_run(cluster: FakeCluster) -> None:
    found = RepetitionCheck()
    for batch in (3, 4, 5):
        await check(cluster, ENDED._replace(batch=batch), found)
    assert cluster.count(ListGroupsRequest) == 1
    await check(cluster, ENDED._replace(batch=6, run="run 2"), found)
    assert cluster.count(ListGroupsRequest) == 2
    for _ in range(2):
        await check(cluster, ENDED._replace(batch=6, run=None), found)
    assert cluster.count(ListGroupsRequest) == 4
