"""Metrics: what OpenTelemetry reads is what the clients have done."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from aiokafka import AIOKafkaShareConsumer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import GroupAuthorizationFailedError, MessageSizeTooLargeError
from aiokafka.otel import ConsumerTelemetry, ProducerTelemetry, observe_clients
from aiokafka.otel import _names as names
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Fail, FakeCluster
from tests.support.consumers import Start, fill
from tests.support.producers import TOPIC, new_producer, numbers, results, send_all
from tests.support.spans import Seen

T0 = TopicPartition(TOPIC, 0)


async def test_a_producer(cluster: FakeCluster, seen: Seen) -> None:
    telemetry = ProducerTelemetry(**seen.providers)
    async with new_producer(cluster, metrics_collector=telemetry, linger_ms=5) as producer:
        await results(await send_all(producer, numbers(5)))
        with cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError)):
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(TOPIC, b"value", partition=0)
    good, bad = seen.points("messaging.client.sent.messages")
    assert good.value == 5
    assert dict(good.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": TOPIC,
    }
    assert (bad.value, bad.attributes[names.ERROR_TYPE]) == (1, "MessageSizeTooLargeError")
    once, failed = seen.points("messaging.client.operation.duration")
    assert (once.count, failed.count) == (1, 1)
    assert 0.005 <= once.sum < 60
    assert tuple(once.explicit_bounds) == names.DURATIONS
    assert seen.spans() == []  # it was no interceptor


async def test_a_consumer(cluster: FakeCluster, start: Start, seen: Seen) -> None:
    fill(cluster, 0, 5, topic=TOPIC)
    telemetry = ConsumerTelemetry(**seen.providers, partitions=True, group_id="group")
    options = {"group_id": "group", "enable_auto_commit": False}
    consumer = await start(cluster, assign=[T0], metrics_collector=telemetry, **options)
    read = 0
    while read < 5:
        records = (await consumer.getmany(timeout_ms=5000)).get(T0, [])
        read += len(records)
        with telemetry.process(records):
            pass
    await consumer.commit()
    (consumed,) = seen.points("messaging.client.consumed.messages")
    assert consumed.value == 5
    assert dict(consumed.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.destination.name": TOPIC,
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "group",
    }
    durations = {
        point.attributes[names.OPERATION]: point
        for point in seen.points("messaging.client.operation.duration")
    }
    assert durations.keys() == {"fetch", "commit"}
    assert durations["commit"].count == 1
    (processed,) = seen.points("messaging.process.duration")
    assert processed.count >= 1
    assert processed.attributes[names.GROUP] == "group"
    assert seen.spans("commit topic") == []


async def test_a_mere_collector_of_a_consumer_makes_no_spans(
    cluster: FakeCluster, start: Start, seen: Seen
) -> None:
    """Not even of commits that fail, which it counts."""
    telemetry = ConsumerTelemetry(**seen.providers, group_id="g")
    consumer = await start(
        cluster, TOPIC, group_id="g", enable_auto_commit=False, metrics_collector=telemetry
    )
    with cluster.intercept(OffsetCommitRequest, Fail(GroupAuthorizationFailedError)):
        with pytest.raises(GroupAuthorizationFailedError):
            await consumer.commit({T0: 0})
    await consumer.commit({T0: 0})
    points = seen.points("messaging.client.operation.duration")
    commits = [point for point in points if point.attributes[names.OPERATION] == "commit"]
    errors = [point.attributes.get(names.ERROR_TYPE) for point in commits]
    assert sorted(errors, key=str) == ["GroupAuthorizationFailedError", None]
    assert seen.spans() == []


async def test_clients_of_one_provider_count_together(cluster: FakeCluster, seen: Seen) -> None:
    for _ in range(2):
        telemetry = ProducerTelemetry(**seen.providers)
        async with new_producer(cluster, metrics_collector=telemetry) as producer:
            await results(await send_all(producer, numbers(5), partition=0))
    (sent,) = seen.points("messaging.client.sent.messages")
    assert sent.value == 10


async def test_how_long_calls_wait_for_records(
    cluster: FakeCluster, start: Start, seen: Seen
) -> None:
    fill(cluster, 0, 5, topic=TOPIC)
    telemetry = ConsumerTelemetry(**seen.providers)
    consumer = await start(cluster, assign=[T0], interceptors=[telemetry], client_id="reader")
    for _ in range(5):
        await consumer.getone()
    waiting = asyncio.create_task(consumer.getone())
    await asyncio.sleep(0)  # The call begins.
    await asyncio.sleep(0.02)
    assert not waiting.done()
    fill(cluster, 0, 1, topic=TOPIC)
    await waiting
    (point,) = seen.points("messaging.client.operation.duration")
    assert dict(point.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.destination.name": TOPIC,
    }
    assert point.count == 6
    assert 0.02 <= point.max < 60
    durations = [span.end_time - span.start_time for span in seen.spans("poll topic")]
    assert len(durations) == 6
    assert durations[-1] >= 20_000_000


async def test_the_numbers_of_all_clients(cluster: FakeCluster, start: Start, seen: Seen) -> None:
    fill(cluster, 0, 5, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], client_id="reader")
    await consumer.getone()
    async with new_producer(cluster, client_id="writer") as producer:
        await producer.send_and_wait(TOPIC, b"value", partition=1)
        observe_clients(producer, consumer, meter_provider=seen.metering)
        observed: dict[str, Any] = {
            name: seen.points(name)
            for name in (
                "kafka.consumer.records_lag",
                "kafka.consumer.records_consumed_total",
                "kafka.producer.record_send_total",
                "kafka.producer.buffer_available_bytes",
                "kafka.producer.connection_count",
            )
        }
    (lag,) = observed["kafka.consumer.records_lag"]
    assert lag.value == 4
    assert dict(lag.attributes) == {"client_id": "reader", "topic": TOPIC, "partition": "0"}
    values = {name: [point.value for point in points] for name, points in observed.items()}
    assert values["kafka.consumer.records_consumed_total"] == [1]
    assert values["kafka.producer.record_send_total"] == [1]
    assert values["kafka.producer.buffer_available_bytes"] == [33_554_432]
    assert values["kafka.producer.connection_count"][0] >= 1


async def test_a_share_consumer(cluster: FakeCluster, seen: Seen) -> None:
    cluster.state.other_configs[32, "queue"] = {"share.auto.offset.reset": "earliest"}
    fill(cluster, 0, 5, topic=TOPIC)
    telemetry = ConsumerTelemetry(**seen.providers, group_id="queue")
    consumer: AIOKafkaShareConsumer[Any, Any] = AIOKafkaShareConsumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="queue",
        share_acknowledgement_mode="explicit",
        interceptors=[telemetry],
    )
    async with consumer:
        for _ in range(5):
            record = await consumer.getone()
            async with consumer.processing(record):
                with telemetry.process([record]):
                    pass
        await consumer.commit()
        observe_clients(consumer, meter_provider=seen.metering)
        for name, value in (
            ("fetch_buffer_bytes", []),  # not among the most important metrics
            ("records_consumed_total", [5]),
            ("records_accepted_total", [5]),
            ("records_released_total", [0]),
            ("acknowledgements_pending", [0]),
            ("assigned_partitions", [3]),
        ):
            points = seen.points(f"kafka.consumer_share.{name}")
            assert [point.value for point in points] == value, name
    (waited,) = seen.points("messaging.client.operation.duration")
    assert waited.count == 5
    assert waited.attributes["messaging.consumer.group.name"] == "queue"
    assert len(seen.spans(f"poll {TOPIC}")) == 5
    assert len(seen.spans(f"process {TOPIC}")) == 5


async def test_sums_do_not_fall_when_one_of_the_clients_is_gone(
    cluster: FakeCluster, seen: Seen
) -> None:
    observe_clients(meter_provider=seen.metering)

    def sent() -> list[float]:
        points = seen.points("kafka.producer.record_send_total")
        return [point.value for point in points if point.attributes["client_id"] == "twins"]

    async with new_producer(cluster, client_id="twins") as first:
        async with new_producer(cluster, client_id="twins") as second:
            await second.send_and_wait(TOPIC, b"value")
            await first.send_and_wait(TOPIC, b"value")
            assert sent() == [2]
        del second
        gc.collect()
        await first.send_and_wait(TOPIC, b"value")
        # Without those of the other the sum would be 2 for ever.
        async with timeout(20):
            while sent() != [3]:
                await asyncio.sleep(0.02)
