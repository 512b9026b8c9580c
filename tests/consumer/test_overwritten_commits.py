"""Commits that the coordinator carries out when it has confirmed later ones already."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka._compat import timeout
from aiokafka.errors import KafkaTimeoutError, UnstableOffsetCommit
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest
from aiokafka.testing import Fail, FakeCluster, Hold
from aiokafka.testing.groups import CommittedOffset
from tests.support.consumers import T0, T1, Start, fill, read
from tests.support.groups import Log, until

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer", "assign"])
OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "enable_auto_commit": False,
    "request_timeout_ms": 500,
    "default_api_timeout_ms": 2000,
    "max_poll_interval_ms": 3_600_000,
}


@pytest.fixture
async def topic(cluster: FakeCluster) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 20)


async def begin(
    start: Start, cluster: FakeCluster, protocol: str, **options: Any
) -> AIOKafkaConsumer:
    options = {**OPTIONS, **options}
    if protocol == "assign":
        consumer = await start(cluster, assign=[T0, T1], **options)
    else:
        consumer = await start(cluster, "t", group_protocol=protocol, **options)
    # So it has its positions, and looks up what is stored for nothing else.
    assert len(await read(consumer, 3)) == 3
    return consumer


def stored(cluster: FakeCluster) -> int | None:
    return cluster.groups.committed("g", "t")


async def overtaken(cluster: FakeCluster, commit: Any) -> asyncio.Event:
    """Let the time for the first commit be over; returns the event with which the broker carries it
    out."""
    late = asyncio.Event()
    held = cluster.intercept(OffsetCommitRequest, Hold(late), times=1)
    await commit()
    assert held.hits == 1
    return late


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_the_later_commit_of_a_program_wins(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    consumer = await begin(start, cluster, protocol)
    # The call itself sends it again, after the time for the first response.
    late = await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    await consumer.commit({T0: (8, "newer")})
    late.set()
    await until(cluster, lambda: stored(cluster) == 5)
    await until(cluster, lambda: stored(cluster) == 8)
    found = await consumer.committed_offsets([T0])
    assert found[T0] is not None and found[T0].metadata == "newer"


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_auto_commit_wins(cluster: FakeCluster, start: Start, protocol: str) -> None:
    """The position does not move any more, so that nothing else would commit it again."""
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    consumer = await begin(start, cluster, protocol, **options)
    late = asyncio.Event()
    held = cluster.intercept(OffsetCommitRequest, Hold(late), times=1)
    assert len(await read(consumer, 2)) == 2
    assert not await consumer.getmany(T1)
    await until(cluster, lambda: held.hits)
    assert len(await read(consumer, 5)) == 5
    assert not await consumer.getmany(T1)
    await until(cluster, lambda: stored(cluster) == 10)
    late.set()
    await until(cluster, lambda: stored(cluster) == 5)
    await until(cluster, lambda: stored(cluster) == 10)


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_the_last_commit_wins(cluster: FakeCluster, start: Start, protocol: str) -> None:
    """It is `stop()` that commits last, and the older commit comes before the group is left."""
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 60_000}
    consumer = await begin(start, cluster, protocol, **options)
    late = await overtaken(cluster, lambda: consumer.commit({T0: 5}))

    async def carry_out(request: Any, context: Any) -> None:
        late.set()
        await until(cluster, lambda: stored(cluster) == 5)

    assert len(await read(consumer, 7)) == 7
    # Before the look at what is stored.
    cluster.intercept(OffsetFetchRequest, carry_out, times=1)
    await consumer.stop()
    assert late.is_set()
    assert stored(cluster) == 10


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.usefixtures("topic")
async def test_after_the_goodbye_the_coordinator_refuses_it(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 60_000}
    consumer = await begin(start, cluster, protocol, **options)
    late = await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    assert len(await read(consumer, 7)) == 7
    await consumer.stop()
    late.set()
    await asyncio.sleep(60)
    assert stored(cluster) == 10


@pytest.mark.usefixtures("topic")
async def test_without_a_goodbye_stop_looks_a_moment_later(
    cluster: FakeCluster, start: Start
) -> None:
    consumer = await begin(start, cluster, "assign")
    late = await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    await consumer.commit({T0: 10})
    asyncio.get_running_loop().call_later(0.5, late.set)
    await consumer.stop()
    assert late.is_set()
    assert stored(cluster) == 10


@pytest.mark.usefixtures("topic")
async def test_stop_looks_soon_however_long_ago_the_commit_was(
    cluster: FakeCluster, start: Start
) -> None:
    consumer = await begin(start, cluster, "assign")
    await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    await consumer.commit({T0: 10})
    await asyncio.sleep(30)
    async with timeout(2):
        await consumer.stop()


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_a_response_settles_nothing_that_went_over_another_connection(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """The same offset was sent a second time, which is cancelled: only that one is settled."""
    consumer = await begin(start, cluster, protocol)
    late, slow = asyncio.Event(), asyncio.Event()
    first = cluster.intercept(OffsetCommitRequest, Hold(late), times=1)
    commit = asyncio.ensure_future(consumer.commit({T0: 5}))
    await until(cluster, lambda: first.hits)
    second = cluster.intercept(OffsetCommitRequest, Hold(slow), times=1)
    await until(cluster, lambda: second.hits)
    commit.cancel()
    await asyncio.wait([commit])
    later = asyncio.ensure_future(consumer.commit({T0: 8}))
    await asyncio.sleep(0.1)
    slow.set()
    await later
    assert stored(cluster) == 8
    late.set()
    await until(cluster, lambda: stored(cluster) == 5)
    await until(cluster, lambda: stored(cluster) == 8)


@pytest.mark.usefixtures("topic")
async def test_the_last_commit_before_a_rebalance_wins(cluster: FakeCluster, start: Start) -> None:
    class Late(Log):
        """Is told when the older commit may be carried out."""

        async def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                late.set()
                await until(cluster, lambda: stored(cluster) == 5)

    consumer = await start(
        cluster, **{**OPTIONS, "enable_auto_commit": True, "auto_commit_interval_ms": 60_000}
    )
    consumer.subscribe(["t"], listener=Late())
    assert len(await read(consumer, 3)) == 3
    late = await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    assert len(await read(consumer, 7)) == 7
    assert not await consumer.getmany(T1)
    cluster.groups.rebalance("g")
    await until(cluster, late.is_set)
    # By where it goes on: what the group has stored, in the next generation.
    assert (await read(consumer, 1))[0] == (0, 10)
    assert stored(cluster) == 10


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_what_others_have_stored_stays(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """An operator, or another program if the partitions are no member's."""
    consumer = await begin(start, cluster, protocol)
    await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    await consumer.commit({T0: 8})
    cluster.groups.offsets_of("g").commit(("t", 0), CommittedOffset(7))
    looks = cluster.count(OffsetFetchRequest)
    await until(cluster, lambda: cluster.count(OffsetFetchRequest) > looks + 2)
    assert stored(cluster) == 7


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_an_older_commit_stays_if_no_later_one_is_confirmed(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    consumer = await begin(start, cluster, protocol)
    await consumer.commit({T0: 3})
    late = asyncio.Event()
    with cluster.intercept(OffsetCommitRequest, Hold(late)), pytest.raises(KafkaTimeoutError):
        await consumer.commit({T0: 5})
    late.set()
    await until(cluster, lambda: stored(cluster) == 5)
    await asyncio.sleep(60)
    assert stored(cluster) == 5


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_commits_do_not_wait_for_a_look(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """Which takes long while a transaction with offsets of the group is open."""
    options = {"request_timeout_ms": 5000, "default_api_timeout_ms": 20_000}
    consumer = await begin(start, cluster, protocol, **options)
    await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    await consumer.commit({T0: 8})
    unstable = cluster.intercept(OffsetFetchRequest, Fail(UnstableOffsetCommit))
    await until(cluster, lambda: unstable.hits)
    async with timeout(1):
        await consumer.commit({T0: 9})
    assert stored(cluster) == 9
    unstable.remove()


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_it_looks_less_and_less_often_and_then_no_more(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    consumer = await begin(start, cluster, protocol)
    await overtaken(cluster, lambda: consumer.commit({T0: 5}))
    await consumer.commit({T0: 8})
    before = cluster.count(OffsetFetchRequest)
    await asyncio.sleep(600)
    looks = cluster.count(OffsetFetchRequest) - before
    assert 5 <= looks <= 20
    await consumer.commit({T0: 9})
    await asyncio.sleep(600)
    assert cluster.count(OffsetFetchRequest) - before == looks


@PROTOCOLS
@pytest.mark.usefixtures("topic")
async def test_nothing_is_looked_up_while_every_commit_gets_its_response(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    options = {"request_timeout_ms": 40_000}
    consumer = await begin(start, cluster, protocol, **options)
    before = cluster.count(OffsetFetchRequest)
    slow = asyncio.Event()
    with cluster.intercept(OffsetCommitRequest, Hold(slow), times=1):
        with pytest.raises(asyncio.TimeoutError):
            async with timeout(1):
                await consumer.commit({T0: 4})
        # Behind the cancelled one, over the same connection.
        commit = asyncio.ensure_future(consumer.commit({T0: 5}))
        await asyncio.sleep(1)
        slow.set()
        await commit
    await asyncio.sleep(60)
    assert stored(cluster) == 5
    assert cluster.count(OffsetFetchRequest) == before
