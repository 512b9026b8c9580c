"""What the public tests of aiokafka, and programs found in public, call and match."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, ConfigResource, NewTopic
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    FencedInstanceId,
    IllegalOperation,
    IllegalStateError,
    KafkaConnectionError,
    ProducerFenced,
)
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v0, MetadataResponse_v5
from aiokafka.record import MemoryRecords  # type: ignore[attr-defined]
from aiokafka.structs import OffsetAndTimestamp
from aiokafka.testing import Fail, FakeCluster

TP = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        yield cluster


# -- messages


async def test_commit_without_an_assignment(cluster: FakeCluster) -> None:
    async with AIOKafkaConsumer(
        group_id="g", bootstrap_servers=cluster.bootstrap_servers
    ) as consumer:
        consumer.subscribe(topics={"t"})
        # It has had no time to join.
        with pytest.raises(IllegalStateError, match="No partitions assigned"):
            await consumer.commit({TP: 1000})


async def test_calls_for_transactions_without_an_id(cluster: FakeCluster) -> None:
    wanted = "You need to configure transaction_id to use transactions"
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for call in (producer.begin_transaction, producer.abort_transaction):
            with pytest.raises(IllegalOperation, match=wanted):
                await call()
    # That it is not started, or stopped, is beside the point.
    for call in (producer.commit_transaction, AIOKafkaProducer().begin_transaction):
        with pytest.raises(IllegalOperation, match=wanted):
            await call()


@pytest.mark.parametrize("caught", [AssertionError, IllegalStateError])
async def test_a_consumer_is_started_once(cluster: FakeCluster, caught: type[Exception]) -> None:
    async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        with pytest.raises(caught, match="Did you call `start` twice"):
            await consumer.start()


@pytest.mark.parametrize("caught", [AssertionError, IllegalStateError])
def test_a_consumer_is_started_in_its_loop(caught: type[Exception]) -> None:
    async def make() -> AIOKafkaConsumer:
        return AIOKafkaConsumer()

    with pytest.raises(caught, match="another event loop"):
        asyncio.run(asyncio.run(make()).start())


def test_the_warning_of_an_unclosed_producer() -> None:
    async def forget() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with FakeCluster() as cluster:
            producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
            await producer.start()
            del producer
            gc.collect()

    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer"):
        asyncio.run(forget())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_faust_goes_on_after_a_rebalance(cluster: FakeCluster, protocol: str) -> None:
    """It looks for these words in a commit that has failed, and ends its worker without them."""
    async with AIOKafkaConsumer(
        "t",
        group_id="g",
        group_protocol=protocol,
        enable_auto_commit=False,
        bootstrap_servers=cluster.bootstrap_servers,
    ) as consumer:
        cluster.groups.expire("g", consumer._coordinator.member_id)
        with pytest.raises(CommitFailedError, match="already rebalanced"):
            await consumer.commit({TP: 1})


async def test_faust_ends_when_another_worker_has_its_name(cluster: FakeCluster) -> None:
    async with AIOKafkaConsumer(
        "t",
        group_id="g",
        group_instance_id="one",
        enable_auto_commit=False,
        bootstrap_servers=cluster.bootstrap_servers,
    ) as consumer:
        cluster.intercept(OffsetCommitRequest, Fail(FencedInstanceId))
        with pytest.raises(CommitFailedError) as found:
            await consumer.commit({TP: 1})
        assert "already rebalanced" not in str(found.value)
    # Nor may the words be part of what every such error says: Faust's own tests make one.
    assert "already rebalanced" not in str(CommitFailedError("a cause of its own"))


# -- clients


async def test_hosts_have_the_family_of_their_address() -> None:
    client = AIOKafkaClient(bootstrap_servers="127.0.0.1:9092,[::1]:9093,localhost:9094")
    assert sorted(client.hosts) == [
        ("127.0.0.1", 9092, socket.AF_INET),
        ("::1", 9093, socket.AF_INET6),
        ("localhost", 9094, socket.AF_UNSPEC),
    ]


def test_a_cluster_by_hand_takes_older_responses() -> None:
    cluster = ClusterMetadata(metadata_max_age_ms=10_000)
    cluster.update_metadata(
        MetadataResponse_v0(
            [(0, "foo", 12), (1, "bar", 34)],
            [
                (0, "t", [(0, 0, 1, [1, 0], [1]), (5, 1, -1, [], [])]),
                (17, "a b", []),
                (29, "secret", []),
            ],
        )
    )
    assert {(broker.nodeId, broker.host) for broker in cluster.brokers()} == {
        (0, "foo"),
        (1, "bar"),
    }
    assert cluster.topics() == {"t"}
    assert cluster.partitions_for_topic("t") == {0, 1}
    assert cluster.available_partitions_for_topic("t") == {0}
    assert cluster.leader_for_partition(TP) == 1
    assert cluster.unauthorized_topics == {"secret"}
    # A broker that is starting knows of no broker: those that are known stay.
    cluster.update_metadata(MetadataResponse_v0([], [(17, "a b", [])]))
    assert len(cluster.brokers()) == 2
    cluster.update_metadata(MetadataResponse_v5(0, [(2, "baz", 56, "r1")], "id", 2, []))
    assert cluster.controller is not None
    assert cluster.controller.rack == "r1"


async def test_a_cluster_by_hand_takes_what_a_client_received(cluster: FakeCluster) -> None:
    async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        node = client.get_random_node()
        assert node is not None
        mirror = ClusterMetadata()
        mirror.update_metadata(await client.send(node, MetadataRequest(["t"])))
        assert mirror.brokers() == client.cluster.brokers()
        assert mirror.partitions_for_topic("t") == {0}


# -- transactions


async def test_programs_ask_for_the_state_of_a_transaction(cluster: FakeCluster) -> None:
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
    async with timeout(20):
        async with AIOKafkaProducer(acks=1, **options) as plain:
            assert plain._txn_manager is None
        idempotent = AIOKafkaProducer(enable_idempotence=True, **options)
        assert idempotent._txn_manager is not None and not idempotent._txn_manager.has_pid()
        async with idempotent:
            manager = idempotent._txn_manager
            assert manager is not None
            assert manager.has_pid()
            assert manager.transactional_id is None
            assert not manager.is_in_transaction()
            assert not manager.is_fatal_error()
        async with AIOKafkaProducer(transactional_id="id", **options) as producer:
            manager = producer._txn_manager
            assert manager is not None
            assert manager.transactional_id == "id"
            assert (manager.producer_id, manager.producer_epoch) != (-1, -1)
            assert not manager.is_in_transaction()
            await producer.begin_transaction()
            assert manager.is_in_transaction()
            async with AIOKafkaProducer(transactional_id="id", **options):
                with pytest.raises(ProducerFenced):
                    await producer.send_and_wait("t", b"v")
                    await producer.commit_transaction()
            assert manager.is_fatal_error()
            assert not manager.is_in_transaction()


# -- records


async def test_batches_of_a_record_set(cluster: FakeCluster) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, compression_type="gzip"
    ) as producer:
        for values in ((b"0", b"1"), (b"2",)):
            batch = producer.create_batch()
            for value in values:
                batch.append(key=b"k", value=value, timestamp=None)
            await (await producer.send_batch(batch, "t", partition=0))
    data = b"".join(bytes(batch.data) for batch in cluster.log("t").batches)
    records = MemoryRecords(data)
    assert records.size_in_bytes() == len(data)
    found = []
    while records.has_next():
        found.append([(record.offset, record.value) for record in records.next_batch()])
    assert found == [[(0, b"0"), (1, b"1")], [(2, b"2")]]
    assert records.next_batch() is None


# -- as programs write it --------------------------------------------------------------------------


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("fails", ["no broker", "cancelled"])
async def test_a_start_that_failed_is_tried_again(group: str | None, fails: str) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        cluster.log("t").append(b"a")
        await cluster.stop_broker(0)
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
        )
        for _ in range(2):
            starting = asyncio.ensure_future(consumer.start())
            if fails == "cancelled":
                await asyncio.sleep(0)
                starting.cancel()
            await asyncio.wait([starting])
            assert starting.cancelled() or isinstance(starting.exception(), KafkaConnectionError)
            assert consumer.health().state == "closed"
        await cluster.start_broker(0)
        await consumer.start()
        assert (await consumer.getone()).value == b"a"
        await consumer.stop()
        with pytest.raises(ConsumerStoppedError):
            await consumer.start()


async def test_a_start_that_was_cancelled_anywhere_is_tried_again(cluster: FakeCluster) -> None:
    """And a transaction commits as the member that it has become."""
    cluster.log("t").append(b"a")
    servers = cluster.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer:
        for turns in range(0, 100, 5):
            group = f"g{turns}"
            consumer = AIOKafkaConsumer(
                "t",
                bootstrap_servers=servers,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            starting = asyncio.ensure_future(consumer.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait([starting])
            if starting.cancelled():
                await consumer.start()
            async with producer.transaction():
                assert (await consumer.getone()).value == b"a"
                await producer.send_offsets_to_transaction({TP: 1}, group)
            assert cluster.groups.committed(group, "t") == 1
            await consumer.stop()


async def test_partitions_of_a_start_that_failed_are_read_after_the_next() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        cluster.log("t").append(b"a")
        await cluster.stop_broker(0)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        )
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(KafkaConnectionError):
            await consumer.start()
        await cluster.start_broker(0)
        async with consumer:
            assert (await consumer.getone()).value == b"a"


@pytest.mark.parametrize("nothing", [None, ""])
async def test_settings_of_sasl_that_are_not_used(nothing: str | None) -> None:
    options: dict[str, Any] = {"sasl_mechanism": nothing, "sasl_kerberos_service_name": nothing}
    for protocol in ({}, {"security_protocol": "PLAINTEXT"}):
        AIOKafkaConsumer(**protocol, **options)
        AIOKafkaProducer(**protocol, **options)
        AIOKafkaAdminClient(**protocol, **options)
    with pytest.raises(ValueError, match="sasl_mechanism"):
        AIOKafkaConsumer(security_protocol="SASL_PLAINTEXT", sasl_mechanism=nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize("nothing", [None, ""])
async def test_a_service_name_that_is_not_used(nothing: str | None) -> None:
    """Ansible's event source passes it for every mechanism."""
    options: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": "secret",
        "sasl_kerberos_service_name": nothing,
    }
    AIOKafkaConsumer(**options)
    if nothing is None:
        kerberos: Any = AIOKafkaConsumer(**{**options, "sasl_mechanism": "GSSAPI"})._client
        assert kerberos._sasl_kerberos_service_name == "kafka"


async def test_settings_of_topics_that_are_no_text() -> None:
    async with FakeCluster() as cluster:
        async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("t", 1, 1, topic_configs={"retention.ms": 5000})])
            resource = ConfigResource("TOPIC", "t", {"retention.ms": None})
            (found,) = await admin.describe_configs([resource])
            assert found.resources[0][4][0][:2] == ("retention.ms", "5000")
            changed = {"retention.ms": 6000, "unclean.leader.election.enable": True}
            await admin.alter_configs([ConfigResource("TOPIC", "t", changed)])
            (found,) = await admin.describe_configs([resource])
            assert found.resources[0][4][0][:2] == ("retention.ms", "6000")


async def test_numbers_that_programs_have_computed() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        tp = TopicPartition("t", 0)
        cluster.log("t").extend([(None, b"a", ())], timestamp_ms=1_700_000_000_500)
        async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            consumer.assign([tp])
            found = await consumer.offsets_for_times({tp: 1_700_000_000_499.7})
            assert found == {tp: OffsetAndTimestamp(0, 1_700_000_000_500)}
            for wrong in (float("nan"), float("inf"), -0.5):
                with pytest.raises(ValueError, match="must not be negative"):
                    await consumer.offsets_for_times({tp: wrong})
            # What is left until a time that is over.
            assert await consumer.getmany(timeout_ms=-5) == {}


async def test_a_producer_that_runs_is_started_again() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        await producer.start()
        async with producer:
            assert (await producer.send_and_wait("t", b"a")).offset == 0
        assert producer.health().state == "closed"
