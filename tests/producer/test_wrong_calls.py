"""Wrong calls raise at once and say what is wrong; nothing is sent."""

from __future__ import annotations

import asyncio
import gc
import json
import math
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerClosed,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    WrongArgument,
)
from aiokafka.producer.producer import _missing
from aiokafka.protocol.messages.produce import InitProducerIdRequest
from aiokafka.testing import Fail, FakeCluster
from tests.support.producers import TOPIC, new_producer, values


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"acks": 2}, ValueError, "acks"),
        ({"acks": "none"}, ValueError, "acks"),
        ({"acks": 1, "enable_idempotence": True}, ValueError, "acks"),
        ({"acks": 0, "enable_idempotence": True}, ValueError, "acks"),
        ({"compression_type": "rar"}, ValueError, "compression_type"),
        ({"compression_type": "gzip", "compression_level": 99}, ValueError, "level"),
        ({"linger_ms": -1}, ValueError, "linger_ms"),
        ({"buffer_memory": "much"}, TypeError, "buffer_memory"),
        ({"key_serializer": "utf-8"}, TypeError, "key_serializer"),
        ({"partitioner": 3}, TypeError, "partitioner"),
        ({"max_in_flight_requests_per_connection": 0}, ValueError, "max_in_flight"),
        ({"security_protocol": "SSL"}, ValueError, "ssl_context"),
        ({"nonsense": 1}, TypeError, "nonsense"),
    ],
)
async def test_wrong_options(options: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        AIOKafkaProducer(**options)


def test_a_producer_needs_a_running_loop() -> None:
    with pytest.raises(RuntimeError):
        AIOKafkaProducer()


async def test_old_keywords_are_accepted(cluster: FakeCluster) -> None:
    async with new_producer(cluster, loop=None, api_version="auto", acks=_missing) as producer:
        await producer.send_and_wait(TOPIC, b"v")
    with pytest.warns(DeprecationWarning, match="send_backoff_ms"):
        AIOKafkaProducer(send_backoff_ms=100)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        ({"topic": 5, "value": b"v"}, TypeError, "topic"),
        ({"topic": [TOPIC], "value": b"v"}, TypeError, "topic: must be a str, not list"),
        ({"topic": "", "value": b"v"}, ValueError, "topic"),
        ({"topic": TOPIC}, ValueError, "key or value"),
        ({"topic": TOPIC, "value": "text"}, TypeError, "value_serializer"),
        ({"topic": TOPIC, "value": b"v", "key": 5}, TypeError, "key_serializer"),
        ({"topic": TOPIC, "value": b"v", "partition": 3}, AssertionError, "3 partitions"),
        ({"topic": TOPIC, "value": b"v", "partition": -1}, ValueError, "partition -1"),
        ({"topic": TOPIC, "value": b"v", "partition": "0"}, TypeError, "partition"),
        ({"topic": TOPIC, "value": b"v", "timestamp_ms": -5}, ValueError, "timestamp"),
        ({"topic": TOPIC, "value": b"v", "timestamp_ms": "5"}, TypeError, "timestamp_ms"),
        ({"topic": TOPIC, "value": b"v", "timestamp_ms": True}, TypeError, "timestamp_ms"),
        ({"topic": TOPIC, "value": b"v", "timestamp_ms": 2**63 - 1}, WrongArgument, "since 1970"),
        ({"topic": TOPIC, "value": b"v", "timestamp_ms": 2**63}, WrongArgument, "since 1970"),
        ({"topic": TOPIC, "value": b"v", "timestamp_ms": 2**70}, WrongArgument, "since 1970"),
        ({"topic": TOPIC, "value": b"v", "timestamp_ms": 1e300}, WrongArgument, "since 1970"),
        ({"topic": TOPIC, "value": b"v", "timestamp_ms": math.inf}, WrongArgument, "since 1970"),
        ({"topic": TOPIC, "value": b"v", "timestamp_ms": math.nan}, WrongArgument, "since 1970"),
        ({"topic": "x\ud800", "value": b"v"}, WrongArgument, "cannot be sent"),
        ({"topic": TOPIC, "value": b"v", "headers": [("\udcff", b"")]}, WrongArgument, "headers"),
        ({"topic": TOPIC, "value": b"v", "headers": {"x": b"y"}}, TypeError, "items"),
        ({"topic": TOPIC, "value": b"v", "headers": 5}, TypeError, "headers"),
        ({"topic": TOPIC, "value": b"v", "headers": [b"x"]}, TypeError, "headers"),
        ({"topic": TOPIC, "value": b"v", "headers": [(b"x", b"y")]}, TypeError, "headers"),
        ({"topic": TOPIC, "value": b"v", "headers": [("x", "y")]}, TypeError, "headers"),
        ({"topic": TOPIC, "value": b"x" * 2**20}, MessageSizeTooLargeError, "max_request_size"),
    ],
)
async def test_wrong_records(
    cluster: FakeCluster, call: dict[str, Any], error: type[Exception], said: str
) -> None:
    async with new_producer(cluster) as producer:
        for _ in range(2):
            with pytest.raises(error, match=said):
                await producer.send(**call)
            await producer.send_and_wait(TOPIC, b"good", partition=0)
    assert values(cluster) == [b"good", b"good"]


# The count of aiokafka 0.14: its estimate of these records was just as large as the limit.
LARGEST: dict[str, dict[str, Any]] = {
    "value": {"value": b"x" * (20_000 - 87)},
    "key": {"key": b"k" * 100, "value": b"x" * (20_000 - 100 - 88)},
    "tombstone": {"key": b"k" * (20_000 - 87)},
    "headers": {
        "value": b"x" * (20_000 - 86 - 303 - 5),
        "headers": [("ä" * 50, b"y" * 200), ("a", None)],
    },
}


@pytest.mark.parametrize("record", LARGEST.values(), ids=list(LARGEST))
@pytest.mark.parametrize("codec", [None, "gzip"])
async def test_the_largest_record(
    cluster: FakeCluster, record: dict[str, Any], codec: str | None
) -> None:
    options = {"max_request_size": 20_000, "compression_type": codec}
    async with new_producer(cluster, **options) as producer:
        for _ in range(2):
            await producer.send_and_wait(TOPIC, partition=0, **record)
        name = "value" if "value" in record else "key"
        larger = {**record, name: record[name] + b"x"}
        with pytest.raises(MessageSizeTooLargeError, match="20001 bytes"):
            await producer.send(TOPIC, partition=0, **larger)
    assert len(values(cluster)) == 2


@pytest.mark.parametrize("timestamp", [2**63 - 1, 2**70, -5, math.nan])
async def test_a_timestamp_that_cannot_be_in_a_batch(cluster: FakeCluster, timestamp: Any) -> None:
    batch = new_producer(cluster).create_batch()
    with pytest.raises(WrongArgument, match=r"timestamp: .*since 1970"):
        batch.append(key=None, value=b"v", timestamp=timestamp)
    assert batch.record_count() == 0


@pytest.mark.parametrize("wrong", ["x\ud800", "x" * 2**15], ids=["no character", "too long"])
async def test_a_name_that_cannot_be_encoded_harms_nothing_else(
    cluster: FakeCluster, wrong: str
) -> None:
    """Each metadata request names every topic in use, so one such name would fail all of them."""
    async with new_producer(cluster, max_block_ms=2000, metadata_max_age_ms=50) as producer:
        for call in (producer.partitions_for(wrong), producer.send(wrong, b"v", b"k")):
            with pytest.raises(WrongArgument, match="cannot be sent"):
                await call
        for add in (producer.client.add_topic, producer.client.touch_topic):
            with pytest.raises(ValueError, match="not a valid topic name"):
                add(wrong)
        with pytest.raises(ValueError, match="not a valid topic name"):
            producer.client.set_topics([TOPIC, wrong])
        assert await producer.client.force_metadata_update()
        await producer.send_and_wait("another", b"v")


@pytest.mark.parametrize("name", ["client_id", "transactional_id"])
async def test_an_option_that_cannot_be_encoded(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*not a valid character"):
        AIOKafkaProducer(**{name: "x\udcff"})


async def test_a_consumer_refuses_such_names(cluster: FakeCluster) -> None:
    wrong = "x\ud800"
    async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        with pytest.raises(ValueError, match="not a valid topic name"):
            consumer.subscribe([wrong])
        with pytest.raises(ValueError, match="not a valid topic name"):
            consumer.assign([TopicPartition(wrong, 0)])


async def test_a_serializer_that_returns_no_bytes(cluster: FakeCluster) -> None:
    said = r"value_serializer returned str, .*json\.dumps\(value\)\.encode\(\)"
    async with new_producer(cluster, value_serializer=json.dumps) as producer:
        with pytest.raises(TypeError, match=said):
            await producer.send(TOPIC, {"a": 1})
        with pytest.raises(TypeError, match=said):
            producer.create_batch().append(key=None, value=1, timestamp=None)


def test_wrong_arguments_are_named_as_they_are_imported() -> None:
    assert f"{WrongArgument.__module__}.{WrongArgument.__qualname__}" == (
        "aiokafka.errors.WrongArgument"
    )


async def test_no_key_and_no_value_is_caught_as_before(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        for caught in (AssertionError, ValueError, KafkaError):
            with pytest.raises(caught):
                await producer.send(TOPIC)


async def test_a_partitioner_that_answers_nonsense(cluster: FakeCluster) -> None:
    async with new_producer(cluster, partitioner=lambda *_: 17) as producer:
        with pytest.raises(ValueError, match="the partitioner chose 17"):
            await producer.send(TOPIC, b"v")


async def test_an_unknown_topic() -> None:
    async with FakeCluster(config={"auto.create.topics.enable": "false"}) as cluster:
        async with new_producer(cluster, max_block_ms=100) as producer:
            with pytest.raises(UnknownTopicOrPartitionError, match="absent"):
                await producer.send("absent", b"v")


async def test_before_start_and_after_stop(cluster: FakeCluster) -> None:
    producer = new_producer(cluster)
    with pytest.raises(ProducerClosed, match="start"):
        await producer.send(TOPIC, b"v")
    await producer.start()
    await producer.start()  # It runs already.
    await producer.stop()
    await producer.stop()
    with pytest.raises(ProducerClosed):
        await producer.send(TOPIC, b"v")
    with pytest.raises(ProducerClosed):
        await producer.partitions_for(TOPIC)
    with pytest.raises(ProducerClosed):
        await producer.start()


async def test_stop_without_start(cluster: FakeCluster) -> None:
    await new_producer(cluster).stop()


async def test_nobody_answers() -> None:
    producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1", request_timeout_ms=300)
    with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1:1"):
        await producer.start()
    await producer.stop()


async def test_insisting_on_idempotence_with_an_old_broker() -> None:
    async with FakeCluster(as_version="0.10.2") as cluster:
        producer = new_producer(cluster, enable_idempotence=True)
        with pytest.raises(UnsupportedVersionError, match="InitProducerId"):
            await producer.start()
        await producer.stop()


async def test_without_the_right_for_idempotence(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster.intercept(InitProducerIdRequest, Fail(ClusterAuthorizationFailedError)):
        async with new_producer(cluster) as producer:
            await producer.send_and_wait(TOPIC, b"v", partition=0)
        assert "enable_idempotence=False" in caplog.text
        producer = new_producer(cluster, enable_idempotence=True)
        with pytest.raises(ClusterAuthorizationFailedError):
            await producer.start()


@pytest.mark.parametrize("is_debug", [False, True])
async def test_a_forgotten_producer_is_told(cluster: FakeCluster, is_debug: bool) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(is_debug)
    heard: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: heard.append(context))
    producer = new_producer(cluster)
    await producer.start()
    client = producer.client
    with pytest.warns(ResourceWarning, match="Unclosed"):
        del producer
        gc.collect()
    await client.close()
    (context,) = heard
    assert context["message"].startswith("Unclosed AIOKafkaProducer: call stop()")
    assert ("source_traceback" in context) is is_debug
    if is_debug:
        assert "new_producer(" in (context["source_traceback"][-2].line or "")


@pytest.mark.parametrize(
    ("name", "argument", "error", "said"),
    [
        ("flush", "1", TypeError, "timeout='1': must be a number of seconds, or None"),
        ("flush", math.nan, ValueError, "timeout=nan: must be a number of seconds, or None"),
        ("stop", [1], TypeError, "timeout="),
        ("client_instance_id", None, TypeError, "timeout_ms=None: must be a number"),
        ("partitions_for", None, TypeError, "topic: must be a str"),
    ],
)
async def test_wrong_arguments_of_other_calls(
    cluster: FakeCluster, name: str, argument: Any, error: type[Exception], said: str
) -> None:
    async with new_producer(cluster) as producer:
        with pytest.raises(error, match=f"^{said}"):
            await getattr(producer, name)(argument)
        await producer.send_and_wait(TOPIC, b"good", partition=0)
    assert values(cluster) == [b"good"]


async def test_send_and_wait_names_a_topic_that_is_not_hashable(cluster: FakeCluster) -> None:
    topic: Any = {TOPIC: 1}
    async with new_producer(cluster) as producer:
        with pytest.raises(TypeError, match=r"^topic: must be a str, not dict"):
            await producer.send_and_wait(topic, b"v")


async def test_offsets_of_a_transaction_are_named(cluster: FakeCluster) -> None:
    wrong: Any = {1: 2}
    async with new_producer(cluster, transactional_id="x") as producer:
        await producer.begin_transaction()
        with pytest.raises(TypeError, match=r"^Key should be TopicPartition instance in offsets"):
            await producer.send_offsets_to_transaction(wrong, "g")
        await producer.abort_transaction()
