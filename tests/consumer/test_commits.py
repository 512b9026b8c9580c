"""Commits and committed offsets: the commit queue, auto-commit, lookups, the connection."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, OffsetAndMetadata
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.consumer.group.commits import CommitQueue, QueuedCommit
from aiokafka.consumer.position.committed import (
    Identity,
    OffsetConnection,
    OffsetsToCommit,
)
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    GroupLoadInProgressError,
    IllegalGenerationError,
    IllegalOperation,
    IllegalStateError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    NotCoordinatorForGroupError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommit,
)
from aiokafka.net.connection import BrokerConnection
from aiokafka.protocol.messages.group_members import SyncGroupRequest, SyncGroupResponse
from aiokafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, T2, Start, fill, read
from tests.support.groups import until

# == Committed offsets of manually assigned partitions =============================================


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


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_manual_commit_to_a_group_with_members_names_the_cause(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    await cluster.create_topic("t", partitions=1)
    fill(cluster, 0, 1)
    await start(cluster, "t", group_id="g", group_protocol=protocol)
    alone = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    await read(alone, 1)
    with pytest.raises(CommitFailedError) as caught:
        await alone.commit()
    assert isinstance(caught.value.__cause__, UnknownMemberIdError)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert "UnknownMemberIdError. The group has members" in str(error)
        assert "max_poll_interval_ms" not in str(error)


async def test_a_read_after_a_commit_does_not_wait_for_other_tasks(
    cluster: FakeCluster, start: Start
) -> None:
    """They ran while the commit waited for its response."""
    await cluster.create_topic("t", partitions=1)
    fill(cluster, 0, 10)
    consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    await read(consumer, 1)
    cluster.intercept(OffsetCommitRequest, Delay(0.01))
    for number in range(1, 10):
        await consumer.commit()
        ran: list[int] = []
        asyncio.get_running_loop().call_soon(ran.append, number)
        assert await read(consumer, 1) == [(0, number)]
        assert not ran


@pytest.mark.real_time
async def test_reads_after_many_commits_let_other_tasks_run_soon(
    cluster: FakeCluster, start: Start
) -> None:
    """Each commit let them run, however long the work on its record took. Afterwards at
    most 31 records are returned without a look at the time: `FetchBuffer.pace` has then doubled
    the number five times, as for any reads."""
    await cluster.create_topic("t", partitions=1)
    fill(cluster, 0, 200)
    consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    for _ in range(50):
        await consumer.getone()
        await consumer.commit()
    loop = asyncio.get_running_loop()
    ran: list[int] = []
    loop.call_soon(ran.append, 0)
    for _ in range(32):
        await consumer.getone()
        busy_until = loop.time() + 0.002
        while loop.time() < busy_until:
            pass
    assert ran


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


async def test_auto_commit_leaves_out_what_each_of_two_waiting_tasks_got(
    cluster: FakeCluster, start: Start
) -> None:
    """Both called before the records came, so neither call says that a record is finished."""
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 1, 1)
    consumer = await start(cluster, assign=[T0, T1], group_id="g", auto_commit_interval_ms=20)
    assert await read(consumer, 1) == [(1, 0)]
    tasks = [asyncio.create_task(read(consumer, 1)) for _ in range(2)]
    await asyncio.sleep(0)
    fill(cluster, 0, 2, batch=2)
    assert await asyncio.gather(*tasks) == [[(0, 0)], [(0, 1)]]
    consumer.seek(T1, 0)
    # One commit has the offsets of both partitions.
    await cluster.wait_for(lambda: cluster.groups.committed("g", "t", 1) == 0)
    assert not cluster.groups.committed("g", "t", 0)
    assert await read(consumer, 1) == [(1, 0)]
    await cluster.wait_for(lambda: cluster.groups.committed("g", "t", 0) == 2)


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


@pytest.mark.parametrize("connection", ["assign", "unsubscribe", "subscribe", "stop"])
async def test_auto_commit_takes_along_what_was_finished_of_partitions_that_are_given_up(
    cluster: FakeCluster, start: Start, connection: str
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
    if connection == "assign":
        consumer.assign([T1])
    else:
        consumer.unsubscribe()
    if connection == "subscribe":
        consumer.subscribe(["u"])
    elif connection == "stop":
        await consumer.stop()
    await until(cluster, lambda: cluster.groups.committed("g", "t") == 5)
    # What is in hand counts as finished with `stop()` only.
    expected = {"assign": None, "stop": 1}.get(connection, 0)
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


# == Responses without a committed offset ==========================================================


Change = Callable[[OffsetFetchResponse], None]
GROUP: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}


def unknown(*partitions: int) -> Change:
    """UNKNOWN_TOPIC_OR_PARTITION for these partitions."""

    def change(response: OffsetFetchResponse) -> None:
        for topic in (response.groups[0] if response.groups else response).topics:
            for data in topic.partitions:
                if data.partition_index in partitions:
                    data.error_code, data.committed_offset = UnknownTopicOrPartitionError.errno, -1

    return change


def left_out(*partitions: int) -> Change:
    """A response without these partitions."""

    def change(response: OffsetFetchResponse) -> None:
        for topic in (response.groups[0] if response.groups else response).topics:
            topic.partitions = [p for p in topic.partitions if p.partition_index not in partitions]

    return change


def empty(response: OffsetFetchResponse) -> None:
    """A response without topics."""
    (response.groups[0] if response.groups else response).topics = []


ALL = [unknown(0, 1), unknown(1), left_out(0, 1), left_out(1), empty]
NAMES = ["all unknown", "one unknown", "all left out", "one left out", "no topics"]


async def make_topic(cluster: FakeCluster) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 3)
    fill(cluster, 1, 3)


@pytest.mark.parametrize("version", ["2.8", "4.3"])
@pytest.mark.parametrize("change", ALL, ids=NAMES)
async def test_the_reset_policy_applies_to_what_the_coordinator_does_not_know(
    start: Start, version: str, change: Change
) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await make_topic(cluster)
        cluster.intercept(OffsetFetchRequest, Edit(change))
        consumer = await start(cluster, "t", **GROUP)
        async with timeout(10):
            assert sorted(await read(consumer, 6)) == [(p, n) for p in (0, 1) for n in range(3)]
            assert await consumer.committed(T1) is None
            assert await consumer.seek_to_committed(T1) == {T1: None}


async def test_without_a_policy_the_application_is_told(cluster: FakeCluster, start: Start) -> None:
    await make_topic(cluster)
    cluster.intercept(OffsetFetchRequest, Edit(unknown(1)))
    consumer = await start(cluster, "t", **GROUP, auto_offset_reset="none")
    async with timeout(10):
        with pytest.raises(NoOffsetForPartitionError):
            await consumer.getone(T1)


@pytest.mark.parametrize("change", ALL, ids=NAMES)
async def test_an_offset_that_the_coordinator_finds_later_counts(
    cluster: FakeCluster, start: Start, change: Change
) -> None:
    """A coordinator may hear of a topic after others, and of the offsets in it at once."""
    await make_topic(cluster)
    first = await start(cluster, "t", **GROUP)
    await first.commit({T0: 2, T1: 1})
    await first.stop()
    async with timeout(10):
        script = cluster.intercept(OffsetFetchRequest, Edit(change), times=3)
        second = await start(cluster, "t", **GROUP)
        assert sorted(await read(second, 3)) == [(0, 2), (1, 1), (1, 2)]
        assert script.hits == 3
        cluster.intercept(OffsetFetchRequest, Edit(change), times=3)
        assert await second.committed(T1) == 1


async def test_an_unknown_partition_does_not_hold_up_the_others(
    cluster: FakeCluster, start: Start
) -> None:
    await make_topic(cluster)
    cluster.intercept(OffsetFetchRequest, Edit(unknown(1)))
    consumer = await start(cluster, "t", **GROUP, retry_backoff_ms=60_000)
    async with timeout(10):
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("version", ["0.10.2", "2.8", "4.3"])
@pytest.mark.parametrize("change", ALL, ids=NAMES)
async def test_admin_calls_find_no_offset(version: str, change: Change) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await make_topic(cluster)
        cluster.intercept(OffsetFetchRequest, Edit(change))
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        async with timeout(10), admin:
            found = await admin.list_consumer_group_offsets("g", partitions=[T0, T1])
            assert {tp: offset.offset for tp, offset in found.items()} == {T0: -1, T1: -1}
            assert await admin.groups.offsets({"g": [T0, T1]}) == {"g": {T0: None, T1: None}}


# == Offsets of idle partitions are committed again before they expire =============================


HOUR_MS = 3_600_000


def test_auto_commit_keeps_the_offset_of_a_quiet_partition() -> None:
    """It was stored once. Of a consumer that is no member a broker drops it after
    `offsets.retention.minutes`: the next start began where the reset policy says."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 5)
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                fetch_max_wait_ms=60_000,
            )
            consumer.assign([T0])
            async with consumer:
                await read(consumer, 5)
                assert await consumer.getmany(timeout_ms=HOUR_MS / 2) == {}
                assert cluster.groups.committed("g", "t") == 5
                commits = cluster.count(OffsetCommitRequest)
                cluster.groups.offsets_of("g").delete(("t", 0))
                assert await consumer.getmany(timeout_ms=2 * HOUR_MS) == {}
                assert cluster.groups.committed("g", "t") == 5
                assert cluster.count(OffsetCommitRequest) == commits + 2

    simulate(main, limit_s=20_000)


# == The commit queue ==============================================================================


class Line:
    """Commits that wait in tasks, and the order in which their turn came."""

    def __init__(self) -> None:
        self.queue = CommitQueue()
        self.came: list[QueuedCommit] = []

    def join(self, *partitions: object) -> tuple[QueuedCommit, asyncio.Task[bool]]:
        """A commit, and the task that waits for its turn."""
        turn = self.queue.add(partitions)  # type: ignore[arg-type]
        return turn, asyncio.create_task(self._wait(turn))

    async def _wait(self, turn: QueuedCommit) -> bool:
        found = await self.queue.wait(turn, None)
        self.came.append(turn)
        return found


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_each_waits_for_those_of_its_partitions_only() -> None:
    line = Line()
    first, _ = line.join(T0)
    other, _ = line.join(T1)
    both, _ = line.join(T0, T1)
    free, _ = line.join(T2)
    await settle()
    assert line.came == [first, other, free]
    line.queue.remove(first)
    await settle()
    assert both not in line.came
    line.queue.remove(other)
    await settle()
    assert line.came[-1] is both
    for turn in (both, free):
        line.queue.remove(turn)
    assert not line.queue


@pytest.mark.parametrize("comes_after", [True, False])
async def test_behind_one_that_has_not_waited_comes_nobody_earlier(comes_after: bool) -> None:
    """1. The first is sent. 2. The second is cancelled. 3. The third must not overtake the first,
    whether it was called before the second was cancelled or after."""
    line = Line()
    first, _ = line.join(T0)
    second, waiting = line.join(T0, T1)
    if not comes_after:
        third, _ = line.join(T0)
    await settle()
    waiting.cancel()
    line.queue.remove(second)
    if comes_after:
        third, _ = line.join(T0)
    elsewhere, _ = line.join(T1)
    await settle()
    assert line.came == [first, elsewhere]
    line.queue.remove(first)
    await settle()
    assert line.came == [first, elsewhere, third]


async def test_a_turn_that_does_not_come_in_time() -> None:
    line = Line()
    line.join(T0)
    late = line.queue.add([T0])
    assert not await line.queue.wait(late, asyncio.get_running_loop().time())


async def test_a_thousand_commits_of_one_partition() -> None:
    """Each end of one wakes the next one alone."""
    line = Line()
    turns = [line.join(T0)[0] for _ in range(1000)]
    for turn in turns:
        await settle()
        assert line.came[-1] is turn
        line.queue.remove(turn)
    assert line.came == turns
    assert not any(turn.before for turn in turns)


# == The connection that carries commits ===========================================================


FAR = 2.0**40  # a deadline


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[AIOKafkaClient]:
    await cluster.create_topic("t")
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
    await client.bootstrap()
    yield client
    await client.close()


@pytest.fixture
async def shared(client: AIOKafkaClient) -> BrokerConnection:
    """The connection of the membership."""
    return await client.connection(0, ConnectionGroup.COORDINATION)


def commit(
    connection: OffsetConnection, offset: int, deadline: float = FAR
) -> asyncio.Task[object]:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )
    offsets = OffsetsToCommit({T0: OffsetAndMetadata(offset)}, {}, Identity())
    sent = connection.commit(offsets, deadline, lambda *_: request, lambda *_: None, 0)
    return asyncio.get_running_loop().create_task(sent)


def synchronise(connection: BrokerConnection) -> asyncio.Future[SyncGroupResponse]:
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])
    return connection.send_nowait(request)


@pytest.mark.parametrize("order", [(3, 5, 4), (5, 4, 3)])
def test_each_commit_ends_at_its_own_deadline(order: tuple[int, ...]) -> None:
    """One timer serves all of them, and the connection stays open for their late responses."""

    async def main(_: Simulation) -> None:
        loop = asyncio.get_running_loop()
        ended: dict[int, float] = {}
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
                shared = await client.connection(0, ConnectionGroup.COORDINATION)
                connection = OffsetConnection(client, (SyncGroupRequest,))
                answers, began = asyncio.Event(), loop.time()

                async def attempt(seconds: int) -> None:
                    with pytest.raises(asyncio.TimeoutError):
                        await commit(connection, seconds, began + seconds)
                    ended[seconds] = loop.time() - began

                with cluster.intercept(OffsetCommitRequest, Hold(answers)):
                    await asyncio.gather(*map(attempt, order))
                    assert shared.in_flight == 3
                    answers.set()
                    await until(cluster, lambda: not shared.in_flight)
                await commit(connection, 9, loop.time() + 5)
                assert shared.is_open
                assert cluster.groups.committed("g", "t") == 9
                connection.close()
        assert ended == {seconds: pytest.approx(seconds, abs=0.1) for seconds in order}

    simulate(main)


async def test_a_membership_that_waits_for_nothing_shares_its_connection(
    cluster: FakeCluster, client: AIOKafkaClient, shared: BrokerConnection
) -> None:
    connection = OffsetConnection(client, (SyncGroupRequest,))
    opened = cluster.connections
    await commit(connection, 1)
    assert await connection.select(0, FAR) is shared
    assert cluster.groups.committed("g", "t") == 1
    assert cluster.connections == opened


async def test_a_commit_passes_what_the_coordinator_keeps(
    cluster: FakeCluster, client: AIOKafkaClient, shared: BrokerConnection
) -> None:
    connection = OffsetConnection(client, (SyncGroupRequest,))
    others_sync = asyncio.Event()
    with cluster.intercept(SyncGroupRequest, Hold(others_sync)):
        sync = synchronise(shared)
        await commit(connection, 1)
        assert cluster.groups.committed("g", "t") == 1
        assert not sync.done()
        # The response to one that was cancelled is still due.
        sync.cancel()
        assert await connection.select(0, FAR) is not shared
        others_sync.set()
        await until(cluster, lambda: not shared.in_flight)
    assert await connection.select(0, FAR) is shared


async def test_no_commit_passes_a_cancelled_one_before_a_join(
    cluster: FakeCluster, client: AIOKafkaClient, shared: BrokerConnection
) -> None:
    connection = OffsetConnection(client, (SyncGroupRequest,))
    is_over = asyncio.Event()
    with cluster.intercept(OffsetCommitRequest, Hold(is_over), times=1) as script:
        first = commit(connection, 1)
        await script.wait()
        first.cancel()
        sync = synchronise(shared)
        second = commit(connection, 2)
        await until(cluster, lambda: shared.in_flight == 3)
        is_over.set()
        await asyncio.wait([sync])
        await second
    assert cluster.groups.committed("g", "t") == 2


async def test_no_commit_passes_a_cancelled_one_after_a_join(
    cluster: FakeCluster, client: AIOKafkaClient, shared: BrokerConnection
) -> None:
    connection = OffsetConnection(client, (SyncGroupRequest,))
    is_over, others_sync = asyncio.Event(), asyncio.Event()
    with cluster.intercept(SyncGroupRequest, Hold(others_sync)):
        sync = synchronise(shared)
        with cluster.intercept(OffsetCommitRequest, Hold(is_over), times=1) as script:
            first = commit(connection, 1)
            await script.wait()
            first.cancel()
            others_sync.set()
            await asyncio.wait([sync])
            aside = await connection.select(0, FAR)
            assert aside is not shared
            second = commit(connection, 2)
            await until(cluster, lambda: aside.in_flight == 2)
            is_over.set()
            await second
    assert cluster.groups.committed("g", "t") == 2


async def test_no_commit_passes_one_that_a_throttled_connection_sends_later(
    cluster: FakeCluster, client: AIOKafkaClient, shared: BrokerConnection
) -> None:
    def throttle(response: OffsetCommitResponse) -> None:
        response.throttle_time_ms = 3_600_000

    connection = OffsetConnection(client, (SyncGroupRequest,))
    others_sync = asyncio.Event()
    with cluster.intercept(SyncGroupRequest, Hold(others_sync)):
        sync = synchronise(shared)
        aside = await connection.select(0, FAR)
        with cluster.intercept(OffsetCommitRequest, Edit(throttle), times=1):
            await commit(connection, 1)
        second = commit(connection, 2)
        others_sync.set()
        await sync
        assert not aside.in_flight
        assert await connection.select(0, FAR) is aside
        second.cancel()
        await asyncio.wait([second])
    assert await connection.select(0, FAR) is shared
