"""Brokers that are silent, busy, old or strict with quotas."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from aiokafka.admin import (
    AIOKafkaAdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
)
from aiokafka.admin.results import DescribedMember
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupLoadInProgressError,
    IllegalArgumentError,
    InvalidReplicationAssignmentError,
    KafkaTimeoutError,
    ThrottlingQuotaExceeded,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.protocol.messages.groups import ListGroupsRequest
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest
from aiokafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import Cut, Edit, Fail, FakeCluster, Silence
from tests.admin.support import FIRST, filled, make_admin, simulated

# -- silent brokers --------------------------------------------------------------------------------


@simulated
async def test_another_broker_is_asked_when_one_is_silent() -> None:
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t")
        async with make_admin(cluster, request_timeout_ms=900) as admin:
            await admin.list_topics()
            cluster.intercept(None, Silence(), broker=1)
            for _ in range(12):
                assert await admin.list_topics() == ["t"]
                assert (await admin.describe_topics(["t"]))[0]["error_code"] == 0


@simulated
async def test_a_silent_broker_is_asked_once_in_a_call() -> None:
    async with FakeCluster(brokers=2) as cluster:
        async with make_admin(cluster, request_timeout_ms=600) as admin:
            await admin.list_topics()
            silent = cluster.intercept(FindCoordinatorRequest, Silence(), broker=1)
            for _ in range(15):
                before = silent.hits
                await admin.find_coordinator("g")
                assert silent.hits <= before + 1
            assert silent.hits


@simulated
async def test_the_one_broker_that_is_silent_is_named() -> None:
    async with FakeCluster(brokers=3) as cluster:
        async with make_admin(cluster, request_timeout_ms=900) as admin:
            cluster.intercept(ListGroupsRequest, Silence(), broker=1)
            for call in (admin.groups.list, admin.list_consumer_groups):
                with pytest.raises(KafkaTimeoutError, match="node 1"):
                    await call()


@simulated
async def test_a_dead_connection_is_left_by_calls_that_are_late_together() -> None:
    """A firewall forgot it. Each of the calls saw others in flight, so it was kept for all of
    `request_timeout_ms`, and whatever was called meanwhile failed as well."""
    dead: set[int] = set()

    def forget(request: Any, context: Any) -> Silence | None:
        if not dead:
            dead.add(context.connection_id)
        return Silence() if context.connection_id in dead else None

    async with FakeCluster() as cluster:
        async with make_admin(cluster, request_timeout_ms=40_000) as admin:
            await admin.list_topics()
            cluster.intercept(None, forget)
            late = [admin.brokers.describe_cluster(timeout_ms=1000) for _ in range(3)]
            for error in await asyncio.gather(*late, return_exceptions=True):
                assert isinstance(error, KafkaTimeoutError)
            assert (await admin.brokers.describe_cluster(timeout_ms=1000)).brokers


@pytest.mark.parametrize("version", ["2.1", "4.3"])
@simulated
async def test_a_silent_controller_is_given_up(version: str) -> None:
    async with FakeCluster(brokers=3, as_version=version) as cluster:
        async with make_admin(cluster, request_timeout_ms=2000) as admin:
            await admin.list_topics()
            silent = cluster.intercept(None, Silence(), broker=0)

            async def moves() -> None:
                # The others notice that it is gone, and one of them takes over.
                await silent.wait()
                cluster.state.node_down(0)

            moving = asyncio.get_running_loop().create_task(moves())
            result = await admin.create_topics([NewTopic("t", 1, 1)], timeout_ms=2000)
            assert result.topic_errors[0].error_code in (0, 36)
            moving.cancel()
            await asyncio.wait([moving])
    assert "t" in cluster.state.topics


@pytest.mark.parametrize("fault", [Cut(), Silence()])
@simulated
async def test_a_controller_that_failed_once_is_asked_again(fault: Cut | Silence) -> None:
    """With ZooKeeper no other broker can make a change, and the controller need not have moved."""
    async with FakeCluster(brokers=3, as_version="2.1") as cluster:
        async with make_admin(cluster) as admin:
            await admin.list_topics()
            failed = cluster.intercept(CreateTopicsRequest, fault, broker=0, times=1)
            await admin.topics.create([NewTopic("t", 1, 1)])
    assert failed.hits == 1


# -- quotas ----------------------------------------------------------------------------------------


async def _create(admin: AIOKafkaAdminClient) -> list[tuple[str, int]]:
    topics = [NewTopic(name, 1, 1) for name in ("a", "b")]
    return list((await admin.create_topics(topics, timeout_ms=2000)).topic_error_codes)


async def _delete(admin: AIOKafkaAdminClient) -> list[tuple[str, int]]:
    return list((await admin.delete_topics(["a", "b"], timeout_ms=2000)).topic_error_codes)


async def _grow(admin: AIOKafkaAdminClient) -> list[tuple[str, int]]:
    wanted = {"a": NewPartitions(2), "b": NewPartitions(2)}
    return list((await admin.create_partitions(wanted, timeout_ms=2000)).topic_error_codes)


QUOTAS = [
    (CreateTopicsRequest, _create, False),
    (DeleteTopicsRequest, _delete, True),
    (CreatePartitionsRequest, _grow, True),
]


@pytest.mark.parametrize(("request_class", "call", "has_topics"), QUOTAS)
@simulated
async def test_changes_beyond_the_quota_wait(
    request_class: Any,
    call: Callable[[AIOKafkaAdminClient], Awaitable[list[tuple[str, int]]]],
    has_topics: bool,
) -> None:
    """What was refused for the quota (KIP-599) is sent again, and nothing else."""
    async with FakeCluster() as cluster:
        if has_topics:
            for name in ("a", "b"):
                await cluster.create_topic(name)
        asked: list[list[str]] = []

        def names_of(request: Any) -> list[str]:
            topics = request.topics
            return [topic.name for topic in topics] or list(request.topic_names)

        def refuse_b(request: Any, context: Any) -> Any:
            asked.append(names_of(request))
            if len(asked) > 1:
                return None
            # As if the quota was used up by the first one.
            return Fail(ThrottlingQuotaExceeded)

        cluster.intercept(request_class, refuse_b)
        async with make_admin(cluster) as admin:
            assert sorted(await call(admin)) == [("a", 0), ("b", 0)]
    assert [sorted(names) for names in asked] == [["a", "b"]] * 2


@pytest.mark.parametrize(
    ("request_class", "call", "code"),
    [(CreateTopicsRequest, _create, 36), (DeleteTopicsRequest, _delete, 3)],
)
@simulated
async def test_only_what_was_refused_for_the_quota_is_asked_for_again(
    request_class: Any,
    call: Callable[[AIOKafkaAdminClient], Awaitable[list[tuple[str, int]]]],
    code: int,
) -> None:
    asked: list[list[str]] = []

    def refuse_b(response: Any) -> None:
        results = response.topics if request_class is CreateTopicsRequest else response.responses
        asked.append(sorted(each.name for each in results))
        for each in results:
            if each.name == "b" and len(asked) == 1:
                each.error_code = ThrottlingQuotaExceeded.errno

    async with FakeCluster() as cluster:
        if request_class is DeleteTopicsRequest:
            for name in ("a", "b"):
                await cluster.create_topic(name)
        cluster.intercept(request_class, Edit(refuse_b))
        async with make_admin(cluster) as admin:
            # The second request for "b" finds that the first one was carried out.
            assert sorted(await call(admin)) == [("a", 0), ("b", code)]
    assert asked == [["a", "b"], ["b"]]


@simulated
async def test_a_quota_that_stays_used_up_is_told_of() -> None:
    async with FakeCluster() as cluster:
        refusals = cluster.intercept(CreateTopicsRequest, Fail(ThrottlingQuotaExceeded))
        async with make_admin(cluster) as admin:
            result = await admin.create_topics([NewTopic("a", 1, 1)], timeout_ms=300)
    assert result.topic_errors[0].error_code == 89
    assert refusals.hits > 1


@pytest.mark.parametrize(
    ("throttle_ms", "at_least"), [(0, [0.08, 0.16, 0.32]), (500, [0.5, 0.5, 0.5])]
)
@simulated
async def test_the_pauses_of_a_quota_grow_and_last_as_long_as_the_broker_asks(
    throttle_ms: int, at_least: list[float]
) -> None:
    loop = asyncio.get_running_loop()
    asked: list[float] = []

    def refuse(response: Any) -> None:
        asked.append(loop.time())
        if len(asked) <= len(at_least):
            response.throttle_time_ms = throttle_ms
            response.topics[0].error_code = ThrottlingQuotaExceeded.errno

    async with FakeCluster() as cluster, make_admin(cluster, retry_backoff_ms=100) as admin:
        cluster.intercept(CreateTopicsRequest, Edit(refuse))
        await admin.create_topics([NewTopic("a", 1, 1)], timeout_ms=30_000)
    pauses = [after - before for before, after in pairwise(asked)]
    assert len(pauses) == len(at_least)
    assert all(pause >= least for pause, least in zip(pauses, at_least, strict=True))


@simulated
async def test_a_throttle_beyond_the_time_of_the_call_ends_it_in_time() -> None:
    def refuse(response: Any) -> None:
        response.throttle_time_ms = 60_000
        response.topics[0].error_code = ThrottlingQuotaExceeded.errno

    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        cluster.intercept(CreateTopicsRequest, Edit(refuse))
        began = asyncio.get_running_loop().time()
        result = await admin.create_topics([NewTopic("a", 1, 1)], timeout_ms=3000)
        assert asyncio.get_running_loop().time() - began < 4
    assert result.topic_errors[0].error_code == ThrottlingQuotaExceeded.errno


@simulated
async def test_what_was_done_is_told_though_the_rest_gets_no_response() -> None:
    def refuse_b(response: Any) -> None:
        response.topics[1].error_code = ThrottlingQuotaExceeded.errno

    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        cluster.intercept(CreateTopicsRequest, Edit(refuse_b), times=1)
        cluster.intercept(CreateTopicsRequest, Silence())
        assert await _create(admin) == [("a", 0), ("b", ThrottlingQuotaExceeded.errno)]


# -- busy and old brokers --------------------------------------------------------------------------


async def test_groups_are_listed_when_they_are_loaded() -> None:
    async with FakeCluster() as cluster:
        cluster.intercept(ListGroupsRequest, Fail(14), times=2)
        async with make_admin(cluster) as admin:
            assert await admin.list_consumer_groups() == []
            cluster.intercept(ListGroupsRequest, Fail(ClusterAuthorizationFailedError))
            with pytest.raises(ClusterAuthorizationFailedError):
                await admin.list_consumer_groups()


@pytest.mark.parametrize("version", ["0.9", "0.10.2", "0.11", "4.3"])
async def test_describing_creates_nothing(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic("t")
        async with make_admin(cluster) as admin:
            found = await admin.describe_topics(["typo", "t"])
    assert [(each["topic"], each["error_code"]) for each in found] == [("typo", 3), ("t", 0)]
    assert "typo" not in cluster.state.topics


async def test_records_are_deleted_though_another_topic_is_unknown() -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", partitions=2)
        for number in range(2):
            cluster.log("t", number).extend([(None, b"x", ())] * 3)
        wanted = {
            TopicPartition("gone", 0): RecordsToDelete(1),
            TopicPartition("t", 0): RecordsToDelete(2),
            TopicPartition("t", 1): RecordsToDelete(3),
            TopicPartition("t", 7): RecordsToDelete(3),
        }
        async with make_admin(cluster) as admin:
            with pytest.raises(UnknownTopicOrPartitionError, match=r"gone|t-7"):
                await admin.delete_records(wanted)
        assert [cluster.log("t", number).start_offset for number in range(2)] == [2, 3]
    assert "gone" not in cluster.state.topics


# -- new topics ------------------------------------------------------------------------------------


async def test_defaults_of_the_broker() -> None:
    async with FakeCluster(brokers=2, config={"num.partitions": 3}) as cluster:
        async with make_admin(cluster) as admin:
            await admin.create_topics([NewTopic("a", None, None), NewTopic("b", 2, None)])
    assert len(cluster.state.topics["a"].partitions) == 3
    assert len(cluster.state.topics["b"].partitions) == 2
    with pytest.raises(IllegalArgumentError, match="None takes the broker's default"):
        NewTopic("a", -1, -1)


@pytest.mark.parametrize("numbers", [(None, None), (2, None), (None, 1)])
async def test_old_brokers_have_no_defaults(numbers: tuple[int | None, int | None]) -> None:
    async with FakeCluster(as_version="2.1") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match=r"CreateTopics: a: .* Kafka 2\.4"):
            await admin.create_topics([NewTopic("a", *numbers)])
        with pytest.raises(UnsupportedVersionError, match=r"CreateTopics: a: .* Kafka 2\.4"):
            await admin.topics.create([NewTopic("a", *numbers)])
        await admin.topics.create([NewTopic("by-hand", -1, -1, {0: [0]})])
    assert list(cluster.state.topics) == ["by-hand"]


async def test_what_was_created_is_told() -> None:
    """KIP-525, from Kafka 2.4 on."""
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        topic = NewTopic("a", 2, 2, topic_configs={"retention.ms": "60000"})
        result = await admin.create_topics([topic])
    made = result.details["a"]
    assert (made.num_partitions, made.replication_factor) == (2, 2)
    assert made.configs is not None
    assert made.configs["retention.ms"] == "60000"
    throttle_time_ms, errors = result
    assert (throttle_time_ms, [tuple(each) for each in errors]) == (0, [("a", 0, None)])


async def test_old_brokers_do_not_tell_what_was_created() -> None:
    async with FakeCluster(as_version="2.1") as cluster, make_admin(cluster) as admin:
        result = await admin.create_topics([NewTopic("a", 2, 1)])
    assert result.details == {}


async def test_settings_that_may_not_be_seen_are_not_told() -> None:
    """The topic is made, and who made it may not read its configuration."""

    def hide(response: Any) -> None:
        for topic in response.topics:
            topic.topic_config_error_code = TopicAuthorizationFailedError.errno
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []

    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        cluster.intercept(CreateTopicsRequest, Edit(hide))
        result = await admin.create_topics([NewTopic("a", 2, 1)])
    assert list(result.topic_error_codes) == [("a", 0)]
    assert tuple(result.details["a"]) == (-1, -1, None)


async def test_new_partitions_are_placed_where_they_are_wanted() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", replication_factor=2)
        wanted = NewPartitions(3, [[2, 0], [1, 2]])
        assert repr(wanted) == "NewPartitions(3, [[2, 0], [1, 2]])"
        await admin.create_partitions({"t": wanted})
        (described,) = await admin.describe_topics(["t"])
        placed = {p["partition"]: (p["leader"], p["replicas"]) for p in described["partitions"]}
        assert placed[1] == (2, [2, 0])
        assert placed[2] == (1, [1, 2])
        with pytest.raises(InvalidReplicationAssignmentError):
            await admin.create_partitions({"t": NewPartitions(4, [[7]])})


# -- some of several -------------------------------------------------------------------------------


async def test_only_the_leader_that_failed_is_asked_again() -> None:
    """One connection is cut: what the other leader has done is not undone, nor done twice."""
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        wanted = {}
        for number in range(2):
            cluster.log("t", number).extend([(None, b"x", ())] * 5)
            wanted[TopicPartition("t", number)] = RecordsToDelete(2 + number)
        asked: list[list[int]] = []

        def note(request: Any, context: Any) -> Cut | None:
            asked.append([p.partition_index for t in request.topics for p in t.partitions])
            return Cut() if asked[-1] == [1] and asked.count([1]) == 1 else None

        cluster.intercept(DeleteRecordsRequest, note)
        found = await admin.delete_records(wanted)
        assert found == {tp: each.before_offset for tp, each in wanted.items()}
        assert sorted(asked) == [[0], [1], [1]]


@simulated
async def test_a_call_ends_while_its_broker_throttles() -> None:
    """A throttle is added to the timeout of a request, and not to that of a call of two requests:
    the leader is known after 0.6 s of 1 s, and throttles the client for 0.6 s more."""
    async with FakeCluster() as cluster, make_admin(cluster, request_timeout_ms=1000) as admin:
        await filled(cluster)
        cluster.throttle(600)
        await admin.list_topics()
        with pytest.raises(KafkaTimeoutError, match="throttles this client"):
            await admin.delete_records({FIRST: RecordsToDelete(5)})


@simulated
async def test_a_call_of_one_request_tells_of_a_throttle_as_well() -> None:
    """Its own timer and that of the request, which knows the reason, went off at one time."""
    async with FakeCluster() as cluster, make_admin(cluster, request_timeout_ms=1000) as admin:
        cluster.throttle(30_000)
        await admin.list_topics()
        with pytest.raises(KafkaTimeoutError, match="throttles this client"):
            await admin.list_topics()
        cluster.throttle(0)


@simulated
async def test_a_controller_that_throttles_is_waited_for() -> None:
    """With ZooKeeper no other broker can do what it does."""
    async with FakeCluster(3, as_version="2.8") as cluster:
        async with make_admin(cluster, request_timeout_ms=1000) as admin:
            cluster.throttle(800, broker_id=cluster.state.controller)
            for name in ("a", "b"):
                found = await admin.create_topics([NewTopic(name, 1, 1)])
                assert [error[:2] for error in found.topic_errors] == [(name, 0)]


async def test_a_leader_that_refuses_for_good_ends_the_call() -> None:
    """What may pass at another leader is no reason to wait for the end of the time."""
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        wanted = {TopicPartition("t", n): RecordsToDelete(-1) for n in range(2)}

        def refuse(request: Any, context: Any) -> Any:
            is_first = request.topics[0].partitions[0].partition_index == 0
            return Cut() if is_first else Fail(TopicAuthorizationFailedError)

        cluster.intercept(DeleteRecordsRequest, refuse)
        with pytest.raises(TopicAuthorizationFailedError, match="t-1"):
            await admin.delete_records(wanted)


# -- groups ----------------------------------------------------------------------------------------


async def test_a_coordinator_that_cuts_connections_is_looked_up_again() -> None:
    """It may have lost its groups to another broker."""
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        cluster.move_coordinator("group", "g", 1)
        assert await admin.list_consumer_group_offsets("g") == {}
        cluster.move_coordinator("group", "g", 0)
        cluster.intercept(OffsetFetchRequest, Cut(), broker=1)
        assert await admin.list_consumer_group_offsets("g") == {}


@pytest.mark.parametrize("version", ["0.9", "1.1"])
@simulated
async def test_offsets_of_a_group_that_is_being_loaded_are_waited_for(version: str) -> None:
    """Old brokers say so of each partition, and not of the group."""
    first = TopicPartition("t", 0)

    def load(response: Any) -> None:
        response.error_code = GroupLoadInProgressError.errno
        response.topics[0].partitions[0].error_code = GroupLoadInProgressError.errno

    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        loading = cluster.intercept(OffsetFetchRequest, Edit(load), times=2)
        assert (await admin.list_consumer_group_offsets("g", partitions=[first]))[
            first
        ].offset == -1
    assert loading.hits == 2


async def test_a_coordinator_may_be_named() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        cluster.move_coordinator("group", "g", 1)
        asked = cluster.intercept(FindCoordinatorRequest, None)
        (answer,) = await admin.describe_consumer_groups(["g"], group_coordinator_id=1)
        assert answer.groups[0].group == "g"
        assert await admin.list_consumer_group_offsets("g", group_coordinator_id=1) == {}
        assert asked.hits == 0


@pytest.mark.parametrize("version", ["2.8", "4.3"])
async def test_a_group_that_is_not_there(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        (answer,) = await admin.describe_consumer_groups(["nowhere"])
        (group,) = answer.groups
        assert (group.group, group.state, group.members) == ("nowhere", "Dead", [])


def test_members_can_be_copied() -> None:
    member = DescribedMember("id", "client", "host", b"m", b"a", group_instance_id="one")
    for other in (copy.deepcopy(member), pickle.loads(pickle.dumps(member))):
        assert other == member
        assert other.group_instance_id == "one"
        assert repr(other) == repr(member)


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.11", "4.3"])
async def test_where_a_setting_comes_from(version: str) -> None:
    """The oldest answers tell only whether it is the default."""
    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", config={"retention.ms": "1000"})
        (answer,) = await admin.describe_configs([ConfigResource("topic", "t")])
        found = {e.config_name: e.config_source for e in answer.resources[0].config_entries}
    assert found["cleanup.policy"] == 5
    assert found["retention.ms"] == (-1 if version == "0.11" else 1)


def test_what_is_asked_for_can_be_shown() -> None:
    assert repr(RecordsToDelete(3)) == "RecordsToDelete(3)"
    shown = repr(NewTopic("t", 2, 1, topic_configs={"a": "b"}))
    assert shown.startswith("NewTopic(") and "'t'" in shown and "{'a': 'b'}" in shown
