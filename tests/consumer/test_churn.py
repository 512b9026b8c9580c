"""Members join, leave, are removed, seek, pause, fetch, commit and cancel in any order, while
answers are lost and leaders move: no record is skipped, and none repeated that need not be.

Every record that is handed out must be the one that the model says: the next one, after an
assignment the committed one, after a seek the one that was sought.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

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
from tests.consumer.churn import PARTITIONS, TPS, Group, run
from tests.kafka.fixtures import Scale

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


class Churn(RuleBasedStateMachine):
    """The loop stands still between the steps, so an example runs much the same each time."""

    options: dict[str, Any] = {}

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.group = Group(self.options)

    def run(self, work: Any) -> None:
        run(self.loop, work)

    @initialize(counts=st.lists(st.integers(0, 30), min_size=PARTITIONS, max_size=PARTITIONS))
    def begin(self, counts: list[int]) -> None:
        async def begin() -> None:
            await self.group.start()
            for number, count in enumerate(counts):
                self.group.write(number, count)
            self.group.join()
            await asyncio.wait([self.group.members[0].starting])

        self.run(begin())

    # -- the group ---------------------------------------------------------------------------------

    @rule(count=turns)
    def join(self, count: int) -> None:
        async def join() -> None:
            self.group.join()
            await self.group.turn(count)

        self.run(join())

    @rule(index=members)
    def leave(self, index: int) -> None:
        self.run(self.group.leave(index))

    @rule(index=members, count=turns)
    def expire(self, index: int, count: int) -> None:
        async def expire() -> None:
            self.group.expire(index)
            await self.group.turn(count)

        self.run(expire())

    @rule(count=turns)
    def rebalance(self, count: int) -> None:
        async def rebalance() -> None:
            self.group.rebalance()
            await self.group.turn(count)

        self.run(rebalance())

    # -- the application ---------------------------------------------------------------------------

    @rule(index=members, limit=st.integers(1, 9), wait=st.sampled_from([0, 0, 10]))
    def poll(self, index: int, limit: int, wait: int) -> None:
        member = self.group.member(index)
        if member is not None:
            self.run(member.poll(limit, wait))

    @rule(index=members, count=turns, one=st.booleans())
    def cancel(self, index: int, count: int, one: bool) -> None:
        member = self.group.member(index)
        if member is not None:
            self.run(member.ask_and_cancel(count, one=one))

    @rule(index=members, count=turns)
    def commit(self, index: int, count: int) -> None:
        async def commit() -> None:
            member = self.group.member(index)
            if member is not None:
                member.begin_commit()
                await self.group.turn(count)

        self.run(commit())

    @rule(index=members, number=partitions, offset=st.integers(0, 30))
    def seek(self, index: int, number: int, offset: int) -> None:
        async def seek() -> None:
            member = self.group.member(index)
            if member is not None:
                member.seek(number, offset)

        self.run(seek())

    @rule(index=members, number=partitions, on=st.booleans())
    def pause(self, index: int, number: int, on: bool) -> None:
        async def pause() -> None:
            member = self.group.member(index)
            if member is not None:
                member.set_paused(number, on)

        self.run(pause())

    # -- the cluster -------------------------------------------------------------------------------

    @rule(number=partitions, count=st.integers(1, 12))
    def write(self, number: int, count: int) -> None:
        async def write() -> None:
            self.group.write(number, count)

        self.run(write())

    @rule(number=partitions, broker=st.integers(0, 1))
    def move_leader(self, number: int, broker: int) -> None:
        async def move() -> None:
            self.group.cluster.move_leader(TPS[number], broker)

        self.run(move())

    @rule(broker=st.integers(0, 1))
    def move_coordinator(self, broker: int) -> None:
        async def move() -> None:
            self.group.cluster.move_coordinator("group", "g", broker)

        self.run(move())

    @rule(count=turns)
    def drop_connections(self, count: int) -> None:
        async def drop() -> None:
            self.group.cluster.drop_connections()
            await self.group.turn(count)

        self.run(drop())

    @rule(api=st.sampled_from(APIS), answer=st.sampled_from(ANSWERS), times=st.integers(1, 3))
    def lose_answers(self, api: Any, answer: Any, times: int) -> None:
        self.group.fault(api, answer, times)

    @rule(
        api=st.sampled_from(APIS[1:]),
        error=st.sampled_from(COORDINATOR_ERRORS),
        times=st.integers(1, 3),
    )
    def coordinator_errors(self, api: Any, error: Any, times: int) -> None:
        self.group.fault(api, Fail(error), times)

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.03]))
    def let_time_pass(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    # -- what holds at all times -------------------------------------------------------------------

    @invariant()
    def commits_are_of_finished_records(self) -> None:
        self.group.check_commits()

    def teardown(self) -> None:
        async def end() -> None:
            try:
                await self.group.finish()
            finally:
                await self.group.close()

        try:
            self.run(end())
        finally:
            self.loop.close()


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_automatic", [False, True], ids=["manual", "auto"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_skipped_or_repeated(protocol: str, is_automatic: bool, scale: Scale) -> None:
    options = {**PROTOCOLS[protocol], "enable_auto_commit": is_automatic}
    machine = type("Churn", (Churn,), {"options": options})
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=scale(6, 1000),
            stateful_step_count=scale(30, 60),
            deadline=None,
            derandomize=not scale.is_long,
            suppress_health_check=list(HealthCheck),
            # All steps, as the timing of a failure may not come again.
            verbosity=Verbosity.debug,
        ),
    )
