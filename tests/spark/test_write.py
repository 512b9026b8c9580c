"""The rows of a task, from Arrow batches to Kafka, in the thread where Spark would have them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka.errors import GroupAuthorizationFailedError, UnstableOffsetCommit
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.protocol.messages.produce import InitProducerIdRequest
from aiokafka.spark._loop import loop_thread
from aiokafka.spark._options import WriteOptions, parse_write
from aiokafka.testing import Fail, FakeCluster

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow")

from aiokafka.spark._produce import (  # noqa: E402
    BATCH_HEADER,
    NotRepeatedError,
    TaskIdentity,
    WrittenLaterError,
)
from aiokafka.spark._write import (  # noqa: E402
    EndedBatch,
    Report,
    check_producer,
    check_repetition,
    write_batches,
)

ONE = TaskIdentity("query", 3, 0)


def options(cluster: FakeCluster, **given: Any) -> WriteOptions:
    all_given = {"topic": "t", "kafka.bootstrap.servers": cluster.bootstrap_servers, **given}
    return parse_write(all_given, streaming=True)


def once(cluster: FakeCluster) -> WriteOptions:
    return options(cluster, deliveryGuarantee="exactly-once")


def batches(start: int, until: int, size: int = 10) -> Iterator[Any]:
    for first in range(start, until, size):
        numbers = range(first, min(first + size, until))
        yield pa.record_batch(
            {"key": pa.array([b"k%d" % n for n in numbers]), "value": [str(n) for n in numbers]}
        )


def broken(until: int) -> Iterator[Any]:
    yield from batches(0, until)
    raise OSError("the JVM is gone")


async def write(
    given: WriteOptions, rows: Iterator[Any], identity: TaskIdentity | None = None
) -> Report:
    return await asyncio.to_thread(write_batches, given, rows, identity)


def committed(cluster: FakeCluster) -> list[int]:
    """Values of the records before the last stable offsets, in a log without aborted ones."""
    logs = [cluster.log("t", p) for p in range(3)]
    return sorted(int(r.value) for log in logs for r in log.records() if r.value is not None)


async def test_rows_are_written(cluster: FakeCluster) -> None:
    report = await write(options(cluster), batches(0, 95))
    assert (report.rows, report.is_repetition) == (95, False)
    assert sum(report.counts.values()) == 95
    assert committed(cluster) == list(range(95))


@pytest.mark.parametrize("topic", ["t", None])
@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"partition": pa.array([-1], pa.int32())}, "partition: a row has the invalid number -1"),
        (
            {"partition": pa.array([2**30], pa.int32())},
            "partition: a row has the invalid number 1073741824",
        ),
        ({"timestamp": pa.array([-5.0])}, "timestamp must be an int64 that is not negative"),
    ],
)
async def test_a_row_that_cannot_be_written_is_told_with_its_topic(
    cluster: FakeCluster, topic: str | None, column: dict[str, Any], message: str
) -> None:
    rows = pa.record_batch({"value": [b"1"], "topic": ["t"], **column})
    given = {"topic": topic, "kafka.bootstrap.servers": cluster.bootstrap_servers}
    settings = parse_write({k: v for k, v in given.items() if v}, streaming=True)
    with pytest.raises(ValueError, match=f"a row for the topic t cannot be written: {message}"):
        await write(settings, iter([rows]))


async def test_no_rows(cluster: FakeCluster) -> None:
    """No producer is made, and no transactional id and group is left on the brokers."""
    assert await write(options(cluster), batches(0, 0)) == ({}, 0, False, None)
    assert await write(once(cluster), batches(0, 0), ONE) == ({}, 0, False, None)
    empty = pa.record_batch({"key": pa.array([], pa.binary()), "value": pa.array([], pa.string())})
    assert await write(once(cluster), iter([empty, empty]), ONE) == ({}, 0, False, None)
    assert cluster.count(InitProducerIdRequest) == 0


async def test_no_rows_in_place_of_some(cluster: FakeCluster) -> None:
    await write(once(cluster), batches(0, 10), ONE)
    with pytest.raises(
        NotRepeatedError, match="10 rows were written before, but the repeated task"
    ):
        await write(once(cluster), batches(0, 0), ONE)
    following = ONE._replace(batch=4)
    assert await write(once(cluster), batches(0, 0), following) == ({}, 0, False, 3)


async def test_some_rows_after_none(cluster: FakeCluster) -> None:
    await write(once(cluster), batches(0, 0), ONE)
    assert (await write(once(cluster), batches(0, 10), ONE)).rows == 10
    assert committed(cluster) == list(range(10))


async def test_a_new_checkpoint_with_an_old_name(cluster: FakeCluster) -> None:
    """Its batches have the numbers of others that were written: nothing is dropped in silence."""
    await write(once(cluster), batches(0, 10), ONE)
    old = ONE._replace(batch=0)
    with pytest.raises(WrittenLaterError, match=r"batch 3 was written before, so batch 0"):
        await write(once(cluster), batches(10, 20), old)
    assert committed(cluster) == list(range(10))
    skipping = options(cluster, deliveryGuarantee="exactly-once", skipWritten="true")
    report = await write(skipping, batches(10, 20), old)
    assert (report.is_repetition, report.marked) == (True, 3)
    assert (await write(skipping, batches(20, 30), ONE._replace(batch=4))).rows == 10
    assert committed(cluster) == [*range(10), *range(20, 30)]


async def test_two_topics_of_one_batch(cluster: FakeCluster) -> None:
    """Each has marks of its own, under one name or two."""
    await cluster.create_topic("u", partitions=1)
    for _ in range(2):
        await write(once(cluster), batches(0, 10), ONE)
        other = options(cluster, topic="u", deliveryGuarantee="exactly-once")
        await write(other, batches(0, 5), ONE)
    assert committed(cluster) == list(range(10))
    found = [int(r.value) for r in cluster.log("u", 0).records() if r.value is not None]
    assert found == list(range(5))


@pytest.mark.parametrize("rows", [0, 10])
async def test_a_mark_that_cannot_be_read_at_first(cluster: FakeCluster, rows: int) -> None:
    """The transaction that it is of may not be settled."""
    await write(once(cluster), batches(0, rows), ONE)
    with cluster.intercept(OffsetFetchRequest, Fail(UnstableOffsetCommit), times=3) as script:
        again = await write(once(cluster), batches(0, rows), ONE)
    assert script.hits == 3
    assert again.is_repetition == bool(rows)


async def test_a_mark_that_cannot_be_read(cluster: FakeCluster) -> None:
    with cluster.intercept(OffsetFetchRequest, Fail(GroupAuthorizationFailedError)):
        with pytest.raises(GroupAuthorizationFailedError):
            await write(once(cluster), batches(0, 10), ONE)
    assert committed(cluster) == []


async def test_tasks_share_a_producer(cluster: FakeCluster) -> None:
    for start in (0, 10, 20):
        await write(options(cluster), batches(start, start + 10))
    assert cluster.count(InitProducerIdRequest) == 1
    assert committed(cluster) == list(range(30))


async def test_a_task_that_fails_gives_its_producer_up(cluster: FakeCluster) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match="the JVM is gone"):
            await write(options(cluster), broken(10))
    assert cluster.count(InitProducerIdRequest) == 2
    assert len(loop_thread().clients) == 0


async def test_exactly_once(cluster: FakeCluster) -> None:
    assert (await write(once(cluster), batches(0, 95), ONE)).rows == 95
    again = await write(once(cluster), batches(0, 95), ONE)
    assert (again.rows, again.is_repetition) == (95, True)
    assert committed(cluster) == list(range(95))
    with pytest.raises(NotRepeatedError):
        await write(once(cluster), batches(0, 94), ONE)


async def test_a_failed_attempt_is_aborted(cluster: FakeCluster) -> None:
    with pytest.raises(OSError):
        await write(once(cluster), broken(50), ONE)
    for partition in range(3):
        log = cluster.log("t", partition)
        assert log.last_stable_offset == log.end_offset
    assert not (await write(once(cluster), batches(0, 50), ONE)).is_repetition


async def test_rows_can_say_where_they_come_from(cluster: FakeCluster) -> None:
    given = options(cluster, addBatchHeaders="true")
    await write(given, batches(0, 3), ONE)
    records = [r for p in range(3) for r in cluster.log("t", p).records()]
    assert {(r.value, r.headers) for r in records} == {
        (b"%d" % n, ((BATCH_HEADER, b"query/3/0/%d" % n),)) for n in range(3)
    }


async def test_what_rows_say_comes_after_their_own_headers(cluster: FakeCluster) -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array([[{"key": "h", "value": b"1"}], None], pa.list_(pair))
    batch = pa.record_batch({"value": ["0", "1"], "headers": headers, "topic": ["t", "t"]})
    given = parse_write(
        {"kafka.bootstrap.servers": cluster.bootstrap_servers, "addBatchHeaders": "true"},
        streaming=True,
    )
    await write(given, iter([batch, batch]), ONE)
    found = [r.headers for p in range(3) for r in cluster.log("t", p).records()]
    label = [(BATCH_HEADER, b"query/3/0/%d" % n) for n in range(4)]
    own = ("h", b"1")
    assert sorted(found) == sorted([(own, label[0]), (label[1],), (own, label[2]), (label[3],)])


async def test_rows_of_several_topics(cluster: FakeCluster) -> None:
    await cluster.create_topic("u", partitions=1)
    topics = pa.array(["u", "t", "u", "t"])
    keys = pa.array(["k"] * 4)
    batch = pa.record_batch({"key": keys, "value": ["0", "1", "2", "3"], "topic": topics})
    given = parse_write({"kafka.bootstrap.servers": cluster.bootstrap_servers}, streaming=True)
    report = await write(given, iter([batch, batch.slice(1, 2)]))
    assert report.rows == 6
    assert [r.value for r in cluster.log("u", 0).records()] == [b"0", b"2", b"2"]
    found = [r.value for p in range(3) for r in cluster.log("t", p).records()]
    assert found == [b"1", b"3", b"1"]


async def test_a_batch_that_other_tasks_repeat(cluster: FakeCluster) -> None:
    given = once(cluster)
    await write(given, batches(20, 30), ONE._replace(task=1))
    report = await write(given, batches(0, 30), ONE)
    assert report.marked == 3
    ended = EndedBatch("query", None, 3, 1, 3)
    with pytest.raises(NotRepeatedError, match="repeated by 1 tasks"):
        await asyncio.to_thread(check_repetition, given, ended)
    await asyncio.to_thread(check_repetition, given, ended._replace(tasks=2))


async def test_the_driver_looks_when_a_batch_ends(cluster: FakeCluster) -> None:
    pytest.importorskip("pyspark", reason="needs PySpark")
    from aiokafka.spark.writer import KafkaBatchWriter, KafkaStreamWriter, Written

    given = once(cluster)
    await write(given, batches(20, 30), ONE._replace(task=1))
    messages = [Written(await write(given, batches(0, 30), ONE), ONE, "run")]
    with pytest.raises(NotRepeatedError):
        await asyncio.to_thread(KafkaStreamWriter(given).commit, messages, 3)
    with pytest.raises(NotRepeatedError):
        await asyncio.to_thread(KafkaBatchWriter(given).commit, messages)
    await asyncio.to_thread(KafkaStreamWriter(given).commit, messages * 2, 3)
    # Fewer tasks, none of which has a row.
    empty = [Written(Report({}, 0, False), ONE, "run")]
    with pytest.raises(NotRepeatedError):
        await asyncio.to_thread(KafkaStreamWriter(given).commit, empty, 3)
    plain = [Written(await write(options(cluster), batches(0, 5)))]
    await asyncio.to_thread(KafkaBatchWriter(options(cluster)).commit, plain)


async def test_wrong_settings_are_told_on_the_driver(cluster: FakeCluster) -> None:
    wrong = options(cluster, **{"kafka.compression.type": "zip"})
    with pytest.raises(ValueError, match="compression_type"):
        await asyncio.to_thread(check_producer, wrong)
    wrong = options(cluster, **{"kafka.security.protocol": "SASL_PLAINTEXT"})
    with pytest.raises(ValueError, match="sasl_plain_username"):
        await asyncio.to_thread(check_producer, wrong)


async def test_fewer_tasks_skip_what_was_written_as_well(cluster: FakeCluster) -> None:
    """A checkpoint was turned back, and later batches had more tasks: how many, data decide."""
    for task in range(3):
        later = TaskIdentity("query", 5, task)
        await write(once(cluster), batches(10 * task, 10 * task + 10), later)
    skipping = options(cluster, deliveryGuarantee="exactly-once", skipWritten="true")
    for batch, tasks in ((3, 1), (4, 2), (5, 3)):
        for task in range(tasks):
            again = TaskIdentity("query", batch, task)
            report = await write(skipping, batches(10 * task, 10 * task + 10), again)
            assert report.marked == 5
        ended = EndedBatch("query", "turned back", batch, tasks, 5)
        await asyncio.to_thread(check_repetition, skipping, ended)
    assert committed(cluster) == list(range(30))
    # What it does not forgive: that a task which has written a batch is missing from it.
    for given, batch in ((once(cluster), 3), (skipping, 5)):
        with pytest.raises(NotRepeatedError, match="but tasks 2 had written rows of it before"):
            await asyncio.to_thread(check_repetition, given, EndedBatch("query", None, batch, 2, 5))
