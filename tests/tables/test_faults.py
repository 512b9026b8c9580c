"""Tables while leaders move, brokers are away, topics are recreated, and calls are cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    RecordDeserializationError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.messages.fetch import FetchRequest, ListOffsetsRequest
from aiokafka.tables import CompactedTable, TableTooLargeError
from aiokafka.testing import Fail, FakeCluster, Hold
from tests.tables.support import apply, brief, make_table, read, replay, write

T0 = TopicPartition("t", 0)


async def recreate(cluster: FakeCluster, partitions: int = 2) -> None:
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions)


async def test_leaders_move_and_brokers_stop() -> None:
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t", partitions=2, replication_factor=3)
        write(cluster, b"k", b"0")
        async with make_table(cluster) as table:
            stream = table.changes()
            for number in range(1, 7):
                cluster.move_leader(T0, number % 3)
                await cluster.stop_broker((number + 1) % 3)
                write(cluster, b"k", b"%d" % number)
                await table.read_to_end()
                assert table == {b"k": b"%d" % number}
                await cluster.start_broker((number + 1) % 3)
            assert [change.new for change in await read(stream, 6)] == [
                b"%d" % number for number in range(1, 7)
            ]
            assert table.health().rereads == 0


async def test_no_broker_is_away_for_good(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"0")
    async with make_table(cluster, default_api_timeout_ms=1000, request_timeout_ms=900) as table:
        await cluster.stop_broker(0)
        with pytest.raises(KafkaTimeoutError):
            await table.read_to_end()
        assert table == {b"k": b"0"}
        await cluster.start_broker(0)
        write(cluster, b"k", b"1")
        await table.read_to_end()
        assert table == {b"k": b"1"}


async def test_the_leader_is_away_while_a_partition_is_read_again(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"1")
    options: Any = {"default_api_timeout_ms": 1000, "request_timeout_ms": 900}
    async with make_table(cluster, metadata_max_age_ms=200, **options) as table:
        with cluster.intercept(ListOffsetsRequest, Fail(LeaderNotAvailableError)):
            await recreate(cluster)
            write(cluster, b"k", b"2")
            await cluster.wait_for(lambda: "KafkaTimeoutError" in str(table.health().last_error))
            assert table.health().loading == (0, 1)
        await table.read_to_end()
        assert table == {b"k": b"2"}


@pytest.mark.parametrize("api", [FetchRequest, ListOffsetsRequest])
async def test_an_error_that_does_not_pass_fails_the_table(cluster: FakeCluster, api: Any) -> None:
    async with make_table(cluster, metadata_max_age_ms=200) as table:
        with cluster.intercept(api, Fail(TopicAuthorizationFailedError)):
            await recreate(cluster)
            await cluster.wait_for(lambda: table.failure is not None)
        with pytest.raises(TopicAuthorizationFailedError):
            await table.read_to_end()
        assert "TopicAuthorizationFailedError" in str(table.health().last_error)


async def test_the_next_leader_has_a_copy_of_a_corrupt_batch() -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", 2, replication_factor=2)
        cluster.move_leader(T0, 0)
        async with make_table(cluster) as table:
            log = cluster.log("t", 0)
            write(cluster, b"k", b"1")
            log.corrupt(0)
            await cluster.wait_for(lambda: "CorruptRecord" in str(table.health().last_error))
            log.corrupt(0)  # the byte is flipped back
            cluster.move_leader(T0, 1)
            await table.read_to_end()
            assert table == {b"k": b"1"}


async def test_a_topic_that_is_read_again_is_too_large(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"1")
    async with make_table(cluster, metadata_max_age_ms=200, max_bytes=6) as table:
        await recreate(cluster)
        for key in (b"a", b"b", b"c", b"d"):
            write(cluster, key, b"1")
        with pytest.raises(TableTooLargeError, match=r"1 keys .* needs 8 bytes"):
            await table.read_to_end()
        assert table == {b"k": b"1"}


class Incomparable:
    """A value like an array, whose comparison has no truth value."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None  # type: ignore[assignment]


async def test_values_that_cannot_be_compared_are_changes(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"1")
    async with make_table(
        cluster, metadata_max_age_ms=200, value_deserializer=Incomparable
    ) as table:
        stream = table.changes()
        await recreate(cluster)
        write(cluster, b"k", b"1")
        (change,) = await read(stream, 1)
        assert [value and value.data for value in (change.old, change.new)] == [b"1", b"1"]


async def test_equal_values_of_another_size(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"1")
    write(cluster, b"k", b"1")
    async with make_table(cluster, metadata_max_age_ms=200, value_deserializer=int) as table:
        stream = table.changes()
        await recreate(cluster)
        write(cluster, b"k", b"0001")
        write(cluster, b"l", b"1")
        assert brief(await read(stream, 1)) == [(b"l", None, 1)]
        assert table.nbytes == 7


async def test_a_recreated_topic_is_read_again_and_the_differences_are_changes(
    cluster: FakeCluster,
) -> None:
    for key in (b"same", b"other", b"gone"):
        write(cluster, key, b"1")
    write(cluster, b"q", b"1", 1)
    async with make_table(cluster) as table:
        snapshot, stream = table.snapshot_and_changes()
        await recreate(cluster)
        write(cluster, b"same", b"0")
        write(cluster, b"same", b"1")
        write(cluster, b"other", b"2")
        write(cluster, b"new", b"1")
        write(cluster, b"q", b"1", 1)
        changes = await read(stream, 3)
        assert sorted(brief(changes)) == [
            (b"gone", b"1", None),
            (b"new", None, b"1"),
            (b"other", b"1", b"2"),
        ]
        assert {change.key for change in changes if change.record is None} == {b"gone"}
        await table.read_to_end()
        assert table == replay(cluster)
        entries = dict(snapshot)
        for change in changes:
            apply(entries, change.key, change.new)
        assert entries == table
        assert stream.pending == 0
        assert table.health().rereads >= 1
        write(cluster, b"new", b"2")
        assert brief(await read(stream, 1)) == [(b"new", b"1", b"2")]


async def test_a_recreated_topic_that_is_empty(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"1")
    async with make_table(cluster, metadata_max_age_ms=500) as table:
        stream = table.changes()
        await recreate(cluster)
        assert brief(await read(stream, 1)) == [(b"k", b"1", None)]
        assert not table


async def test_a_recreated_topic_with_fewer_partitions(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"1")
    write(cluster, b"q", b"1", 1)
    async with make_table(cluster, metadata_max_age_ms=500) as table:
        stream = table.changes()
        await recreate(cluster, 1)
        write(cluster, b"k", b"1")
        assert brief(await read(stream, 1)) == [(b"q", b"1", None)]
        await table.read_to_end()
        assert table == {b"k": b"1"}
        assert table.snapshot().offsets == {T0: 1}


async def test_a_topic_is_recreated_twice(cluster: FakeCluster) -> None:
    async with make_table(cluster, metadata_max_age_ms=500) as table:
        for number in range(5):
            write(cluster, b"a", b"%d" % number)
            await table.read_to_end()
            await recreate(cluster)
            write(cluster, b"b", b"%d" % number)
            await asyncio.sleep(number * 0.05)
            await recreate(cluster)
            write(cluster, b"c", b"%d" % number)
            async with timeout(60):
                while table != replay(cluster):
                    await asyncio.sleep(0.01)


async def test_a_topic_is_deleted_for_long(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"1")
    write(cluster, b"l", b"1")
    async with make_table(cluster) as table:
        stream = table.changes()
        await cluster.delete_topic("t")
        await asyncio.sleep(1000)
        assert table == {b"k": b"1", b"l": b"1"}
        await cluster.create_topic("t", 2)
        write(cluster, b"k", b"1")
        assert brief(await read(stream, 1)) == [(b"l", b"1", None)]
        await table.read_to_end()
        assert table == {b"k": b"1"}


async def test_a_truncated_log(cluster: FakeCluster) -> None:
    for number in range(10):
        write(cluster, b"k%d" % number, b"%d" % number)
    async with make_table(cluster) as table:
        stream = table.changes()
        cluster.log("t", 0).truncate(8)
        assert sorted(brief(await read(stream, 2))) == [
            (b"k8", b"8", None),
            (b"k9", b"9", None),
        ]
        assert table == replay(cluster)


def lose_values(cluster: FakeCluster) -> None:
    """Lose the end of a compacted log. The values before it were removed, so no record is left
    before the new end."""
    log = cluster.log("t", 0)
    log.compact()
    log.truncate(log.end_offset - 2)
    cluster.move_leader(T0, 0)
    assert log.records() == []
    assert log.end_offset == 2


async def test_a_log_that_ends_without_records(cluster: FakeCluster) -> None:
    for number in range(4):
        write(cluster, b"k", b"%d" % number)
    lose_values(cluster)
    write(cluster, b"q", b"1", 1)
    async with timeout(60), make_table(cluster) as table:
        assert table == {b"q": b"1"}
        await table.read_to_end()
        write(cluster, b"k", b"1")
        await table.read_to_end()
        assert table == {b"q": b"1", b"k": b"1"}
        assert table.health().rereads == 0


async def test_a_compacted_log_is_truncated(cluster: FakeCluster) -> None:
    for number in range(4):
        write(cluster, b"k", b"%d" % number)
    async with timeout(60), make_table(cluster) as table:
        stream = table.changes()
        lose_values(cluster)
        assert brief(await read(stream, 1)) == [(b"k", b"3", None)]
        await table.read_to_end()
        assert table.health().loading == ()


async def test_retention_overtakes_a_table(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"1")
    async with make_table(cluster) as table:
        stream = table.changes()
        await cluster.stop_broker(0)
        write(cluster, b"l", b"2")
        write(cluster, b"m", b"3")
        cluster.log("t", 0).delete_before(2)
        await cluster.start_broker(0)
        assert sorted(brief(await read(stream, 2))) == [
            (b"k", b"1", None),
            (b"m", None, b"3"),
        ]
        assert table == {b"m": b"3"}


async def test_the_log_begins_late(cluster: FakeCluster) -> None:
    for number in range(10):
        write(cluster, b"k%d" % number, b"%d" % number)
    cluster.log("t", 0).delete_before(7)
    async with make_table(cluster) as table:
        assert table == replay(cluster)
        assert table.health().rereads == 0


@pytest.mark.parametrize("api", [FetchRequest, ListOffsetsRequest])
async def test_stop_during_start(cluster: FakeCluster, api: Any) -> None:
    write(cluster, b"k", b"1")
    table = make_table(cluster)
    with cluster.intercept(api, Hold(asyncio.Event())) as held:
        starting = asyncio.ensure_future(table.start())
        await held.wait()
        await table.stop()
        with pytest.raises(ConsumerStoppedError):
            await starting
    await table.stop()
    with pytest.raises(IllegalStateError):
        table.get(b"k")


async def test_stop_before_start(cluster: FakeCluster) -> None:
    table = make_table(cluster)
    await table.stop()
    with pytest.raises(IllegalStateError, match="started before"):
        await table.start()


@pytest.mark.parametrize("rounds", range(0, 60, 3))
async def test_a_cancelled_start_closes_everything(cluster: FakeCluster, rounds: int) -> None:
    write(cluster, b"k", b"1")
    table = make_table(cluster)
    starting = asyncio.ensure_future(table.start())
    for _ in range(rounds):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled() or table == {b"k": b"1"}
    await table.stop()
    await cluster.wait_for(lambda: not cluster.connections)
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("table")] == []


async def test_a_cancelled_stop_can_be_repeated(cluster: FakeCluster) -> None:
    table = make_table(cluster)
    await table.start()
    stopping = asyncio.ensure_future(table.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait([stopping])
    await asyncio.gather(table.stop(), table.stop())
    assert table.health().state == "stopped"
    await cluster.wait_for(lambda: not cluster.connections)


async def test_stop_ends_calls_that_wait(cluster: FakeCluster) -> None:
    async with make_table(cluster) as table:
        with cluster.intercept(FetchRequest, Hold(asyncio.Event())):
            write(cluster, b"k", b"1")
            waiting = asyncio.ensure_future(table.read_to_end())
            cancelled = asyncio.ensure_future(table.read_to_end())
            await asyncio.sleep(0.5)
            cancelled.cancel()
            assert not waiting.done()
            await table.stop()
            with pytest.raises(ConsumerStoppedError):
                await waiting


async def test_a_record_that_cannot_be_deserialized_fails_the_table(cluster: FakeCluster) -> None:
    async with make_table(cluster, value_deserializer=int) as table:
        write(cluster, b"k", b"one")
        with pytest.raises(RecordDeserializationError, match="for offset 0"):
            await table.read_to_end()


async def test_unreadable_records_may_be_skipped(cluster: FakeCluster) -> None:
    write(cluster, b"k", b"1")
    write(cluster, b"k", b"one")
    async with make_table(
        cluster, value_deserializer=int, on_deserialization_error="skip"
    ) as table:
        assert table == {b"k": 1}


async def test_a_key_in_two_partitions_is_logged_once(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_table(cluster) as table:
        for number in range(6):
            write(cluster, b"k", b"%d" % number, number % 2)
            await table.read_to_end()
        assert table == {b"k": b"5"}
    said = [record.getMessage() for record in caplog.records if record.name == "aiokafka.tables"]
    assert len(said) == 1
    assert "key b'k' is in partitions 0 and 1" in said[0]


async def test_another_task_is_not_blocked_by_a_large_topic(cluster: FakeCluster) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(3000):
            await producer.send("t", b"v", key=b"%d" % number)
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    counting = asyncio.ensure_future(count())
    async with make_table(cluster) as table:
        assert isinstance(table, CompactedTable)
        assert len(table) == 3000
    counting.cancel()
    assert rounds > 6


@pytest.mark.parametrize("version", ["0.9", "0.11", "2.1", "2.8", "4.0"])
async def test_older_brokers(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic("t", partitions=2)
        write(cluster, b"k", b"1")
        write(cluster, b"k", b"2")
        isolation = "read_uncommitted" if version == "0.9" else "read_committed"
        async with make_table(cluster, metadata_max_age_ms=500, isolation_level=isolation) as table:
            assert table == {b"k": b"2"}
            write(cluster, b"l", b"1")
            await table.read_to_end()
            assert table == {b"k": b"2", b"l": b"1"}
            # Without topic ids, the next topic is noticed by its end.
            stream = table.changes()
            await recreate(cluster)
            write(cluster, b"l", b"1")
            assert brief(await read(stream, 1)) == [(b"k", b"2", None)]
