"""From `start()` to `stop()`: in which order, how often, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaTimeoutError,
    RebalanceInProgressError,
)
from aiokafka.protocol.messages.api_versions import ApiVersionsRequest
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiokafka.protocol.messages.heartbeat import HeartbeatRequest
from aiokafka.protocol.messages.join_group import JoinGroupRequest
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.protocol.messages.sync_group import SyncGroupRequest
from aiokafka.testing import Delay, Fail, FakeCluster, Hold, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, Start, fill, read
from tests.support.groups import Log, until

PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 20},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(config={"group.consumer.heartbeat.interval.ms": "20"}) as fake:
        await fake.create_topic("t", partitions=4)
        yield fake
        assert fake.failures == []


def member(cluster: FakeCluster, protocol: str, *topics: str, **options: Any) -> AIOKafkaConsumer:
    options = {"retry_backoff_ms": 10, "auto_offset_reset": "earliest", **options}
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        **PROTOCOLS[protocol],
        **options,
    )


def left(cluster: FakeCluster) -> int:
    beats = cluster.requests(ConsumerGroupHeartbeatRequest)
    gone = [seen for seen in beats if seen.request.member_epoch < 0]
    return cluster.count(LeaveGroupRequest) + len(gone)


# -- records in hand -------------------------------------------------------------------------------


async def charge(consumer: AIOKafkaConsumer, fail_at: int) -> None:
    async for record in consumer:
        if record.offset == fail_at:
            raise LookupError("no account")


async def in_a_block(consumer: AIOKafkaConsumer) -> None:
    async with consumer:
        await charge(consumer, 3)


async def in_finally(consumer: AIOKafkaConsumer) -> None:
    await consumer.start()
    try:
        await charge(consumer, 3)
    finally:
        await consumer.stop()


async def call_up_to_3(consumer: AIOKafkaConsumer) -> None:
    while (await consumer.getone()).offset != 3:
        pass


async def iterate_up_to_3(consumer: AIOKafkaConsumer) -> None:
    async for record in consumer:
        if record.offset == 3:
            break


async def stop_beside(
    consumer: AIOKafkaConsumer, read_some: Callable[[AIOKafkaConsumer], Awaitable[None]]
) -> None:
    is_at_work = asyncio.Event()

    async def work() -> None:
        await read_some(consumer)
        is_at_work.set()
        await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(work())
    await is_at_work.wait()
    await consumer.stop()
    task.cancel()
    raise LookupError


async def from_another_task(consumer: AIOKafkaConsumer) -> None:
    await consumer.start()
    await stop_beside(consumer, call_up_to_3)


async def from_a_task_that_called_before(consumer: AIOKafkaConsumer) -> None:
    await consumer.start()
    assert (await consumer.getone()).offset == 0
    await stop_beside(consumer, call_up_to_3)


async def from_a_task_that_called_before_a_loop(consumer: AIOKafkaConsumer) -> None:
    await consumer.start()
    assert (await consumer.getone()).offset == 0
    await stop_beside(consumer, iterate_up_to_3)


@pytest.mark.parametrize(
    "way",
    [
        in_a_block,
        in_finally,
        from_another_task,
        from_a_task_that_called_before,
        from_a_task_that_called_before_a_loop,
    ],
)
async def test_the_record_that_could_not_be_processed_comes_again(
    cluster: FakeCluster, protocol: str, way: Callable[[AIOKafkaConsumer], Awaitable[None]]
) -> None:
    fill(cluster, 0, 8, batch=8)
    with pytest.raises(LookupError):
        await way(member(cluster, protocol, "t"))
    assert cluster.groups.committed("g", "t", 0) == 3


async def test_a_batch_that_was_cancelled_comes_again(cluster: FakeCluster, protocol: str) -> None:
    fill(cluster, 0, 8, batch=8)
    is_at_work = asyncio.Event()

    async def work() -> None:
        async with member(cluster, protocol, "t") as consumer:
            while True:
                if await consumer.getmany(timeout_ms=100):
                    is_at_work.set()
                    await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(work())
    await is_at_work.wait()
    task.cancel()
    await asyncio.wait([task])
    assert cluster.groups.committed("g", "t", 0) in (None, 0)


async def test_what_was_read_in_order_does_not_come_again(
    cluster: FakeCluster, protocol: str
) -> None:
    fill(cluster, 0, 8)
    async with member(cluster, protocol, "t") as consumer:
        await read(consumer, 5)
    assert cluster.groups.committed("g", "t", 0) == 5


# -- stop ------------------------------------------------------------------------------------------


async def test_two_stops_at_once_commit_and_leave_once(cluster: FakeCluster, protocol: str) -> None:
    fill(cluster, 0, 5)
    consumer = member(cluster, protocol, "t")
    await consumer.start()
    await read(consumer, 5)
    cluster.intercept(OffsetCommitRequest, Delay(0.05))
    first = asyncio.get_running_loop().create_task(consumer.stop())
    await until(cluster, lambda: cluster.count(OffsetCommitRequest) == 1)
    await consumer.stop()
    assert cluster.groups.committed("g", "t", 0) is not None
    assert left(cluster) == 1
    await first
    assert cluster.count(OffsetCommitRequest) == 1
    await until(cluster, lambda: cluster.connections == 0)


async def test_a_second_stop_goes_on_when_the_first_is_cancelled(
    cluster: FakeCluster, protocol: str
) -> None:
    fill(cluster, 0, 5)
    consumer = member(cluster, protocol, "t")
    await consumer.start()
    await read(consumer, 5)
    hold = asyncio.Event()
    cluster.intercept(OffsetCommitRequest, Hold(hold), times=1)
    loop = asyncio.get_running_loop()
    first = loop.create_task(consumer.stop())
    await until(cluster, lambda: cluster.count(OffsetCommitRequest) == 1)
    second = loop.create_task(consumer.stop())
    await asyncio.sleep(0)
    first.cancel()
    hold.set()
    await second
    assert left(cluster) == 1


def test_stop_has_one_limit(protocol: str) -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t", partitions=4)
            fill(cluster, 0, 5)
            consumer = member(cluster, protocol, "t")
            await consumer.start()
            await read(consumer, 5)
            for api in (OffsetCommitRequest, LeaveGroupRequest, ConsumerGroupHeartbeatRequest):
                cluster.intercept(api, Silence())
            started = asyncio.get_running_loop().time()
            await consumer.stop(timeout=0.3)
            # Without a limit: thirteen seconds and more.
            assert asyncio.get_running_loop().time() - started < 3

    simulate(main)


async def test_a_stop_in_a_hurry_ends_one_that_has_time(
    cluster: FakeCluster, protocol: str
) -> None:
    fill(cluster, 0, 5)
    consumer = member(cluster, protocol, "t")
    await consumer.start()
    await read(consumer, 5)
    cluster.intercept(OffsetCommitRequest, Silence())
    patient = asyncio.get_running_loop().create_task(consumer.stop(timeout=100))
    await until(cluster, lambda: cluster.count(OffsetCommitRequest) == 1)
    async with timeout(10):
        await consumer.stop(timeout=0)
        await patient


@pytest.mark.parametrize("limit", [-1, "1", True, float("nan")])
async def test_wrong_limits(cluster: FakeCluster, limit: Any) -> None:
    consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers)
    with pytest.raises(ValueError, match="timeout="):
        await consumer.stop(timeout=limit)
    await consumer.stop()


async def test_the_listener_hears_of_an_unsubscription_just_before_stop(
    cluster: FakeCluster, protocol: str
) -> None:
    fill(cluster, 0, 5)
    log = Log()
    consumer = member(cluster, protocol)
    consumer.subscribe(["t"], listener=log)
    await consumer.start()
    await read(consumer, 5)
    await consumer.getmany()
    consumer.unsubscribe()
    await consumer.stop()
    told = [call for call in log.calls if call[1]]
    assert told == [("assigned", {0, 1, 2, 3}), ("revoked", {0, 1, 2, 3})]
    assert cluster.groups.committed("g", "t", 0) == 5
    assert left(cluster) == 1


# -- start -----------------------------------------------------------------------------------------

PHASES = {
    "connect": ApiVersionsRequest,
    "metadata": MetadataRequest,
    "coordinator": FindCoordinatorRequest,
    "join": JoinGroupRequest,
    "sync": SyncGroupRequest,
    "beat": ConsumerGroupHeartbeatRequest,
}


@pytest.mark.parametrize("phase", PHASES)
async def test_stop_ends_start(cluster: FakeCluster, phase: str) -> None:
    hold = asyncio.Event()
    cluster.intercept(PHASES[phase], Hold(hold))
    consumer = member(cluster, "consumer" if phase == "beat" else "classic", "t")
    starting = asyncio.get_running_loop().create_task(consumer.start())
    await until(cluster, lambda: cluster.count(PHASES[phase]))
    async with timeout(10):
        await consumer.stop(timeout=0.2)
        with pytest.raises(ConsumerStoppedError, match="while it started"):
            await starting
    hold.set()
    assert consumer.health().state == "closed"
    await until(cluster, lambda: cluster.connections == 0)


async def test_stop_at_every_step_of_start(cluster: FakeCluster, protocol: str) -> None:
    for steps in range(0, 90, 2):
        consumer = member(cluster, protocol, "t")
        starting = asyncio.get_running_loop().create_task(consumer.start())
        for _ in range(steps):
            await asyncio.sleep(0)
        async with timeout(10):
            await consumer.stop(timeout=1)
            await asyncio.wait([starting])
        assert starting.exception() is None or isinstance(
            starting.exception(), ConsumerStoppedError
        )
    await until(cluster, lambda: cluster.connections == 0)


async def test_a_consumer_is_started_once(cluster: FakeCluster) -> None:
    consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers)
    await consumer.start()
    with pytest.raises(IllegalStateError, match="started before"):
        await consumer.start()
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError, match="was stopped; make a new one"):
        await consumer.start()
    with pytest.raises(ConsumerStoppedError, match="was stopped"):
        await consumer.getone()


def test_start_in_another_loop() -> None:
    async def make() -> AIOKafkaConsumer:
        return AIOKafkaConsumer("t")

    consumer = asyncio.run(make())
    with pytest.raises(IllegalStateError, match="another event loop"):
        asyncio.run(consumer.start())
    consumer.__dict__["_closed"] = True  # Its loop is gone: there is nothing to stop.


QUICK = {
    "request_timeout_ms": 200,
    "default_api_timeout_ms": 200,
    "max_poll_interval_ms": 200,
    "rebalance_timeout_ms": 100,
}


@pytest.mark.parametrize("form", [*PROTOCOLS, "alone"])
async def test_start_with_a_pattern_returns_with_its_assignment(
    cluster: FakeCluster, form: str
) -> None:
    await cluster.create_topic("tea", partitions=2)
    await cluster.create_topic("coffee")
    consumer = (
        AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
        if form == "alone"
        else member(cluster, form)
    )
    consumer.subscribe(pattern="^t")
    async with consumer:
        assert consumer.subscription() == {"t", "tea"}
        assert len(consumer.assignment()) == 6
        # With a member id that the broker gives: once without and once with it.
        assert cluster.count(JoinGroupRequest) == (2 if form == "classic" else 0)
        await consumer.seek_to_beginning()


async def test_a_group_that_never_settles(cluster: FakeCluster) -> None:
    cluster.intercept(JoinGroupRequest, Fail(RebalanceInProgressError))
    with pytest.raises(KafkaTimeoutError, match=r"no assignment within 0.2 s: .*Rebalance"):
        async with timeout(10):
            await member(cluster, "classic", "t", **QUICK).start()


async def test_a_start_outlasts_the_session_of_a_member_that_is_gone() -> None:
    config = {"group.min.session.timeout.ms": "100"}
    async with FakeCluster(as_version="1.1", config=config) as cluster:
        await cluster.create_topic("t")
        slow = QUICK | {"session_timeout_ms": 600}
        slow["rebalance_timeout_ms"] = 600
        before = member(cluster, "classic", "t", **slow)
        await before.start()
        await before.stop(timeout=0)  # without a goodbye
        async with member(cluster, "classic", "t", **slow) as consumer:
            assert consumer.assignment()


@pytest.mark.parametrize("api", [JoinGroupRequest, SyncGroupRequest])
async def test_a_group_that_is_silent(cluster: FakeCluster, api: Any) -> None:
    cluster.intercept(api, Silence())
    with pytest.raises(KafkaTimeoutError, match=r"no assignment within 0.2 s: .*silent"):
        async with timeout(10):
            await member(cluster, "classic", "t", **QUICK).start()


async def test_a_join_that_takes_longer_than_the_poll_interval(cluster: FakeCluster) -> None:
    cluster.intercept(JoinGroupRequest, Delay(0.5))
    consumer = member(
        cluster, "classic", "t", max_poll_interval_ms=100, default_api_timeout_ms=10_000
    )
    async with timeout(10):
        await consumer.start()
    assert len(consumer.assignment()) == 4
    await consumer.stop()


# -- a member that was fenced and does not ask -----------------------------------------------------


async def test_fenced_while_the_listener_runs_and_overdue_then(
    cluster: FakeCluster, start: Start
) -> None:
    go = asyncio.Event()

    class Slow(Log):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await super().on_partitions_revoked(revoked)
            await go.wait()

    consumer = member(cluster, "consumer", max_poll_interval_ms=100)
    log = Slow()
    consumer.subscribe(["t"], listener=log)
    await consumer.start()
    # Its application asks all the time, and stops when the listener runs.
    asking = asyncio.get_running_loop().create_task(consumer.getone())
    try:
        other = await start(cluster, "t", group_id="g", group_protocol="consumer")
        await until(cluster, lambda: log.calls[-1][0] == "revoked")
        asking.cancel()
        cluster.groups.fence("g", consumer.group_metadata().member_id)
        await until(cluster, lambda: consumer.health().state == "poll_overdue")
        go.set()
        await until(cluster, lambda: not consumer.assignment())
        await other.stop()
        fill(cluster, 0, 1)
        async with timeout(10):
            assert (await consumer.getone()).offset == 0
    finally:
        await consumer.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_asks_while_the_listener_hears_of_the_loss_is_served(protocol: str) -> None:
    async def main(_: Simulation) -> int:
        go = asyncio.Event()

        class Slow(Log):
            async def on_partitions_lost(self, lost: Any) -> None:  # type: ignore[override]
                super().on_partitions_lost(lost)
                await go.wait()

        async with FakeCluster() as fake:
            await fake.create_topic("t")
            fill(fake, 0, 1)
            log = Slow()
            consumer = member(fake, protocol, max_poll_interval_ms=1000)
            consumer.subscribe(["t"], listener=log)
            async with consumer:
                await until(fake, lambda: log.calls[-1][0] == "lost")
                asking = asyncio.get_running_loop().create_task(consumer.getone())
                await asyncio.sleep(10)  # heartbeats would be due, and look who asks
                go.set()
                async with timeout(30):
                    return (await asking).offset

    assert simulate(main) == 0


async def test_every_strategy_may_be_stopped_in_the_middle_of_a_rebalance(
    cluster: FakeCluster, start: Start
) -> None:
    consumer = member(
        cluster, "classic", "t", partition_assignment_strategy=[RoundRobinPartitionAssignor]
    )
    await consumer.start()
    hold = asyncio.Event()
    with cluster.intercept(JoinGroupRequest, Hold(hold)):
        cluster.groups.rebalance("g")
        joins = cluster.count(JoinGroupRequest)
        beats = cluster.count(HeartbeatRequest)
        await until(cluster, lambda: cluster.count(HeartbeatRequest) > beats)
        await until(cluster, lambda: cluster.count(JoinGroupRequest) > joins)
        async with timeout(10):
            await consumer.stop(timeout=1)
    hold.set()
    assert left(cluster) == 1
    again = await start(cluster, "t", group_id="g", heartbeat_interval_ms=20)
    assert T0 in again.assignment()
