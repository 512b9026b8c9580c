"""What a long life must not add up: tasks, futures, timers, sockets, memory."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from dataclasses import astuple, dataclass

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.messages import FetchRequest, MetadataRequest
from aiokafka.testing import FakeCluster, Security
from tests.kafka.fixtures import Scale

pytestmark = pytest.mark.long

_DESCRIPTORS = "/proc/self/fd"


def _sockets() -> int:
    return len(os.listdir(_DESCRIPTORS)) if os.path.exists(_DESCRIPTORS) else 0


def _is_timer(thing: object) -> bool:
    # The fake group's own, which forgets a member that asked for a name, ends by itself.
    return (
        isinstance(thing, asyncio.TimerHandle)
        and not thing.cancelled()
        and "_forget_pending" not in repr(thing)
    )


@dataclass
class Count:
    """What there is at a moment when nothing is going on."""

    tasks: int
    futures: int
    timers: int
    sockets: int
    objects: int

    @classmethod
    async def now(cls) -> Count:
        # What was closed is gone after a few turns of the loop.
        for _ in range(10):
            await asyncio.sleep(0.005)
        gc.collect()
        things = gc.get_objects()
        return cls(
            len(asyncio.all_tasks()),
            sum(isinstance(thing, asyncio.Future) for thing in things),
            sum(_is_timer(thing) for thing in things),
            _sockets(),
            len(things),
        )

    def check(self, before: Count, rounds: int) -> None:
        """A thing that each round leaves behind would be seen: far fewer than one a round are.

        Other objects are counted roughly: the fake cluster keeps batches and producer ids.
        """
        few = rounds // 4
        for name, was, found in zip(vars(self), astuple(before), astuple(self), strict=True):
            room = 60 * few if name == "objects" else few
            assert found <= was + room, f"{name}: {was} before, {found} after {rounds} rounds"


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    gc.collect()
    yield


async def one_life(cluster: FakeCluster, number: int, secured: dict[str, str]) -> None:
    """Start, use and stop one of everything."""
    options = {"bootstrap_servers": cluster.bootstrap_servers, **secured}
    async with AIOKafkaProducer(**options, transactional_id="id") as producer:
        async with producer.transaction():
            await producer.send("topic", b"v", partition=0)
    async with AIOKafkaProducer(**options) as plain:
        await plain.send_and_wait("topic", b"%d" % number, partition=0)
    async with AIOKafkaConsumer("topic", group_id="group", **options) as consumer:
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=1)
    admin = AIOKafkaAdminClient(**options)
    await admin.start()
    await admin.list_topics()
    await admin.close()
    with pytest.raises(KafkaConnectionError):
        await AIOKafkaClient(bootstrap_servers="127.0.0.1:1").bootstrap()
    cluster.forget_requests()


@pytest.mark.parametrize("is_secured", [False, True], ids=["plain", "sasl"])
async def test_starts_and_stops_leave_nothing(scale: Scale, is_secured: bool) -> None:
    rounds = scale(16, 250)
    security, options = None, {}
    if is_secured:
        security = Security({"alice": "secret"}, session_lifetime_ms=60_000)
        options = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "secret",
        }
    async with FakeCluster(security=security) as cluster:
        await cluster.create_topic("topic")
        # Until what is made once has been made: modules, codecs, the fake cluster's tables.
        for number in range(8):
            await one_life(cluster, number, options)
        before = await Count.now()
        for number in range(rounds):
            await one_life(cluster, number, options)
        (await Count.now()).check(before, rounds)
        await cluster.wait_for(lambda: cluster.connections == 0)


async def test_connections_that_come_and_go_leave_nothing(scale: Scale) -> None:
    rounds = scale(100, 2_000)
    async with FakeCluster(brokers=2) as cluster:
        async with AIOKafkaClient(
            bootstrap_servers=cluster.bootstrap_servers,
            reconnect_backoff_ms=1,
            reconnect_backoff_max_ms=1,
        ) as client:

            async def use() -> None:
                for node_id in (0, 1):
                    try:
                        await client.send(node_id, MetadataRequest(topics=[]))
                    except KafkaConnectionError:
                        pass

            for _ in range(10):
                await use()
                cluster.drop_connections()
            before = await Count.now()
            for _ in range(rounds):
                await use()
                cluster.drop_connections()
                cluster.forget_requests()
            (await Count.now()).check(before, rounds)


async def test_a_throttled_consumer_that_idles_collects_nothing(scale: Scale) -> None:
    fetches = scale(400, 100_000)
    async with FakeCluster() as cluster:
        await cluster.create_topic("topic", partitions=3)
        async with AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, group_id="group", fetch_max_wait_ms=1
        ) as consumer:
            consumer.assign([TopicPartition("topic", number) for number in range(3)])
            cluster.throttle(1)

            async def idle(wanted: int) -> None:
                seen = 0
                while seen < wanted:
                    assert await consumer.getmany(timeout_ms=10) == {}
                    seen += cluster.count(FetchRequest)
                    cluster.forget_requests()

            await idle(100)
            before = await Count.now()
            await idle(fetches)
            (await Count.now()).check(before, fetches)
