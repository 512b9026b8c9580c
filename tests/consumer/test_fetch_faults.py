"""Fetches that fail, and fetch responses without usable records."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition, errors
from aiokafka._compat import timeout
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordError,
    CorruptRecordException,
    GroupCoordinatorNotAvailableError,
    KafkaTimeoutError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    RecordTooLargeError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
)
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold, RawBytes
from tests.support.consumers import T0, T1, Start, client_of, fill, partition_error, queued, read

# == Fetches with errors, lost connections and slow brokers ========================================


U0 = TopicPartition("u", 0)
PASSING = [
    errors.NotLeaderForPartitionError,
    errors.ReplicaNotAvailableError,
    errors.KafkaStorageError,
    errors.FencedLeaderEpoch,
    errors.UnknownLeaderEpoch,
    errors.OffsetNotAvailable,
    errors.UnknownTopicOrPartitionError,
    errors.UnknownTopicId,
    errors.InconsistentTopicId,
    errors.LeaderNotAvailableError,
    errors.ListenerNotFound,
    errors.UnknownError,
    errors.RequestTimedOutError,
]

FAILING = [
    errors.CorruptRecordException,
    errors.InvalidFetchRequestError,
    errors.UnsupportedCompressionType,
    errors.PolicyViolationError,
]

SESSION = [
    errors.FetchSessionIdNotFound,
    errors.InvalidFetchSessionEpoch,
    errors.FetchSessionTopicIdError,
]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.__name__)
async def test_passing_errors_are_waited_out(
    cluster: FakeCluster, start: Start, error: type[errors.BrokerResponseError]
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 5)
    fill(cluster, 1, 5)
    script = cluster.intercept(FetchRequest, partition_error(error))
    consumer = await start(cluster, "t", fetch_max_wait_ms=20)
    # The other partition is not held up.
    assert await read(consumer, 5) == [(1, n) for n in range(5)]
    await cluster.wait_for(lambda: script.hits >= 4)
    script.remove()
    assert await read(consumer, 5) == [(0, n) for n in range(5)]


@pytest.mark.parametrize("error", FAILING, ids=lambda error: error.__name__)
async def test_other_errors_are_raised_and_do_not_stop_the_rest(
    cluster: FakeCluster, start: Start, error: type[errors.BrokerResponseError]
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 1, 3)
    script = cluster.intercept(FetchRequest, partition_error(error))
    fill(cluster, 0, 1)
    consumer = await start(cluster, "t")
    with pytest.raises(error):
        await consumer.getone(T0)
    assert await read(consumer, 3) == [(1, n) for n in range(3)]
    with pytest.raises(error):
        await consumer.getmany(timeout_ms=5000)
    script.remove()
    records: list[Any] = []
    while not records:
        try:
            records = [await consumer.getone()]
        except error:
            pass
    assert records[0].partition == 0


@pytest.mark.parametrize("error", SESSION, ids=lambda error: error.__name__)
async def test_a_lost_session_is_replaced(
    cluster: FakeCluster, start: Start, error: type[errors.BrokerResponseError]
) -> None:
    await cluster.create_topic("t", partitions=2)
    consumer = await start(cluster, "t")
    fill(cluster, 0, 1)
    await read(consumer, 1)
    cluster.intercept(FetchRequest, Fail(error), times=1)
    fill(cluster, 0, 1)
    fill(cluster, 1, 1)
    assert sorted(await read(consumer, 2)) == [(0, 1), (1, 0)]


async def test_sessions_carry_changes_only(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=20)
    consumer = await start(cluster, "t", fetch_max_wait_ms=20)
    fill(cluster, 3, 1)
    await read(consumer, 1)
    seen = cluster.count(FetchRequest)
    await cluster.wait_for(lambda: cluster.count(FetchRequest) > seen + 3)
    last: Any = cluster.requests(FetchRequest)[-1].request
    assert last.session_id != 0
    assert last.session_epoch > 0
    assert last.topics == []


async def test_cut_connections_are_made_again(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 10)
    cluster.intercept(FetchRequest, Cut(handled=True), times=2)
    consumer = await start(cluster, "t")
    assert await read(consumer, 10) == [(0, n) for n in range(10)]
    cluster.drop_connections()
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 10)]


async def test_garbage_is_survived(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    cluster.intercept(FetchRequest, RawBytes(b"\x00\x00\x00\x09garbage!!"), times=1)
    consumer = await start(cluster, "t")
    assert await read(consumer, 3) == [(0, n) for n in range(3)]


async def test_slow_answers(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    cluster.intercept(None, Delay(0.02))
    consumer = await start(cluster, "t")
    assert await read(consumer, 3) == [(0, n) for n in range(3)]


async def test_throttling_is_obeyed(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)

    def throttle(response: FetchResponse) -> None:
        response.throttle_time_ms = 200

    cluster.intercept(FetchRequest, Edit(throttle))
    consumer = await start(cluster, "t", fetch_max_wait_ms=10)
    assert await read(consumer, 3) == [(0, n) for n in range(3)]
    await cluster.wait_for(lambda: cluster.count(FetchRequest) >= 3)
    asked = [seen.context.received_at for seen in cluster.requests(FetchRequest)]
    assert all(later - sooner >= 0.19 for sooner, later in itertools.pairwise(asked))


async def test_a_new_leader_takes_over(start: Start) -> None:
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t", partitions=2, replication_factor=2)
        consumer = await start(cluster, "t")
        for turn in range(4):
            for number in range(2):
                cluster.move_leader(("t", number), (turn + number) % 3)
                fill(cluster, number, 2)
            expected = [(number, 2 * turn + n) for number in range(2) for n in range(2)]
            assert sorted(await read(consumer, 4)) == expected


async def test_a_dead_broker_comes_back(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        consumer = await start(cluster, "t", retry_backoff_max_ms=50, reconnect_backoff_max_ms=50)
        fill(cluster, 0, 1)
        fill(cluster, 1, 1)
        await read(consumer, 2)
        await cluster.stop_broker(1)
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 1)]
        await cluster.start_broker(1)
        fill(cluster, 1, 1)
        assert await read(consumer, 1) == [(1, 1)]


async def test_a_denied_topic_does_not_stop_the_others(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 1, 2)
    script = cluster.intercept(FetchRequest, partition_error(TopicAuthorizationFailedError))
    fill(cluster, 0, 1)
    consumer = await start(cluster, assign=[T0, T1])
    seen, denied = [], 0
    while len(seen) < 2 or not denied:
        try:
            seen.append((await consumer.getone()).offset)
        except TopicAuthorizationFailedError as error:
            assert error.args == ("t",)
            denied += 1
    assert seen == [0, 1]
    script.remove()
    assert (await consumer.getone(T0)).offset == 0


@pytest.mark.parametrize("call", ["getone", "getmany"])
async def test_who_reads_a_denied_topic_alone_is_told(
    cluster: FakeCluster, start: Start, call: str
) -> None:
    await cluster.create_topic("t")
    await cluster.create_topic("u")
    fill(cluster, 0, 1)
    consumer = await start(cluster, assign=[T0, U0], metadata_max_age_ms=50)
    script = cluster.intercept(MetadataRequest, Edit(deny_u))
    with pytest.raises(TopicAuthorizationFailedError, match="u"):
        async with timeout(10):
            if call == "getone":
                await consumer.getone(U0)
            else:
                await consumer.getmany(U0, timeout_ms=60_000)
    # What is read of another topic has nothing to do with it.
    assert (await consumer.getone(T0)).offset == 0
    script.remove()
    fill(cluster, 0, 1, topic="u")
    async with timeout(10):
        assert await read_when_allowed(consumer) == 0


@pytest.mark.parametrize("call", ["getone", "getmany", "of a partition"])
async def test_a_topic_that_is_allowed_again_is_not_reported(
    cluster: FakeCluster, start: Start, call: str
) -> None:
    """The application has not asked for records while it was denied."""
    await cluster.create_topic("t")
    await cluster.create_topic("u")
    consumer = await start(cluster, "t", "u", metadata_max_age_ms=50)
    with cluster.intercept(MetadataRequest, Edit(deny_u)):
        await cluster.wait_for(
            lambda: isinstance(consumer.health().last_exception, TopicAuthorizationFailedError)
        )
    asked = cluster.count(MetadataRequest)
    await cluster.wait_for(lambda: cluster.count(MetadataRequest) >= asked + 2)
    fill(cluster, 0, 1, topic="u")
    async with timeout(10):
        if call == "getmany":
            assert list(await consumer.getmany(timeout_ms=5000)) == [U0]
        else:
            wanted = [] if call == "getone" else [U0]
            assert (await consumer.getone(*wanted)).topic == "u"


def deny_u(response: MetadataResponse) -> None:
    for topic in response.topics:
        if topic.name == "u":
            topic.error_code = TopicAuthorizationFailedError.errno
            topic.partitions = []


async def read_when_allowed(consumer: AIOKafkaConsumer) -> int:
    while True:
        try:
            return (await consumer.getone(U0)).offset
        except TopicAuthorizationFailedError:
            await asyncio.sleep(0.01)


async def test_offset_out_of_range_follows_the_policy(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 10)
    consumer = await start(cluster, "t")
    await read(consumer, 3)
    cluster.log("t").delete_before(6)
    consumer.seek(T0, 2)
    assert await read(consumer, 1) == [(0, 6)]
    consumer.seek(T0, 1000)
    assert await read(consumer, 1) == [(0, 6)]


async def test_without_a_policy_the_application_decides(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 10)
    consumer = await start(cluster, "t", auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartitionError):
        await consumer.getone(T0)
    with pytest.raises(NoOffsetForPartitionError):
        await consumer.position(T1)
    consumer.seek(T1, 0)
    consumer.seek(T0, 99)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        await consumer.getmany(timeout_ms=10_000)
    assert caught.value.args == ({T0: 99},)
    assert await consumer.position(T0) == 99
    consumer.seek(T0, 8)
    assert await read(consumer, 2) == [(0, 8), (0, 9)]


async def test_retention_behind_the_buffered_records_does_not_skip_them(start: Start) -> None:
    """
    1. Five records are buffered; the fetch position is behind them.
    2. Retention deletes more: the next fetch gets OFFSET_OUT_OF_RANGE.
    3. The buffered records are valid. The reset policy applies to what follows them.
    """
    async with FakeCluster(brokers=1) as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 5)
        consumer = await start(cluster, "t")
        await cluster.wait_for(lambda: queued(consumer) == [1])
        refused = cluster.intercept(FetchRequest, partition_error(OffsetOutOfRangeError))
        fill(cluster, 0, 5)
        cluster.log("t").delete_before(8)
        await cluster.wait_for(lambda: refused.hits > 2)
        refused.remove()
        assert await read(consumer, 7) == [(0, n) for n in (0, 1, 2, 3, 4, 8, 9)]


@pytest.mark.parametrize("policy", ["earliest", "none"])
async def test_a_truncated_log_is_noticed(start: Start, policy: str) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", replication_factor=2)
        fill(cluster, 0, 10)
        consumer = await start(cluster, "t", auto_offset_reset="earliest", metadata_max_age_ms=100)
        if policy == "none":
            await consumer.stop()
            consumer = await start(cluster, "t", auto_offset_reset=policy, metadata_max_age_ms=100)
            consumer.seek(T0, 0)
        await read(consumer, 10)
        cluster.log("t").truncate(6)
        cluster.move_leader(T0, 1 - cluster.partition("t").leader)
        fill(cluster, 0, 6)
        if policy == "earliest":
            assert await read(consumer, 6) == [(0, n) for n in range(6, 12)]
        else:
            with pytest.raises(LogTruncationError) as caught:
                await consumer.getone()
            assert (caught.value.offset, caught.value.divergent_offset) == (10, 6)
            consumer.seek(T0, 6)
            assert await read(consumer, 6) == [(0, n) for n in range(6, 12)]
        assert cluster.count(OffsetForLeaderEpochRequest) > 0


async def test_a_new_leader_with_the_whole_log_changes_nothing(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", replication_factor=2)
        fill(cluster, 0, 10)
        consumer = await start(cluster, "t", metadata_max_age_ms=100)
        await read(consumer, 5)
        cluster.move_leader(T0, 1 - cluster.partition("t").leader)
        await cluster.wait_for(lambda: cluster.count(OffsetForLeaderEpochRequest) > 0)
        fill(cluster, 0, 1)
        assert await read(consumer, 6) == [(0, n) for n in range(5, 11)]


async def test_good_records_come_before_a_deserializer_that_raises(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    log = cluster.log("t", 0)
    log.extend([(b"k", value, [("h", b"x")]) for value in (b"0", b"1", b"oops", b"3")])
    consumer = await start(cluster, assign=[T0, T1], value_deserializer=int)
    assert [r.value for r in (await consumer.getmany(timeout_ms=5000))[T0]] == [0, 1]
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as caught:
            await consumer.getmany(timeout_ms=5000)
    error = caught.value
    assert (error.topic_partition, error.offset, error.part) == (T0, 2, "value")
    assert (error.record.key, error.record.value) == (b"k", b"oops")
    assert error.record.headers == (("h", b"x"),)
    assert isinstance(error.cause, ValueError)
    with pytest.raises(RecordDeserializationError):
        await consumer.getone()
    fill(cluster, 1, 2)
    others = [await consumer.getone(T1) for _ in range(2)]
    assert [record.value for record in others] == [0, 1]
    assert await consumer.position(T0) == 2
    consumer.seek(error.topic_partition, error.offset + 1)
    assert (await consumer.getone()).value == 3


async def test_one_by_one_the_records_before_a_bad_one_come_first(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    cluster.log("t").extend([(None, value, ()) for value in (b"0", b"oops", b"2")])
    consumer = await start(cluster, "t", value_deserializer=int)
    seen: list[int] = []
    for _ in range(2):
        try:
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 2:
                    break
        except RecordDeserializationError as error:
            consumer.seek(T0, error.offset + 1)
    assert seen == [0, 2]


async def test_a_corrupt_batch_is_raised_when_reached(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 9, batch=3)
    cluster.log("t").corrupt(4)
    consumer = await start(cluster, "t")
    assert await read(consumer, 3) == [(0, n) for n in range(3)]
    for _ in range(3):
        with pytest.raises(CorruptRecordError, match="seek to 6") as caught:
            await consumer.getone()
    assert await consumer.position(T0) == 3
    assert (caught.value.topic_partition, caught.value.next_offset) == (T0, 6)
    consumer.seek(T0, 6)
    assert await read(consumer, 3) == [(0, n) for n in range(6, 9)]


async def test_missing_topics_time_out_with_their_name(cluster: FakeCluster, start: Start) -> None:
    consumer = await start(cluster, default_api_timeout_ms=300, allow_auto_create_topics=False)
    with pytest.raises(errors.KafkaTimeoutError, match="nowhere"):
        await consumer.end_offsets([TopicPartition("nowhere", 0)])


async def test_lookups_are_retried_by_partition(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        fill(cluster, 0, 3)
        fill(cluster, 1, 4)
        consumer = await start(cluster, assign=[T0])
        await read(consumer, 1)
        cluster.forget_requests()
        cluster.intercept(
            ListOffsetsRequest, Fail(errors.NotLeaderForPartitionError), times=2, broker=0
        )
        assert await consumer.end_offsets([T0, T1]) == {T0: 3, T1: 4}
        by_broker = [seen.broker_id for seen in cluster.requests(ListOffsetsRequest)]
        assert by_broker.count(0) == 3
        assert by_broker.count(1) == 1


async def test_offsets_for_times(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    for stamp in (1000, 2000, 3000):
        cluster.log("t").append(b"x", timestamp_ms=stamp)
    consumer = await start(cluster, "t")
    asked = {T0: 1500, T1: 0}
    found = await consumer.offsets_for_times(asked)
    assert asked == {T0: 1500, T1: 0}
    assert found == {T0: (1, 2000), T1: None}
    assert await consumer.offsets_for_times({T0: 5000}) == {T0: None}
    with pytest.raises(ValueError, match="negative"):
        await consumer.offsets_for_times({T0: -1})
    with pytest.raises(TypeError):
        await consumer.offsets_for_times({T0: "now"})  # type: ignore[dict-item]


async def test_a_partition_whose_answers_are_errors_is_not_asked_for_in_a_loop(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    cluster.intercept(FetchRequest, partition_error(errors.NotLeaderForPartitionError))
    fill(cluster, 0, 1)
    await start(cluster, "t", retry_backoff_ms=100, retry_backoff_max_ms=100)
    cluster.forget_requests()
    await asyncio.sleep(0.4)
    # Some four attempts, and without a back-off hundreds.
    assert cluster.count(FetchRequest) <= 40
    assert cluster.count(MetadataRequest) <= 40


async def test_the_error_answer_names_the_new_leader(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", replication_factor=2)
        fill(cluster, 0, 1)
        consumer = await start(cluster, "t")
        await read(consumer, 1)
        never = asyncio.Event()
        cluster.intercept(MetadataRequest, Hold(never))
        cluster.move_leader(T0, 1 - cluster.partition("t").leader)
        fill(cluster, 0, 1)
        # No metadata comes any more: KIP-951 has to do.
        assert await read(consumer, 1) == [(0, 1)]


async def test_a_partition_that_is_not_there_is_mentioned(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    consumer = await start(cluster, assign=[T0, T1], retry_backoff_max_ms=10)
    assert await read(consumer, 1) == [(0, 0)]
    await cluster.wait_for(lambda: "t-1 (t has 1 partition) cannot be read" in caplog.text)


# == Fetch responses without usable records ========================================================


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
        if "Fetch failed with" in record.getMessage():
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


# == Leaders, replicas and coordinators that are unavailable, changed or wrong =====================


def advice(replica: int) -> Edit:
    """Have a broker send nothing but the name of a replica to read from."""

    def change(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                data.preferred_read_replica = replica
                data.records = None

    return Edit(change)


async def test_a_replica_that_the_metadata_does_not_list(start: Start) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 3)

        def leave_out(response: MetadataResponse) -> None:
            response.brokers = [broker for broker in response.brokers if broker.node_id == 0]

        hidden = cluster.intercept(MetadataRequest, Edit(leave_out))
        consumer = await start(cluster, "t", client_rack="b")
        seen = cluster.count(MetadataRequest)
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        # It is asked for, and meanwhile the leader is read without loops.
        await cluster.wait_for(lambda: cluster.count(MetadataRequest) > seen)
        assert cluster.count(FetchRequest) < 20
        hidden.remove()


@pytest.mark.parametrize("named", [0, 1], ids=["itself", "each other"])
async def test_brokers_that_send_us_round_in_circles(start: Start, named: int) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 3)
        scripts = [
            cluster.intercept(FetchRequest, advice(named), broker=0),
            cluster.intercept(FetchRequest, advice(0), broker=1),
        ]
        consumer = await start(cluster, "t", client_rack="b", retry_backoff_ms=50)
        await cluster.wait_for(lambda: scripts[0].hits >= 2)
        cluster.forget_requests()
        assert await consumer.getmany(timeout_ms=500) == {}
        # Back-off grows from 50 ms on. Without any there are some hundreds.
        assert cluster.count(FetchRequest) <= 25
        for script in scripts:
            script.remove()
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("error", [OffsetOutOfRangeError, TopicAuthorizationFailedError])
@pytest.mark.parametrize("moved", ["from a replica", "from a leader"])
async def test_an_error_from_a_broker_that_was_left(
    start: Start, moved: str, error: type[errors.BrokerResponseError]
) -> None:
    """The partition is read from another broker by then, so the error must not count.

    1. The fetch of the replica (or old leader) is in flight.
    2. The partition moves to another broker.
    3. The first broker responds with the error.
    """
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5)
        rack = {"client_rack": "b"} if moved == "from a replica" else {}
        old = 1 if rack else 0
        release = asyncio.Event()

        async def answer(request: Any, context: Any) -> Any:
            await release.wait()
            return partition_error(error)

        consumer = await start(cluster, "t", auto_offset_reset="none", **rack)
        consumer.seek(T0, 5)
        await cluster.wait_for(
            lambda: [seen.broker_id for seen in cluster.requests(FetchRequest)][-1:] == [old]
        )
        late = cluster.intercept(FetchRequest, answer, broker=old, times=1)
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 5)]
        await cluster.wait_for(lambda: late.hits)
        cluster.move_leader(T0, 1 - old)
        if rack:
            # The broker leaves the cluster, as far as its metadata tell.
            hide = Edit(lambda response: _hide(response, old))
            cluster.intercept(MetadataRequest, hide)
        await client_of(consumer).force_metadata_update()
        release.set()
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 6)]
        assert consumer.health().last_error is None


def _hide(response: MetadataResponse, node_id: int) -> None:
    response.brokers = [broker for broker in response.brokers if broker.node_id != node_id]


@pytest.mark.parametrize(
    ("error", "times"), [(errors.UnknownError, 0), (errors.InvalidFetchRequestError, 1)]
)
async def test_an_error_of_a_whole_answer_is_raised_once_if_at_all(
    cluster: FakeCluster, start: Start, error: type[errors.BrokerResponseError], times: int
) -> None:
    await cluster.create_topic("t", partitions=50)
    consumer = await start(cluster, "t")
    fill(cluster, 0, 1)
    await read(consumer, 1)
    script = cluster.intercept(FetchRequest, Fail(error), times=1)
    await cluster.wait_for(lambda: script.hits)
    fill(cluster, 0, 1)
    raised = 0
    async with timeout(20):
        while True:
            try:
                record = await consumer.getone()
                break
            except error:
                raised += 1
    assert record.offset == 1
    assert raised == times


async def test_partitions_back_off_together(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=100)
    codes = errors.NotLeaderForPartitionError.errno

    def refuse(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                data.error_code, data.records = codes, None

    for number in range(100):
        fill(cluster, number, 1)
    script = cluster.intercept(FetchRequest, Edit(refuse))
    await start(cluster, "t", retry_backoff_ms=250, retry_backoff_max_ms=250)
    await cluster.wait_for(lambda: script.hits >= 2)
    cluster.forget_requests()
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(1.5)
    # Four slots in a second; one by one the partitions took dozens.
    assert cluster.count(FetchRequest) <= 8 * (asyncio.get_running_loop().time() - began)


class Counted:
    """A coroutine, and how often it has begun to wait."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self.inner = inner
        self.pauses = 0

    async def run(self) -> Any:
        return await self

    def __await__(self) -> Iterator[Any]:
        steps = self.inner.__await__()
        try:
            while True:
                awaited = next(steps)
                self.pauses += 1
                yield awaited
        except StopIteration as end:
            return end.value
        finally:
            steps.close()


async def test_readers_of_other_partitions_are_not_woken(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=50)
    consumer = await start(cluster, "t")
    tps = [TopicPartition("t", number) for number in range(1, 50)]
    counted = [Counted(consumer.getone(tp)) for tp in tps]
    waiting = [asyncio.create_task(each.run()) for each in counted]
    for _ in range(20):
        fill(cluster, 0, 1)
        await consumer.getone(T0)
    assert sum(each.pauses for each in counted) < 300
    for tp in tps:
        fill(cluster, tp.partition, 1)
    async with timeout(20):
        records = await asyncio.gather(*waiting)
    assert [record.partition for record in records] == list(range(1, 50))


async def test_a_reader_of_many_partitions_is_woken(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=20)
    consumer = await start(cluster, "t")
    tps = [TopicPartition("t", number) for number in range(20)]
    waiting = asyncio.create_task(consumer.getone(*tps))
    await asyncio.sleep(0)
    fill(cluster, 19, 1)
    async with timeout(20):
        assert (await waiting).partition == 19


async def test_one_of_three_brokers_is_away(start: Start) -> None:
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t")
        # Nothing listens there.
        cluster.advertise(2, "127.0.0.1", 1)
        for _ in range(6):
            consumer = await start(cluster)
            assert consumer.partitions_for_topic("t") == {0}
            for _ in range(5):
                assert "t" in await consumer.topics()


@pytest.mark.parametrize(
    ("request_type", "error"),
    [
        (FindCoordinatorRequest, GroupCoordinatorNotAvailableError),
        (OffsetFetchRequest, errors.UnstableOffsetCommit),
    ],
)
async def test_readers_wait_for_committed_offsets(
    cluster: FakeCluster,
    start: Start,
    request_type: Any,
    error: type[errors.BrokerResponseError],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 1)
    fill(cluster, 1, 1)
    caplog.set_level("DEBUG", "aiokafka.consumer.fetcher")
    script = cluster.intercept(request_type, Fail(error))
    consumer = await start(cluster, assign=[T0, T1], group_id="g", request_timeout_ms=300)
    reading = asyncio.create_task(consumer.getone())
    await cluster.wait_for(lambda: caplog.text.count("Offset lookup failed") >= 2)
    assert not reading.done()
    assert error.__name__ in caplog.text
    script.remove()
    async with timeout(20):
        assert (await reading).offset == 0


async def test_a_commit_tells_why_there_is_no_coordinator(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    consumer = await start(
        cluster, assign=[T0], group_id="g", default_api_timeout_ms=300, enable_auto_commit=False
    )
    client_of(consumer).forget_coordinator(0, "g", "for the test")
    cluster.intercept(FindCoordinatorRequest, Fail(GroupCoordinatorNotAvailableError))
    with pytest.raises(KafkaTimeoutError, match="GroupCoordinatorNotAvailableError"):
        await consumer.commit({T0: 1})
