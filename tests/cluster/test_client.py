"""AIOKafkaClient over real sockets."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    IllegalStateError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from aiokafka.structs import BrokerMetadata, TopicPartition
from aiokafka.testing import Edit, Fail, FakeCluster, Hold, Silence


def now() -> float:
    return asyncio.get_running_loop().time()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=3, config={"auto.create.topics.enable": "false"}) as cluster:
        await cluster.create_topic("topic", partitions=6)
        yield cluster
        assert cluster.failures == []


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[AIOKafkaClient]:
    client = AIOKafkaClient(
        bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=10, client_id="tester"
    )
    async with client:
        yield client


# -- bootstrap


async def test_bootstrap_finds_every_broker(cluster: FakeCluster, client: AIOKafkaClient) -> None:
    assert {broker.nodeId for broker in client.cluster.brokers()} == {0, 1, 2}
    assert client.cluster.cluster_id
    assert client.controller() in {0, 1, 2}
    assert client.get_random_node() in {0, 1, 2}


async def test_the_bootstrap_connection_is_kept_for_its_broker(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    assert cluster.connections == 1
    await client.send(0, MetadataRequest(topics=[]))
    assert cluster.connections == 1


async def test_one_living_server_is_enough(cluster: FakeCluster) -> None:
    await cluster.stop_broker(0)
    servers = f"127.0.0.1:{free_port()},{cluster.bootstrap_servers}"
    async with AIOKafkaClient(bootstrap_servers=servers) as client:
        assert {broker.nodeId for broker in client.cluster.brokers()} == {1, 2}


async def test_one_error_names_every_server_and_its_reason() -> None:
    one, two = free_port(), free_port()
    client = AIOKafkaClient(bootstrap_servers=[f"127.0.0.1:{one}", f"localhost:{two}"])
    with pytest.raises(KafkaConnectionError) as error:
        await client.bootstrap()
    text = str(error.value)
    assert f"127.0.0.1:{one}" in text
    assert f"localhost:{two}" in text
    assert text.count("connection refused") >= 2
    assert isinstance(error.value.__cause__, KafkaConnectionError)
    await client.close()


async def test_bootstrap_may_be_tried_again(cluster: FakeCluster) -> None:
    servers = cluster.address(0)
    await cluster.stop_broker(0)
    client = AIOKafkaClient(bootstrap_servers=servers)
    with pytest.raises(KafkaConnectionError):
        await client.bootstrap()
    await cluster.start_broker(0)
    await client.bootstrap()
    assert await client.ready(0)
    await client.close()


async def test_a_slow_server_does_not_hold_up_the_next(cluster: FakeCluster) -> None:
    cluster.intercept(ApiVersionsRequest, Silence(), broker=0)
    async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        assert client.cluster.brokers()


async def test_silence_ends_at_the_request_timeout(cluster: FakeCluster) -> None:
    cluster.intercept(None, Silence())
    client = AIOKafkaClient(bootstrap_servers=cluster.address(0), request_timeout_ms=200)
    with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
        await client.bootstrap()
    await client.close()


async def test_an_advertised_address_that_cannot_be_reached_names_both(
    cluster: FakeCluster,
) -> None:
    servers = cluster.address(0)
    cluster.advertise(1, "127.0.0.1", port := free_port())
    async with AIOKafkaClient(bootstrap_servers=servers) as client:
        with pytest.raises(KafkaConnectionError) as error:
            await client.send(1, MetadataRequest(topics=[]))
        assert f"127.0.0.1:{port}" in str(error.value)
        assert f"{servers} (bootstrap server) gave this address" in str(error.value)
        assert "advertised.listeners" in str(error.value)


async def test_cancelled_at_any_await_bootstrap_leaves_nothing(cluster: FakeCluster) -> None:
    for turns in range(40):
        client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
        task = asyncio.ensure_future(client.bootstrap())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [task for task in others if "aiokafka" in task.get_name()]


# -- life


async def test_close_may_be_called_any_time(cluster: FakeCluster) -> None:
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
    await client.close()
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
    await client.bootstrap()
    await client.close()
    await client.close()
    with pytest.raises(IllegalStateError, match=r"stopped|closed"):
        await client.send(0, MetadataRequest(topics=[]))


@pytest.mark.parametrize(
    "make", [AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient]
)
async def test_close_before_the_first_connection_does_not_suspend(make: Any) -> None:
    """As in aiokafka 0.14: in kstreams' tests, whose consumers are never started, no other task may
    run during `stop()`."""
    client = make(bootstrap_servers="127.0.0.1:1")
    call = client.close() if isinstance(client, AIOKafkaClient) else client.stop()
    with pytest.raises(StopIteration):
        call.send(None)


async def test_close_fails_requests_in_flight(cluster: FakeCluster) -> None:
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
    await client.bootstrap()
    cluster.intercept(MetadataRequest, Silence())
    request = asyncio.ensure_future(client.send(0, MetadataRequest(topics=[])))
    waiting = asyncio.ensure_future(client.wait_for_topic("none", now() + 30))
    await asyncio.sleep(0.01)
    await client.close()
    with pytest.raises(KafkaConnectionError, match="closed by this client"):
        await request
    with pytest.raises(IllegalStateError, match="closed"):
        await waiting


async def test_only_an_unclosed_client_warns(cluster: FakeCluster) -> None:
    for is_closed in (True, False):
        client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers)
        await client.bootstrap()
        connection = await client.connection(0)
        tasks = [task for task in asyncio.all_tasks() if task.get_name().endswith(":metadata")]
        if is_closed:
            await client.close()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del client
            gc.collect()
        messages = [str(warning.message) for warning in caught]
        assert any("Unclosed <AIOKafkaClient" in text for text in messages) is not is_closed
    connection.close()
    await connection.closed
    tasks[0].cancel()
    await asyncio.wait(tasks)


def test_a_running_loop_is_needed() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        AIOKafkaClient(bootstrap_servers="localhost")


async def test_wrong_options_are_named() -> None:
    with pytest.raises(ValueError, match="security_protocol"):
        AIOKafkaClient(security_protocol="TLS")
    with pytest.raises(TypeError, match="bootstrap_server"):
        AIOKafkaClient(bootstrap_server="localhost")


# -- requests


async def test_groups_have_connections_of_their_own(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    release = asyncio.Event()
    cluster.intercept(FindCoordinatorRequest, Hold(release), times=1)
    request = FindCoordinatorRequest(coordinator_keys=["group"])
    slow = asyncio.ensure_future(client.send(0, request, group=ConnectionGroup.COORDINATION))
    assert (await client.send(0, MetadataRequest(topics=[]))).brokers
    assert not slow.done()
    release.set()
    assert (await slow).coordinators[0].key == "group"


async def test_send_nowait_needs_a_connection(client: AIOKafkaClient) -> None:
    with pytest.raises(NodeNotReadyError, match="node 1: not connected"):
        client.send_nowait(1, MetadataRequest(topics=[]))
    assert client.versions(1) is None
    assert await client.ready(1)
    answer = await client.send_nowait(1, MetadataRequest(topics=[]))
    assert answer.brokers
    versions = client.versions(1)
    assert versions is not None
    assert versions.pick(MetadataRequest) == 13


async def test_max_version_limits_the_version(cluster: FakeCluster, client: AIOKafkaClient) -> None:
    await client.send(0, MetadataRequest(topics=[]), max_version=5)
    assert cluster.requests(MetadataRequest)[-1].version == 5


async def test_ready_tells_without_raising(cluster: FakeCluster, client: AIOKafkaClient) -> None:
    await cluster.stop_broker(2)
    assert not await client.ready(2)
    assert not await client.ready(77)
    assert not await client.ready(None)


async def test_no_hidden_retries(cluster: FakeCluster, client: AIOKafkaClient) -> None:
    await cluster.stop_broker(2)
    with pytest.raises(KafkaConnectionError, match="connection refused"):
        await client.send(2, MetadataRequest(topics=[]))


async def test_a_connect_out_of_time_is_a_retriable_error(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    cluster.intercept(ApiVersionsRequest, Silence(), broker=2)
    with pytest.raises(NodeNotReadyError, match=r"node 2: no connection in 0.05 s") as error:
        await client.send(2, MetadataRequest(topics=[]), timeout=0.05)
    assert error.value.retriable


async def test_a_request_out_of_time(cluster: FakeCluster, client: AIOKafkaClient) -> None:
    await client.ready(1)
    cluster.intercept(MetadataRequest, Silence(), broker=1)
    with pytest.raises(RequestTimedOutError):
        await client.send(1, MetadataRequest(topics=[]), timeout=0.05)


# -- topics


async def test_partitions_of_a_topic(client: AIOKafkaClient) -> None:
    assert await client.wait_for_topic("topic", now() + 5) == set(range(6))


async def test_only_topics_in_use_are_asked_for(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    await cluster.create_topic("other")
    await client.wait_for_topic("topic", now() + 5)
    assert await client.force_metadata_update()
    assert client.cluster.topics() == {"topic"}
    names = [t.name for t in cluster.requests(MetadataRequest)[-1].request.topics]
    assert names == ["topic"]


async def test_a_topic_that_does_not_exist(client: AIOKafkaClient) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="'none'"):
        await client.wait_for_topic("none", now() + 0.1)


async def test_a_topic_that_appears_in_time(cluster: FakeCluster, client: AIOKafkaClient) -> None:
    waiting = asyncio.ensure_future(client.wait_for_topic("new", now() + 10))
    await cluster.wait_for(lambda: cluster.count(MetadataRequest) >= 3)
    await cluster.create_topic("new", partitions=2)
    assert await waiting == {0, 1}


@pytest.mark.parametrize("error", [TopicAuthorizationFailedError, InvalidTopicError])
async def test_a_refused_topic_fails_at_once(
    cluster: FakeCluster, client: AIOKafkaClient, error: type[Exception]
) -> None:
    cluster.intercept(MetadataRequest, Fail(error))  # type: ignore[arg-type]
    with pytest.raises(error):
        await client.wait_for_topic("topic", now() + 10)
    with pytest.raises(error):
        await client.wait_for_topic("topic", now() + 10)


async def test_a_refusal_that_is_lifted_is_forgotten(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    with cluster.intercept(MetadataRequest, Fail(TopicAuthorizationFailedError)):
        with pytest.raises(TopicAuthorizationFailedError):
            await client.wait_for_topic("topic", now() + 10)
    assert await client.wait_for_topic("topic", now() + 10) == set(range(6))


async def test_add_topic_tells_whether_it_is_known(client: AIOKafkaClient) -> None:
    assert await client.add_topic("topic")
    assert await client.add_topic("topic")
    assert not await client.add_topic("none")


async def test_set_topics_replaces_the_earlier_ones(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    await cluster.create_topic("other")
    assert await client.set_topics(["topic"])
    assert await client.set_topics(["other"])
    assert await client.force_metadata_update()
    assert client.cluster.topics() == {"other"}
    with pytest.raises(TypeError, match="expected names"):
        client.set_topics([1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="empty"):
        client.set_topics([""])


async def test_all_topics_can_be_watched(cluster: FakeCluster, client: AIOKafkaClient) -> None:
    client.watch_all_topics()
    await client.wait_for_metadata(lambda c: "topic" in c.topics(), now() + 5)
    await cluster.create_topic("later")
    await client.wait_for_metadata(lambda c: "later" in c.topics(), now() + 5)
    await client.set_topics(["topic"])
    assert await client.force_metadata_update()
    assert client.cluster.topics() == {"topic"}


async def test_fetch_all_metadata_leaves_the_snapshot_alone(client: AIOKafkaClient) -> None:
    everything = await client.fetch_all_metadata()
    assert everything.topics() == {"topic"}
    assert client.cluster.topics() == set()


# -- metadata


async def test_a_wait_that_is_not_fulfilled_ends_at_its_deadline(client: AIOKafkaClient) -> None:
    with pytest.raises(KafkaTimeoutError, match="a third moon"):
        await client.wait_for_metadata(lambda c: False, now() + 0.05, "a third moon")


async def test_a_failing_refresh_is_the_cause_of_the_timeout(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    for broker_id in range(3):
        await cluster.stop_broker(broker_id)
    with pytest.raises(KafkaTimeoutError, match="connection refused") as error:
        await client.wait_for_topic("topic", now() + 0.5)
    assert isinstance(error.value.__cause__, KafkaConnectionError)


async def test_requests_for_updates_are_merged_and_paced(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    before = cluster.count(MetadataRequest)
    end = now() + 0.3
    while now() < end:
        client.request_metadata("again and again")
        await asyncio.sleep(0)
    # 10, 20, 40 ... ms apart, spread by a fifth.
    assert 1 <= cluster.count(MetadataRequest) - before <= 7


async def test_the_snapshot_is_refreshed_when_it_is_old(cluster: FakeCluster) -> None:
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers, metadata_max_age_ms=20)
    async with client:
        await cluster.wait_for(lambda: cluster.count(MetadataRequest) >= 4)


async def test_idle_topics_are_forgotten(cluster: FakeCluster) -> None:
    client = AIOKafkaClient(
        bootstrap_servers=cluster.bootstrap_servers,
        metadata_max_age_ms=100,
        metadata_max_idle_ms=1000,
    )
    async with client:
        await client.wait_for_topic("topic", now() + 5)
        await client.wait_for_metadata(lambda c: not c.topics(), now() + 10)


async def test_a_leader_that_moved_is_seen(cluster: FakeCluster, client: AIOKafkaClient) -> None:
    await client.wait_for_topic("topic", now() + 5)
    tp = TopicPartition("topic", 0)
    old = client.cluster.leader_for_partition(tp)
    epoch = cluster.move_leader(tp, new := (old or 0) ^ 1)
    await client.wait_for_metadata(lambda c: c.leader_for_partition(tp) == new, now() + 5)
    assert client.cluster.leader_epoch(tp) == epoch


async def test_a_new_leader_from_an_answer_is_taken(client: AIOKafkaClient) -> None:
    await client.wait_for_topic("topic", now() + 5)
    tp = TopicPartition("topic", 0)
    heard: list[ClusterMetadata] = []
    client.cluster.add_listener(heard.append)
    client.update_leader(tp, 9, 77, BrokerMetadata(9, "127.0.0.1", 1, None))
    assert client.cluster.leader_for_partition(tp) == 9
    assert client.cluster.leader_epoch(tp) == 77
    client.update_leader(TopicPartition("topic", 1), 9, 77)
    await asyncio.sleep(0)
    assert heard == [client.cluster]


async def test_brokers_that_all_moved_are_found_again(cluster: FakeCluster) -> None:
    """KIP-899: every known address is dead, the bootstrap server knows the new ones."""
    async with FakeCluster(brokers=1) as decoy:
        servers = cluster.address(0)
        client = AIOKafkaClient(
            bootstrap_servers=servers, retry_backoff_ms=10, reconnect_backoff_ms=10
        )
        for broker_id in range(3):
            cluster.advertise(broker_id, *_split(decoy.address(0)))
        async with client:
            await decoy.stop_broker(0)
            host, port = _split(servers)
            cluster.advertise(0, host, port)
            await client.wait_for_metadata(
                lambda c: BrokerMetadata(0, host, port, None) in c.brokers(), now() + 10
            )


async def test_a_broker_may_send_the_client_back_to_bootstrap(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    """KIP-1102: the error code REBOOTSTRAP_REQUIRED."""

    def send_back(response: object) -> None:
        response.error_code = 129  # type: ignore[attr-defined]

    cluster.intercept(MetadataRequest, Edit(send_back), times=1)  # type: ignore[arg-type]
    assert await client.force_metadata_update()


async def test_one_silent_broker_does_not_stop_the_refresh(cluster: FakeCluster) -> None:
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=100)
    async with client:
        cluster.intercept(MetadataRequest, Silence(), broker=0)
        assert await client.force_metadata_update()


async def test_a_listener_that_raises_does_not_stop_the_refresh(client: AIOKafkaClient) -> None:
    client.cluster.add_listener(lambda _: 1 / 0)
    assert await client.force_metadata_update()
    assert await client.force_metadata_update()


async def test_the_cluster_asks_its_client_for_updates(client: AIOKafkaClient) -> None:
    assert await client.cluster.request_update()


# -- coordinators


@pytest.mark.parametrize("version", ["0.10.2", "2.8", "4.3"])
async def test_the_coordinator_is_found_and_remembered(version: str) -> None:
    async with FakeCluster(brokers=3, as_version=version) as cluster:
        async with AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            found = await client.coordinator(CoordinationType.GROUP, "group", now() + 5)
            assert found in {0, 1, 2}
            again = await client.coordinator(CoordinationType.GROUP, "group", now() + 5)
            assert again == found
            assert cluster.count(FindCoordinatorRequest) == 1
            cluster.move_coordinator("group", "group", (found + 1) % 3)
            client.forget_coordinator(CoordinationType.GROUP, "group", "test")
            moved = await client.coordinator_lookup(CoordinationType.GROUP, "group")
            assert moved == (found + 1) % 3


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (NotCoordinatorForGroupError("g"), False),
        (GroupCoordinatorNotAvailableError("g"), False),
        (RequestTimedOutError("g"), False),
        (KafkaConnectionError("lost"), False),
        (GroupLoadInProgressError("g"), True),
        (RebalanceInProgressError("g"), True),
    ],
)
async def test_a_coordinator_is_forgotten_when_it_may_have_moved(
    client: AIOKafkaClient, error: KafkaError, is_kept: bool
) -> None:
    kind = CoordinationType.GROUP

    async def succeed(node_id: int) -> int:
        return node_id

    async def fail(node_id: int) -> int:
        raise error

    assert client.known_coordinator(kind, "group") is None
    found = await client.ask_coordinator(kind, "group", now() + 5, succeed)
    assert client.known_coordinator(kind, "group") == found
    with pytest.raises(type(error)) as caught:
        await client.ask_coordinator(kind, "group", now() + 5, fail)
    assert caught.value is error
    assert client.known_coordinator(kind, "group") == (found if is_kept else None)


async def test_coordinators_are_remembered_by_key(client: AIOKafkaClient) -> None:
    keys = [f"group-{i}" for i in range(20)]
    found = {key: await client.coordinator(CoordinationType.GROUP, key, now() + 5) for key in keys}
    assert len(set(found.values())) > 1


async def test_a_coordinator_that_is_not_there_yet_is_waited_for(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    cluster.intercept(FindCoordinatorRequest, Fail(GroupCoordinatorNotAvailableError), times=3)
    assert await client.coordinator(CoordinationType.GROUP, "group", now() + 10) in {0, 1, 2}
    assert cluster.count(FindCoordinatorRequest) == 4


async def test_a_coordinator_that_never_comes_ends_at_the_deadline(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    cluster.intercept(FindCoordinatorRequest, Fail(GroupCoordinatorNotAvailableError))
    with pytest.raises(KafkaTimeoutError, match="no coordinator for 'group'") as error:
        await client.coordinator(CoordinationType.GROUP, "group", now() + 1)
    assert isinstance(error.value.__cause__, GroupCoordinatorNotAvailableError)


async def test_a_forbidden_group_fails_at_once(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    cluster.intercept(FindCoordinatorRequest, Fail(GroupAuthorizationFailedError))
    with pytest.raises(GroupAuthorizationFailedError):
        await client.coordinator(CoordinationType.GROUP, "group", now() + 10)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def test_a_new_topic_is_asked_for_alone(cluster: FakeCluster, client: AIOKafkaClient) -> None:
    await cluster.create_topic("other")
    await client.wait_for_topic("topic", now() + 5)
    await client.wait_for_topic("other", now() + 5)
    names = [[t.name for t in seen.request.topics] for seen in cluster.requests(MetadataRequest)]
    assert names[-2:] == [["topic"], ["other"]]
    assert client.cluster.topics() == {"topic", "other"}


async def test_only_topics_without_leaders_are_asked_for_again(
    cluster: FakeCluster, client: AIOKafkaClient
) -> None:
    await cluster.create_topic("frail", assignment={0: [2]})
    await cluster.create_topic("calm", assignment={0: [0]})
    await client.wait_for_topic("calm", now() + 5)
    await client.wait_for_topic("frail", now() + 5)
    await cluster.stop_broker(2)
    frail = TopicPartition("frail", 0)
    await client.wait_for_metadata(lambda c: c.leader_for_partition(frail) == -1, now() + 5)
    # One more full refresh may have been asked for meanwhile.
    await cluster.wait_for(lambda: cluster.count(MetadataRequest) >= 6)
    cluster.forget_requests()
    await cluster.wait_for(lambda: cluster.count(MetadataRequest) >= 2)
    await cluster.start_broker(2)
    deadline = now() + 10
    while client.cluster.leader_for_partition(frail) != 2 and now() < deadline:
        await client.metadata_changed()
    names = {t.name for seen in cluster.requests(MetadataRequest) for t in seen.request.topics}
    assert names == {"frail"}
    assert client.cluster.topics() == {"calm", "frail"}
