"""What brokers may answer to a reader of ranges besides records, each with what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiokafka.errors import (
    CorruptRecordError,
    KafkaError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from aiokafka.protocol.messages.list_offsets import ListOffsetsRequest
from aiokafka.ranges import PartitionRange
from aiokafka.testing import Edit, Fail, FakeCluster, RawBytes
from tests.ranges.test_reading import cluster, drain, fill, numbered, reading

__all__ = ["cluster"]

WHOLE = [PartitionRange("t", 0, 0, 50)]


def each(change: Callable[[PartitionData], None]) -> Edit:
    def edit(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                change(data)

    return Edit(edit)


async def test_a_fetch_that_fails_for_good(cluster: FakeCluster) -> None:
    """A frame that cannot be one: the connection is of no use, now or later."""
    fill(cluster, 0, 50)
    with cluster.intercept(FetchRequest, RawBytes(b"HTTP/1.1 400 Bad Request\r\n")):
        async with reading(cluster, WHOLE, timeout_ms=500) as reader:
            with pytest.raises(KafkaError):
                await drain(reader)


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
                with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
                    await drain(reader)


async def test_a_leader_that_was_behind(cluster: FakeCluster) -> None:
    """It says that the offset is out of range, and a moment later it is not."""
    fill(cluster, 0, 50)
    with cluster.intercept(FetchRequest, each(_out_of_range), times=2) as script:
        async with reading(cluster, WHOLE) as reader:
            assert await drain(reader) == {("t", 0): numbered(0, 50)}
    assert script.hits == 2


def _out_of_range(data: PartitionData) -> None:
    data.error_code, data.records = OffsetOutOfRangeError.errno, None
