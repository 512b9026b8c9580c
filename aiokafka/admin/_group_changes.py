"""Deleting groups, removing members, and changing the offsets of a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka.admin._by_topic import by_topic, name_of, numbers_by_topic, partitions_in
from aiokafka.admin._coordinators import by_coordinator
from aiokafka.admin._items import settle
from aiokafka.admin._routing import Call, Router, error_of, raise_for
from aiokafka.errors import (
    IllegalGenerationError,
    KafkaError,
    NonEmptyGroup,
    RebalanceInProgressError,
    StaleMemberEpoch,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.groups import DeleteGroupsRequest
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiokafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiokafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

__all__ = ["commit_offsets", "delete_groups", "delete_offsets", "not_empty", "remove_members"]

_FIRST_LEAVE_OF_SEVERAL = 3
_NEWEST_COMMIT_WITH_NAMES = 9
# What a commit from outside gets while the group has members.
_HAS_MEMBERS = (
    UnknownMemberIdError,
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpoch,
)


def not_empty(group_id: str) -> NonEmptyGroup:
    """Return the error of a change that only a group without members takes."""
    return NonEmptyGroup(
        f"group {group_id!r} has members: stop its consumers, wait until their sessions have "
        f"ended, or remove them, and try again"
    )


async def delete_groups(router: Router, group_ids: Iterable[str], deadline: float) -> None:
    """Delete groups with their offsets."""

    async def send(node_id: int, part: list[str]) -> dict[str, KafkaError | None]:
        call = Call(DeleteGroupsRequest, lambda version: DeleteGroupsRequest(groups_names=part))
        response = await router.send(node_id, call, deadline)
        codes = {each.group_id: each.error_code for each in response.results}
        return {group_id: _deleted(group_id, code) for group_id, code in codes.items()}

    await by_coordinator(router, group_ids, send, deadline)


def _deleted(group_id: str, code: int) -> KafkaError | None:
    if code == NonEmptyGroup.errno:
        return not_empty(group_id)
    return error_of(code, None, f"group {group_id!r}")


async def remove_members(
    router: Router, group_id: str, members: Mapping[str, MemberIdentity], deadline: float
) -> None:
    """Remove members, by the names that errors are to have."""

    async def ask(left: list[str]) -> dict[str, KafkaError | None]:
        def build(version: int) -> LeaveGroupRequest:
            if version < _FIRST_LEAVE_OF_SEVERAL:
                raise UnsupportedVersionError("LeaveGroup: removing members needs Kafka 2.4")
            wanted = [members[name] for name in left]
            return LeaveGroupRequest(group_id=group_id, members=wanted)

        call = Call(LeaveGroupRequest, build, lambda answer: [answer.error_code])
        response = await router.to_coordinator(group_id, call, deadline)
        raise_for(response.error_code, None, f"group {group_id!r}")
        codes = {
            (each.group_instance_id or each.member_id): each.error_code for each in response.members
        }
        return {
            name: error_of(codes[name], None, f"group {group_id!r}, member {name!r}")
            for name in left
            if name in codes
        }

    await settle(router, members, ask, deadline)


async def commit_offsets(
    router: Router,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    deadline: float,
) -> None:
    """Store offsets of a group that has no members, in one request.

    The coordinator checks for members and stores the offsets in one step: a consumer that joins
    meanwhile makes it refuse them all.
    """

    async def ask(left: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
        def build(version: int) -> OffsetCommitRequest:
            wanted = {tp: offsets[tp] for tp in left}
            return OffsetCommitRequest(group_id=group_id, topics=_commit_topics(wanted))

        call = Call(
            OffsetCommitRequest,
            build,
            lambda answer: [p.error_code for topic in answer.topics for p in topic.partitions],
            max_version=_NEWEST_COMMIT_WITH_NAMES,
        )
        response = await router.to_coordinator(group_id, call, deadline)
        return {
            tp: _stored(group_id, tp, each.error_code)
            for tp, each in partitions_in(response.topics)
        }

    await settle(router, offsets, ask, deadline, final=(UnknownTopicOrPartitionError,))


def _commit_topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[OffsetCommitRequestTopic]:
    def entry(tp: TopicPartition) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=offsets[tp].offset,
            committed_leader_epoch=offsets[tp].leader_epoch,
            committed_metadata=offsets[tp].metadata,
        )

    return [
        OffsetCommitRequestTopic(name=name, partitions=found)
        for name, found in by_topic(offsets, entry).items()
    ]


def _stored(group_id: str, tp: TopicPartition, code: int) -> KafkaError | None:
    """Return the error of a partition; raise what the coordinator says of the whole group."""
    error = error_of(code, None, _offset(group_id, tp))
    if isinstance(error, _HAS_MEMBERS):
        raise not_empty(group_id)  # of the group: no partition was stored
    return error


async def delete_offsets(
    router: Router, group_id: str, partitions: Iterable[TopicPartition], deadline: float
) -> None:
    """Delete offsets of a group."""

    async def ask(left: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
        def build(version: int) -> OffsetDeleteRequest:
            return OffsetDeleteRequest(group_id=group_id, topics=_delete_topics(left))

        call = Call(OffsetDeleteRequest, build, lambda answer: [answer.error_code])
        response = await router.to_coordinator(group_id, call, deadline)
        if response.error_code == NonEmptyGroup.errno:
            raise not_empty(group_id)
        raise_for(response.error_code, None, f"group {group_id!r}")
        return {
            tp: error_of(each.error_code, None, _offset(group_id, tp))
            for tp, each in partitions_in(response.topics)
        }

    await settle(router, partitions, ask, deadline, final=(UnknownTopicOrPartitionError,))


def _delete_topics(partitions: Iterable[TopicPartition]) -> list[OffsetDeleteRequestTopic]:
    return [
        OffsetDeleteRequestTopic(
            name=name,
            partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in numbers],
        )
        for name, numbers in numbers_by_topic(partitions).items()
    ]


def _offset(group_id: str, tp: TopicPartition) -> str:
    return f"offset of group {group_id!r}, {name_of(tp)}"
