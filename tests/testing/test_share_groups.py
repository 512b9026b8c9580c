"""Share groups on the fake cluster: locks over time, leaders that move, sessions that end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError
from aiokafka.protocol.messages.share_groups import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from aiokafka.testing import Fail, FakeCluster
from aiokafka.testing.share_group import assign, java_hash
from aiokafka.testing.share_partition_manager import seconds_of

from .share_dialogue import (
    ACCEPT,
    FINAL,
    LEAVING,
    REJECT,
    RELEASE,
    RENEW,
    Place,
    ShareMember,
    settled,
    taken,
)
from .support import RawClient

EMPTY: list[Any] = []
LOCK = 30.0
GROUP = "g"


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    config = {"group.share.record.lock.duration.ms": LOCK * 1000}
    async with FakeCluster(2, config={k: int(v) for k, v in config.items()}) as started:
        started.move_coordinator("group", GROUP, 0)
        started.state.other_configs[32, GROUP] = {"share.auto.offset.reset": "earliest"}
        await started.create_topic("t", assignment={0: [0, 1]})
        yield started
        assert started.failures == []


@pytest.fixture
async def place(cluster: FakeCluster) -> Place:
    return cluster.state.topics["t"].topic_id, 0


class Members:
    """Members with a connection each, to a broker of choice."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.clients: list[RawClient] = []

    async def connect(self, member: ShareMember, broker: int) -> None:
        """Connect a member to another broker, where it has no session."""
        member.client = await RawClient(self.cluster.address(broker)).__aenter__()
        member.session_epoch = 0
        self.clients.append(member.client)

    async def __call__(self, member_id: str, broker: int = 0) -> ShareMember:
        """Return a joined member, without a session."""
        member = ShareMember(RawClient(""), GROUP, member_id)
        await self.connect(member, broker=0)
        await member.join("t")
        if broker:
            await self.connect(member, broker)
        return member


@pytest.fixture
async def members(cluster: FakeCluster) -> AsyncIterator[Members]:
    made = Members(cluster)
    yield made
    for client in made.clients:
        client.writer.close()


def fill(cluster: FakeCluster, *sizes: int) -> None:
    for size in sizes:
        cluster.log("t").extend([(None, b"x", ())] * size)


def now() -> float:
    return asyncio.get_running_loop().time()


def ranges(found: list[Any]) -> list[Any]:
    """The acquired ranges of the only partition; the error if there is one."""
    if not found or not isinstance(found[0], tuple):
        return found
    [(_, errno, _, acquired, _)] = found
    return [errno] if errno else acquired


# -- Locks


async def test_a_lock_times_out_after_its_duration(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 2, 2)
    one, two = await members("one"), await members("two")
    assert ranges(await one.take(place)) == [(0, 3, 1)]
    started = now()
    assert ranges(await two.take(place, max_wait_ms=60_000)) == [(0, 3, 2)]
    assert now() - started == pytest.approx(LOCK, abs=0.1)
    assert await one.settle(place, (0, 3, ACCEPT)) == [(0, 121)]
    assert await two.settle(place, (0, 3, ACCEPT)) == [(0, 0)]


async def test_a_renewed_lock_times_out_later(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 2)
    one, two = await members("one"), await members("two")
    assert ranges(await one.take(place)) == [(0, 1, 1)]
    started = now()
    for _ in range(5):
        await asyncio.sleep(LOCK - 1)
        assert await one.settle(place, (0, 0, RENEW), renews=True) == [(0, 0)]
    assert ranges(await two.take(place, max_wait_ms=1)) == [(1, 1, 2)]
    assert ranges(await two.take(max_wait_ms=60_000)) == [(0, 0, 2)]
    assert now() - started == pytest.approx(5 * (LOCK - 1) + LOCK, abs=0.1)


async def test_a_record_that_times_out_is_archived_after_the_last_delivery(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 1)
    one = await members("one")
    counts = []
    found = await one.take(place)
    while found:
        counts.append(ranges(found))
        found = await one.take(max_wait_ms=int(2 * LOCK * 1000))
    assert counts == [[(0, 0, count)] for count in range(1, 6)]
    fill(cluster, 1)
    assert ranges(await one.take()) == [(1, 1, 1)]


async def test_a_released_record_wakes_a_waiting_member(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 3)
    one, two = await members("one"), await members("two")
    await one.take(place)
    await two.take(place)
    started = now()
    waiting = asyncio.create_task(two.take(max_wait_ms=20_000))
    await asyncio.sleep(5)
    await one.settle(place, (1, 1, RELEASE))
    assert ranges(await waiting) == [(1, 1, 2)]
    assert now() - started == pytest.approx(5, abs=0.1)


async def test_a_new_record_wakes_a_waiting_member(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    one = await members("one")
    await one.take(place)
    waiting = asyncio.create_task(one.take(max_wait_ms=20_000))
    await asyncio.sleep(5)
    fill(cluster, 1)
    assert ranges(await waiting) == [(0, 0, 1)]


async def test_a_changed_delivery_limit_applies_to_records_in_flight(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 1, 1)
    one = await members("one")
    await one.take(place)
    cluster.state.other_configs[32, GROUP]["share.delivery.count.limit"] = "1"
    await one.settle(place, (0, 0, RELEASE))
    assert await one.take() == EMPTY
    cluster.state.other_configs[32, GROUP]["share.delivery.count.limit"] = "2"
    await one.settle(place, (1, 1, RELEASE))
    assert ranges(await one.take()) == [(1, 1, 2)]


async def test_events_tell_what_became_of_records(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 3)
    one = await members("one")
    await one.take(place)
    await one.settle(place, (0, 2, ACCEPT, RELEASE, REJECT))
    await one.take()
    assert cluster.groups.share_start(GROUP, "t") == 1
    await one.settle(place, (1, 1, RENEW), renews=True)
    await asyncio.sleep(2 * LOCK)
    await one.take()
    cluster.move_leader(("t", 0), 1)
    await one.take()
    told = [(e.kind, e.first, e.last, e.count) for e in cluster.groups.share_events(GROUP)]
    assert told == [
        ("acquired", 0, 2, 1),
        ("accepted", 0, 0, 1),
        ("released", 1, 1, 1),
        ("rejected", 2, 2, 1),
        ("acquired", 1, 1, 2),
        ("renewed", 1, 1, 2),
        ("timed out", 1, 1, 2),
        ("acquired", 1, 1, 3),
        ("lost", 1, 1, 3),
    ]
    assert cluster.groups.share_start(GROUP, "t") == 1
    assert cluster.groups.share_start("nobody", "t") == -1
    with pytest.raises(KeyError):
        cluster.groups.share_start(GROUP, "t", 7)


# -- Leaders


async def test_the_next_leader_continues_without_the_locks(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 2, 2, 2)
    one = await members("one")
    assert ranges(await one.take(place)) == [(0, 5, 1)]
    await one.settle(place, (0, 1, ACCEPT), (3, 3, RELEASE), (5, 5, REJECT))
    cluster.move_leader(("t", 0), 1)
    moved = await one.fetch()
    [part] = moved.responses[0].partitions
    assert part.error_code == NotLeaderForPartitionError.errno
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (1, 1)
    assert [node.node_id for node in moved.node_endpoints] == [1]
    refused = await one.acknowledge({place: [(2, 2, ACCEPT)]})
    assert settled(refused) == [(0, UnknownTopicOrPartitionError.errno)]
    assert refused.node_endpoints == []
    await members.connect(one, broker=1)
    # Acquisitions are not stored: only the released record has a delivery count.
    assert ranges(await one.take(place)) == [(2, 2, 1), (3, 3, 2), (4, 4, 1)]
    assert await one.settle(place, (2, 4, ACCEPT)) == [(0, 0)]
    fill(cluster, 1)
    assert ranges(await one.take()) == [(6, 6, 1)]


async def test_the_next_leader_passes_acknowledged_records_after_a_gap(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    """Although they are more than may be locked at once."""
    cluster.state.other_configs[32, GROUP]["share.partition.max.record.locks"] = "5"
    fill(cluster, 2, 12, 1)
    one = await members("one")
    assert ranges(await one.take(place, max_records=5)) == [(0, 13, 1)]
    assert await one.settle(place, (2, 13, ACCEPT)) == [(0, 0)]
    cluster.move_leader(("t", 0), 1)
    await members.connect(one, broker=1)
    assert ranges(await one.take(place)) == [(0, 1, 1)]
    assert await one.settle(place, (0, 1, ACCEPT)) == [(0, 0)]
    assert ranges(await one.take()) == [(14, 14, 1)]


async def test_deleted_records_do_not_hold_back_the_start_offset(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 2, 4)
    one = await members("one")
    assert ranges(await one.take(place)) == [(0, 5, 1)]
    assert await one.settle(place, (0, 1, RELEASE), (2, 5, ACCEPT)) == [(0, 0)]
    assert cluster.groups.share_start(GROUP, "t") == 0
    cluster.log("t").delete_before(2)
    assert await one.take() == EMPTY
    assert cluster.groups.share_start(GROUP, "t") == 6


async def test_the_next_leader_looks_for_no_gaps_in_deleted_records(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 3, 3)
    one = await members("one")
    assert ranges(await one.take(place)) == [(0, 5, 1)]
    assert await one.settle(place, (3, 5, ACCEPT)) == [(0, 0)]
    cluster.move_leader(("t", 0), 1)
    cluster.log("t").delete_before(2)
    await members.connect(one, broker=1)
    assert ranges(await one.take(place)) == []  # the log start is noticed
    assert ranges(await one.take()) == [(2, 2, 1)]
    cluster.log("t").delete_before(3)
    fill(cluster, 1)
    assert ranges(await one.take()) == [(6, 6, 1)]


async def test_deleted_records_inside_a_batch_are_not_acquired(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    """Although a batch before them is still acquired."""
    fill(cluster, 2, 6)
    one = await members("one")
    assert ranges(await one.take(place, max_records=1)) == [(0, 1, 1)]
    cluster.log("t").delete_before(4)
    assert await one.take(max_records=1, exact=True) == EMPTY  # the log start is noticed
    assert ranges(await one.take(max_records=1, exact=True)) == [(4, 4, 1)]


async def test_a_fetch_that_waits_at_a_former_leader_gets_nothing(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    one = await members("one")
    await one.take(place)
    waiting = asyncio.create_task(one.take(max_wait_ms=10_000))
    await asyncio.sleep(1)
    cluster.move_leader(("t", 0), 1)
    fill(cluster, 1)
    assert await waiting == EMPTY
    assert ranges(await one.take()) == [NotLeaderForPartitionError.errno]


async def test_a_leader_with_stale_metadata_is_fenced_by_the_next_leader(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 2)
    one, two = await members("one"), await members("two", broker=1)
    assert ranges(await one.take(place)) == [(0, 1, 1)]
    cluster.faults.mislead(0)
    cluster.move_leader(("t", 0), 1)
    assert await one.settle(place, (0, 0, ACCEPT)) == [(0, 0)]  # nobody has read the state yet
    assert ranges(await two.take(place)) == [(1, 1, 1)]
    assert await one.settle(place, (1, 1, ACCEPT)) == [(0, NotLeaderForPartitionError.errno)]
    assert ranges(await one.take()) == [NotLeaderForPartitionError.errno]
    assert await two.settle(place, (1, 1, ACCEPT)) == [(0, 0)]


async def test_a_stopped_broker_forgets_locks_and_sessions(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 3)
    one = await members("one", broker=1)
    cluster.move_leader(("t", 0), 1)
    assert ranges(await one.take(place)) == [(0, 2, 1)]
    await one.settle(place, (0, 0, ACCEPT))
    await cluster.stop_broker(1)
    await cluster.start_broker(1)
    cluster.move_leader(("t", 0), 1)
    await members.connect(one, broker=1)
    assert await one.take(epoch=2) == [122]
    assert ranges(await one.take(place)) == [(1, 2, 1)]


async def test_a_group_reads_from_the_latest_offset_until_it_stores_a_state(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    cluster.state.other_configs[32, GROUP]["share.auto.offset.reset"] = "latest"
    fill(cluster, 2)
    one = await members("one")
    await one.take(place)
    fill(cluster, 2)
    assert ranges(await one.take()) == [(2, 3, 1)]
    cluster.move_leader(("t", 0), 1)
    await members.connect(one, broker=1)
    await one.take(place)  # the next leader begins at the end of the log again
    fill(cluster, 1)
    assert ranges(await one.take()) == [(4, 4, 1)]
    await one.settle(place, (4, 4, RELEASE))
    cluster.move_leader(("t", 0), 0)
    await members.connect(one, broker=0)
    assert ranges(await one.take(place)) == [(4, 4, 2)]


async def test_records_that_compaction_has_removed_are_skipped(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    for value in (b"1", b"2", b"3"):
        cluster.log("t").append(value, b"same")
    one = await members("one")
    await one.take(place)
    await one.settle(place, (0, 2, RELEASE))
    cluster.log("t").compact()
    assert ranges(await one.take()) == [(2, 2, 2)]
    await one.settle(place, (2, 2, RELEASE))
    cluster.log("t").append(b"4", b"same")
    cluster.log("t").compact()
    assert ranges(await one.take(max_wait_ms=100)) == [(3, 3, 1)]
    assert await one.settle(place, (3, 3, ACCEPT)) == [(0, 0)]
    assert await one.take(max_wait_ms=int(3 * LOCK * 1000)) == EMPTY


# -- Sessions


async def test_the_end_of_a_connection_releases_its_records_at_once(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 2)
    one, two = await members("one"), await members("two")
    await one.take(place)
    await two.take(place)
    waiting = asyncio.create_task(two.take(max_wait_ms=20_000))
    await asyncio.sleep(1)
    started = now()
    one.client.writer.close()
    assert ranges(await waiting) == [(0, 1, 2)]
    assert now() - started < 1


async def test_sessions_have_a_limit(cluster: FakeCluster, members: Members, place: Place) -> None:
    cluster.state.config["group.share.max.share.sessions"] = "1"
    one, two = await members("one"), await members("two")
    assert await one.take(place) != [133]
    started = now()
    assert await two.take(place, max_wait_ms=5000) == [133]
    assert now() - started == pytest.approx(5, abs=0.1)
    await one.take(epoch=FINAL)
    assert await two.take(place) != [133]


async def test_each_request_begins_with_another_partition(
    cluster: FakeCluster, members: Members
) -> None:
    await cluster.create_topic("u", assignment={0: [0], 1: [0], 2: [0]})
    one = await members("one")
    await one.heartbeat("u")
    topic_id = cluster.state.topics["u"].topic_id
    await one.take(*[(topic_id, index) for index in range(3)])
    for index in range(3):
        for _ in range(3):
            cluster.log("u", index).append(b"x")
    found = [(await one.take(max_records=1))[0][0] for _ in range(6)]
    assert sorted(found) == [0, 0, 1, 1, 2, 2]
    assert set(found[:3]) == {0, 1, 2}


# -- Members


async def test_a_member_without_heartbeats_is_removed(
    cluster: FakeCluster, members: Members
) -> None:
    one, two = await members("one"), await members("two")
    assert cluster.groups.state_of(GROUP) == "Stable"
    await asyncio.sleep(40)
    await one.heartbeat()
    await asyncio.sleep(10)
    assert (await two.heartbeat()).error_code == 25
    assert (await one.heartbeat()).error_code == 0
    await asyncio.sleep(50)
    assert cluster.groups.state_of(GROUP) == "Empty"


async def test_members_are_fenced_expired_and_full(cluster: FakeCluster, members: Members) -> None:
    one = await members("one")
    cluster.groups.fence(GROUP, "one")
    assert (await one.heartbeat()).error_code == 110
    assert (await one.heartbeat("t", epoch=0)).error_code == 0
    cluster.groups.expire(GROUP, "one")
    assert (await one.heartbeat()).error_code == 25
    cluster.state.config["group.share.max.size"] = "0"
    assert (await one.heartbeat("t", epoch=0)).error_code == 81


async def test_a_lost_response_does_not_fence_a_member(
    cluster: FakeCluster, members: Members
) -> None:
    one = await members("one")
    former = one.epoch
    await cluster.create_topic("u")
    await one.heartbeat("t", "u")
    assert one.epoch > former
    assert (await one.heartbeat(epoch=former)).member_epoch > former


async def test_new_partitions_and_topics_are_assigned(
    cluster: FakeCluster, members: Members
) -> None:
    one = await members("one")
    await one.heartbeat("t", "later")
    cluster.add_partitions("t", 3)
    await cluster.create_topic("later", 2)
    await one.heartbeat()
    assert len(one.assigned) == 5
    await cluster.delete_topic("later")
    await one.heartbeat()
    assert len(one.assigned) == 3


async def test_a_coordinator_that_moves_keeps_the_group(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    one = await members("one")
    cluster.move_coordinator("group", GROUP, 1)
    assert (await one.heartbeat()).error_code == 16
    await members.connect(one, broker=1)
    assert (await one.heartbeat()).error_code == 0


@pytest.mark.parametrize(
    "request_class", [ShareGroupHeartbeatRequest, ShareFetchRequest, ShareAcknowledgeRequest]
)
async def test_requests_fail_as_told(
    cluster: FakeCluster, members: Members, place: Place, request_class: Any
) -> None:
    one = await members("one")
    await one.take(place)
    cluster.intercept(request_class, Fail(29))
    results = {
        ShareGroupHeartbeatRequest: (await one.heartbeat()).error_code,
        ShareFetchRequest: (await one.fetch()).error_code,
        ShareAcknowledgeRequest: (await one.acknowledge({place: []})).error_code,
    }
    assert {kind for kind, errno in results.items() if errno == 29} == {request_class}


async def test_old_brokers_have_no_share_groups() -> None:
    async with FakeCluster(as_version="4.0") as cluster:
        assert cluster.state.profile.level("share.version") == 0
        assert not cluster.state.profile.serves(ShareFetchRequest.API_KEY, 1)


async def test_the_feature_can_be_disabled(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    one = await members("one")
    cluster.state.set_levels({"share.version": 0})
    assert (await one.heartbeat()).error_code == 35
    assert taken(await one.fetch(place)) == [35]
    assert settled(await one.acknowledge({place: []})) == [35]


async def test_a_member_that_leaves_keeps_its_locks(
    cluster: FakeCluster, members: Members, place: Place
) -> None:
    fill(cluster, 2)
    one, two = await members("one"), await members("two")
    await one.take(place)
    await one.heartbeat(epoch=LEAVING)
    assert await two.take(place) == [(0, 0, 0, [], [])]
    assert await one.settle(place, (0, 0, ACCEPT), epoch=FINAL) == [(0, 0)]
    assert ranges(await two.take()) == [(1, 1, 2)]


# -- The assignor


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [1, 3, 10])
def test_every_partition_and_every_member_is_assigned(count: int, size: int) -> None:
    slots = [(b"t", index) for index in range(size)]
    found = assign({f"member-{i}": slots for i in range(count)}, {})
    assert set().union(*found.values()) == set(slots)
    assert all(found.values())


def test_members_keep_their_partitions() -> None:
    slots = [(b"t", index) for index in range(4)]
    first = assign({"a": slots, "b": slots}, {})
    second = assign({"a": slots, "b": slots, "c": slots}, first)
    assert first["a"] <= second["a"]
    assert first["b"] <= second["b"]
    assert assign({"a": slots, "b": slots[:0]}, first)["b"] == frozenset()


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31))]
)
def test_hashes_are_those_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT1H", 3600), ("p1dt12h", 129_600), ("PT0.5S", 0.5), ("P2D", 172_800), ("PT1M30S", 90)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds
