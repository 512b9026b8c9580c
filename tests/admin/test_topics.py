"""Topics of the admin client: what each call asks, returns and raises."""

from __future__ import annotations

import asyncio
import json
import re
import uuid

import pytest

from aiokafka.admin import (
    AclOperation,
    ConfigSource,
    NewPartitions,
    NewTopic,
    TopicDescription,
    TopicListing,
)
from aiokafka.errors import (
    AdminItemsError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    KafkaProtocolError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotControllerError,
    PolicyViolationError,
    ThrottlingQuotaExceeded,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicId,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    Cursor,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
)
from aiokafka.testing import Edit, Fail, FakeCluster
from tests.admin.support import make_admin, simulated

EVERY_AGE = ["0.10.2", "1.1", "2.8", "3.9", "4.3"]


def id_of(cluster: FakeCluster, name: str) -> uuid.UUID:
    return uuid.UUID(bytes=cluster.state.topics[name].topic_id)


@pytest.mark.parametrize("version", ["0.9", *EVERY_AGE])
async def test_topics_are_listed_by_name(version: str) -> None:
    async with FakeCluster(3, as_version=version) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("orders-eu", partitions=2, replication_factor=3)
        await cluster.create_topic("cars")
        cluster.state.create_topic("__hidden", 1, 1, is_internal=version != "0.9")
        listed = await admin.topics.list(include_internal=True)
        assert [topic.name for topic in listed] == ["__hidden", "cars", "orders-eu"]
        known = id_of(cluster, "orders-eu") if version in ("2.8", "3.9", "4.3") else None
        assert listed[2] == TopicListing("orders-eu", known, False, 2, 3)
        assert [topic.name for topic in await admin.topics.list("orders-*")] == ["orders-eu"]
        named = await admin.topics.list(re.compile("car|ca.s"))
        assert [topic.name for topic in named] == ["cars"]
        if version != "0.9":  # which does not say what is internal
            assert "__hidden" not in [topic.name for topic in await admin.topics.list()]


@pytest.mark.parametrize("version", ["0.9", *EVERY_AGE])
async def test_topics_are_described(version: str) -> None:
    async with FakeCluster(3, as_version=version) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", assignment={0: [2, 0], 1: [0, 1], 2: [1, 2]})
        await cluster.create_topic("u")
        await cluster.stop_broker(2)
        found = await admin.topics.describe(["t", "u"])
        assert list(found) == ["t", "u"]
        described = found["t"]
        assert [part.partition for part in described.partitions] == [0, 1, 2]
        assert [part.leader for part in described.partitions] == [0, 0, 1]
        assert [part.replicas for part in described.partitions] == [(2, 0), (0, 1), (1, 2)]
        assert described.authorized_operations is None
        first = described.partitions[0]
        assert first.isr == (0,)
        assert first.offline_replicas == (() if version in ("0.9", "0.10.2") else (2,))
        told = version in ("3.9", "4.3")
        assert first.eligible_leader_replicas == (() if told else None)
        assert json.loads(json.dumps(described.as_dict()))["partitions"][0]["leader"] == 0
        assert await admin.topics.describe() == found


async def test_a_partition_without_a_leader() -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", assignment={0: [1]})
        await cluster.stop_broker(1)
        described = (await admin.topics.describe(["t"]))["t"]
        assert described.partitions[0].leader is None


async def test_topics_are_described_by_their_ids() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        topic_id, missing = id_of(cluster, "t"), uuid.UUID(int=7)
        found = await admin.topics.describe([topic_id, "t"])
        assert found[topic_id] == found["t"]
        assert found["t"].topic_id == topic_id
        with pytest.raises(UnknownTopicId, match=str(missing)):
            await admin.topics.describe([missing])
        with pytest.raises(AdminItemsError) as caught:
            await admin.topics.describe([missing, topic_id, "none"])
        assert list(caught.value.results) == [topic_id]
        assert isinstance(caught.value.errors["none"], UnknownTopicOrPartitionError)


async def test_a_topic_that_a_response_leaves_out() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        cluster.intercept(DescribeTopicPartitionsRequest, Edit(lambda found: found.topics.clear()))
        with pytest.raises(KafkaProtocolError, match="the response does not name it"):
            await admin.topics.describe([id_of(cluster, "t")])
        with pytest.raises(KafkaProtocolError, match="the response does not name it"):
            await admin.topics.describe(["t"])


@pytest.mark.parametrize("version", ["2.8"])
async def test_old_brokers_know_topics_by_name_only(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match=r"needs? Kafka 3\.1"):
            await admin.topics.describe([uuid.UUID(int=7)])
    async with FakeCluster(as_version="1.1") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match=r"needs? Kafka 2\.8"):
            await admin.topics.delete([uuid.UUID(int=7)])


async def test_many_partitions_come_in_pages() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("a", partitions=1_500)
        await cluster.create_topic("b", partitions=3_000)
        found = await admin.topics.describe(["b", "a"], include_authorized_operations=True)
        assert [len(found[name].partitions) for name in ("a", "b")] == [1_500, 3_000]
        assert [p.partition for p in found["b"].partitions] == list(range(3_000))
        assert AclOperation.READ in (found["a"].authorized_operations or ())
        assert len(cluster.requests(DescribeTopicPartitionsRequest)) == 3
        assert (await admin.topics.describe()).keys() == {"a", "b"}


async def test_a_topic_that_is_made_again_between_two_pages_is_not_left_out() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("a", partitions=2_001)

        def make_again(response: object) -> None:
            cluster.state.delete_topic(cluster.state.topics["a"])
            cluster.state.create_topic("a", 2_001, 1)

        cluster.intercept(DescribeTopicPartitionsRequest, Edit(make_again), times=1)
        found = await admin.topics.describe()
        assert len(found["a"].partitions) == 2_001
        assert found["a"].topic_id == id_of(cluster, "a")


@pytest.mark.parametrize("topics", [None, ["a"]])
async def test_partitions_are_those_of_one_topic_when_it_is_made_again_between_two_pages(
    topics: list[str] | None,
) -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("a", assignment={index: [0] for index in range(2_001)})

        def make_again(response: object) -> None:
            cluster.state.delete_topic(cluster.state.topics["a"])
            cluster.state.create_topic("a", assignment={index: [1] for index in range(2_002)})

        cluster.intercept(DescribeTopicPartitionsRequest, Edit(make_again), times=1)
        found = (await admin.topics.describe(topics))["a"]
        assert found.topic_id == id_of(cluster, "a")
        assert [part.replicas for part in found.partitions] == [(1,)] * 2_002


async def test_pages_that_do_not_end_are_an_error() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("a", partitions=2_001)

        def stay(response: object) -> None:
            response.next_cursor = Cursor(  # type: ignore[attr-defined]
                topic_name="a", partition_index=5
            )

        with (
            cluster.intercept(DescribeTopicPartitionsRequest, Edit(stay)),
            pytest.raises(KafkaProtocolError, match="the cursor did not advance"),
        ):
            await admin.topics.describe(["a"])


@pytest.mark.parametrize("version", ["2.8", "4.3"])
async def test_authorized_operations(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        found = await admin.topics.describe(["t"], include_authorized_operations=True)
        operations = found["t"].authorized_operations
        assert operations is not None
        assert {AclOperation.READ, AclOperation.ALTER_CONFIGS} <= operations


async def test_describing_creates_nothing() -> None:
    for version in ("0.9", "2.8", "4.3"):
        async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
            with pytest.raises(UnknownTopicOrPartitionError, match="none"):
                await admin.topics.describe(["none"])
            assert not cluster.state.topics


async def test_a_topic_that_may_not_be_seen() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("secret")
        await cluster.create_topic("t")
        cluster.acls.withdraw("topic", "secret")
        with pytest.raises(TopicAuthorizationFailedError):
            await admin.topics.describe(["secret"])
        assert list(await admin.topics.describe()) == ["t"]


async def test_topics_are_created_and_told_about() -> None:
    async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
        new = [
            NewTopic("t", 3, 2, topic_configs={"retention.ms": "1000"}),
            NewTopic("u", None, None),
        ]
        checked = await admin.topics.create(new, validate_only=True)
        assert not cluster.state.topics
        assert checked["t"].num_partitions == 3
        made = await admin.topics.create(new)
        assert list(made) == ["t", "u"]
        assert made["t"].topic_id == id_of(cluster, "t")
        assert (made["t"].num_partitions, made["t"].replication_factor) == (3, 2)
        configs = made["t"].configs
        assert configs is not None
        assert configs["retention.ms"].value == "1000"
        assert configs["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert configs["segment.ms"].source is ConfigSource.DEFAULT_CONFIG
        assert made["u"].num_partitions == 1


async def test_old_brokers_create_topics_and_tell_nothing() -> None:
    async with FakeCluster(as_version="1.1") as cluster, make_admin(cluster) as admin:
        made = (await admin.topics.create([NewTopic("t", 1, 1)]))["t"]
        assert (made.topic_id, made.num_partitions, made.configs) == (None, None, None)


async def test_one_of_several_topics_cannot_be_created() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        with pytest.raises(TopicAlreadyExistsError, match="t: "):
            await admin.topics.create([NewTopic("t", 1, 1)])
        with pytest.raises(AdminItemsError) as caught:
            await admin.topics.create(
                [NewTopic("t", 1, 1), NewTopic("u", 1, 1), NewTopic("v", 1, 3)]
            )
        assert list(caught.value.results) == ["u"]
        assert isinstance(caught.value.errors["v"], InvalidReplicationFactorError)


@pytest.mark.parametrize(
    ("request_type", "field"),
    [
        (CreateTopicsRequest, "topics"),
        (CreatePartitionsRequest, "results"),
        (DeleteTopicsRequest, "responses"),
    ],
)
async def test_only_topics_beyond_the_quota_are_sent_again(request_type: type, field: str) -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await cluster.create_topic("u")

        def late(response: object) -> None:
            for each in getattr(response, field):
                if each.name.endswith(("u", "v")):
                    each.error_code = ThrottlingQuotaExceeded.errno

        cluster.intercept(request_type, Edit(late), times=1)
        if request_type is CreateTopicsRequest:
            with pytest.raises(AdminItemsError) as caught:  # the fake had made it all the same
                await admin.topics.create([NewTopic("new", 1, 1), NewTopic("new-v", 1, 1)])
            assert list(caught.value.results) == ["new"]
        elif request_type is CreatePartitionsRequest:
            with pytest.raises(AdminItemsError):
                await admin.topics.create_partitions({"t": 2, "u": 2})
        else:
            with pytest.raises(AdminItemsError):
                await admin.topics.delete(["t", "u"])
        first, second = cluster.requests(request_type)
        sizes = [len(seen.request.topics) for seen in (first, second)]
        assert sizes == [2, 1]


async def test_another_controller_is_asked() -> None:
    async with FakeCluster(3, as_version="2.8") as cluster, make_admin(cluster) as admin:
        cluster.intercept(CreateTopicsRequest, Fail(NotControllerError), times=2)
        await admin.topics.create([NewTopic("t", 1, 1)])
        assert len(cluster.requests(CreateTopicsRequest)) == 3


async def test_topics_are_deleted_by_name_and_id() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        for name in ("a", "b", "c"):
            await cluster.create_topic(name)
        missing = uuid.UUID(int=7)
        with pytest.raises(AdminItemsError) as caught:
            await admin.topics.delete(["a", id_of(cluster, "b"), missing, "none"])
        assert {type(error) for error in caught.value.errors.values()} == {
            UnknownTopicId,
            UnknownTopicOrPartitionError,
        }
        assert list(cluster.state.topics) == ["c"]
        await admin.topics.delete([id_of(cluster, "c")])
        assert not cluster.state.topics


@pytest.mark.parametrize("version", EVERY_AGE)
async def test_topics_are_deleted_on_brokers_of_any_age(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await admin.topics.delete(["t"])
        assert not cluster.state.topics


async def test_partitions_are_added() -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await admin.topics.create_partitions({"t": 3}, validate_only=True)
        assert len(cluster.state.topics["t"].partitions) == 1
        await admin.topics.create_partitions({"t": NewPartitions(3, [[1], [0]])})
        assert [p.leader for p in cluster.state.topics["t"].partitions[1:]] == [1, 0]
        with pytest.raises(InvalidPartitionsError):
            await admin.topics.create_partitions({"t": 2})
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.topics.create_partitions({"none": 2})


async def test_a_topic_is_ready_when_every_broker_knows_it() -> None:
    async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("old")
        cluster.faults.mislead(2)
        await cluster.create_topic("t", partitions=3, replication_factor=3)
        waiting = asyncio.create_task(admin.topics.wait_until_ready(["old", "t"]))
        asked = cluster.requests
        await cluster.wait_for(lambda: [s for s in asked(MetadataRequest) if s.broker_id == 2][3:])
        assert not waiting.done()
        cluster.faults.inform(2)
        await waiting


@simulated
async def test_what_keeps_a_topic_from_being_ready() -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        with pytest.raises(KafkaTimeoutError, match=r"none in the metadata of node [01]"):
            await admin.topics.wait_until_ready(["none"], timeout_ms=300)
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        await cluster.stop_broker(1)
        with pytest.raises(KafkaTimeoutError, match="partition 1") as caught:
            await admin.topics.wait_until_ready(["t"], timeout_ms=1_000)
        assert isinstance(caught.value.__cause__, LeaderNotAvailableError)


async def test_errors_that_stay_end_the_call() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        cluster.intercept(CreateTopicsRequest, Fail(PolicyViolationError))
        with pytest.raises(PolicyViolationError):
            await admin.topics.create([NewTopic("t", 1, 1)])
        assert len(cluster.requests(CreateTopicsRequest)) == 1


async def test_nothing_is_asked_about_nothing() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        assert await admin.topics.describe([]) == {}
        assert await admin.topics.create([]) == {}
        await admin.topics.delete([])
        await admin.topics.create_partitions({})
        await admin.topics.wait_until_ready([])
        assert not cluster.requests(CreateTopicsRequest)
        assert not cluster.requests(DeleteTopicsRequest)


def test_a_description_is_a_value() -> None:
    one = TopicDescription("t", None, False, ())
    assert one == TopicDescription("t", None, False, ())
    assert "name='t'" in repr(one)


async def test_wrong_arguments() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        for call in (admin.topics.describe, admin.topics.delete, admin.topics.wait_until_ready):
            with pytest.raises(TypeError, match="topics: must be several"):
                await call("t")
            with pytest.raises(TypeError, match=r"topics: .*must be .*name"):
                await call([7])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="given once"):
            await admin.topics.create([NewTopic("t", 1, 1), NewTopic("t", 2, 1)])
        with pytest.raises(TypeError, match="topics: t='3': must be an integer or a NewPartitions"):
            await admin.topics.create_partitions({"t": "3"})  # type: ignore[dict-item]
