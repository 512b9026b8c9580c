"""FakeCluster: its life, brokers that stop, leaders that move, topics and settings."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.errors import NotLeaderForPartitionError
from aiokafka.protocol.messages.cluster import DescribeClusterRequest
from aiokafka.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.metadata import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from aiokafka.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import FakeCluster, TopicRefusedError

from .support import RawClient, batch, fetch_request, produce


async def metadata(client: RawClient, *names: str, version: int = 12) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    return await client.call(MetadataRequest(topics=topics), version)


async def describe(client: RawClient, name: str) -> MetadataResponseTopic:
    return (await metadata(client, name)).topics[0]


async def test_it_starts_and_stops_without_a_trace() -> None:
    before = asyncio.all_tasks()
    async with FakeCluster(3) as cluster:
        assert len(cluster.bootstrap_servers.split(",")) == 3
        async with RawClient(cluster.address(0)) as client:
            response = await metadata(client)
            assert [b.node_id for b in response.brokers] == [0, 1, 2]
            assert cluster.connections == 1
    assert cluster.connections == 0
    assert asyncio.all_tasks() == before


async def test_stop_breaks_a_waiting_request() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        async with RawClient(cluster.address(0)) as client:
            client.send(fetch_request("t", max_wait_ms=60_000), 11)
            waiting = asyncio.create_task(client.receive_frame())
            await cluster.wait_for(lambda: cluster.count(FetchRequest) == 1)
            await cluster.stop()
            assert await waiting == b""


async def test_records_written_to_the_log_can_be_read_from_it() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", 2)
        log = cluster.log("t", 1)
        assert log.append(b"a", b"k", headers=[("h", b"1")], timestamp_ms=5) == 0
        assert log.extend([(None, b"b", ()), (None, None, ())], codec=1) == 1
        records = log.records()
        assert [(r.offset, r.key, r.value) for r in records] == [
            (0, b"k", b"a"),
            (1, None, b"b"),
            (2, None, None),
        ]
        assert records[0].timestamp == 5
        assert list(records[0].headers) == [("h", b"1")]
        assert log.records(2)[0].offset == 2
        with pytest.raises(KeyError):
            cluster.log("t", 2)


async def test_a_moved_leader_is_known_everywhere_under_the_next_epoch() -> None:
    async with FakeCluster(2) as cluster:
        await cluster.create_topic("t", replication_factor=2)
        old = cluster.partition("t").leader
        assert cluster.move_leader(TopicPartition("t", 0), 1 - old) == 1
        async with RawClient(cluster.address(old)) as client:
            topic = await describe(client, "t")
            assert (topic.partitions[0].leader_id, topic.partitions[0].leader_epoch) == (1 - old, 1)
            answer = await produce(client, "t", batch(b"x"), version=10)
            assert answer.error_code == NotLeaderForPartitionError.errno
            assert answer.current_leader.leader_id == 1 - old  # KIP-951
            assert answer.current_leader.leader_epoch == 1


async def test_a_stopped_brokers_partitions_go_to_other_replicas() -> None:
    async with FakeCluster(3) as cluster:
        await cluster.create_topic("safe", 3, 2)
        await cluster.create_topic("alone", 3, 1)
        orphan = next(i for i in range(3) if cluster.partition("alone", i).leader == 1)
        await cluster.stop_broker(1)
        async with RawClient(cluster.address(0)) as client:
            response = await metadata(client, "safe", "alone")
            assert [b.node_id for b in response.brokers] == [0, 2]
            assert {p.leader_id for p in response.topics[0].partitions} <= {0, 2}
            assert all(1 not in p.isr_nodes for p in response.topics[0].partitions)
            lost = response.topics[1].partitions[orphan]
            assert (lost.leader_id, lost.error_code, lost.offline_replicas) == (-1, 5, [1])
            port = cluster.address(1)
            await cluster.start_broker(1)
            assert cluster.address(1) == port
            found = (await describe(client, "alone")).partitions[orphan]
            assert (found.leader_id, found.error_code, found.leader_epoch) == (1, 0, 2)


async def test_dropped_connections_may_come_again() -> None:
    async with FakeCluster() as cluster:
        async with RawClient(cluster.address(0)) as client:
            await metadata(client)
            cluster.drop_connections()
            assert await client.receive_frame() == b""
        async with RawClient(cluster.address(0)) as client:
            assert (await metadata(client)).brokers


async def test_an_unknown_topic_is_created_by_asking_twice() -> None:
    async with FakeCluster(config={"num.partitions": 3}) as cluster:
        async with RawClient(cluster.address(0)) as client:
            assert (await describe(client, "new")).error_code == 3
            assert len((await describe(client, "new")).partitions) == 3
            assert (await describe(client, "bad/name")).error_code == 17
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name="other")], allow_auto_topic_creation=False
            )
            assert (await client.call(request, 12)).topics[0].error_code == 3
            assert "other" not in cluster.state.topics


async def test_auto_creation_can_be_off() -> None:
    async with FakeCluster(config={"auto.create.topics.enable": False}) as cluster:
        async with RawClient(cluster.address(0)) as client:
            assert (await describe(client, "new")).error_code == 3
            assert (await describe(client, "new")).error_code == 3


async def test_topics_by_id_and_all_topics() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("a")
        await cluster.create_topic("b")
        async with RawClient(cluster.address(0)) as client:
            everything = await metadata(client)
            assert [t.name for t in everything.topics] == ["a", "b"]
            oldest = await client.call(MetadataRequest(topics=[]), 0)
            assert [t.name for t in oldest.topics] == ["a", "b"]
            none = await client.call(MetadataRequest(topics=[]), 12)
            assert none.topics == []
            by_id = MetadataRequest(
                topics=[
                    MetadataRequestTopic(topic_id=everything.topics[1].topic_id, name=None),
                    MetadataRequestTopic(topic_id=bytes(15) + b"x", name=None),
                ]
            )
            found = (await client.call(by_id, 12)).topics
            assert (found[0].name, found[0].error_code) == ("b", 0)
            assert found[1].error_code == 100


@pytest.mark.parametrize(
    ("options", "errno"),
    [
        ({"name": "../x"}, 17),
        ({"name": "there"}, 36),
        ({"name": "n", "num_partitions": 0}, 37),
        ({"name": "n", "replication_factor": 3}, 38),
        ({"name": "n", "configs": [CreatableTopicConfig(name="no.such", value="1")]}, 40),
        ({"name": "n", "configs": [CreatableTopicConfig(name="retention.ms", value="x")]}, 40),
        ({"name": "n"}, 0),
    ],
)
async def test_create_topics_is_checked_as_kafka_does(
    options: dict[str, object], errno: int
) -> None:
    async with FakeCluster(2) as cluster:
        await cluster.create_topic("there")
        fields = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        topic = CreatableTopic(**{**fields, **options})  # type: ignore[arg-type]
        async with RawClient(cluster.address(0)) as client:
            result = (await client.call(CreateTopicsRequest(topics=[topic]), 7)).topics[0]
            assert result.error_code == errno
            assert ("n" in cluster.state.topics) == (errno == 0)


async def test_all_partitions_have_as_many_replicas() -> None:
    async with FakeCluster(2) as cluster:
        with pytest.raises(TopicRefusedError) as refused:
            await cluster.create_topic("t", assignment={0: [0, 1], 1: [1]})
        assert refused.value.errno == 39
        await cluster.create_topic("t", assignment={0: [0, 1], 1: [1, 0]})
        async with RawClient(cluster.address(0)) as client:
            for brokers, errno in (([0], 39), ([0, 1], 0)):
                placed = [CreatePartitionsAssignment(broker_ids=brokers)]
                grown = CreatePartitionsTopic(name="t", count=3, assignments=placed)
                request = CreatePartitionsRequest(
                    topics=[grown], timeout_ms=1000, validate_only=False
                )
                assert (await client.call(request, 3)).results[0].error_code == errno


async def test_topics_can_be_deleted() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        async with RawClient(cluster.address(0)) as client:
            request = DeleteTopicsRequest(topic_names=["t", "u"], timeout_ms=1000)
            answers = (await client.call(request, 5)).responses
            assert [(a.name, a.error_code) for a in answers] == [("t", 0), ("u", 3)]
            assert (await produce(client, "t", batch(b"x"))).error_code == 3


async def test_the_python_calls_refuse_what_kafka_refuses() -> None:
    async with FakeCluster() as cluster:
        with pytest.raises(TopicRefusedError) as caught:
            await cluster.create_topic("t", replication_factor=2)
        assert caught.value.errno == 38
        with pytest.raises(KeyError):
            await cluster.delete_topic("t")
        await cluster.create_topic("t")
        with pytest.raises(KeyError):
            cluster.move_leader(("t", 0), 7)


def test_a_choice_setting_may_have_capitals_and_spaces_around_it() -> None:
    settings = {"group.consumer.migration.policy": " Upgrade ", "delete.topic.enable": " FALSE "}
    config = FakeCluster(config=settings).state.config
    assert config["group.consumer.migration.policy"] == "upgrade"
    assert config["delete.topic.enable"] == "false"


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"as_version must be one of 0\.9"):
        FakeCluster(as_version="5.0")
    with pytest.raises(ValueError, match=r"no\.such"):
        FakeCluster(config={"no.such": 1})
    for config in (
        {"message.max.bytes": "1e6"},
        {"num.partitions": None},
        {"min.insync.replicas": 1.5},
        {"replica.lag.time.max.ms": -1},
        {"auto.create.topics.enable": "no"},
    ):
        with pytest.raises(ValueError, match=f"configuration {next(iter(config))}: "):
            FakeCluster(config=config)
    with pytest.raises(ValueError, match="racks"):
        FakeCluster(2, racks=["a"])
    with pytest.raises(ValueError, match="brokers"):
        FakeCluster(0)


async def test_settings_are_described_and_changed() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", config={"retention.ms": 1000})
        async with RawClient(cluster.address(0)) as client:

            async def settings() -> dict[str, tuple[str | None, int]]:
                wanted = DescribeConfigsResource(
                    resource_type=2, resource_name="t", configuration_keys=None
                )
                response = await client.call(DescribeConfigsRequest(resources=[wanted]), 4)
                return {c.name: (c.value, c.config_source) for c in response.results[0].configs}

            assert (await settings())["retention.ms"] == ("1000", 1)
            assert (await settings())["cleanup.policy"] == ("delete", 5)
            change = AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=2,
                        resource_name="t",
                        configs=[AlterableConfig(name="cleanup.policy", value="compact")],
                    )
                ],
                validate_only=False,
            )
            assert (await client.call(change, 2)).responses[0].error_code == 0
            assert (await settings())["retention.ms"] == ("604800000", 5)
            assert (await settings())["cleanup.policy"] == ("compact", 1)


async def test_delete_records_moves_the_start() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        for i in range(5):
            cluster.log("t").append(b"%d" % i)
        async with RawClient(cluster.address(0)) as client:

            async def delete(offset: int) -> tuple[int, int]:
                part = DeleteRecordsPartition(partition_index=0, offset=offset)
                topic = DeleteRecordsTopic(name="t", partitions=[part])
                request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
                answer = (await client.call(request, 2)).topics[0].partitions[0]
                return answer.error_code, answer.low_watermark

            assert await delete(3) == (0, 3)
            assert [r.offset for r in cluster.log("t").records()] == [3, 4]
            assert (await delete(6))[0] == 1
            assert await delete(-1) == (0, 5)
            assert cluster.log("t").records() == []


async def test_describe_cluster() -> None:
    async with FakeCluster(2) as cluster:
        async with RawClient(cluster.address(0)) as client:
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            response = await client.call(request, 1)
            assert response.cluster_id == cluster.state.cluster_id
            assert [f"{b.host}:{b.port}" for b in response.brokers] == [
                cluster.address(0),
                cluster.address(1),
            ]


async def test_clients_come_through_the_proxies() -> None:
    async with FakeCluster(2, proxied=True) as cluster:
        assert cluster.address(1) == cluster.proxies[1].address
        async with RawClient(cluster.bootstrap_servers.split(",")[0]) as client:
            response = await metadata(client)
            assert response.brokers[1].port == cluster.proxies[1].port
            assert cluster.proxies[0].connections == 1
            cluster.proxies[0].cut()
            assert await client.receive_frame() == b""
        await cluster.stop_broker(0)
        await cluster.start_broker(0)
        async with RawClient(cluster.address(0)) as client:
            assert (await metadata(client)).brokers


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
async def test_addresses_of_ipv6_are_in_brackets() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no ::1")
    async with FakeCluster(host="::1", proxied=True) as cluster:
        assert cluster.bootstrap_servers == cluster.address(0) == cluster.proxies[0].address
        assert cluster.address(0).startswith("[::1]:")
        await cluster.create_topic("t")
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert (await producer.send_and_wait("t", b"x", partition=0)).offset == 0


async def test_a_wrong_address_can_be_advertised() -> None:
    async with FakeCluster() as cluster:
        real = cluster.address(0)
        cluster.advertise(0, "example.invalid", 1)
        async with RawClient(real) as client:
            assert (await metadata(client)).brokers[0].host == "example.invalid"


async def test_throttling_is_told_and_enforced() -> None:
    async with FakeCluster() as cluster:
        cluster.throttle(100)
        async with RawClient(cluster.address(0)) as client:
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert (await metadata(client)).throttle_time_ms == 100
            cluster.throttle(0)
            assert (await metadata(client)).throttle_time_ms == 0  # read only after the pause
            assert loop.time() - began >= 0.1


async def test_tls_listener(tmp_path_factory: pytest.TempPathFactory) -> None:
    trustme = pytest.importorskip("cryptography", reason="makes the certificate")
    assert trustme
    from .certificates import make_contexts

    server, client_side = make_contexts(tmp_path_factory.mktemp("tls"))
    async with FakeCluster(ssl_context=server) as cluster:
        host, _, port = cluster.address(0).rpartition(":")
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=client_side, server_hostname="localhost"
        )
        client = RawClient(cluster.address(0))
        client.reader, client.writer = reader, writer
        assert (await client.call(ApiVersionsRequest(), 0)).api_keys
        writer.close()
        await writer.wait_closed()


async def test_a_tls_client_hangs_up_while_the_broker_does(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pytest.importorskip("cryptography", reason="makes the certificate")
    from .certificates import make_contexts

    server, client_side = make_contexts(tmp_path_factory.mktemp("tls"))
    problems: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context))
    async with FakeCluster(ssl_context=server) as cluster:
        host, _, port = cluster.address(0).rpartition(":")
        for _ in range(5):
            reader, writer = await asyncio.open_connection(
                host, int(port), ssl=client_side, server_hostname="localhost"
            )
            writer.write(b"\xff\xff\xff\xff" * 100)  # no request: the broker closes
            writer.close()
            await reader.read()
        await cluster.wait_for(lambda: not cluster.connections)
    assert not problems
