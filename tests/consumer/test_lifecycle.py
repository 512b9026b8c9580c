"""Starting, stopping and cancelling: order, time limits, pending calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    UnknownTopicOrPartitionError,
)
from aiokafka.interceptors import ConsumerInterceptor
from aiokafka.protocol.messages.fetch import FetchRequest, ListOffsetsRequest
from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.messages.metadata import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
)
from aiokafka.testing import Delay, Edit, Fail, FakeCluster, Hold, RequestContext, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, Start, fill, read
from tests.support.groups import Log, until

# == `start()` and `stop()`: order, repetition, time limits ========================================


PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 20},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


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
    four: FakeCluster, protocol: str, way: Callable[[AIOKafkaConsumer], Awaitable[None]]
) -> None:
    fill(four, 0, 8, batch=8)
    with pytest.raises(LookupError):
        await way(member(four, protocol, "t"))
    assert four.groups.committed("g", "t", 0) == 3


async def test_a_batch_that_was_cancelled_comes_again(four: FakeCluster, protocol: str) -> None:
    fill(four, 0, 8, batch=8)
    is_at_work = asyncio.Event()

    async def work() -> None:
        async with member(four, protocol, "t") as consumer:
            while True:
                if await consumer.getmany(timeout_ms=100):
                    is_at_work.set()
                    await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(work())
    await is_at_work.wait()
    task.cancel()
    await asyncio.wait([task])
    assert four.groups.committed("g", "t", 0) in (None, 0)


async def test_what_was_read_in_order_does_not_come_again(four: FakeCluster, protocol: str) -> None:
    fill(four, 0, 8)
    async with member(four, protocol, "t") as consumer:
        await read(consumer, 5)
    assert four.groups.committed("g", "t", 0) == 5


# -- stop ------------------------------------------------------------------------------------------


async def test_two_stops_at_once_commit_and_leave_once(four: FakeCluster, protocol: str) -> None:
    fill(four, 0, 5)
    consumer = member(four, protocol, "t")
    await consumer.start()
    await read(consumer, 5)
    four.intercept(OffsetCommitRequest, Delay(0.05))
    first = asyncio.get_running_loop().create_task(consumer.stop())
    await until(four, lambda: four.count(OffsetCommitRequest) == 1)
    await consumer.stop()
    assert four.groups.committed("g", "t", 0) is not None
    assert left(four) == 1
    await first
    assert four.count(OffsetCommitRequest) == 1
    await until(four, lambda: four.connections == 0)


async def test_a_second_stop_goes_on_when_the_first_is_cancelled(
    four: FakeCluster, protocol: str
) -> None:
    fill(four, 0, 5)
    consumer = member(four, protocol, "t")
    await consumer.start()
    await read(consumer, 5)
    hold = asyncio.Event()
    four.intercept(OffsetCommitRequest, Hold(hold), times=1)
    loop = asyncio.get_running_loop()
    first = loop.create_task(consumer.stop())
    await until(four, lambda: four.count(OffsetCommitRequest) == 1)
    second = loop.create_task(consumer.stop())
    await asyncio.sleep(0)
    first.cancel()
    hold.set()
    await second
    assert left(four) == 1


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


async def test_a_stop_in_a_hurry_ends_one_that_has_time(four: FakeCluster, protocol: str) -> None:
    fill(four, 0, 5)
    consumer = member(four, protocol, "t")
    await consumer.start()
    await read(consumer, 5)
    four.intercept(OffsetCommitRequest, Silence())
    patient = asyncio.get_running_loop().create_task(consumer.stop(timeout=100))
    await until(four, lambda: four.count(OffsetCommitRequest) == 1)
    async with timeout(10):
        await consumer.stop(timeout=0)
        await patient


@pytest.mark.parametrize("limit", [-1, "1", True, float("nan")])
async def test_wrong_limits(four: FakeCluster, limit: Any) -> None:
    consumer = AIOKafkaConsumer("t", bootstrap_servers=four.bootstrap_servers)
    with pytest.raises((TypeError, ValueError), match="timeout="):
        await consumer.stop(timeout=limit)
    await consumer.stop()


async def test_the_listener_hears_of_an_unsubscription_just_before_stop(
    four: FakeCluster, protocol: str
) -> None:
    fill(four, 0, 5)
    log = Log()
    consumer = member(four, protocol)
    consumer.subscribe(["t"], listener=log)
    await consumer.start()
    await read(consumer, 5)
    await consumer.getmany()
    consumer.unsubscribe()
    await consumer.stop()
    told = [call for call in log.calls if call[1]]
    assert told == [("assigned", {0, 1, 2, 3}), ("revoked", {0, 1, 2, 3})]
    assert four.groups.committed("g", "t", 0) == 5
    assert left(four) == 1


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
async def test_stop_ends_start(four: FakeCluster, phase: str) -> None:
    hold = asyncio.Event()
    four.intercept(PHASES[phase], Hold(hold))
    consumer = member(four, "consumer" if phase == "beat" else "classic", "t")
    starting = asyncio.get_running_loop().create_task(consumer.start())
    await until(four, lambda: four.count(PHASES[phase]))
    async with timeout(10):
        await consumer.stop(timeout=0.2)
        with pytest.raises(ConsumerStoppedError, match="while it started"):
            await starting
    hold.set()
    assert consumer.health().state == "closed"
    await until(four, lambda: four.connections == 0)


async def test_stop_at_every_step_of_start(four: FakeCluster, protocol: str) -> None:
    for steps in range(0, 90, 2):
        consumer = member(four, protocol, "t")
        starting = asyncio.get_running_loop().create_task(consumer.start())
        for _ in range(steps):
            await asyncio.sleep(0)
        async with timeout(10):
            await consumer.stop(timeout=1)
            await asyncio.wait([starting])
        assert starting.exception() is None or isinstance(
            starting.exception(), ConsumerStoppedError
        )
    await until(four, lambda: four.connections == 0)


async def test_a_consumer_is_started_once(four: FakeCluster) -> None:
    consumer = AIOKafkaConsumer("t", bootstrap_servers=four.bootstrap_servers)
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
    four: FakeCluster, form: str
) -> None:
    await four.create_topic("tea", partitions=2)
    await four.create_topic("coffee")
    consumer = (
        AIOKafkaConsumer(bootstrap_servers=four.bootstrap_servers)
        if form == "alone"
        else member(four, form)
    )
    consumer.subscribe(pattern="^t")
    async with consumer:
        assert consumer.subscription() == {"t", "tea"}
        assert len(consumer.assignment()) == 6
        # With a member id that the broker gives: once without and once with it.
        assert four.count(JoinGroupRequest) == (2 if form == "classic" else 0)
        await consumer.seek_to_beginning()


async def test_a_group_that_never_settles(four: FakeCluster) -> None:
    four.intercept(JoinGroupRequest, Fail(RebalanceInProgressError))
    with pytest.raises(KafkaTimeoutError, match=r"no assignment within 0.2 s: .*Rebalance"):
        async with timeout(10):
            await member(four, "classic", "t", **QUICK).start()


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
async def test_a_group_that_is_silent(four: FakeCluster, api: Any) -> None:
    four.intercept(api, Silence())
    with pytest.raises(KafkaTimeoutError, match=r"no assignment within 0.2 s: .*does not respond"):
        async with timeout(10):
            await member(four, "classic", "t", **QUICK).start()


async def test_a_join_that_takes_longer_than_the_poll_interval(four: FakeCluster) -> None:
    four.intercept(JoinGroupRequest, Delay(0.5))
    consumer = member(four, "classic", "t", max_poll_interval_ms=100, default_api_timeout_ms=10_000)
    async with timeout(10):
        await consumer.start()
    assert len(consumer.assignment()) == 4
    await consumer.stop()


# -- a member that was fenced and does not ask -----------------------------------------------------


async def test_fenced_while_the_listener_runs_and_overdue_then(
    four: FakeCluster, start: Start
) -> None:
    go = asyncio.Event()

    class Slow(Log):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await super().on_partitions_revoked(revoked)
            await go.wait()

    consumer = member(four, "consumer", max_poll_interval_ms=100)
    log = Slow()
    consumer.subscribe(["t"], listener=log)
    await consumer.start()
    # Its application asks all the time, and stops when the listener runs.
    asking = asyncio.get_running_loop().create_task(consumer.getone())
    try:
        other = await start(four, "t", group_id="g", group_protocol="consumer")
        await until(four, lambda: log.calls[-1][0] == "revoked")
        asking.cancel()
        four.groups.fence("g", consumer.group_metadata().member_id)
        await until(four, lambda: consumer.health().state == "poll_overdue")
        go.set()
        await until(four, lambda: not consumer.assignment())
        await other.stop()
        fill(four, 0, 1)
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
    four: FakeCluster, start: Start
) -> None:
    consumer = member(
        four, "classic", "t", partition_assignment_strategy=[RoundRobinPartitionAssignor]
    )
    await consumer.start()
    hold = asyncio.Event()
    with four.intercept(JoinGroupRequest, Hold(hold)):
        four.groups.rebalance("g")
        joins = four.count(JoinGroupRequest)
        beats = four.count(HeartbeatRequest)
        await until(four, lambda: four.count(HeartbeatRequest) > beats)
        await until(four, lambda: four.count(JoinGroupRequest) > joins)
        async with timeout(10):
            await consumer.stop(timeout=1)
    hold.set()
    assert left(four) == 1
    again = await start(four, "t", group_id="g", heartbeat_interval_ms=20)
    assert T0 in again.assignment()


# == Cancelling each call at each place where it waits =============================================


Call = Callable[[AIOKafkaConsumer], Coroutine[Any, Any, Any]]


async def cancelled_after(steps: int, call: Coroutine[Any, Any, Any]) -> Any:
    """Run `call` for so many turns of the loop, then cancel it; what it returned, else None."""
    task = asyncio.create_task(call)
    for _ in range(steps):
        if task.done():
            break
        await asyncio.sleep(0)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


async def getone(consumer: AIOKafkaConsumer) -> list[int]:
    return [(await consumer.getone()).offset]


async def getmany(consumer: AIOKafkaConsumer) -> list[int]:
    found = await consumer.getmany(timeout_ms=1000, max_records=3)
    return [record.offset for records in found.values() for record in records]


async def anext_(consumer: AIOKafkaConsumer) -> list[int]:
    return [(await consumer.__anext__()).offset]


@pytest.mark.parametrize("call", [getone, getmany, anext_])
async def test_a_cancelled_reader_has_taken_nothing(
    cluster: FakeCluster, start: Start, call: Call
) -> None:
    await cluster.create_topic("t")
    cluster.intercept(FetchRequest, Delay(0.001))
    consumer = await start(cluster, "t", max_partition_fetch_bytes=300)
    seen: list[int] = []
    for steps in range(60):
        fill(cluster, 0, 2)
        seen.extend(await cancelled_after(steps % 30, call(consumer)) or ())
        assert await consumer.position(T0) == len(seen)
    while len(seen) < 120:
        seen.extend(await call(consumer))
    assert seen == list(range(120))


OTHER_CALLS: dict[str, Call] = {
    "position": lambda consumer: consumer.position(T0),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning(),
    "seek_to_end": lambda consumer: consumer.seek_to_end(T0),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([T0]),
    "end_offsets": lambda consumer: consumer.end_offsets([T0]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({T0: 0}),
    "topics": lambda consumer: consumer.topics(),
}


@pytest.mark.parametrize("name", OTHER_CALLS)
async def test_other_calls_leave_a_working_consumer(
    cluster: FakeCluster, start: Start, name: str
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 5)
    consumer = await start(cluster, "t")
    call = OTHER_CALLS[name]
    for steps in range(25):
        await cancelled_after(steps, call(consumer))
    assert await consumer.seek_to_beginning()
    assert [(await consumer.getone()).offset for _ in range(5)] == list(range(5))


async def test_a_cancelled_start_leaves_nothing_open(cluster: FakeCluster) -> None:
    await cluster.create_topic("t")
    for steps in range(0, 60, 3):
        consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers)
        await cancelled_after(steps, consumer.start())
        await consumer.stop()
    await cluster.wait_for(lambda: cluster.connections == 0)


@asynccontextmanager
async def closing(
    cluster: FakeCluster,
) -> AsyncIterator[tuple[AIOKafkaConsumer, asyncio.Task[None]]]:
    """A consumer that joins its group when its `start()` is cancelled, which begins to close it."""
    await cluster.create_topic("t")
    options: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}
    consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, **options)
    answer = asyncio.Event()
    with cluster.intercept(JoinGroupRequest, Hold(answer), times=1) as script:
        starting = asyncio.create_task(consumer.start())
        await script.wait()
        starting.cancel()
        await asyncio.sleep(0)
        assert not starting.done()
        yield consumer, starting
        answer.set()
    await cluster.wait_for(lambda: cluster.connections == 0)


@pytest.mark.parametrize("turns", range(8))
async def test_a_start_that_was_cancelled_twice_can_be_called_again(
    cluster: FakeCluster, turns: int
) -> None:
    """As by a timeout within another one: the second finds it closing what it has begun."""
    async with closing(cluster) as (consumer, starting):
        fill(cluster, 0, 1)
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        await consumer.start()
        assert (await consumer.getone()).offset == 0
        await consumer.stop()


@pytest.mark.parametrize("is_cancelled_again", [False, True])
async def test_a_stop_while_a_cancelled_start_closes_is_the_end(
    cluster: FakeCluster, is_cancelled_again: bool
) -> None:
    """A loop that starts the consumer until it succeeds must not outlive `stop()`."""
    async with closing(cluster) as (consumer, starting):
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0)
        if is_cancelled_again:
            starting.cancel()
        await asyncio.wait([starting])
        with pytest.raises(ConsumerStoppedError, match="make a new one"):
            await consumer.start()
        await stopping


async def test_no_start_begins_while_a_cancelled_one_closes(cluster: FakeCluster) -> None:
    async with closing(cluster) as (consumer, starting):
        with pytest.raises(ConsumerStoppedError):
            await consumer.start()
        await asyncio.wait([starting])
        await consumer.start()
        await consumer.stop()


async def test_a_cancelled_stop_can_be_called_again(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    for steps in range(12):
        consumer = await start(cluster, "t")
        await cancelled_after(steps, consumer.stop())
        await consumer.stop()
    await cluster.wait_for(lambda: cluster.connections == 0)


async def test_a_reader_that_times_out_goes_on_later(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, "t")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(consumer.getone(), 0.05)
    fill(cluster, 0, 1)
    assert (await asyncio.wait_for(consumer.getone(), 10)).offset == 0


# == Cancelled `stop()`, and `stop()` with a throttled broker ======================================


@pytest.mark.parametrize("turns", range(0, 10, 2))
def test_the_next_stop_waits_for_the_goodbye(turns: int) -> None:
    """Others do not wait for the end of the session, which is 45 seconds."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=4) as cluster:
            await cluster.create_topic("t")
            cluster.move_coordinator("group", "g", 0)
            consumer = AIOKafkaConsumer(
                "t",
                bootstrap_servers=cluster.address(0),
                group_id="g",
                enable_auto_commit=False,
                heartbeat_interval_ms=100,
            )
            await consumer.start()
            # Only heartbeats go to this broker: the goodbye needs another connection.
            leader = cluster.partition("t", 0).leader
            cluster.move_coordinator("group", "g", 3 if leader != 3 else 2)
            await asyncio.sleep(1)
            stopping = asyncio.get_running_loop().create_task(consumer.stop())
            for _ in range(turns):
                await asyncio.sleep(0)
            assert not stopping.done()
            stopping.cancel()
            await asyncio.wait([stopping])
            assert stopping.cancelled()
            await consumer.stop()
            await asyncio.sleep(1)
            assert cluster.groups.state_of("g") == "Empty"

    simulate(main)


def test_a_throttled_broker_does_not_hold_up_the_end() -> None:
    """It answers one request of the connection each three seconds; the last one closes the fetch
    session."""

    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t")
            consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers)
            await consumer.start()
            await consumer.getmany(timeout_ms=1000)
            cluster.throttle(3000)
            (partition,) = consumer.assignment()
            calls = [loop.create_task(consumer.end_offsets([partition])) for _ in range(5)]
            await asyncio.sleep(0.1)
            began = loop.time()
            await consumer.stop(timeout=0)
            assert loop.time() - began <= 1.1
            await asyncio.gather(*calls, return_exceptions=True)

    simulate(main)


def test_the_end_of_its_fetches_leaves_a_slow_broker_connected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It leads nothing any more, and is told so over the connection that others use as well."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=2) as cluster:
            await cluster.create_topic("t", replication_factor=2)
            cluster.move_leader(("t", 0), 0)
            address = cluster.address(0)
            async with AIOKafkaConsumer("t", bootstrap_servers=address) as consumer:
                await consumer.getmany(timeout_ms=1000)
                cluster.faults.slow(0, 2.0)
                cluster.move_leader(("t", 0), 1)
                await asyncio.sleep(10)

    with caplog.at_level("DEBUG", logger="aiokafka"):
        simulate(main)
    assert "Broker 0: session not closed" in caplog.text
    assert "got no response in time" not in caplog.text


# == Pending calls of other tasks when the consumer stops ==========================================


_LOADING = 14
CALLS: dict[str, tuple[Any, Callable[[Any], Awaitable[Any]]]] = {
    "commit": (OffsetCommitRequest, lambda consumer: consumer.commit({T0: 1})),
    "committed": (OffsetFetchRequest, lambda consumer: consumer.committed(T0)),
    "committed_offsets": (OffsetFetchRequest, lambda consumer: consumer.committed_offsets([T0])),
    "seek_to_committed": (OffsetFetchRequest, lambda consumer: consumer.seek_to_committed(T0)),
    "seek_to_end": (ListOffsetsRequest, lambda consumer: consumer.seek_to_end(T0)),
    "end_offsets": (ListOffsetsRequest, lambda consumer: consumer.end_offsets([T0])),
    "offsets_for_times": (ListOffsetsRequest, lambda consumer: consumer.offsets_for_times({T0: 1})),
    "topics": (MetadataRequest, lambda consumer: consumer.topics()),
}


@pytest.mark.parametrize("name", CALLS)
async def test_they_hear_that_it_stopped(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """`stop()` has no time to wait for them, and no broker is to blame."""
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    consumer = await start(cluster, "t", group_id="g")
    await read(consumer, 1)
    request, call = CALLS[name]
    with cluster.intercept(request, Hold(asyncio.Event())) as script:
        task = asyncio.ensure_future(call(consumer))
        await script.wait()
        with caplog.at_level(logging.WARNING, "aiokafka"):
            await consumer.stop(timeout=0)
            with pytest.raises(ConsumerStoppedError):
                async with timeout(10):
                    await task
    assert caplog.messages == []
    with pytest.raises(ConsumerStoppedError):
        await call(consumer)


@pytest.mark.parametrize("partition", [TopicPartition("t", 1), TopicPartition("u", 0)])
async def test_they_hear_of_it_without_a_broker_to_ask(
    cluster: FakeCluster, start: Start, partition: TopicPartition
) -> None:
    """There is no such partition, or no such topic; they went on until their own time was over."""
    await cluster.create_topic("t")
    cluster.intercept(MetadataRequest, Edit(lacks_u))
    consumer = await start(cluster, assign=[T0])
    call = asyncio.ensure_future(consumer.end_offsets([partition]))
    asked = cluster.count(MetadataRequest)
    await cluster.wait_for(lambda: cluster.count(MetadataRequest) > asked + 2)
    await consumer.stop(timeout=0)
    async with timeout(10):
        with pytest.raises(ConsumerStoppedError):
            await call


def lacks_u(response: MetadataResponse) -> None:
    for topic in response.topics:
        if topic.name == "u":
            topic.error_code, topic.partitions = UnknownTopicOrPartitionError.errno, []


async def test_a_commit_is_made_before_the_group_is_left(
    cluster: FakeCluster, start: Start
) -> None:
    """Though its first attempt meets a coordinator that loads."""
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    consumer = await start(cluster, "t", group_id="g", enable_auto_commit=False)
    await read(consumer, 1)
    with cluster.intercept(OffsetCommitRequest, Fail(_LOADING), times=1) as script:
        commit = asyncio.ensure_future(consumer.commit())
        await script.wait()
    await consumer.stop()
    await commit
    assert cluster.groups.committed("g", "t", 0) == 1
    sent = [type(one.request) for one in cluster.requests()]
    assert sent.index(LeaveGroupRequest) > max(
        place for place, kind in enumerate(sent) if kind is OffsetCommitRequest
    )


async def test_a_commit_is_made_in_the_generation_that_a_join_brings(
    cluster: FakeCluster, start: Start
) -> None:
    """It waits for the join. All members have joined by now, so that the generation before is
    over; a cooperative member has its partitions in the next one, too."""
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    options: dict[str, Any] = {
        "group_id": "g",
        "heartbeat_interval_ms": 20,
        "enable_auto_commit": False,
        "partition_assignment_strategy": [CooperativeStickyAssignor],
    }
    consumer = await start(cluster, "t", client_id="me", **options)
    await read(consumer, 1)
    is_answered = asyncio.Event()

    def hold(_: Any, context: RequestContext) -> Hold | None:
        return Hold(is_answered) if context.client_id == "me" else None

    with cluster.intercept(SyncGroupRequest, hold) as script:
        joining = asyncio.ensure_future(start(cluster, "t", **options))
        await script.wait()
        commit = asyncio.ensure_future(consumer.commit({T0: 1}))
        # It waits for the join.
        await asyncio.sleep(0)
        stop = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0.1)
        is_answered.set()
        await stop
    await commit
    assert cluster.groups.committed("g", "t", 0) == 1
    await joining


class Slow(ConsumerInterceptor):
    """Takes longer over a commit than `stop()` waits."""

    async def on_commit(self, offsets: Any) -> None:
        await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("protocol", "instance_id"), [("classic", None), ("consumer", None), ("consumer", "me")]
)
async def test_no_commit_is_made_behind_the_goodbye(
    cluster: FakeCluster, start: Start, protocol: str, instance_id: str | None
) -> None:
    """Of a client outside the group it would be taken once that has no members, over what these
    have committed; a member that is only away it tells that others have read its records."""
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    consumer = await start(
        cluster,
        "t",
        group_id="g",
        group_protocol=protocol,
        group_instance_id=instance_id,
        enable_auto_commit=False,
        interceptors=[Slow()],
    )
    await read(consumer, 1)
    await consumer.commit({T0: 0})
    script = cluster.intercept(OffsetCommitRequest, Fail(_LOADING))

    def end_loading(request: Any, _: Any) -> None:
        if isinstance(request, LeaveGroupRequest) or request.member_epoch < 0:
            script.remove()

    for kind in (LeaveGroupRequest, ConsumerGroupHeartbeatRequest):
        cluster.intercept(kind, end_loading)
    commit = asyncio.ensure_future(consumer.commit({T0: 1}))
    await script.wait()
    await consumer.stop(timeout=1)
    with pytest.raises(ConsumerStoppedError):
        await commit
    commits = [seen.request for seen in cluster.requests(OffsetCommitRequest)]
    assert all(commit.generation_id_or_member_epoch > 0 for commit in commits)
    assert cluster.groups.committed("g", "t", 0) == 0
