"""What brokers may answer to a reader of ranges besides records, each with what follows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaClient
from aiokafka._compat import timeout
from aiokafka._reading import FencedEpochs
from aiokafka._retry import Backoff
from aiokafka.errors import (
    CorruptRecordError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    PartitionData,
)
from aiokafka.protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from aiokafka.protocol.messages.topics import CreateTopicsRequest
from aiokafka.ranges import LossKind, OffsetSizes, PartitionRange, RangeReader
from aiokafka.ranges.reader import log_bounds
from aiokafka.ranges.state import RangeState
from aiokafka.structs import TopicPartition
from aiokafka.testing import Cut, Edit, Fail, FakeCluster, RawBytes, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.admin.support import simulated
from tests.ranges.support import drain, fill, numbered, reading
from tests.support.consumers import name_epochs_of_before

WHOLE = [PartitionRange("t", 0, 0, 50)]


def each(change: Callable[[PartitionData], None]) -> Edit:
    def edit(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                change(data)

    return Edit(edit)


async def test_a_connection_that_is_of_no_use(cluster: FakeCluster) -> None:
    """Frames that cannot be any: each is another failure, until the time is over."""
    fill(cluster, 0, 50)
    with cluster.intercept(FetchRequest, RawBytes(b"HTTP/1.1 400 Bad Request\r\n")) as script:
        async with reading(cluster, WHOLE, timeout_ms=500) as reader:
            with pytest.raises(KafkaTimeoutError, match=r"t-0: no progress at offset 0 .*; last: "):
                await drain(reader)
    assert script.hits > 1


async def test_fetches_ask_for_what_can_pass(cluster: FakeCluster) -> None:
    """Of a client that refuses large responses."""
    for number in range(3):
        for _ in range(20):
            cluster.log("t", number).append(bytes(5000))
    ranges = [PartitionRange("t", number, 0, 20) for number in range(3)]
    async with AIOKafkaClient(
        bootstrap_servers=cluster.bootstrap_servers, receive_message_max_bytes=20_000
    ) as client:
        async with RangeReader(client, ranges, max_wait_ms=20) as reader, timeout(20):
            assert {len(rows) for rows in (await drain(reader)).values()} == {20}


async def test_a_broker_that_cannot_fetch(cluster: FakeCluster) -> None:
    """What no other try mends is told at once."""
    fill(cluster, 0, 50)

    def take_out(response: ApiVersionsResponse) -> None:
        response.api_keys = [each for each in response.api_keys if each.api_key != 1]

    cluster.intercept(ApiVersionsRequest, Edit(take_out))
    async with reading(cluster, WHOLE) as reader, timeout(10):
        with pytest.raises(UnsupportedVersionError, match="Fetch"):
            await drain(reader)


async def test_answers_about_what_was_not_asked_for(cluster: FakeCluster) -> None:
    """Every partition twice, and others: nothing is read twice."""
    fill(cluster, 0, 50, batch=10)
    fill(cluster, 1, 50, batch=10)

    def more(response: FetchResponse) -> None:
        for topic in response.responses:
            topic.partitions += topic.partitions
            topic.partitions.append(
                PartitionData(partition_index=99, high_watermark=5, records=b"?")
            )

    ranges = [PartitionRange("t", number, 0, 50) for number in range(2)]
    with cluster.intercept(FetchRequest, Edit(more)):
        async with reading(cluster, ranges) as reader:
            found = await drain(reader)
    assert found == {("t", number): numbered(0, 50) for number in range(2)}


async def test_a_batch_whose_header_is_none(cluster: FakeCluster) -> None:
    fill(cluster, 0, 50)

    def change(data: PartitionData) -> None:
        records = bytearray(data.records or b"")
        records[16] = 9  # magic
        data.records = records

    with cluster.intercept(FetchRequest, each(change)):
        async with reading(cluster, WHOLE) as reader:
            with pytest.raises(CorruptRecordError, match="t-0: "):
                await drain(reader)


async def test_a_bad_header_after_good_batches(cluster: FakeCluster) -> None:
    """What comes before it is read; the fetch that begins with it tells."""
    fill(cluster, 0, 50, batch=10)
    first = cluster.log("t", 0).batches[0].size

    def change(data: PartitionData) -> None:
        records = bytearray(data.records or b"")
        is_first = int.from_bytes(records[:8], "big") == 0
        records[(first if is_first else 0) + 16] = 9  # magic
        data.records = records

    with cluster.intercept(FetchRequest, each(change)):
        async with reading(cluster, WHOLE) as reader:
            records = await reader.next()
            assert records is not None
            rows = records.read(100)
            assert rows is not None and rows.size == 10
            with pytest.raises(CorruptRecordError, match="t-0: "):
                await drain(reader)


async def test_a_broker_that_sends_the_same_records_again(cluster: FakeCluster) -> None:
    fill(cluster, 0, 50, batch=10)
    first = bytes(cluster.log("t", 0).batches[0].data)

    def change(data: PartitionData) -> None:
        data.records = first

    with cluster.intercept(FetchRequest, each(change)):
        async with reading(cluster, WHOLE) as reader:
            with pytest.raises(CorruptRecordError, match=r"asked for offset 10, .* up to 10 only"):
                await drain(reader)


async def test_a_broker_that_never_sends_what_it_says_to_have(cluster: FakeCluster) -> None:
    """It is asked for more bytes a few times, and then no faster than after any other failure."""
    fill(cluster, 0, 50)

    def change(data: PartitionData) -> None:
        data.records = b""

    with cluster.intercept(FetchRequest, each(change)) as script:
        async with reading(cluster, WHOLE, timeout_ms=1000, max_partition_bytes=10**6) as reader:
            with pytest.raises(KafkaError, match="t-0: no progress"):
                await drain(reader)
    assert script.hits < 300


@pytest.mark.parametrize("error", [LeaderNotAvailableError, TopicAuthorizationFailedError])
async def test_the_bounds_of_a_log_cannot_be_had(
    cluster: FakeCluster, error: type[LeaderNotAvailableError]
) -> None:
    """An error that passes does no harm; one that stays is told."""
    fill(cluster, 0, 50)
    cluster.log("t", 0).delete_before(20)
    options: dict[str, Any] = {"fail_on_data_loss": False}
    with cluster.intercept(ListOffsetsRequest, Fail(error), times=3) as script:
        async with reading(cluster, WHOLE, **options) as reader:
            if error.retriable:
                assert await drain(reader) == {("t", 0): numbered(20, 50)}
                assert script.hits == 3
            else:
                with pytest.raises(TopicAuthorizationFailedError, match=r": t\. The client"):
                    await drain(reader)


def _without_topics(response: ListOffsetsResponse) -> None:
    response.topics = []


def _without_offset(response: ListOffsetsResponse) -> None:
    for topic in response.topics:
        for partition in topic.partitions:
            partition.offset = -1


@pytest.mark.parametrize("change", [_without_topics, _without_offset])
async def test_bounds_that_are_not_told(
    cluster: FakeCluster, change: Callable[[Any], None]
) -> None:
    """A response without an offset is no proof that records are gone."""
    fill(cluster, 0, 50)
    cluster.log("t", 0).delete_before(20)
    options: dict[str, Any] = {"fail_on_data_loss": False}
    with cluster.intercept(ListOffsetsRequest, Edit(change), times=3) as script:
        async with reading(cluster, WHOLE, **options) as reader:
            assert await drain(reader) == {("t", 0): numbered(20, 50)}
            assert reader.losses == [(LossKind.RETENTION, "t", 0, 0, 20)]
    assert script.hits == 3


async def test_bounds_of_a_partition_without_a_leader(cluster: FakeCluster) -> None:
    """The leader may go between the fetch and the question: that passes, and metadata is asked
    for."""

    def leaderless(response: MetadataResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_id = -1
                partition.error_code = LeaderNotAvailableError.errno

    async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        client.touch_topic("t")
        with cluster.intercept(MetadataRequest, Edit(leaderless)):
            await client.force_metadata_update()
            asked = cluster.count(MetadataRequest)
            state = RangeState(WHOLE[0], 0.0, Backoff(0.01, 0.1), OffsetSizes())
            with pytest.raises(LeaderNotAvailableError, match="t-0: no leader is known"):
                await log_bounds(client, state, FencedEpochs(client.versions))
            await cluster.wait_for(lambda: cluster.count(MetadataRequest) > asked)


def test_metadata_that_names_an_epoch_of_before() -> None:
    """Those of Kafka 2.1 to 2.3 do so while a partition is reassigned (KAFKA-9212)."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster(brokers=2, as_version="2.1") as cluster:
            await cluster.create_topic("t", replication_factor=2)
            for leader in (1, 0):
                cluster.move_leader(TopicPartition("t", 0), leader)
            fill(cluster, 0, 50)
            cluster.log("t", 0).delete_before(20)
            cluster.intercept(MetadataRequest, Edit(name_epochs_of_before))
            async with reading(cluster, WHOLE, fail_on_data_loss=False) as reader:
                assert await drain(reader) == {("t", 0): numbered(20, 50)}

    simulate(main, limit_s=60)


@pytest.mark.parametrize("release", ["0.11", "1.1", "4.3"])
@pytest.mark.parametrize("start", [10, 30])
async def test_a_leader_that_was_cut_off(start: int, release: str) -> None:
    """It goes on answering, and its log ends before the range does, or before it begins."""
    async with cut_off(release) as cluster:
        ranges = [PartitionRange("t", 0, start, 50)]
        async with reading(cluster, ranges, servers=cluster.address(0)) as reader:
            assert await drain(reader) == {("t", 0): numbered(start, 50)}


@pytest.mark.parametrize("start", [10, 30])
async def test_a_leader_that_was_cut_off_with_its_client(start: int) -> None:
    """No other broker can be asked, so nothing proves that the records are gone."""
    async with cut_off() as cluster:
        cluster.intercept(None, Cut(), broker=1)
        cluster.intercept(None, Cut(), broker=2)
        ranges = [PartitionRange("t", 0, start, 50)]
        options: dict[str, Any] = {"servers": cluster.address(0), "timeout_ms": 300}
        async with reading(cluster, ranges, fail_on_data_loss=False, **options) as reader:
            with pytest.raises(KafkaTimeoutError, match="t-0: no progress at offset"):
                await drain(reader)
            assert reader.losses == []


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("release", ["0.9", "0.10.2", "2.1", "4.3"])
@pytest.mark.parametrize("start", [10, 30])
async def test_a_log_that_was_truncated(start: int, release: str, brokers: int) -> None:
    """The other brokers name the leader that says so."""
    async with FakeCluster(brokers, as_version=release) as cluster:
        await cluster.create_topic("t", assignment={0: list(range(brokers))})
        fill(cluster, 0, 15)
        ranges = [PartitionRange("t", 0, start, 50)]
        options: dict[str, Any] = {"fail_on_data_loss": False, "timeout_ms": 1000}
        async with reading(cluster, ranges, **options) as reader:
            assert (await drain(reader)).get(("t", 0), []) == numbered(start, 15)
            assert reader.losses == [(LossKind.TRUNCATION, "t", 0, max(start, 15), 50)]
        assert not cluster.count(CreateTopicsRequest)


async def test_ranges_of_one_partition_share_its_time(cluster: FakeCluster) -> None:
    """None of them keeps the others waiting for ever."""
    fill(cluster, 0, 15)
    ranges = [PartitionRange("t", 0, 15, until) for until in (20, 30, 40, 50)]
    options: dict[str, Any] = {"fail_on_data_loss": False, "timeout_ms": 1000}
    async with reading(cluster, ranges, **options) as reader:
        assert await drain(reader) == {}
        assert sorted(loss.until for loss in reader.losses) == [20, 30, 40, 50]


async def test_a_high_watermark_that_is_behind() -> None:
    """As that of a new leader before 2.2 (KIP-207): nothing is lost, it will come."""

    def look_up(response: ListOffsetsResponse) -> None:
        for topic in response.topics:
            for part in topic.partitions:
                part.offset = min(part.offset, 40)

    def behind(data: PartitionData) -> None:
        data.high_watermark, data.records = 40, None

    async with FakeCluster(3, as_version="2.1") as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1, 2]})
        fill(cluster, 0, 50)
        with cluster.intercept(ListOffsetsRequest, Edit(look_up)):
            with cluster.intercept(FetchRequest, each(behind), times=5) as script:
                async with reading(cluster, [PartitionRange("t", 0, 45, 50)]) as reader:
                    assert await drain(reader) == {("t", 0): numbered(45, 50)}
        assert script.hits == 5


async def test_a_broker_that_knows_the_topic_of_before() -> None:
    """Its leader, of a higher epoch, is not taken over for the topic that was made again."""
    async with FakeCluster(3) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1, 2]})
        for leader in (1, 2, 1, 2):
            cluster.move_leader(("t", 0), leader)
        servers = [cluster.address(0), cluster.address(1)]
        async with AIOKafkaClient(bootstrap_servers=servers, retry_backoff_ms=10) as client:
            await client.add_topic("t")
            cluster.faults.mislead(2)
            await cluster.delete_topic("t")
            await cluster.create_topic("t", assignment={0: [0, 1, 2]})
            fill(cluster, 0, 5)
            topic_id = cluster.state.topics["t"].topic_id
            while client.cluster.topic_id("t") != topic_id:
                await client.force_metadata_update()
            options: dict[str, Any] = {"fail_on_data_loss": False, "timeout_ms": 1000}
            gone = [PartitionRange("t", 0, 0, 15)]
            async with RangeReader(client, gone, max_wait_ms=20, **options) as reader:
                assert await drain(reader) == {("t", 0): numbered(0, 5)}
            there = client.cluster.leader_for_partition(TopicPartition("t", 0))
            assert there == cluster.partition("t").leader == 0
            async with RangeReader(client, [PartitionRange("t", 0, 0, 5)]) as reader:
                assert await drain(reader) == {("t", 0): numbered(0, 5)}


@simulated
async def test_the_time_of_a_range_begins_with_the_first_read() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 50)
        async with reading(cluster, WHOLE, timeout_ms=1000) as reader:
            await asyncio.sleep(2)  # of virtual time
            assert await drain(reader) == {("t", 0): numbered(0, 50)}


@simulated
async def test_a_leader_that_a_response_names_is_followed() -> None:
    """Without metadata, which no broker tells (KIP-951)."""
    async with FakeCluster(2) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 50)
        async with reading(cluster, WHOLE, max_partition_bytes=300, timeout_ms=3000) as reader:
            assert await reader.next() is not None
            cluster.move_leader(("t", 0), 1)
            with cluster.intercept(MetadataRequest, Silence()):
                found = await drain(reader)
    assert found["t", 0][-1] == (49, b"49")


@simulated
async def test_a_silent_leader_costs_no_more_than_the_time_of_the_range() -> None:
    """Though a request may take `request_timeout_ms`, of 40 s."""
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 50)
        began = asyncio.get_running_loop().time()
        with cluster.intercept(FetchRequest, Silence()):
            async with reading(cluster, WHOLE, timeout_ms=3000) as reader:
                with pytest.raises(KafkaTimeoutError, match="t-0: no progress at offset 0"):
                    await drain(reader)
        assert asyncio.get_running_loop().time() - began < 5


@contextlib.asynccontextmanager
async def cut_off(release: str = "4.3") -> AsyncIterator[FakeCluster]:
    """A cluster whose broker 0 leads a log of 15 records, as it believes; it has 50."""
    async with FakeCluster(3, as_version=release) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1, 2]})
        fill(cluster, 0, 15)
        cluster.faults.isolate(0)
        fill(cluster, 0, 35)
        yield cluster
        assert cluster.failures == []


async def test_a_leader_that_was_behind(cluster: FakeCluster) -> None:
    """It says that the offset is out of range, and a moment later it is not."""
    fill(cluster, 0, 50)
    with cluster.intercept(FetchRequest, each(_out_of_range), times=2) as script:
        async with reading(cluster, WHOLE) as reader:
            assert await drain(reader) == {("t", 0): numbered(0, 50)}
    assert script.hits == 2


def _out_of_range(data: PartitionData) -> None:
    data.error_code, data.records = OffsetOutOfRangeError.errno, None


@simulated
async def test_the_first_metadata_is_enough_to_begin() -> None:
    """A reader that knows no leader yet waits for that, and not for the time between retries."""
    loop = asyncio.get_running_loop()
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 50)
        servers = cluster.bootstrap_servers
        async with AIOKafkaClient(bootstrap_servers=servers, retry_backoff_ms=5000) as client:
            began = loop.time()
            async with RangeReader(client, WHOLE) as reader:
                assert await drain(reader) == {("t", 0): numbered(0, 50)}
            assert loop.time() - began < 1


@pytest.mark.parametrize("release", ["0.11", "2.1", "2.8", "4.3"])
@simulated
async def test_a_newer_leader_is_asked_at_once(release: str) -> None:
    """As soon as it is known, from metadata or from the one that refuses to be the leader."""
    loop = asyncio.get_running_loop()
    async with FakeCluster(3, as_version=release) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1, 2]})
        fill(cluster, 0, 50)
        servers = cluster.bootstrap_servers
        async with AIOKafkaClient(bootstrap_servers=servers, retry_backoff_ms=2000) as client:
            await client.wait_for_topic("t", loop.time() + 10)
            # No refresh is put off any more.
            await asyncio.sleep(10)
            began = loop.time()
            cluster.move_leader(("t", 0), 1)
            async with RangeReader(client, WHOLE) as reader:
                assert await drain(reader) == {("t", 0): numbered(0, 50)}
            assert loop.time() - began < 1


@simulated
async def test_a_leader_that_moves_before_every_fetch_is_asked_with_pauses() -> None:
    """The next one is asked at once only a few times in a row."""
    async with FakeCluster(2) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 50)

        def move(*_: object) -> None:
            cluster.move_leader(("t", 0), 1 - cluster.partition("t").leader)

        async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            with cluster.intercept(FetchRequest, move) as script:
                async with RangeReader(client, WHOLE, timeout_ms=10_000) as reader:
                    with pytest.raises(KafkaTimeoutError, match="no progress"):
                        await drain(reader)
            assert 8 < script.hits < 50
            async with RangeReader(client, WHOLE) as reader:
                assert await drain(reader) == {("t", 0): numbered(0, 50)}
