"""Clients made before their event loop runs, as programs of 2018 make them in a module."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.testing import FakeCluster

CLASSES = [AIOKafkaConsumer, AIOKafkaClient, AIOKafkaAdminClient]


def made_outside(cls: type[Any], loop: asyncio.AbstractEventLoop, *topics: str, **kw: Any) -> Any:
    with pytest.warns(DeprecationWarning, match=f"{cls.__name__}.*running event loop") as seen:
        made = cls(*topics, loop=loop, **kw)
    assert seen[0].filename == __file__
    return made


async def close(made: Any) -> None:
    await (made.stop() if isinstance(made, AIOKafkaConsumer) else made.close())


async def start_cluster() -> FakeCluster:
    cluster = FakeCluster()
    await cluster.start()
    await cluster.create_topic("t")
    cluster.log("t").append(b"v")
    return cluster


@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_consumer_made_for_a_loop_that_runs_later(group_id: str | None) -> None:
    async def use(cluster: FakeCluster, consumer: AIOKafkaConsumer) -> None:
        async with consumer:
            assert consumer.assignment() == {TopicPartition("t", 0)}
            assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"v"

    loop = asyncio.new_event_loop()
    try:
        cluster = loop.run_until_complete(start_cluster())
        consumer = made_outside(
            AIOKafkaConsumer,
            loop,
            "t",
            group_id=group_id,
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
        )
        loop.run_until_complete(use(cluster, consumer))
        loop.run_until_complete(cluster.stop())
    finally:
        loop.close()


def test_a_client_and_an_admin_client_made_for_a_loop_that_runs_later() -> None:
    async def use(client: AIOKafkaClient, admin: AIOKafkaAdminClient) -> None:
        await client.bootstrap()
        assert "t" in (await client.fetch_all_metadata()).topics()
        await client.close()
        async with admin:
            assert await admin.list_topics() == ["t"]

    loop = asyncio.new_event_loop()
    try:
        cluster = loop.run_until_complete(start_cluster())
        servers = cluster.bootstrap_servers
        client = made_outside(AIOKafkaClient, loop, bootstrap_servers=servers)
        admin = made_outside(AIOKafkaAdminClient, loop, bootstrap_servers=servers)
        loop.run_until_complete(use(client, admin))
        loop.run_until_complete(cluster.stop())
    finally:
        loop.close()


@pytest.mark.parametrize("cls", CLASSES)
def test_no_loop_runs_after_one_was_made(cls: type[Any]) -> None:
    loop = asyncio.new_event_loop()
    try:
        made = made_outside(cls, loop)
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        loop.run_until_complete(close(made))
        with pytest.raises(ValueError, match="retry_backoff_ms"):
            cls(loop=loop, retry_backoff_ms=-1)
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
    finally:
        loop.close()


@pytest.mark.parametrize("cls", CLASSES)
def test_without_any_loop_the_class_is_named(cls: type[Any]) -> None:
    with pytest.raises(RuntimeError, match=rf"{cls.__name__}: .*`async def main\(\)`"):
        cls()


@pytest.mark.parametrize("cls", CLASSES)
async def test_the_running_loop_counts(cls: type[Any]) -> None:
    with pytest.warns(DeprecationWarning, match="no effect"):
        made = cls(loop=asyncio.get_running_loop())
    await close(made)
