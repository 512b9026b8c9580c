"""Leaders, replicas and coordinators that are away, changed or wrong: nothing loops, is raised too
often, or is believed from the wrong one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from aiokafka import TopicPartition, errors
from aiokafka._compat import timeout
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
)
from aiokafka.protocol.messages.fetch import FetchRequest, FetchResponse
from aiokafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest
from aiokafka.testing import Edit, Fail, FakeCluster
from tests.support.consumers import T0, T1, Start, client_of, fill, partition_error, read


def advice(replica: int) -> Edit:
    """Have a broker send nothing but the name of a replica to read from."""

    def change(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                data.preferred_read_replica = replica
                data.records = None

    return Edit(change)


async def test_a_replica_that_the_metadata_does_not_list(start: Start) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 3)

        def leave_out(response: MetadataResponse) -> None:
            response.brokers = [broker for broker in response.brokers if broker.node_id == 0]

        hidden = cluster.intercept(MetadataRequest, Edit(leave_out))
        consumer = await start(cluster, "t", client_rack="b")
        seen = cluster.count(MetadataRequest)
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        # It is asked for, and meanwhile the leader is read without loops.
        await cluster.wait_for(lambda: cluster.count(MetadataRequest) > seen)
        assert cluster.count(FetchRequest) < 20
        hidden.remove()


@pytest.mark.parametrize("named", [0, 1], ids=["itself", "each other"])
async def test_brokers_that_send_us_round_in_circles(start: Start, named: int) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 3)
        scripts = [
            cluster.intercept(FetchRequest, advice(named), broker=0),
            cluster.intercept(FetchRequest, advice(0), broker=1),
        ]
        consumer = await start(cluster, "t", client_rack="b", retry_backoff_ms=50)
        await cluster.wait_for(lambda: scripts[0].hits >= 2)
        cluster.forget_requests()
        assert await consumer.getmany(timeout_ms=500) == {}
        # Back-off grows from 50 ms on. Without any there are some hundreds.
        assert cluster.count(FetchRequest) <= 25
        for script in scripts:
            script.remove()
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("moved", ["from a replica", "from a leader"])
async def test_out_of_range_from_a_broker_that_was_left(start: Start, moved: str) -> None:
    """It comes when the partition is read elsewhere: it says nothing of the leader's log.

    1. The fetch of the replica (or old leader) is under way.
    2. The partition moves to another broker.
    3. The first one answers OFFSET_OUT_OF_RANGE.
    """
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5)
        rack = {"client_rack": "b"} if moved == "from a replica" else {}
        old = 1 if rack else 0
        release = asyncio.Event()

        async def answer(request: Any, context: Any) -> Any:
            await release.wait()
            return partition_error(OffsetOutOfRangeError)

        consumer = await start(cluster, "t", auto_offset_reset="none", **rack)
        consumer.seek(T0, 5)
        await cluster.wait_for(
            lambda: [seen.broker_id for seen in cluster.requests(FetchRequest)][-1:] == [old]
        )
        late = cluster.intercept(FetchRequest, answer, broker=old, times=1)
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 5)]
        await cluster.wait_for(lambda: late.hits)
        cluster.move_leader(T0, 1 - old)
        if rack:
            # The broker leaves the cluster, as far as its metadata tell.
            hide = Edit(lambda response: _hide(response, old))
            cluster.intercept(MetadataRequest, hide)
        await client_of(consumer).force_metadata_update()
        release.set()
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 6)]
        assert consumer.health().last_error is None


def _hide(response: MetadataResponse, node_id: int) -> None:
    response.brokers = [broker for broker in response.brokers if broker.node_id != node_id]


@pytest.mark.parametrize(
    ("error", "times"), [(errors.UnknownError, 0), (errors.InvalidFetchRequestError, 1)]
)
async def test_an_error_of_a_whole_answer_is_raised_once_if_at_all(
    cluster: FakeCluster, start: Start, error: type[errors.BrokerResponseError], times: int
) -> None:
    await cluster.create_topic("t", partitions=50)
    consumer = await start(cluster, "t")
    fill(cluster, 0, 1)
    await read(consumer, 1)
    script = cluster.intercept(FetchRequest, Fail(error), times=1)
    await cluster.wait_for(lambda: script.hits)
    fill(cluster, 0, 1)
    raised = 0
    async with timeout(20):
        while True:
            try:
                record = await consumer.getone()
                break
            except error:
                raised += 1
    assert record.offset == 1
    assert raised == times


async def test_partitions_back_off_together(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=100)
    codes = errors.NotLeaderForPartitionError.errno

    def refuse(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                data.error_code, data.records = codes, None

    for number in range(100):
        fill(cluster, number, 1)
    script = cluster.intercept(FetchRequest, Edit(refuse))
    await start(cluster, "t", retry_backoff_ms=250, retry_backoff_max_ms=250)
    await cluster.wait_for(lambda: script.hits >= 2)
    cluster.forget_requests()
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(1.5)
    # Four slots in a second; one by one the partitions took dozens.
    assert cluster.count(FetchRequest) <= 8 * (asyncio.get_running_loop().time() - began)


class Counted:
    """A coroutine, and how often it has begun to wait."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self.inner = inner
        self.pauses = 0

    async def run(self) -> Any:
        return await self

    def __await__(self) -> Iterator[Any]:
        steps = self.inner.__await__()
        try:
            while True:
                awaited = next(steps)
                self.pauses += 1
                yield awaited
        except StopIteration as end:
            return end.value
        finally:
            steps.close()


async def test_readers_of_other_partitions_are_not_woken(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=50)
    consumer = await start(cluster, "t")
    tps = [TopicPartition("t", number) for number in range(1, 50)]
    counted = [Counted(consumer.getone(tp)) for tp in tps]
    waiting = [asyncio.create_task(each.run()) for each in counted]
    for _ in range(20):
        fill(cluster, 0, 1)
        await consumer.getone(T0)
    assert sum(each.pauses for each in counted) < 300
    for tp in tps:
        fill(cluster, tp.partition, 1)
    async with timeout(20):
        records = await asyncio.gather(*waiting)
    assert [record.partition for record in records] == list(range(1, 50))


async def test_a_reader_of_many_partitions_is_woken(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=20)
    consumer = await start(cluster, "t")
    tps = [TopicPartition("t", number) for number in range(20)]
    waiting = asyncio.create_task(consumer.getone(*tps))
    await asyncio.sleep(0)
    fill(cluster, 19, 1)
    async with timeout(20):
        assert (await waiting).partition == 19


async def test_one_of_three_brokers_is_away(start: Start) -> None:
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t")
        # Nothing listens there.
        cluster.advertise(2, "127.0.0.1", 1)
        for _ in range(6):
            consumer = await start(cluster)
            assert consumer.partitions_for_topic("t") == {0}
            for _ in range(5):
                assert "t" in await consumer.topics()


@pytest.mark.parametrize(
    ("request_type", "error"),
    [
        (FindCoordinatorRequest, GroupCoordinatorNotAvailableError),
        (OffsetFetchRequest, errors.UnstableOffsetCommit),
    ],
)
async def test_readers_wait_for_committed_offsets(
    cluster: FakeCluster,
    start: Start,
    request_type: Any,
    error: type[errors.BrokerResponseError],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 1)
    fill(cluster, 1, 1)
    caplog.set_level("DEBUG", "aiokafka.consumer.fetcher")
    script = cluster.intercept(request_type, Fail(error))
    consumer = await start(cluster, assign=[T0, T1], group_id="g", request_timeout_ms=300)
    reading = asyncio.create_task(consumer.getone())
    await cluster.wait_for(lambda: caplog.text.count("Offset lookup failed") >= 2)
    assert not reading.done()
    assert error.__name__ in caplog.text
    script.remove()
    async with timeout(20):
        assert (await reading).offset == 0


async def test_a_commit_tells_why_there_is_no_coordinator(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    consumer = await start(
        cluster, assign=[T0], group_id="g", default_api_timeout_ms=300, enable_auto_commit=False
    )
    client_of(consumer).forget_coordinator(0, "g", "for the test")
    cluster.intercept(FindCoordinatorRequest, Fail(GroupCoordinatorNotAvailableError))
    with pytest.raises(KafkaTimeoutError, match="GroupCoordinatorNotAvailableError"):
        await consumer.commit({T0: 1})
