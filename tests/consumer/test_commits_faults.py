"""Commits that fail, arrive late, overtake each other, or are retried."""

from __future__ import annotations

import asyncio
import gc
import logging
from functools import partial
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    GroupLoadInProgressError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommit,
)
from aiokafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.testing import Delay, Edit, Fail, FakeCluster, Hold
from aiokafka.testing.groups import CommittedOffset
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, Start, fill, read
from tests.support.groups import Log, until

# == Commits that are rejected, overtaken, or late =================================================


OPTIONS: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20}

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def refused(error: type[Any], *topics: str) -> Edit:
    """Change the responses about some topics."""

    def change(response: OffsetCommitResponse) -> None:
        for topic in response.topics:
            if topic.name in topics:
                for partition in topic.partitions:
                    partition.error_code = error.errno

    return Edit(change)


# -- topics that are deleted -----------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_position_in_a_deleted_topic_is_not_stored_for_its_successor(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """The member has old metadata, and does not know yet that its topic was made again."""
    await cluster.create_topic("t")
    fill(cluster, 0, 5)
    consumer = await start(
        cluster, "t", group_id="g", group_protocol=protocol, enable_auto_commit=False
    )
    await read(consumer, 5)
    news = asyncio.Event()
    with cluster.intercept(MetadataRequest, Hold(news)):
        await cluster.delete_topic("t")
        await cluster.create_topic("t", partitions=2)
        with pytest.raises(UnknownTopicOrPartitionError, match="t-0"):
            await consumer.commit({T0: 5})
        news.set()
    assert cluster.groups.committed("g", "t") is None
    fill(cluster, 0, 3)
    assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]


@pytest.fixture
async def two_topics(cluster: FakeCluster, start: Start) -> AIOKafkaConsumer:
    """Reads 5 records each of a and b."""
    for name in ("a", "b"):
        await cluster.create_topic(name)
        fill(cluster, 0, 5, topic=name)
    consumer: AIOKafkaConsumer = await start(
        cluster, "a", "b", auto_commit_interval_ms=20, rebalance_timeout_ms=60_000, **OPTIONS
    )
    await read(consumer, 10)
    return consumer


async def test_a_deleted_topic_does_not_hold_up_commits_of_others(
    cluster: FakeCluster, two_topics: AIOKafkaConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "aiokafka.consumer")
    cluster.intercept(OffsetCommitRequest, refused(UnknownTopicOrPartitionError, "b"))
    for number in range(5, 8):
        fill(cluster, 0, 1, topic="a")
        await read(two_topics, 1)
        await two_topics.getmany()
        await until(cluster, lambda done=number + 1: cluster.groups.committed("g", "a") == done)
    # Not once per attempt.
    assert len([r for r in caplog.records if "auto-commit" in r.getMessage()]) == 1


async def test_commit_stores_the_others_and_says_which_topic_is_gone(
    cluster: FakeCluster, two_topics: AIOKafkaConsumer
) -> None:
    cluster.intercept(OffsetCommitRequest, refused(UnknownTopicOrPartitionError, "b"))
    with pytest.raises(UnknownTopicOrPartitionError, match="b"):
        async with timeout(10):
            await two_topics.commit({A: 3, B: 4})
    assert cluster.groups.committed("g", "a") == 3


async def test_what_passes_for_one_topic_is_still_retried_beside_a_deleted_one(
    cluster: FakeCluster, two_topics: AIOKafkaConsumer
) -> None:
    def both(response: OffsetCommitResponse) -> None:
        refused(UnknownTopicOrPartitionError, "b").change(response)
        refused(GroupLoadInProgressError, "a").change(response)

    await two_topics.getmany()
    await until(cluster, lambda: cluster.groups.committed("g", "a") == 5)
    cluster.intercept(OffsetCommitRequest, refused(UnknownTopicOrPartitionError, "b"))
    cluster.intercept(OffsetCommitRequest, Edit(both), times=1)
    with pytest.raises(UnknownTopicOrPartitionError, match="b"):
        await two_topics.commit({A: 3, B: 4})
    assert cluster.groups.committed("g", "a") == 3


@pytest.mark.parametrize("denied", ["a", "b"])
async def test_a_refusal_that_stays_counts_more_than_one_that_passes(
    cluster: FakeCluster, two_topics: AIOKafkaConsumer, denied: str
) -> None:
    """Whichever comes first in the response: to repeat the commit would be in vain."""

    def both(response: OffsetCommitResponse) -> None:
        refused(GroupLoadInProgressError, "a", "b").change(response)
        refused(TopicAuthorizationFailedError, denied).change(response)

    cluster.intercept(OffsetCommitRequest, Edit(both))
    with pytest.raises(TopicAuthorizationFailedError, match=denied):
        async with timeout(10):
            await two_topics.commit({A: 3, B: 4})


async def test_a_deleted_topic_does_not_hold_up_stop(
    cluster: FakeCluster, two_topics: AIOKafkaConsumer
) -> None:
    cluster.intercept(OffsetCommitRequest, refused(UnknownTopicOrPartitionError, "b"))
    fill(cluster, 0, 1, topic="a")
    fill(cluster, 0, 1, topic="b")
    await read(two_topics, 2)
    async with timeout(1):  # Not the ten seconds of the last commit.
        await two_topics.stop()
    assert cluster.groups.committed("g", "a") == 6


# -- one after the other ---------------------------------------------------------------------------


async def test_a_commit_that_is_retried_is_not_overtaken(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    consumer = await start(cluster, assign=[T0, T1], group_id="g", enable_auto_commit=False)
    cluster.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError), times=2)
    await asyncio.gather(*(consumer.commit({T0: offset}) for offset in range(5, 9)))
    assert cluster.groups.committed("g", "t", 0) == 8


async def test_commits_of_different_partitions_do_not_wait_for_each_other(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    consumer = await start(cluster, assign=[T0, T1], group_id="g", enable_auto_commit=False)
    for_ever = asyncio.get_running_loop().create_task
    with cluster.intercept(OffsetCommitRequest, refused(GroupLoadInProgressError, "t"), times=1):
        slow = for_ever(consumer.commit({T0: 5}))
        await until(cluster, lambda: cluster.count(OffsetCommitRequest) == 1)
    hold = asyncio.Event()
    with cluster.intercept(OffsetCommitRequest, Hold(hold), times=1):
        await until(cluster, lambda: cluster.count(OffsetCommitRequest) == 2)
        quick = for_ever(consumer.commit({T1: 6}))
        hold.set()
        await quick
        await slow


async def test_a_cancelled_commit_lets_the_next_one_go(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    loop = asyncio.get_running_loop()
    with cluster.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError)):
        first = loop.create_task(consumer.commit({T0: 5}))
        second = loop.create_task(consumer.commit({T0: 6}))
        third = loop.create_task(consumer.commit({T0: 7}))
        await until(cluster, lambda: cluster.count(OffsetCommitRequest) >= 2)
    second.cancel()
    first.cancel()
    await third
    assert cluster.groups.committed("g", "t") == 7


async def test_auto_commit_does_not_put_back_what_the_application_committed(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 9)
    consumer = await start(cluster, assign=[T0], group_id="g", auto_commit_interval_ms=20)
    hold = asyncio.Event()
    cluster.intercept(OffsetCommitRequest, Hold(hold), times=1)
    await read(consumer, 3)
    await until(cluster, lambda: cluster.count(OffsetCommitRequest) == 1)
    commit = asyncio.get_running_loop().create_task(consumer.commit())
    await asyncio.sleep(0)
    hold.set()
    await commit
    await until(cluster, lambda: cluster.groups.committed("g", "t") == 3)
    assert cluster.count(OffsetCommitRequest) == 2


# -- intervals -------------------------------------------------------------------------------------


async def test_an_interval_of_zero_commits_at_once_and_does_not_spin(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await start(cluster, "t", auto_commit_interval_ms=0, **OPTIONS)
    loop = asyncio.get_running_loop()
    await read(consumer, 3)
    await consumer.getmany()
    await until(cluster, lambda: cluster.groups.committed("g", "t") == 3)
    turns = 0
    call_soon = loop.call_soon

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal turns
        turns += 1
        return call_soon(*args, **kwargs)

    loop.call_soon = counted  # type: ignore[method-assign]
    try:
        await asyncio.sleep(0.2)
    finally:
        loop.call_soon = call_soon  # type: ignore[method-assign]
    assert turns < 1000  # Without a pause there are tens of thousands.


async def expel(cluster: FakeCluster, consumer: AIOKafkaConsumer, log: Log) -> None:
    """Have the group remove the member, which joins again."""
    cluster.groups.expire("g", consumer.group_metadata().member_id)
    await until(
        cluster,
        lambda: (
            [call for call in log.calls if call[1]][-2:] == [("lost", {0, 1}), ("assigned", {0, 1})]
        ),
    )
    await until(cluster, lambda: consumer.health().state == "running")


# -- taken away ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_commit_says_that_what_was_handed_out_is_not_ours_any_more(
    start: Start, protocol: str
) -> None:
    async with FakeCluster(config={"group.consumer.heartbeat.interval.ms": "20"}) as cluster:
        await cluster.create_topic("t", partitions=2)
        fill(cluster, 0, 3)
        consumer = await start(
            cluster,
            group_id="g",
            group_protocol=protocol,
            enable_auto_commit=False,
            **({"heartbeat_interval_ms": 20} if protocol == "classic" else {}),
        )
        log = Log()
        consumer.subscribe(["t"], listener=log)
        await read(consumer, 3)
        await expel(cluster, consumer, log)
        with pytest.raises(CommitFailedError, match="t-0"):
            await consumer.commit()
        assert not cluster.groups.committed("g", "t", 0)
        # It was said, and the records come again.
        await read(consumer, 3)
        await consumer.commit()
        assert cluster.groups.committed("g", "t", 0) == 3
        await consumer.stop()


def revoked_in_memory() -> int:
    gc.collect()
    return sum(type(each).__name__ == "RevokedRecords" for each in gc.get_objects())


async def test_what_was_taken_away_before_the_last_call_is_not_kept(
    cluster: FakeCluster, start: Start
) -> None:
    """The application goes from topic to topic, and commits without `commit()`, or not at all."""
    before = revoked_in_memory()

    def has(topic: str) -> bool:
        return {tp.topic for tp in consumer.assignment()} == {topic}

    options = {**OPTIONS, "enable_auto_commit": False, "rebalance_timeout_ms": 100}
    consumer = await start(cluster, **options)
    for number in range(10):
        topic = f"of-day-{number}"
        await cluster.create_topic(topic)
        fill(cluster, 0, 2, topic=topic)
        consumer.subscribe([topic])
        await until(cluster, partial(has, topic))
        await consumer.getone()
    await cluster.create_topic("last")
    consumer.subscribe(["last"])
    await until(cluster, partial(has, "last"))
    assert revoked_in_memory() - before <= 1
    with pytest.raises(CommitFailedError, match=r"revoked after .*: of-day-9-0;"):
        await consumer.commit()


async def test_what_was_committed_in_time_is_not_missed(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 3)
    consumer = await start(cluster, enable_auto_commit=False, **OPTIONS)
    log = Log()
    consumer.subscribe(["t"], listener=log)
    await read(consumer, 3)
    await consumer.commit()
    await expel(cluster, consumer, log)
    await consumer.commit()
    assert cluster.groups.committed("g", "t", 0) == 3


async def test_a_reader_that_waits_gets_the_records_again_and_nothing_is_missed(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 3)
    consumer = await start(cluster, enable_auto_commit=False, **OPTIONS)
    log = Log()
    consumer.subscribe(["t"], listener=log)
    await read(consumer, 3)
    reader = asyncio.get_running_loop().create_task(read(consumer, 3))
    await asyncio.sleep(0)
    await expel(cluster, consumer, log)
    assert await reader == [(0, 0), (0, 1), (0, 2)]
    await consumer.commit()
    assert cluster.groups.committed("g", "t", 0) == 3


async def test_a_slow_coordinator_does_not_make_auto_commits_pile_up(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await start(cluster, "t", auto_commit_interval_ms=20, **OPTIONS)
    cluster.intercept(OffsetCommitRequest, Delay(0.2))
    await read(consumer, 3)
    await consumer.getmany()
    await until(cluster, lambda: cluster.groups.committed("g", "t") == 3)
    assert cluster.count(OffsetCommitRequest) <= 2


@pytest.mark.parametrize("version", ["0.10.2", "2.8", "4.3"])
@pytest.mark.parametrize("error", [UnstableOffsetCommit, TopicAuthorizationFailedError])
async def test_a_refused_look_at_one_partition_is_not_read_as_no_offset(
    start: Start, version: str, error: type[BrokerResponseError]
) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic("t", partitions=2)
        fill(cluster, 0, 5)
        options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
        first = await start(cluster, assign=[T0, T1], **options)
        await read(first, 3)
        await first.commit()
        await first.stop()

        def refuse(response: OffsetFetchResponse) -> None:
            for topic in (response.groups[0] if response.groups else response).topics:
                for data in topic.partitions:
                    if data.partition_index == 0:
                        data.error_code, data.committed_offset = error.errno, -1

        cluster.intercept(OffsetFetchRequest, Edit(refuse), times=1)
        second = await start(cluster, assign=[T0, T1], **options)
        async with timeout(10):
            if error is TopicAuthorizationFailedError:
                with pytest.raises(TopicAuthorizationFailedError):
                    await second.getone()
            assert await read(second, 2) == [(0, 3), (0, 4)]


@pytest.mark.parametrize("version", ["0.10.2", "2.8", "4.3"])
async def test_a_partition_that_a_response_leaves_out_is_not_read_as_no_offset(
    start: Start, version: str
) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic("t", partitions=2)
        fill(cluster, 0, 5)
        options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
        first = await start(cluster, assign=[T0, T1], **options)
        await read(first, 3)
        await first.commit()
        await first.stop()

        def leave_out(response: OffsetFetchResponse) -> None:
            for topic in (response.groups[0] if response.groups else response).topics:
                topic.partitions = [p for p in topic.partitions if p.partition_index != 0]

        cluster.intercept(OffsetFetchRequest, Edit(leave_out), times=1)
        second = await start(cluster, assign=[T0, T1], **options)
        async with timeout(10):
            assert await read(second, 2) == [(0, 3), (0, 4)]


@pytest.mark.parametrize("version", ["2.8", "4.3"])
@pytest.mark.parametrize("error", [UnstableOffsetCommit, TopicAuthorizationFailedError])
async def test_a_refused_look_at_one_partition_does_not_hold_up_the_others(
    start: Start, version: str, error: type[BrokerResponseError]
) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic("t", partitions=2)
        fill(cluster, 1, 3)

        def refuse(response: OffsetFetchResponse) -> None:
            for topic in (response.groups[0] if response.groups else response).topics:
                for data in topic.partitions:
                    if data.partition_index == 0:
                        data.error_code, data.committed_offset = error.errno, -1

        script = cluster.intercept(OffsetFetchRequest, Edit(refuse))
        consumer = await start(cluster, assign=[T0, T1], group_id="g", enable_auto_commit=False)
        async with timeout(10):
            await consumer.position(T1)
        # They were asked for together, and T1 did not have to be asked for again.
        assert asks_for_1(cluster) == 1
        assert (await consumer.getone(T1)).offset == 0
        script.remove()
        fill(cluster, 0, 2)
        async with timeout(10):
            await until_read(consumer)
        await consumer.stop()


async def until_read(consumer: AIOKafkaConsumer) -> None:
    """Read from partition 0, which was denied before."""
    while True:
        try:
            assert (await consumer.getone(T0)).offset == 0
            return
        except TopicAuthorizationFailedError:
            await asyncio.sleep(0.01)


def asks_for_1(cluster: FakeCluster) -> int:
    """How many requests asked for the committed offset of partition 1."""
    count = 0
    for seen in cluster.requests(OffsetFetchRequest):
        asked = (seen.request.groups[0] if seen.request.groups else seen.request).topics
        count += any(1 in topic.partition_indexes for topic in asked)
    return count


def test_a_silent_coordinator_is_left_though_calls_are_short() -> None:
    """Another one has taken over. No call lasts until the silent one counts as gone, and there are
    no heartbeats."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(3) as cluster:
            await cluster.create_topic("t", assignment={0: (0,)})
            cluster.move_coordinator("group", "g", 2)
            options = {"group_id": "g", "enable_auto_commit": False, "default_api_timeout_ms": 1000}
            server = cluster.bootstrap_servers
            consumer = AIOKafkaConsumer(bootstrap_servers=server, **options)
            consumer.assign([T0])
            async with consumer:
                await consumer.commit({T0: 1})
                faults = simulation.faults(cluster)
                faults.silence(2)
                cluster.move_coordinator("group", "g", 1)
                with pytest.raises(KafkaTimeoutError):
                    await consumer.commit({T0: 2})
                await asyncio.sleep(20)
                await consumer.commit({T0: 3})
                assert await consumer.committed(T0) == 3
                await faults.heal()

    simulate(main)


# == Commits of which only some partitions are rejected ============================================


# Longer than any test waits.
NEVER_MS = 10**9
DENIED = TopicPartition("denied", 0)


def refused_with(**codes: int) -> Edit:
    """Refuse the offsets of some topics."""

    def change(response: OffsetCommitResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code = codes.get(topic.name, partition.error_code)

    return Edit(change)


async def test_a_coordinator_that_has_moved_is_found_though_a_topic_is_denied(start: Start) -> None:
    """Without a membership no heartbeat tells of it. Each commit asked the former coordinator, and
    got no further than the denied topic."""
    async with FakeCluster(brokers=2, as_version="3.9") as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("denied")
        partitions = [DENIED, T0]
        consumer = await start(cluster, assign=partitions, group_id="g", enable_auto_commit=False)
        await consumer.commit(dict.fromkeys(partitions, 1))
        former = cluster.requests(OffsetCommitRequest)[0].broker_id
        cluster.move_coordinator("group", "g", 1 - former)
        denied = refused_with(denied=TopicAuthorizationFailedError.errno)
        with cluster.intercept(OffsetCommitRequest, denied):
            with pytest.raises(TopicAuthorizationFailedError, match="denied"):
                await consumer.commit(dict.fromkeys(partitions, 2))
        assert cluster.groups.committed("g", "t") == 2


async def test_a_rebalance_is_heard_of_though_a_topic_is_denied(
    cluster: FakeCluster, start: Start
) -> None:
    """What else was to be committed was not stored."""
    await cluster.create_topic("t")
    await cluster.create_topic("denied")
    consumer = await start(cluster, "t", "denied", group_id="g", enable_auto_commit=False)
    denied, passing = TopicAuthorizationFailedError.errno, RebalanceInProgressError.errno
    cluster.intercept(OffsetCommitRequest, refused_with(denied=denied, t=passing), times=1)
    cluster.intercept(OffsetCommitRequest, refused_with(denied=denied))
    offsets = {DENIED: 2, T0: 2}
    with pytest.raises(TopicAuthorizationFailedError, match="denied"):
        await consumer.commit(offsets)
    assert cluster.count(OffsetCommitRequest) == 2
    assert cluster.groups.committed("g", "t") == 2


async def test_positions_are_found_at_another_old_coordinator_though_a_topic_is_denied(
    start: Start,
) -> None:
    """Before Kafka 0.10.2 each partition has an error of its own: the one that is no coordinator
    any more was asked for ever."""
    async with FakeCluster(brokers=2, as_version="0.9") as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("denied")
        options = {"enable_auto_commit": False, "default_api_timeout_ms": 20_000}
        consumer = await start(cluster, assign=[T0], group_id="g", **options)
        await consumer.commit({T0: 1})
        former = cluster.requests(OffsetCommitRequest)[0].broker_id
        cluster.move_coordinator("group", "g", 1 - former)

        def deny(response: OffsetFetchResponse) -> None:
            for topic in response.topics:
                if topic.name == "denied":
                    topic.partitions[0].error_code = TopicAuthorizationFailedError.errno

        with cluster.intercept(OffsetFetchRequest, Edit(deny)):
            consumer.assign([])
            consumer.assign([T0, DENIED])
            assert await consumer.position(T0) == 1
            cluster.move_coordinator("group", "g", former)
            with pytest.raises(TopicAuthorizationFailedError, match="denied"):
                await consumer.committed_offsets()
        assert cluster.requests(OffsetFetchRequest)[-1].broker_id == former


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "denied"])
async def test_auto_commit_puts_back_nothing_that_was_stored_beside_a_refusal(
    start: Start, is_gone: bool
) -> None:
    """The application has committed what it still has in hand, and another task stops it."""
    async with FakeCluster(as_version="3.9") as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("denied")
        fill(cluster, 0, 1, topic="denied")
        # Its own request for metadata might make the topic again before it commits.
        options = {"auto_commit_interval_ms": NEVER_MS, "allow_auto_create_topics": False}
        consumer = await start(cluster, "t", "denied", group_id="g", **options)
        await read(consumer, 1)
        fill(cluster, 0, 3)
        await consumer.getmany(T0, timeout_ms=10_000)
        if is_gone:
            await cluster.delete_topic("denied")
        else:
            denied = refused_with(denied=TopicAuthorizationFailedError.errno)
            cluster.intercept(OffsetCommitRequest, denied)
        with pytest.raises((UnknownTopicOrPartitionError, TopicAuthorizationFailedError)):
            await consumer.commit()
        assert cluster.groups.committed("g", "t") == 3
        await asyncio.create_task(consumer.stop())
        assert cluster.groups.committed("g", "t") == 3


# == Commits that the coordinator applies after it confirmed later ones ============================


PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer", "assign"])
RETRIED_SOON: dict[str, Any] = {
    "group_id": "g",
    "enable_auto_commit": False,
    "request_timeout_ms": 500,
    "default_api_timeout_ms": 2000,
    "max_poll_interval_ms": 3_600_000,
}


@pytest.fixture
async def topic(cluster: FakeCluster) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 20)


async def begin(
    start: Start, cluster: FakeCluster, protocol: str, **options: Any
) -> AIOKafkaConsumer:
    options = {**RETRIED_SOON, **options}
    if protocol == "assign":
        consumer = await start(cluster, assign=[T0, T1], **options)
    else:
        consumer = await start(cluster, "t", group_protocol=protocol, **options)
    # So it has its positions, and looks up what is stored for nothing else.
    assert len(await read(consumer, 3)) == 3
    return consumer


def stored(cluster: FakeCluster) -> int | None:
    return cluster.groups.committed("g", "t")


async def overtaken(cluster: FakeCluster, commit: Any) -> asyncio.Event:
    """Let the time for the first commit be over; returns the event with which the broker carries it
    out."""
    late = asyncio.Event()
    held = cluster.intercept(OffsetCommitRequest, Hold(late), times=1)
    await commit()
    assert held.hits == 1
    return late


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_the_later_commit_of_a_program_wins(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    consumer = await begin(start, cluster, protocol)
    # The call itself sends it again, after the time for the first response.
    late = await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    await consumer.commit({T0: (8, "newer")})
    late.set()
    await until(cluster, lambda: stored(cluster) == 5)
    await until(cluster, lambda: stored(cluster) == 8)
    found = await consumer.committed_offsets([T0])
    assert found[T0] is not None and found[T0].metadata == "newer"


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_auto_commit_wins(cluster: FakeCluster, start: Start, protocol: str) -> None:
    """The position does not move any more, so that nothing else would commit it again."""
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    consumer = await begin(start, cluster, protocol, **options)
    late = asyncio.Event()
    held = cluster.intercept(OffsetCommitRequest, Hold(late), times=1)
    assert len(await read(consumer, 2)) == 2
    assert not await consumer.getmany(T1)
    await until(cluster, lambda: held.hits)
    assert len(await read(consumer, 5)) == 5
    assert not await consumer.getmany(T1)
    await until(cluster, lambda: stored(cluster) == 10)
    late.set()
    await until(cluster, lambda: stored(cluster) == 5)
    await until(cluster, lambda: stored(cluster) == 10)


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_the_last_commit_wins(cluster: FakeCluster, start: Start, protocol: str) -> None:
    """It is `stop()` that commits last, and the older commit comes before the group is left."""
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 60_000}
    consumer = await begin(start, cluster, protocol, **options)
    late = await overtaken(cluster, lambda: consumer.commit({T0: 5}))

    async def carry_out(request: Any, context: Any) -> None:
        late.set()
        await until(cluster, lambda: stored(cluster) == 5)

    assert len(await read(consumer, 7)) == 7
    # Before the look at what is stored.
    cluster.intercept(OffsetFetchRequest, carry_out, times=1)
    await consumer.stop()
    assert late.is_set()
    assert stored(cluster) == 10


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.usefixtures("topic")
async def test_after_the_goodbye_the_coordinator_refuses_it(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 60_000}
    consumer = await begin(start, cluster, protocol, **options)
    late = await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    assert len(await read(consumer, 7)) == 7
    await consumer.stop()
    late.set()
    await asyncio.sleep(60)
    assert stored(cluster) == 10


@pytest.mark.usefixtures("topic")
async def test_without_a_goodbye_stop_looks_a_moment_later(
    cluster: FakeCluster, start: Start
) -> None:
    consumer = await begin(start, cluster, "assign")
    late = await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    await consumer.commit({T0: 10})
    asyncio.get_running_loop().call_later(0.5, late.set)
    await consumer.stop()
    assert late.is_set()
    assert stored(cluster) == 10


@pytest.mark.usefixtures("topic")
async def test_stop_looks_soon_however_long_ago_the_commit_was(
    cluster: FakeCluster, start: Start
) -> None:
    consumer = await begin(start, cluster, "assign")
    await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    await consumer.commit({T0: 10})
    await asyncio.sleep(30)
    async with timeout(2):
        await consumer.stop()


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_a_response_settles_nothing_that_went_over_another_connection(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """The same offset was sent a second time, which is cancelled: only that one is settled."""
    consumer = await begin(start, cluster, protocol)
    late, slow = asyncio.Event(), asyncio.Event()
    first = cluster.intercept(OffsetCommitRequest, Hold(late), times=1)
    commit = asyncio.ensure_future(consumer.commit({T0: 5}))
    await until(cluster, lambda: first.hits)
    second = cluster.intercept(OffsetCommitRequest, Hold(slow), times=1)
    await until(cluster, lambda: second.hits)
    commit.cancel()
    await asyncio.wait([commit])
    later = asyncio.ensure_future(consumer.commit({T0: 8}))
    await asyncio.sleep(0.1)
    slow.set()
    await later
    assert stored(cluster) == 8
    late.set()
    await until(cluster, lambda: stored(cluster) == 5)
    await until(cluster, lambda: stored(cluster) == 8)


@pytest.mark.usefixtures("topic")
async def test_the_last_commit_before_a_rebalance_wins(cluster: FakeCluster, start: Start) -> None:
    class Late(Log):
        """Is told when the older commit may be carried out."""

        async def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                late.set()
                await until(cluster, lambda: stored(cluster) == 5)

    consumer = await start(
        cluster, **{**RETRIED_SOON, "enable_auto_commit": True, "auto_commit_interval_ms": 60_000}
    )
    consumer.subscribe(["t"], listener=Late())
    assert len(await read(consumer, 3)) == 3
    late = await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    assert len(await read(consumer, 7)) == 7
    assert not await consumer.getmany(T1)
    cluster.groups.rebalance("g")
    await until(cluster, late.is_set)
    # By where it goes on: what the group has stored, in the next generation.
    assert (await read(consumer, 1))[0] == (0, 10)
    assert stored(cluster) == 10


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_what_others_have_stored_stays(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """An operator, or another program if the partitions are no member's."""
    consumer = await begin(start, cluster, protocol)
    await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    await consumer.commit({T0: 8})
    cluster.groups.offsets_of("g").commit(("t", 0), CommittedOffset(7))
    looks = cluster.count(OffsetFetchRequest)
    await until(cluster, lambda: cluster.count(OffsetFetchRequest) > looks + 2)
    assert stored(cluster) == 7


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_an_older_commit_stays_if_no_later_one_is_confirmed(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    consumer = await begin(start, cluster, protocol)
    await consumer.commit({T0: 3})
    late = asyncio.Event()
    with cluster.intercept(OffsetCommitRequest, Hold(late)), pytest.raises(KafkaTimeoutError):
        await consumer.commit({T0: 5})
    late.set()
    await until(cluster, lambda: stored(cluster) == 5)
    await asyncio.sleep(60)
    assert stored(cluster) == 5


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_commits_do_not_wait_for_a_look(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """Which takes long while a transaction with offsets of the group is open."""
    options = {"request_timeout_ms": 5000, "default_api_timeout_ms": 20_000}
    consumer = await begin(start, cluster, protocol, **options)
    await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    await consumer.commit({T0: 8})
    unstable = cluster.intercept(OffsetFetchRequest, Fail(UnstableOffsetCommit))
    await until(cluster, lambda: unstable.hits)
    async with timeout(1):
        await consumer.commit({T0: 9})
    assert stored(cluster) == 9
    unstable.remove()


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_it_looks_less_and_less_often_and_then_no_more(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    consumer = await begin(start, cluster, protocol)
    await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    await consumer.commit({T0: 8})
    before = cluster.count(OffsetFetchRequest)
    await asyncio.sleep(600)
    looks = cluster.count(OffsetFetchRequest) - before
    assert 5 <= looks <= 20
    await consumer.commit({T0: 9})
    await asyncio.sleep(600)
    assert cluster.count(OffsetFetchRequest) - before == looks


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_nothing_is_looked_up_while_every_commit_gets_its_response(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    options = {"request_timeout_ms": 40_000}
    consumer = await begin(start, cluster, protocol, **options)
    before = cluster.count(OffsetFetchRequest)
    slow = asyncio.Event()
    with cluster.intercept(OffsetCommitRequest, Hold(slow), times=1):
        with pytest.raises(asyncio.TimeoutError):
            async with timeout(1):
                await consumer.commit({T0: 4})
        # Behind the cancelled one, over the same connection.
        commit = asyncio.ensure_future(consumer.commit({T0: 5}))
        await asyncio.sleep(1)
        slow.set()
        await commit
    await asyncio.sleep(60)
    assert stored(cluster) == 5
    assert cluster.count(OffsetFetchRequest) == before
