"""What tests of administration share: clients, members, topics with records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import TopicPartition
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate


def simulated(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in virtual time: a machine that is busy does not use up its timeouts."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def main(_: Simulation) -> None:
            await test(*arguments, **named)

        simulate(main)

    return run


def make_admin(cluster: FakeCluster, **options: Any) -> AIOKafkaAdminClient:
    options = {"request_timeout_ms": 5_000, "retry_backoff_ms": 10, **options}
    return AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, **options)


FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))
START = 1_700_000_000_000


async def filled(cluster: FakeCluster) -> None:
    """Make three partitions with ten records each, a second apart, of which two are deleted."""
    await cluster.create_topic("t", partitions=3)
    for partition in range(3):
        log = cluster.log("t", partition)
        for number in range(10):
            log.extend([(None, b"value", ())], timestamp_ms=START + 1000 * number)
        log.delete_before(2)


class Servers(Protocol):
    """A cluster that has an address, fake or real."""

    @property
    def bootstrap_servers(self) -> str:
        """Where it is."""


async def commit(cluster: Servers, group: str, offsets: dict[TopicPartition, Any]) -> None:
    async with AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        client_id="commits",
        group_id=group,
        enable_auto_commit=False,
    ) as consumer:
        consumer.assign(list(offsets))
        await consumer.commit(offsets)


def member(cluster: FakeCluster, group: str, *topics: str, **options: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        client_id=f"client-of-{group}",
        **options,
    )


async def joined(cluster: FakeCluster, consumer: AIOKafkaConsumer, count: int = 2) -> None:
    await cluster.wait_for(lambda: len(consumer.assignment()) == count)
