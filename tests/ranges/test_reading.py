"""Ranges of offsets on the fake cluster: gaps, ends, faults, loss, memory."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaProducer
from aiokafka.errors import (
    CorruptRecordError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages.fetch import FetchRequest, FetchResponse
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.ranges import DataLossError, LossKind, OffsetSizes, PartitionRange, RangeReader
from aiokafka.testing import Cut, Edit, FakeCluster
from tests.ranges.support import drain, fill, numbered, reading


async def test_ranges_begin_and_end_within_batches(cluster: FakeCluster) -> None:
    fill(cluster, 0, 100, batch=10, codec=1)
    fill(cluster, 1, 40, batch=20)
    ranges = [
        PartitionRange("t", 0, 13, 87),
        PartitionRange("t", 1, 0, 40),
        PartitionRange("t", 2, 0, 0),
    ]
    async with reading(cluster, ranges) as reader:
        found = await drain(reader)
        assert await reader.next() is None
    assert found == {("t", 0): numbered(13, 87), ("t", 1): numbered(0, 40)}


async def test_one_topic_with_and_without_its_id() -> None:
    async with FakeCluster(brokers=1) as fake:
        await fake.create_topic("t", partitions=2)
        fill(fake, 0, 10)
        fill(fake, 1, 10)
        async with AIOKafkaClient(bootstrap_servers=fake.bootstrap_servers) as client:
            await client.set_topics(["t"])
            topic_id = client.cluster.topic_id("t")
            assert topic_id is not None
            ranges = [
                PartitionRange("t", 0, 0, 10, topic_id=topic_id),
                PartitionRange("t", 1, 0, 10),
            ]
        async with reading(fake, ranges) as reader:
            found = await drain(reader)
        assert found == {("t", 0): numbered(0, 10), ("t", 1): numbered(0, 10)}
        for seen in fake.requests(FetchRequest):
            names = [topic.topic for topic in seen.request.topics]
            assert len(names) == len(set(names)), "a request names a topic twice"


async def test_many_ranges_of_one_partition(cluster: FakeCluster) -> None:
    fill(cluster, 0, 90, batch=9)
    ranges = [PartitionRange("t", 0, start, start + 30) for start in (60, 0, 30)]
    async with reading(cluster, ranges) as reader:
        found = await drain(reader)
    assert sorted(found["t", 0]) == numbered(0, 90)


@pytest.mark.parametrize("until", [31, 37, 38, 40])
async def test_compaction_leaves_gaps_at_both_ends(cluster: FakeCluster, until: int) -> None:
    log = cluster.log("t", 0)
    for n in range(40):
        log.append(b"%d" % n, key=b"k%d" % (n % 3 if n < 38 else 9 + n))
    log.compact()
    left = [(r.offset, r.value) for r in log.records() if r.value is not None]
    assert len(left) < 40
    async with reading(cluster, [PartitionRange("t", 0, 1, until)]) as reader:
        found = await drain(reader)
    assert found.get(("t", 0), []) == [(o, v) for o, v in left if 1 <= o < until]


@pytest.mark.parametrize("read_committed", [True, False])
async def test_transactions(cluster: FakeCluster, read_committed: bool) -> None:
    servers = cluster.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="tx") as producer:
        for round_number, is_committed in enumerate([True, False, True, False]):
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"%d" % round_number, partition=0)
            await (producer.commit_transaction if is_committed else producer.abort_transaction)()
    # Four records and four markers; the last record was aborted, so the range ends in a gap.
    assert cluster.log("t", 0).end_offset == 8
    ranges = [PartitionRange("t", 0, 0, 8)]
    async with reading(cluster, ranges, read_committed=read_committed) as reader:
        found = await drain(reader)
    wanted = [(0, b"0"), (2, b"1"), (4, b"2"), (6, b"3")]
    assert found["t", 0] == (wanted[::2] if read_committed else wanted)


async def test_leaders_move_and_brokers_stop() -> None:
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t", partitions=3, replication_factor=3)
        for partition in range(3):
            fill(cluster, partition, 200, batch=10)
        ranges = [PartitionRange("t", partition, 0, 200) for partition in range(3)]
        async with reading(cluster, ranges, max_partition_bytes=1000) as reader:
            records = await reader.next()
            assert records is not None
            first = records.partition
            while records.read(1000) is not None:
                pass
            await cluster.stop_broker(first % 3)
            for partition in range(3):
                cluster.move_leader(("t", partition), (first + 1) % 3)
            found = await drain(reader)
        for partition in range(3):
            rows = found["t", partition]
            assert rows == numbered(rows[0][0], 200)
            assert partition == first or rows[0][0] == 0


async def test_retention_is_told(cluster: FakeCluster) -> None:
    fill(cluster, 0, 50)
    cluster.log("t", 0).delete_before(20)
    async with reading(cluster, [PartitionRange("t", 0, 10, 40)]) as reader:
        with pytest.raises(DataLossError, match="t-0: offsets 10 to 19 are gone") as caught:
            await drain(reader)
    assert caught.value.loss == (LossKind.RETENTION, "t", 0, 10, 20)


async def test_retention_is_skipped(cluster: FakeCluster) -> None:
    fill(cluster, 0, 50)
    fill(cluster, 1, 50)
    cluster.log("t", 0).delete_before(20)
    cluster.log("t", 1).delete_before(45)
    ranges = [PartitionRange("t", 0, 10, 40), PartitionRange("t", 1, 10, 40)]
    async with reading(cluster, ranges, fail_on_data_loss=False) as reader:
        found = await drain(reader)
        losses = sorted(reader.losses, key=lambda loss: loss.partition)
    assert found == {("t", 0): numbered(20, 40)}
    assert losses == [
        (LossKind.RETENTION, "t", 0, 10, 20),
        (LossKind.RETENTION, "t", 1, 10, 40),
    ]


async def test_a_log_that_ends_before_the_range_begins(cluster: FakeCluster) -> None:
    fill(cluster, 0, 5)
    async with reading(cluster, [PartitionRange("t", 0, 10, 40)]) as reader:
        with pytest.raises(DataLossError) as caught:
            await drain(reader)
    assert caught.value.loss.kind is LossKind.TRUNCATION


async def test_a_log_that_ends_within_the_range(cluster: FakeCluster) -> None:
    fill(cluster, 0, 15)
    ranges = [PartitionRange("t", 0, 10, 40)]
    options: dict[str, Any] = {"fail_on_data_loss": False, "timeout_ms": 300}
    async with reading(cluster, ranges, **options) as reader:
        assert await drain(reader) == {("t", 0): numbered(10, 15)}
        assert reader.losses == [(LossKind.TRUNCATION, "t", 0, 15, 40)]


async def test_a_topic_that_was_made_anew(cluster: FakeCluster) -> None:
    servers = cluster.bootstrap_servers
    async with AIOKafkaClient(bootstrap_servers=servers) as client:
        await client.add_topic("t")
        old = client.cluster.topic_id("t")
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions=1)
    fill(cluster, 0, 50)
    async with reading(cluster, [PartitionRange("t", 0, 10, 40, old)]) as reader:
        with pytest.raises(DataLossError) as caught:
            await drain(reader)
    assert caught.value.loss.kind is LossKind.NEW_TOPIC


async def test_a_client_that_still_knows_the_topic_from_before(cluster: FakeCluster) -> None:
    servers = cluster.bootstrap_servers
    async with (
        AIOKafkaClient(bootstrap_servers=servers) as client,
        AIOKafkaClient(bootstrap_servers=servers) as other,
    ):
        await client.add_topic("t")
        old = client.cluster.topic_id("t")
        await cluster.delete_topic("t")
        await cluster.create_topic("t", partitions=1)
        fill(cluster, 0, 50)
        await other.add_topic("t")
        new = other.cluster.topic_id("t")
        assert client.cluster.topic_id("t") == old != new
        async with RangeReader(client, [PartitionRange("t", 0, 10, 40, new)]) as reader:
            assert await drain(reader) == {("t", 0): numbered(10, 40)}


async def test_metadata_that_cannot_be_had_is_no_sign_of_another_topic(
    cluster: FakeCluster,
) -> None:
    servers = cluster.bootstrap_servers
    async with (
        AIOKafkaClient(bootstrap_servers=servers, retry_backoff_ms=10) as client,
        AIOKafkaClient(bootstrap_servers=servers) as other,
    ):
        await client.add_topic("t")
        await cluster.delete_topic("t")
        await cluster.create_topic("t", partitions=1)
        fill(cluster, 0, 50)
        await other.add_topic("t")
        new = other.cluster.topic_id("t")
        with cluster.intercept(MetadataRequest, Cut(), times=8) as script:
            async with RangeReader(client, [PartitionRange("t", 0, 10, 40, new)]) as reader:
                assert await drain(reader) == {("t", 0): numbered(10, 40)}
        assert script.hits == 8


async def test_a_topic_that_is_gone(cluster: FakeCluster) -> None:
    ranges = [PartitionRange("nowhere", 0, 10, 40)]
    async with reading(cluster, ranges, timeout_ms=300) as reader:
        with pytest.raises(DataLossError, match="nowhere-0: offsets 10 to 39 are gone") as caught:
            await drain(reader)
    assert caught.value.loss.kind is LossKind.DELETED


@pytest.mark.parametrize("is_made_anew", [True, False])
async def test_a_partition_that_is_gone_is_skipped(
    cluster: FakeCluster, is_made_anew: bool
) -> None:
    """The topic was deleted, or made again with fewer partitions, while it was read."""
    fill(cluster, 1, 50, batch=10)
    await cluster.create_topic("u", partitions=1)
    cluster.log("u", 0).extend([(None, b"%d" % n, ()) for n in range(30)])
    ranges = [PartitionRange("t", 1, 0, 50), PartitionRange("u", 0, 0, 30)]
    options: dict[str, Any] = {"fail_on_data_loss": False, "timeout_ms": 300}
    async with reading(cluster, ranges, max_partition_bytes=200, **options) as reader:
        first = await reader.next()
        assert first is not None
        await cluster.delete_topic("t")
        if is_made_anew:
            await cluster.create_topic("t", partitions=1)
        found = await drain(reader)
        (loss,) = reader.losses
    assert first.topic == "u" or found["u", 0] == numbered(0, 30)
    assert (loss.kind, loss.topic, loss.partition, loss.until) == (LossKind.DELETED, "t", 1, 50)


async def test_a_topic_that_comes_back_is_not_lost(cluster: FakeCluster) -> None:
    """Brokers that have just started may not know it yet."""
    fill(cluster, 0, 50)

    def forget(response: MetadataResponse) -> None:
        for topic in response.topics:
            topic.error_code, topic.partitions = UnknownTopicOrPartitionError.errno, []

    options: dict[str, Any] = {"fail_on_data_loss": False, "timeout_ms": 3000}
    with cluster.intercept(MetadataRequest, Edit(forget), times=6) as script:
        async with reading(cluster, [PartitionRange("t", 0, 0, 50)], **options) as reader:
            assert await drain(reader) == {("t", 0): numbered(0, 50)}
            assert reader.losses == []
    assert script.hits == 6


async def test_silence_is_no_proof_that_a_topic_is_gone(cluster: FakeCluster) -> None:
    ranges = [PartitionRange("nowhere", 0, 10, 40)]
    options: dict[str, Any] = {"fail_on_data_loss": False, "timeout_ms": 300}
    async with reading(cluster, ranges, **options) as reader:
        waiting = asyncio.create_task(drain(reader))
        await cluster.wait_for(lambda: cluster.count(MetadataRequest) >= 3)
        await cluster.stop_broker(0)
        with pytest.raises(KafkaTimeoutError, match="nowhere-0: no progress at offset 10 of 10 to"):
            await waiting
        assert reader.losses == []


@pytest.mark.parametrize("first", [20, 45])
async def test_a_range_from_the_first_record_there_is(cluster: FakeCluster, first: int) -> None:
    """The log may go on losing its head, until the first record is there."""
    fill(cluster, 0, 50)
    cluster.log("t", 0).delete_before(first)
    ranges = [PartitionRange("t", 0, 10, 40, from_first=True)]
    async with reading(cluster, ranges) as reader:
        assert (await drain(reader)).get(("t", 0), []) == numbered(first, 40)
        assert reader.losses == []


async def test_what_was_begun_is_not_to_lose_records(cluster: FakeCluster) -> None:
    fill(cluster, 0, 50, batch=10)
    ranges = [PartitionRange("t", 0, 0, 50, from_first=True)]
    async with reading(cluster, ranges, max_partition_bytes=100, buffer_memory=200) as reader:
        assert await reader.next() is not None
        cluster.log("t", 0).delete_before(40)
        with pytest.raises(DataLossError, match="the log begins later"):
            await drain(reader)


async def test_errors_that_pass(cluster: FakeCluster) -> None:
    fill(cluster, 0, 50)

    def change(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                data.error_code, data.records = LeaderNotAvailableError.errno, None

    with cluster.intercept(FetchRequest, Edit(change), times=3) as faults:
        async with reading(cluster, [PartitionRange("t", 0, 0, 50)]) as reader:
            assert await drain(reader) == {("t", 0): numbered(0, 50)}
    assert faults.hits == 3


async def test_errors_that_do_not_pass(cluster: FakeCluster) -> None:
    fill(cluster, 0, 50)

    def change(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                data.error_code, data.records = TopicAuthorizationFailedError.errno, None

    with cluster.intercept(FetchRequest, Edit(change)):
        async with reading(cluster, [PartitionRange("t", 0, 0, 50)]) as reader:
            with pytest.raises(TopicAuthorizationFailedError):
                await drain(reader)


async def test_corrupt_records_are_told_by_partition(cluster: FakeCluster) -> None:
    fill(cluster, 0, 50)
    cluster.log("t", 0).corrupt(20)
    async with reading(cluster, [PartitionRange("t", 0, 0, 50)]) as reader:
        with pytest.raises(CorruptRecordError, match="t-0"):
            await drain(reader)


async def test_memory_is_bounded(cluster: FakeCluster) -> None:
    log = cluster.log("t", 0)
    for _ in range(64):
        log.append(bytes(10_000))
    options: dict[str, Any] = {"buffer_memory": 100_000, "max_partition_bytes": 20_000}
    async with (
        reading(cluster, [PartitionRange("t", 0, 0, 64)], **options) as reader,
        AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as other,
    ):
        records = await reader.next()
        assert records is not None
        # The application reads no more: it fetches while half of its memory is free, and there it
        # stays, however often the broker has answered others meanwhile.
        await cluster.wait_for(lambda: cluster.count(FetchRequest) >= 3)
        for _ in range(20):
            await other.fetch_all_metadata()
        assert cluster.count(FetchRequest) == 3
        while records.read(1000) is not None:
            pass
        rest = await drain(reader)
        assert rest["t", 0][-1][0] == 63
        assert cluster.count(FetchRequest) > 3


def counting(sizes: list[int]) -> Edit:
    """Notes how many bytes of records each answer has."""

    def count(response: FetchResponse) -> None:
        sizes.extend(len(d.records or b"") for t in response.responses for d in t.partitions)

    return Edit(count)


@pytest.mark.parametrize(
    ("value", "count", "most"), [(50, 2500, 3), (1000, 2500, 3), (1000, 64, 2), (50, 9000, 3)]
)
async def test_a_range_takes_little_more_than_its_own_bytes(
    cluster: FakeCluster, value: int, count: int, most: int
) -> None:
    log = cluster.log("t", 0)
    for _ in range(10 * count // 50):
        log.extend([(None, bytes(value), ())] * 50)
    whole = log.size
    sizes: list[int] = []
    with cluster.intercept(FetchRequest, counting(sizes)):
        async with reading(cluster, [PartitionRange("t", 0, count, 2 * count)]) as reader:
            found = await drain(reader, 10_000)
    assert len(found["t", 0]) == count
    least = whole // 10
    assert sum(sizes) <= max(2.5 * least, least + 65_536)
    assert len(sizes) <= most


@pytest.mark.parametrize(
    ("value", "batch", "count"),
    [(100, 140, 250), (100, 140, 2500), (10, 1000, 250), (1000, 16, 250)],
)
async def test_range_after_range_takes_little_more_than_its_batches(
    cluster: FakeCluster, value: int, batch: int, count: int
) -> None:
    """As a job that catches up: what one reader has learned of a topic serves the next ones."""
    log, times = cluster.log("t", 0), 5
    while log.end_offset < (times + 3) * count + batch:
        log.extend([(None, bytes(value), ())] * batch)
    of_batch = log.size * batch / log.end_offset
    received: list[int] = []
    needed = 0.0
    async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        sizes = OffsetSizes()
        for start in range(7, 7 + times * count, count):
            ranges = [PartitionRange("t", 0, start, start + count)]
            with cluster.intercept(FetchRequest, counting(received), times=None):
                async with RangeReader(client, ranges, sizes=sizes) as reader:
                    found = await drain(reader, 10_000)
            assert len(found["t", 0]) == count
            needed += of_batch * ((start + count - 1) // batch - start // batch + 1)
    assert sum(received) < 1.5 * needed
    assert len(received) < 2 * times


async def test_batches_that_are_larger_than_what_a_range_seems_to_need(
    cluster: FakeCluster,
) -> None:
    """Brokers leave out partitions whose next batch does not fit, but for the first: more is asked
    for then, and it takes few requests."""
    for partition in range(3):
        for start in range(0, 60, 20):
            cluster.log("t", partition).extend([(None, bytes(50_000), ())] * 20)
            assert cluster.log("t", partition).end_offset == start + 20
    ranges = [PartitionRange("t", partition, 0, 60) for partition in range(3)]
    async with reading(cluster, ranges) as reader:
        found = await drain(reader, 100)
    assert {place: len(rows) for place, rows in found.items()} == {("t", n): 60 for n in range(3)}
    assert cluster.count(FetchRequest) <= 8


async def test_partitions_that_wait_for_others_ask_for_no_more(cluster: FakeCluster) -> None:
    """A response is full before it comes to them: that says nothing of their own batches."""
    await cluster.create_topic("u", partitions=24)
    for partition in range(24):
        for _ in range(20):
            cluster.log("u", partition).extend([(None, bytes(1000), ())] * 10)
    ranges = [PartitionRange("u", partition, 0, 50) for partition in range(24)]
    asked: list[int] = []
    async with reading(cluster, ranges, max_bytes=200_000) as reader:
        with cluster.intercept(FetchRequest, counting(asked)):
            found = await drain(reader, 100)
    assert all(len(rows) == 50 for rows in found.values())
    assert max(asked) <= 131_072


async def test_brokers_that_cut_records_off() -> None:
    """They send a part of a record that is larger than what was asked for."""
    async with FakeCluster(as_version="0.9") as cluster:
        await cluster.create_topic("t", partitions=1)
        for size in (10, 300_000, 10, 2_000_000):
            cluster.log("t", 0).append(bytes(size))
        ranges = [PartitionRange("t", 0, 0, 4)]
        sizes = []
        async with reading(cluster, ranges, max_partition_bytes=1_000_000) as reader:
            with pytest.raises(RecordTooLargeError, match="t-0: the record at offset 3"):
                while (records := await reader.next()) is not None:
                    while (rows := records.read(1)) is not None:
                        sizes.append(len(rows.columns.values.data))
        assert sizes == [10, 300_000, 10]


async def test_closing_early_leaves_nothing(cluster: FakeCluster) -> None:
    fill(cluster, 0, 100)
    async with reading(cluster, [PartitionRange("t", 0, 0, 100)], max_partition_bytes=200) as r:
        assert await r.next() is not None
    left = {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    assert not [name for name in left if not name.startswith("fake-broker")]


async def test_waiting_can_be_cancelled(cluster: FakeCluster) -> None:
    async with reading(cluster, [PartitionRange("t", 0, 0, 10)]) as reader:
        waiting = asyncio.create_task(reader.next())
        await cluster.wait_for(lambda: cluster.count(FetchRequest) >= 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        fill(cluster, 0, 10)
        assert await drain(reader) == {("t", 0): numbered(0, 10)}


@pytest.mark.parametrize(
    "wrong",
    [("t", -1, 0, 1), ("t", 2**31, 0, 1), ("t", 0, -1, 1), ("t", 0, 2, 1), ("t", 0, 0, 2**63)],
)
async def test_wrong_ranges(cluster: FakeCluster, wrong: tuple[str, int, int, int]) -> None:
    async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        with pytest.raises(ValueError, match="ranges:"):
            RangeReader(client, [PartitionRange(*wrong)])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"client": 3}, "client: must be an AIOKafkaClient, not int"),
        ({"ranges": None}, "ranges: must be several ranges, not NoneType"),
        ({"ranges": PartitionRange("t", 0, 0, 1)}, "ranges: must be several ranges, not one"),
        ({"ranges": [("t", 0, 0, 1)]}, "ranges: must be a PartitionRange, not "),
        ({"ranges": [PartitionRange(b"t", 0, 0, 1)]}, "ranges: topic: must be a str"),  # type: ignore[arg-type]
        ({"ranges": [PartitionRange("t", 0, "0", 1)]}, "ranges: start='0': must be an integer"),  # type: ignore[arg-type]
        ({"read_committed": "no"}, "read_committed='no': must be True or False"),
        ({"fail_on_data_loss": None}, "fail_on_data_loss=None: must be True or False"),
        ({"check_crcs": 3}, "check_crcs=3: must be True or False"),
        ({"sizes": {}}, "sizes: must be an OffsetSizes, not {}"),
    ],
)
async def test_wrong_arguments(cluster: FakeCluster, wrong: dict[str, Any], text: str) -> None:
    async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        given = {"client": client, "ranges": [PartitionRange("t", 0, 0, 1)], **wrong}
        with pytest.raises(TypeError, match=f"^{text}"):
            RangeReader(**given)


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ({"max_bytes": 0}, ValueError),
        ({"max_bytes": 2**31}, ValueError),
        ({"max_partition_bytes": "1"}, TypeError),
        ({"min_bytes": -1}, ValueError),
        ({"max_wait_ms": -1}, ValueError),
        ({"max_wait_ms": None}, TypeError),
        ({"max_wait_ms": math.nan}, ValueError),
        ({"buffer_memory": 0}, ValueError),
        ({"buffer_memory": True}, TypeError),
        ({"timeout_ms": math.inf}, ValueError),
    ],
)
async def test_wrong_limits(
    cluster: FakeCluster, limit: dict[str, Any], error: type[Exception]
) -> None:
    async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        with pytest.raises(error, match=f"{next(iter(limit))}=.*: must be "):
            RangeReader(client, [PartitionRange("t", 0, 0, 1)], **limit)
