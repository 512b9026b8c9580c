"""What a test can do to groups and transactions of the fake cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokafka.testing import FakeCluster

from . import group_scenarios, setting_scenarios, transaction_scenarios
from .group_scenarios import beat, commit, join, new_group, sync
from .scenarios import SCENARIOS, Side
from .transaction_scenarios import CONCURRENT, EndTxnRequest, new_session

assert group_scenarios and setting_scenarios and transaction_scenarios  # they add to SCENARIOS
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
    cluster.transactions.resume_markers()
    assert (log.last_stable_offset, log.end_offset) == (2, 2)
    assert (await side.client.call(again, 5)).error_code == 0
