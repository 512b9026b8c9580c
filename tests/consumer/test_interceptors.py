"""Positions and commits of records that interceptors are processing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import CommitFailedError
from aiokafka.interceptors import ConsumerInterceptor, Records
from aiokafka.parallel import ParallelConsumer
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.testing import FakeCluster
from tests.support.consumers import T0, T1, Start, fill, queued
from tests.support.groups import until

# == Records that interceptors are processing ======================================================


@pytest.fixture
async def two() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", partitions=2, replication_factor=2)
        yield cluster
        assert cluster.failures == []


class Gate(ConsumerInterceptor):
    """Looks at records for as long as the test wants, and leaves them as they are."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()

    async def on_consume(self, records: Records) -> Records:
        self.entered.set()
        await self.opened.wait()
        return records


async def show(
    consumer: AIOKafkaConsumer, gate: Gate, count: int = 3, *, wanted: TopicPartition = T0
) -> asyncio.Task[Records]:
    """Begin a call whose records, `count` at most, the gate looks at."""
    call = asyncio.create_task(consumer.getmany(wanted, timeout_ms=5000, max_records=count))
    await gate.entered.wait()
    return call


async def finish(call: asyncio.Task[Records], gate: Gate, end: str) -> list[int]:
    """Let the application get the records ("returned"), or cancel its call; the offsets."""
    gate.opened.set()
    if end == "cancelled":
        call.cancel()
    await asyncio.wait([call])
    return [] if call.cancelled() else offsets(call.result())


async def offsets_up_to(consumer: AIOKafkaConsumer, end: int) -> list[int]:
    found: list[int] = []
    while not found or found[-1] < end - 1:
        batches = await consumer.getmany(T0, timeout_ms=5000, max_records=3)
        assert batches, "nothing comes any more"
        found += offsets(batches)
    return found


def offsets(batches: Records) -> list[int]:
    return [record.offset for records in batches.values() for record in records]


def cut(cluster: FakeCluster, offset: int) -> None:
    """What an unclean election of a leader does."""
    cluster.log("t").truncate(offset)
    cluster.move_leader(T0, 1 - cluster.partition("t").leader)


ENDS = pytest.mark.parametrize("end", ["returned", "cancelled"])


@ENDS
async def test_a_full_buffer_that_is_dropped_for_another_reader(
    two: FakeCluster, start: Start, end: str
) -> None:
    for partition in (0, 1):
        two.move_leader(("t", partition), 0)
    for _ in range(5):
        two.log("t").extend([(None, b"x" * 6000, ())] * 5)
    gate = Gate()
    consumer = await start(two, assign=[T0, T1], interceptors=[gate], fetch_buffer_memory=65536)
    await until(two, lambda: max(queued(consumer)) > 0)
    call = await show(consumer, gate)
    # It waits for records that are not written yet, and there is no room to ask for them.
    other = asyncio.create_task(consumer.getone(T1))
    await until(two, lambda: queued(consumer) == [0, 0])
    assert await consumer.position(T0) == 0
    found = await finish(call, gate, end)
    found += await offsets_up_to(consumer, 25)
    assert found == list(range(25))
    other.cancel()


@ENDS
async def test_a_new_leader_without_what_is_buffered(
    two: FakeCluster, start: Start, end: str
) -> None:
    fill(two, 0, 12)
    gate = Gate()
    consumer = await start(two, assign=[T0], interceptors=[gate], metadata_max_age_ms=50)
    call = await show(consumer, gate)
    leader = two.partition("t").leader
    cut(two, 8)
    # The new leader is asked for records when its log was compared.
    await until(two, lambda: two.requests(FetchRequest)[-1].broker_id != leader)
    assert await consumer.position(T0) == 0
    fill(two, 0, 4)
    found = await finish(call, gate, end)
    assert await consumer.position(T0) == len(found)
    found += await offsets_up_to(consumer, 12)
    assert found == list(range(12))


@ENDS
async def test_a_new_leader_without_some_of_the_records(
    two: FakeCluster, start: Start, end: str
) -> None:
    """Nothing of its log is skipped, whether the application gets those of the old one or not."""
    fill(two, 0, 6)
    gate = Gate()
    gate.opened.set()
    consumer = await start(two, assign=[T0], interceptors=[gate], metadata_max_age_ms=50)
    assert offsets(await consumer.getmany(timeout_ms=5000, max_records=2)) == [0, 1]
    gate.entered.clear()
    gate.opened.clear()
    call = await show(consumer, gate)
    leader = two.partition("t").leader
    cut(two, 3)
    await until(two, lambda: two.requests(FetchRequest)[-1].broker_id != leader)
    assert await consumer.position(T0) == 2
    fill(two, 0, 3)
    assert await finish(call, gate, end) == ([2, 3, 4] if end == "returned" else [])
    assert await offsets_up_to(consumer, 6) == list(range(3 if end == "returned" else 2, 6))


@ENDS
async def test_a_new_leader_without_records_that_were_returned_before(
    two: FakeCluster, start: Start, end: str
) -> None:
    fill(two, 0, 6)
    gate = Gate()
    gate.opened.set()
    consumer = await start(two, assign=[T0], interceptors=[gate], metadata_max_age_ms=50)
    assert offsets(await consumer.getmany(timeout_ms=5000, max_records=2)) == [0, 1]
    gate.entered.clear()
    gate.opened.clear()
    call = await show(consumer, gate)
    leader = two.partition("t").leader
    cut(two, 1)
    await until(two, lambda: two.requests(FetchRequest)[-1].broker_id != leader)
    assert await consumer.position(T0) == 1
    fill(two, 0, 3)
    await finish(call, gate, end)
    assert await offsets_up_to(consumer, 4) == [1, 2, 3]


@ENDS
async def test_a_log_that_has_lost_what_is_buffered(start: Start, end: str) -> None:
    """It was cut, and its leader says "out of range": before Kafka 2.1 no epoch tells more."""
    async with FakeCluster(as_version="1.1") as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 6)
        gate = Gate()
        consumer = await start(cluster, assign=[T0], interceptors=[gate])
        call = await show(consumer, gate)
        cluster.log("t").truncate(4)
        await until(cluster, lambda: queued(consumer) == [0])
        fill(cluster, 0, 4)
        found = await finish(call, gate, end)
        found += await offsets_up_to(consumer, 8)
        assert found == list(range(8))


@ENDS
async def test_records_that_the_log_does_not_have_any_more(
    cluster: FakeCluster, start: Start, end: str
) -> None:
    """The position is lost meanwhile, so a call that is cancelled cannot bring it back."""
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    gate = Gate()
    consumer = await start(cluster, assign=[T0], interceptors=[gate])
    call = await show(consumer, gate)
    # In one step, or it would be fetched before it is gone.
    fill(cluster, 0, 27)
    cluster.log("t").delete_before(20)
    await until(cluster, lambda: consumer.lag(T0) == 10)
    assert await consumer.position(T0) == 20
    assert await finish(call, gate, end) == ([0, 1, 2] if end == "returned" else [])
    assert await consumer.position(T0) == 20
    assert await offsets_up_to(consumer, 30) == list(range(20, 30))


@ENDS
@pytest.mark.parametrize("target", [0, 2, 7])
async def test_the_application_seeks(
    cluster: FakeCluster, start: Start, end: str, target: int
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 12)
    gate = Gate()
    consumer = await start(cluster, assign=[T0], interceptors=[gate])
    call = await show(consumer, gate)
    consumer.seek(T0, target)
    assert await consumer.position(T0) == target
    assert await finish(call, gate, end) == ([0, 1, 2] if end == "returned" else [])
    assert await consumer.position(T0) == target
    assert await offsets_up_to(consumer, 12) == list(range(target, 12))


async def test_what_is_said_and_committed_meanwhile(two: FakeCluster, start: Start) -> None:
    """A leader has changed before: where the consumer reads on is not where the application is."""
    fill(two, 0, 12)
    gate = Gate()
    consumer = await start(
        two,
        "t",
        group_id="g",
        enable_auto_commit=False,
        interceptors=[gate],
        metadata_max_age_ms=50,
    )
    call = await show(consumer, gate)
    leader = two.partition("t").leader
    cut(two, 8)
    await until(two, lambda: two.requests(FetchRequest)[-1].broker_id != leader)
    await until(two, lambda: consumer.known_end_offsets()[T0] == 8)
    consumer.pause(T0)

    def measured() -> object:
        return consumer.metrics().value("position", topic="t", partition="0")

    assert (await consumer.position(T0), consumer.lag(T0), measured()) == (0, 8, 0)
    await consumer.commit()
    assert two.groups.committed("g", "t") == 0
    assert await finish(call, gate, "returned") == [0, 1, 2]
    assert (await consumer.position(T0), consumer.lag(T0), measured()) == (3, 5, 3)
    await consumer.commit()
    assert two.groups.committed("g", "t") == 3


async def test_a_call_of_another_task_does_not_finish_them(two: FakeCluster, start: Start) -> None:
    """It began before the application got them."""
    fill(two, 0, 6)
    gate = Gate()
    consumer = await start(two, "t", group_id="g", auto_commit_interval_ms=20, interceptors=[gate])
    call = await show(consumer, gate)
    other = asyncio.create_task(consumer.getone(T1))
    await asyncio.sleep(0.2)
    assert two.groups.committed("g", "t") in (None, 0)
    assert await finish(call, gate, "returned") == [0, 1, 2]
    await asyncio.sleep(0.2)
    assert two.groups.committed("g", "t") in (None, 0)
    other.cancel()
    assert offsets(await consumer.getmany(T0, timeout_ms=5000, max_records=3)) == [3, 4, 5]
    await until(two, lambda: two.groups.committed("g", "t") == 3)


@pytest.mark.parametrize("how", ["unsubscribe", "stop"])
async def test_the_application_gives_the_partition_up(
    two: FakeCluster, start: Start, how: str
) -> None:
    """What it has not got is not committed, and of a partition that is gone it gets no more."""
    fill(two, 0, 6)
    gate = Gate()
    gate.opened.set()
    consumer = await start(two, "t", group_id="g", interceptors=[gate])
    assert offsets(await consumer.getmany(timeout_ms=5000, max_records=3)) == [0, 1, 2]
    gate.entered.clear()
    gate.opened.clear()
    call = await show(consumer, gate)
    if how == "unsubscribe":
        consumer.unsubscribe()
        assert await finish(call, gate, "returned") == []
    await consumer.stop()
    assert two.groups.committed("g", "t") == 3
    await finish(call, gate, "returned")


class Stage(ConsumerRebalanceListener):
    """Takes the time that the test wants to give partitions up."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        if revoked:
            self.entered.set()
            await self.opened.wait()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        pass


@pytest.mark.parametrize("protocol", ["eager", "cooperative", "consumer"])
@pytest.mark.parametrize("end", ["in time", "too late", "stopped"])
async def test_a_listener_is_at_work_when_the_interceptors_are_through(
    start: Start, protocol: str, end: str
) -> None:
    """Nothing is returned for which it commits, or has committed; each record comes once."""
    member: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
    if protocol == "consumer":
        member |= {"group_protocol": "consumer"}
    else:
        assignor = RangePartitionAssignor if protocol == "eager" else CooperativeStickyAssignor
        member |= {"heartbeat_interval_ms": 20, "partition_assignment_strategy": [assignor]}
    config = {"group.consumer.heartbeat.interval.ms": "20"}
    gate, stage = Gate(), Stage()
    async with FakeCluster(config=config) as cluster:
        await cluster.create_topic("t", partitions=2)
        fill(cluster, 0, 6)
        fill(cluster, 1, 6)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            interceptors=[gate],
            **member,
        )
        consumer.subscribe(["t"], listener=stage)
        await consumer.start()
        timeout_ms = 500 if end == "too late" else 10_000
        call = asyncio.create_task(consumer.getmany(timeout_ms=timeout_ms))
        await gate.entered.wait()
        joining = asyncio.create_task(start(cluster, "t", **member))
        await stage.entered.wait()
        gate.opened.set()
        found: list[Records] = []
        if end == "in time":
            # For as long as it would take otherwise.
            await asyncio.wait([call], timeout=0.1)
            assert not call.done()
        elif end == "too late":
            assert await call == {}
        else:
            stopping = asyncio.create_task(consumer.stop())
            assert await call == {}
        stage.opened.set()
        other = await joining
        if end == "stopped":
            await stopping
        elif end == "in time":
            found.append(await call)
        while sum(len(offsets(batches)) for batches in found) < 12:
            if end != "stopped":
                found.append(await consumer.getmany(timeout_ms=50))
            found.append(await other.getmany(timeout_ms=50))
        by_partition: dict[int, list[int]] = {0: [], 1: []}
        for batches in found:
            for tp in batches:
                by_partition[tp.partition] += offsets({tp: batches[tp]})
        assert by_partition == {0: list(range(6)), 1: list(range(6))}
        await consumer.stop()


async def test_an_interceptor_that_raises(cluster: FakeCluster, start: Start) -> None:
    class Raises(ConsumerInterceptor):
        async def on_consume(self, records: Records) -> Records:
            await asyncio.sleep(0)
            raise ValueError("no")

    await cluster.create_topic("t")
    fill(cluster, 0, 6)
    consumer = await start(cluster, assign=[T0], interceptors=[Raises()])
    assert await offsets_up_to(consumer, 6) == list(range(6))
    assert await consumer.position(T0) == 6


# == Commits while interceptors are processing =====================================================


@pytest.mark.parametrize("end", ["revoked", "cancelled"])
async def test_a_commit_after_a_rebalance_fails_only_for_records_that_were_returned(
    two: FakeCluster, start: Start, end: str
) -> None:
    for number in (0, 1):
        fill(two, number, 3)
    gate = Gate()
    options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
    one = await start(two, "t", interceptors=[gate], heartbeat_interval_ms=20, **options)
    if end == "cancelled":
        gate.opened.set()
        await one.getone(T0)
        gate.opened.clear()
        gate.entered.clear()
    call = await show(one, gate)
    if end == "cancelled":
        call.cancel()
        await asyncio.wait([call])
    await start(two, "t", **options)
    if end == "cancelled":
        # Before its new assignment, `one` would commit T0 in the new generation if it keeps T0.
        await until(two, lambda: len(one.assignment()) == 1)
        with pytest.raises(CommitFailedError):
            await one.commit()
    else:
        gate.opened.set()
        assert T0 not in await call  # an eager member has given up all partitions
        await one.commit()


@pytest.mark.parametrize("reads", ["many", "one"])
async def test_a_rebalance_does_not_wait_for_intercepted_records_after_a_marker(
    two: FakeCluster, start: Start, reads: str
) -> None:
    fill(two, 0, 2)
    gate = Gate()
    gate.opened.set()
    options: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20}
    first = await start(two, "t", interceptors=[gate], **options)
    for _ in range(2):
        await first.getone(T0)
    gate.opened.clear()
    gate.entered.clear()
    two.log("t").add_marker(1, 0, commit=True)
    fill(two, 0, 1)
    reading = first.getone() if reads == "one" else first.getmany(timeout_ms=60_000)
    call = asyncio.ensure_future(reading)
    await gate.entered.wait()
    async with timeout(1):
        await start(two, "t", **options)
    gate.opened.set()
    call.cancel()
    await asyncio.wait([call])


class SlowInterceptor(ConsumerInterceptor):
    """An interceptor that takes its time."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def on_consume(self, records: Any) -> None:
        self.entered.set()
        await self.open.wait()


async def test_records_that_interceptors_look_at_are_not_committed(
    two_brokers: FakeCluster,
) -> None:
    gate = SlowInterceptor()
    gate.open.set()
    fill(two_brokers, 0, 5)
    consumer = AIOKafkaConsumer(
        "t",
        bootstrap_servers=two_brokers.bootstrap_servers,
        group_id="g",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        interceptors=[gate],
    )
    async with ParallelConsumer(consumer, commit_interval_ms=10) as parallel:
        run = asyncio.create_task(parallel.run(lambda record: None))
        await two_brokers.wait_for(lambda: two_brokers.groups.committed("g", "t") == 5)
        gate.open.clear()
        gate.entered.clear()
        fill(two_brokers, 0, 5)
        await gate.entered.wait()
        assert await consumer.position(T0) == 5
        # What is committed now is all that is finished.
        await consumer.commit()
        assert two_brokers.groups.committed("g", "t") == 5
        gate.open.set()
        await two_brokers.wait_for(lambda: two_brokers.groups.committed("g", "t") == 10)
        await parallel.stop()
        await run
