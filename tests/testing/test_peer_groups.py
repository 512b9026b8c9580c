"""Groups and transactions on the fake cluster, with confluent-kafka and kafka-python."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import confluent_kafka as ck
import kafka as kp
import pytest

from aiokafka.protocol.messages.group_members import JoinGroupRequest
from aiokafka.protocol.messages.transactions import AddPartitionsToTxnRequest
from aiokafka.testing import FakeCluster

T = TypeVar("T")
GROUP_SETTINGS = {"group.min.session.timeout.ms": 100}


async def blocking(work: Callable[..., T], *args: Any) -> T:
    return await asyncio.to_thread(work, *args)


class Member:
    """A confluent consumer of group ``g`` that is polled in a thread of its own."""

    def __init__(self, servers: str, **config: Any) -> None:
        self.values: list[bytes | None] = []
        self.assignment: set[int] = set()
        options = {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            **{key.replace("_", "."): v for key, v in config.items()},
        }
        self._consumer = ck.Consumer(options)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._consumer.subscribe(["t"])
        while not self._stop.is_set():
            for message in self._consumer.consume(100, 0.05):
                assert message.error() is None, message.error()
                self.values.append(message.value())
            self.assignment = {tp.partition for tp in self._consumer.assignment()}
        self._consumer.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


@contextmanager
def member(servers: str, **config: Any) -> Iterator[Member]:
    made = Member(servers, **config)
    try:
        yield made
    finally:
        made.close()


async def close(stack: ExitStack) -> None:
    await blocking(stack.close)


@pytest.mark.parametrize(
    ("release", "config"),
    [
        ("0.11", {}),
        ("2.8", {}),
        ("4.3", {}),
        ("4.3", {"partition_assignment_strategy": "cooperative-sticky"}),
        ("4.3", {"group_protocol": "consumer"}),
        ("4.3", {"group_protocol": "consumer", "group_remote_assignor": "range"}),
    ],
)
async def test_a_group_of_confluent_shares_the_partitions(
    release: str, config: dict[str, Any]
) -> None:
    settings = {**GROUP_SETTINGS, "group.consumer.heartbeat.interval.ms": 50}
    async with FakeCluster(2, as_version=release, config=settings) as cluster:
        await cluster.create_topic("t", 4)
        servers = cluster.bootstrap_servers
        if "group_protocol" not in config:
            config = {**config, "heartbeat_interval_ms": 50, "session_timeout_ms": 5000}
        stack = ExitStack()
        try:
            first = stack.enter_context(member(servers, **config))
            await cluster.wait_for(lambda: first.assignment == {0, 1, 2, 3})
            second = stack.enter_context(member(servers, **config))
            await cluster.wait_for(
                lambda: (
                    len(first.assignment) == len(second.assignment) == 2
                    and first.assignment | second.assignment == {0, 1, 2, 3}
                )
            )
            for i in range(100):
                cluster.log("t", i % 4).append(b"%d" % i)
            await cluster.wait_for(lambda: len(first.values) + len(second.values) >= 100)
            everything = sorted(int(v or b"") for v in first.values + second.values)
            assert everything == list(range(100))
            await blocking(second.close)
            await cluster.wait_for(lambda: first.assignment == {0, 1, 2, 3})
        finally:
            await close(stack)
        committed = cluster.groups.offsets["g"].committed
        assert {key: c.offset for key, c in committed.items()} == {("t", i): 25 for i in range(4)}
        assert cluster.groups.state_of("g") == "Empty"
        assert cluster.failures == []


async def test_a_static_member_comes_back_without_a_rebalance() -> None:
    config = {"group_instance_id": "me", "heartbeat_interval_ms": 50}
    async with FakeCluster(config=GROUP_SETTINGS) as cluster:
        await cluster.create_topic("t", 2)
        servers = cluster.bootstrap_servers
        for _ in range(2):
            one = Member(servers, **config)
            await cluster.wait_for(lambda member=one: member.assignment == {0, 1})  # type: ignore
            await blocking(one.close)
        group = cluster.groups.classic["g"]
        assert group.generation == 1
        assert [m.instance_id for m in group.members.values()] == ["me"]


async def test_an_expired_member_joins_again() -> None:
    async with FakeCluster(config=GROUP_SETTINGS) as cluster:
        await cluster.create_topic("t", 2)
        config = {"heartbeat_interval_ms": 50}
        stack = ExitStack()
        try:
            one = stack.enter_context(member(cluster.bootstrap_servers, **config))
            await cluster.wait_for(lambda: one.assignment == {0, 1})
            [member_id] = cluster.groups.classic["g"].members
            cluster.groups.expire("g", member_id)
            await cluster.wait_for(lambda: set(cluster.groups.classic["g"].members) - {member_id})
            await cluster.wait_for(lambda: one.assignment == {0, 1})
        finally:
            await close(stack)


async def test_a_moved_coordinator_is_found() -> None:
    async with FakeCluster(2, config=GROUP_SETTINGS) as cluster:
        await cluster.create_topic("t", 2)
        stack = ExitStack()
        try:
            one = stack.enter_context(
                member(cluster.bootstrap_servers, heartbeat_interval_ms=50, session_timeout_ms=5000)
            )
            await cluster.wait_for(lambda: one.assignment == {0, 1})
            old = cluster.state.coordinator(0, "g")
            cluster.move_coordinator("group", "g", 1 - old)
            cluster.forget_requests()
            await cluster.wait_for(
                lambda: any(s.broker_id == 1 - old for s in cluster.requests(12)), 20
            )
            cluster.log("t").append(b"x")
            await cluster.wait_for(lambda: one.values == [b"x"])
        finally:
            await close(stack)


@pytest.mark.parametrize("release", ["0.10.2", "1.1", "2.8", "4.3"])
async def test_a_group_of_kafka_python(release: str) -> None:
    def consume(servers: str) -> list[bytes]:
        consumer = kp.KafkaConsumer(
            "t",
            bootstrap_servers=servers,
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
        )
        found: list[bytes] = []
        while len(found) < 10:
            for records in consumer.poll(10_000).values():
                found += [record.value for record in records]
        consumer.commit()
        consumer.close()
        return found

    async with FakeCluster(2, as_version=release, config=GROUP_SETTINGS) as cluster:
        await cluster.create_topic("t", 2)
        for i in range(10):
            cluster.log("t", i % 2).append(b"%d" % i)
        found = await blocking(consume, cluster.bootstrap_servers)
        assert sorted(found) == [b"%d" % i for i in range(10)]
        committed = cluster.groups.offsets["g"].committed
        assert [committed["t", p].offset for p in (0, 1)] == [5, 5]
        assert cluster.count(JoinGroupRequest) >= 1
        assert cluster.failures == []


# -- transactions


def confluent_transactions(servers: str) -> None:
    producer = ck.Producer({"bootstrap.servers": servers, "transactional.id": "tx"})
    producer.init_transactions(20)
    for name, commit in ((b"one", True), (b"two", False), (b"three", True)):
        producer.begin_transaction()
        for i in range(3):
            producer.produce("t", name + b"-%d" % i, partition=i % 2)
        if commit:
            producer.commit_transaction(20)
        else:
            producer.flush(20)
            producer.abort_transaction(20)


def confluent_read(servers: str, isolation: str, count: int) -> set[bytes | None]:
    consumer = ck.Consumer(
        {"bootstrap.servers": servers, "group.id": "x", "isolation.level": isolation}
    )
    consumer.assign([ck.TopicPartition("t", p, 0) for p in range(2)])
    found: set[bytes | None] = set()
    while len(found) < count:
        found |= {message.value() for message in consumer.consume(count - len(found), 5)}
    assert consumer.consume(1, 0.2) == []
    consumer.close()
    return found


def names(*prefixes: str) -> set[bytes]:
    return {f"{prefix}-{i}".encode() for prefix in prefixes for i in range(3)}


@pytest.mark.parametrize("release", ["0.11", "2.8", "3.9", "4.3"])
async def test_confluent_transactions(release: str) -> None:
    async with FakeCluster(2, as_version=release) as cluster:
        await cluster.create_topic("t", 2)
        servers = cluster.bootstrap_servers
        await blocking(confluent_transactions, servers)
        assert cluster.count(AddPartitionsToTxnRequest) > 0
        committed = await blocking(confluent_read, servers, "read_committed", 6)
        assert committed == names("one", "three")
        uncommitted = await blocking(confluent_read, servers, "read_uncommitted", 9)
        assert uncommitted == names("one", "two", "three")
        assert cluster.log("t").last_stable_offset == cluster.log("t").end_offset
        assert cluster.failures == []


@pytest.mark.parametrize("release", ["0.11", "2.8", "3.9", "4.3"])
async def test_kafka_python_transactions(release: str) -> None:
    def work(servers: str) -> None:
        producer = kp.KafkaProducer(bootstrap_servers=servers, transactional_id="tx")
        producer.init_transactions()
        for name, commit in ((b"one", True), (b"two", False), (b"three", True)):
            producer.begin_transaction()
            futures = [producer.send("t", name + b"-%d" % i, partition=i % 2) for i in range(3)]
            for future in futures:
                future.get(20)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        producer.close()

    async with FakeCluster(2, as_version=release) as cluster:
        await cluster.create_topic("t", 2)
        servers = cluster.bootstrap_servers
        await blocking(work, servers)
        committed = await blocking(confluent_read, servers, "read_committed", 6)
        assert committed == names("one", "three")
        assert cluster.failures == []


async def test_consume_process_produce_of_confluent() -> None:
    def work(servers: str) -> None:
        consumer = ck.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["in"])
        producer = ck.Producer({"bootstrap.servers": servers, "transactional.id": "tx"})
        producer.init_transactions(20)
        done = 0
        while done < 20:
            messages = consumer.consume(5, 5)
            producer.begin_transaction()
            for message in messages:
                producer.produce("t", b"<" + (message.value() or b"") + b">", partition=0)
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 20
            )
            producer.commit_transaction(20)
            done += len(messages)
        consumer.close()

    async with FakeCluster(2, config=GROUP_SETTINGS) as cluster:
        await cluster.create_topic("in")
        await cluster.create_topic("t", 2)
        for i in range(20):
            cluster.log("in").append(b"%d" % i)
        await blocking(work, cluster.bootstrap_servers)
        assert [r.value for r in cluster.log("t").records()] == [b"<%d>" % i for i in range(20)]
        assert cluster.groups.offsets["g"].committed["in", 0].offset == 20
        assert cluster.failures == []


async def test_a_second_owner_fences_the_first() -> None:
    def work(servers: str) -> None:
        config = {"bootstrap.servers": servers, "transactional.id": "tx"}
        first, second = ck.Producer(config), ck.Producer(config)
        first.init_transactions(20)
        first.begin_transaction()
        first.produce("t", b"lost", partition=0)
        first.flush(20)
        second.init_transactions(20)
        with pytest.raises(ck.KafkaException) as caught:
            first.commit_transaction(20)
        assert caught.value.args[0].fatal()
        second.begin_transaction()
        second.produce("t", b"kept", partition=0)
        second.commit_transaction(20)

    async with FakeCluster() as cluster:
        await cluster.create_topic("t", 2)
        servers = cluster.bootstrap_servers
        await blocking(work, servers)
        assert await blocking(confluent_read, servers, "read_committed", 1) == {b"kept"}
