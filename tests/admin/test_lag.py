"""How far groups are behind."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.admin import GroupState
from aiokafka.errors import (
    AdminItemsError,
    GroupIdNotFound,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages.fetch import FetchRequest, ListOffsetsRequest
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import Edit, Fail, FakeCluster, Silence
from tests.admin.support import (
    FIRST,
    SECOND,
    START,
    THIRD,
    commit,
    filled,
    joined,
    make_admin,
    member,
    simulated,
)

HOUR = 3_600_000


async def test_the_lag_of_a_group_without_members() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 4, SECOND: 0, THIRD: 10})
        found = (await admin.groups.lag(["g"]))["g"]
        assert (found.state, found.lag) == (GroupState.EMPTY, 16)
        assert list(found.partitions) == [FIRST, SECOND, THIRD]
        first, second, third = found.partitions.values()
        assert (first.committed, first.start_offset, first.end_offset) == (4, 2, 10)
        assert (first.stable_offset, first.lag, first.stable_lag, first.lost) == (10, 6, 6, 0)
        assert first.unread_since == START + 4000
        assert (second.lag, second.lost, second.unread_since) == (10, 2, START + 2000)
        assert (third.lag, third.unread_since, third.time_lag_ms) == (0, None, 0)
        assert first.owner is None
        assert first.time_lag_ms is not None
        assert second.time_lag_ms is not None
        assert second.time_lag_ms - first.time_lag_ms == 2000
        assert found.time_lag_ms == second.time_lag_ms > HOUR
        plain = json.loads(json.dumps(found.as_dict()))
        assert plain["partitions"]["t-0"]["lag"] == 6


async def test_a_call_that_is_cancelled_before_its_first_request_leaves_no_coroutine() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 4})
        task = asyncio.ensure_future(admin.groups.lag(["g"]))
        await asyncio.sleep(0)  # the call has made the tasks of its requests, which have not begun
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_members_own_partitions_that_have_no_offset_yet() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        async with member(cluster, "g", "t", enable_auto_commit=False) as consumer:
            await joined(cluster, consumer, 3)
            await consumer.commit({SECOND: 10})
            first, second, _ = (await admin.groups.lag(["g"]))["g"].partitions.values()
            assert first.owner is not None
            assert first.owner.client_id == "client-of-g"
            assert first.owner == second.owner
            assert (first.committed, first.lag, first.time_lag_ms) == (None, None, None)
            assert (first.end_offset, second.lag) == (10, 0)


async def test_an_open_transaction_is_the_end_for_some() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 4})
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id="x"
        ) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"value", partition=0)
            (found,) = (await admin.groups.lag(["g"]))["g"].partitions.values()
            assert (found.end_offset, found.stable_offset) == (11, 10)
            assert (found.lag, found.stable_lag) == (7, 6)
            await producer.abort_transaction()


@pytest.mark.parametrize(("until", "lag", "lost", "waits"), [(10, 6, 6, False), (9, 6, 5, True)])
async def test_records_that_are_deleted_do_not_wait(
    until: int, lag: int, lost: int, waits: bool
) -> None:
    """A group that has nothing left to read is not late, how far behind it may be."""
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 4})
        cluster.log("t", 0).delete_before(until)
        found = (await admin.groups.lag(["g"]))["g"]
        (only,) = found.partitions.values()
        assert (only.lag, only.lost) == (lag, lost)
        assert only.unread_since == (START + 9000 if waits else None)
        assert only.time_lag_ms is not None
        assert found.time_lag_ms == only.time_lag_ms
        assert only.time_lag_ms > HOUR if waits else only.time_lag_ms == 0


async def test_several_groups_at_several_places_of_a_partition() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        groups = [f"g{number}" for number in range(4)]
        for number, group in enumerate(groups):
            await commit(cluster, group, {FIRST: 3 + number, SECOND: 5})
        found = await admin.groups.lag(groups)
        assert [found[group].partitions[FIRST].unread_since for group in groups] == [
            START + 1000 * offset for offset in (3, 4, 5, 6)
        ]
        assert {found[group].partitions[SECOND].unread_since for group in groups} == {START + 5000}
        assert (await admin.groups.lag(groups, times=False))["g0"].time_lag_ms is None


async def test_large_batches_come_one_by_one() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=5)
        for partition in range(5):
            items = [(None, bytes(50_000), ())]
            cluster.log("t", partition).extend(items, timestamp_ms=START + partition)
        await commit(cluster, "g", {TopicPartition("t", number): 0 for number in range(5)})
        cluster.forget_requests()
        found = (await admin.groups.lag(["g"]))["g"]
        times = [each.unread_since for each in found.partitions.values()]
        assert times == [START + partition for partition in range(5)]
        # The last fetch of what has committed may come behind its end.
        fetches = [f for f in cluster.requests(FetchRequest) if f.context.client_id != "commits"]
        assert len(fetches) == 5


@pytest.mark.parametrize("version", ["0.10.2", "2.8", "3.9"])
async def test_old_brokers(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 4, SECOND: 10})
        found = (await admin.groups.lag(["g"]))["g"]
        assert found.lag == 6
        assert found.partitions[FIRST].unread_since == START + 4000


async def test_a_topic_that_is_gone_is_not_waited_for() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 4})

        def add(response: Any) -> None:
            response.groups[0].topics[0].name = "gone"

        cluster.intercept(OffsetFetchRequest, Edit(add))
        (found,) = (await admin.groups.lag(["g"]))["g"].partitions.values()
        assert isinstance(found.error, UnknownTopicOrPartitionError)
        assert (found.committed, found.end_offset, found.lag) == (4, None, None)


async def test_one_group_that_is_not_there_leaves_the_others() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 4})
        with pytest.raises(AdminItemsError) as caught:
            await admin.groups.lag(["g", "missing"])
        assert isinstance(caught.value.errors["missing"], GroupIdNotFound)
        assert caught.value.results["g"].lag == 6
        with pytest.raises(GroupIdNotFound):
            await admin.groups.lag(["missing"])
        assert await admin.groups.lag([]) == {}


async def test_leaders_that_move_meanwhile() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 4, SECOND: 5})
        cluster.intercept(ListOffsetsRequest, Fail(NotLeaderForPartitionError), times=2)
        cluster.intercept(FetchRequest, Fail(NotLeaderForPartitionError), times=1)
        found = (await admin.groups.lag(["g"]))["g"]
        assert [each.unread_since for each in found.partitions.values()] == [
            START + 4000,
            START + 5000,
        ]


async def test_records_that_cannot_be_read_leave_the_time_open() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 4, SECOND: 5})
        cluster.log("t", 0).corrupt(4)
        first, second = (await admin.groups.lag(["g"]))["g"].partitions.values()
        assert (first.lag, first.unread_since, first.time_lag_ms) == (6, None, None)
        assert second.unread_since == START + 5000


async def test_partitions_that_were_not_asked_for_are_not_taken() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        await commit(cluster, "g", {FIRST: 4})

        def other(response: Any) -> None:
            response.responses[0].partitions[0].partition_index = 77

        cluster.intercept(FetchRequest, Edit(other))
        (found,) = (await admin.groups.lag(["g"]))["g"].partitions.values()
        assert (found.lag, found.unread_since) == (6, None)


@simulated
async def test_times_of_other_partitions_are_read_though_a_broker_gives_no_records() -> None:
    """Of all groups, also of those that are at other places than the first."""
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await filled(cluster)
        for group, offset in (("g", 4), ("h", 6)):
            await commit(cluster, group, {FIRST: offset, SECOND: offset, THIRD: offset})
        silent = cluster.state.topics["t"].partitions[1].leader
        cluster.intercept(FetchRequest, Silence(), broker=silent)
        for lag in (await admin.groups.lag(["g", "h"])).values():
            since = {tp: each.unread_since is not None for tp, each in lag.partitions.items()}
            assert since == {FIRST: True, SECOND: False, THIRD: True}
