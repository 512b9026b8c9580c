"""aiokafka's calls of the admin client about consumer groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from aiokafka._coordinator_lookup import coordinators_in, lookup_of
from aiokafka.admin._items import numbers_by_topic, of_every_broker
from aiokafka.admin._routing import Call, R, Router, raise_for
from aiokafka.admin.results import DescribedGroup, DescribedMember, DescribeGroupsResult
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
from aiokafka.protocol.messages import consumer_group_describe as consumer_wire
from aiokafka.protocol.messages import groups as wire
from aiokafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiokafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

_FIRST_OF_ALL_PARTITIONS = 2
_FIRST_LEAVE_OF_STATIC_MEMBERS = 3
_NO_OFFSET = OffsetAndMetadata(-1, "", -1)


async def list_groups(
    router: Router, broker_ids: Iterable[int] | None, deadline: float
) -> list[tuple[str, str]]:
    """Return (group, protocol type) of the groups that the brokers coordinate."""
    call = Call(wire.ListGroupsRequest, lambda version: wire.ListGroupsRequest())

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
        for node_id in broker_ids:
            found += await router.retry(partial(ask_named, node_id), deadline)
    return list(dict.fromkeys(found))


def _groups_in(response: wire.ListGroupsResponse, node_id: int) -> list[tuple[str, str]]:
    # A broker that has just started loads its groups first.
    raise_for(response.error_code, None, f"node {node_id}")
    return [(group.group_id, group.protocol_type) for group in response.groups]


async def describe_groups(
    router: Router,
    group_ids: Iterable[str],
    coordinator_id: int | None,
    include_authorized_operations: bool,
    deadline: float,
) -> list[DescribeGroupsResult]:
    """Return one description per group."""
    results = []
    for group_id in group_ids:

        def build(version: int, group_id: str = group_id) -> wire.DescribeGroupsRequest:
            return wire.DescribeGroupsRequest(
                groups=[group_id], include_authorized_operations=include_authorized_operations
            )

        call = Call(
            wire.DescribeGroupsRequest, build, lambda answer: [g.error_code for g in answer.groups]
        )
        response = await _ask(router, group_id, coordinator_id, call, deadline)
        described = [_group(group) for group in response.groups]
        result = DescribeGroupsResult(response.throttle_time_ms, described)
        if any(may_be_of_next_protocol(group) for group in described):
            next_call = describe_call(group_id, include_authorized_operations)
            with suppress(UnsupportedVersionError):
                answer = await _ask(router, group_id, coordinator_id, next_call, deadline)
                result = result_of(answer) or result
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
    """Return the id of the broker that coordinates a group (0) or a transactional id (1)."""

    async def attempt() -> int:
        call = Call(FindCoordinatorRequest, lambda version: lookup_of(version, key_type, [key]))
        home = coordinators_in(await router.to_any(call, deadline), {key: repr(key)})[key]
        if isinstance(home, KafkaError):
            raise home
        return home.nodeId

    return await router.retry(attempt, deadline)


async def list_offsets(
    router: Router,
    group_id: str,
    partitions: Sequence[TopicPartition] | None,
    require_stable: bool,
    coordinator_id: int | None,
    deadline: float,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group; -1 for a requested partition without one."""
    topics = None if partitions is None else numbers_by_topic(partitions)

    def build(version: int) -> OffsetFetchRequest:
        request = _offset_fetch(version, group_id, topics)
        request.require_stable = require_stable
        return request

    # From version 10 on topics are given by id, which this call does not know.
    call = Call(OffsetFetchRequest, build, _codes_in, max_version=9)
    response = await _ask(router, group_id, coordinator_id, call, deadline)
    # Gateways may leave out a partition without an offset, or call it unknown. Apache Kafka looks
    # at no topic here.
    found = dict.fromkeys(partitions or (), _NO_OFFSET)
    for topic, p in _offsets(response):
        tp = TopicPartition(topic, p.partition_index)
        if p.error_code == UnknownTopicOrPartitionError.errno:
            found[tp] = _NO_OFFSET
            continue
        raise_for(p.error_code, None, f"{tp.topic}-{tp.partition}")
        found[tp] = OffsetAndMetadata(
            p.committed_offset, p.metadata or "", p.committed_leader_epoch
        )
    return found


def _offset_fetch(
    version: int, group_id: str, topics: dict[str, list[int]] | None
) -> OffsetFetchRequest:
    if topics is None and version < _FIRST_OF_ALL_PARTITIONS:
        raise UnsupportedVersionError(
            "OffsetFetch: all offsets of a group need Kafka 0.10.2; name the partitions"
        )
    if version < 8:
        old = [
            OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
            for name, numbers in (topics or {}).items()
        ]
        return OffsetFetchRequest(group_id=group_id, topics=None if topics is None else old)
    new = [
        OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
        for name, numbers in (topics or {}).items()
    ]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None if topics is None else new)
    return OffsetFetchRequest(groups=[group])


def _codes_in(response: OffsetFetchResponse) -> list[int]:
    # Before version 2 (Kafka 0.10.2), partitions say that the coordinator is another or not ready.
    partitions = {p.error_code for topic in response.topics for p in topic.partitions}
    return [*_offset_codes(response), *(partitions - {UnknownTopicOrPartitionError.errno})]


def _offset_codes(response: OffsetFetchResponse) -> list[int]:
    return [response.error_code, *(group.error_code for group in response.groups)]


def _offsets(response: OffsetFetchResponse) -> Iterable[tuple[str, Any]]:
    """Yield topic and partition from a response of either form."""
    for code in _offset_codes(response):
        raise_for(code, None, "offsets")
    for topic in response.topics:
        for p in topic.partitions:
            yield topic.name, p
    for group in response.groups:
        for found in group.topics:
            for q in found.partitions:
                yield found.name, q


async def remove_members(
    router: Router, group_id: str, instance_ids: Iterable[str], reason: str, deadline: float
) -> None:
    """Remove static members from a group.

    Raises the error of the first member that the coordinator did not remove.
    """
    names = list(instance_ids)

    def build(version: int) -> LeaveGroupRequest:
        if version < _FIRST_LEAVE_OF_STATIC_MEMBERS:
            raise UnsupportedVersionError("LeaveGroup: removing static members needs Kafka 2.4")
        members = [
            MemberIdentity(member_id="", group_instance_id=name, reason=reason) for name in names
        ]
        return LeaveGroupRequest(group_id=group_id, members=members)

    call = Call(LeaveGroupRequest, build, lambda answer: [answer.error_code])
    response = await router.to_coordinator(group_id, call, deadline)
    raise_for(response.error_code, None, f"group {group_id!r}")
    for member in response.members:
        raise_for(member.error_code, None, f"group {group_id!r}: {member.group_instance_id!r}")


async def _ask(
    router: Router, group_id: str, coordinator_id: int | None, call: Call[R], deadline: float
) -> R:
    if coordinator_id is None:
        return await router.to_coordinator(group_id, call, deadline)
    return await router.to_node(coordinator_id, call, deadline)


# -- Consumer groups (KIP-848) in the form of classic groups

_PROTOCOL_TYPE = "consumer"
# A classic member would have sent these bytes. Version 1 also has the partitions it owns.
_METADATA_VERSION = 1


def may_be_of_next_protocol(group: DescribedGroup) -> bool:
    """Return whether a classic response leaves open that the group uses the consumer protocol.

    A classic DescribeGroups reports such a group as "Dead", and from version 6 on as not found
    (KIP-1043).
    """
    return group.error_code == GroupIdNotFound.errno or (
        group.error_code == 0 and group.state == "Dead"
    )


def describe_call(
    group_id: str, include_authorized_operations: bool
) -> Call[consumer_wire.ConsumerGroupDescribeResponse]:
    """Return the call that describes one group."""

    def build(version: int) -> consumer_wire.ConsumerGroupDescribeRequest:
        return consumer_wire.ConsumerGroupDescribeRequest(
            group_ids=[group_id], include_authorized_operations=include_authorized_operations
        )

    return Call(
        consumer_wire.ConsumerGroupDescribeRequest,
        build,
        lambda answer: [g.error_code for g in answer.groups],
    )


def result_of(response: consumer_wire.ConsumerGroupDescribeResponse) -> DescribeGroupsResult | None:
    """Convert the response to the classic form; return None if the group uses another protocol."""
    if any(group.error_code == GroupIdNotFound.errno for group in response.groups):
        return None
    groups = [_consumer_group(group) for group in response.groups]
    return DescribeGroupsResult(response.throttle_time_ms, groups)


def _consumer_group(group: consumer_wire.DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        group.error_code,
        group.group_id,
        group.group_state,
        _PROTOCOL_TYPE,
        group.assignor_name,
        [_consumer_member(member) for member in group.members],
        authorized_operations=group.authorized_operations,
    )


def _consumer_member(member: consumer_wire.Member) -> DescribedMember:
    owned = [(t.topic_name, list(t.partitions)) for t in member.assignment.topic_partitions]
    topics = sorted(member.subscribed_topic_names)
    metadata = ConsumerProtocolMemberMetadata(_METADATA_VERSION, topics, b"", owned)
    assignment = ConsumerProtocolMemberAssignment(0, owned, b"")
    return DescribedMember(
        member.member_id,
        member.client_id,
        member.client_host,
        metadata.encode(),
        assignment.encode(),
        group_instance_id=member.instance_id,
    )
