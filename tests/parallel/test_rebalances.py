"""Partitions that come and go while records are in work."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Set
from typing import Any

import pytest

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.parallel import ParallelConsumer
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.testing import Delay, FakeCluster, Silence
from tests.parallel.conftest import (
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
        await asyncio.sleep(0.1)
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
    async with ParallelConsumer(consumer, commit_interval_ms=60_000) as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: len(seen.ended) == 8)
        cluster.groups.rebalance("g")
        await until(lambda: len(log.calls) == 3)
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
        cluster, consumer=COOPERATIVE, concurrency=2, max_records=20, drain_timeout_ms=20
    )
    second = make_parallel(cluster, consumer=COOPERATIVE, concurrency=2)
    async with first, second:
        runs = Runs(first, handle)
        await until(lambda: len(owned(first)) == 2 and first.unfinished > 10)
        await second.stop()
        await until(lambda: len(owned(first)) == 4)
        await asyncio.sleep(0.1)
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


async def test_commits_that_get_no_answer_do_not_hold_up_stop(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    seen = Seen()
    async with make_parallel(cluster, drain_timeout_ms=200) as parallel:
        cluster.intercept(OffsetCommitRequest, Silence())
        runs = Runs(parallel, seen)
        await until(lambda: len(seen.ended) == 10)
        await runs.stop()
