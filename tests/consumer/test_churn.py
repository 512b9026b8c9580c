"""Members join, leave, are removed, seek, pause, fetch, commit and cancel in any order, while
answers are lost and leaders move: no record is skipped, and none repeated that need not be.

Every record that is returned must be the one that the model says: the next one, after an
assignment the committed one, after a seek the one that was sought. It all runs in simulated time.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aiokafka import errors
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.heartbeat import HeartbeatRequest
from aiokafka.protocol.messages.join_group import JoinGroupRequest
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest
from aiokafka.protocol.messages.sync_group import SyncGroupRequest
from aiokafka.testing import Cut, Delay, Fail
from aiokafka.testing.actions import Action
from aiokafka.testing.simulation import Simulation
from tests.kafka.fixtures import Scale
from tests.support.churn import PARTITIONS, TPS, Group, in_time

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": [RoundRobinPartitionAssignor]},
    "sticky": {"partition_assignment_strategy": [StickyPartitionAssignor]},
    "cooperative": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
    "consumer": {"group_protocol": "consumer"},
}

APIS = [
    FetchRequest,
    HeartbeatRequest,
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
]
ANSWERS = [Cut(), Cut(handled=True), Delay(0.01), Delay(0.02, Cut(handled=True))]
COORDINATOR_ERRORS = [
    errors.NotCoordinatorForGroupError,
    errors.GroupLoadInProgressError,
    errors.GroupCoordinatorNotAvailableError,
]

members = st.integers(0, 2)
partitions = st.integers(0, PARTITIONS - 1)
turns = st.integers(0, 40)


Step = tuple[Any, ...]
"""The name of a method of `Churn`, and what it is called with."""


def step(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), *arguments)


STEPS = st.one_of(
    step("join", turns),
    step("leave", members),
    step("expire", members, turns),
    step("rebalance", turns),
    step("poll", members, st.integers(1, 9), st.sampled_from([0, 0, 10])),
    step("cancel", members, turns, st.booleans()),
    step("commit", members, turns),
    step("seek", members, partitions, st.integers(0, 30)),
    step("pause", members, partitions, st.booleans()),
    step("write", partitions, st.integers(1, 12)),
    step("move_leader", partitions, st.integers(0, 1)),
    step("move_coordinator", st.integers(0, 1)),
    step("drop_connections", turns),
    step("fault", st.sampled_from(APIS), st.sampled_from(ANSWERS), st.integers(1, 3)),
    step(
        "fault",
        st.sampled_from(APIS[1:]),
        st.sampled_from([Fail(error) for error in COORDINATOR_ERRORS]),
        st.integers(1, 3),
    ),
    step("let_time_pass", st.sampled_from([0.001, 0.01, 0.03])),
)


class Churn:
    """What may happen to a group, step by step."""

    def __init__(self, group: Group) -> None:
        self.group = group

    # -- the group ---------------------------------------------------------------------------------

    async def join(self, count: int) -> None:
        self.group.join()
        await self.group.turn(count)

    async def leave(self, index: int) -> None:
        await self.group.leave(index)

    async def expire(self, index: int, count: int) -> None:
        self.group.expire(index)
        await self.group.turn(count)

    async def rebalance(self, count: int) -> None:
        self.group.rebalance()
        await self.group.turn(count)

    # -- the application ---------------------------------------------------------------------------

    async def poll(self, index: int, limit: int, wait: int) -> None:
        member = self.group.member(index)
        if member is not None:
            await member.poll(limit, wait)

    async def cancel(self, index: int, count: int, one: bool) -> None:
        member = self.group.member(index)
        if member is not None:
            await member.ask_and_cancel(count, one=one)

    async def commit(self, index: int, count: int) -> None:
        member = self.group.member(index)
        if member is not None:
            member.begin_commit()
            await self.group.turn(count)

    async def seek(self, index: int, number: int, offset: int) -> None:
        member = self.group.member(index)
        if member is not None:
            member.seek(number, offset)

    async def pause(self, index: int, number: int, on: bool) -> None:
        member = self.group.member(index)
        if member is not None:
            member.set_paused(number, on)

    # -- the cluster -------------------------------------------------------------------------------

    async def write(self, number: int, count: int) -> None:
        self.group.write(number, count)

    async def move_leader(self, number: int, broker: int) -> None:
        self.group.cluster.move_leader(TPS[number], broker)

    async def move_coordinator(self, broker: int) -> None:
        self.group.cluster.move_coordinator("group", "g", broker)

    async def drop_connections(self, count: int) -> None:
        self.group.cluster.drop_connections()
        await self.group.turn(count)

    async def fault(self, api: Any, answer: Action, times: int) -> None:
        self.group.fault(api, answer, times)

    async def let_time_pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def play(group: Group, counts: list[int], steps: list[Step]) -> None:
    churn = Churn(group)
    await group.start()
    try:
        for number, count in enumerate(counts):
            group.write(number, count)
        group.join()
        await asyncio.wait([group.members[0].starting])
        for name, *arguments in steps:
            await in_time(getattr(churn, name)(*arguments))
            group.check_commits()
        await group.finish()
    finally:
        await group.close()


# An auto-commit waits for the commit before a revocation. Meanwhile the application seeks, and the
# partition is revoked, and assigned to the same member again: the auto-commit is void.
OUTLIVED: dict[str, Any] = {
    "seed": 211222,
    "counts": [0, 29, 22, 18],
    "steps": [
        ("move_coordinator", 0),
        ("move_coordinator", 0),
        ("rebalance", 32),
        ("cancel", 0, 33, True),
        ("move_coordinator", 1),
        ("commit", 0, 2),
        ("commit", 0, 0),
        ("fault", FetchRequest, Delay(seconds=0.02, then=Cut(handled=True)), 2),
        ("rebalance", 0),
        ("rebalance", 29),
        ("join", 14),
        ("seek", 0, 0, 26),
        ("seek", 0, 2, 27),
        ("pause", 1, 1, True),
        ("poll", 2, 3, 10),
        ("cancel", 1, 2, True),
        ("poll", 0, 3, 0),
        ("move_leader", 3, 0),
        ("move_coordinator", 1),
        ("write", 1, 4),
        ("seek", 2, 2, 1),
        ("poll", 2, 7, 10),
        ("expire", 1, 2),
        ("rebalance", 24),
        ("cancel", 0, 7, True),
        ("leave", 1),
        ("rebalance", 6),
        ("rebalance", 2),
        ("commit", 1, 20),
        ("poll", 1, 5, 0),
        ("rebalance", 13),
        ("seek", 1, 3, 7),
        ("move_leader", 3, 0),
        ("rebalance", 26),
        ("move_leader", 1, 1),
        ("pause", 1, 3, False),
        ("fault", ConsumerGroupHeartbeatRequest, Cut(handled=False), 1),
        ("join", 16),
        ("fault", SyncGroupRequest, Delay(seconds=0.02, then=Cut(handled=True)), 3),
        ("write", 3, 5),
        ("rebalance", 34),
        ("rebalance", 30),
        ("poll", 1, 1, 0),
        ("cancel", 1, 33, True),
        ("move_coordinator", 0),
        ("rebalance", 2),
        ("poll", 0, 3, 0),
        ("fault", JoinGroupRequest, Fail(error=errors.GroupLoadInProgressError), 2),
        ("move_coordinator", 0),
    ],
}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("is_automatic", [False, True], ids=["manual", "auto"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_skipped_or_repeated(protocol: str, is_automatic: bool, scale: Scale) -> None:
    options = {**PROTOCOLS[protocol], "enable_auto_commit": is_automatic}

    @example(**OUTLIVED)
    @settings(
        max_examples=scale(10, 1000),
        deadline=None,
        derandomize=not scale.is_long,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        seed=st.integers(0, 2**20),
        counts=st.lists(st.integers(0, 30), min_size=PARTITIONS, max_size=PARTITIONS),
        steps=st.lists(STEPS, min_size=scale(15, 30), max_size=scale(30, 60)),
    )
    def run(seed: int, counts: list[int], steps: list[Step]) -> None:
        Simulation(seed).run(play(Group(options), counts, steps))

    run()
