"""Lookups of positions and offsets with errors, silent brokers and malformed responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import (
    BrokerResponseError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaTimeoutError,
    LogTruncationError,
    TopicAuthorizationFailedError,
    UnstableOffsetCommit,
    UnsupportedForMessageFormatError,
)
from aiokafka.protocol.messages.fetch import (
    EpochEndOffset,
    FetchRequest,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchResponse
from aiokafka.protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from aiokafka.testing import Cut, Edit, FakeCluster, Hold, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, Start, fill, read

# Longer than any test waits.
NEVER_MS = 10**9


@pytest.fixture
async def two() -> AsyncIterator[FakeCluster]:
    """Two brokers, each with a partition of its own: three records in the first, four in the
    second."""
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        fill(cluster, 0, 3)
        fill(cluster, 1, 4)
        yield cluster
        assert cluster.failures == []


@pytest.fixture
async def replicated() -> AsyncIterator[FakeCluster]:
    """Two brokers that may both lead the one partition, with ten records written under the
    first."""
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 10)
        yield cluster
        assert cluster.failures == []


def changed(change: Callable[[ListOffsetsPartitionResponse], None], number: int = 0) -> Edit:
    """Change what ListOffsets answers about one partition."""

    def edit(response: ListOffsetsResponse) -> None:
        for topic in response.topics:
            for data in topic.partitions:
                if data.partition_index == number:
                    change(data)

    return Edit(edit)


def refused(error: type[BrokerResponseError]) -> Edit:
    """Refuse to look up partition 0."""

    def refuse(data: ListOffsetsPartitionResponse) -> None:
        data.error_code, data.offset = error.errno, -1

    return changed(refuse)


def epoch_end(leader_epoch: int, end_offset: int) -> OffsetForLeaderEpochResponse:
    """The response of a leader about the one partition."""
    end = EpochEndOffset(
        error_code=0, partition=0, leader_epoch=leader_epoch, end_offset=end_offset
    )
    return OffsetForLeaderEpochResponse(
        topics=[OffsetForLeaderTopicResult(topic="t", partitions=[end])]
    )


def rewritten(cluster: FakeCluster, offset: int, end: int) -> None:
    """Another leader takes over whose log goes other ways from `offset` on."""
    log = cluster.log("t")
    log.truncate(offset)
    cluster.move_leader(T0, 1 - cluster.partition("t").leader)
    log.extend([(None, b"new %d" % number, ()) for number in range(offset, end)])


async def values(consumer: AIOKafkaConsumer, count: int) -> list[tuple[int, bytes | None]]:
    async with timeout(10):
        records = [await consumer.getone() for _ in range(count)]
    return [(record.offset, record.value) for record in records]


# -- committed offsets -----------------------------------------------------------------------------


@pytest.mark.parametrize("denied", ["a", "b"])
async def test_each_partition_is_refused_for_its_own_reason(
    cluster: FakeCluster, start: Start, denied: str
) -> None:
    """One topic is denied, and a transaction commits for the other. Who read the second was told
    that the first is denied; or who read the first heard nothing before the transaction ended."""
    partitions = {topic: TopicPartition(topic, 0) for topic in ("a", "b")}
    for topic in partitions:
        await cluster.create_topic(topic)
        fill(cluster, 0, 1, topic=topic)

    def refuse(response: OffsetFetchResponse) -> None:
        for topic in response.groups[0].topics:
            is_denied = topic.name == denied
            error = TopicAuthorizationFailedError if is_denied else UnstableOffsetCommit
            topic.partitions[0].error_code = error.errno

    first = partitions.pop(denied)
    (second,) = partitions.values()
    async with timeout(10):
        with cluster.intercept(OffsetFetchRequest, Edit(refuse)) as script:
            consumer = await start(cluster, assign=sorted([first, second]), group_id="g")
            reader = asyncio.create_task(consumer.getone(second))
            with pytest.raises(TopicAuthorizationFailedError, match=denied):
                await consumer.getone(first)
            with pytest.raises(TopicAuthorizationFailedError, match=denied):
                await consumer.committed_offsets()
            await cluster.wait_for(lambda: script.hits > 3)
        assert (await reader).topic == second.topic


# -- end_offsets() and its kin ---------------------------------------------------------------------


async def test_a_topic_that_is_denied_is_told_with_each_call(
    cluster: FakeCluster, start: Start
) -> None:
    """At once, also if it is known to be denied, for that may be over."""
    await cluster.create_topic("t")

    def deny(response: MetadataResponse) -> None:
        response.topics[0].error_code = TopicAuthorizationFailedError.errno
        response.topics[0].partitions = []

    consumer = await start(cluster)
    async with timeout(10):
        with cluster.intercept(MetadataRequest, Edit(deny)):
            for _ in range(2):
                with pytest.raises(TopicAuthorizationFailedError, match="t"):
                    await consumer.end_offsets([T0])
        assert await consumer.end_offsets([T0]) == {T0: 0}


async def test_a_topic_that_is_not_there_is_named_alone(start: Start) -> None:
    """The others, which no broker had been asked about, were named with it, or in its place."""
    config = {"auto.create.topics.enable": "false"}
    async with FakeCluster(config=config) as cluster:
        await cluster.create_topic("here")
        await cluster.create_topic("read")
        here, read = TopicPartition("here", 0), TopicPartition("read", 0)
        consumer = await start(cluster, assign=[read], default_api_timeout_ms=500)
        gone = [TopicPartition(topic, 0) for topic in ("a", "not", "z")]
        async with timeout(10):
            with pytest.raises(KafkaTimeoutError, match="UnknownTopicOrPartition") as caught:
                await consumer.end_offsets([*gone, here, read])
            assert not any(tp.topic in str(caught.value) for tp in (here, read))
            assert all(repr(tp) in str(caught.value) for tp in gone)
            assert await consumer.end_offsets([here, read]) == {here: 0, read: 0}
        await consumer.stop()


async def test_a_broker_that_says_nothing_is_named(two: FakeCluster, start: Start) -> None:
    consumer = await start(two, assign=[T0], default_api_timeout_ms=300)
    with two.intercept(ListOffsetsRequest, Silence(), broker=1):
        with pytest.raises(KafkaTimeoutError, match=r"partition=1.*no answer from broker 1"):
            async with timeout(10):
                await consumer.end_offsets([T0, T1])
    assert await consumer.end_offsets([T0, T1]) == {T0: 3, T1: 4}


async def test_a_lost_answer_is_asked_for_again(two: FakeCluster, start: Start) -> None:
    consumer = await start(two, assign=[T0])
    await consumer.position(T0)
    two.forget_requests()
    two.intercept(ListOffsetsRequest, Cut(), times=1, broker=1)
    async with timeout(10):
        assert await consumer.end_offsets([T0, T1]) == {T0: 3, T1: 4}
    # What was answered is not asked for again.
    assert sorted(seen.broker_id for seen in two.requests(ListOffsetsRequest)) == [0, 1, 1]


def test_a_topic_is_not_forgotten_while_its_offsets_are_looked_up() -> None:
    """Nothing else uses it, and its leader is away for longer than `metadata_max_idle_ms`."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster(brokers=2) as cluster:
            await cluster.create_topic("t", assignment={0: [0], 1: [1]})
            fill(cluster, 1, 4)
            options = {"bootstrap_servers": cluster.address(0), "metadata_max_idle_ms": 2000}
            async with AIOKafkaConsumer(**options) as consumer:
                await cluster.stop_broker(1)
                asking = asyncio.create_task(consumer.end_offsets([T1]))
                await asyncio.sleep(8)
                await cluster.start_broker(1)
                assert await asking == {T1: 4}

    simulate(main, limit_s=60)


async def test_an_answer_about_something_else_is_left_out(two: FakeCluster, start: Start) -> None:
    consumer = await start(two, assign=[T0])
    await consumer.position(T0)

    def other(data: ListOffsetsPartitionResponse) -> None:
        data.partition_index = 7

    two.intercept(ListOffsetsRequest, changed(other), times=1)
    async with timeout(10):
        assert await consumer.end_offsets([T0, T1]) == {T0: 3, T1: 4}


async def test_records_without_a_time_are_not_found_by_time(two: FakeCluster, start: Start) -> None:
    consumer = await start(two, assign=[T0])
    two.intercept(ListOffsetsRequest, refused(UnsupportedForMessageFormatError))
    async with timeout(10):
        found = await consumer.offsets_for_times({T0: 1, T1: 1})
    assert found[T0] is None
    later = found[T1]
    assert later is not None
    assert later.offset == 0


@pytest.mark.parametrize(
    ("error", "subject"), [(TopicAuthorizationFailedError, "t"), (InvalidRequestError, str(T0))]
)
async def test_a_refusal_that_stays_is_raised_at_once(
    two: FakeCluster, start: Start, error: type[BrokerResponseError], subject: str
) -> None:
    consumer = await start(two, assign=[T0, T1], default_api_timeout_ms=NEVER_MS)
    two.intercept(ListOffsetsRequest, refused(error))
    async with timeout(10):
        with pytest.raises(error) as caught:
            await consumer.beginning_offsets([T0, T1])
    assert str(caught.value.args[0]).startswith(subject)


async def test_a_refusal_leaves_no_question_behind(two: FakeCluster, start: Start) -> None:
    """The other broker was asked by a task that went on without an owner, until the deadline."""
    consumer = await start(two, assign=[T0, T1], default_api_timeout_ms=NEVER_MS)
    assert await values(consumer, 7)
    with two.intercept(ListOffsetsRequest, Silence(), broker=1) as script:

        async def refuse(*_: object) -> Edit:
            await script.wait()
            return refused(TopicAuthorizationFailedError)

        two.intercept(ListOffsetsRequest, refuse, broker=0)
        before = asyncio.all_tasks()
        async with timeout(10):
            with pytest.raises(TopicAuthorizationFailedError):
                await consumer.beginning_offsets([T0, T1])
        # Those that the fake cluster serves connections by are not meant.
        new = asyncio.all_tasks() - before
        questions = [task for task in new if "/aiokafka/consumer/" in repr(task)]
        assert questions == []


# -- the position to begin at ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "subject"), [(TopicAuthorizationFailedError, "t"), (InvalidRequestError, T0)]
)
async def test_readers_are_told_of_a_refusal_that_stays(
    two: FakeCluster, start: Start, error: type[BrokerResponseError], subject: object
) -> None:
    script = two.intercept(ListOffsetsRequest, refused(error))
    consumer = await start(two, assign=[T0, T1])
    async with timeout(10):
        # The other partition goes on.
        assert [(await consumer.getone(T1)).offset for _ in range(4)] == [0, 1, 2, 3]
        with pytest.raises(error) as caught:
            await consumer.getone(T0)
        assert caught.value.args == (subject,)
        with pytest.raises(error):
            await consumer.position(T0)
        script.remove()
        assert [(await consumer.getone()).offset for _ in range(2)] == [0, 1]


async def test_a_beginning_that_makes_no_sense_is_asked_for_again(
    two: FakeCluster, start: Start
) -> None:
    def nowhere(data: ListOffsetsPartitionResponse) -> None:
        data.offset = -1

    script = two.intercept(ListOffsetsRequest, changed(nowhere))
    consumer = await start(two, assign=[T0])
    await script.wait(3)
    asked = script.hits
    await asyncio.sleep(0.2)
    # Back-off grows from 10 ms on. Without any there are some hundreds.
    assert script.hits - asked <= 25
    script.remove()
    async with timeout(10):
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
    assert not asks_before_the_beginning(two)


def asks_before_the_beginning(cluster: FakeCluster) -> bool:
    return any(
        partition.fetch_offset < 0
        for seen in cluster.requests(FetchRequest)
        for topic in seen.request.topics
        for partition in topic.partitions
    )


async def test_positions_are_not_waited_for_without_end(two: FakeCluster, start: Start) -> None:
    consumer = await start(two, assign=[T0, T1], default_api_timeout_ms=200, request_timeout_ms=200)
    assert await consumer.position(T0) == 0
    with two.intercept(ListOffsetsRequest, Silence(), broker=0):
        async with timeout(10):
            assert not await consumer.seek_to_end(T0)
            assert await consumer.seek_to_end(T1)
            with pytest.raises(KafkaTimeoutError, match="partition=0"):
                await consumer.position(T0)
    # Where to go is not forgotten.
    async with timeout(10):
        while not await consumer.seek_to_end():
            pass
    assert [await consumer.position(tp) for tp in (T0, T1)] == [3, 4]


async def test_a_leader_from_which_nothing_is_read_is_asked(start: Start) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 3)
        consumer = await start(cluster, "t", client_rack="b", metadata_max_age_ms=200)
        await read(consumer, 3)
        await cluster.wait_for(lambda: cluster.requests(FetchRequest)[-1].broker_id == 1)
        # With the next metadata the leader is no broker that is read from any more.
        looks = cluster.count(MetadataRequest)
        await cluster.wait_for(lambda: cluster.count(MetadataRequest) > looks + 1)
        cluster.forget_requests()
        async with timeout(10):
            assert await consumer.seek_to_beginning()
            assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        assert [seen.broker_id for seen in cluster.requests(ListOffsetsRequest)] == [0]


# -- is what was read still in the log? (KIP-320) --------------------------------------------------


async def test_only_what_waits_to_be_read_was_cut_off(
    replicated: FakeCluster, start: Start
) -> None:
    consumer = await start(replicated, "t", auto_offset_reset="none", metadata_max_age_ms=50)
    consumer.seek(T0, 0)
    assert await values(consumer, 5) == [(n, b"%d" % n) for n in range(5)]
    rewritten(replicated, 7, 12)
    # When the new leader is read from the two logs were compared.
    await replicated.wait_for(
        lambda: any(seen.broker_id == 1 for seen in replicated.requests(FetchRequest))
    )
    expected = [(n, b"%d" % n) for n in (5, 6)] + [(n, b"new %d" % n) for n in range(7, 12)]
    assert await values(consumer, 7) == expected


@pytest.mark.parametrize("policy", ["earliest", "none"])
async def test_the_new_leader_knows_nothing_of_the_epoch(
    replicated: FakeCluster, start: Start, policy: str
) -> None:
    consumer = await start(replicated, "t", auto_offset_reset=policy, metadata_max_age_ms=50)
    consumer.seek(T0, 0)
    assert await read(consumer, 10) == [(0, n) for n in range(10)]
    script = replicated.intercept(OffsetForLeaderEpochRequest, epoch_end(-1, -1))
    rewritten(replicated, 2, 14)
    if policy == "earliest":
        assert await values(consumer, 3) == [(0, b"0"), (1, b"1"), (2, b"new 2")]
        return
    for _ in range(2):
        with pytest.raises(LogTruncationError) as caught:
            async with timeout(10):
                await consumer.getone()
        assert (caught.value.offset, caught.value.divergent_offset) == (10, None)
    script.remove()
    consumer.seek(T0, 3)
    assert await values(consumer, 1) == [(3, b"new 3")]


async def test_a_seek_wins_over_a_log_being_compared(replicated: FakeCluster, start: Start) -> None:
    consumer = await start(replicated, "t", metadata_max_age_ms=50)
    await read(consumer, 10)
    answer = asyncio.Event()
    script = replicated.intercept(OffsetForLeaderEpochRequest, Hold(answer))
    rewritten(replicated, 6, 12)
    await script.wait()
    consumer.seek(T0, 8)
    answer.set()
    assert await values(consumer, 4) == [(n, b"new %d" % n) for n in range(8, 12)]


async def test_a_leader_that_was_followed_by_another_is_not_believed(start: Start) -> None:
    """Its response comes when the next one, whose log was cut, leads."""
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1, 2]})
        fill(cluster, 0, 10)
        consumer = await start(cluster, "t", metadata_max_age_ms=50)
        await read(consumer, 10)
        answer = asyncio.Event()
        held = cluster.intercept(
            OffsetForLeaderEpochRequest, Hold(answer, epoch_end(0, 10)), broker=1
        )
        cluster.move_leader(T0, 1)
        await held.wait()
        log = cluster.log("t")
        log.truncate(6)
        cluster.move_leader(T0, 2)
        log.extend([(None, b"new %d" % number, ()) for number in range(6, 14)])
        looks = cluster.count(MetadataRequest)
        await cluster.wait_for(lambda: cluster.count(MetadataRequest) > looks + 1)
        answer.set()
        assert await values(consumer, 8) == [(n, b"new %d" % n) for n in range(6, 14)]


async def test_a_leader_too_old_to_compare_is_read_from(
    replicated: FakeCluster, start: Start
) -> None:
    """In the middle of an upgrade a partition may move to a broker that is still to come."""
    key = OffsetForLeaderEpochRequest.API_KEY

    def older(response: ApiVersionsResponse) -> None:
        response.api_keys = [api for api in response.api_keys if api.api_key != key]

    replicated.intercept(ApiVersionsRequest, Edit(older), broker=1)
    consumer = await start(replicated, "t", metadata_max_age_ms=50)
    await read(consumer, 10)
    replicated.move_leader(T0, 1)
    fill(replicated, 0, 1)
    async with timeout(10):
        assert await read(consumer, 1) == [(0, 10)]
    assert replicated.count(OffsetForLeaderEpochRequest) == 0


def test_the_ends_of_a_topic_that_cannot_be_are_not_waited_for() -> None:
    async def main(_: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with (
            FakeCluster() as cluster,
            AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer,
        ):
            began = loop.time()
            for call in (consumer.end_offsets, consumer.beginning_offsets):
                with pytest.raises(InvalidTopicError, match="not a name"):
                    await call([TopicPartition("not a name", 0)])
            assert loop.time() - began < 5

    simulate(main)


async def test_a_partition_that_a_response_lacks_is_asked_for_again(
    cluster: FakeCluster, start: Start
) -> None:
    """Perhaps of another broker; and who waits in vain is told what was wrong."""
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 1, 3)

    def leave_out(response: ListOffsetsResponse) -> None:
        for topic in response.topics:
            topic.partitions = [p for p in topic.partitions if p.partition_index != 1]

    consumer = await start(cluster, assign=[T0, T1], default_api_timeout_ms=1000)
    async with timeout(10):
        with cluster.intercept(ListOffsetsRequest, Edit(leave_out)):
            looks = cluster.count(MetadataRequest)
            with pytest.raises(KafkaTimeoutError, match=r"the ListOffsets response .* lacks"):
                await consumer.end_offsets([T0, T1])
            assert cluster.count(MetadataRequest) > looks
        assert await consumer.end_offsets([T0, T1]) == {T0: 0, T1: 3}
