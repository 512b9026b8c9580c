"""Metrics that are pushed to a real Kafka with a plug-in that takes them (KIP-714)."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import UnsupportedVersionError
from aiokafka.metrics import Metric, MetricKind
from tests.kafka.fixtures import Kafka, need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.plugins import compile_plugin, missing_compiler
from tests.kafka.settings import Extras
from tests.support.otlp import PushedMetrics, decode, expected

INTERVAL_MS = 300


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaCluster, Path]]:
    """A broker that writes what it is told into a folder."""
    need_own_brokers()
    if missing_compiler():
        pytest.skip(missing_compiler())
    classes, folder = (tmp_path_factory.mktemp(name) for name in ("classes", "pushes"))
    compile_plugin("PushReceiver", classes)
    config = {"metric.reporters": "PushReceiver", "push.receiver.folder": str(folder)}
    with KafkaCluster(config=config, extras=Extras(classpath=(str(classes),))) as cluster:
        yield cluster, folder


def pushed_by(folder: Path, instance: uuid.UUID) -> list[tuple[bool, PushedMetrics]]:
    """Return what one client has pushed so far: whether it was the last time, and the metrics."""
    kafka_name = base64.urlsafe_b64encode(instance.bytes).decode().rstrip("=")
    found = []
    for path in sorted(folder.iterdir()):
        name = path.name.split(" ")
        if name[1:2] == [kafka_name]:
            assert name[3] == "OTLP"
            found.append((name[2] == "true", decode(path.read_bytes())))
    return found


async def until_pushed(folder: Path, instance: uuid.UUID, count: int) -> None:
    async with timeout(60):
        while len(pushed_by(folder, instance)) < count:
            await asyncio.sleep(0.05)


async def until_the_last_push(
    folder: Path, instance: uuid.UUID
) -> list[tuple[bool, PushedMetrics]]:
    async with timeout(60):
        while True:
            found = pushed_by(folder, instance)
            if any(is_last for is_last, _ in found):
                return found
            await asyncio.sleep(0.05)


def summed(told: list[tuple[bool, PushedMetrics]], key: Any) -> Any:
    """Return what all pushes together tell of one metric."""
    values = [one.values[key] for _, one in told if key in one.values]
    if isinstance(values[0], tuple):
        counts, sums, buckets = zip(*values, strict=True)
        return sum(counts), sum(sums), tuple(map(sum, zip(*buckets, strict=True)))
    return sum(values)


def flat(value: Any) -> list[float]:
    return [value[0], value[1], *value[2]] if isinstance(value, tuple) else [value]


async def test_what_arrives_equals_metrics(receiver: tuple[KafkaCluster, Path]) -> None:
    kafka, folder = receiver
    topic = f"telemetry-{uuid.uuid4().hex}"
    servers: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers}
    settings = {"metrics": "*", "interval.ms": str(INTERVAL_MS)}
    async with AIOKafkaAdminClient(**servers) as admin:
        await admin.configs.alter({("client_metrics", "all"): settings})
    async with AIOKafkaProducer(**servers) as producer:
        writer = await producer.client_instance_id()
        own = Metric("billing", "orders-queued", 7, MetricKind.GAUGE, "orders", {"shop": "a"})
        producer.register_metric_for_subscription(lambda: [own])
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number)
        await until_pushed(folder, writer, 2)
        for number in range(5):
            await producer.send_and_wait(topic, b"%d" % number)
        sent = producer.metrics()
    options = {"group_id": topic, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(topic, **servers, **options) as consumer:
        reader = await consumer.client_instance_id()
        for _ in range(15):
            await consumer.getone()
        await until_pushed(folder, reader, 2)
        read = consumer.metrics()

    told = await until_the_last_push(folder, writer)
    assert len(told) >= 3
    assert [is_last for is_last, _ in told] == [False] * (len(told) - 1) + [True]
    truth = expected(sent)
    # Connections go on counting while they push.
    groups = ("producer.record", "producer.topic", "producer.batch.", "producer.byte")
    names = tuple(f"org.apache.kafka.{group}" for group in groups)
    counts = [key for key in truth if key[0].startswith(names)]
    assert len(counts) > 10
    for key in counts:
        assert flat(summed(told, key)) == pytest.approx(flat(truth[key]))
    # A metric of the application (KIP-1076) is in each push.
    assert [one.value("billing.orders.queued", shop="a") for _, one in told] == [7] * len(told)
    told = await until_the_last_push(folder, reader)
    key = "org.apache.kafka.consumer.fetch.manager.records.consumed.total", ()
    assert summed(told, key) == expected(read)[key] == 15
    assert told[-1][1].resource["group_id"] == topic
    assert any("group_member_id" in one.resource for _, one in told)


async def test_a_broker_without_a_plug_in_is_sent_nothing(kafka: Kafka) -> None:
    requests = []
    # A broker that has just started answers the first of them later, after retries.
    for is_on in (False, True, False):
        options: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers}
        async with AIOKafkaProducer(**options, enable_metrics_push=is_on) as producer:
            if is_on:
                with pytest.raises(UnsupportedVersionError, match="accepts metrics"):
                    await producer.client_instance_id(5000)
        requests.append(producer.metrics().value("request-total", "producer-metrics"))
    assert requests[1] == requests[2]
