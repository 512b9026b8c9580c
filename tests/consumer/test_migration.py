"""Migration of a group between the classic and the consumer protocol (KIP-848)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    GroupIdNotFound,
    InconsistentGroupProtocolError,
    UnknownError,
)
from aiokafka.protocol.messages.group_members import ConsumerGroupHeartbeatRequest
from aiokafka.testing import Fail, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumer_protocol import CONFIG, shares
from tests.support.consumers import Start, fill
from tests.support.groups import Log, until

POLICY = "group.consumer.migration.policy"
CLASSIC: dict[str, Any] = {
    "group_id": "g",
    "group_protocol": "classic",
    "heartbeat_interval_ms": 20,
    "session_timeout_ms": 10_000,
}

MODERN: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer"}
OPTIONS = {"classic": CLASSIC, "consumer": MODERN}


def kind(cluster: FakeCluster) -> str:
    return "classic" if "g" in cluster.groups.classic else "consumer"


async def settle(cluster: FakeCluster, *members: AIOKafkaConsumer) -> None:
    size = 4 // len(members)
    await until(cluster, lambda: shares(*members) == [size] * len(members))


@pytest.mark.parametrize(("old", "new"), [("classic", "consumer"), ("consumer", "classic")])
async def test_members_are_replaced_one_by_one(
    four: FakeCluster, start: Start, old: str, new: str
) -> None:
    """All is read once, whichever way."""
    logs = [Log() for _ in range(4)]
    members = [await start(four, "t", **OPTIONS[old]) for _ in "ab"]
    for member, log in zip(members, logs, strict=False):
        member.subscribe(["t"], listener=log)
    await settle(four, *members)
    seen: list[tuple[int, int]] = []

    async def read(count: int) -> None:
        while len(seen) < count:
            for member in members:
                for records in (await member.getmany(timeout_ms=20)).values():
                    seen.extend((record.partition, record.offset) for record in records)
                await member.commit()

    for number, log in enumerate(logs[2:], start=1):
        for partition in range(4):
            fill(four, partition, 1)
        await read(4 * number)
        await members.pop(0).stop()
        members.append(await start(four, "t", **OPTIONS[new]))
        members[-1].subscribe(["t"], listener=log)
        await settle(four, *members)
    assert kind(four) == new
    assert len(set(seen)) == len(seen) == 8
    assert {four.groups.committed("g", "t", partition) for partition in range(4)} == {2}
    assert not any("lost" in str(call) for log in logs for call in log.calls)


async def test_static_members_keep_their_partitions(four: FakeCluster, start: Start) -> None:
    """Each comes back with the other protocol under its instance id; the last one on the way back
    makes the leader assign them again, which is the same assignment here."""
    members = [await start(four, "t", **CLASSIC, group_instance_id=name) for name in "ab"]
    await settle(four, *members)
    owned = [member.assignment() for member in members]
    for options in (MODERN, CLASSIC):
        for number, name in enumerate("ab"):
            await members[number].stop()
            members[number] = await start(four, "t", **options, group_instance_id=name)
            await settle(four, *members)
            assert [member.assignment() for member in members] == owned
        assert kind(four) == options["group_protocol"]


async def test_new_partitions_are_read_after_a_static_member_came_back(
    four: FakeCluster, start: Start
) -> None:
    """It makes the group a classic one without a rebalance: nobody is told to be the leader."""
    options = {**CLASSIC, "metadata_max_age_ms": 50}
    old = await start(four, "t", **options, group_instance_id="old")
    new = await start(four, "t", **MODERN, group_instance_id="new")
    await settle(four, old, new)
    await new.stop()
    new = await start(four, "t", **options, group_instance_id="new")
    await settle(four, old, new)
    assert kind(four) == "classic"
    four.add_partitions("t", 8)
    await until(four, lambda: len(old.assignment() | new.assignment()) == 8)


async def test_a_member_that_waits_for_its_share_gets_it_after_a_static_member_came_back(
    four: FakeCluster, start: Start
) -> None:
    """It makes the group a classic one, in which nobody is told what the target was before."""
    new = await start(four, "t", **MODERN, group_instance_id="new", enable_auto_commit=False)
    await settle(four, new)
    fill(four, 0, 1)
    assert await new.getmany(timeout_ms=1000)
    # Nothing is given up while its records are in hand.
    old = await start(four, "t", **{**CLASSIC, "heartbeat_interval_ms": 1000})
    assert not old.assignment()
    await new.stop()
    new = await start(four, "t", **CLASSIC, group_instance_id="new")
    assert kind(four) == "classic"
    await settle(four, old, new)


async def test_a_member_of_the_consumer_protocol_waits_for_the_first_rebalance(
    start: Start,
) -> None:
    """Until it is over the coordinator cannot convert the group."""
    config = CONFIG | {"group.initial.rebalance.delay.ms": 500}
    async with FakeCluster(config=config) as cluster:
        await cluster.create_topic("t", partitions=4)
        joining = asyncio.create_task(start(cluster, "t", **CLASSIC))
        groups = cluster.groups.classic
        await cluster.wait_for(lambda: "g" in groups and groups["g"].members)
        new = await start(cluster, "t", **MODERN)
        await settle(cluster, await joining, new)
        heartbeats = cluster.requests(ConsumerGroupHeartbeatRequest)
        assert sum(seen.request.member_epoch == 0 for seen in heartbeats) > 1


def test_an_unexpected_error_that_stays_is_raised() -> None:
    """Once it is too late for the first rebalance of a classic group."""

    async def main(simulation: Simulation) -> float:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            cluster.intercept(ConsumerGroupHeartbeatRequest, Fail(UnknownError))
            consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, **MODERN)
            with pytest.raises(UnknownError, match="group 'g'"):
                await consumer.start()
            return asyncio.get_running_loop().time()

    assert 15 <= simulate(main) < 20


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
async def test_a_policy_against_upgrades_is_named(start: Start, policy: str) -> None:
    async with FakeCluster(config=CONFIG | {POLICY: policy}) as cluster:
        old = await start(cluster, "t", **CLASSIC)
        with pytest.raises(GroupIdNotFound, match=r"migration\.policy has to be 'bidirectional'"):
            await start(cluster, "t", **MODERN)
        assert len(old.assignment()) == 1


async def test_a_policy_against_classic_members_is_named(start: Start) -> None:
    async with FakeCluster(config=CONFIG | {POLICY: "disabled"}) as cluster:
        new = await start(cluster, "t", **MODERN)
        with pytest.raises(InconsistentGroupProtocolError, match=r"policy of the broker is 'dis"):
            await start(cluster, "t", **CLASSIC)
        assert len(new.assignment()) == 1


async def test_a_consumer_outside_commits_only_while_the_group_is_empty(
    four: FakeCluster, start: Start
) -> None:
    members = [await start(four, "t", **options) for options in OPTIONS.values()]
    await settle(four, *members)
    outside = await start(four, group_id="g", enable_auto_commit=False)
    tp = TopicPartition("t", 0)
    outside.assign([tp])
    fill(four, 0, 3)
    with pytest.raises(CommitFailedError):
        await outside.commit({tp: 1})
    for member in members:
        await member.stop()
    await outside.commit({tp: 2})
    assert four.groups.committed("g", "t") == 2
