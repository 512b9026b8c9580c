"""Coordinators that return errors, move, are slow, or do not respond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupIdNotFound,
    GroupLoadInProgressError,
    GroupMaxSizeReached,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    KafkaTimeoutError,
    KafkaUnreachableError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpoch,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownMemberIdError,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.health import ConsumerState
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest
from aiokafka.testing import Delay, Fail, FakeCluster, Hold, RequestContext, Silence
from aiokafka.testing.actions import Action
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, Start, fill, read
from tests.support.groups import Log, until

# == Every error code that a group coordinator may return ==========================================


ERRORS: list[type[BrokerResponseError]] = [
    UnknownError,
    RequestTimedOutError,
    GroupLoadInProgressError,
    GroupCoordinatorNotAvailableError,
    NotCoordinatorForGroupError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    UnknownMemberIdError,
    InvalidSessionTimeoutError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
    GroupIdNotFound,
    GroupMaxSizeReached,
    FencedInstanceId,
    FencedMemberEpoch,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    StaleMemberEpoch,
    for_code(9999),
]

JOINS = {
    "FindCoordinator": ("classic", FindCoordinatorRequest),
    "JoinGroup": ("classic", JoinGroupRequest),
    "SyncGroup": ("classic", SyncGroupRequest),
    "ConsumerGroupHeartbeat": ("consumer", ConsumerGroupHeartbeatRequest),
}

BEATS = {
    "Heartbeat": ("classic", HeartbeatRequest),
    "ConsumerGroupHeartbeat": ("consumer", ConsumerGroupHeartbeatRequest),
}

PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 20},
    "consumer": {"group_protocol": "consumer"},
}


def member(cluster: FakeCluster, protocol: str, **options: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=10,
        request_timeout_ms=1000,
        default_api_timeout_ms=200,
        max_poll_interval_ms=300,
        rebalance_timeout_ms=200,
        **PROTOCOLS[protocol],
        **options,
    )


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("where", JOINS)
async def test_start_ends(
    filled: FakeCluster, where: str, error: type[BrokerResponseError]
) -> None:
    protocol, api = JOINS[where]
    consumer = member(filled, protocol)
    filled.intercept(api, Fail(error))
    with pytest.raises((error, KafkaTimeoutError)):
        async with timeout(10):
            await consumer.start()
    # Ten times as many as with pauses of 10 ms and more.
    assert filled.count(api) < 300
    assert consumer.health().state == "closed"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("where", BEATS)
async def test_a_member_goes_on_or_says_why_not(
    filled: FakeCluster, where: str, error: type[BrokerResponseError]
) -> None:
    protocol, api = BEATS[where]
    consumer = member(filled, protocol)
    async with consumer:
        await read(consumer, 9)
        with filled.intercept(api, Fail(error)) as script:
            reader = asyncio.get_running_loop().create_task(consumer.getone())
            await filled.wait_for(lambda: script.hits)
            await asyncio.wait([reader], timeout=0.1)
            assert script.hits < 100
        if error is UnknownMemberIdError:
            # It is not gone, so joining again takes until the end of its session.
            for member_id in list(filled.groups.classic.get("g", _NO_GROUP).members):
                filled.groups.expire("g", member_id)
        fill(filled, 0, 1)
        try:
            async with timeout(10):
                await reader
                return
        except error:
            pass
        # Told: it is over for good, or it goes on with the next call.
        try:
            async with timeout(10):
                await consumer.getone()
        except error:
            assert consumer.health().state == "failed"


class _NO_GROUP:
    members: tuple[str, ...] = ()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_commits_and_questions_end(
    filled: FakeCluster, protocol: str, error: type[BrokerResponseError]
) -> None:
    async with member(filled, protocol) as consumer:
        await read(consumer, 3)
        with filled.intercept(OffsetFetchRequest, Fail(error)) as script:
            with pytest.raises((error, KafkaTimeoutError)):
                await consumer.committed(T0)
            assert script.hits < 100
        with filled.intercept(OffsetCommitRequest, Fail(error)) as script:
            with pytest.raises((error, CommitFailedError, KafkaTimeoutError)):
                await consumer.commit({T0: 2})
            assert script.hits < 100
        filled.intercept(LeaveGroupRequest, Fail(error))
        async with timeout(10):
            await consumer.stop()


async def test_an_error_that_the_broker_cannot_explain_does_not_end_the_membership(
    filled: FakeCluster,
) -> None:
    async with member(filled, "classic") as consumer:
        await read(consumer, 9)
        with filled.intercept(HeartbeatRequest, Fail(UnknownError)):
            with pytest.raises(UnknownError):
                async with timeout(10):
                    await consumer.getone()
        fill(filled, 0, 1)
        async with timeout(10):
            while True:
                try:
                    assert (await consumer.getone()).offset == 9
                    break
                except UnknownError:
                    await asyncio.sleep(0)


@pytest.mark.parametrize("assignor", [RoundRobinPartitionAssignor, CooperativeStickyAssignor])
async def test_who_fails_to_join_returns_nothing_while_it_leaves(
    filled: FakeCluster, assignor: type[AbstractPartitionAssignor]
) -> None:
    """The group gives its partitions to others as soon as it hears of it, and the coordinator may
    take its time to respond."""
    consumer = member(filled, "classic", partition_assignment_strategy=[assignor])
    is_left = asyncio.Event()
    async with consumer:
        await read(consumer, 1)
        filled.intercept(JoinGroupRequest, Fail(InconsistentGroupProtocolError))
        leaves = filled.intercept(LeaveGroupRequest, Hold(is_left))
        filled.groups.rebalance("g")
        waiting = asyncio.get_running_loop().create_task(leaves.wait())
        # Asked for all the while, or an eager member would wait for the application.
        while not waiting.done():
            await consumer.getmany(T1, timeout_ms=10)
        assert await consumer.getmany(T0) == {}
        is_left.set()
        with pytest.raises(InconsistentGroupProtocolError):
            await consumer.getone()


# == Group authorization is revoked and granted again ==============================================


HEARTBEATS = {"classic": HeartbeatRequest, "consumer": ConsumerGroupHeartbeatRequest}
NEEDS_THE_RIGHT = [
    *HEARTBEATS.values(),
    FindCoordinatorRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
]


@pytest.fixture(params=PROTOCOLS)
def group_protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def two_partitions() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(config={"group.consumer.heartbeat.interval.ms": "20"}) as fake:
        await fake.create_topic("t", partitions=2)
        yield fake
        assert fake.failures == []


def without_right(cluster: FakeCluster) -> ExitStack:
    stack = ExitStack()
    for api in NEEDS_THE_RIGHT:
        stack.enter_context(cluster.intercept(api, Fail(GroupAuthorizationFailedError)))
    return stack


async def hear_of_it(consumer: AIOKafkaConsumer) -> None:
    with pytest.raises(GroupAuthorizationFailedError, match="g"):
        async with timeout(10):
            await consumer.getone()


@pytest.mark.parametrize("is_removed", [False, True])
async def test_reading_goes_on_when_the_right_is_back(
    two_partitions: FakeCluster, start: Start, group_protocol: str, is_removed: bool
) -> None:
    fill(two_partitions, 0, 3)
    consumer = await start(two_partitions, "t", group_id="g", **PROTOCOLS[group_protocol])
    await read(consumer, 3)
    await consumer.commit()
    with without_right(two_partitions):
        if is_removed:
            two_partitions.groups.expire("g", consumer.group_metadata().member_id)
            two_partitions.drop_connections()
        for _ in range(3):
            await hear_of_it(consumer)
        with pytest.raises(GroupAuthorizationFailedError):
            await consumer.commit(dict.fromkeys(consumer.assignment(), 3))
    fill(two_partitions, 0, 1)
    async with timeout(10):
        while True:
            try:
                record = await consumer.getone()
                break
            except GroupAuthorizationFailedError:
                await asyncio.sleep(0)
    assert record.offset == 3


async def test_what_is_over_is_not_told(
    two_partitions: FakeCluster, start: Start, group_protocol: str
) -> None:
    fill(two_partitions, 0, 4)
    consumer = await start(two_partitions, "t", group_id="g", **PROTOCOLS[group_protocol])
    await read(consumer, 3)
    beat = HEARTBEATS[group_protocol]
    with two_partitions.intercept(beat, Fail(GroupAuthorizationFailedError)) as script:
        await until(two_partitions, lambda: script.hits >= 3)
        # An application that did not ask hears of it once, not for each refusal.
        await hear_of_it(consumer)
        hits = script.hits
        await until(two_partitions, lambda: script.hits > hits)
    beats = two_partitions.count(beat)
    await until(two_partitions, lambda: two_partitions.count(beat) > beats + 1)
    async with timeout(10):
        assert (await consumer.getone()).offset == 3


async def test_the_group_is_asked_with_a_back_off(
    two_partitions: FakeCluster, start: Start, group_protocol: str
) -> None:
    consumer = await start(
        two_partitions, "t", group_id="g", retry_backoff_ms=50, **PROTOCOLS[group_protocol]
    )
    with without_right(two_partitions):
        two_partitions.groups.expire("g", consumer.group_metadata().member_id)
        two_partitions.forget_requests()
        deadline = asyncio.get_running_loop().time() + 0.5
        while asyncio.get_running_loop().time() < deadline:
            await hear_of_it(consumer)
        # By the pauses of 50 ms and more about five; without them thousands.
        asked = sum(two_partitions.count(api) for api in NEEDS_THE_RIGHT)
        assert asked < 100


# == Heartbeats without a response =================================================================


OPTIONS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": [RoundRobinPartitionAssignor]},
    "cooperative": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
    "consumer": {"group_protocol": "consumer"},
}

CLASSIC = pytest.mark.parametrize("protocol", ["eager", "cooperative"])


def beat_of(protocol: str) -> Any:
    return ConsumerGroupHeartbeatRequest if protocol == "consumer" else HeartbeatRequest


async def begin(start: Start, cluster: FakeCluster, log: Log, protocol: str) -> AIOKafkaConsumer:
    """Start a member with the default session, ten seconds in a classic group."""
    consumer = await start(cluster, group_id="g", max_poll_interval_ms=10**7, **OPTIONS[protocol])
    consumer.subscribe(["t"], listener=log)
    await until(cluster, lambda: consumer.assignment())
    return consumer


@pytest.mark.parametrize("protocol", OPTIONS)
async def test_a_connection_that_is_dead_costs_no_session(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """The coordinator is alive, and other connections to it work."""
    await cluster.create_topic("t")
    log = Log()
    consumer = await begin(start, cluster, log, protocol)
    dead: set[int] = set()

    def never(request: Any, context: RequestContext) -> Action | None:
        # All that the connection carries, from the first heartbeat on.
        if isinstance(request, beat_of(protocol)) and not dead:
            dead.add(context.connection_id)
        return Hold(asyncio.Event()) if context.connection_id in dead else None

    for request in (beat_of(protocol), JoinGroupRequest):
        cluster.intercept(request, never)
    joins = cluster.count(JoinGroupRequest)
    await until(cluster, lambda: dead)
    await asyncio.sleep(120)
    assert cluster.count(JoinGroupRequest) == joins
    assert [name for name, _ in log.calls if name != "revoked"] == ["assigned"]
    assert consumer.assignment()


@CLASSIC
async def test_a_coordinator_that_has_moved_is_found_in_time(start: Start, protocol: str) -> None:
    """The broker that was it says nothing at all."""
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t")
        cluster.move_coordinator("group", "g", 0)
        log = Log()
        consumer = await begin(start, cluster, log, protocol)
        joins = cluster.count(JoinGroupRequest)
        cluster.move_coordinator("group", "g", 1)
        cluster.intercept(
            HeartbeatRequest,
            lambda _, context: Hold(asyncio.Event()) if context.node_id == 0 else None,
        )
        await until(cluster, lambda: [s for s in cluster.requests(HeartbeatRequest) if s.broker_id])
        await asyncio.sleep(120)
        assert cluster.count(JoinGroupRequest) == joins
        assert [name for name, _ in log.calls if name != "revoked"] == ["assigned"]
        assert consumer.assignment()


@CLASSIC
async def test_a_slow_line_costs_no_session(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """Each response takes longer than the time for a second heartbeat."""
    await cluster.create_topic("t")
    log = Log()
    consumer = await begin(start, cluster, log, protocol)
    joins = cluster.count(JoinGroupRequest)
    cluster.intercept(HeartbeatRequest, Delay(5))
    before = cluster.connections
    await asyncio.sleep(300)
    assert cluster.count(JoinGroupRequest) == joins
    assert [name for name, _ in log.calls if name != "revoked"] == ["assigned"]
    assert consumer.assignment()
    # One more, which is kept.
    assert cluster.connections <= before + 1


@CLASSIC
async def test_one_heartbeat_is_enough_if_it_gets_its_response(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    await cluster.create_topic("t")
    await begin(start, cluster, Log(), protocol)
    beats, before = cluster.count(HeartbeatRequest), cluster.connections
    searches = cluster.count(FindCoordinatorRequest)
    cluster.intercept(HeartbeatRequest, Delay(2))
    await asyncio.sleep(30)
    assert 9 <= cluster.count(HeartbeatRequest) - beats <= 11
    assert cluster.connections == before
    assert cluster.count(FindCoordinatorRequest) == searches


@CLASSIC
async def test_a_member_joins_again_once_its_coordinator_answers(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    await cluster.create_topic("t")
    log = Log()
    consumer = await begin(start, cluster, log, protocol)
    awake = asyncio.Event()
    held = cluster.intercept(HeartbeatRequest, Hold(awake))
    await asyncio.sleep(60)
    # By a second one each time, but no more than that in one session.
    assert 2 <= held.hits <= 60
    held.remove()
    awake.set()
    await until(cluster, lambda: log.calls[-1] == ("assigned", {0}) and len(log.calls) > 2)
    assert consumer.assignment()


# == Time limits of calls and heartbeats with slow or silent brokers ===============================


SEEDS = range(6)


def now() -> float:
    return asyncio.get_running_loop().time()


def member_of(cluster: FakeCluster, *topics: str, **options: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        **{"enable_auto_commit": False, **options},
    )


# -- the coordinator is looked for -----------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_silent_broker_has_a_part_of_the_time_of_the_call(seed: int) -> None:
    """It had a third of `request_timeout_ms`, which may be more than the call has."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=3) as cluster:
            await cluster.create_topic("t", assignment={0: [0]})
            cluster.move_coordinator("group", "g", 1)
            consumer = member_of(cluster, default_api_timeout_ms=6000)
            consumer.assign([T0])
            async with consumer:
                await consumer.commit({T0: 7})
                cluster.faults.hang(2)
                cluster.move_coordinator("group", "g", 0)
                assert await consumer.committed(T0) == 7

    simulate(main, seed=seed)


def test_a_call_waits_for_a_coordinator_as_long_as_it_may() -> None:
    """It gave up after `request_timeout_ms`."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=2) as cluster:
            await cluster.create_topic("t")
            cluster.move_coordinator("group", "g", 0)
            consumer = member_of(cluster, request_timeout_ms=5000, default_api_timeout_ms=20_000)
            consumer.assign([T0])
            async with consumer:
                await consumer.commit({T0: 6})
                cluster.move_coordinator("group", "g", 1)
                refusal = Fail(GroupCoordinatorNotAvailableError)
                refused = cluster.intercept(FindCoordinatorRequest, refusal)
                asyncio.get_running_loop().call_later(8, refused.remove)
                began = now()
                await consumer.commit({T0: 7})
                assert 8 < now() - began < 10

    simulate(main)


def test_slow_brokers_name_the_coordinator_to_commits_that_have_little_time() -> None:
    """A third of a second for each was too little, again and again."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=3) as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 2)
            cluster.move_coordinator("group", "g", 0)
            options = {"enable_auto_commit": True, "auto_commit_interval_ms": 1000}
            consumer = member_of(cluster, auto_offset_reset="earliest", **options)
            consumer.assign([T0])
            async with consumer:
                await read(consumer, 1)
                for broker in range(3):
                    cluster.faults.slow(broker, 0.4)
                cluster.move_coordinator("group", "g", 1)
                await read(consumer, 1)
                before = cluster.count(OffsetCommitRequest)
                await cluster.wait_for(
                    lambda: cluster.count(OffsetCommitRequest) > before + 1, timeout_s=30
                )
                assert await consumer.committed(T0) == 1

    simulate(main)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_silent_broker_costs_no_member_its_session(seed: int) -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=3) as cluster:
            await cluster.create_topic("t", assignment={0: [0]})
            cluster.move_coordinator("group", "g", 1)
            async with member_of(cluster, "t") as consumer:
                before = consumer.group_metadata()
                cluster.faults.hang(2, [FindCoordinatorRequest])
                cluster.move_coordinator("group", "g", 0)
                await asyncio.sleep(40)
                assert consumer.group_metadata() == before

    simulate(main, seed=seed)


# -- commits that are refused ----------------------------------------------------------------------

REFUSAL = Fail(RebalanceInProgressError)
LONG_PAUSES = {"retry_backoff_ms": 8000, "retry_backoff_max_ms": 8000}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_commit_ends_in_time_between_two_attempts(protocol: str) -> None:
    """It ended after the pause, with "no answer"."""

    async def main(simulation: Simulation) -> float:
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t")
            options = {**LONG_PAUSES, "group_protocol": protocol, "default_api_timeout_ms": 3000}
            async with member_of(cluster, "t", **options) as consumer:
                cluster.intercept(OffsetCommitRequest, REFUSAL)
                began = now()
                with pytest.raises(KafkaTimeoutError, match=r"in time: .*RebalanceInProgressError"):
                    await consumer.commit({T0: 7})
                return now() - began

    assert simulate(main) == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_stop_ends_in_time_between_two_attempts_to_commit(protocol: str) -> None:
    async def main(simulation: Simulation) -> float:
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 2)
            options = {**LONG_PAUSES, "group_protocol": protocol, "enable_auto_commit": True}
            async with member_of(cluster, "t", auto_offset_reset="earliest", **options) as consumer:
                await read(consumer, 2)
                cluster.intercept(OffsetCommitRequest, REFUSAL)
                began = now()
                await consumer.stop(timeout=4)
                return now() - began

    assert simulate(main) < 4.1


# -- the goodbye -----------------------------------------------------------------------------------

GOODBYES = {"classic": LeaveGroupRequest, "consumer": ConsumerGroupHeartbeatRequest}


@pytest.mark.parametrize("is_loading", [False, True])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_goodbye_reaches_the_coordinator_that_has_taken_over(
    protocol: str, is_loading: bool
) -> None:
    """It was refused, and the others waited for the end of the session."""

    async def main(simulation: Simulation) -> float:
        async with simulation.cluster(brokers=3) as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 1)
            cluster.move_coordinator("group", "g", 1)
            options = {"group_protocol": protocol, "auto_offset_reset": "earliest"}
            async with member_of(cluster, "t", **options) as first:
                await read(first, 1)
                if is_loading:
                    refusal = Fail(GroupLoadInProgressError)
                    loading = cluster.intercept(GOODBYES[protocol], refusal)
                    asyncio.get_running_loop().call_later(1, loading.remove)
                else:
                    cluster.move_coordinator("group", "g", 2)
            stopped_at = now()
            async with member_of(cluster, "t", **options) as second:
                await read(second, 1)
                return now() - stopped_at

    assert simulate(main) < 1


# -- heartbeats ------------------------------------------------------------------------------------


def test_a_slow_coordinator_counts_on_heartbeats_in_time() -> None:
    """The pause between two began with the response to the first: added to the time that this took,
    it was longer than the session."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=1) as cluster:
            await cluster.create_topic("t")
            faults = simulation.faults(cluster)
            async with member_of(cluster, "t") as consumer:
                before = consumer.group_metadata()
                faults.slow(0, 3.7, 3.7)
                await asyncio.sleep(120)
                assert consumer.group_metadata() == before
                assert consumer.assignment() == {T0}
                await faults.heal()

    simulate(main)


# -- what any broker can tell ----------------------------------------------------------------------


def test_topics_are_asked_for_as_long_as_other_calls_may_take() -> None:
    """Ten seconds of each broker, and `request_timeout_ms` of the bootstrap servers."""

    async def main(simulation: Simulation) -> float:
        async with simulation.cluster(brokers=5) as cluster:
            async with member_of(cluster, default_api_timeout_ms=15_000) as consumer:
                for broker in range(5):
                    cluster.faults.hang(broker)
                began = now()
                with pytest.raises(KafkaTimeoutError, match="all topics: no broker has answered"):
                    await consumer.topics()
                return now() - began

    assert simulate(main) == pytest.approx(15, abs=0.1)


@pytest.mark.parametrize("silent", range(3))
def test_a_silent_broker_has_a_part_of_the_time_for_topics(silent: int) -> None:
    async def main(simulation: Simulation) -> set[str]:
        async with simulation.cluster(brokers=3) as cluster:
            await cluster.create_topic("t")
            async with member_of(cluster, default_api_timeout_ms=6000) as consumer:
                cluster.faults.hang(silent)
                return await consumer.topics()

    assert simulate(main) == {"t"}


def test_a_start_waits_for_all_topics_as_long_as_for_its_brokers() -> None:
    async def main(simulation: Simulation) -> float:
        async with simulation.cluster(brokers=5) as cluster:
            cluster.intercept(MetadataRequest, only_of_some)
            began = now()
            async with member_of(cluster, request_timeout_ms=15_000):
                return now() - began

    def only_of_some(request: MetadataRequest, context: RequestContext) -> Silence | None:
        return Silence() if request.topics is None else None

    assert simulate(main) < 16


# -- throttles -------------------------------------------------------------------------------------


def test_a_broker_that_throttles_is_not_unreachable() -> None:
    """It has responded, and said for how long it will read nothing."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=1) as cluster:
            await cluster.create_topic("t")
            async with member_of(cluster, "t", unreachable_timeout_ms=3000) as consumer:
                cluster.throttle(9000)
                began = now()
                while now() - began < 60:
                    assert not await consumer.getmany(timeout_ms=1000)
                    assert consumer.health().state is not ConsumerState.UNREACHABLE
                cluster.throttle(0)

    simulate(main)


def test_a_broker_that_is_silent_after_a_throttle_is_unreachable() -> None:
    async def main(simulation: Simulation) -> float:
        async with simulation.cluster(brokers=1) as cluster:
            await cluster.create_topic("t")
            faults = simulation.faults(cluster)
            async with member_of(cluster, unreachable_timeout_ms=3000) as consumer:
                consumer.assign([T0])
                assert not await consumer.getmany(timeout_ms=1000)
                cluster.throttle(9000)
                await cluster.wait_for(lambda: cluster.count(FetchRequest) > 2)
                throttled_at = now()
                await asyncio.sleep(2)
                faults.silence(0)
                with pytest.raises(KafkaUnreachableError):
                    await consumer.getone()
                cluster.throttle(0)
                await faults.heal()
                return now() - throttled_at

    # The throttle, a second for the response, and the limit.
    assert 9 + 1 + 3 < simulate(main) < 15
