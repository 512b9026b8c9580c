"""Snapshots: plain data that says what a client is doing, at any moment of its life."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaShareConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.debug import snapshot
from aiokafka.parallel import ParallelConsumer
from aiokafka.testing import FakeCluster
from tests.support.consumers import Start, fill
from tests.support.producers import TOPIC, new_producer, transactional

T0 = TopicPartition(TOPIC, 0)


def plain(client: Any) -> dict[str, Any]:
    """A snapshot after a journey as JSON."""
    taken = snapshot(client)
    assert json.loads(json.dumps(taken, allow_nan=False)) == taken
    return taken


async def test_a_consumer(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 0, 5, topic=TOPIC)
    consumer = await start(cluster, TOPIC, client_id="reader", group_id="group")
    consumer.pause(TopicPartition(TOPIC, 1))
    for _ in range(2):
        await consumer.getone()
    taken = plain(consumer)
    assert (taken["kind"], taken["client_id"]) == ("consumer", "reader")
    assert taken["subscription"] == [TOPIC]
    first, second, third = taken["assignment"]
    assert first == {
        "topic": TOPIC,
        "partition": 0,
        "position": 2,
        "lag": 3,
        "lead": 2,
        "paused": False,
        "consumed_total": 2,
    }
    assert (second["paused"], third["paused"]) == (True, False)
    assert taken["group"]["group_id"] == "group"
    assert taken["group"]["generation"] == 1
    assert taken["group"]["join_time"]["count"] >= 1
    assert taken["health"]["state"] == "running"
    states = [change["state"] for change in taken["health"]["changes"]]
    assert states[-2:] == ["starting", "new"]
    assert taken["buffers"]["fetch_buffer_bytes"] > 0
    assert 0 <= taken["metadata_age"] < 60
    assert taken["connections"]["all"]["connection_count"] >= 2
    nodes = {node["node_id"]: node for node in taken["connections"]["nodes"]}
    assert nodes["0"]["response_total"] > 0
    while (await consumer.getone()).offset < 4:
        pass
    await consumer.getmany(timeout_ms=10)
    assert plain(consumer)["buffers"]["fetch_buffer_bytes"] == 0


async def test_a_producer(cluster: FakeCluster) -> None:
    producer = transactional(cluster, client_id="writer")
    before = plain(producer)
    assert (before["health"]["state"], before["metadata_age"]) == ("new", None)
    async with producer:
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"value", partition=0)
            taken = plain(producer)
    assert (taken["kind"], taken["transactional_id"]) == ("producer", "worker")
    assert taken["topics"][0]["topic"] == TOPIC
    assert taken["topics"][0]["record_send_total"] == 1
    assert taken["buffers"]["batches_pending"] == 0
    assert taken["buffers"]["buffer_available_bytes"] == 33_554_432
    after = plain(producer)["health"]
    assert after["state"] == "closed"
    assert [change["state"] for change in after["changes"]] == ["closing", "running", "new"]


async def test_errors_are_among_the_changes(cluster: FakeCluster) -> None:
    async with new_producer(cluster, request_timeout_ms=500) as producer:
        await producer.send_and_wait(TOPIC, b"value", partition=0)
        await cluster.stop_broker(0)
        future = await producer.send(TOPIC, b"value", partition=0)
        while producer.health().state != "unreachable":
            await asyncio.sleep(0.001)
        await cluster.start_broker(0)
        await future
        health = plain(producer)["health"]
    (unreachable,) = [each for each in health["changes"] if each["state"] == "unreachable"]
    assert "Broker 0" in unreachable["reason"]
    assert unreachable["age_ms"] >= health["state_age_ms"]


async def test_others(cluster: FakeCluster) -> None:
    async with AIOKafkaAdminClient(
        bootstrap_servers=cluster.bootstrap_servers, client_id="admin"
    ) as admin:
        assert plain(admin)["kind"] == "admin client"
        assert plain(admin)["connections"]["all"]["connection_count"] >= 1
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="group", enable_auto_commit=False
    )
    async with ParallelConsumer(consumer, topics=[TOPIC]) as parallel:
        taken = plain(parallel)
    assert (taken["kind"], taken["running"], taken["failure"]) == ("parallel consumer", 0, None)
    assert taken["consumer"]["group"]["group_id"] == "group"


async def test_a_share_consumer(cluster: FakeCluster) -> None:
    consumer = AIOKafkaShareConsumer(
        TOPIC, bootstrap_servers=cluster.bootstrap_servers, client_id="sharer", group_id="queue"
    )
    assert plain(consumer)["kind"] == "share consumer"
    async with consumer:
        await cluster.wait_for(lambda: len(consumer.assignment()) == 3)
        taken = plain(consumer)
    assert (taken["kind"], taken["client_id"]) == ("share consumer", "sharer")
    assert taken["subscription"] == [TOPIC]
    assert taken["assignment"] == [f"{TOPIC}-{number}" for number in range(3)]
    assert 0 <= taken["metadata_age"] < 60
    assert taken["connections"]["all"]["connection_count"] >= 1
    assert taken["connections"]["nodes"]
