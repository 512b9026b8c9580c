"""What programs for aiokafka 0.14 do that the manual does not teach, on a real Kafka."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any, NamedTuple

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import (
    BrokerResponseError,
    ConsumerStoppedError,
    IllegalStateError,
    MessageSizeTooLargeError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.protocol.group import HeartbeatRequest_v1
from aiokafka.protocol.metadata import MetadataRequest_v1, MetadataRequest_v5
from tests.kafka.fixtures import Kafka, MakeTopic


class TP(NamedTuple):
    """As Faust and kafka-python have one of their own."""

    topic: str
    partition: int


def unique(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:10]}"


def reader(kafka: Kafka, *topics: str, **options: Any) -> AIOKafkaConsumer:
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    return AIOKafkaConsumer(*topics, bootstrap_servers=kafka.bootstrap_servers, **options)


async def fill(kafka: Kafka, topic: str, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1000 + number)


# -- any pair is a partition


async def test_partitions_of_another_class(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic, group = await make_topic(partitions=2), unique("group")
    await fill(kafka, topic, 5)
    tp, other = TP(topic, 0), TP(topic, 1)
    async with reader(kafka, group_id=group) as consumer:
        consumer.assign([tp, (topic, 1)])  # type: ignore[list-item]
        assert consumer.assignment() == {tp, other}
        assert await consumer.beginning_offsets([tp]) == {tp: 0}
        assert await consumer.end_offsets([tp, other]) == {tp: 5, other: 0}
        times = await consumer.offsets_for_times({tp: 1002})
        assert times[tp] is not None
        assert (times[tp].offset, times[tp].timestamp) == (2, 1002)
        consumer.seek(tp, 3)
        assert await consumer.position(tp) == 3
        found = await consumer.getmany(tp, timeout_ms=10_000)
        assert [record.offset for record in found[tp]] == [3, 4]
        assert isinstance(next(iter(found)), TopicPartition)
        await consumer.commit({tp: 4})
        assert await consumer.committed(tp) == 4
        await consumer.seek_to_committed(tp)
        assert (await consumer.getone(tp)).offset == 4
        consumer.pause(tp)
        assert consumer.paused() == {tp}
        assert await consumer.getmany(tp, timeout_ms=50) == {}
        consumer.resume(tp)
        await consumer.seek_to_beginning(tp)
        assert (await consumer.getone(tp)).offset == 0
        await consumer.seek_to_end(tp)
        assert await consumer.position(tp) == 5
        assert consumer.highwater(tp) == 5


async def test_partitions_of_another_class_in_a_transaction(kafka: Kafka, topic: str) -> None:
    group, tp = unique("group"), TP(topic, 0)
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=unique("id")
    )
    async with producer, producer.transaction():
        await producer.send(topic, b"v")
        await producer.send_offsets_to_transaction({tp: 7}, group)
    async with reader(kafka, group_id=group) as consumer:
        assert await consumer.committed(tp) == 7


async def test_calls_on_a_partition_that_is_not_assigned(
    kafka: Kafka, make_topic: MakeTopic
) -> None:
    topic = await make_topic(partitions=2)
    async with reader(kafka, group_id=unique("group")) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        for call in (
            consumer.seek_to_beginning,
            consumer.seek_to_end,
            consumer.seek_to_committed,
            consumer.position,
        ):
            with pytest.raises(IllegalStateError, match=topic):
                await call(TopicPartition(topic, 1))
        for what in (consumer.pause, lambda tp: consumer.seek(tp, 0)):
            with pytest.raises(IllegalStateError, match=topic):
                what(TopicPartition(topic, 1))
        with pytest.raises(IllegalStateError, match=topic):
            await consumer.commit({TopicPartition(topic, 1): 1})


# -- answers as dicts


async def test_answers_of_the_admin_client(kafka: Kafka) -> None:
    topic, group = unique("topic"), unique("group")
    done = {"topic": topic, "error_code": 0}
    resource = {"error_code": 0, "resource_type": 2, "resource_name": topic}
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        created = (await admin.create_topics([NewTopic(topic, 1, 1)])).to_object()
        assert created["topic_errors"] == [{**done, "error_message": None}]
        again = (await admin.create_topics([NewTopic(topic, 1, 1)])).to_object()
        (refused,) = again["topic_errors"]
        error = for_code(refused["error_code"])
        assert issubclass(error, BrokerResponseError)
        assert error.message == "TOPIC_ALREADY_EXISTS"
        assert topic in refused["error_message"]
        added = (await admin.create_partitions({topic: NewPartitions(2)})).to_object()
        assert added["topic_errors"] == [{**done, "error_message": None}]

        change = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1000"})
        altered = (await admin.alter_configs([change]))[0].to_object()
        assert resource.items() <= altered["resources"][0].items()
        while True:  # the controller has the new value, and the broker learns of it a moment later
            described = (await admin.describe_configs([change]))[0].to_object()
            found = {e["config_names"]: e for e in described["resources"][0]["config_entries"]}
            if found and found["retention.ms"]["config_value"] == "1000":
                break
        assert resource.items() <= described["resources"][0].items()

        async with reader(kafka, topic, group_id=group, client_id="me"):
            (response,) = await admin.describe_consumer_groups([group])
        (found,) = response.to_object()["groups"]
        assert (found["error_code"], found["group"], found["state"]) == (0, group, "Stable")
        (member,) = found["members"]
        assert member["client_id"] == "me"
        assert topic.encode() in member["member_assignment"]

        deleted = (await admin.delete_topics([topic])).to_object()
        assert deleted["topic_error_codes"] == [done]


async def test_versioned_requests(kafka: Kafka, topic: str) -> None:
    async with AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        node = client.get_random_node()
        for request in (MetadataRequest_v1([topic]), MetadataRequest_v5([topic], False)):
            response = await client.send(node, request)
            (found,) = response.topics
            assert found[:3] == (0, topic, False)
            assert (found[3][0][:3], len(response.brokers)) == ((0, 0, node), 1)
        beat = HeartbeatRequest_v1(unique("group"), 1, "missing")
        answer = await client.send(node, beat)
        assert for_code(answer.error_code) is UnknownMemberIdError


# -- records


async def test_what_is_sent_and_what_comes_back(kafka: Kafka, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        told = await producer.send_and_wait(
            topic,
            b"v",
            timestamp_ms=1_700_000_000_123.9,  # type: ignore[arg-type]
            headers=((name, b"1") for name in ("a", "b")),
        )
    assert told.timestamp == 1_700_000_000_123
    options = {"key_deserializer": str, "value_deserializer": bytes.decode}
    async with reader(kafka, topic, **options) as consumer:
        record = await consumer.getone()
    fields = vars(record)
    assert sorted(fields) == sorted(
        [
            "topic",
            "partition",
            "offset",
            "timestamp",
            "timestamp_type",
            "key",
            "value",
            "checksum",
            "serialized_key_size",
            "serialized_value_size",
            "headers",
        ]
    )
    assert (record.timestamp, record.headers) == (1_700_000_000_123, (("a", b"1"), ("b", b"1")))
    text = json.dumps(fields, default=bytes.decode)
    assert json.loads(text)["headers"] == [["a", "1"], ["b", "1"]]


async def test_a_record_as_large_as_may_be(kafka: Kafka, topic: str) -> None:
    """aiokafka 0.14 takes 9,913 bytes for 10,000: it counts the batch around them."""
    largest = 9_913
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, max_request_size=10_000)
    async with producer:
        metadata = await producer.send_and_wait(topic, b"x" * largest)
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send(topic, b"x" * 10_001)
    assert metadata.offset == 0
    async with reader(kafka, topic) as consumer:
        assert (await consumer.getone()).value == b"x" * largest


# -- the life of a client


def test_clients_made_before_their_loop_runs(kafka: Kafka) -> None:
    async def use(producer: AIOKafkaProducer, consumer: AIOKafkaConsumer) -> None:
        async with producer, consumer:
            await producer.send_and_wait(topic, b"v")
            assert (await consumer.getone()).value == b"v"

    topic = unique("topic")
    loop = asyncio.new_event_loop()
    servers = {"bootstrap_servers": kafka.bootstrap_servers, "loop": loop}
    try:
        with pytest.warns(DeprecationWarning, match="AIOKafkaProducer.*running event loop"):
            producer = AIOKafkaProducer(**servers)
        with pytest.warns(DeprecationWarning, match="AIOKafkaConsumer.*running event loop"):
            consumer = AIOKafkaConsumer(
                topic, group_id=unique("group"), auto_offset_reset="earliest", **servers
            )
        loop.run_until_complete(use(producer, consumer))
    finally:
        loop.close()


async def test_stop_ends_a_read_that_waits(kafka: Kafka, topic: str) -> None:
    async with reader(kafka, topic) as consumer:
        many = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
        await asyncio.sleep(0)
        await consumer.stop()
        assert await asyncio.wait_for(many, 10) == {}
        for call in (consumer.getmany, consumer.getone):
            with pytest.raises(ConsumerStoppedError):
                await call()


# -- assignors


class Mine(RoundRobinPartitionAssignor):
    name = "mine"
    calls: list[str] = []

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> Any:
        cls.calls.append("assign")
        return super().assign(cluster, members)

    @classmethod
    def on_assignment(cls, assignment: Any) -> None:
        cls.calls.append("on_assignment")
        super().on_assignment(assignment)


class OwnSticky(StickyPartitionAssignor):
    """So that nothing is noted on the class that others use."""


@pytest.mark.parametrize("assignor", [Mine, OwnSticky])
async def test_assignors_by_their_class(
    kafka: Kafka, make_topic: MakeTopic, assignor: type[Any]
) -> None:
    topic = await make_topic(partitions=4)
    strategy = {"partition_assignment_strategy": [assignor], "heartbeat_interval_ms": 100}
    group = unique("group")
    Mine.calls.clear()
    async with reader(kafka, topic, group_id=group, **strategy) as first:
        assert len(first.assignment()) == 4
        if assignor is Mine:
            assert Mine.calls == ["assign", "on_assignment"]
        async with reader(kafka, topic, group_id=group, **strategy) as second:
            async with timeout(20):
                while (len(first.assignment()), len(second.assignment())) != (2, 2):
                    await first.getmany(timeout_ms=20)
            assert not first.assignment() & second.assignment()

    class Cluster:
        def partitions_for_topic(self, topic: str) -> set[int]:
            return {0, 1}

    metadata = assignor.metadata([topic])
    shares = assignor.assign(Cluster(), {"a": metadata, "b": metadata})
    assert sorted(len(share.partitions()) for share in shares.values()) == [1, 1]
    assert assignor.on_assignment(shares["a"]) is None
