"""How long calls and heartbeats take beside brokers that are slow or silent, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaTimeoutError,
    KafkaUnreachableError,
    RebalanceInProgressError,
)
from aiokafka.health import ConsumerState
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.testing import Fail, FakeCluster, RequestContext, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, fill, read

SEEDS = range(6)


def now() -> float:
    return asyncio.get_running_loop().time()


def member(cluster: FakeCluster, *topics: str, **options: Any) -> AIOKafkaConsumer:
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
            consumer = member(cluster, default_api_timeout_ms=6000)
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
            consumer = member(cluster, request_timeout_ms=5000, default_api_timeout_ms=20_000)
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
            consumer = member(cluster, auto_offset_reset="earliest", **options)
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
            async with member(cluster, "t") as consumer:
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
            async with member(cluster, "t", **options) as consumer:
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
            async with member(cluster, "t", auto_offset_reset="earliest", **options) as consumer:
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
            async with member(cluster, "t", **options) as first:
                await read(first, 1)
                if is_loading:
                    refusal = Fail(GroupLoadInProgressError)
                    loading = cluster.intercept(GOODBYES[protocol], refusal)
                    asyncio.get_running_loop().call_later(1, loading.remove)
                else:
                    cluster.move_coordinator("group", "g", 2)
            stopped_at = now()
            async with member(cluster, "t", **options) as second:
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
            async with member(cluster, "t") as consumer:
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
            async with member(cluster, default_api_timeout_ms=15_000) as consumer:
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
            async with member(cluster, default_api_timeout_ms=6000) as consumer:
                cluster.faults.hang(silent)
                return await consumer.topics()

    assert simulate(main) == {"t"}


def test_a_start_waits_for_all_topics_as_long_as_for_its_brokers() -> None:
    async def main(simulation: Simulation) -> float:
        async with simulation.cluster(brokers=5) as cluster:
            cluster.intercept(MetadataRequest, only_of_some)
            began = now()
            async with member(cluster, request_timeout_ms=15_000):
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
            async with member(cluster, "t", unreachable_timeout_ms=3000) as consumer:
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
            async with member(cluster, unreachable_timeout_ms=3000) as consumer:
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
