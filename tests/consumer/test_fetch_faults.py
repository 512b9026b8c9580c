"""What brokers answer and networks do: the consumer goes on, says what is wrong, and never
spins."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition, errors
from aiokafka._compat import timeout
from aiokafka.errors import (
    CorruptRecordError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.messages.fetch import FetchRequest, FetchResponse
from aiokafka.protocol.messages.list_offsets import ListOffsetsRequest
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold, RawBytes
from tests.support.consumers import T0, T1, Start, fill, partition_error, read

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
