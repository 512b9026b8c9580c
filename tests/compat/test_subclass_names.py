"""Attributes of programs' subclasses: any name is theirs that aiokafka does not use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.testing import FakeCluster

TP = TopicPartition("t", 0)

OF_CONSUMERS = [
    *("group_id", "_group_id", "enable_auto_commit", "isolation_level", "metrics", "lag"),
    *("_config", "_group", "_health", "_open", "_start", "_tasks"),
]
OF_PRODUCERS = ["transactional_id", "metrics", "_close", "_config", "_health", "_start"]
OF_ADMINS = ["metrics", "topics"]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        yield cluster


def setting_before(base: type[Any], name: str) -> type[Any]:
    class Subclass(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            setattr(self, name, "mine")
            super().__init__(*args, **options)

    return Subclass


def setting_after(base: type[Any], name: str) -> type[Any]:
    class Subclass(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            setattr(self, name, "mine")

    return Subclass


def defining(base: type[Any], name: str) -> type[Any]:
    def method(self: Any, *args: Any) -> None:
        raise AssertionError("not for the client to call")

    return type("Subclass", (base,), {name: method})


ways = pytest.mark.parametrize("way", [setting_before, setting_after, defining])


@ways
@pytest.mark.parametrize("name", OF_CONSUMERS)
async def test_names_in_a_consumer(cluster: FakeCluster, way: Any, name: str) -> None:
    cluster.log("t").append(b"v")
    made = way(AIOKafkaConsumer, name)(
        "t",
        group_id="g",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
    )
    async with made as consumer:
        assert (await anext(aiter(consumer))).value == b"v"
        assert await consumer.getmany() == {}
        await consumer.commit()
        assert await consumer.committed(TP) == await consumer.position(TP) == 1
        assert getattr(consumer, name) == "mine" or way is defining
    assert "group_id='g'" in repr(consumer)


@ways
@pytest.mark.parametrize("name", OF_PRODUCERS)
async def test_names_in_a_producer(cluster: FakeCluster, way: Any, name: str) -> None:
    made = way(AIOKafkaProducer, name)(
        transactional_id="tx", bootstrap_servers=cluster.bootstrap_servers
    )
    async with made as producer:
        async with producer.transaction():
            await producer.send_and_wait("t", b"v")
        assert getattr(producer, name) == "mine" or way is defining
    assert "transactional_id=tx" in repr(producer)
    assert [record.value for record in cluster.log("t").records()] == [b"v"]


@ways
@pytest.mark.parametrize("name", OF_ADMINS)
async def test_names_in_an_admin_client(cluster: FakeCluster, way: Any, name: str) -> None:
    async with way(AIOKafkaAdminClient, name)(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert await admin.list_topics() == ["t"]
