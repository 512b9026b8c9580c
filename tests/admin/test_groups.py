"""Groups of every kind through `admin.groups`: listed, described, their offsets read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiokafka.admin import AclOperation, GroupState, GroupType
from aiokafka.errors import (
    AdminItemsError,
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    GroupLoadInProgressError,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
    TopicAuthorizationFailedError,
    UnstableOffsetCommit,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest
from aiokafka.structs import OffsetAndMetadata
from aiokafka.testing import Cut, Edit, Fail, FakeCluster
from tests.admin.support import FIRST, SECOND, commit, joined, make_admin, member, simulated


async def test_groups_of_both_protocols_are_listed_with_state_and_type() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        await commit(cluster, "offsets-only", {FIRST: 1})
        for broker, group in enumerate(("offsets-only", "classic", "next")):
            cluster.move_coordinator("group", group, broker)
        async with (
            member(cluster, "classic", "t") as one,
            member(cluster, "next", "t", group_protocol="consumer") as two,
        ):
            await joined(cluster, one)
            await joined(cluster, two)
            found = await admin.groups.list()
            assert sorted(found) == ["classic", "next", "offsets-only"]
            assert found["classic"].as_dict() == {
                "group_id": "classic",
                "type": "CLASSIC",
                "state": "STABLE",
                "protocol_type": "consumer",
                "coordinator": 1,
            }
            assert (found["next"].type, found["next"].coordinator) == (GroupType.CONSUMER, 2)
            assert found["offsets-only"].state is GroupState.EMPTY
            assert list(await admin.groups.list(states=["empty"])) == ["offsets-only"]
            assert list(await admin.groups.list(types=[GroupType.CONSUMER])) == ["next"]
            assert sorted(await admin.groups.list(protocol_types=["consumer"])) == [
                "classic",
                "next",
            ]
            assert list(await admin.groups.list(prefix="cl")) == ["classic"]


@simulated
async def test_a_list_is_asked_for_again_while_a_broker_loads_its_groups() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await commit(cluster, "g", {FIRST: 1})
        cluster.intercept(ListGroupsRequest, Fail(GroupLoadInProgressError), times=1)
        cluster.intercept(ListGroupsRequest, Cut(), times=1)
        assert list(await admin.groups.list()) == ["g"]
        cluster.intercept(ListGroupsRequest, Fail(GroupLoadInProgressError), broker=1)
        with pytest.raises(AdminItemsError, match="groups of node 1") as caught:
            await admin.groups.list(timeout_ms=200)
        assert [type(error) for error in caught.value.errors.values()] == [KafkaTimeoutError]


async def test_old_brokers_do_not_know_states_and_types() -> None:
    async with FakeCluster(as_version="2.1") as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await commit(cluster, "g", {FIRST: 1})
        (found,) = (await admin.groups.list()).values()
        assert (found.state, found.type) == (GroupState.UNKNOWN, GroupType.UNKNOWN)
        assert list(await admin.groups.list(types=["classic"])) == ["g"]
        with pytest.raises(UnsupportedVersionError, match=r"ListGroups.*Kafka 2\.6"):
            await admin.groups.list(states=[GroupState.STABLE])
        with pytest.raises(UnsupportedVersionError, match=r"ListGroups.*Kafka 3\.8"):
            await admin.groups.list(types=[GroupType.SHARE])


async def test_wrong_arguments() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        with pytest.raises(ValueError, match=r"states: 'running': must be one of .*STABLE"):
            await admin.groups.list(states=["running"])
        with pytest.raises(TypeError, match="types: must be several"):
            await admin.groups.list(types="classic")
        with pytest.raises(TypeError, match="group_ids: must be several names, not one str"):
            await admin.groups.describe("g")
        with pytest.raises(TypeError, match="groups: must be TopicPartition"):
            await admin.groups.offsets({"g": ["t"]})  # type: ignore[list-item]
        assert not cluster.requests(ListGroupsRequest)


async def test_a_classic_group_is_described() -> None:
    async with FakeCluster(brokers=2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        async with member(cluster, "g", "t", group_instance_id="one") as consumer:
            await joined(cluster, consumer)
            found = (await admin.groups.describe(["g"], include_authorized_operations=True))["g"]
            assert (found.type, found.state) == (GroupType.CLASSIC, GroupState.STABLE)
            assert (found.protocol_type, found.assignor) == ("consumer", "roundrobin")
            assert (found.epoch, found.assignment_epoch) == (None, None)
            assert found.authorized_operations == {
                AclOperation.READ,
                AclOperation.DELETE,
                AclOperation.DESCRIBE,
                AclOperation.DESCRIBE_CONFIGS,
                AclOperation.ALTER_CONFIGS,
            }
            (one,) = found.members
            assert (one.instance_id, one.client_id) == ("one", "client-of-g")
            assert (one.topics, one.assignment) == (("t",), (FIRST, SECOND))
            assert one.target is None
            assert one.host
            assert found.coordinator == await admin.find_coordinator("g")
            assert json.loads(json.dumps(found.as_dict()))["members"][0]["topics"] == ["t"]


async def test_a_group_of_the_consumer_protocol_is_described() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        consumer = member(cluster, "g", group_protocol="consumer", client_rack="r")
        async with consumer:
            consumer.subscribe(pattern="^t$")
            await joined(cluster, consumer)
            found = (await admin.groups.describe(["g"]))["g"]
            assert (found.type, found.protocol_type) == (GroupType.CONSUMER, "consumer")
            assert found.epoch == found.assignment_epoch
            assert found.authorized_operations is None
            (one,) = found.members
            assert one.epoch == found.epoch
            assert one.rack == "r"
            assert one.assignment == one.target == (FIRST, SECOND)
            assert one.regex or one.topics == ("t",)


@pytest.mark.parametrize("version", ["0.10.2", "2.8", "3.9", "4.3"])
async def test_a_group_that_is_not_there(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        with pytest.raises(GroupIdNotFound, match="'missing' does not exist"):
            await admin.groups.describe(["missing"])
        await cluster.create_topic("t")
        await commit(cluster, "g", {FIRST: 3})
        with pytest.raises(AdminItemsError) as caught:
            await admin.groups.describe(["missing", "g"])
        assert isinstance(caught.value.errors["missing"], GroupIdNotFound)
        assert caught.value.results["g"].state is GroupState.EMPTY


async def test_a_group_that_moves_while_it_is_described() -> None:
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        for number in range(6):
            await commit(cluster, f"g{number}", {FIRST: number})
        cluster.intercept(DescribeGroupsRequest, Fail(NotCoordinatorForGroupError), times=2)
        found = await admin.groups.describe([f"g{number}" for number in range(6)])
        assert list(found) == [f"g{number}" for number in range(6)]
        # One look-up for all of them, each time.
        lookups = [r.request for r in cluster.requests(FindCoordinatorRequest)]
        assert max(len(request.coordinator_keys) for request in lookups) == 6


async def test_bytes_of_a_member_that_make_no_sense_are_left_as_they_are() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)

        def spoil(response: Any) -> None:
            for each in response.groups[0].members:
                each.member_metadata = b"\x00\x03\x7f\xff\xff\xff"
                each.member_assignment = b"\x00"

        async with member(cluster, "g", "t") as consumer:
            await joined(cluster, consumer)
            cluster.intercept(DescribeGroupsRequest, Edit(spoil))
            (one,) = (await admin.groups.describe(["g"]))["g"].members
            assert (one.topics, one.assignment) == (None, None)
            assert one.raw_assignment == b"\x00"


async def test_an_error_of_a_group_is_raised() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        cluster.intercept(DescribeGroupsRequest, Fail(GroupAuthorizationFailedError))
        with pytest.raises(GroupAuthorizationFailedError, match="'g'"):
            await admin.groups.describe(["g"])
        assert not cluster.requests(ConsumerGroupDescribeRequest)


@pytest.mark.parametrize("version", ["0.11", "2.8", "4.3"])
async def test_offsets_of_several_groups(version: str) -> None:
    async with (
        FakeCluster(brokers=2, as_version=version) as cluster,
        make_admin(cluster) as admin,
    ):
        await cluster.create_topic("t", partitions=2)
        await commit(cluster, "a", {FIRST: OffsetAndMetadata(4, "note")})
        await commit(cluster, "b", {FIRST: 5, SECOND: 6})
        found = await admin.groups.offsets(["a", "b", "missing"])
        assert found == {
            "a": {FIRST: OffsetAndMetadata(4, "note")},
            "b": {FIRST: OffsetAndMetadata(5), SECOND: OffsetAndMetadata(6)},
            "missing": {},
        }
        assert await admin.groups.offsets({"a": [FIRST, SECOND], "b": None}) == {
            "a": {FIRST: OffsetAndMetadata(4, "note"), SECOND: None},
            "b": found["b"],
        }
        one_each = version != "4.3"
        cluster.move_coordinator("group", "a", 0)
        cluster.move_coordinator("group", "b", 0)
        cluster.forget_requests()
        await admin.groups.offsets(["a", "b"])
        assert len(cluster.requests(OffsetFetchRequest)) == (2 if one_each else 1)


async def test_offsets_that_old_brokers_cannot_tell() -> None:
    async with FakeCluster(as_version="0.9") as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await commit(cluster, "g", {FIRST: 3})
        assert await admin.groups.offsets({"g": [FIRST]}) == {"g": {FIRST: OffsetAndMetadata(3)}}
        with pytest.raises(UnsupportedVersionError, match=r"Kafka 0\.10\.2"):
            await admin.groups.offsets(["g"])
        with pytest.raises(UnsupportedVersionError, match=r"Kafka 2\.5"):
            await admin.groups.offsets({"g": [FIRST]}, require_stable=True)


async def test_offsets_that_are_about_to_change_are_waited_for() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        await commit(cluster, "g", {FIRST: 3, SECOND: 4})

        def unstable(response: Any) -> None:
            response.groups[0].topics[0].partitions[1].error_code = UnstableOffsetCommit.errno

        cluster.intercept(OffsetFetchRequest, Edit(unstable), times=2)
        found = await admin.groups.offsets(["g"], require_stable=True)
        assert found["g"][SECOND] == OffsetAndMetadata(4)
        assert all(seen.request.require_stable for seen in cluster.requests(OffsetFetchRequest))


async def test_partitions_that_may_not_be_seen_are_errors_of_the_group() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        await commit(cluster, "g", {FIRST: 3, SECOND: 4})

        def refuse(response: Any) -> None:
            partition = response.groups[0].topics[0].partitions[1]
            partition.error_code = TopicAuthorizationFailedError.errno

        cluster.intercept(OffsetFetchRequest, Edit(refuse))
        with pytest.raises(AdminItemsError, match="t-1") as caught:
            await admin.groups.offsets(["g"])
        assert caught.value.results == {FIRST: OffsetAndMetadata(3)}
        assert list(caught.value.errors) == [SECOND]


@simulated
async def test_a_coordinator_without_an_address_is_an_error() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:

        def nowhere(response: Any) -> None:
            response.coordinators[0].port = -5

        cluster.intercept(FindCoordinatorRequest, Edit(nowhere))
        with pytest.raises(KafkaTimeoutError, match="port -5"):
            await admin.groups.offsets(["g"], timeout_ms=200)


@simulated
async def test_a_group_that_the_response_leaves_out_has_not_just_no_offsets() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await commit(cluster, "a", {FIRST: 3})
        await commit(cluster, "b", {FIRST: 4})
        cluster.intercept(OffsetFetchRequest, Edit(lambda response: response.groups.clear()))
        for groups in (["a"], ["a", "b"]):
            with pytest.raises((KafkaTimeoutError, AdminItemsError), match="does not name it"):
                await admin.groups.offsets(groups, timeout_ms=500)


async def test_old_brokers_fail_the_groups_they_refuse_alone() -> None:
    async with FakeCluster(as_version="2.8") as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await commit(cluster, "a", {FIRST: 3})
        await commit(cluster, "b", {FIRST: 4})
        cluster.intercept(OffsetFetchRequest, Fail(GroupAuthorizationFailedError), times=1)
        cluster.intercept(FindCoordinatorRequest, Fail(GroupAuthorizationFailedError), times=1)
        with pytest.raises(AdminItemsError) as caught:
            await admin.groups.offsets(["a", "b", "c"])
        assert len(caught.value.errors) == 2
        assert len(caught.value.results) == 1


@pytest.mark.parametrize("call", ["alter_offsets", "list_consumer_group_offsets"])
@simulated
async def test_a_coordinator_of_an_earlier_call_that_is_silent_is_looked_up_again(
    call: str,
) -> None:
    """Its host may have lost power long ago, and others have its groups."""
    async with FakeCluster(brokers=3) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        cluster.move_coordinator("group", "g", 2)

        async def work() -> None:
            if call == "alter_offsets":
                await admin.groups.alter_offsets("g", {FIRST: 1})
            else:
                assert FIRST in await admin.list_consumer_group_offsets("g", partitions=[FIRST])

        await work()
        cluster.move_coordinator("group", "g", 1)
        cluster.faults.hang(2)
        await work()
