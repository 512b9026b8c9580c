"""What tracers, frameworks and tests do with the clients: wrap, subclass, mock, look inside."""

from __future__ import annotations

import asyncio
import functools
import inspect
import warnings
from typing import Any, NamedTuple
from unittest import mock

import pytest

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer.producer import _missing
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import RecordMetadata
from aiokafka.testing import FakeCluster


async def collect(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord[Any, Any]]:
    found = []
    async for record in consumer:
        found.append(record)
        if len(found) == count:
            break
    return found


# -- wrapping


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (AIOKafkaProducer, "send"),
        (AIOKafkaProducer, "start"),
        (AIOKafkaConsumer, "getone"),
        (AIOKafkaConsumer, "getmany"),
        (AIOKafkaConsumer, "start"),
    ],
)
def test_methods_to_wrap_are_plain_functions(cls: type[Any], name: str) -> None:
    assert inspect.isfunction(vars(cls)[name])


async def test_send_and_wait_goes_through_send(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    original = AIOKafkaProducer.send

    @functools.wraps(original)
    async def traced(self: AIOKafkaProducer, *args: Any, **kwargs: Any) -> Any:
        calls.append((args, kwargs))
        # As OpenTelemetry does: headers are a keyword or the sixth argument.
        headers = list(kwargs.get("headers") or (args[5] if len(args) > 5 else None) or [])
        headers.append(("traceparent", b"00-1"))
        if len(args) > 5:
            args = (*args[:5], headers)
        else:
            kwargs["headers"] = headers
        return await original(self, *args, **kwargs)

    monkeypatch.setattr(AIOKafkaProducer, "send", traced)
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"v", b"k", headers=[("mine", b"1")])
        (record,) = cluster.log("t").records()
    (args, _) = calls[0]
    assert args[:3] == ("t", b"v", b"k")
    assert record.headers == (("mine", b"1"), ("traceparent", b"00-1"))


async def test_async_for_goes_through_getone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = AIOKafkaConsumer.getone

    async def traced(self: AIOKafkaConsumer, *partitions: TopicPartition) -> Any:
        record = await original(self, *partitions)
        seen.append(record.offset)
        return record

    monkeypatch.setattr(AIOKafkaConsumer, "getone", traced)
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        cluster.log("t").extend([(None, b"v", ())] * 3)
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        )
        async with consumer:
            await collect(consumer, 3)
    assert seen == [0, 1, 2]


async def test_the_future_of_send_takes_callbacks() -> None:
    done = asyncio.Event()
    results: list[RecordMetadata] = []

    def note(future: asyncio.Future[RecordMetadata]) -> None:
        results.append(future.result())
        done.set()

    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            future = await producer.send("t", b"v")
            assert isinstance(future, asyncio.Future)
            future.add_done_callback(note)
            await asyncio.wait_for(done.wait(), 10)
    assert results[0].offset == 0


# -- subclasses and mocks


class CountingConsumer(AIOKafkaConsumer):
    def __init__(self, *topics: str, **options: Any) -> None:
        super().__init__(*topics, **options)
        self.started = 0
        self.seen = 0

    async def start(self) -> None:
        await super().start()
        self.started += 1

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        record = await super().__anext__()
        self.seen += 1
        return record


class UpperProducer(AIOKafkaProducer):
    async def send(self, topic: str, value: Any = None, *args: Any, **kwargs: Any) -> Any:
        return await super().send(topic, value.upper(), *args, **kwargs)


async def test_subclasses() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        async with UpperProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("t", b"loud")
        consumer = CountingConsumer("t", bootstrap_servers=servers, auto_offset_reset="earliest")
        async with consumer:
            (record,) = await collect(consumer, 1)
    assert record.value == b"LOUD"
    assert (consumer.started, consumer.seen) == (1, 1)


class ByLength(DefaultPartitioner):
    def __call__(self, key: Any, all_partitions: Any, available: Any) -> int:  # type: ignore[override]
        partition: int = all_partitions[len(key) % len(all_partitions)]
        return partition


async def test_partitioners_are_called() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", partitions=3)
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, partitioner=ByLength()
        )
        async with producer:
            assert (await producer.send_and_wait("t", b"v", key=b"12345")).partition == 2


async def test_mocks_with_the_signature_of_the_class() -> None:
    with mock.patch("aiokafka.AIOKafkaProducer", autospec=True) as fake:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers="nowhere:1")
        await producer.start()
        await producer.send_and_wait("t", b"v")
        producer.send_and_wait.assert_awaited_once_with("t", b"v")  # type: ignore[attr-defined]
        fake.assert_called_once_with(bootstrap_servers="nowhere:1")
    assert aiokafka.AIOKafkaProducer is AIOKafkaProducer
    with mock.patch("aiokafka.AIOKafkaConsumer", autospec=True):
        consumer = aiokafka.AIOKafkaConsumer("t", group_id="g")
        consumer.getmany.return_value = {}  # type: ignore[attr-defined]
        assert await consumer.getmany(timeout_ms=1) == {}


# -- what others read


async def test_attributes_of_a_producer() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", partitions=2)
        servers = cluster.bootstrap_servers
        producer = AIOKafkaProducer(bootstrap_servers=servers, client_id="me", acks=_missing)
        assert producer._closed is False
        async with producer:
            assert producer.client._bootstrap_servers
            assert producer.client._client_id == "me"
            await producer.client._wait_on_metadata("t")
            assert "t" in producer.client.cluster.topics()
            assert {b.port for b in producer.client.cluster.brokers()} == {
                int(servers.rpartition(":")[2])
            }
            # ddtrace and OpenTelemetry ask for the partition, and mark the client.
            assert producer._partition("t", None, b"k", b"v", b"k", b"v") in (0, 1)
            assert producer._partition("t", 1, None, None, None, None) == 1
            assert producer._key_serializer is None
            assert producer._value_serializer is None
            producer.client.marked = True  # type: ignore[attr-defined]
        assert producer._closed is True


async def test_attributes_of_a_consumer() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            max_poll_records=7,
            auto_offset_reset="earliest",
        )
        async with consumer:
            assert consumer._closed is False
            assert consumer._group_id is None
            assert consumer._enable_auto_commit is True
            assert consumer._max_poll_records == 7
            assert consumer._subscription.topics == {"t"}
            assert consumer._client.cluster.partitions_for_topic("t") == {0}
            tp = TopicPartition("t", 0)
            cluster.log("t").append(b"v")
            await collect(consumer, 1)
            state = consumer._fetcher._subscriptions.subscription.assignment.state_value(tp)
            assert state.highwater == 1
            assert state.position == 1
        assert consumer._closed is True


async def test_faust_reads_through_the_fetcher() -> None:
    class TP(NamedTuple):
        topic: str
        partition: int

    async with FakeCluster() as cluster:
        await cluster.create_topic("t", partitions=2)
        consumer = AIOKafkaConsumer(
            "t",
            group_id="g",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            fetcher = consumer._fetcher
            assert not fetcher._closed
            assert consumer._coordinator._metadata_snapshot == {"t": 2}
            assert consumer._coordinator.generation >= 0
            for value in (b"1", b"2", b"3"):
                cluster.log("t").append(value)
            with fetcher._subscriptions.fetch_context():
                first = await fetcher.fetched_records([TP("t", 0)], timeout=20, max_records=2)
                rest = await fetcher.fetched_records([TP("t", 0)], timeout=20)
                none = await fetcher.fetched_records([TP("t", 1)], timeout=0.01)
            assert [r.value for r in first[TopicPartition("t", 0)]] == [b"1", b"2"]
            assert [r.value for r in rest[TopicPartition("t", 0)]] == [b"3"]
            assert none == {}
        assert fetcher._closed


async def test_a_tracer_asks_for_the_cluster_id() -> None:
    async with FakeCluster() as cluster:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            client = producer.client
            node = client.get_random_node()
            assert node is not None
            await client.force_metadata_update()
            request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            assert (await client.send(node, request)).cluster_id


async def test_records_take_attributes_of_frameworks() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        cluster.log("t").append(b"v")
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        )
        async with consumer:
            (record,) = await collect(consumer, 1)
            record.consumer = consumer  # type: ignore[attr-defined]
            assert record.consumer is consumer  # type: ignore[attr-defined]


async def test_headers_of_a_record_can_be_passed_on() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"v", headers=[("a", b"1"), ("b", None)])
            (record,) = cluster.log("t").records()
            await producer.send_and_wait("t", b"v", headers=record.headers)
        assert cluster.log("t").records()[1].headers == (("a", b"1"), ("b", None))


# -- arguments of older programs


async def test_arguments_of_older_programs() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        old: dict[str, Any] = {
            "loop": None,
            "bootstrap_servers": cluster.bootstrap_servers,
            "api_version": "auto",
        }
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            async with AIOKafkaProducer(**old) as producer:
                await producer.send_and_wait("t", b"v")
            consumer = AIOKafkaConsumer(
                "t",
                **old,
                consumer_timeout_ms=200,
                partition_assignment_strategy=[RoundRobinPartitionAssignor],
            )
            async with consumer:
                assert consumer.assignment() == {TopicPartition("t", 0)}
        with pytest.warns(DeprecationWarning, match="send_backoff_ms"):
            await AIOKafkaProducer(send_backoff_ms=100).stop()
        with pytest.warns(DeprecationWarning, match="api_version"):
            await AIOKafkaConsumer(api_version="2.4.1").stop()


@pytest.mark.parametrize("cls", [AIOKafkaProducer, AIOKafkaConsumer])
async def test_unknown_arguments(cls: type[Any]) -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        cls(no_such_option=1)


@pytest.mark.parametrize("cls", [AIOKafkaProducer, AIOKafkaConsumer])
def test_a_running_loop_is_needed(cls: type[Any]) -> None:
    with pytest.raises(RuntimeError):
        cls()


async def test_a_record_needs_a_key_or_a_value() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            with pytest.raises(AssertionError):
                await producer.send("t")
            with pytest.raises(AssertionError):
                await producer.send("t", b"v", partition=-1)
            with pytest.raises(TypeError):
                await producer.send("t", "text")
            metadata = await producer.send_and_wait("t", None, key=b"k", headers=None)
            assert metadata.topic_partition == TopicPartition("t", 0)


async def test_batches() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, max_batch_size=1000
        )
        async with producer:
            batch = producer.create_batch()
            first = batch.append(key=None, value=b"x" * 100, timestamp=None)
            assert first is not None
            assert first.offset == 0
            while batch.append(key=None, value=b"x" * 100, timestamp=None) is not None:
                pass
            assert batch.size() <= 1000
            batch.close()
            assert batch.closed()
            metadata = await (await producer.send_batch(batch, "t", partition=0))
            assert metadata.offset == 0
            assert len(cluster.log("t").records()) == batch.record_count()
