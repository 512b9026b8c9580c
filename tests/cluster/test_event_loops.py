"""An object that is used in another event loop than its own says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IllegalStateError
from aiokafka.protocol.messages import MetadataRequest
from aiokafka.testing import FakeCluster

TP = TopicPartition("topic", 0)

USES: dict[str, tuple[Callable[..., Any], Callable[[Any], Awaitable[Any]]]] = {
    "producer's send": (AIOKafkaProducer, lambda it: it.send("other-topic", b"v")),
    "producer's partitions": (AIOKafkaProducer, lambda it: it.partitions_for("topic")),
    "producer's flush": (AIOKafkaProducer, lambda it: it.flush()),
    "producer's stop": (AIOKafkaProducer, lambda it: it.stop()),
    "consumer's getone": (AIOKafkaConsumer, lambda it: it.getone()),
    "consumer's getmany": (AIOKafkaConsumer, lambda it: it.getmany(timeout_ms=1)),
    "consumer's position": (AIOKafkaConsumer, lambda it: it.position(TP)),
    "consumer's end offsets": (AIOKafkaConsumer, lambda it: it.end_offsets([TP])),
    "consumer's commit": (AIOKafkaConsumer, lambda it: it.commit({TP: 1})),
    "consumer's committed": (AIOKafkaConsumer, lambda it: it.committed(TP)),
    "consumer's seek": (AIOKafkaConsumer, lambda it: it.seek_to_end(TP)),
    "consumer's topics": (AIOKafkaConsumer, lambda it: it.topics()),
    "consumer's stop": (AIOKafkaConsumer, lambda it: it.stop()),
    "admin's list": (AIOKafkaAdminClient, lambda it: it.list_topics()),
    "admin's close": (AIOKafkaAdminClient, lambda it: it.close()),
    "client's send": (AIOKafkaClient, lambda it: it.send(0, MetadataRequest(topics=[]))),
    "client's connection": (AIOKafkaClient, lambda it: it.connection(0)),
    "client's close": (AIOKafkaClient, lambda it: it.close()),
}


@pytest.mark.parametrize("name", USES)
def test_use_in_another_loop_is_refused(name: str) -> None:
    make, use = USES[name]
    own, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        cluster = own.run_until_complete(new_cluster())
        thing = own.run_until_complete(begin(make, cluster))
        with pytest.raises(IllegalStateError, match="belongs to another event"):
            other.run_until_complete(asyncio.wait_for(use(thing), 20))
        # It goes on in its own.
        own.run_until_complete(end(thing, cluster))
    finally:
        own.close()
        other.close()


async def new_cluster() -> FakeCluster:
    cluster = FakeCluster()
    await cluster.start()
    await cluster.create_topic("topic")
    return cluster


async def begin(make: Callable[..., Any], cluster: FakeCluster) -> Any:
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
    if make is AIOKafkaConsumer:
        options["group_id"] = "group"
    thing = make(**options)
    await (thing.bootstrap() if make is AIOKafkaClient else thing.start())
    if make is AIOKafkaConsumer:
        thing.assign([TP])
        await thing.position(TP)
    return thing


async def end(thing: Any, cluster: FakeCluster) -> None:
    if isinstance(thing, AIOKafkaProducer):
        await thing.send_and_wait("topic", b"v")
    await (thing.stop() if hasattr(thing, "stop") else thing.close())
    await cluster.stop()


@pytest.mark.parametrize("make", [AIOKafkaProducer, AIOKafkaAdminClient])
def test_start_in_another_loop_is_refused(make: Callable[..., Any]) -> None:
    async def new() -> Any:
        return make()

    thing = asyncio.run(new())
    with pytest.raises((IllegalStateError, ValueError), match="another event loop"):
        asyncio.run(thing.start())
