"""Commits that are refused, overtake each other, or come too late."""

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
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommit,
)
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from aiokafka.testing import Delay, Edit, Fail, FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, Start, fill, read
from tests.support.groups import Log, until

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


def forfeits_in_memory() -> int:
    gc.collect()
    return sum(type(each).__name__ == "Forfeit" for each in gc.get_objects())


async def test_what_was_taken_away_before_the_last_call_is_not_kept(
    cluster: FakeCluster, start: Start
) -> None:
    """The application goes from topic to topic, and commits without `commit()`, or not at all."""
    before = forfeits_in_memory()

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
    assert forfeits_in_memory() - before <= 1
    with pytest.raises(CommitFailedError, match=r"taken away .*: of-day-9-0;"):
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
