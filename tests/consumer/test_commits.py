"""Offsets in the group's store, for partitions chosen by hand."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest

from aiokafka import OffsetAndMetadata
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    GroupLoadInProgressError,
    IllegalGenerationError,
    IllegalOperation,
    IllegalStateError,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
    UnstableOffsetCommit,
)
from aiokafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest
from aiokafka.testing import Cut, Fail, FakeCluster, Hold
from tests.support.consumers import T0, T1, T2, Start, fill, read
from tests.support.groups import until


async def test_a_second_consumer_goes_on_where_the_first_committed(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 10)
    first = await start(cluster, assign=[T0, T1], group_id="g", enable_auto_commit=False)
    assert await first.committed(T0) is None
    await read(first, 4)
    await first.commit()
    assert await first.committed(T0) == 4
    await first.commit({T0: (6, "note"), T1: OffsetAndMetadata(0, "")})
    await first.commit({T0: 7})
    second = await start(cluster, assign=[T0, T1], group_id="g", enable_auto_commit=False)
    assert await second.position(T0) == 7
    second.seek(T0, 0)
    assert await second.seek_to_committed(T0) == {T0: 7}
    assert await read(second, 3) == [(0, 7), (0, 8), (0, 9)]


async def test_metadata_and_leader_epoch_are_kept(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=3)
    consumer = await start(cluster, assign=[T0, T1], group_id="g", enable_auto_commit=False)
    await consumer.commit({T0: OffsetAndMetadata(5, "by hand", 3), T1: 7})
    found = await consumer.committed_offsets([T0, T1, T2])
    assert found == {T0: (5, "by hand"), T1: (7, ""), T2: None}
    assert found[T0] is not None
    assert found[T1] is not None
    assert (found[T0].leader_epoch, found[T1].leader_epoch) == (3, -1)
    # What was read can be committed again as it is.
    await consumer.commit({T0: found[T0]})
    assert set(await consumer.committed_offsets()) == {T0, T1}
    consumer.unsubscribe()
    assert await consumer.committed_offsets() == {}
    with pytest.raises(TypeError):
        await consumer.committed_offsets(["t"])  # type: ignore[list-item]


@pytest.mark.parametrize("release", ["2.1", "4.3"])
async def test_metadata_that_no_broker_takes(start: Start, release: str) -> None:
    """It closes the connection that such a string comes on, which is that of the membership."""
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t")
        consumer = await start(cluster, "t", group_id="g", enable_auto_commit=False)
        with pytest.raises(ValueError, match="committed_metadata: 40000 bytes are more"):
            await consumer.commit({T0: (1, "x" * 40_000)})
        await consumer.commit({T0: (1, "short")})
        assert cluster.groups.committed("g", "t") == 1


def test_an_offset_with_metadata_is_a_pair() -> None:
    known = OffsetAndMetadata(5, "m", leader_epoch=3)
    offset, metadata = known
    assert (offset, metadata) == known == OffsetAndMetadata(5, "m")
    assert repr(known) == "OffsetAndMetadata(offset=5, metadata='m', leader_epoch=3)"
    assert repr(OffsetAndMetadata(5)) == "OffsetAndMetadata(offset=5, metadata='')"
    for twin in (copy.copy(known), pickle.loads(pickle.dumps(known)), known._replace()):
        assert (twin, twin.leader_epoch) == (known, 3)
    assert known._replace(leader_epoch=4, offset=6).leader_epoch == 4
    assert OffsetAndMetadata._make((1, "x")).leader_epoch == -1


async def test_auto_commit_leaves_out_what_may_not_be_finished(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 10, batch=5)
    consumer = await start(cluster, assign=[T0], group_id="g", auto_commit_interval_ms=20)
    await read(consumer, 3)
    # The third record was returned by the latest call: it may still be in work.
    await cluster.wait_for(lambda: cluster.groups.committed("g", "t") == 2)
    await asyncio.sleep(0.1)  # There is time for more commits.
    assert await consumer.committed(T0) == 2
    await consumer.stop()
    watcher = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    assert await watcher.committed(T0) == 3


async def test_auto_commit_leaves_out_all_that_one_call_handed_out(
    cluster: FakeCluster, start: Start
) -> None:
    """Of two answers to fetches as well."""
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await start(cluster, assign=[T0], group_id="g", auto_commit_interval_ms=20)
    await cluster.wait_for(lambda: consumer.highwater(T0) == 3)
    fill(cluster, 0, 3)
    await cluster.wait_for(lambda: consumer.highwater(T0) == 6)
    assert len((await consumer.getmany(timeout_ms=5000))[T0]) == 6
    await asyncio.sleep(0.1)
    assert not cluster.groups.committed("g", "t")
    await consumer.getmany()
    await cluster.wait_for(lambda: cluster.groups.committed("g", "t") == 6)


async def test_auto_commit_leaves_out_the_first_record(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 1, 1)
    consumer = await start(cluster, assign=[T0, T1], group_id="g", auto_commit_interval_ms=20)
    assert await read(consumer, 1) == [(1, 0)]
    fill(cluster, 0, 2, batch=2)
    assert await read(consumer, 1) == [(0, 0)]
    await cluster.wait_for(lambda: cluster.groups.committed("g", "t", 1) == 1)
    assert not cluster.groups.committed("g", "t", 0)
    assert await read(consumer, 1) == [(0, 1)]
    await cluster.wait_for(lambda: cluster.groups.committed("g", "t", 0) == 1)


async def test_a_seek_wins_over_a_committed_offset_being_looked_up(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 10)
    consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    await consumer.commit({T0: 3})
    consumer.unsubscribe()
    answer = asyncio.Event()
    script = cluster.intercept(OffsetFetchRequest, Hold(answer), times=1)
    consumer.assign([T0])
    await script.wait()
    consumer.seek(T0, 7)
    answer.set()
    assert await consumer.committed(T0) == 3  # Answered after the first.
    assert await read(consumer, 3) == [(0, 7), (0, 8), (0, 9)]


async def test_auto_commit_follows_a_seek(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 10)
    consumer = await start(cluster, assign=[T0], group_id="g", auto_commit_interval_ms=20)
    await read(consumer, 5)
    for offset in (2, 9, 0):
        consumer.seek(T0, offset)
        await cluster.wait_for(
            lambda offset=offset: cluster.groups.committed("g", "t") == offset  # type: ignore[misc]
        )


async def test_without_auto_commit_nothing_is_committed(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    await read(consumer, 3)
    await consumer.stop()
    assert cluster.count(OffsetCommitRequest) == 0


@pytest.mark.parametrize(
    "answer",
    [
        Fail(NotCoordinatorForGroupError),
        Fail(GroupLoadInProgressError),
        Cut(),
    ],
    ids=str,
)
async def test_passing_errors_are_waited_out(
    cluster: FakeCluster, start: Start, answer: Fail | Cut
) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    with cluster.intercept(OffsetCommitRequest, answer, times=2) as script:
        await consumer.commit({T0: 5})
        assert script.hits == 2
    with cluster.intercept(OffsetFetchRequest, answer, times=2):
        assert await consumer.committed(T0) == 5


async def test_unstable_offsets_are_waited_for(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    await consumer.commit({T0: 5})
    cluster.intercept(OffsetFetchRequest, Fail(UnstableOffsetCommit), times=2)
    assert await consumer.committed(T0) == 5
    # Brokers say so only to those who ask for stable offsets.
    assert all(seen.request.require_stable for seen in cluster.requests(OffsetFetchRequest))


async def test_a_moved_coordinator_is_found(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t")
        consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
        for broker in (0, 1, 0):
            cluster.move_coordinator("group", "g", broker)
            await consumer.commit({T0: broker})
            assert await consumer.committed(T0) == broker


async def test_errors_that_do_not_pass_are_raised(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    consumer = await start(
        cluster,
        assign=[T0],
        group_id="g",
        enable_auto_commit=False,
        default_api_timeout_ms=200,
    )
    with cluster.intercept(OffsetCommitRequest, Fail(IllegalGenerationError)):
        with pytest.raises(CommitFailedError):
            await consumer.commit({T0: 1})
    with cluster.intercept(OffsetCommitRequest, Fail(GroupAuthorizationFailedError)):
        with pytest.raises(GroupAuthorizationFailedError):
            await consumer.commit({T0: 1})
    with cluster.intercept(FindCoordinatorRequest, Fail(GroupAuthorizationFailedError)):
        await consumer.commit({T0: 1})
    with cluster.intercept(OffsetCommitRequest, Fail(GroupLoadInProgressError)):
        with pytest.raises(KafkaTimeoutError, match="not committed"):
            await consumer.commit({T0: 1})


async def test_wrong_calls(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    for nonsense in ({}, [], 5):
        with pytest.raises(ValueError, match="offsets"):
            await consumer.commit(nonsense)  # type: ignore[arg-type]
    for bad in ({"t": 1}, {T0: (1, 2)}):
        with pytest.raises(TypeError):
            await consumer.commit(bad)  # type: ignore[arg-type]
    for offset in (-1, "1", (1,), None):
        with pytest.raises(ValueError, match="offset"):
            await consumer.commit({T0: offset})  # type: ignore[dict-item]
    with pytest.raises(IllegalStateError):
        await consumer.commit({T1: 1})
    loner = await start(cluster, assign=[T0])
    for call in (loner.commit(), loner.committed(T0), loner.seek_to_committed()):
        with pytest.raises(IllegalOperation):
            await call


@pytest.mark.parametrize("version", ["0.9", "0.11", "2.1", "2.8", "3.9"])
async def test_every_release(start: Start, version: str) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic("t")
        consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
        await consumer.commit({T0: 5})
        assert await consumer.committed(T0) == 5
        assert cluster.failures == []


# -- partitions that are given up ------------------------------------------------------------------


@pytest.mark.parametrize("way", ["assign", "unsubscribe", "subscribe", "stop"])
async def test_auto_commit_takes_along_what_was_finished_of_partitions_that_are_given_up(
    cluster: FakeCluster, start: Start, way: str
) -> None:
    """It looked at the partitions of now only: a program that goes through partitions one by one
    committed next to nothing."""
    await cluster.create_topic("t", partitions=2)
    await cluster.create_topic("u")
    fill(cluster, 0, 5)
    consumer = await start(cluster, assign=[T0, T1], group_id="g")
    await read(consumer, 5)
    fill(cluster, 1, 1)
    assert (await consumer.getone()).partition == 1
    if way == "assign":
        consumer.assign([T1])
    else:
        consumer.unsubscribe()
    if way == "subscribe":
        consumer.subscribe(["u"])
    elif way == "stop":
        await consumer.stop()
    await until(cluster, lambda: cluster.groups.committed("g", "t") == 5)
    # What is in hand counts as finished with `stop()` only.
    expected = {"assign": None, "stop": 1}.get(way, 0)
    assert cluster.groups.committed("g", "t", 1) == expected


async def test_partitions_that_come_back_are_not_committed_twice(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 5)
    consumer = await start(cluster, assign=[T0], group_id="g")
    await read(consumer, 5)
    assert await consumer.getmany() == {}
    consumer.assign([])
    consumer.assign([T0])
    await consumer.commit({T0: 2})
    await consumer.stop()
    assert cluster.groups.committed("g", "t") == 2
