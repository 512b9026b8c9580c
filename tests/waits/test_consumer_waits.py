"""What a consumer says of waits: once in the log, for as long as they last in `health()`."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka._compat import timeout
from aiokafka.errors import (
    GroupLoadInProgressError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
from aiokafka.health import ConsumerState
from aiokafka.protocol.messages.fetch import FetchRequest, ListOffsetsRequest
from aiokafka.protocol.messages.group_members import HeartbeatRequest, JoinGroupRequest
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.testing import Delay, Edit, Fail, FakeCluster, Hold
from tests.support.consumers import T0, T1, Start, fill, partition_error, read

LASTING = 7.0
"""Seconds after which a wait shows."""


def no_progress(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines about what waits, without their subject."""
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    return [line.partition(": ")[2] for line in lines if "No progress" in line]


def metric(consumer: AIOKafkaConsumer, name: str) -> float:
    (found,) = [each.value for each in consumer.metrics() if each.name == name]
    assert isinstance(found, (int, float))
    return found


@pytest.fixture
async def cluster() -> Any:
    async with FakeCluster() as fake:
        await fake.create_topic("t", partitions=2)
        yield fake
        assert fake.failures == []


async def test_a_partition_that_is_refused_shows_until_it_is_not(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (0, 1):
        fill(cluster, number, 1)
    refused = cluster.intercept(FetchRequest, partition_error(NotLeaderForPartitionError, 1))
    consumer = await start(cluster, assign=[T0, T1])
    assert await read(consumer, 1) == [(0, 0)]
    assert consumer.health().stalled == ()
    await asyncio.sleep(LASTING)
    health = consumer.health()
    # The other partition is read.
    assert health.state is ConsumerState.RUNNING
    (stalled,) = health.stalled
    assert stalled.what == "records of t-1"
    assert "[Error 6] NotLeaderForPartitionError" in stalled.reason
    assert LASTING * 1000 - 500 < stalled.age_ms < LASTING * 1000 + 500
    assert health.as_dict()["stalled"][0]["what"] == "records of t-1"
    assert health.last_error is not None
    assert "[Error 6] NotLeaderForPartitionError: t-1: no records for" in health.last_error
    assert isinstance(health.last_exception, NotLeaderForPartitionError)
    assert metric(consumer, "stalled-count") == 1
    assert metric(consumer, "stalled-age") > 5
    # However long it lasts, there is one line.
    await asyncio.sleep(100)
    (line,) = no_progress(caplog)
    assert "records of t-1: [Error 6]" in line
    refused.remove()
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="aiokafka"):
        assert await read(consumer, 1) == [(1, 0)]
        await asyncio.sleep(2)
    assert any("Not waiting any more: records of t-1" in line for line in caplog.messages)
    health = consumer.health()
    assert health.stalled == ()
    assert health.last_error is None
    assert metric(consumer, "stalled-count") == metric(consumer, "stalled-age") == 0


async def test_when_no_partition_can_be_read_the_state_says_why(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 0, 1)
    refused = cluster.intercept(ListOffsetsRequest, Fail(LeaderNotAvailableError))
    consumer = await start(cluster, assign=[T0, T1])
    await asyncio.sleep(LASTING)
    health = consumer.health()
    assert health.state is ConsumerState.UNREACHABLE
    assert health.reason.startswith("No position of t-0, t-1: [Error 5] LeaderNotAvailableError")
    # The line about the state says it all.
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    (line,) = lines
    assert "running -> unreachable: No position of t-0, t-1: [Error 5]" in line
    refused.remove()
    assert await read(consumer, 1) == [(0, 0)]
    assert consumer.health().state is ConsumerState.RUNNING


@pytest.mark.parametrize("is_silent", [False, True])
async def test_an_outage_before_a_pause_counts_no_more(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture, is_silent: bool
) -> None:
    """Nothing is asked of the broker during the pause, so nothing is known of it."""
    error = partition_error(NotLeaderForPartitionError)
    refused = cluster.intercept(FetchRequest, Hold(asyncio.Event()) if is_silent else error)
    options = {"unreachable_timeout_ms": 10_000, "request_timeout_ms": 1000}
    consumer = await start(cluster, assign=[T0], **options)
    await asyncio.sleep(3)
    consumer.pause(T0)
    refused.remove()
    await asyncio.sleep(60)
    assert consumer.health().state is ConsumerState.RUNNING
    fill(cluster, 0, 1)
    caplog.clear()
    consumer.resume(T0)
    health = consumer.health()
    assert (health.state, health.stalled) == (ConsumerState.RUNNING, ())
    # It would raise KafkaUnreachableError.
    assert await read(consumer, 1) == [(0, 0)]
    assert caplog.messages == []


async def test_a_partition_that_waits_for_room_does_not_stall(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """One error, and then the application is busy with what fills the memory."""
    fill(cluster, 0, 100)
    fill(cluster, 1, 1)
    refused = cluster.intercept(
        FetchRequest, partition_error(NotLeaderForPartitionError, 1), times=1
    )
    sizes = {"max_partition_fetch_bytes": 2000, "fetch_max_bytes": 2000}
    consumer = await start(cluster, assign=[T0, T1], fetch_buffer_memory=4000, **sizes)
    assert await read(consumer, 1) == [(0, 0)]
    assert refused.hits == 1
    await asyncio.sleep(60)
    assert consumer.health().stalled == ()
    assert no_progress(caplog) == []


async def test_a_call_that_was_cancelled_at_once_is_no_part_of_a_later_one(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 0, 1)
    consumer = await start(cluster, "t", group_id="g", enable_auto_commit=False)
    assert await read(consumer, 1) == [(0, 0)]
    with cluster.intercept(OffsetCommitRequest, Delay(1.5)):
        with pytest.raises(asyncio.TimeoutError):
            async with timeout(0.01):
                await consumer.commit()
        await asyncio.sleep(20)
        commit = asyncio.ensure_future(consumer.commit())
        while not commit.done():
            assert consumer.health().stalled == ()
            await asyncio.sleep(0.1)
        await commit
    assert no_progress(caplog) == []


@contextmanager
def cluster_elsewhere() -> Iterator[str]:
    """Run a cluster in a thread of its own, and give its address."""
    begun: Queue[tuple[str, Callable[[], object]]] = Queue()

    async def serve() -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        async with FakeCluster() as fake:
            await fake.create_topic("t", partitions=2)
            begun.put((fake.bootstrap_servers, lambda: loop.call_soon_threadsafe(over.set)))
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    address, end = begun.get()
    try:
        yield address
    finally:
        end()
        thread.join()


@pytest.mark.real_time
async def test_a_program_that_keeps_the_loop_from_running_is_no_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The brokers have responded meanwhile, and nothing has read it."""
    with cluster_elsewhere() as address:
        options: dict[str, Any] = {"unreachable_timeout_ms": 500, "fetch_max_wait_ms": 100}
        consumer = AIOKafkaConsumer("t", bootstrap_servers=address, group_id="g", **options)
        async with consumer:
            assert await consumer.getmany(timeout_ms=500) == {}
            caplog.clear()
            time.sleep(4)  # noqa: ASYNC251 - that is what the program does
            # It would raise KafkaUnreachableError.
            assert await consumer.getmany(timeout_ms=500) == {}
            assert consumer.health().state is ConsumerState.RUNNING
        assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_what_is_paused_does_not_stall(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.intercept(FetchRequest, partition_error(NotLeaderForPartitionError, 1))
    consumer = await start(cluster, assign=[T0, T1])
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 0)]
    consumer.pause(T1)
    await asyncio.sleep(LASTING)
    assert consumer.health().stalled == ()
    assert no_progress(caplog) == []


async def test_a_broker_that_is_slow_for_a_moment_is_no_stall(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = await start(cluster, assign=[T0, T1])
    cluster.intercept(FetchRequest, Delay(3), times=5)
    await asyncio.sleep(20)
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
    assert consumer.health().stalled == ()


async def test_a_commit_that_is_refused_shows_and_so_does_the_one_behind_it(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 0, 1)
    consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    await read(consumer, 1)
    refused = cluster.intercept(OffsetCommitRequest, Fail(NotLeaderForPartitionError))
    commits = [asyncio.ensure_future(consumer.commit()) for _ in range(2)]
    await asyncio.sleep(LASTING)
    first, second = consumer.health().stalled
    assert first.what == "OffsetCommit of group 'g' (t-0)"
    assert "[Error 6]" in first.reason
    assert second.what == "an earlier commit of group 'g' (t-0)"
    (line,) = no_progress(caplog)
    assert "OffsetCommit of group 'g' (t-0): [Error 6]" in line
    refused.remove()
    async with timeout(20):
        await asyncio.gather(*commits)
    assert consumer.health().stalled == ()


async def test_auto_commit_that_fails_again_and_again_is_one_line(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 0, 1)
    consumer = await start(
        cluster, assign=[T0], group_id="g", auto_commit_interval_ms=8000, request_timeout_ms=9000
    )
    await read(consumer, 1)
    assert await consumer.getmany() == {}
    cluster.intercept(OffsetCommitRequest, Fail(NotLeaderForPartitionError))
    await asyncio.sleep(120)
    assert len(no_progress(caplog)) == 1
    caplog.clear()


async def test_a_commit_during_a_rebalance_shows(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 0, 1)
    options: dict[str, Any] = {
        "group_id": "g",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 100,
    }
    consumer = await start(cluster, "t", **options)
    await read(consumer, 1)
    release = asyncio.Event()
    held = cluster.intercept(JoinGroupRequest, Hold(release))
    cluster.groups.rebalance("g")
    await held.wait()
    commit = asyncio.ensure_future(consumer.commit({T0: 1}))
    await asyncio.sleep(LASTING)
    found = {each.what: each.reason for each in consumer.health().stalled}
    assert "the group is rebalancing" in found["OffsetCommit of group 'g' (t-0)"]
    commit.cancel()
    release.set()


class _Slow(ConsumerRebalanceListener):
    async def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            await asyncio.sleep(20)

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass


async def test_a_rebalance_that_takes_its_time_is_no_warning(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """It shows in `health()`, as any other wait."""
    often: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 100}
    slow = await start(cluster, **often, assign=[])
    slow.subscribe(["t"], listener=_Slow())
    await cluster.wait_for(lambda: len(slow.assignment()) == 2)
    starting = asyncio.ensure_future(start(cluster, "t", **often))
    await asyncio.sleep(15)
    assert [each.what for each in slow.health().stalled] == ["an assignment by the group"]
    await starting
    assert no_progress(caplog) == []


async def test_a_member_whose_heartbeats_are_refused_shows(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = await start(cluster, "t", group_id="g", heartbeat_interval_ms=100)
    refused = cluster.intercept(HeartbeatRequest, Fail(NotLeaderForPartitionError))
    await asyncio.sleep(LASTING)
    (stalled,) = consumer.health().stalled
    assert stalled.what == "heartbeats of the group"
    (line,) = no_progress(caplog)
    assert "heartbeats of the group: [Error 6] NotLeaderForPartitionError" in line
    refused.remove()
    await asyncio.sleep(1)
    assert consumer.health().stalled == ()


async def test_only_the_request_that_is_refused_stalls_while_heartbeats_are_answered(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The coordinator is there, as its other responses prove: it is not called away and back."""
    fill(cluster, 0, 1)
    consumer = await start(
        cluster, "t", group_id="g", enable_auto_commit=False, heartbeat_interval_ms=100
    )
    await read(consumer, 1)
    cluster.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError))
    commit = asyncio.ensure_future(consumer.commit())
    await asyncio.sleep(30)
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len([line for line in warnings if ": The coordinator of group" in line]) <= 2
    assert len([line for line in warnings if "unreachable -> running" in line]) <= 1
    assert len(no_progress(caplog)) == 1
    commit.cancel()


async def test_position_says_what_it_has_waited_for(cluster: FakeCluster, start: Start) -> None:
    cluster.intercept(ListOffsetsRequest, Fail(LeaderNotAvailableError))
    consumer = await start(cluster, assign=[T0], default_api_timeout_ms=3000)
    with pytest.raises(KafkaTimeoutError, match=r"not found in time: \[Error 5\] LeaderNot"):
        await consumer.position(T0)


async def test_a_topic_that_does_not_exist_says_so_and_what_to_do(start: Start) -> None:
    async with FakeCluster(config={"auto.create.topics.enable": "false"}) as cluster:
        with pytest.raises(UnknownTopicOrPartitionError) as caught:
            await start(cluster, "my-topik", request_timeout_ms=3000)
    text = str(caught.value)
    assert "topic 'my-topik': it does not exist, as brokers reported for 3.0 s" in text
    assert "create it, or correct the name" in text


async def test_partitions_without_a_leader_are_named(start: Start) -> None:
    """Their absence is logged at once, by another line."""
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        consumer = await start(cluster, assign=[T0, T1], reconnect_backoff_ms=10)
        await cluster.stop_broker(1)
        await asyncio.sleep(LASTING + 5)
        (stalled,) = consumer.health().stalled
        assert stalled.what.endswith(f"of {T1.topic}-{T1.partition}")
        assert stalled.reason
        await cluster.start_broker(1)
        await asyncio.sleep(LASTING)
        assert consumer.health().stalled == ()


def throttle(response: Any) -> None:
    response.throttle_time_ms = 30_000


async def test_a_broker_that_throttles_the_consumer_shows(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 0, 1)
    with cluster.intercept(FetchRequest, Edit(throttle), times=1):
        consumer = await start(cluster, assign=[T0])
        assert await read(consumer, 1) == [(0, 0)]
    await asyncio.sleep(LASTING)
    health = consumer.health()
    assert health.state is ConsumerState.RUNNING
    assert health.unreachable == ()
    (stalled,) = health.stalled
    assert stalled.what == "records of t-0"
    assert stalled.reason.startswith("Broker 0 at 127.0.0.1:")
    assert "throttles this client, which has exceeded a quota, for another 2" in stalled.reason
    (line,) = no_progress(caplog)
    assert "records of t-0: Broker 0" in line
    fill(cluster, 0, 1)
    async with timeout(30):
        assert await read(consumer, 1) == [(0, 1)]
    assert consumer.health().stalled == ()
