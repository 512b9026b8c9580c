"""What a test can do to groups and transactions of the fake cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate

from . import (
    commit_scenarios,
    group_scenarios,
    member_scenarios,
    odd_scenarios,
    setting_scenarios,
    transaction_scenarios,
)
from .group_scenarios import beat, commit, join, join_request, leave, new_group, sync
from .scenarios import SCENARIOS, Side
from .transaction_scenarios import CONCURRENT, EndTxnRequest, Session, new_session

# they add to SCENARIOS
assert group_scenarios and setting_scenarios and transaction_scenarios
assert commit_scenarios and member_scenarios and odd_scenarios
LIKE_THE_TEST_BROKER = {"group.min.session.timeout.ms": 500}


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(config=LIKE_THE_TEST_BROKER) as started:
        await started.create_topic("t")
        yield started
        assert started.failures == []


@pytest.fixture
async def side(cluster: FakeCluster) -> AsyncIterator[Side]:
    made = Side(cluster.address(0))
    async with made.client:
        yield made


@pytest.mark.parametrize("name", SCENARIOS)
async def test_every_dialogue_goes_through(side: Side, name: str) -> None:
    """The integration tests compare what is seen here with a real broker."""
    assert await SCENARIOS[name](side)


AS_A_BROKER: dict[str, list[object]] = {
    "settings_out_of_range": [
        ({"retention_ms": "-5"}, 40),
        ({"retention_ms": "-1"}, 0),
        ({"max_message_bytes": "-1"}, 40),
        ({"min_insync_replicas": "0"}, 40),
        ({"min_cleanable_dirty_ratio": "2.0"}, 40),
        ({"min_cleanable_dirty_ratio": "1.0"}, 0),
        ({"cleanup_policy": ""}, 0),
        ({"compression_type": "best"}, 40),
        ({"segment_ms": "0"}, 40),
        ({"flush_messages": "0"}, 40),
        ({"index_interval_bytes": "-1"}, 40),
        ({"delete_retention_ms": "-1"}, 40),
        ({"max_compaction_lag_ms": "0"}, 40),
        ({"preallocate": "yes"}, 40),
        ({"max_message_bytes": "2147483648"}, 40),
        ({"segment_bytes": "1000000"}, 40),
    ],
    "names_that_collide": [0, 17, 17, 0],
    "compacted_topics_keep_their_start": [44, 0],
    "settings_without_value": [42],
    "compression_by_topic": [  # what is set, the codec that is sent, that which is stored, records
        ("producer", 0, 0, 2),
        ("producer", 1, 1, 2),
        ("uncompressed", 0, 0, 2),
        ("uncompressed", 1, 0, 2),
        ("gzip", 0, 1, 2),
        ("gzip", 1, 1, 2),
    ],
    "groups_that_are_only_asked_about": [[0], [0], [0], (69, "Dead", "", "", [])],
    "commits_into_empty_groups": [25, 25, 25, 0, 0, 25, 24],
    "next_generation_wrongly": [
        (42, 0, False, None),
        (42, 0, False, None),
        (42, 0, False, None),
        (0, 2, True, [2]),
        79,
    ],
    "producers_of_open_transactions_write_nothing_else": [0, (48, -1, 0), (0, 1)],
    "former_owners_renew": [
        *(0, (90, -1), "CompleteAbort", 47, (90, -1)),
        *(0, (90, -1), "CompleteAbort", 47, (48, -1)),
    ],
    "former_epochs_end": [(0, 1), (90, -1), 0, (90, -1), (0, 2)],
    "groups_that_a_transaction_only_names": [
        *(0, ("Ongoing", ["__consumer_offsets"]), (0, -1), [], False),
    ],
    "plain_and_transactional_commits": [
        *([0], 0, (0, -1), [0, 0, 7]),
        *([0], (0, -1), [0, 0, 5], 0, [0, 0, 9]),
        *([0], (0, -1), [0, 0, 5]),
    ],
    "positions_deleted_in_a_transaction": [[0], (0, 0), [0, 0, -1], (0, -1), [0, 0, -1]],
    "positions_in_a_topic_deleted_in_a_transaction": [[0], 0, (0, -1), [0, 0, -1]],
    "transactional_commits_while_a_group_completes": [
        *(27, [0], (0, b"x"), [0], (0, -1), [0, 0, 6]),
    ],
    "transactional_commits_keep_no_member": [[25], 25],
    "next_generation_transactional_commits": [
        *((0, 2, True, [1]), [0], [22], [22], [25], [0], 113, (0, -1)),
        [0, (0, 5, -1, "m", 0), (1, -1, -1, "", 0)],
    ],
    "a_stranger_with_an_instance_id": [0, 25, 0, 82, 25, 25, 111, 82, 82, 25],
    "leaving_for_a_while_with_partitions_to_give_up": [(0, 2, True, [2]), 0, [1], 0, [1]],
    "an_administrator_removes_members": [
        *((0, [25]), (0, [25]), (0, [25]), (0, [82]), (0, [25])),
        *((0, [0, 0]), (0, [0]), (0, [25]), 25, 25),
    ],
    "places_of_static_members": [
        *((0, 2, True, [5]), 0, 0, ("", [4]), ("a", [0, 1]), ("b", [2, 3])),
    ],
    "settings_with_spaces_and_capitals": [
        *(0, ("cleanup.policy", "compact,delete"), ("compression.type", "gzip")),
        *(("preallocate", "false"), ("retention.ms", "5")),
        ("unclean.leader.election.enable", "true"),
    ],
    "records_to_blame": [
        *((0, 0, 0, []), (32, -1, 0, [(0, True), (2, True)]), (32, -1, 0, [(1, True)])),
        (87, -1, 0, [(1, True), (2, True)]),
    ],
}


@pytest.mark.parametrize("name", AS_A_BROKER)
async def test_a_dialogue_is_as_with_a_broker(side: Side, name: str) -> None:
    """What is expected is what Kafka 4.3 says; the integration tests ask it again."""
    assert await SCENARIOS[name](side) == AS_A_BROKER[name]


async def test_a_group_can_be_made_to_rebalance(cluster: FakeCluster, side: Side) -> None:
    group = await new_group(side)
    member = (await join(side.client, group)).member_id
    await sync(side.client, group, member, 1, {member: b""})
    assert await beat(side.client, group, member, 1) == 0
    cluster.groups.rebalance(group)
    assert await beat(side.client, group, member, 1) == 27
    assert (await join(side.client, group, member)).generation_id == 2


async def test_a_member_can_be_made_to_expire(cluster: FakeCluster, side: Side) -> None:
    group = await new_group(side)
    member = (await join(side.client, group)).member_id
    cluster.groups.expire(group, member)
    assert await beat(side.client, group, member, 1) == 25
    assert cluster.groups.state_of(group) == "Empty"


@pytest.mark.parametrize(("leaves", "took"), [(False, 10), (True, 2)])
def test_a_member_that_does_not_come_back_holds_up_a_rebalance_for_its_session(
    leaves: bool, took: float
) -> None:
    """A client has got a member id, and has died or left since; others are joining."""
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 300_000}

    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        async with FakeCluster() as cluster:
            side = Side(cluster.address(0))
            async with side.client as client, side.connect() as other, side.connect() as lost:
                group = await new_group(side)
                member = (await join(client, group, **times)).member_id
                await sync(client, group, member, 1, {member: b""})
                began = loop.time()
                given = await lost.call(join_request(group, **times), 9)
                assert given.error_code == 79
                both = asyncio.gather(
                    join(client, group, member, **times), join(other, group, **times)
                )
                await asyncio.sleep(2)
                assert not both.done()
                if leaves:
                    await leave(lost, group, (given.member_id, None))
                assert [answer.generation_id for answer in await both] == [2, 2]
                return loop.time() - began

    assert simulate(main) == pytest.approx(took, abs=0.5)


async def test_committed_offsets_can_be_seen(cluster: FakeCluster, side: Side) -> None:
    assert cluster.groups.committed("g", "t") is None
    assert await commit(side.client, "g", "t", offset=7) == 0
    assert cluster.groups.committed("g", "t") == 7
    await cluster.delete_topic("t")
    assert cluster.groups.committed("g", "t") is None


async def test_markers_can_be_held_back(cluster: FakeCluster, side: Side) -> None:
    producer = await new_session(side, 2)
    await producer.init(version=5)
    assert await producer.produce("t", 0) == 0
    cluster.transactions.pause_markers()
    old = producer.epoch
    assert await producer.end(True) == (0, old + 1)
    log = cluster.log("t")
    assert (log.last_stable_offset, log.end_offset) == (0, 1)
    again = EndTxnRequest(
        transactional_id=producer.name,
        producer_id=producer.pid,
        producer_epoch=old,
        committed=True,
    )
    assert (await side.client.call(again, 5)).error_code == CONCURRENT
    empty = EndTxnRequest(
        transactional_id=producer.name,
        producer_id=producer.pid,
        producer_epoch=old + 1,
        committed=False,
    )
    assert (await side.client.call(empty, 5)).error_code == CONCURRENT
    cluster.transactions.resume_markers()
    assert (log.last_stable_offset, log.end_offset) == (2, 2)
    assert (await side.client.call(again, 5)).error_code == 0
    assert (await side.client.call(empty, 5)).producer_epoch == old + 2


async def a_new_owner(one: Session) -> int:
    return (await one.init())[0]


async def the_same_owner(one: Session) -> int:
    return (await one.init(one.pid, one.epoch))[0]


async def an_end(one: Session) -> int:
    await one.produce("t", 0)
    return (await one.end(True))[0]


async def an_empty_abort(one: Session) -> int:
    return (await one.end(False))[0]


LAST_EPOCH = 32766


@pytest.mark.parametrize("take_next", [a_new_owner, the_same_owner, an_end, an_empty_abort])
async def test_behind_the_last_epoch_is_another_producer_id(
    cluster: FakeCluster, side: Side, take_next: Callable[[Session], Awaitable[int]]
) -> None:
    one = await new_session(side, 2)
    await one.init()
    cluster.transactions.by_id[one.name].epoch = one.epoch = LAST_EPOCH - 1
    first = one.pid
    assert await take_next(one) == 0
    assert (one.pid, one.epoch) == (first, LAST_EPOCH)
    assert await take_next(one) == 0
    assert one.pid != first
    assert one.epoch == 0
    assert await an_end(one) == 0


@pytest.mark.parametrize("take_next", [the_same_owner, an_end])
async def test_another_producer_id_may_be_asked_for_twice(
    cluster: FakeCluster, side: Side, take_next: Callable[[Session], Awaitable[int]]
) -> None:
    """The response that tells of it may be lost."""
    one = await new_session(side, 2)
    await one.init()
    cluster.transactions.by_id[one.name].epoch = one.epoch = LAST_EPOCH
    first = one.pid
    assert await take_next(one) == 0
    second, one.pid, one.epoch = one.pid, first, LAST_EPOCH
    again = await one.end(True) if take_next is an_end else await one.init(first, LAST_EPOCH)
    assert again == (0, 0)
    assert one.pid == second != first
