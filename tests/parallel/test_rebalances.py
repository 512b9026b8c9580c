"""Partitions that come and go while records are in work."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Set
from typing import Any

import pytest

from aiokafka import ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.parallel import ParallelConsumer
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
)
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.testing import Delay, FakeCluster
from tests.parallel.support import (
    Record,
    Runs,
    Seen,
    committed,
    ends,
    fill,
    make_consumer,
    make_parallel,
    until,
)

EAGER = {"partition_assignment_strategy": [RoundRobinPartitionAssignor]}
COOPERATIVE = {"partition_assignment_strategy": [CooperativeStickyAssignor]}

NEXT = {"group_protocol": "consumer"}


@pytest.fixture(params=[EAGER, COOPERATIVE, NEXT], ids=["eager", "cooperative", "consumer"])
def strategy(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param  # type: ignore[no-any-return]


class Log(ConsumerRebalanceListener):
    """Writes down what it is told, and what is committed at that moment."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.calls: list[tuple[str, set[int]]] = []
        self.committed: list[list[int]] = []
        self._cluster = cluster

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self._note("revoked", revoked)

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        self._note("assigned", assigned)

    def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        self._note("lost", lost)

    def _note(self, name: str, tps: Set[TopicPartition]) -> None:
        if not tps:
            return  # eager members hear of every rebalance
        self.calls.append((name, {tp.partition for tp in tps}))
        self.committed.append(committed(self._cluster))


def owned(parallel: ParallelConsumer) -> set[int]:
    return {tp.partition for tp in parallel.consumer.assignment()}


def members(cluster: FakeCluster) -> set[str]:
    groups = cluster.groups
    return set((groups.classic.get("g") or groups.consumer["g"]).members)


def heartbeats(cluster: FakeCluster) -> int:
    return cluster.count(HeartbeatRequest) + cluster.count(ConsumerGroupHeartbeatRequest)


async def test_members_come_and_go(cluster: FakeCluster, strategy: dict[str, Any]) -> None:
    fill(cluster, 600, keys=20)
    chance = random.Random(3)
    # Per member: an owner of a partition sees a key in order.
    handlers = [Seen(lambda record: chance.random() / 100) for _ in range(3)]
    members = [make_parallel(cluster, consumer=strategy, concurrency=5) for _ in handlers]
    runs: list[Runs] = []
    for member, handler in zip(members, handlers, strict=True):
        await member.start()
        runs.append(Runs(member, handler))
        await asyncio.sleep(0.1)
    if strategy is not NEXT:
        cluster.groups.rebalance("g")
    await asyncio.sleep(0.1)
    await runs[1].stop()
    await until(lambda: committed(cluster) == ends(cluster))
    await runs[0].stop()
    await runs[2].stop()
    ended = [record for handler in handlers for record in handler.ended]
    assert set(ended) == {(p, n) for p in range(4) for n in range(ends(cluster)[p])}
    # What was finished beyond an unfinished record is repeated by the next owner, and not more.
    assert len(ended) < 800
    for handler in handlers:
        for numbers in handler.by_key.values():
            firsts = list(dict.fromkeys(numbers))
            assert firsts == sorted(firsts)


async def test_what_runs_is_finished_before_it_is_given_up(
    cluster: FakeCluster, strategy: dict[str, Any]
) -> None:
    fill(cluster, 40, keys=4)
    gate = asyncio.Event()
    begun: list[int] = []
    seen = Seen()

    async def handle(record: Record) -> None:
        begun.append(record.partition)
        await gate.wait()

    second = make_parallel(cluster, consumer=strategy)
    async with make_parallel(cluster, consumer=strategy) as first:
        runs = Runs(first, handle)
        await until(lambda: len(begun) == 4)
        starting = asyncio.get_running_loop().create_task(second.start())
        await until(lambda: len(members(cluster)) == 2)
        beats = heartbeats(cluster)
        await until(lambda: heartbeats(cluster) >= beats + 5)
        # Members that are not eager join first, and give up afterwards.
        assert strategy is not EAGER or not starting.done()
        assert not owned(second)
        assert committed(cluster) == [0, 0, 0, 0]
        gate.set()
        await starting
        await until(lambda: len(owned(first)) == len(owned(second)) == 2)
        others = Runs(second, seen)
        await until(lambda: committed(cluster) == ends(cluster))
        await others.stop()
        await runs.stop()
    # Of each partition one record was in work: it was not repeated by the next owner.
    assert min(offset for _, offset in seen.begun) > 0


async def test_late_handlers_are_cancelled(cluster: FakeCluster, strategy: dict[str, Any]) -> None:
    fill(cluster, 8, keys=4)
    ended: list[int] = []
    second_seen = Seen()

    async def handle(record: Record) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(record.partition)

    log = Log(cluster)
    first = make_parallel(cluster, consumer=strategy, listener=log, drain_timeout_ms=30)
    async with first:
        runs = Runs(first, handle)
        await until(lambda: first.running == 4)
        async with make_parallel(cluster, consumer=strategy) as second:
            await until(lambda: len(owned(first)) == len(owned(second)) == 2)
            given = owned(second)
            revoked = set().union(*(who for name, who in log.calls if name == "revoked"))
            assert given <= revoked
            assert set(ended) == revoked
            others = Runs(second, second_seen)
            await until(lambda: [committed(cluster)[n] for n in sorted(given)] == [2, 2])
            # The first one goes on with what it has.
            await until(lambda: first.running == 2)
            assert first.unfinished == 4
            await others.stop()
        await runs.cancel()
    assert {record[0] for record in second_seen.ended} == given


async def test_handlers_that_ignore_their_end_hold_up_nobody_for_ever(
    cluster: FakeCluster,
) -> None:
    """One at a time, and that one does not stop when it should."""
    fill(cluster, 40, keys=4)
    gate = asyncio.Event()
    seen: set[tuple[int, int]] = set()

    async def handle(record: Record) -> None:
        try:
            if not seen:
                await asyncio.Event().wait()
        finally:
            if not seen:
                await gate.wait()  # and swallows its cancellation
            seen.add((record.partition, record.offset))
            return  # noqa: B012

    async with make_parallel(cluster, concurrency=1, drain_timeout_ms=20) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: parallel.running == 1)
        cluster.groups.rebalance("g")
        await asyncio.sleep(0.1)
        asyncio.get_running_loop().call_later(1.2, gate.set)
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    assert len(seen) == 40


async def test_a_work_that_was_not_begun_takes_no_place_when_its_partition_is_gone(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 2, keys=1)
    async with make_parallel(
        cluster, concurrency=1, drain_timeout_ms=20, consumer=EAGER
    ) as parallel:
        given = await anext(parallel)
        cluster.groups.rebalance("g")
        async with timeout(10):
            again = await anext(parallel)
        assert (given.is_current, again.record.offset) == (False, 0)
        assert parallel.running == 1
        # It is begun late, by a task that has no idea: that is no harm, and has no effect.
        async with given:
            assert parallel.running == 1
        async with again:
            pass
        async with await anext(parallel) as record:
            assert record.offset == 1
    assert committed(cluster) == ends(cluster)


async def test_lost_partitions_are_dropped_at_once(
    cluster: FakeCluster, strategy: dict[str, Any]
) -> None:
    fill(cluster, 8, keys=4)
    ended: list[int] = []

    async def handle(record: Record) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(record.partition)

    log = Log(cluster)
    first = make_parallel(cluster, consumer=strategy, listener=log, drain_timeout_ms=30_000)
    async with first:
        runs = Runs(first, handle)
        await until(lambda: first.running == 4)
        cluster.groups.expire("g", next(iter(members(cluster))))
        await until(lambda: ("lost", {0, 1, 2, 3}) in log.calls)
        assert sorted(ended) == [0, 1, 2, 3]
        await until(lambda: first.running == 4)
        await runs.cancel()
    assert committed(cluster) == [0, 0, 0, 0]


async def test_the_listener_comes_between_finishing_and_committing(cluster: FakeCluster) -> None:
    fill(cluster, 8, keys=4)
    log = Log(cluster)
    consumer = make_consumer(cluster)
    consumer.subscribe(["t"], listener=log)
    seen = Seen()
    gate = asyncio.Event()

    async def handle(record: Record) -> None:
        if record.value == b"7":
            await gate.wait()
        await seen(record)

    async with ParallelConsumer(consumer, commit_interval_ms=60_000) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: len(seen.ended) == 7)
        cluster.groups.rebalance("g")
        beats = heartbeats(cluster)
        await until(lambda: heartbeats(cluster) >= beats + 5)
        assert len(log.calls) == 1  # not before the last handler has ended
        gate.set()
        await until(lambda: len(log.calls) == 3)
        assert len(seen.ended) == 8
        # What it had before, and has again, goes on.
        cluster.log("t").append(b"8")
        await until(lambda: len(seen.ended) == 9)
        await runs.stop()
    everything = {0, 1, 2, 3}
    assert log.calls == [
        ("assigned", everything),
        ("revoked", everything),
        ("assigned", everything),
    ]
    assert log.committed == [[0] * 4, [0] * 4, [2] * 4]
    assert len(set(seen.ended)) == 9


async def test_the_listener_may_seek(cluster: FakeCluster) -> None:
    fill(cluster, 40)

    class Seek(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
            pass

        def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
            for tp in assigned:
                consumer.seek(tp, 5)

    consumer = make_consumer(cluster, "t")
    seen = Seen()
    async with ParallelConsumer(consumer, listener=Seek(), commit_interval_ms=20) as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    assert min(offset for _, offset in seen.ended) == 5


async def test_a_failing_listener_surfaces(cluster: FakeCluster) -> None:
    class Bad(Log):
        def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
            raise LookupError("no state for it")

    async with make_parallel(cluster, listener=Bad(cluster)) as parallel:
        with pytest.raises(LookupError, match="no state"):
            await parallel.run(Seen())


async def test_bounds_hold_for_new_partitions(cluster: FakeCluster) -> None:
    """Full when a rebalance brings others: they are paused, too."""
    fill(cluster, 400, keys=40)
    gate = asyncio.Event()

    async def handle(record: Record) -> None:
        await gate.wait()

    first = make_parallel(
        cluster, consumer=COOPERATIVE, concurrency=10, max_records=20, drain_timeout_ms=20
    )
    second = make_parallel(cluster, consumer=COOPERATIVE, concurrency=2)
    async with first, second:
        runs = Runs(first, handle)
        await until(lambda: len(owned(first)) == 2 and first.unfinished > 10)
        await second.stop()
        await until(lambda: len(owned(first)) == 4)
        await until(lambda: len(first.consumer.paused()) == 4)
        assert first.unfinished <= 20
        gate.set()
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()


async def test_slow_commits_do_not_pile_up_nor_go_back(cluster: FakeCluster) -> None:
    fill(cluster, 200)
    offsets: list[tuple[int, int]] = []

    def note(request: Any, context: Any) -> Delay:
        for topic in request.topics:
            offsets.extend((p.partition_index, p.committed_offset) for p in topic.partitions)
        return Delay(0.05)

    cluster.intercept(OffsetCommitRequest, note)
    seen = Seen(lambda record: 0.002)
    async with make_parallel(cluster, commit_interval_ms=1) as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    for number in range(4):
        mine = [offset for partition, offset in offsets if partition == number]
        assert mine == sorted(set(mine))


class Stubborn:
    """A handler that goes on until `gate`, even if it is cancelled a few times."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.calls: list[int] = []
        self.running = 0
        self.most = 0

    async def __call__(self, record: Record) -> None:
        if record.partition == 0:
            self.calls.append(record.offset)
        if record.key != b"k":
            return
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            async with timeout(10):
                await self.gate.wait()
        self.running -= 1


@pytest.mark.parametrize("order", ["key", "partition"])
async def test_a_key_waits_for_a_handler_that_outlives_its_partition(
    cluster: FakeCluster, order: str
) -> None:
    """The partition comes back to the member, and with it the record that is still in work."""
    cluster.log("t").extend([(b"k", b"x", ()), (b"k", b"x", ()), (b"other", b"x", ())])
    cluster.log("t", 1).append(b"x")
    handle = Stubborn()
    log = Log(cluster)
    async with make_parallel(cluster, drain_timeout_ms=20, order=order, listener=log) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: parallel.running == 1 and committed(cluster)[1] == 1)
        cluster.groups.rebalance("g")
        await until(lambda: [name for name, _ in log.calls].count("assigned") == 2)
        cluster.log("t", 1).append(b"x")
        await until(lambda: committed(cluster)[1] == 2)
        assert handle.calls.count(0) == 1
        await until(lambda: order == "partition" or handle.calls.count(2) == 2)
        handle.gate.set()
        await until(lambda: committed(cluster)[0] == 3)
        await runs.stop()
    assert handle.most == 1
    assert handle.calls.count(0) == 2


async def test_partitions_are_given_up_behind_handlers_that_end_already(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """`run()` was cancelled, and its handlers with it, when the group rebalances."""
    cluster.log("t").extend([(b"k", b"x", ())])
    handle = Stubborn()
    log = Log(cluster)
    async with make_parallel(cluster, drain_timeout_ms=20, listener=log) as parallel:
        running = asyncio.ensure_future(parallel.run(handle))
        await until(lambda: parallel.running == 1)
        running.cancel()
        cluster.groups.rebalance("g")
        await until(lambda: "Cancelling handlers" in caplog.text)
        for _ in range(20):
            await asyncio.sleep(0)
        assert "revoked" not in [name for name, _ in log.calls]
        handle.gate.set()
        await until(lambda: "revoked" in [name for name, _ in log.calls])
        assert handle.running == 0
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_stop_does_not_cut_short_what_a_cancelled_handler_does(cluster: FakeCluster) -> None:
    """Another handler has failed, so that `run()` has cancelled it already."""
    cluster.log("t").extend([(b"k", b"x", ()), (b"bad", b"x", ())])
    handle = Stubborn()

    async def handler(record: Record) -> None:
        if record.key == b"bad":
            raise ValueError("bad")
        await handle(record)

    async with make_parallel(cluster) as parallel:
        running = asyncio.ensure_future(parallel.run(handler))
        await until(lambda: parallel.failure is not None)
        stopping = asyncio.ensure_future(parallel.stop())
        for _ in range(20):
            await asyncio.sleep(0)
        handle.gate.set()
        await stopping
        with pytest.raises(ValueError, match="bad"):
            await running
    assert handle.running == 0


async def test_stop_waits_for_handlers_that_a_rebalance_has_cancelled(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """They are cleaning up when the group is left: others read their records from then on."""
    cluster.log("t").extend([(b"k", b"x", ())])
    handle = Stubborn()
    at_work: list[int] = []
    cluster.intercept(LeaveGroupRequest, lambda *_: at_work.append(handle.running))
    async with make_parallel(cluster, drain_timeout_ms=20) as parallel:
        running = asyncio.ensure_future(parallel.run(handle))
        await until(lambda: parallel.running == 1)
        cluster.groups.rebalance("g")
        await until(lambda: caplog.text.count("Cancelling handlers") == 1)
        stopping = asyncio.ensure_future(parallel.stop())
        await until(lambda: caplog.text.count("Cancelling handlers") == 2)
        for _ in range(200):
            await asyncio.sleep(0)
        handle.gate.set()
        await stopping
        await running
    assert at_work == [0]


async def test_run_begins_again_though_it_was_cancelled_twice(cluster: FakeCluster) -> None:
    """The second time it waits for a handler that cleans up, which it does not cut short."""
    cluster.log("t").extend([(b"k", b"x", ()), (b"other", b"x", ())])
    handle = Stubborn()
    async with make_parallel(cluster) as parallel:
        running = asyncio.ensure_future(parallel.run(handle))
        await until(lambda: parallel.running == 1)
        for _ in range(2):
            running.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert handle.running == 1
        again = asyncio.ensure_future(parallel.run(handle))
        cluster.log("t").extend([(b"third", b"x", ())])
        await until(lambda: handle.calls.count(2) == 1)
        handle.gate.set()
        await until(lambda: committed(cluster)[0] == 3)
        await parallel.stop()
        await again
    assert handle.most == 1


async def test_a_key_waits_for_a_work_that_outlives_its_partition(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(b"k", b"x", ()), (b"other", b"x", ())])
    async with make_parallel(cluster, drain_timeout_ms=20) as parallel:
        work = await anext(parallel)
        async with work as record:
            assert record.offset == 0
            cluster.groups.rebalance("g")
            await until(lambda: not work.is_current)
            async with await anext(parallel) as other:
                assert other.offset == 1
            again = asyncio.get_running_loop().create_task(anext(parallel))
            await until(lambda: parallel.unfinished == 1)
            await asyncio.sleep(0)
            assert not again.done()
        async with await again as record:
            assert record.offset == 0
    assert committed(cluster)[0] == 2


def records_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, ConsumerRecord) for each in gc.get_objects())


async def test_nothing_is_kept_of_partitions_that_are_given_up(cluster: FakeCluster) -> None:
    """While all handlers are busy with what stays."""
    for number in range(4):
        cluster.log("t", number).extend([(None, b"x", ())] * 50)
    gate = asyncio.Event()

    async def handle(record: Record) -> None:
        await gate.wait()

    options: dict[str, Any] = {"consumer": COOPERATIVE, "drain_timeout_ms": 20}
    async with make_parallel(cluster, concurrency=1, **options) as first:
        runs = Runs(first, handle)
        for _ in range(3):
            await until(lambda: first.unfinished == 200)
            async with make_parallel(cluster, concurrency=1, **options):
                await until(lambda: len(owned(first)) == 2 and first.unfinished == 100)
        await until(lambda: first.unfinished == 200)
        # And one that the pump, or this test, looks at.
        assert records_in_memory() <= 202
        await runs.cancel()


@pytest.mark.parametrize("how", [COOPERATIVE, NEXT], ids=["cooperative", "consumer"])
async def test_what_comes_back_while_there_is_no_room_is_not_read(
    cluster: FakeCluster, how: dict[str, Any]
) -> None:
    go_on = asyncio.Event()
    at_work: list[int] = []

    async def handle(record: Record) -> None:
        at_work.append(record.partition)
        await go_on.wait()

    parallel = make_parallel(cluster, consumer=how, max_bytes=1)
    async with parallel:
        running = asyncio.ensure_future(parallel.run(handle))
        # Which partitions another member gets, before there is anything in them.
        async with make_consumer(cluster, "t", **how):
            await until(lambda: len(owned(parallel)) == 2)
            stays = min(owned(parallel))
        await until(lambda: len(owned(parallel)) == 4)
        cluster.log("t", stays).append(b"takes all the room")
        await until(lambda: at_work)
        async with make_consumer(cluster, "t", **how):
            await until(lambda: len(owned(parallel)) == 2)
            assert at_work == [stays] and stays in owned(parallel)
        await until(lambda: len(owned(parallel)) == 4)
        for number in range(4):
            cluster.log("t", number).append(b"has to wait")
        before = heartbeats(cluster)
        asked = cluster.count(FetchRequest)
        await until(lambda: heartbeats(cluster) >= before + 10)
        assert cluster.count(FetchRequest) - asked < 20
        assert parallel.consumer.paused() == parallel.consumer.assignment()
        go_on.set()
        await until(lambda: len(at_work) == 5)
        parallel.request_stop()
        await running
