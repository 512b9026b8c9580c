"""What is processed, in which order, how much at once, and what is committed of it."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, NoOffsetForPartitionError
from aiokafka.parallel import ParallelConsumer, Work
from aiokafka.testing import FakeCluster
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


async def test_keys_stay_in_order_while_others_overtake(cluster: FakeCluster) -> None:
    fill(cluster, 400)
    chance = random.Random(1)
    seen = Seen(lambda record: chance.choice([0, 0, 0.002, 0.01]))
    async with make_parallel(cluster, concurrency=8) as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    assert len(seen.ended) == len(set(seen.ended)) == 400
    assert all(numbers == sorted(numbers) for numbers in seen.by_key.values())
    assert len(seen.by_key) == 10
    assert seen.most == 8
    assert seen.ended != seen.begun


async def test_one_partition_in_order(cluster: FakeCluster) -> None:
    fill(cluster, 100)
    seen = Seen(lambda record: 0.001 * (record.offset % 3))
    async with make_parallel(cluster, concurrency=8, order="partition") as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    for number in range(4):
        offsets = [offset for partition, offset in seen.ended if partition == number]
        assert offsets == list(range(ends(cluster)[number]))
    assert seen.most == 4


@pytest.mark.parametrize("options", [{"order": "none"}, {"key": lambda record: None}])
async def test_no_order(cluster: FakeCluster, options: dict[str, Any]) -> None:
    cluster.log("t").extend([(b"same", b"%d" % number, ()) for number in range(40)])
    gate = asyncio.Event()
    begun: list[int] = []

    async def handle(record: Record) -> None:
        begun.append(record.offset)
        if record.offset == record.partition == 0:
            await gate.wait()

    async with make_parallel(cluster, concurrency=2, **options) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: len(begun) == 40)
        # The first is not finished: nothing may be committed, when others are.
        cluster.log("t", 1).append(b"40")
        await until(lambda: committed(cluster)[1] == 1)
        assert committed(cluster) == [0, 1, 0, 0]
        gate.set()
        await until(lambda: committed(cluster) == [40, 1, 0, 0])
        await runs.stop()


async def test_records_without_key_have_no_order(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(None, b"%d" % number, ()) for number in range(10)])
    seen = Seen(lambda record: 0.01)
    async with make_parallel(cluster, concurrency=10) as parallel:
        runs = Runs(parallel, seen)
        await until(lambda: committed(cluster)[0] == 10)
        await runs.stop()
    assert seen.most == 10


async def test_a_key_of_ones_own(cluster: FakeCluster) -> None:
    fill(cluster, 40)
    options: dict[str, Any] = {"consumer": {"key_deserializer": lambda key: [key]}}
    async with make_parallel(cluster, **options) as parallel:
        with pytest.raises(TypeError, match=r"t-\d@0 is not hashable.*key="):
            await parallel.run(Seen())
    seen = Seen()

    def handle(record: Record) -> Any:
        record.key = record.key[0]
        return seen(record)

    options["key"] = lambda record: record.key[0]
    async with make_parallel(cluster, **options) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    assert all(numbers == sorted(numbers) for numbers in seen.by_key.values())


async def test_only_what_is_finished_without_a_gap_is_committed(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(b"%d" % n, b"%d" % n, ()) for n in range(10)])
    gates = {3: asyncio.Event(), 7: asyncio.Event()}

    async def handle(record: Record) -> None:
        if record.offset in gates:
            await gates[record.offset].wait()

    async with make_parallel(cluster, concurrency=4) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: parallel.unfinished == 2)
        await until(lambda: committed(cluster)[0] == 3)
        gates[3].set()
        await until(lambda: committed(cluster)[0] == 7)
        gates[7].set()
        await until(lambda: committed(cluster)[0] == 10)
        await runs.stop()


@pytest.mark.real_time
async def test_plain_handlers_let_the_loop_run(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(b"%d" % n, b"x", ()) for n in range(200)])
    count = turns = 0

    async def look_around() -> None:
        nonlocal turns
        while count < 200:
            await asyncio.sleep(0)
            turns += count > 0

    def handle(record: Record) -> None:
        nonlocal count
        count += 1
        time.sleep(0.001)

    async with make_parallel(cluster) as parallel:
        await until(lambda: parallel.unfinished == 200)
        looking = asyncio.get_running_loop().create_task(look_around())
        runs = Runs(parallel, handle)
        await until(lambda: committed(cluster)[0] == 200)
        await looking
        assert turns > 5
        await runs.stop()


# -- bounds ----------------------------------------------------------------------------------------


async def test_records_in_memory_are_bounded(cluster: FakeCluster) -> None:
    fill(cluster, 600, keys=100)
    gate = asyncio.Event()
    most = 0

    async def handle(record: Record) -> None:
        nonlocal most
        most = max(most, parallel.unfinished)
        await gate.wait()
        await asyncio.sleep(0)
        most = max(most, parallel.unfinished)

    async with make_parallel(cluster, concurrency=4, max_records=50) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: len(parallel.consumer.paused()) == 4)
        assert 40 < parallel.unfinished <= 50
        gate.set()
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    assert 40 < most <= 50


async def test_bytes_in_memory_are_bounded(cluster: FakeCluster) -> None:
    size = 1000
    for number in range(4):
        cluster.log("t", number).extend([(b"%d" % n, bytes(size), ()) for n in range(75)])
    gate = asyncio.Event()

    async def handle(record: Record) -> None:
        await gate.wait()

    limit = 20 * size
    async with make_parallel(cluster, max_bytes=limit) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: len(parallel.consumer.paused()) == 4)
        assert limit <= parallel.unfinished_bytes < limit + 3 * size
        gate.set()
        await until(lambda: committed(cluster) == [75] * 4)
        assert parallel.unfinished_bytes == 0
        await runs.stop()


async def test_records_that_are_suddenly_large_are_bounded_too(cluster: FakeCluster) -> None:
    """Nothing says before a call how large the records are that it returns."""
    size = 100_000
    limit = 3 * size
    for number in range(4):
        cluster.log("t", number).extend([(None, b"x", ())] * 30)
        cluster.log("t", number).extend([(None, bytes(size), ())] * 10)
    seen: list[tuple[int, int]] = []
    most = 0

    async def handle(record: Record) -> None:
        nonlocal most
        seen.append((record.partition, record.offset))
        most = max(most, parallel.unfinished_bytes)
        await asyncio.sleep(0)

    async with make_parallel(cluster, concurrency=2, max_bytes=limit) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    assert len(seen) == len(set(seen)) == 160
    assert limit / 3 < most < limit + size


async def test_a_slow_key_does_not_fill_the_memory(cluster: FakeCluster) -> None:
    cluster.log("t", 0).extend([(b"slow", b"x", ())] * 1000)
    gate = asyncio.Event()

    async def handle(record: Record) -> None:
        if record.key == b"slow":
            await gate.wait()

    async with make_parallel(cluster, concurrency=2, max_records=100) as parallel:
        runs = Runs(parallel, handle)
        # Its share is a quarter, of which it gets so much that no call can exceed it.
        await until(lambda: len(parallel.consumer.paused()) == 1)
        assert 15 < parallel.unfinished <= 25
        for number in range(1, 4):
            cluster.log("t", number).extend([(b"quick", b"x", ())] * 100)
        await until(lambda: committed(cluster) == [0, 100, 100, 100])
        gate.set()
        await until(lambda: committed(cluster) == [1000, 100, 100, 100])
        await runs.stop()


async def test_repeats_after_a_crash_are_bounded(cluster: FakeCluster) -> None:
    cluster.log("t", 0).extend([(b"slow", b"x", ())] + [(b"quick", b"x", ())] * 500)
    gate = asyncio.Event()
    done = 0

    async def handle(record: Record) -> None:
        nonlocal done
        if record.key == b"slow":
            await gate.wait()
        done += 1

    async with make_parallel(
        cluster, concurrency=2, max_records=20, max_uncommitted=40
    ) as parallel:
        runs = Runs(parallel, handle)
        # All that was taken is done but for the slow one, and no more is taken.
        await until(lambda: done >= 40 and parallel.unfinished == 1)
        assert parallel.consumer.paused() == {TopicPartition("t", 0)}
        assert done <= 60
        gate.set()
        await until(lambda: committed(cluster)[0] == 501)
        await runs.stop()


# -- failures, stop, cancellation ------------------------------------------------------------------


async def test_a_handlers_exception_ends_it(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(b"%d" % n, b"%d" % n, ()) for n in range(20)])
    cancelled: list[int] = []

    async def handle(record: Record) -> None:
        if record.offset == 5:
            await asyncio.sleep(0.05)
            raise LookupError("number five")
        if record.offset == 7:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(7)

    with pytest.raises(LookupError, match="number five"):
        async with make_parallel(cluster, concurrency=4) as parallel:
            await parallel.run(handle)
    assert committed(cluster)[0] == 5
    assert cancelled == [7]
    assert isinstance(parallel.failure, LookupError)


async def test_a_restart_loses_nothing(cluster: FakeCluster) -> None:
    fill(cluster, 200)
    chance = random.Random(2)
    seen: set[tuple[int, int]] = set()
    failures = 0

    async def handle(record: Record) -> None:
        await asyncio.sleep(chance.random() / 200)
        if chance.random() < 0.03:
            raise LookupError("bad luck")
        seen.add((record.partition, record.offset))

    while committed(cluster) != ends(cluster):
        async with make_parallel(cluster) as parallel:
            runs = Runs(parallel, handle)
            task = runs.task
            await until(lambda t=task: t.done() or committed(cluster) == ends(cluster))
            if runs.task.done():
                failures += 1
                with pytest.raises(LookupError):
                    await runs.task
            else:
                await runs.stop()
    assert len(seen) == 200
    assert failures


async def test_errors_of_the_consumer_surface(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(None, b"x", ())] * 5)
    async with make_parallel(cluster, consumer={"auto_offset_reset": "none"}) as parallel:
        with pytest.raises(NoOffsetForPartitionError):
            await parallel.run(Seen())
        with pytest.raises(NoOffsetForPartitionError):
            async for _ in parallel:
                pass


async def test_stop_finishes_what_runs_and_no_more(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(b"%d" % n, b"%d" % n, ()) for n in range(50)])
    gate = asyncio.Event()
    begun = 0

    async def handle(record: Record) -> None:
        nonlocal begun
        begun += 1
        await gate.wait()

    async with make_parallel(cluster, concurrency=3) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: begun == 3)
        stopped = asyncio.get_running_loop().create_task(parallel.stop())
        await asyncio.sleep(0.05)
        assert not stopped.done()
        gate.set()
        await stopped
        await runs.task
    assert begun == 3
    assert committed(cluster)[0] == 3
    assert cluster.groups.state_of("g") == "Empty"


async def test_a_handler_can_end_it(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(b"k", b"%d" % n, ()) for n in range(50)])

    async def handle(record: Record) -> None:
        if record.offset == 9:
            parallel.request_stop()

    async with make_parallel(cluster) as parallel:
        await parallel.run(handle)
    assert committed(cluster)[0] == 10


async def test_stop_does_not_wait_for_ever(cluster: FakeCluster) -> None:
    fill(cluster, 10)
    begun = asyncio.Event()
    ended: list[str] = []

    async def handle(record: Record) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async with make_parallel(cluster, concurrency=2, drain_timeout_ms=50) as parallel:
        runs = Runs(parallel, handle)
        await begun.wait()
        await runs.stop()
    assert ended == ["cancelled"] * 2
    assert committed(cluster) == [0, 0, 0, 0]


async def test_run_can_be_cancelled_and_called_again(cluster: FakeCluster) -> None:
    fill(cluster, 60)
    seen = Seen(lambda record: 0.003)
    async with make_parallel(cluster) as parallel:
        for turns in range(1, 40):
            runs = Runs(parallel, seen)
            for _ in range(turns):
                await asyncio.sleep(0)
            await runs.cancel()
        runs = Runs(parallel, seen)
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    assert sorted(set(seen.ended)) == sorted(seen.ended)
    assert len(seen.ended) == 60
    assert all(numbers == sorted(numbers) for numbers in seen.by_key.values())


async def test_stop_can_be_cancelled_and_called_again(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    for turns in (0, 1, 2, 3, 5, 8, 13, 21):
        parallel = make_parallel(cluster)
        await parallel.start()
        runs = Runs(parallel, Seen(lambda record: 0.005))
        stop = asyncio.get_running_loop().create_task(parallel.stop())
        for _ in range(turns):
            await asyncio.sleep(0)
        stop.cancel()
        await asyncio.wait([stop])
        await parallel.stop()
        await runs.task
    assert cluster.groups.state_of("g") == "Empty"


# -- works of one's own ----------------------------------------------------------------------------


async def test_iterating_in_several_tasks(cluster: FakeCluster) -> None:
    fill(cluster, 200)
    seen = Seen(lambda record: 0.001)

    async def work_on(parallel: ParallelConsumer) -> None:
        async for work in parallel:
            async with work as record:
                await seen(record)

    async with make_parallel(cluster, concurrency=6) as parallel:
        workers = [asyncio.ensure_future(work_on(parallel)) for _ in range(8)]
        await until(lambda: committed(cluster) == ends(cluster))
        parallel.request_stop()
        await asyncio.gather(*workers)
    assert len(seen.ended) == 200
    assert seen.most == 6
    assert all(numbers == sorted(numbers) for numbers in seen.by_key.values())


async def test_a_task_for_each_work(cluster: FakeCluster) -> None:
    fill(cluster, 100)
    seen = Seen(lambda record: 0.001)
    tasks: set[asyncio.Task[None]] = set()

    async def process(work: Work) -> None:
        async with work as record:
            await seen(record)
        if committed(cluster) == ends(cluster) or len(seen.ended) == 100:
            parallel.request_stop()

    async with make_parallel(cluster, concurrency=5) as parallel:
        async for work in parallel:
            tasks.add(asyncio.ensure_future(process(work)))
        await asyncio.gather(*tasks)
    assert committed(cluster) == ends(cluster)
    assert seen.most == 5


async def test_a_work_that_fails(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(b"k", b"%d" % n, ()) for n in range(10)])
    with pytest.raises(LookupError):
        async with make_parallel(cluster) as parallel:
            async for work in parallel:
                async with work as record:
                    if record.offset == 4:
                        raise LookupError
    assert committed(cluster)[0] == 4
    assert not [work async for work in parallel]


async def test_a_cancelled_work_is_handed_out_again(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(b"k", b"%d" % n, ()) for n in range(3)])
    offsets = []
    async with make_parallel(cluster) as parallel:
        work = await anext(parallel)
        with pytest.raises(asyncio.CancelledError):
            async with work:
                raise asyncio.CancelledError
        with pytest.raises(IllegalStateError):
            await work.__aenter__()
        while len(offsets) < 3:
            work = await anext(parallel)
            async with work as record:
                offsets.append(record.offset)
    assert offsets == [0, 1, 2]
    assert committed(cluster)[0] == 3


async def test_what_was_handed_back_comes_before_what_is_behind_it(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(b"%d" % n, b"x", ()) for n in range(5)])
    async with make_parallel(cluster) as parallel:
        work = await anext(parallel)
        await until(lambda: parallel.unfinished == 5)
        with pytest.raises(asyncio.CancelledError):
            async with work:
                raise asyncio.CancelledError
        offsets = []
        while len(offsets) < 5:
            async with await anext(parallel) as record:
                offsets.append(record.offset)
    assert offsets == [0, 1, 2, 3, 4]


async def test_whoever_is_cancelled_takes_nothing(cluster: FakeCluster) -> None:
    loop = asyncio.get_running_loop()
    async with make_parallel(cluster) as parallel:
        first, second = (loop.create_task(anext(parallel)) for _ in range(2))
        await asyncio.sleep(0)
        cluster.log("t").append(b"x")
        # The moment when the first one is woken and has not run yet.
        while not parallel.unfinished:
            await asyncio.sleep(0)
        assert not parallel.running
        first.cancel()
        async with await second as record:
            assert record.value == b"x"
        assert first.cancelled()


# -- wrong use -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("consumer", "options", "message"),
    [
        ({"enable_auto_commit": True}, {}, "enable_auto_commit=False"),
        ({"group_id": None}, {}, "group_id"),
        ({}, {"concurrency": 0}, "concurrency=0"),
        ({}, {"max_records": True}, "max_records=True"),
        ({}, {"max_bytes": -1}, "max_bytes=-1"),
        ({}, {"max_uncommitted": 0.5}, "max_uncommitted=0.5"),
        ({}, {"commit_interval_ms": 0}, "commit_interval_ms=0"),
        ({}, {"drain_timeout_ms": 0}, "drain_timeout_ms=0"),
        ({}, {"order": "topic"}, "order='topic'"),
        ({}, {"order": "none", "key": len}, "key: needs"),
        ({}, {"topics": ["a"], "pattern": "b"}, "topics or a pattern"),
        ({}, {"topics": "a"}, "topics: must be"),
        ({}, {"topics": []}, "topics: there must"),
        ({}, {"topics": 3}, "topics: must be several names, not int"),
        ({}, {"topics": [3]}, "topics: must be names, not 3"),
        ({}, {"pattern": b"t"}, "pattern=b't': must be a str"),
        ({}, {"listener": 3}, "listener: must be a ConsumerRebalanceListener, not int"),
        ({}, {"key": 3}, "key=3: must be a function"),
        ({}, {"retry": 3}, "retry: must be a RetryTopics, not int"),
        ({}, {"consumer": 3}, "consumer: must be an AIOKafkaConsumer, not int"),
    ],
)
async def test_wrong_arguments(
    cluster: FakeCluster, consumer: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    reader = make_consumer(cluster, "t", **consumer)
    with pytest.raises((TypeError, ValueError), match=message):
        ParallelConsumer(**{"consumer": reader, **options})
    await reader.stop()


async def test_wrong_moments(cluster: FakeCluster) -> None:
    parallel = make_parallel(cluster)
    with pytest.raises(IllegalStateError, match="not started"):
        await parallel.run(Seen())
    async with parallel:
        runs = Runs(parallel, Seen())
        await asyncio.sleep(0)
        with pytest.raises(IllegalStateError, match="in progress already"):
            await parallel.run(Seen())
        with pytest.raises(IllegalStateError, match="started before"):
            await parallel.start()
        await runs.stop()
    await parallel.run(Seen())
    assert not [work async for work in parallel]


async def test_partitions_chosen_by_hand(cluster: FakeCluster) -> None:
    fill(cluster, 100)
    consumer = make_consumer(cluster)
    consumer.assign([TopicPartition("t", 1), TopicPartition("t", 2)])
    async with ParallelConsumer(consumer, commit_interval_ms=20) as parallel:
        runs = Runs(parallel, Seen())
        wanted = [0, ends(cluster)[1], ends(cluster)[2], 0]
        await until(lambda: committed(cluster) == wanted)
        await runs.stop()


@pytest.mark.parametrize("is_given", [True, False])
async def test_a_pattern(cluster: FakeCluster, is_given: bool) -> None:
    fill(cluster, 20)
    consumer = make_consumer(cluster)
    options: dict[str, Any] = {"pattern": "^t$"} if is_given else {}
    if not is_given:
        consumer.subscribe(pattern="^t$")
    async with ParallelConsumer(consumer, commit_interval_ms=20, **options) as parallel:
        runs = Runs(parallel, Seen())
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()


async def test_nothing_to_read(cluster: FakeCluster) -> None:
    parallel = ParallelConsumer(make_consumer(cluster))
    with pytest.raises(IllegalStateError, match="needs a subscription"):
        await parallel.start()
    await parallel.stop()
