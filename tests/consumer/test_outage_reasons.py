"""An outage is explained by what happened in it: who, where, since when, to which request."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import re
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerState
from aiokafka._compat import timeout
from aiokafka.errors import GroupCoordinatorNotAvailableError
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiokafka.protocol.messages.heartbeat import HeartbeatRequest
from aiokafka.protocol.messages.join_group import JoinGroupRequest
from aiokafka.testing import Cut, Fail, FakeCluster, Silence
from tests.support.consumers import T0, Start, fill, read

GROUP: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 20, "session_timeout_ms": 2000}
QUICK: dict[str, Any] = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50}
SHORT_SESSIONS = {"group.min.session.timeout.ms": "100"}


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
    async with FakeCluster(brokers=2, config=SHORT_SESSIONS) as cluster:
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
    async with FakeCluster(config=SHORT_SESSIONS) as cluster:
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
    async with FakeCluster(config=SHORT_SESSIONS) as cluster:
        await cluster.create_topic("t")
        cluster.intercept(request_class, Fail(GroupCoordinatorNotAvailableError), times=3)
        await start(cluster, "t", **GROUP, retry_backoff_ms=10)
        assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_a_coordinator_that_goes_later_is_an_outage(start: Start) -> None:
    async with FakeCluster(config=SHORT_SESSIONS) as cluster:
        await cluster.create_topic("t")
        consumer = await start(cluster, "t", **GROUP, retry_backoff_ms=10)
        gone = Fail(GroupCoordinatorNotAvailableError)
        with (
            cluster.intercept(HeartbeatRequest, gone),
            cluster.intercept(FindCoordinatorRequest, gone),
        ):
            await until(consumer, ConsumerState.UNREACHABLE)
        await until(consumer, ConsumerState.RUNNING)
