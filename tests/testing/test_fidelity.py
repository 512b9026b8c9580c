"""What the fake does to logs and settings as a broker does, and misuse that it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from aiokafka.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aiokafka.testing import Cut, FakeCluster
from aiokafka.testing.actions import Silence

from .support import RawClient, batch, produce

TOPIC, BROKER = 2, 4
SET, APPEND, SUBTRACT = 0, 2, 3


async def read(cluster: FakeCluster, topic: str, isolation: str) -> list[tuple[int, Any]]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level=isolation,
    )
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    found: list[tuple[int, Any]] = []
    async with consumer:
        end = (await consumer.end_offsets([tp]))[tp]
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found += [(record.offset, record.value) for record in records]
    return found


async def test_compaction_knows_transactions() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("c", config={"cleanup.policy": "compact"})
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id="x"
        ) as producer:
            async with producer.transaction():
                await producer.send_and_wait("c", b"old", b"k")
                await producer.send_and_wait("c", b"good", b"k")
            await producer.begin_transaction()
            await producer.send_and_wait("c", b"ABORTED", b"k")
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send_and_wait("c", b"open", b"k")
            # What is open is left alone; of the rest only the newest that is committed stays.
            assert cluster.log("c").compact() == 2
            assert await read(cluster, "c", "read_committed") == [(1, b"good")]
            assert cluster.log("c").last_stable_offset == 5
            await producer.commit_transaction()
            assert cluster.log("c").compact() == 1
            # The producer is still known.
            async with producer.transaction():
                await producer.send_and_wait("c", b"newest", b"other")
        for isolation in ("read_committed", "read_uncommitted"):
            values = [value for _, value in await read(cluster, "c", isolation)]
            assert values == [b"open", b"newest"]


async def test_compaction_keeps_the_producer_of_what_stays() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("c", config={"cleanup.policy": "compact"})
        async with RawClient(cluster.address(0)) as client:
            for sequence, key in enumerate((b"a", b"b", b"a")):
                records = batch(b"x", b"y", key=key, pid=7, epoch=0, sequence=2 * sequence)
                assert (await produce(client, "c", records)).error_code == 0
        log = cluster.log("c")
        assert log.compact() == 4
        kept = [
            (b.base_offset, b.producer_id, b.producer_epoch, b.base_sequence) for b in log.batches
        ]
        assert kept == [(3, 7, 0, 3), (5, 7, 0, 5)]


async def test_settings_of_the_broker_count_for_topics() -> None:
    config = {"message.max.bytes": 1000, "min.insync.replicas": 2}
    async with FakeCluster(brokers=2, config=config) as cluster:
        await cluster.create_topic("t", replication_factor=2)
        await cluster.create_topic("own", config={"max.message.bytes": 5000})
        servers = cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=2000) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait("t", bytes(2000))
            await producer.send_and_wait("own", bytes(2000))
        async with RawClient(cluster.address(cluster.partition("t").leader)) as client:
            await cluster.stop_broker(1 - cluster.partition("t").leader)
            assert (await produce(client, "t", batch(b"x"), acks=-1)).error_code == 19
        async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
            (answer,) = await admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, "t")]
            )
        sources = {
            entry.config_name: (entry.config_value, entry.config_source)
            for entry in answer.resources[0].config_entries
        }
    assert sources["max.message.bytes"] == ("1000", 4)
    assert sources["min.insync.replicas"] == ("2", 4)
    assert sources["retention.ms"][1] == 5


async def settings_of(cluster: FakeCluster, kind: int, name: str) -> dict[str, str | None]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    async with RawClient(cluster.address(0)) as client:
        answer = await client.call(DescribeConfigsRequest(resources=[resource]), 1)
    (result,) = answer.results
    assert result.error_code == 0
    return {entry.name: entry.value for entry in result.configs}


async def test_settings_of_all_brokers_are_those_that_were_set() -> None:
    """As the default of the cluster a broker shows nothing that is only a default of Kafka."""
    async with FakeCluster(config={"message.max.bytes": 1000}) as cluster:
        assert await settings_of(cluster, BROKER, "") == {"message.max.bytes": "1000"}
        assert len(await settings_of(cluster, BROKER, "0")) > 10
    async with FakeCluster() as cluster:
        assert await settings_of(cluster, BROKER, "") == {}


async def change_setting(
    cluster: FakeCluster, kind: int, name: str, *changes: tuple[str, int, str | None]
) -> int:
    configs = [
        IncrementalAlterableConfig(name=n, config_operation=how, value=v) for n, how, v in changes
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(validate_only=False, resources=[resource])
    async with RawClient(cluster.address(0)) as client:
        return (await client.call(request, 1)).responses[0].error_code


async def test_settings_of_brokers_are_read_as_kafka_reads_them() -> None:
    # A false that was not understood would be as good as a true.
    async with FakeCluster(config={"auto.create.topics.enable": "True"}) as cluster:
        assert cluster.state.auto_create
        for name, value in (("message.max.bytes", "much"), ("num.partitions", "-1")):
            assert await change_setting(cluster, BROKER, "0", (name, SET, value)) == 42
        change = ("unclean.leader.election.enable", SET, "TRUE")
        assert await change_setting(cluster, BROKER, "0", change) == 0
        assert cluster.state.config["unclean.leader.election.enable"] == "true"
        assert cluster.state.config["message.max.bytes"] == "1048588"


THROTTLED = "leader.replication.throttled.replicas"


@pytest.mark.parametrize(
    ("changes", "errno"),
    [
        ([("min.insync.replicas", SET, "1.5")], 40),
        ([("min.cleanable.dirty.ratio", SET, "0.25")], 0),
        ([("compression.gzip.level", SET, "10")], 40),
        ([(THROTTLED, SET, "broker 1")], 40),
        ([(THROTTLED, SET, "*")], 0),
        ([(THROTTLED, APPEND, "0:1")], 0),
        ([(THROTTLED, SUBTRACT, "0:1")], 0),
        ([("retention.ms", APPEND, "5")], 40),
        ([("retention.ms", SET, "5"), ("retention.ms", SET, "6")], 42),
    ],
)
async def test_single_settings(changes: list[tuple[str, int, str | None]], errno: int) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        assert await change_setting(cluster, TOPIC, "t", *changes) == errno


async def test_settings_of_tiered_storage_can_be_given() -> None:
    names = ("remote.log.copy.disable", "remote.log.delete.on.disable")
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", config=dict.fromkeys(names, "true"))
        await cluster.create_topic("plain")
        for topic, value in (("t", "true"), ("plain", "false")):
            found = await settings_of(cluster, TOPIC, topic)
            assert [found.get(name) for name in names] == [value, value]


async def test_positions_in_a_transaction_need_a_group() -> None:
    """A broker says so of each partition, and does not look at the transaction."""
    part = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=None
    )
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="",
        producer_id=0,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
    )
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        async with RawClient(cluster.address(0)) as client:
            answer = await client.call(request, 2)
        assert [p.error_code for t in answer.topics for p in t.partitions] == [24]
        assert cluster.groups.committed("", "t") is None


OLD_OFFSETS = {"0.11": 0, "2.1": 0, "2.8": 47, "3.9": 47}


@pytest.mark.parametrize("release", OLD_OFFSETS)
async def test_positions_of_an_old_epoch_are_refused_where_a_later_marker_is(release: str) -> None:
    """As seen in Kafka 0.11.0.3, 2.1.1, 2.3.1, 2.4.1 and 2.8.2. The coordinator of the transaction
    is not asked before 3.6: until the marker is there, the old epoch is good."""
    part = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )

    async with (
        FakeCluster(as_version=release) as cluster,
        AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id="x"
        ) as producer,
        RawClient(cluster.address(0)) as client,
    ):
        await cluster.create_topic("t")
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "g")
        known = cluster.transactions.by_id["x"]
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
        )

        async def late() -> int:
            answer = await client.call(request, 0)
            return answer.topics[0].partitions[0].error_code

        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id="x"
        ) as successor:
            assert await late() == (47 if release == "3.9" else 0)
            async with successor.transaction():
                await successor.send_offsets_to_transaction({TopicPartition("t", 0): 2}, "g")
            assert await late() == OLD_OFFSETS[release]


async def test_misuse_is_refused() -> None:
    cluster = FakeCluster(brokers=2)
    with pytest.raises(RuntimeError, match=r"start\(\)"):
        await cluster.create_topic("t")
    async with cluster:
        await cluster.create_topic("t", config={"preallocate": True, "retention.ms": 5})
        assert cluster.state.topics["t"].config == {"preallocate": "true", "retention.ms": "5"}
        with pytest.raises(KeyError):
            cluster.move_coordinator("group", "g", 7)
        with pytest.raises(KeyError):
            cluster.move_leader(("t", 0), 7)
        for action in (Cut, Silence):
            with pytest.raises(TypeError, match=rf"{action.__name__}\(\.\.\.\)"):
                cluster.intercept(None, action)
        for handler in ("Fail", 6):
            with pytest.raises(TypeError, match="handler must be"):
                cluster.intercept(None, handler)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"give Fail\(MessageSizeTooLargeError\)"):
            cluster.intercept(None, MessageSizeTooLargeError)
        for of_a_broker in (
            cluster.drop_connections,
            lambda broker: cluster.throttle(5, broker),
            lambda broker: cluster.intercept(None, Cut(), broker=broker),
            lambda broker: cluster.replication.shrink(("t", 0), broker),
        ):
            with pytest.raises(KeyError, match="broker 7"):
                of_a_broker(7)
        follower = 1 - cluster.partition("t").leader
        await cluster.stop_broker(follower)
        with pytest.raises(ValueError, match="is stopped"):
            cluster.move_leader(("t", 0), follower)
