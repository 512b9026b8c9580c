"""DescribeGroups, ListGroups, DeleteGroups, and the descriptions of consumer groups (KIP-848).

A fake cluster has no streams groups: requests about them get an error. Share groups are described
in :mod:`aiokafka.testing.handlers.share`.
"""

from __future__ import annotations

from typing import NoReturn

from aiokafka import errors
from aiokafka.protocol.messages.groups import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    TopicPartitions,
)
from aiokafka.protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.classic_group import ClassicGroup, GroupState
from aiokafka.testing.classic_group import Member as ClassicMember
from aiokafka.testing.consumer_group import (
    CONSUMERS,
    ConsumerGroup,
    ConsumerMember,
    TopicIdPartitions,
)
from aiokafka.testing.handlers import answer_items, handles, require
from aiokafka.testing.handlers._common import authorized_operations, grouped, require_group
from aiokafka.testing.script import RequestContext
from aiokafka.testing.share_group import SHARE
from aiokafka.testing.state import ClusterState

_FIRST_STATIC = 4
_FIRST_NOT_FOUND = 6


@handles(DescribeGroupsRequest)
def describe_groups(
    context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe each classic group. A group that has only committed offsets is Empty. A group that
    does not exist or has another type is Dead, and since version 6 has the error GROUP_ID_NOT_FOUND
    (KIP-1043).
    """
    return answer_items(request, lambda group_id: _describe_classic(context, request, group_id))


def _empty(group_id: str, state: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id, group_state=state, protocol_type="", protocol_data="", members=[]
    )


def _describe_classic(
    context: RequestContext, request: DescribeGroupsRequest, group_id: str
) -> DescribedGroup:
    require_group(context, group_id, "describe")
    group = context.services.groups.classic.get(group_id)
    if group is None:
        answer = _not_classic(context, group_id)
    else:
        answer = _empty(group_id, group.state.value)
        answer.protocol_type = group.protocol_type
        if group.state is GroupState.STABLE:
            answer.protocol_data = group.protocol
        answer.members = [_classic_member(context, group, m) for m in group.members.values()]
    if request.include_authorized_operations:
        answer.authorized_operations = authorized_operations(context, True, "group", group_id)
    return answer


def _not_classic(context: RequestContext, group_id: str) -> DescribedGroup:
    groups = context.services.groups
    others = groups.consumer.keys() | groups.share.keys()
    if group_id in groups.offsets and group_id not in others:
        return _empty(group_id, GroupState.EMPTY.value)
    answer = _empty(group_id, GroupState.DEAD.value)
    if context.api_version >= _FIRST_NOT_FOUND:
        answer.error_code = errors.GroupIdNotFound.errno
        answer.error_message = f"Group {group_id} is not a classic group."
    return answer


def _classic_member(
    context: RequestContext, group: ClassicGroup, member: ClassicMember
) -> DescribedGroupMember:
    stable = group.state is GroupState.STABLE
    answer = DescribedGroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol) if stable else b"",
        member_assignment=member.assignment,
    )
    if context.api_version >= _FIRST_STATIC:
        answer.group_instance_id = member.instance_id
    return answer


@handles(ListGroupsRequest)
def list_groups(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups of this coordinator that the client may describe, and that have one of the
    requested states and types."""
    groups, acls = context.services.groups, context.services.acls
    sees_all = not acls.check_named(context, "cluster", "", "describe")
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    response = ListGroupsResponse(groups=[])
    for group_id in sorted({*groups.classic, *groups.consumer, *groups.share, *groups.offsets}):
        if groups.check_coordinator(context.node_id, group_id):
            continue
        if not sees_all and acls.check_named(context, "group", group_id, "describe"):
            continue
        entry = _listed(context, group_id)
        if states and entry.group_state.lower() not in states:
            continue
        if types and entry.group_type.lower() not in types:
            continue
        response.groups.append(entry)
    return response


def _listed(context: RequestContext, group_id: str) -> ListedGroup:
    groups = context.services.groups
    if group_id in groups.share:
        protocol_type = group_type = SHARE
    elif group_id in groups.consumer:
        protocol_type = group_type = CONSUMERS
    else:
        classic = groups.classic.get(group_id)
        protocol_type = classic.protocol_type if classic is not None else ""
        group_type = "classic"
    return ListedGroup(
        group_id=group_id,
        protocol_type=protocol_type,
        group_state=groups.state_of(group_id),
        group_type=group_type,
    )


@handles(DeleteGroupsRequest)
def delete_groups(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete each group, with its offsets."""
    return answer_items(request, lambda group_id: _delete_group(context, group_id))


def _delete_group(context: RequestContext, group_id: str) -> None:
    require_group(context, group_id, "delete")
    require(context.services.groups.delete(group_id))


_CLASSIC, _CONSUMER = 0, 1


@handles(ConsumerGroupDescribeRequest)
def consumer_group_describe(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group of the consumer protocol (KIP-848); other groups have the error
    GROUP_ID_NOT_FOUND."""
    return answer_items(request, lambda group_id: _describe_consumer(context, request, group_id))


def _describe_consumer(
    context: RequestContext, request: ConsumerGroupDescribeRequest, group_id: str
) -> DescribedConsumerGroup:
    require_group(context, group_id, "describe")
    group = context.services.groups.consumer.get(group_id)
    if group is None:
        raise RefusedError(errors.GroupIdNotFound)
    return DescribedConsumerGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_consumer_member(context, group, member) for member in group.members.values()],
        authorized_operations=authorized_operations(
            context, request.include_authorized_operations, "group", group_id
        ),
    )


def _consumer_member(
    context: RequestContext, group: ConsumerGroup, member: ConsumerMember
) -> DescribedConsumerGroupMember:
    return DescribedConsumerGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(context.state, member.assigned),
        target_assignment=_assignment(context.state, group.target[member.member_id]),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(state: ClusterState, slots: TopicIdPartitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id,
                topic_name=state.topics_by_id[topic_id].name,
                partitions=indexes,
            )
            for topic_id, indexes in grouped(sorted(slots)).items()
            if topic_id in state.topics_by_id
        ]
    )


@handles(StreamsGroupDescribeRequest)
def streams_group_describe(
    context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Return GROUP_ID_NOT_FOUND for each group, or the error of the coordinator check."""
    return answer_items(request, lambda group_id: _refuse_group(context, group_id))


def _refuse_group(context: RequestContext, group_id: str) -> NoReturn:
    """Raise RefusedError: with the error of the coordinator check, if there is one, else with
    GROUP_ID_NOT_FOUND.
    """
    require(context.services.groups.check_coordinator(context.node_id, group_id))
    raise RefusedError(errors.GroupIdNotFound)
