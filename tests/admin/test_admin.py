"""The admin client against the fake cluster: results, routing, retries, deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import (
    AIOKafkaAdminClient,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
)
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidPartitionsError,
    KafkaConnectionError,
    KafkaTimeoutError,
    MemberIdRequired,
    NotControllerError,
    NotCoordinatorForGroupError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.protocol.messages.group_members import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.protocol.messages.groups import DescribeGroupsRequest
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest
from aiokafka.protocol.messages.topics import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from aiokafka.testing import Cut, Delay, Fail, FakeCluster, Silence
from tests.admin.support import make_admin, simulated


async def test_create_topics() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        result = await admin.create_topics(
            [NewTopic("t", 3, 2, topic_configs={"retention.ms": "1000"}), NewTopic("u", 1, 1)]
        )
        assert result.topic_errors == [("t", 0, None), ("u", 0, None)]
        assert sorted(await admin.list_topics()) == ["t", "u"]
        (described,) = await admin.describe_topics(["t"])
        assert described["topic"] == "t"
        assert described["is_internal"] is False
        assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
        for partition in described["partitions"]:
            assert partition["error_code"] == 0
            assert len(partition["replicas"]) == 2
            assert partition["leader"] in partition["isr"]
            assert partition["offline_replicas"] == []


async def test_errors_of_topics_are_returned() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        result = await admin.create_topics([NewTopic("t", 1, 1), NewTopic("u", 1, 1)])
        codes = {topic: for_code(code) for topic, code, _ in result.topic_errors}
        assert codes["t"] is TopicAlreadyExistsError
        assert codes["u"].errno == 0
        messages = {topic: message for topic, _, message in result.topic_errors}
        assert messages["t"]


async def test_create_topics_by_assignment() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        topic = NewTopic("t", -1, -1, replica_assignments={0: [2, 0], 1: [1, 2]})
        assert (await admin.create_topics([topic])).topic_errors == [("t", 0, None)]
        (described,) = await admin.describe_topics(["t"])
        assert [p["replicas"] for p in described["partitions"]] == [[2, 0], [1, 2]]
        assert [p["leader"] for p in described["partitions"]] == [2, 1]


async def test_only_checking_changes_nothing() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        result = await admin.create_topics([NewTopic("t", 1, 1)], validate_only=True)
        assert result.topic_errors == [("t", 0, None)]
        assert await admin.list_topics() == []


async def test_one_name_is_not_several() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        text: Any = "t"
        for call in (admin.delete_topics, admin.describe_topics, admin.describe_consumer_groups):
            with pytest.raises(TypeError, match="must be several names, not one str"):
                await call(text)
        assert await admin.list_topics() == ["t"]


async def test_delete_topics() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        result = await admin.delete_topics(["t", "missing"])
        unknown = UnknownTopicOrPartitionError.errno
        assert result.topic_error_codes == [("t", 0), ("missing", unknown)]
        assert await admin.list_topics() == []


async def test_describing_a_topic_does_not_create_it() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        (described,) = await admin.describe_topics(["missing"])
        assert described["error_code"] == UnknownTopicOrPartitionError.errno
        assert await admin.list_topics() == []
        assert await admin.describe_topics([]) == []


async def test_describe_all_topics() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await cluster.create_topic("u", partitions=2)
        described = {d["topic"]: len(d["partitions"]) for d in await admin.describe_topics()}
        assert described == {"t": 1, "u": 2}


async def test_create_partitions() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        await cluster.create_topic("u")
        await admin.create_partitions({"t": NewPartitions(4), "u": 3})
        described = {d["topic"]: len(d["partitions"]) for d in await admin.describe_topics()}
        assert described == {"t": 4, "u": 3}
        with pytest.raises(InvalidPartitionsError, match="t: "):
            await admin.create_partitions({"t": NewPartitions(2)})
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.create_partitions({"missing": 2})


async def test_describe_cluster() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        described = await admin.describe_cluster()
        addresses = sorted(f"{b['host']}:{b['port']}" for b in described["brokers"])
        assert addresses == sorted(cluster.bootstrap_servers.split(","))
        assert [b["node_id"] for b in described["brokers"]] == [0, 1]
        assert described["controller_id"] in (0, 1)
        assert described["cluster_id"]


async def test_configs() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", config={"retention.ms": "1000"})
        (answer,) = await admin.describe_configs(
            [ConfigResource("topic", "t", ["retention.ms"])], include_synonyms=True
        )
        (resource,) = answer.resources
        assert (resource.error_code, resource.resource_name) == (0, "t")
        values = {entry.config_name: entry.config_value for entry in resource.config_entries}
        assert values == {"retention.ms": "1000"}

        change = ConfigResource(ConfigResourceType.TOPIC, "t", {"cleanup.policy": "compact"})
        (changed,) = await admin.alter_configs([change])
        assert [r.error_code for r in changed.resources] == [0]
        wanted = ConfigResource("TOPIC", "t", ["cleanup.policy"])
        (answer,) = await admin.describe_configs([wanted])
        assert answer.resources[0].config_entries[0].config_value == "compact"


async def test_each_broker_is_asked_about_itself() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        answers = await admin.describe_configs(
            [ConfigResource("broker", "0"), ConfigResource("broker", "1")]
        )
        assert [answer.resources[0].resource_name for answer in answers] == ["0", "1"]


async def test_delete_records() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        for partition in (0, 1):
            cluster.log("t", partition).extend([(None, b"x", ())] * 10)
        first, second = TopicPartition("t", 0), TopicPartition("t", 1)
        wanted = {first: RecordsToDelete(4), second: RecordsToDelete(-1)}
        assert await admin.delete_records(wanted) == {first: 4, second: 10}
        with pytest.raises(OffsetOutOfRangeError, match="t-0"):
            await admin.delete_records({first: RecordsToDelete(99)})


# -- groups


async def make_group(cluster: FakeCluster, group: str, *topics: str) -> AIOKafkaClient:
    """A member of a group, at the level of requests; its leader assigns nothing."""
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers, client_id="member")
    await client.bootstrap()
    deadline = asyncio.get_running_loop().time() + 10
    node = await client.coordinator(CoordinationType.GROUP, group, deadline)
    wish = ConsumerProtocolMemberMetadata(0, topics, b"").encode()
    member_id = ""
    while True:
        joined = await client.send(
            node,
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=wish)],
            ),
        )
        if joined.error_code != MemberIdRequired.errno:
            break
        member_id = joined.member_id
    assert joined.error_code == 0
    share = ConsumerProtocolMemberAssignment(0, [(topics[0], [0])], b"").encode()
    synced = await client.send(
        node,
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=share)],
        ),
    )
    assert synced.error_code == 0
    return client


async def test_groups() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        member = await make_group(cluster, "g", "t")
        assert await admin.list_consumer_groups() == [("g", "consumer")]
        coordinator = await admin.find_coordinator("g")
        assert coordinator in (0, 1)
        assert await admin.list_consumer_groups([1 - coordinator]) == []
        (answer,) = await admin.describe_consumer_groups(["g"])
        (group,) = answer.groups
        assert (group.error_code, group.group, group.state) == (0, "g", "Stable")
        (found,) = group.members
        assert found.client_id == "member"
        assert ConsumerProtocolMemberMetadata.decode(found.member_metadata).topics == ["t"]
        share = ConsumerProtocolMemberAssignment.decode(found.member_assignment)
        assert share.partitions() == [TopicPartition("t", 0)]
        assert await admin.list_consumer_group_offsets("g") == {}
        tp = TopicPartition("t", 0)
        assert (await admin.list_consumer_group_offsets("g", partitions=[tp]))[tp].offset == -1
        await member.close()


async def test_a_group_of_the_next_protocol() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            client_id="member",
            group_id="g",
            group_protocol="consumer",
        )
        async with consumer:
            partitions = {TopicPartition("t", 0), TopicPartition("t", 1)}
            await cluster.wait_for(lambda: consumer.assignment() == partitions)
            (answer,) = await admin.describe_consumer_groups(["g"])
            (group,) = answer.groups
            assert (group.error_code, group.group, group.state) == (0, "g", "Stable")
            assert (group.protocol_type, group.protocol) == ("consumer", "uniform")
            (found,) = group.members
            assert found.client_id == "member"
            assert ConsumerProtocolMemberMetadata.decode(found.member_metadata).topics == ["t"]
            share = ConsumerProtocolMemberAssignment.decode(found.member_assignment)
            assert set(share.partitions()) == partitions


async def test_the_new_coordinator_is_asked() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        member = await make_group(cluster, "g", "t")
        failure = Fail(NotCoordinatorForGroupError)
        with cluster.intercept(DescribeGroupsRequest, failure, times=2) as seen:
            (answer,) = await admin.describe_consumer_groups(["g"])
        assert seen.hits == 2
        assert answer.groups[0].state == "Stable"
        assert cluster.count(FindCoordinatorRequest) >= 3
        await member.close()


async def test_a_coordinator_that_is_gone() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        cluster.move_coordinator("group", "g", 1)
        assert await admin.list_consumer_group_offsets("g") == {}
        await cluster.stop_broker(1)
        cluster.move_coordinator("group", "g", 0)
        assert await admin.list_consumer_group_offsets("g") == {}


async def test_static_members_are_removed() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g"}
        member = AIOKafkaConsumer("t", group_instance_id="one", heartbeat_interval_ms=20, **options)
        await member.start()
        await member.stop()
        # It did not leave, as it may come back.
        assert cluster.groups.state_of("g") == "Stable"
        await admin.remove_members_from_consumer_group("g", ["one"], "it will not come back")
        assert cluster.groups.state_of("g") == "Empty"
        with pytest.raises(UnknownMemberIdError, match="one"):
            await admin.remove_members_from_consumer_group("g", ["one"])
        with pytest.raises(TypeError, match="group_instance_ids"):
            await admin.remove_members_from_consumer_group("g", "one")


async def test_old_brokers_cannot_remove_static_members() -> None:
    async with FakeCluster(as_version="2.1") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match=r"Kafka 2\.4"):
            await admin.remove_members_from_consumer_group("g", ["one"])


async def test_metadata_and_leader_epochs_of_offsets() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        tp = TopicPartition("t", 0)
        async with AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, group_id="g", enable_auto_commit=False
        ) as consumer:
            consumer.assign([tp])
            await consumer.commit({tp: OffsetAndMetadata(3, "note", 2)})
        found = (await admin.list_consumer_group_offsets("g"))[tp]
        assert (found, found.leader_epoch) == ((3, "note"), 2)


async def test_a_group_that_may_not_be_seen() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        cluster.intercept(OffsetFetchRequest, Fail(GroupAuthorizationFailedError))
        with pytest.raises(GroupAuthorizationFailedError):
            await admin.list_consumer_group_offsets("g")
        cluster.intercept(FindCoordinatorRequest, Fail(GroupAuthorizationFailedError))
        with pytest.raises(GroupAuthorizationFailedError):
            await admin.find_coordinator("other")


@pytest.mark.parametrize("version", ["0.9", "0.10.2", "1.1", "2.8", "4.0"])
async def test_groups_of_brokers_of_any_age(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        assert await admin.find_coordinator("g") == 0
        assert await admin.list_consumer_groups() == []
        tp = TopicPartition("t", 0)
        await cluster.create_topic("t")
        assert (await admin.list_consumer_group_offsets("g", partitions=[tp]))[tp].offset == -1


# -- faults


async def test_another_controller_is_asked() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        with cluster.intercept(CreateTopicsRequest, Fail(NotControllerError), times=2) as seen:
            result = await admin.create_topics([NewTopic("t", 1, 1)])
        assert seen.hits == 2
        assert result.topic_errors == [("t", 0, None)]


async def test_deleting_follows_the_leader() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        cluster.log("t").extend([(None, b"x", ())] * 3)
        tp = TopicPartition("t", 0)
        failure = Fail(NotLeaderForPartitionError)
        with cluster.intercept(DeleteRecordsRequest, failure, times=2) as seen:
            assert await admin.delete_records({tp: RecordsToDelete(2)}) == {tp: 2}
        assert seen.hits == 2


async def test_a_cut_connection_is_made_again() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        with cluster.intercept(DeleteTopicsRequest, Cut(), times=2) as seen:
            assert (await admin.delete_topics(["t"])).topic_error_codes == [("t", 0)]
        assert seen.hits == 2


async def test_another_broker_is_asked_when_one_is_away() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await cluster.stop_broker(0)
        assert await admin.list_topics() == ["t"]
        described = await admin.describe_cluster()
        assert 1 in [broker["node_id"] for broker in described["brokers"]]


@pytest.mark.parametrize("answer", [Fail(NotControllerError), Cut(), Silence(), Delay(30)])
@simulated
async def test_a_call_ends_at_its_timeout(answer: Any) -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        cluster.intercept(CreateTopicsRequest, answer)
        with pytest.raises(KafkaTimeoutError, match="timed out"):
            await admin.create_topics([NewTopic("t", 1, 1)], timeout_ms=300)


@simulated
async def test_the_last_failure_is_the_cause_of_a_timeout() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        cluster.intercept(CreateTopicsRequest, Fail(NotControllerError))
        with pytest.raises(KafkaTimeoutError) as caught:
            await admin.create_topics([NewTopic("t", 1, 1)], timeout_ms=200)
        assert isinstance(caught.value.__cause__, NotControllerError)


async def test_the_broker_learns_how_long_it_may_take() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await admin.create_topics([NewTopic("t", 1, 1)], timeout_ms=3_000)
        (seen,) = cluster.requests(CreateTopicsRequest)
        assert 0 < seen.request.timeout_ms <= 3_000


async def test_a_cancelled_call_leaves_the_client_usable() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        with cluster.intercept(MetadataRequest, Delay(30)):
            call = asyncio.create_task(admin.list_topics())
            await cluster.wait_for(lambda: cluster.count(MetadataRequest) >= 2)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        cluster.drop_connections()
        assert await admin.list_topics() == []


async def test_an_old_broker_is_spoken_to_in_its_versions() -> None:
    async with FakeCluster(as_version="1.1") as cluster, make_admin(cluster) as admin:
        assert (await admin.create_topics([NewTopic("t", 2, 1)])).topic_errors[0][:2] == ("t", 0)
        assert await admin.list_topics() == ["t"]
        assert (await admin.delete_topics(["t"])).topic_error_codes == [("t", 0)]


async def test_what_a_broker_lacks_is_said_at_once() -> None:
    async with FakeCluster(as_version="0.9") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match="CreateTopics"):
            await admin.create_topics([NewTopic("t", 1, 1)])


# -- life cycle and arguments


async def test_no_broker() -> None:
    async with FakeCluster() as cluster:
        admin = make_admin(cluster, request_timeout_ms=500)
        await cluster.stop_broker(0)
        with pytest.raises(KafkaConnectionError):
            await admin.start()
        await admin.close()


async def test_close_twice_and_without_start() -> None:
    async with FakeCluster() as cluster:
        admin = make_admin(cluster)
        await admin.close()
        await admin.stop()
        with pytest.raises(IllegalStateError, match="closed"):
            await admin.start()


async def test_calls_need_a_started_client() -> None:
    async with FakeCluster() as cluster:
        admin = make_admin(cluster)
        calls: list[Callable[[], Awaitable[Any]]] = [
            admin.list_topics,
            admin.describe_cluster,
            lambda: admin.create_topics([]),
        ]
        for call in calls:
            with pytest.raises(IllegalStateError, match="not started"):
                await call()
        await admin.start()
        await admin.start()
        assert await admin.list_topics() == []
        await admin.close()
        for call in calls:
            with pytest.raises(IllegalStateError, match="closed"):
                await call()
        assert cluster.connections == 0 or await wait_until_disconnected(cluster)


async def wait_until_disconnected(cluster: FakeCluster) -> bool:
    await cluster.wait_for(lambda: cluster.connections == 0)
    return True


def test_a_running_loop_is_needed() -> None:
    with pytest.raises(RuntimeError):
        AIOKafkaAdminClient()


async def test_ignored_arguments() -> None:
    await AIOKafkaAdminClient(loop=None, api_version="auto").close()
    with pytest.warns(DeprecationWarning, match="api_version has no effect"):
        await AIOKafkaAdminClient(api_version="2.4.1").close()


@pytest.mark.parametrize("given", [(-1, -1, None), (1, 1, {0: [0]}), (-1, 1, None), (1, -1, None)])
def test_new_topic_is_either_numbers_or_an_assignment(given: tuple[Any, Any, Any]) -> None:
    with pytest.raises(IllegalArgumentError, match="replica_assignments"):
        NewTopic("t", *given)


def test_new_topic_with_the_broker_defaults() -> None:
    topic = NewTopic("t", None, None)
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    assert topic.replica_assignments == {}
    assert topic.topic_configs == {}


def test_config_resource_types() -> None:
    assert ConfigResource("topic", "t").resource_type is ConfigResourceType.TOPIC
    assert ConfigResource(ConfigResourceType.BROKER, "0").resource_type == 4
    with pytest.raises(ValueError, match="TOPIC, BROKER"):
        ConfigResource("queue", "t")


async def test_wrong_arguments_of_configs() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        with pytest.raises(ValueError, match="id of a broker"):
            await admin.describe_configs([ConfigResource("broker", "first")])
        with pytest.raises(
            TypeError, match="config_resources: configs of t: must be a dict, not list"
        ):
            await admin.alter_configs([ConfigResource("topic", "t", ["retention.ms"])])
