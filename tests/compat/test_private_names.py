"""Names inside aiokafka that programs use all the same."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.assignors.sticky.partition_movements import PartitionMovements
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import ConsumerStoppedError
from aiokafka.protocol.admin import DeleteGroupsRequest, DeleteTopicsRequest
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v0
from aiokafka.structs import OffsetAndMetadata, PartitionMetadata
from aiokafka.testing import FakeCluster

TP = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        yield cluster


@pytest.fixture(params=["classic", "consumer"])
async def consumer(
    request: pytest.FixtureRequest, cluster: FakeCluster
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        "t",
        group_id="g",
        group_protocol=request.param,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        yield consumer


# -- clients


async def test_names_of_clients(cluster: FakeCluster) -> None:
    servers = cluster.bootstrap_servers
    async with AIOKafkaClient(bootstrap_servers=servers, client_id="tester") as client:
        assert client._bootstrap_servers == servers
        assert client._client_id == "tester"
        assert await client._wait_on_metadata("t") == {0}
        assert [host for host, _, _ in client.hosts] == ["127.0.0.1"]
    assert ConnectionGroup.DEFAULT == 0
    assert ConnectionGroup.COORDINATION == 1
    assert CoordinationType.TRANSACTION == 1


async def test_programs_look_at_the_partitions_of_a_cluster(cluster: FakeCluster) -> None:
    servers = cluster.bootstrap_servers
    async with AIOKafkaClient(bootstrap_servers=servers) as client:
        found = await client.fetch_all_metadata()
        assert found._partitions == {"t": {0: PartitionMetadata("t", 0, 0, [0], [0], None)}}
        assert [each.leader for each in found._partitions["t"].values()] == [0]
        assert not client.cluster._partitions


async def test_sets_of_clients_are_the_callers_own(consumer: AIOKafkaConsumer[Any, Any]) -> None:
    client: Any = consumer._client
    client._topics.add("other")
    assert client._topics == {"t"}
    partitions = await client._wait_on_metadata("t")
    assert partitions.pop() == 0
    assert await client._wait_on_metadata("t") == {0}


async def test_options_of_clients_as_they_were_given() -> None:
    context = ssl.create_default_context()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=["a:9093", "b:9094"],
        security_protocol="SASL_SSL",
        ssl_context=context,
        sasl_plain_username="me",
        sasl_plain_password="secret",
        request_timeout_ms=5000,
    )
    client: Any = consumer._client
    assert client._bootstrap_servers == ["a:9093", "b:9094"]
    assert client._ssl_context is context
    assert (client._security_protocol, client._sasl_mechanism) == ("SASL_SSL", "PLAIN")
    assert (client._sasl_plain_username, client._sasl_plain_password) == ("me", "secret")
    assert (client._request_timeout_ms, client._metadata_max_age_ms) == (5000, 300_000)
    assert AIOKafkaProducer().client._bootstrap_servers == "localhost"
    assert "secret" not in repr(client._config)
    with pytest.raises(AttributeError, match="'AIOKafkaClient' object has no attribute '_tls'"):
        client._tls  # noqa: B018


async def test_options_of_a_role_as_they_were_given() -> None:
    consumer: Any = AIOKafkaConsumer(auto_offset_reset="earliest", session_timeout_ms=20_000)
    assert (consumer._auto_offset_reset, consumer._session_timeout_ms) == ("earliest", 20_000)
    assert (consumer._max_poll_interval_ms, consumer._request_timeout_ms) == (300_000, 40_000)
    assert consumer._isolation_level == "read_uncommitted"
    assert consumer._value_deserializer is None
    producer: Any = AIOKafkaProducer(compression_type="gzip", request_timeout_ms=1000)
    assert (producer._compression_type, producer._request_timeout_ms) == ("gzip", 1000)
    assert producer._max_request_size == 1_048_576
    for client in (consumer, producer):
        with pytest.raises(AttributeError, match="has no attribute '_topic'"):
            client._topic  # noqa: B018


@pytest.mark.parametrize("kind", [AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer])
def test_nothing_makes_every_attribute_slow(kind: type) -> None:
    # With one of these, CPython has no short way to any attribute of the object.
    assert not hasattr(kind, "__getattr__")
    assert kind.__getattribute__ is object.__getattribute__


async def test_names_of_a_subscription(consumer: AIOKafkaConsumer[Any, Any]) -> None:
    subscription: Any = consumer._subscription
    assert subscription.assigned_partitions() == {TP}
    assert subscription.is_assigned(TP)
    assert not subscription.is_assigned(TopicPartition("t", 9))
    assert subscription.partitions_auto_assigned()
    assert subscription.subscribed_pattern is None
    consumer.pause(TP)
    assert subscription.paused_partitions() == {TP}


async def test_names_of_admin_clients(cluster: FakeCluster) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = await admin._get_cluster_metadata()
        assert [topic.name for topic in found.topics] == ["t"]
        assert {broker.node_id for broker in found.brokers} == set(admin._client.cluster._brokers)
        assert len((await admin._get_cluster_metadata([])).topics) == 0


async def test_requests_that_programs_send_through_admin_clients(cluster: FakeCluster) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        told = await admin._send_request(MetadataRequest(["t"]))
        assert [topic[1] for topic in told.topics] == ["t"]
        (broker,) = admin._client.cluster.brokers()
        assert (await admin._send_request(MetadataRequest([]), broker.nodeId)).topics == []
        found = await admin._send_request_to_node(broker.nodeId, DeleteGroupsRequest(["g"]))
        assert [group for group, _ in found.results] == ["g"]
        made = await admin._send_to_controller(DeleteTopicsRequest(["t"], 5000))
        assert made.topic_error_codes == [("t", 0)]


# -- producers


async def test_names_of_producers(cluster: FakeCluster) -> None:
    await cluster.create_topic("u", partitions=3)
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, key_serializer=str.encode
    ) as producer:
        await producer.partitions_for("u")
        assert producer._closed is False
        assert producer._key_serializer("k") == b"k"
        assert producer._value_serializer is None
        assert producer._partition("u", None, "k", None, b"k", None) in {0, 1, 2}
        assert producer._partition("u", 1, None, None, None, None) == 1
        peek = producer._partition("u", None, None, b"v", None, b"v")
        assert (await producer.send_and_wait("u", b"v", key="")).partition in {0, 1, 2}
        assert peek in {0, 1, 2}
        assert producer.client.cluster.brokers()
    assert producer._closed is True


async def test_health_checks_look_at_the_sender(cluster: FakeCluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    assert producer._sender.sender_task is None
    async with producer:
        task = producer._sender._sender_task
        assert task is producer._sender.sender_task
        assert task is not None
        assert not task.done()
        await producer.send_and_wait("t", b"v")
        assert not task.done()
        assert producer._metadata.partitions_for_topic("t") == {0}
    assert task.done()


async def test_programs_add_messages_to_the_accumulator(cluster: FakeCluster) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.partitions_for("t")
        add = producer._message_accumulator.add_message
        first = await add(TP, b"k", b"v", 10)
        second = await add(TP, None, b"w", 10, timestamp_ms=7, headers=[("h", b"1")])
        assert [(await future).offset for future in (first, second)] == [0, 1]
    one, two = cluster.log("t").records()
    assert (one.key, one.value, two.value, two.headers) == (b"k", b"v", b"w", (("h", b"1"),))
    assert two.timestamp == 7


# -- consumers


async def test_kafkaesk_asks_whether_the_coordinator_is_ready(consumer: AIOKafkaConsumer) -> None:
    assert consumer._coordinator.coordinator_id is not None
    assert await consumer._client.ready(consumer._coordinator.coordinator_id)
    assert not await consumer._client.ready(99)
    assert await consumer._client._wait_on_metadata("t") == {0}
    assert (await consumer._client.fetch_all_metadata()).topics() == {"t"}


async def test_kafkaesk_reads_through_the_fetcher(
    cluster: FakeCluster, consumer: AIOKafkaConsumer
) -> None:
    fetcher = consumer._fetcher
    cluster.log("t").append(b"1")
    async with timeout(20):
        assert (await fetcher.next_record([TP])).value == b"1"
        for partitions in ([TP], []):
            reading = asyncio.create_task(fetcher.next_record(partitions))
            while not fetcher._fetch_waiters:
                await asyncio.sleep(0)
            cluster.log("t").append(b"2")
            assert (await reading).value == b"2"
            assert not fetcher._fetch_waiters
        reading = asyncio.create_task(fetcher.next_record([]))
        while not fetcher._fetch_waiters:
            await asyncio.sleep(0)
        await consumer.stop()
        with pytest.raises(ConsumerStoppedError):
            await reading
        with pytest.raises(ConsumerStoppedError):
            await fetcher.next_record([])


async def test_programs_hold_the_commit_lock(consumer: AIOKafkaConsumer) -> None:
    coordinator: Any = consumer._coordinator
    async with timeout(20):
        assert not coordinator._commit_lock.locked()
        async with coordinator._commit_lock:
            commit = asyncio.create_task(consumer.commit({TP: 3}))
            other = asyncio.create_task(locked_once(coordinator))
            # A commit that does not wait is done by the end of such a question.
            assert await consumer.committed(TP) is None
            assert coordinator._commit_lock.locked()
            assert not commit.done()
            assert not other.done()
        await commit
        await other
        assert not coordinator._commit_lock.locked()
        assert await consumer.committed(TP) == 3


async def locked_once(coordinator: Any) -> None:
    async with coordinator._commit_lock:
        pass


async def test_programs_fetch_committed_offsets(consumer: AIOKafkaConsumer[Any, Any]) -> None:
    coordinator: Any = consumer._coordinator
    assert isinstance(coordinator, GroupCoordinator)
    async with timeout(20):
        assert await coordinator.fetch_committed_offsets([TP]) == {}
        await consumer.commit({TP: (3, "m")})
        assert await coordinator.fetch_committed_offsets({TP}) == {TP: OffsetAndMetadata(3, "m")}
        assert await coordinator.fetch_committed_offsets([]) == {}


async def test_programs_see_and_ask_for_rejoins(
    cluster: FakeCluster, consumer: AIOKafkaConsumer
) -> None:
    coordinator: Any = consumer._coordinator
    async with timeout(20):
        future = coordinator._rejoin_needed_fut
        assert not future.done()
        assert coordinator._rejoin_needed_fut is future
        generation = coordinator.generation
        # What a program waits for with a limit is cancelled, and asks for nothing.
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.01)
        future = coordinator._rejoin_needed_fut
        assert not future.done()
        consumer.subscribe(["t", "u"])
        await future
        await cluster.create_topic("u")
        cluster.log("u").append(b"v")
        assert await value_of(consumer) == b"v"
        if consumer._given.group_protocol == "classic":
            assert coordinator.generation > generation
            generation = coordinator.generation
            coordinator._rejoin_needed_fut.set_result(None)
            while coordinator.generation <= generation:
                await asyncio.sleep(0.01)
            assert not coordinator._rejoin_needed_fut.done()
            generation = coordinator.generation
            coordinator.request_rejoin()
            while coordinator.generation <= generation:
                await asyncio.sleep(0.01)


async def value_of(consumer: AIOKafkaConsumer) -> bytes | None:
    record: ConsumerRecord[bytes | None, bytes | None] = await consumer.getone()
    return record.value


async def test_a_read_that_has_begun_ends_empty(consumer: AIOKafkaConsumer) -> None:
    """However few turns of the loop it had before `stop()`."""
    async with timeout(20):
        for _ in range(3):
            await asyncio.sleep(0)
        reading = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
        await asyncio.sleep(0)
        await consumer.stop()
        assert await reading == {}
        with pytest.raises(ConsumerStoppedError):
            await consumer.getmany()


# -- what the tests of aiokafka ask for ------------------------------------------------------------


async def test_coordinators_have_the_settings_of_their_consumer() -> None:
    consumer = AIOKafkaConsumer(group_id="g", session_timeout_ms=20_000, retry_backoff_ms=31)
    coordinator: Any = consumer._coordinator
    assert coordinator._session_timeout_ms == 20_000
    assert (coordinator._retry_backoff_ms, coordinator._enable_auto_commit) == (31, True)
    with pytest.raises(AttributeError, match="has no attribute '_topic'"):
        coordinator._topic  # noqa: B018


async def test_tests_wait_for_the_assignment_of_a_subscription(cluster: FakeCluster) -> None:
    await cluster.create_topic("u")
    async with AIOKafkaConsumer(
        "t", group_id="g", bootstrap_servers=cluster.bootstrap_servers
    ) as consumer:
        consumer.subscribe(["t", "u"])
        async with timeout(20):
            await consumer._subscription.wait_for_assignment()
        assert consumer.assignment() == {TP, TopicPartition("u", 0)}
        consumer.unsubscribe()
        consumer.subscribe(["u"])
        async with timeout(20):
            await consumer._subscription.wait_for_assignment()
        assert consumer.assignment() == {TopicPartition("u", 0)}


async def test_tracers_see_what_is_committed(
    cluster: FakeCluster, consumer: AIOKafkaConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, Any]] = []
    original = GroupCoordinator.commit_offsets

    async def traced(self: GroupCoordinator, *args: Any, **named: Any) -> None:
        # As ddtrace does: the second argument, or the keyword.
        seen.append((self.group_id, args[1] if len(args) > 1 else named["offsets"]))
        await original(self, *args, **named)

    monkeypatch.setattr(GroupCoordinator, "commit_offsets", traced)
    cluster.log("t").append(b"v")
    await consumer.getone()
    await consumer.commit()
    await consumer.commit({TP: 0})
    assert [(group, offsets[TP].offset) for group, offsets in seen] == [("g", 1), ("g", 0)]


async def test_tests_look_at_settings() -> None:
    consumer = AIOKafkaConsumer(group_id="g", group_instance_id="one", client_rack="here")
    assert (consumer._group_instance_id, consumer._client_rack) == ("one", "here")
    assert AIOKafkaConsumer()._client_rack is None
    producer = AIOKafkaProducer(enable_idempotence=True)
    assert producer._sender._acks == -1
    await producer.stop()


def test_tests_say_what_members_had() -> None:
    """So they try the sticky assignor, without a group."""
    cluster = ClusterMetadata()
    cluster.update_metadata(
        MetadataResponse_v0([(0, "here", 9092)], [(0, "t", [(0, n, 0, [0], [0]) for n in (0, 1)])])
    )
    had = {"a": [TopicPartition("t", 1)], "b": [TopicPartition("t", 0)]}
    members = {
        name: StickyPartitionAssignor._metadata({"t"}, partitions, 3)
        for name, partitions in had.items()
    }
    shares = StickyPartitionAssignor.assign(cluster, members)
    assert {name: share.partitions() for name, share in shares.items()} == had
    assert not StickyPartitionAssignor._metadata({"t"}, []).user_data
    # And look at what was moved from one to the other.
    assert StickyPartitionAssignor._latest_partition_movements.are_sticky()
    moves = PartitionMovements()
    moves.move_partition(TopicPartition("t", 1), "a", "b")
    moves.move_partition(TopicPartition("t", 2), "b", "a")
    assert not moves.are_sticky()
    for old, new in (("b", "c"), ("c", "a")):
        moves.move_partition(TopicPartition("t", 1), old, new)
    assert moves.are_sticky()


async def test_faust_reads_records_whose_deserializers_await(cluster: FakeCluster) -> None:
    async def later(data: bytes) -> int:
        await asyncio.sleep(0)
        return int(data)

    for number in range(6):
        cluster.log("t").append(b"%d" % number)
    async with AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=later,
    ) as consumer:
        consumer.assign([TP])
        found = [await consumer._fetcher.next_record([TP])]
        while len(found) < 6:
            records = await consumer._fetcher.fetched_records((TP,), timeout=5, max_records=3)
            found += records.get(TP, [])
    assert [record.value for record in found] == [*range(6)]
