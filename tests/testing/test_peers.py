"""The fake cluster with other projects' clients: confluent-kafka and kafka-python.

They block, so they run in a thread beside the loop that the cluster lives in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import confluent_kafka as ck
import kafka as kp
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KpNewTopic

from aiokafka.protocol.messages.produce import InitProducerIdRequest, ProduceRequest
from aiokafka.testing import Cut, Fail, FakeCluster

T = TypeVar("T")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 1000


async def blocking(work: Callable[..., T], *args: Any) -> T:
    return await asyncio.to_thread(work, *args)


def value(i: int) -> bytes:
    return b"value %d" % i


# -- confluent-kafka


def confluent_produce(servers: str, topic: str, count: int = COUNT, **config: Any) -> list[int]:
    """Offsets by delivery report, in the order in which the records were sent."""
    offsets: list[int] = []

    def report(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    options = {"bootstrap.servers": servers, "linger.ms": 5, **config}
    producer = ck.Producer({key.replace("_", "."): v for key, v in options.items()})
    for i in range(count):
        producer.produce(topic, value(i), b"key %d" % i, partition=0, on_delivery=report)
        producer.poll(0)
    assert producer.flush(30) == 0
    return offsets


def confluent_consume(
    servers: str, topic: str, count: int = COUNT, **config: Any
) -> list[tuple[int, bytes | None]]:
    options = {
        "bootstrap.servers": servers,
        "group.id": "unused",
        "enable.auto.commit": False,
        **{key.replace("_", "."): v for key, v in config.items()},
    }
    consumer = ck.Consumer(options)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes | None]] = []
    while len(found) < count:
        for message in consumer.consume(count - len(found), 10):
            assert message.error() is None, message.error()
            found.append((message.offset(), message.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
async def test_confluent_there_and_back(codec: str) -> None:
    async with FakeCluster(3) as cluster:
        await cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        offsets = await blocking(
            lambda: confluent_produce(servers, "t", enable_idempotence=True, compression_type=codec)
        )
        assert offsets == list(range(COUNT))
        expected = [(i, value(i)) for i in range(COUNT)]
        assert await blocking(confluent_consume, servers, "t") == expected
        assert [(r.offset, r.value) for r in cluster.log("t").records()] == expected
        assert cluster.count(InitProducerIdRequest) >= 1
        assert cluster.failures == []


async def test_confluent_writes_once_when_answers_are_lost() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        turn = iter(range(100))

        def every_third(request: Any, context: Any) -> Cut | Fail | None:
            return [Cut(handled=True), Fail(7), None][next(turn) % 3]

        cluster.intercept(ProduceRequest, every_third, times=30)
        await blocking(
            lambda: confluent_produce(
                cluster.bootstrap_servers,
                "t",
                enable_idempotence=True,
                batch_num_messages=50,
                retry_backoff_ms=10,
                reconnect_backoff_ms=10,
            )
        )
        assert [r.value for r in cluster.log("t").records()] == [value(i) for i in range(COUNT)]


async def test_confluent_follows_a_moved_leader_and_a_dead_broker() -> None:
    async with FakeCluster(3) as cluster:
        await cluster.create_topic("t", replication_factor=3)
        options = {"enable_idempotence": True, "topic_metadata_refresh_fast_interval_ms": 50}
        servers = cluster.bootstrap_servers
        await blocking(lambda: confluent_produce(servers, "t", 100, **options))
        leader = cluster.partition("t").leader
        cluster.move_leader(("t", 0), (leader + 1) % 3)
        await blocking(lambda: confluent_produce(servers, "t", 100, **options))
        await cluster.stop_broker((leader + 1) % 3)
        await blocking(lambda: confluent_produce(servers, "t", 100, **options))
        found = await blocking(confluent_consume, servers, "t", 300)
        assert [offset for offset, _ in found] == list(range(300))


async def test_confluent_offsets_topics_and_watermarks() -> None:
    def work(servers: str) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics([NewTopic("made", 3, 2)]).values():
            future.result(10)
        [(_, failed)] = admin.create_topics([NewTopic("made", 3, 2)]).items()
        with pytest.raises(ck.KafkaException) as caught:
            failed.result(10)
        assert caught.value.args[0].code() == ck.KafkaError.TOPIC_ALREADY_EXISTS
        described = admin.list_topics(timeout=10)
        assert len(described.topics["made"].partitions) == 3
        assert len(described.brokers) == 2
        consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": "g"})
        tp = ck.TopicPartition("t", 0)
        assert consumer.get_watermark_offsets(tp) == (1, 4)
        [found] = consumer.offsets_for_times([ck.TopicPartition("t", 0, 25)], timeout=10)
        assert found.offset == 2
        consumer.close()

    async with FakeCluster(2) as cluster:
        await cluster.create_topic("t")
        for when in (10, 20, 30, 40):
            cluster.log("t").append(b"x", timestamp_ms=when)
        cluster.log("t").delete_before(1)
        await blocking(work, cluster.bootstrap_servers)
        assert len(cluster.state.topics["made"].partitions) == 3


# -- kafka-python


def kafka_python_produce(servers: str, topic: str, **config: Any) -> list[int]:
    producer = kp.KafkaProducer(bootstrap_servers=servers, linger_ms=5, **config)
    futures = [producer.send(topic, value(i), b"key", partition=0) for i in range(COUNT)]
    producer.flush(30)
    offsets = [future.get(10).offset for future in futures]
    producer.close()
    return offsets


def kafka_python_consume(servers: str, topic: str, **config: Any) -> list[tuple[int, bytes]]:
    consumer = kp.KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, **config)
    tp = kp.TopicPartition(topic, 0)
    consumer.assign([tp])
    consumer.seek_to_beginning(tp)
    found: list[tuple[int, bytes]] = []
    while len(found) < COUNT:
        for records in consumer.poll(10_000).values():
            found += [(record.offset, record.value) for record in records]
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("release", "options"),
    [
        ("0.10.2", {"enable_idempotence": False}),
        ("0.11", {}),
        ("1.1", {}),
        ("2.1", {}),
        ("2.8", {}),
        ("3.9", {}),
        ("4.0", {}),
        ("4.3", {}),
    ],
)
async def test_kafka_python_there_and_back(release: str, options: dict[str, Any]) -> None:
    async with FakeCluster(2, as_version=release) as cluster:
        await cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        offsets = await blocking(lambda: kafka_python_produce(servers, "t", **options))
        assert offsets == list(range(COUNT))
        found = await blocking(lambda: kafka_python_consume(servers, "t"))
        assert found == [(i, value(i)) for i in range(COUNT)]
        assert cluster.failures == []


async def test_kafka_python_without_api_versions() -> None:
    options: dict[str, Any] = {"api_version": (0, 9)}
    async with FakeCluster(as_version="0.9") as cluster:
        await cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        await blocking(
            lambda: kafka_python_produce(servers, "t", enable_idempotence=False, **options)
        )
        found = await blocking(lambda: kafka_python_consume(servers, "t", **options))
        assert found == [(i, value(i)) for i in range(COUNT)]


async def test_kafka_python_admin() -> None:
    def work(servers: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=servers)
        admin.create_topics([KpNewTopic("made", 2, 1)])
        assert set(admin.list_topics()) == {"t", "made"}
        admin.delete_topics(["t"])
        assert set(admin.list_topics()) == {"made"}
        admin.close()

    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        await blocking(work, cluster.bootstrap_servers)
