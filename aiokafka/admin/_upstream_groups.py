"""The admin client's methods of aiokafka 0.14 about groups and their offsets.

They have a module of their own, so that a program that only creates topics does not load the
messages of groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from aiokafka._arguments import as_flag, as_int, as_ints, as_names, as_text
from aiokafka._coordinator_lookup import coordinators_in, lookup_of
from aiokafka.admin._group_offsets import NEWEST_WITH_NAMES, offset_fetch_request
from aiokafka.admin._items import name_of, of_every_broker, partitions_in
from aiokafka.admin._routing import Call, R, Router, call_of, raise_for
from aiokafka.admin.results import (
    DescribedGroup,
    DescribedMember,
    DescribeGroupsResult,
)
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import (
    GroupIdNotFound,
    KafkaError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages import groups as wire
from aiokafka.protocol.messages.group_members import LeaveGroupRequest, MemberIdentity
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.protocol.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

_FIRST_LEAVE_OF_STATIC_MEMBERS = 3
_NO_OFFSET = OffsetAndMetadata(-1, "", -1)


async def list_groups(
    router: Router, broker_ids: Iterable[int] | None, deadline: float
) -> list[tuple[str, str]]:
    """Return (group, protocol type) for the groups that these brokers (None: all) coordinate."""
    call = call_of(wire.ListGroupsRequest())

    async def ask(node_id: int) -> list[tuple[str, str]]:
        return _groups_in(await router.send(node_id, call, deadline), node_id)

    async def ask_named(node_id: int) -> list[tuple[str, str]]:
        return _groups_in(await router.send_to_named(node_id, call, deadline), node_id)

    if broker_ids is None:
        gathered = await of_every_broker(router, ask, deadline)
        for error in gathered.errors.values():
            raise error
        found = gathered.values
    else:
        found = []
        for node_id in as_ints("broker_ids", broker_ids):
            found += await router.retry(partial(ask_named, node_id), deadline)
    return list(dict.fromkeys(found))


def _groups_in(response: wire.ListGroupsResponse, node_id: int) -> list[tuple[str, str]]:
    # A broker that is still loading its groups returns COORDINATOR_LOAD_IN_PROGRESS. This error is
    # retriable, so the request is sent again.
    raise_for(response.error_code, None, f"node {node_id}")
    return [(group.group_id, group.protocol_type) for group in response.groups]


async def describe_groups(
    router: Router,
    group_ids: Iterable[str],
    coordinator_id: int | None,
    include_authorized_operations: bool,
    deadline: float,
) -> list[DescribeGroupsResult]:
    results = []
    names = as_names("group_ids", group_ids, repeats=True)
    coordinator_id = _coordinator_id(coordinator_id)
    operations = as_flag("include_authorized_operations", include_authorized_operations)
    for group_id in names:
        call = call_of(
            wire.DescribeGroupsRequest(groups=[group_id], include_authorized_operations=operations)
        )
        response = await _ask(router, group_id, coordinator_id, call, deadline)
        described = [_group(group) for group in response.groups]
        result = DescribeGroupsResult(response.throttle_time_ms, described)
        if any(_may_be_consumer_group(group) for group in described):
            request = wire.ConsumerGroupDescribeRequest(
                group_ids=[group_id], include_authorized_operations=operations
            )
            with suppress(UnsupportedVersionError):
                found = await _ask(router, group_id, coordinator_id, call_of(request), deadline)
                result = _classic_result(found) or result
        results.append(result)
    return results


def _group(group: wire.DescribedGroup) -> DescribedGroup:
    members = [
        DescribedMember(
            m.member_id,
            m.client_id,
            m.client_host,
            m.member_metadata,
            m.member_assignment,
            group_instance_id=m.group_instance_id,
        )
        for m in group.members
    ]
    return DescribedGroup(
        group.error_code,
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        members,
        authorized_operations=group.authorized_operations,
    )


async def find_coordinator(router: Router, key: str, key_type: int, deadline: float) -> int:
    """Return the id of the broker that coordinates a group (type 0) or transactional id (1).

    Raises the error in the response, if there is one.
    """

    key = as_text("group_id", key)
    key_type = as_int("coordinator_type", key_type, 0)

    def coordinator_in(response: FindCoordinatorResponse) -> int:
        broker = coordinators_in(response, {key: repr(key)})[key]
        if isinstance(broker, KafkaError):
            raise broker
        return broker.nodeId

    def build(version: int) -> FindCoordinatorRequest:
        return lookup_of(version, key_type, [key])

    call = Call(FindCoordinatorRequest, build, coordinator_in)
    return coordinator_in(await router.to_any(call, deadline))


async def list_offsets(
    router: Router,
    group_id: str,
    partitions: Sequence[TopicPartition] | None,
    require_stable: bool,
    coordinator_id: int | None,
    deadline: float,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group; -1 for a requested partition without an offset."""
    group_id = as_text("group_id", group_id)
    coordinator_id = _coordinator_id(coordinator_id)
    require_stable = as_flag("require_stable", require_stable)
    call = Call(
        OffsetFetchRequest,
        lambda version: offset_fetch_request(version, {group_id: partitions}, require_stable),
        max_version=NEWEST_WITH_NAMES,
    )
    response = await _ask(router, group_id, coordinator_id, call, deadline)
    groups: list[Any] = [response, *response.groups]
    for group in groups:
        raise_for(group.error_code, None, "offsets")
    # Brokers other than Apache Kafka may omit a requested partition without an offset, or return
    # UNKNOWN_TOPIC_OR_PARTITION for it. Apache Kafka does not check whether the topic exists.
    found = dict.fromkeys(partitions or (), _NO_OFFSET)
    for tp, each in partitions_in(topic for group in groups for topic in group.topics):
        if each.error_code == UnknownTopicOrPartitionError.errno:
            found[tp] = _NO_OFFSET
            continue
        raise_for(each.error_code, None, name_of(tp))
        found[tp] = OffsetAndMetadata(
            each.committed_offset, each.metadata or "", each.committed_leader_epoch
        )
    return found


async def remove_members(
    router: Router, group_id: str, instance_ids: Iterable[str], reason: str | None, deadline: float
) -> None:
    """Remove static members from a group.

    Raises the first error of a member in the response; the other members may have been removed.
    """
    group_id = as_text("group_id", group_id)
    reason = as_text("reason", "" if reason is None else reason)
    names = as_names("group_instance_ids", instance_ids, repeats=True)

    def build(version: int) -> LeaveGroupRequest:
        if version < _FIRST_LEAVE_OF_STATIC_MEMBERS:
            raise UnsupportedVersionError("LeaveGroup: removing static members needs Kafka 2.4")
        members = [
            MemberIdentity(member_id="", group_instance_id=name, reason=reason) for name in names
        ]
        return LeaveGroupRequest(group_id=group_id, members=members)

    response = await router.to_coordinator(group_id, Call(LeaveGroupRequest, build), deadline)
    raise_for(response.error_code, None, f"group {group_id!r}")
    for member in response.members:
        raise_for(member.error_code, None, f"group {group_id!r}: {member.group_instance_id!r}")


def _coordinator_id(value: int | None) -> int | None:
    return None if value is None else as_int("group_coordinator_id", value)


async def _ask(
    router: Router, group_id: str, coordinator_id: int | None, call: Call[R], deadline: float
) -> R:
    if coordinator_id is None:
        return await router.to_coordinator(group_id, call, deadline)
    return await router.to_node(coordinator_id, call, deadline)


# -- Consumer groups (KIP-848), converted to the results of classic groups

_PROTOCOL_TYPE = "consumer"
# Version of the member metadata in the converted results: the first version that has the owned
# partitions.
_METADATA_VERSION = 1


def _may_be_consumer_group(group: DescribedGroup) -> bool:
    """Return whether a group may use the consumer protocol, judging by its DescribeGroups response.

    DescribeGroups returns the state "Dead" for such a group, and from version 6 on the error
    GROUP_ID_NOT_FOUND (KIP-1043). A group that does not exist looks the same.
    """
    return group.error_code == GroupIdNotFound.errno or (
        group.error_code == 0 and group.state == "Dead"
    )


def _classic_result(
    response: wire.ConsumerGroupDescribeResponse,
) -> DescribeGroupsResult | None:
    """Convert a ConsumerGroupDescribe response to the result of a classic group. Return None if the
    group does not exist, or does not use the consumer protocol."""
    if any(group.error_code == GroupIdNotFound.errno for group in response.groups):
        return None
    groups = [_consumer_group(group) for group in response.groups]
    return DescribeGroupsResult(response.throttle_time_ms, groups)


def _consumer_group(group: wire.DescribedConsumerGroup) -> DescribedGroup:
    return DescribedGroup(
        group.error_code,
        group.group_id,
        group.group_state,
        _PROTOCOL_TYPE,
        group.assignor_name,
        [_consumer_member(member) for member in group.members],
        authorized_operations=group.authorized_operations,
    )


def _consumer_member(member: wire.DescribedConsumerGroupMember) -> DescribedMember:
    owned = [(t.topic_name, list(t.partitions)) for t in member.assignment.topic_partitions]
    subscription = sorted(member.subscribed_topic_names)
    metadata = ConsumerProtocolMemberMetadata(_METADATA_VERSION, subscription, b"", owned)
    assignment = ConsumerProtocolMemberAssignment(0, owned, b"")
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.client_host,
        metadata.encode(),
        assignment.encode(),
        group_instance_id=member.instance_id,
    )
