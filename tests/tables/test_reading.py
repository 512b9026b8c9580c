"""Tables, snapshots and changes, on a cluster without faults."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalStateError, UnknownTopicOrPartitionError
from aiokafka.serialization import SerializationContext
from aiokafka.tables import (
    ChangeStream,
    CompactedTable,
    SlowSubscriberError,
    TableRecordError,
    TableTooLargeError,
)
from aiokafka.testing import FakeCluster
from tests.tables.support import brief, make_table, read, replay, write


async def test_a_started_table_has_the_latest_values(cluster: FakeCluster) -> None:
    for number in range(1000):
        write(cluster, b"k%d" % (number % 10), b"%d" % number, number % 2)
    write(cluster, b"k3", None, 1)
    async with make_table(cluster) as table:
        assert dict(table) == replay(cluster) == table
        assert len(table) == 9
        assert table[b"k8"] == b"998"
        assert table.get(b"k3") is None
        assert b"k3" not in table
        assert sorted(table.items())[0] == (b"k0", b"990")
        assert table.nbytes == 9 * len(b"k0990")


async def test_an_empty_topic(cluster: FakeCluster) -> None:
    async with make_table(cluster) as table:
        assert not table
        await table.read_to_end()


async def test_compaction_leaves_a_gap_at_the_end(cluster: FakeCluster) -> None:
    log = cluster.log("t", 0)
    for number in range(20):
        write(cluster, b"k%d" % (number % 3), b"%d" % number)
    log.compact()
    async with make_table(cluster) as table:
        assert table == replay(cluster)
        assert table.snapshot().offsets[TopicPartition("t", 0)] == log.end_offset == 20


async def test_a_table_reads_what_its_program_writes(cluster: FakeCluster) -> None:
    async with (
        make_table(cluster) as table,
        AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        for number in range(20):
            await producer.send_and_wait("t", b"%d" % number, key=b"k%d" % (number % 4))
            await table.read_to_end()
            assert table[b"k%d" % (number % 4)] == b"%d" % number
        await producer.send_and_wait("t", None, key=b"k1")
        await table.read_to_end()
        assert b"k1" not in table


async def test_aborted_and_open_transactions_are_not_in_the_table(cluster: FakeCluster) -> None:
    servers = cluster.bootstrap_servers
    write(cluster, b"k", b"before")
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"aborted", key=b"k", partition=0)
        await producer.abort_transaction()
        async with make_table(cluster) as table:
            assert table == {b"k": b"before"}
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"committed", key=b"k", partition=0)
            await table.read_to_end()
            assert table == {b"k": b"before"}
            await producer.commit_transaction()
            await table.read_to_end()
            assert table == {b"k": b"committed"}
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"aborted", key=b"l", partition=1)
            await producer.abort_transaction()
            await table.read_to_end()
            assert table == {b"k": b"committed"}


async def test_several_subscribers_get_all_changes(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"0")
    async with make_table(cluster) as table:
        first, second = table.changes(), table.changes()
        write(cluster, b"k", b"1")
        write(cluster, b"other", None)  # no change: the table has no such key
        write(cluster, b"k", None)
        write(cluster, b"l", b"2")
        expected = [(b"k", b"0", b"1"), (b"k", b"1", None), (b"l", None, b"2")]
        found = await read(first, 3)
        assert brief(found) == brief(await read(second, 3)) == expected
        assert [change.record.offset for change in found if change.record] == [1, 3, 4]
        assert table.health().subscribers == 2
        async with first:
            pass
        write(cluster, b"l", b"3")
        assert brief(await read(second, 1)) == [(b"l", b"2", b"3")]
        assert [change async for change in first] == []


async def test_a_forgotten_stream_costs_nothing(cluster: FakeCluster) -> None:
    async with make_table(cluster) as table:
        table.changes()
        assert table.health().subscribers == 0


async def test_a_slow_subscriber_is_told_and_others_go_on(cluster: FakeCluster) -> None:
    async with make_table(cluster) as table:
        slow = table.changes(max_records=5, name="cache")
        small = table.changes(max_bytes=10)
        other = table.changes()
        for number in range(10):
            write(cluster, b"k", b"%d" % number)
        await table.read_to_end()
        assert [change.new for change in await read(slow, 6)] == [b"%d" % n for n in range(6)]
        with pytest.raises(SlowSubscriberError, match="'cache' is too slow: 6 changes"):
            await anext(slow)
        with pytest.raises(SlowSubscriberError, match="'changes-2' is too slow"):
            while await anext(small):
                pass
        assert len(await read(other, 10)) == 10


async def test_changes_that_were_read_do_not_count(cluster: FakeCluster) -> None:
    async with make_table(cluster) as table:
        stream = table.changes(max_records=2, max_bytes=4)
        for number in range(6):
            for _ in range(2):  # two bytes each, up to both limits
                write(cluster, b"k", b"%d" % number)
            await table.read_to_end()
            assert stream.pending == 2
            assert [change.new for change in await read(stream, 2)] == [b"%d" % number] * 2


async def test_a_closed_stream_has_no_changes_and_no_error(cluster: FakeCluster) -> None:
    async with make_table(cluster, max_bytes=50) as table:
        unread, slow, failed = table.changes(), table.changes(max_records=1), table.changes()
        for number in range(2):
            write(cluster, b"k", b"%d" % number)
        await table.read_to_end()
        await unread.aclose()
        await slow.aclose()
        assert unread.pending == slow.pending == 0
        assert await anext(slow, None) is None
        write(cluster, b"k", b"2")
        await table.read_to_end()
        assert await anext(unread, None) is None
        await failed.aclose()
        write(cluster, b"k", b"v" * 100)
        with pytest.raises(TableTooLargeError):
            await table.read_to_end()
        assert await anext(failed, None) is None
        assert table.health().subscribers == 0


async def test_stop_ends_streams_after_their_changes(cluster: FakeCluster) -> None:
    async with make_table(cluster) as table:
        stream = table.changes()
        waiting = asyncio.ensure_future(anext(table.changes(), None))
        write(cluster, b"k", b"1")
        await table.read_to_end()
        assert (await waiting) is not None
        waiting = asyncio.ensure_future(anext(table.changes(), None))
        await asyncio.sleep(0)
    assert len([change async for change in stream]) == 1
    assert await waiting is None
    assert table == {b"k": b"1"}
    assert table.health().state == "stopped"
    assert [change async for change in table.changes()] == []


async def test_a_cancelled_call_loses_no_change(cluster: FakeCluster) -> None:
    async with make_table(cluster) as table:
        stream = table.changes()
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        write(cluster, b"k", b"1")
        assert brief(await read(stream, 1)) == [(b"k", None, b"1")]


async def test_a_snapshot_does_not_change(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"0")
    async with make_table(cluster) as table:
        snapshot, changes = table.snapshot_and_changes()
        write(cluster, b"k", b"1")
        assert (await anext(changes)).old == snapshot[b"k"]
        assert table[b"k"] == b"1"
        assert snapshot == {b"k": b"0"}
        assert snapshot.offsets == {TopicPartition("t", 0): 1, TopicPartition("t", 1): 0}
        with pytest.raises(TypeError):
            snapshot.offsets[TopicPartition("t", 0)] = 1  # type: ignore[index]


async def test_partitions_that_are_added_are_followed(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"0")
    async with make_table(cluster, metadata_max_age_ms=200) as table:
        stream = table.changes()
        cluster.add_partitions("t", 3)
        write(cluster, b"l", b"1", 2)
        write(cluster, b"l", b"2", 2)
        assert brief(await read(stream, 2)) == [(b"l", None, b"1"), (b"l", b"1", b"2")]
        await table.read_to_end()
        assert table == {b"k": b"0", b"l": b"2"}
        assert table.health().loading == ()


async def test_deserialized_keys_and_values(cluster: FakeCluster) -> None:
    write(cluster, b'"k"', b'{"n": 1}')
    write(cluster, b'"l"', b"1")
    write(cluster, b'"l"', b"null")
    write(cluster, b'"m"', b"1")
    write(cluster, b'"m"', None)
    async with make_table(
        cluster, key_deserializer=json.loads, value_deserializer=json.loads
    ) as table:
        assert table == {"k": {"n": 1}}


async def as_text(data: bytes, ctx: SerializationContext) -> str:
    await asyncio.sleep(0)
    return f"{ctx.topic} {data.decode()}"


class Upper:
    """A deserializer in the form of kafka-python."""

    def deserialize(self, topic: str, data: bytes) -> str:
        return data.decode().upper()


async def test_deserializers_of_other_forms(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"v")
    write(cluster, b"l", b"v")
    write(cluster, b"l", None)
    async with make_table(cluster, key_deserializer=Upper(), value_deserializer=as_text) as table:
        assert table == {"K": "t v"}
    with pytest.raises(TypeError, match="value_deserializer"):
        make_table(cluster, value_deserializer=1)


async def start_fails(table: CompactedTable[Any, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        await table.start()
    assert table.health().state in ("failed", "stopped")
    with pytest.raises(IllegalStateError, match="use `async with`"):
        len(table)


async def test_unhashable_keys(cluster: FakeCluster) -> None:
    write(cluster, b'{"a": 1}', b"v")
    table = make_table(cluster, key_deserializer=json.loads)
    await start_fails(table, TypeError, "key of t-0@0 is a dict, which is not hashable")


async def test_records_without_a_key(cluster: FakeCluster) -> None:
    cluster.log("t", 1).append(b"v")
    await start_fails(make_table(cluster), TableRecordError, "t-1@0 has no key")


async def test_a_table_that_is_too_large(cluster: FakeCluster) -> None:
    for number in range(100):
        write(cluster, b"%03d" % number, b"v" * 7)
    await start_fails(
        make_table(cluster, max_bytes=995),
        TableTooLargeError,
        "'t' has 99 keys with 990 bytes; the next record needs 1000 bytes.* max_bytes=995",
    )


async def test_a_topic_that_does_not_exist(cluster: FakeCluster) -> None:
    table = make_table(cluster, "none", request_timeout_ms=500)
    await start_fails(table, UnknownTopicOrPartitionError, "none")
    assert "none" not in cluster.state.topics


async def test_a_failure_reaches_all_that_wait(cluster: FakeCluster) -> None:
    async with make_table(cluster, max_bytes=10) as table:
        stream = table.changes()
        write(cluster, b"k", b"1")
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        write(cluster, b"k", b"v" * 100)
        with pytest.raises(TableTooLargeError):
            await waiting
        with pytest.raises(TableTooLargeError):
            await table.read_to_end()
        with pytest.raises(TableTooLargeError):
            table.changes()
        # Brokers are not asked after a failure.
        await cluster.stop_broker(0)
        for later in (table.read_to_end(), table.read_past()):
            with pytest.raises(TableTooLargeError):
                await later
        assert table == {b"k": b"1"}
        assert table.nbytes == 2
        health = table.health()
        assert health.subscribers == 0
        assert health.state == "failed"
        assert "TableTooLargeError" in str(health.last_error)
        assert isinstance(table.failure, TableTooLargeError)
        json.dumps(health.as_dict())
    assert isinstance(stream, ChangeStream)


@pytest.mark.parametrize("name", ["group_id", "auto_offset_reset", "enable_auto_commit"])
async def test_options_that_a_table_sets_itself(cluster: FakeCluster, name: str) -> None:
    with pytest.raises(TypeError, match=f"{name}: a table reads the whole topic"):
        make_table(cluster, **{name: None})


@pytest.mark.parametrize(
    "use",
    [
        lambda table: table[b"k"],
        iter,
        len,
        lambda table: b"k" in table,
        CompactedTable.snapshot,
        CompactedTable.changes,
        CompactedTable.snapshot_and_changes,
        CompactedTable.read_to_end,
        CompactedTable.read_past,
    ],
)
async def test_a_table_cannot_be_read_before_start(cluster: FakeCluster, use: Any) -> None:
    table = make_table(cluster)
    with pytest.raises(IllegalStateError, match="is not started: use `async with`"):
        result = use(table)
        await result
    health = table.health()
    assert (health.state, health.lag, health.loading) == ("not started", None, ())


async def test_wrong_arguments(cluster: FakeCluster) -> None:
    with pytest.raises(ValueError, match="max_bytes=0"):
        make_table(cluster, max_bytes=0)
    with pytest.raises(TypeError, match="topic: must be"):
        make_table(cluster, topic=["t"])  # type: ignore[arg-type]
    async with make_table(cluster) as table:
        with pytest.raises(TypeError, match="max_records=True"):
            table.changes(max_records=True)
        with pytest.raises(IllegalStateError, match="started before"):
            await table.start()


async def test_a_transaction_whose_markers_are_late(cluster: FakeCluster) -> None:
    servers = cluster.bootstrap_servers
    async with (
        AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer,
        make_table(cluster) as table,
    ):
        cluster.transactions.pause_markers()
        await producer.begin_transaction()
        written = [await producer.send_and_wait("t", b"%d" % n, b"k%d" % n, n) for n in range(2)]
        await producer.commit_transaction()
        await table.read_to_end()  # the end is before the transaction
        assert not table
        waiting = asyncio.ensure_future(table.read_past(*written))
        await asyncio.sleep(1)
        assert not waiting.done()
        cluster.transactions.resume_markers()
        await waiting
        assert table == {b"k0": b"0", b"k1": b"1"}
        for wrong in (written[0]._replace(topic="other"), written[0]._replace(offset=-1)):
            with pytest.raises(ValueError, match="must have an offset in topic 't'"):
                await table.read_past(wrong)
        later = written[0]._replace(offset=written[0].offset + 2)  # behind the marker
        calls = [table.read_past(later, written[0]), table.read_past(written[0], later)]
        reading = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(1)
        assert not any(call.done() for call in reading)
        write(cluster, b"k0", b"later")
        await asyncio.wait(reading)
