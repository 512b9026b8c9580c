"""`AIOKafkaConsumer.health()`: states, figures, and the reasons of an outage."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerState, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import (
    FencedInstanceId,
    GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaError,
    KafkaUnreachableError,
)
from aiokafka.protocol.messages.fetch import FetchRequest, ListOffsetsRequest
from aiokafka.protocol.messages.group_members import HeartbeatRequest, JoinGroupRequest
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest
from aiokafka.testing import Cut, Delay, Fail, FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, Start, fill, read
from tests.support.health import QUICK, SHORT_SESSIONS, until_state

# == States and figures of `health()` ==============================================================


GROUP: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20, "session_timeout_ms": 2000}


@pytest.fixture
async def short_sessions() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(config=SHORT_SESSIONS) as fake:
        yield fake
        assert fake.failures == []


async def test_from_the_beginning_to_the_end(short_sessions: FakeCluster) -> None:
    await short_sessions.create_topic("t")
    fill(short_sessions, 0, 5)
    consumer = AIOKafkaConsumer(
        "t",
        bootstrap_servers=short_sessions.bootstrap_servers,
        auto_offset_reset="earliest",
        **GROUP,
    )
    health = consumer.health()
    assert health.state == "new"
    assert not health.joined
    assert (health.heartbeat_age_ms, health.fetch_age_ms, health.lag) == (None, None, None)
    assert (health.last_error, health.error_age_ms, health.unreachable) == (None, None, ())

    starting = asyncio.get_running_loop().create_task(consumer.start())
    await asyncio.sleep(0)
    assert consumer.health().state is ConsumerState.STARTING
    await starting
    assert len(await read(consumer, 3)) == 3
    health = consumer.health()
    assert health.state == "running"
    assert f"{health.state}" == str(health.state) == "running"
    assert health.joined
    assert health.heartbeat_age_ms is not None
    assert health.fetch_age_ms is not None
    assert health.lag == 2

    consumer.unsubscribe()
    assert consumer.health().state is ConsumerState.UNSUBSCRIBED
    await consumer.stop()
    health = consumer.health()
    assert health.state is ConsumerState.CLOSED
    assert not health.joined


async def test_lag_and_ends_without_asking(short_sessions: FakeCluster, start: Start) -> None:
    await short_sessions.create_topic("t", partitions=2)
    fill(short_sessions, 0, 5)
    consumer = await start(short_sessions, assign=[T0, T1])
    assert len(await consumer.getmany(timeout_ms=5000, max_records=2)) == 1
    await short_sessions.wait_for(lambda: None not in consumer.known_end_offsets().values())
    assert consumer.lag(T0) == 3
    assert consumer.lag() == {T0: 3, T1: 0}
    assert consumer.known_end_offsets() == {T0: 5, T1: 0}
    assert consumer.health().lag == 3
    consumer.assign([T1])
    with pytest.raises(Exception, match="not assigned"):
        consumer.lag(T0)


async def test_lag_is_unknown_before_the_first_fetch(
    short_sessions: FakeCluster, start: Start
) -> None:
    await short_sessions.create_topic("t")
    short_sessions.intercept(FetchRequest, Silence())
    consumer = await start(short_sessions, assign=[T0])
    assert consumer.lag() == {T0: None}
    assert consumer.known_end_offsets() == {T0: None}
    assert consumer.health().lag is None


async def test_all_brokers_go_and_come_back(short_sessions: FakeCluster, start: Start) -> None:
    await short_sessions.create_topic("t")
    fill(short_sessions, 0, 1)
    consumer = await start(short_sessions, "t", **GROUP, **QUICK)
    assert len(await read(consumer, 1)) == 1
    await short_sessions.stop_broker(0)
    await until_state(consumer, ConsumerState.UNREACHABLE)
    health = consumer.health()
    assert health.reason
    assert isinstance(health.last_exception, KafkaConnectionError)
    assert health.error_age_ms is not None
    assert set(health.unreachable) <= {"Broker 0", "The coordinator of group g"}
    fill(short_sessions, 0, 1)
    await short_sessions.start_broker(0)
    assert len(await read(consumer, 1)) == 1
    await until_state(consumer, ConsumerState.RUNNING)
    health = consumer.health()
    assert health.unreachable == ()
    assert health.reason == ""
    assert health.joined


async def test_one_of_two_brokers_is_no_outage(start: Start) -> None:
    async with FakeCluster(brokers=2, config=SHORT_SESSIONS) as cluster:
        await cluster.create_topic("t", partitions=2, replication_factor=1)
        consumer = await start(cluster, assign=[T0, T1], **QUICK)
        await cluster.wait_for(lambda: cluster.count(FetchRequest) >= 2)
        gone = cluster.partition("t", 1).leader
        assert gone is not None
        await cluster.stop_broker(gone)
        await cluster.wait_for(lambda: consumer.health().last_error is not None)
        fill(cluster, 0, 1)
        await read(consumer, 1)
        assert consumer.health().state is ConsumerState.RUNNING


async def test_only_the_coordinator_goes(start: Start) -> None:
    async with FakeCluster(brokers=2, config=SHORT_SESSIONS) as cluster:
        await cluster.create_topic("t", replication_factor=1)
        other = 1 - (cluster.partition("t", 0).leader or 0)
        cluster.move_coordinator("group", "g", other)
        consumer = await start(cluster, "t", **GROUP, **QUICK)
        await cluster.stop_broker(other)
        await until_state(consumer, ConsumerState.UNREACHABLE)
        health = consumer.health()
        assert health.unreachable == ("The coordinator of group g",)
        assert "The coordinator of group g" in health.reason
        # Fetching goes on.
        fill(cluster, 0, 1)
        assert len(await read(consumer, 1)) == 1
        await cluster.start_broker(other)
        await until_state(consumer, ConsumerState.RUNNING)


async def test_a_coordinator_that_is_silent(short_sessions: FakeCluster, start: Start) -> None:
    await short_sessions.create_topic("t")
    options = {**GROUP, "session_timeout_ms": 300}
    consumer = await start(short_sessions, "t", **options, **QUICK)
    assert consumer.health().joined
    with short_sessions.intercept(HeartbeatRequest, Silence()):
        seen = await until_state(consumer, ConsumerState.UNREACHABLE)
        assert seen[0] is ConsumerState.RUNNING
        # Unheard for a whole session: no member, whatever the coordinator thinks.
        async with timeout(5):
            while consumer.health().joined:
                await asyncio.sleep(0.01)
    await until_state(consumer, ConsumerState.RUNNING)
    assert consumer.health().joined


@pytest.mark.real_time
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_process_that_was_frozen(
    short_sessions: FakeCluster, start: Start, protocol: str
) -> None:
    await short_sessions.create_topic("t")
    options: dict[str, Any] = {"group_id": "g", "group_protocol": protocol}
    if protocol == "classic":
        options = {**GROUP, "session_timeout_ms": 200}
    consumer = await start(short_sessions, "t", **options)
    assert consumer.health().joined
    # As after SIGSTOP and SIGCONT: nothing of this process ran, the clock did.
    time.sleep(0.3)  # noqa: ASYNC251
    health = consumer.health()
    assert not health.joined
    assert health.state is ConsumerState.REBALANCING
    assert health.heartbeat_age_ms is not None
    assert health.heartbeat_age_ms >= 300
    await until_state(consumer, ConsumerState.RUNNING)


async def test_the_application_does_not_ask(short_sessions: FakeCluster, start: Start) -> None:
    await short_sessions.create_topic("t")
    consumer = await start(short_sessions, "t", max_poll_interval_ms=100, **GROUP)
    await until_state(consumer, ConsumerState.POLL_OVERDUE)
    assert "max_poll_interval_ms" in consumer.health().reason
    await short_sessions.wait_for(lambda: not consumer.health().joined)
    await consumer.getmany()
    await until_state(consumer, ConsumerState.RUNNING)


async def test_fenced(short_sessions: FakeCluster, start: Start) -> None:
    await short_sessions.create_topic("t")
    options = {**GROUP, "group_instance_id": "me"}
    first = await start(short_sessions, "t", **options)
    await start(short_sessions, "t", **options)
    await until_state(first, ConsumerState.FAILED)
    health = first.health()
    assert isinstance(health.last_exception, FencedInstanceId)
    assert "FencedInstanceId" in health.reason
    assert not health.joined


async def test_readers_are_told_of_an_outage(short_sessions: FakeCluster, start: Start) -> None:
    await short_sessions.create_topic("t")
    fill(short_sessions, 0, 1)
    consumer = await start(short_sessions, "t", unreachable_timeout_ms=200, **GROUP, **QUICK)
    assert len(await read(consumer, 1)) == 1
    await short_sessions.stop_broker(0)
    for _ in range(2):
        before = asyncio.get_running_loop().time()
        with pytest.raises(KafkaUnreachableError, match="no answer for") as caught:
            async with timeout(10):
                await consumer.getone()
        assert caught.value.retriable
        assert caught.value.parties
        assert caught.value.unreachable_ms >= 200
        assert isinstance(caught.value.last_error, KafkaConnectionError)
        # A loop that tries again at once does not spin.
        assert asyncio.get_running_loop().time() - before > 0.1
    with pytest.raises(KafkaUnreachableError):
        async with timeout(10):
            while not await consumer.getmany(timeout_ms=50):
                pass
    fill(short_sessions, 0, 1)
    await short_sessions.start_broker(0)
    await until_state(consumer, ConsumerState.RUNNING)
    assert (await consumer.getone()).offset == 1


async def test_two_readers_are_both_told(short_sessions: FakeCluster, start: Start) -> None:
    await short_sessions.create_topic("t", partitions=2)
    consumer = await start(short_sessions, assign=[T0, T1], unreachable_timeout_ms=100, **QUICK)
    await short_sessions.stop_broker(0)
    async with timeout(10):
        results = await asyncio.gather(
            consumer.getone(T0), consumer.getone(T1), return_exceptions=True
        )
    assert [type(result) for result in results] == [KafkaUnreachableError] * 2
    assert results[0] is not results[1]


async def test_silence_is_an_outage(short_sessions: FakeCluster, start: Start) -> None:
    await short_sessions.create_topic("t")
    consumer = await start(short_sessions, assign=[T0], unreachable_timeout_ms=100)
    with short_sessions.intercept(FetchRequest, Silence()):
        with pytest.raises(KafkaUnreachableError, match="Broker 0"):
            async with timeout(10):
                await consumer.getone()
        assert consumer.health().state is ConsumerState.UNREACHABLE
        assert consumer.health().unreachable == ("Broker 0",)


async def test_a_broker_that_tells_an_offset_answers(
    short_sessions: FakeCluster, start: Start
) -> None:
    """It may be asked for nothing else, as of a partition that is paused."""
    await short_sessions.create_topic("t")
    fill(short_sessions, 0, 3)
    consumer = await start(short_sessions, assign=[T0], request_timeout_ms=300)
    await read(consumer, 3)
    consumer.pause(T0)
    with short_sessions.intercept(ListOffsetsRequest, Cut()):
        assert not await consumer.seek_to_end(T0)
        assert consumer.health().unreachable == ("Broker 0",)
    assert await consumer.seek_to_end(T0)
    assert await consumer.position(T0) == 3
    assert consumer.health().unreachable == ()


async def test_positions_that_only_the_coordinator_knows(
    short_sessions: FakeCluster, start: Start
) -> None:
    await short_sessions.create_topic("t")
    with short_sessions.intercept(FindCoordinatorRequest, Fail(15)):
        consumer = await start(
            short_sessions, assign=[T0], group_id="g", unreachable_timeout_ms=100
        )
        with pytest.raises(KafkaUnreachableError, match="coordinator of group g"):
            async with timeout(10):
                await consumer.getone()
    fill(short_sessions, 0, 1)
    await until_state(consumer, ConsumerState.RUNNING)
    assert (await consumer.getone()).offset == 0


async def test_by_default_readers_wait(short_sessions: FakeCluster, start: Start) -> None:
    await short_sessions.create_topic("t")
    consumer = await start(short_sessions, assign=[T0], **QUICK)
    await short_sessions.stop_broker(0)
    await until_state(consumer, ConsumerState.UNREACHABLE)
    assert await consumer.getmany(timeout_ms=300) == {}


async def test_an_outage_is_logged_once(
    short_sessions: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    await short_sessions.create_topic("t", partitions=4)
    consumer = await start(short_sessions, "t", **GROUP, **QUICK)
    caplog.set_level(logging.INFO, logger="aiokafka")
    caplog.clear()
    await short_sessions.stop_broker(0)
    await until_state(consumer, ConsumerState.UNREACHABLE)
    # With these back-offs there are dozens of attempts.
    for _ in range(4):
        assert await consumer.getmany(timeout_ms=100) == {}
    went = [record.getMessage() for record in caplog.records]
    assert len(went) <= 8, went
    assert sum("running -> unreachable" in line for line in went) == 1
    caplog.clear()
    fill(short_sessions, 0, 1)
    await short_sessions.start_broker(0)
    await consumer.getone()
    await until_state(consumer, ConsumerState.RUNNING)
    came = [record.getMessage() for record in caplog.records]
    assert len(came) <= 14, came
    assert sum("-> running" in line for line in came) <= 2


async def test_a_restart_is_not_seen_as_many_changes(
    short_sessions: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    await short_sessions.create_topic("t")
    consumer = await start(short_sessions, "t", **GROUP, **QUICK)
    caplog.set_level(logging.INFO, logger="aiokafka")
    caplog.clear()
    for _ in range(5):
        await short_sessions.stop_broker(0)
        await until_state(consumer, ConsumerState.UNREACHABLE)
        await short_sessions.start_broker(0)
        await until_state(consumer, ConsumerState.RUNNING)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("-> unreachable" in line for line in lines) <= 10, lines
    assert len(lines) <= 5 * 16, lines


def test_health_outside_the_loop() -> None:
    async def use() -> AIOKafkaConsumer:
        async with FakeCluster() as fake:
            await fake.create_topic("t")
            async with AIOKafkaConsumer("t", bootstrap_servers=fake.bootstrap_servers) as consumer:
                # As a probe that runs in a thread of its own does.
                health = await asyncio.to_thread(consumer.health)
                assert health.state == "running"
                return consumer

    consumer = asyncio.run(use())
    assert consumer.health().state == "closed"


async def test_health_is_cheap(short_sessions: FakeCluster, start: Start) -> None:
    await short_sessions.create_topic("t", partitions=100)
    consumer = await start(short_sessions, assign=[TopicPartition("t", n) for n in range(100)])
    before = short_sessions.count(FetchRequest)
    for _ in range(100):
        consumer.health()
    assert short_sessions.count(FetchRequest) == before


def test_the_ages_are_in_milliseconds() -> None:
    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            cluster.intercept(FetchRequest, Cut(), times=1)
            async with AIOKafkaConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                heartbeat_interval_ms=100_000,
                session_timeout_ms=300_000,
            ) as consumer:
                await asyncio.sleep(10)
                consumer.pause(T0)
                await asyncio.sleep(50)
                health = consumer.health()
                assert health.state is ConsumerState.RUNNING
                for age in (health.heartbeat_age_ms, health.error_age_ms, health.state_age_ms):
                    assert age == pytest.approx(60_000, abs=5000)
                assert health.fetch_age_ms == pytest.approx(50_000, abs=1000)

    simulate(main)


def test_a_coordinator_that_is_not_needed_is_not_named() -> None:
    """With partitions chosen by hand, and positions, only commits need one."""

    async def main(_: Simulation) -> None:
        async with FakeCluster(brokers=2) as cluster:
            await cluster.create_topic("t", assignment={0: [0]})
            cluster.move_coordinator("group", "g", 1)
            fill(cluster, 0, 2)
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.address(0),
                group_id="g",
                auto_offset_reset="earliest",
                default_api_timeout_ms=5000,
            )
            consumer.assign([T0])
            async with consumer:
                assert len(await read(consumer, 1)) == 1
                await consumer.commit()
                with cluster.intercept(None, Cut(), broker=1):
                    assert len(await read(consumer, 1)) == 1
                    with pytest.raises(KafkaError):
                        await consumer.commit()
                    health = consumer.health()
                    assert health.last_error is not None
                    assert (health.state, health.unreachable) == (ConsumerState.RUNNING, ())

    simulate(main)


def test_a_member_without_partitions_is_well_while_its_coordinator_answers() -> None:
    """Though it gets no metadata."""

    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            options: dict[str, Any] = {
                "bootstrap_servers": cluster.bootstrap_servers,
                "group_id": "g",
                "metadata_max_age_ms": 10_000,
            }
            async with (
                AIOKafkaConsumer("t", **options) as first,
                AIOKafkaConsumer("t", **options) as second,
            ):
                await asyncio.sleep(20)
                (idle,) = (one for one in (first, second) if not one.assignment())
                with cluster.intercept(MetadataRequest, Cut()) as refused:
                    await refused.wait(hits=4, timeout_s=60)
                    await asyncio.sleep(10)
                    assert idle.health().last_error is not None
                    assert idle.health().state is ConsumerState.RUNNING
                with cluster.intercept(None, Cut()):
                    await asyncio.sleep(30)
                    assert idle.health().state is ConsumerState.UNREACHABLE

    simulate(main)


def test_a_coordinator_that_has_just_answered_is_not_named() -> None:
    """Though the next request is late, as it had to wait for the one before."""

    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            async with AIOKafkaConsumer(
                "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g"
            ) as consumer:
                beats = cluster.count(HeartbeatRequest)
                await cluster.wait_for(lambda: cluster.count(HeartbeatRequest) > beats)
                with (
                    cluster.intercept(OffsetFetchRequest, Delay(6)),
                    cluster.intercept(HeartbeatRequest, Delay(4)),
                ):
                    looking = asyncio.ensure_future(consumer.committed(T0))
                    await asyncio.sleep(5)
                    assert consumer.health().unreachable == ("The coordinator of group g",)
                    await looking
                    await asyncio.sleep(1)
                    health = consumer.health()
                    assert (health.state, health.unreachable) == (ConsumerState.RUNNING, ())

    simulate(main)


def test_a_heartbeat_counts_though_it_asks_for_a_join() -> None:
    """A member that does not join yet, as its application works, is one all the same."""

    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 1)
            options: dict[str, Any] = {
                "bootstrap_servers": cluster.bootstrap_servers,
                "group_id": "g",
                "rebalance_timeout_ms": 240_000,
            }
            async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **options) as consumer:
                assert len(await read(consumer, 1)) == 1
                async with AIOKafkaConsumer(**options) as other:
                    other.subscribe(["t"])
                    await asyncio.sleep(60)
                    health = consumer.health()
                    assert health.joined
                    assert health.heartbeat_age_ms is not None
                    assert health.heartbeat_age_ms < 4000
                    assert consumer.metrics().value("last-heartbeat-seconds-ago") < 4
                    assert not other.health().joined
                    assert await consumer.getmany() == {}

    simulate(main)


# == Reasons of an outage ==========================================================================


MIN_SESSION = {"group.min.session.timeout.ms": "100"}


async def until(consumer: AIOKafkaConsumer, state: ConsumerState) -> None:
    async with timeout(10):
        while consumer.health().state is not state:
            await asyncio.sleep(0.005)


async def test_a_silent_broker_is_not_blamed_for_an_outage_that_is_over(start: Start) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 1)
        consumer = await start(cluster, assign=[T0], request_timeout_ms=20_000, **QUICK)
        assert len(await read(consumer, 1)) == 1
        await cluster.stop_broker(0)
        await until(consumer, ConsumerState.UNREACHABLE)
        assert "does not answer: KafkaConnectionError" in consumer.health().reason
        await cluster.start_broker(0)
        fill(cluster, 0, 1)
        assert len(await read(consumer, 1)) == 1
        await until(consumer, ConsumerState.RUNNING)
        with cluster.intercept(FetchRequest, Silence()):
            await until(consumer, ConsumerState.UNREACHABLE)
            reason = consumer.health().reason
        assert "KafkaConnectionError" not in reason
        assert reason.startswith(f"Broker 0 at {cluster.bootstrap_servers} has not answered Fetch")


async def test_a_silent_coordinator_is_named_with_its_request(start: Start) -> None:
    async with FakeCluster(brokers=2, config=MIN_SESSION) as cluster:
        await cluster.create_topic("t")
        other = 1 - (cluster.partition("t", 0).leader or 0)
        cluster.move_coordinator("group", "g", other)
        # Time enough before a heartbeat is sent a second time, to a coordinator that is looked up.
        options = {**GROUP, **QUICK, "session_timeout_ms": 30_000}
        consumer = await start(cluster, "t", **options)
        with cluster.intercept(None, Silence(), broker=other):
            await until(consumer, ConsumerState.UNREACHABLE)
            reason = consumer.health().reason
        place = f"The coordinator of group g at {cluster.bootstrap_servers.split(',')[other]}"
        assert re.match(rf"{re.escape(place)} has not answered (Heartbeat|OffsetFetch) for", reason)


async def test_each_of_two_brokers_is_explained_by_its_own_error(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", partitions=2, assignment={0: (0,), 1: (1,)})
        consumer = await start(cluster, "t", **QUICK)
        await cluster.wait_for(lambda: consumer.health().fetch_age_ms is not None)
        with (
            cluster.intercept(FetchRequest, Silence(), broker=0),
            cluster.intercept(FetchRequest, Cut(), broker=1),
        ):
            await until(consumer, ConsumerState.UNREACHABLE)
            reason = consumer.health().reason
    assert "Broker 0 at" in reason
    assert "has not answered Fetch" in reason
    assert "Broker 1 at" in reason
    assert "does not answer: KafkaConnectionError" in reason.partition("Broker 1 at")[2]


async def test_health_is_plain_data_in_an_outage(start: Start) -> None:
    async with FakeCluster(config=MIN_SESSION) as cluster:
        await cluster.create_topic("t")
        consumer = await start(cluster, "t", **GROUP, **QUICK)
        await cluster.stop_broker(0)
        await until(consumer, ConsumerState.UNREACHABLE)
        health = consumer.health()
        found = json.loads(json.dumps(dataclasses.asdict(health)))
        assert found["state"] == "unreachable"
        assert found["last_error"] == str(health.last_exception)
        assert "last_exception" not in found
        assert found["unreachable"]
        await cluster.start_broker(0)


@pytest.mark.parametrize("request_class", [FindCoordinatorRequest, JoinGroupRequest])
async def test_the_first_moments_of_a_cluster_are_no_outage(
    start: Start, request_class: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokafka")
    async with FakeCluster(config=MIN_SESSION) as cluster:
        await cluster.create_topic("t")
        cluster.intercept(request_class, Fail(GroupCoordinatorNotAvailableError), times=3)
        await start(cluster, "t", **GROUP, retry_backoff_ms=10)
        assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_a_coordinator_that_goes_later_is_an_outage(start: Start) -> None:
    async with FakeCluster(config=MIN_SESSION) as cluster:
        await cluster.create_topic("t")
        consumer = await start(cluster, "t", **GROUP, retry_backoff_ms=10)
        gone = Fail(GroupCoordinatorNotAvailableError)
        with (
            cluster.intercept(HeartbeatRequest, gone),
            cluster.intercept(FindCoordinatorRequest, gone),
        ):
            await until(consumer, ConsumerState.UNREACHABLE)
        await until(consumer, ConsumerState.RUNNING)


# == Partitions that cannot be read ================================================================


async def test_what_is_paused_does_not_count(start: Start) -> None:
    """It is not read, so that its broker answers is no comfort."""
    async with FakeCluster(brokers=2, config=SHORT_SESSIONS) as cluster:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        consumer = await start(cluster, assign=[T0, T1], **QUICK)
        await until_state(consumer, ConsumerState.RUNNING)
        await cluster.stop_broker(1)
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 0)]
        assert consumer.health().state is ConsumerState.RUNNING
        consumer.pause(T0)
        await until_state(consumer, ConsumerState.UNREACHABLE)
        consumer.resume(T0)
        await until_state(consumer, ConsumerState.RUNNING)


async def test_the_lag_is_unknown_while_it_is_of_one_partition(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        for partition in (0, 1):
            fill(cluster, partition, 3)
        silent = cluster.intercept(FetchRequest, Silence(), broker=1)
        consumer = await start(cluster, assign=[T0, T1], request_timeout_ms=500)
        async with timeout(20):
            assert await read(consumer, 1) == [(0, 0)]
            assert consumer.lag() == {T0: 2, T1: None}
            assert consumer.health().lag is None
            silent.remove()
            await cluster.wait_for(lambda: None not in consumer.lag().values())
            assert consumer.health().lag == 5
