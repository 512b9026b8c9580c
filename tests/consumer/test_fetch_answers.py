"""Answers to fetches that bring no records: too large, damaged, of another place, from a broker
that is going."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka import TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordError,
    CorruptRecordException,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafka.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from aiokafka.testing import Cut, Edit, FakeCluster
from tests.support.consumers import T0, T1, Start, fill, partition_error, read


def records_as(change: Callable[[bytes], bytes]) -> Edit:
    """Change the bytes of the records of partition 0, where there are any."""

    def edit(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == 0 and data.records:
                    data.records = change(bytes(data.records))

    return Edit(edit)


# -- bytes that are no records ---------------------------------------------------------------------


@pytest.mark.parametrize("length", [10, 50])
async def test_a_record_that_an_old_broker_cuts_short(
    cluster: FakeCluster, start: Start, length: int
) -> None:
    """Before Kafka 0.10.1 a broker sent so many bytes, whatever the size of the record."""
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 3)
    script = cluster.intercept(FetchRequest, records_as(lambda data: data[:length]))
    consumer = await start(cluster, assign=[T0, T1], max_partition_fetch_bytes=4321)
    async with timeout(10):
        for _ in range(2):
            with pytest.raises(RecordTooLargeError, match=r"offset 0 .*=4321") as caught:
                await consumer.getone()
        assert "t" in str(caught.value)
        fill(cluster, 1, 1)
        assert (await consumer.getone(T1)).offset == 0
        script.remove()
        consumer.seek(T0, 1)
        assert await read(consumer, 2) == [(0, 1), (0, 2)]


async def test_a_loop_over_the_consumer_waits_for_a_record_that_is_too_large(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    script = cluster.intercept(FetchRequest, records_as(lambda data: data[:20]))
    consumer = await start(cluster, "t")
    reader = asyncio.get_running_loop().create_task(anext(aiter(consumer)))
    await cluster.wait_for(lambda: "the record at offset 0 is larger" in caplog.text)
    script.remove()
    async with timeout(10):
        assert (await reader).offset == 0


def put(at: int, data: bytes) -> Callable[[bytes], bytes]:
    """Overwrite a part of the batch that begins at offset 3."""

    def change(records: bytes) -> bytes:
        changed, start = bytearray(records), 0
        while start < len(records):
            if int.from_bytes(records[start : start + 8], "big") == 3:
                changed[start + at : start + at + len(data)] = data
            start += 12 + int.from_bytes(records[start + 8 : start + 12], "big")
        return bytes(changed)

    return change


@pytest.mark.parametrize(
    "change",
    [
        put(8, b"\xff\xff\xff\xff"),
        put(8, b"\x00\x00\x00\x14"),
        put(23, b"\xff\xff\xff\xfe"),
        put(0, b"\xff"),
        put(0, b"\x7f" + 7 * b"\xff"),
    ],
    ids=["negative length", "short length", "negative count", "negative offset", "last offset"],
)
async def test_a_header_that_makes_no_sense(
    cluster: FakeCluster, start: Start, change: Callable[[bytes], bytes]
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 6, batch=3)
    script = cluster.intercept(FetchRequest, records_as(change))
    consumer = await start(cluster, "t")
    async with timeout(10):
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="partition=0") as caught:
                await consumer.getone()
        assert caught.value.topic_partition == T0
        assert await consumer.position(T0) == 3
        # It is not asked for over and over.
        cluster.forget_requests()
        assert await cluster_is_quiet(cluster)
        script.remove()
        consumer.seek(T0, 3)
        assert await read(consumer, 3) == [(0, n) for n in range(3, 6)]


async def cluster_is_quiet(cluster: FakeCluster) -> bool:
    """Whether there are few fetches in a while, for which a loop without pauses makes hundreds."""
    await asyncio.sleep(0.2)
    return cluster.count(FetchRequest) < 30


async def test_an_answer_that_leads_nowhere(cluster: FakeCluster, start: Start) -> None:
    """A broker sends once more what was read already."""
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    sent: list[bytes] = []

    def again(records: bytes) -> bytes:
        sent.append(records)
        return sent[0]

    script = cluster.intercept(FetchRequest, records_as(again))
    consumer = await start(cluster, "t")
    async with timeout(10):
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        fill(cluster, 0, 1)
        with pytest.raises(CorruptRecordException, match=r"offset 3, .* up to 3 only"):
            await consumer.getone()
        cluster.forget_requests()
        assert await cluster_is_quiet(cluster)
        script.remove()
        while True:
            try:
                assert await read(consumer, 1) == [(0, 3)]
                break
            except CorruptRecordException:
                pass


async def test_offsets_that_go_back(cluster: FakeCluster, start: Start) -> None:
    """A broker sends a batch once more behind the next one: no record is returned twice."""
    await cluster.create_topic("t")
    fill(cluster, 0, 6, batch=3)

    def once_more(records: bytes) -> bytes:
        return records + records[: len(records) // 2]

    cluster.intercept(FetchRequest, records_as(once_more), times=1)
    consumer = await start(cluster, "t")
    async with timeout(10):
        assert await read(consumer, 6) == [(0, n) for n in range(6)]
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 6)]


async def test_a_topic_that_was_not_asked_for(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)

    def strange(response: FetchResponse) -> None:
        partitions = response.responses[0].partitions if response.responses else []
        other = FetchableTopicResponse(topic_id=b"?" * 16, partitions=partitions)
        response.responses = [other, *response.responses]

    cluster.intercept(FetchRequest, Edit(strange))
    consumer = await start(cluster, "t")
    async with timeout(10):
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]


# -- positions -------------------------------------------------------------------------------------


def leave_out(request: FetchRequest, context: Any) -> None:
    """Begin a session without the last partition that was asked for."""
    if request.session_epoch == 0:
        request.topics[-1].partitions.pop()


async def test_a_partition_that_a_new_session_lacks(cluster: FakeCluster, start: Start) -> None:
    """Requests of a session name what changed, and this one changes no more."""
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 3)
    fill(cluster, 1, 3)
    cluster.intercept(FetchRequest, leave_out, times=1)
    consumer = await start(cluster, assign=[T0, T1])
    async with timeout(20):
        found = await read(consumer, 6)
    assert sorted(found) == [(number, offset) for number in (0, 1) for offset in range(3)]


async def test_what_waits_to_be_read_is_fetched_again_before_its_end_is_called_lost(
    cluster: FakeCluster, start: Start
) -> None:
    """The offset that is out of range is not yet the application's."""
    await cluster.create_topic("t")
    fill(cluster, 0, 5)
    consumer = await start(cluster, "t", auto_offset_reset="none", fetch_max_wait_ms=20)
    consumer.seek(T0, 0)
    async with timeout(10):
        assert await read(consumer, 1) == [(0, 0)]
        out_of_range = partition_error(OffsetOutOfRangeError)
        script = cluster.intercept(FetchRequest, out_of_range, times=1)
        await script.wait()
        fetches = cluster.count(FetchRequest)
        fill(cluster, 0, 1)
        await cluster.wait_for(lambda: cluster.count(FetchRequest) > fetches)
        assert await read(consumer, 5) == [(0, n) for n in range(1, 6)]
    assert consumer.health().last_error is None


async def test_records_of_a_partition_that_was_given_up_are_not_handed_out(
    cluster: FakeCluster, start: Start
) -> None:
    """They come with the response to a fetch that was under way."""
    await cluster.create_topic("t", partitions=2)
    consumer = await start(cluster, assign=[T0, T1], fetch_max_wait_ms=10**6)
    await consumer.position(T0)
    fill(cluster, 1, 1)
    async with timeout(10):
        assert await read(consumer, 1) == [(1, 0)]
        # Both are asked for, at the places where they stand.
        await cluster.wait_for(lambda: asked_for(cluster, T1) == 1)
        consumer.assign([T1])
        fill(cluster, 0, 1)
        fill(cluster, 1, 1)
        assert await read(consumer, 1) == [(1, 1)]
        assert await consumer.getmany() == {}


def asked_for(cluster: FakeCluster, tp: TopicPartition) -> int:
    """The offset at which a partition was asked for last."""
    return [
        partition.fetch_offset
        for seen in cluster.requests(FetchRequest)
        for topic in seen.request.topics
        for partition in topic.partitions
        if partition.partition == tp.partition
    ][-1]


async def test_an_error_of_a_position_that_was_left_is_not_raised(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 5)
    consumer = await start(cluster, "t", auto_offset_reset="none")
    consumer.seek(T0, 99)
    await cluster.wait_for(lambda: "OffsetOutOfRange" in (consumer.health().last_error or ""))
    consumer.seek(T0, 3)
    async with timeout(10):
        assert await read(consumer, 2) == [(0, 3), (0, 4)]


async def test_a_partition_is_paused_between_its_records(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 3, batch=3)
    consumer = await start(cluster, assign=[T0, T1])
    async with timeout(10):
        assert await read(consumer, 1) == [(0, 0)]
        consumer.pause(T0)
        fill(cluster, 1, 1)
        assert await read(consumer, 1) == [(1, 0)]
        consumer.resume(T0)
        assert await read(consumer, 2) == [(0, 1), (0, 2)]


# -- brokers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["silent", "gone"])
async def test_a_replica_that_does_not_answer(start: Start, how: str) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5)
        consumer = await start(cluster, "t", client_rack="b")
        async with timeout(10):
            assert await read(consumer, 5) == [(0, n) for n in range(5)]
            await cluster.wait_for(lambda: cluster.requests(FetchRequest)[-1].broker_id == 1)
            if how == "silent":
                cluster.intercept(FetchRequest, Cut(), broker=1)
            else:
                await cluster.stop_broker(1)
            fill(cluster, 0, 1)
            assert await read(consumer, 1) == [(0, 5)]


async def test_the_leader_is_asked_again_which_replica_to_read(start: Start) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        consumer = await start(cluster, "t", client_rack="b", metadata_max_age_ms=100)

        def readers() -> list[int]:
            order = [seen.broker_id for seen in cluster.requests(FetchRequest)]
            return [node for n, node in enumerate(order) if n == 0 or node != order[n - 1]]

        await cluster.wait_for(lambda: readers()[-5:] == [1, 0, 1, 0, 1])
        fill(cluster, 0, 1)
        async with timeout(10):
            assert await read(consumer, 1) == [(0, 0)]


async def test_a_broker_that_cannot_be_read_from(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        fill(cluster, 0, 1)
        fill(cluster, 1, 1)

        def without_fetch(response: ApiVersionsResponse) -> None:
            key = FetchRequest.API_KEY
            response.api_keys = [api for api in response.api_keys if api.api_key != key]

        cluster.intercept(ApiVersionsRequest, Edit(without_fetch), broker=1)
        consumer = await start(cluster, "t")
        async with timeout(10):
            with pytest.raises(UnsupportedVersionError, match="Fetch"):
                await consumer.getone(T1)
            assert (await consumer.getone(T0)).offset == 0


async def test_a_partition_that_is_not_read_any_more_is_not_missed(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    nowhere = TopicPartition("t", 7)
    consumer = await start(cluster, assign=[T0, nowhere], retry_backoff_max_ms=20)
    await cluster.wait_for(lambda: "t-7" in str(consumer.health().unreachable))
    consumer.assign([T0])
    await cluster.wait_for(lambda: not consumer.health().unreachable)


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [(), (T0,), (T0, T1)], ids=["of all", "of one", "of two"])
async def test_every_reader_hears_of_the_stop(
    cluster: FakeCluster, start: Start, wanted: tuple[TopicPartition, ...]
) -> None:
    await cluster.create_topic("t", partitions=2)
    consumer = await start(cluster, assign=[T0, T1])
    loop = asyncio.get_running_loop()
    one = loop.create_task(consumer.getone(*wanted))
    many = loop.create_task(consumer.getmany(*wanted, timeout_ms=10**9))
    beats = cluster.count(FetchRequest)
    await cluster.wait_for(lambda: cluster.count(FetchRequest) > beats + 1)
    await consumer.stop()
    async with timeout(10):
        with pytest.raises(ConsumerStoppedError):
            await one
        assert await many == {}


@pytest.mark.parametrize("wanted", [(), (T0,)], ids=["of all", "of one"])
async def test_readers_hear_of_what_ends_the_background_work(
    cluster: FakeCluster, start: Start, wanted: tuple[TopicPartition, ...]
) -> None:
    """An application's log filter that raises, for one."""
    await cluster.create_topic("t")
    consumer = await start(cluster, assign=[T0], default_api_timeout_ms=10**9)
    reader = asyncio.get_running_loop().create_task(consumer.getone(*wanted))

    def broken(record: logging.LogRecord) -> bool:
        if "fetch answered" in record.getMessage():
            raise LookupError("no such field")
        return True

    log = logging.getLogger("aiokafka.consumer.fetcher")
    level = log.level
    log.addFilter(broken)
    log.setLevel(logging.DEBUG)
    try:
        cluster.intercept(FetchRequest, partition_error(RequestTimedOutError))
        fill(cluster, 0, 1)
        async with timeout(10):
            with pytest.raises(Exception, match="no such field"):
                await reader
            with pytest.raises(Exception, match="no such field"):
                await consumer.getone()
    finally:
        log.removeFilter(broken)
        log.setLevel(level)
    assert consumer.health().state == "failed"
