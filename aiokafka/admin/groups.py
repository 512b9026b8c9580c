"""List, describe, change and delete groups of every type (`admin.groups`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka._arguments import (
    as_enums,
    as_flag,
    as_instance,
    as_int,
    as_names,
    as_partitions,
    as_text,
    by_partition,
)
from aiokafka.admin._group_descriptions import GroupDescription, GroupListing, describe_groups
from aiokafka.admin._group_offsets import (
    OffsetReset,
    ResetRule,
    ShareOffset,
    alter_share_offsets,
    commit_offsets,
    delete_offsets,
    delete_share_offsets,
    fetch_offsets,
    fetch_share_offsets,
    not_empty,
    reset_offsets,
)
from aiokafka.admin._items import by_coordinator, of_every_broker, settle
from aiokafka.admin._lag import GroupLag, lag_of_groups
from aiokafka.admin._routing import (
    AdminApi,
    Call,
    Outcomes,
    Router,
    call_of,
    error_of,
    raise_for,
)
from aiokafka.admin.enums import GroupState, GroupType
from aiokafka.errors import AdminItemsError, KafkaError, NonEmptyGroup, UnsupportedVersionError
from aiokafka.protocol.messages import groups as wire
from aiokafka.protocol.messages.group_members import LeaveGroupRequest, MemberIdentity
from aiokafka.protocol.messages.groups import DeletableGroupResult, DeleteGroupsRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

__all__ = ["Groups"]


class Groups(AdminApi):
    """The sub-client `admin.groups`, for groups.

    A request about a group goes to the coordinator of the group; after the group has moved, its new
    coordinator is looked up. A coordinator of several groups gets a single request for them, if the
    API has such requests.
    """

    async def list(
        self,
        *,
        states: Iterable[GroupState | str] = (),
        types: Iterable[GroupType | str] = (),
        protocol_types: Iterable[str] = (),
        prefix: str = "",
        timeout_ms: float | None = None,
    ) -> dict[str, GroupListing]:
        """Return the groups of all brokers by id (Java: listGroups, KIP-518, KIP-848, KIP-1043).

        Args:
            states: return only groups in these states (Kafka 2.6); by default groups in any state.
            types: return only groups of these types (Kafka 3.8). Older brokers have only CLASSIC
                groups.
            protocol_types: return only groups with these protocol types, such as "consumer" or
                "connect".
            prefix: return only groups whose id begins with this text.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Brokers omit groups that the user may not describe. Raises ValueError for an unknown state
        or type. Raises UnsupportedVersionError if a broker is too old to filter by state, or if
        `types` lacks CLASSIC and a broker is too old to filter by type. If some brokers do not
        respond before the timeout, raises AdminItemsError, with their errors by broker id, and the
        groups of the other brokers as results.
        """
        wanted = GroupFilter(
            states=as_enums("states", states, GroupState),
            types=as_enums("types", types, GroupType),
            protocol_types=as_names("protocol_types", protocol_types),
            prefix=as_text("prefix", prefix),
        )
        deadline = self._deadline(timeout_ms)

        async def ask(node_id: int) -> list[GroupListing]:
            return await _list_one(self._router, node_id, wanted, deadline)

        found = await of_every_broker(self._router, ask, deadline)
        groups = {group.group_id: group for group in found.values if wanted.passes(group)}
        if found.errors:
            raise AdminItemsError(found.errors, groups)
        return groups

    async def describe(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, GroupDescription]:
        """Return the state and the members of groups of any type (Java: describeConsumerGroups,
        describeClassicGroups).

        Args:
            group_ids: the ids of the groups.
            include_authorized_operations: also return the operations that the user may do with
                each group (KIP-430, Kafka 2.3; None from older brokers).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of a single group, such as GroupIdNotFound or
        GroupAuthorizationFailedError; AdminItemsError if one of several groups fails.
        """
        names = as_names("group_ids", group_ids)
        operations = as_flag("include_authorized_operations", include_authorized_operations)
        return await describe_groups(self._router, names, operations, self._deadline(timeout_ms))

    async def offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata | None]]:
        """Return the committed offsets of groups (Java: listConsumerGroupOffsets, KIP-709).

        Args:
            groups: the ids of the groups, or a dict with the partitions of each group. Ids alone,
                and None in the dict, select all partitions with an offset (Kafka 0.10.2).
            require_stable: wait while a transaction that commits offsets of a group is open
                (KIP-447, Kafka 2.5). By default, the offsets before that transaction are returned.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        A requested partition without an offset has None. A group that does not exist is not an
        error: it has no offsets. Raises the error of a single group; AdminItemsError if one of
        several groups fails.
        """
        wanted, is_stable = _by_group(groups), as_flag("require_stable", require_stable)
        return await fetch_offsets(self._router, wanted, is_stable, self._deadline(timeout_ms))

    async def lag(
        self, group_ids: Iterable[str], *, times: bool = True, timeout_ms: float | None = None
    ) -> dict[str, GroupLag]:
        """Return the lag of groups by partition, in offsets and in time.

        Args:
            group_ids: the ids of the groups.
            times: also read the timestamp of the first unread record of each partition. This takes
                one small fetch (up to 32 KiB, or one batch) for each partition with unread records.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The result has all partitions with a committed offset, and all partitions assigned to
        members. A partition is not retried if it has no leader, or its topic was deleted: its
        `error` is the reason. Raises the error of a single group, such as GroupIdNotFound;
        AdminItemsError if one of several groups fails.
        """
        names = as_names("group_ids", group_ids)
        with_times = as_flag("times", times)
        return await lag_of_groups(self._router, names, with_times, self._deadline(timeout_ms))

    async def delete(self, group_ids: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Delete groups without members, with their offsets (Java: deleteConsumerGroups, KIP-229,
        Kafka 1.1).

        Args:
            group_ids: the ids of the groups.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of a single group, such as NonEmptyGroup or GroupIdNotFound (also if the
        response to a first attempt was lost); AdminItemsError if one of several groups fails. Since
        Kafka 4.4, the text of the error contains the broker's reason.
        """
        names = as_names("group_ids", group_ids)
        deadline = self._deadline(timeout_ms)

        async def send(node_id: int, part: list[str]) -> Outcomes[str, None]:
            call = call_of(DeleteGroupsRequest(groups_names=part))
            response = await self._router.send(node_id, call, deadline)
            return {each.group_id: _deleted(each) for each in response.results}

        await by_coordinator(self._router, names, send, deadline)

    async def remove_members(
        self,
        group_id: str,
        *,
        instance_ids: Iterable[str] = (),
        member_ids: Iterable[str] = (),
        all_members: bool = False,
        reason: str | None = "",
        timeout_ms: float | None = None,
    ) -> tuple[str, ...]:
        """Remove members from a group before their sessions expire (Java:
        removeMembersFromConsumerGroup, KIP-345, Kafka 2.4).

        Args:
            group_id: the id of the group.
            instance_ids: the `group_instance_id` of each static member to remove.
            member_ids: the ids of members to remove, as `describe` returns them.
            all_members: remove all current members as well.
            reason: a text for the log of the broker (KIP-800).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The group rebalances at once. A removed member that still runs rejoins; a static member
        fails with FencedInstanceId if another member has joined with its `group_instance_id`
        meanwhile. Returns the `group_instance_id` of each removed static member and the ids of the
        other removed members. Raises UnknownMemberIdError for a member that the group does not have
        (also if the response to a first attempt was lost); AdminItemsError if one of several
        members fails.
        """
        group_id = as_text("group_id", group_id)
        reason = as_text("reason", "" if reason is None else reason)
        named = as_names("instance_ids", instance_ids), as_names("member_ids", member_ids)
        deadline = self._deadline(timeout_ms)
        members = {
            **{name: MemberIdentity(member_id=name, reason=reason) for name in named[1]},
            **{name: _static(name, reason) for name in named[0]},
        }
        if as_flag("all_members", all_members):
            found = await describe_groups(self._router, [group_id], False, deadline)
            for each in found[group_id].members:
                name = each.instance_id or each.member_id
                dynamic = MemberIdentity(member_id=name, reason=reason)
                members[name] = _static(name, reason) if each.instance_id else dynamic

        async def ask(left: list[str]) -> Outcomes[str, None]:
            def build(version: int) -> LeaveGroupRequest:
                if version < _FIRST_LEAVE_OF_SEVERAL:
                    raise UnsupportedVersionError("LeaveGroup: removing members needs Kafka 2.4")
                wanted = [members[name] for name in left]
                return LeaveGroupRequest(group_id=group_id, members=wanted)

            call = Call(LeaveGroupRequest, build)
            response = await self._router.to_coordinator(group_id, call, deadline)
            raise_for(response.error_code, None, f"group {group_id!r}")
            codes = {
                (each.group_instance_id or each.member_id): each.error_code
                for each in response.members
            }
            return {
                name: error_of(codes[name], None, f"group {group_id!r}, member {name!r}")
                for name in left
                if name in codes
            }

        await settle(self._router, members, ask, deadline)
        return tuple(members)

    async def alter_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Set the offsets of a group that has no members (Java: alterConsumerGroupOffsets,
        KIP-396).

        Args:
            group_id: the id of the group, which is created if it does not exist.
            offsets: by partition, the offset of the next record to read.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The offsets of other partitions are kept. The call does not check whether records with these
        offsets exist, unlike `reset_offsets`. Raises NonEmptyGroup, without any change, if the
        group has members. Raises the error of a single partition; AdminItemsError if one of several
        partitions fails.
        """
        group_id = as_text("group_id", group_id)
        wanted = {tp: _committed(tp, value) for tp, value in by_partition("offsets", offsets)}
        deadline = self._deadline(timeout_ms)
        await commit_offsets(self._router, group_id, wanted, deadline)

    async def delete_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Delete offsets of a group (Java: deleteConsumerGroupOffsets, KIP-496, Kafka 2.4).

        Args:
            group_id: the id of the group.
            partitions: the partitions; no member may be subscribed to their topics.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The broker deletes a group that has neither members nor offsets any more. Raises the error
        of a single partition, such as GroupSubscribedToTopic; AdminItemsError if one of several
        partitions fails. Raises GroupIdNotFound if the group does not exist (also if the response
        to a first attempt was lost, and that attempt has deleted the last offset of the group).
        """
        group_id, wanted = as_text("group_id", group_id), as_partitions("partitions", partitions)
        deadline = self._deadline(timeout_ms)
        await delete_offsets(self._router, group_id, wanted, deadline)

    async def reset_offsets(
        self,
        group_id: str,
        rule: ResetRule,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        topics: Iterable[str] | None = None,
        dry_run: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetReset]:
        """Set the offsets of a group that has no members by a rule, as kafka-consumer-groups does.

        Args:
            group_id: the id of the group, which is created if it does not exist.
            rule: the rule for the new offsets, such as `ResetRule.earliest()`.
            partitions: the partitions to reset; by default all with a committed offset in the
                group, or for `ResetRule.copy` in the copied group.
            topics: topics of which all partitions are reset, in addition to `partitions`.
            dry_run: change nothing, and allow a group with members.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        If the rule gives an offset before the first record or after the end of a partition, the
        first offset or the end is used. Returns the old and the new offset of each partition. If
        the new offset of any partition cannot be found, changes nothing and raises the error of the
        partition, such as NoOffsetForPartitionError; AdminItemsError if one of several partitions
        fails. Raises NonEmptyGroup if the group has members. If neither `partitions` nor `topics`
        is given, raises GroupIdNotFound for a group that does not exist; with `ResetRule.copy`,
        raises it for a copied group without offsets instead.
        """
        group_id, rule = as_text("group_id", group_id), as_instance("rule", rule, ResetRule)
        tps = None if partitions is None else as_partitions("partitions", partitions)
        names = None if topics is None else as_names("topics", topics)
        is_dry, deadline = as_flag("dry_run", dry_run), self._deadline(timeout_ms)
        return await reset_offsets(self._router, group_id, rule, tps, names, is_dry, deadline)

    async def share_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        timeout_ms: float | None = None,
    ) -> dict[str, dict[TopicPartition, ShareOffset | None]]:
        """Return the offsets of share groups (Java: listShareGroupOffsets, KIP-932, Kafka 4.1).

        Args:
            groups: the ids of the groups, or a dict with the partitions of each group. Ids alone,
                and None in the dict, select all partitions of a group.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        A requested partition without an offset has None. Raises the error of a single group, such
        as GroupIdNotFound if it does not exist or is not a share group; AdminItemsError if one of
        several groups fails.
        """
        deadline = self._deadline(timeout_ms)
        return await fetch_share_offsets(self._router, _by_group(groups), deadline)

    async def alter_share_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Set the start offsets of a share group without members (Java: alterShareGroupOffsets,
        KIP-932, Kafka 4.1).

        Args:
            group_id: the id of the group.
            offsets: by partition, the first offset to deliver.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises NonEmptyGroup if the group has members, and the error of a partition; AdminItemsError
        if one of several partitions fails.
        """
        group_id = as_text("group_id", group_id)
        wanted = {
            tp: _committed(tp, value).offset for tp, value in by_partition("offsets", offsets)
        }
        deadline = self._deadline(timeout_ms)
        await alter_share_offsets(self._router, group_id, wanted, deadline)

    async def delete_share_offsets(
        self, group_id: str, topics: Iterable[str], *, timeout_ms: float | None = None
    ) -> None:
        """Delete the offsets of topics in a share group without members (Java:
        deleteShareGroupOffsets, KIP-932, Kafka 4.1).

        Args:
            group_id: the id of the group.
            topics: the topics whose offsets are deleted.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises NonEmptyGroup if the group has members, and the error of a topic; AdminItemsError if
        one of several topics fails.
        """
        group_id, names = as_text("group_id", group_id), as_names("topics", topics)
        deadline = self._deadline(timeout_ms)
        await delete_share_offsets(self._router, group_id, names, deadline)


def _static(name: str, reason: str) -> MemberIdentity:
    return MemberIdentity(member_id="", group_instance_id=name, reason=reason)


def _committed(tp: TopicPartition, value: Any) -> OffsetAndMetadata:
    given = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
    offset = as_int(f"offsets: {tp}", given.offset, 0)
    return OffsetAndMetadata(offset, given.metadata, given.leader_epoch)


def _by_group(
    groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
) -> dict[str, list[TopicPartition] | None]:
    """Return the partitions of each group; None if all of its partitions are selected."""
    names = as_names("groups", groups)
    if not isinstance(groups, Mapping):
        return dict.fromkeys(names)
    wanted = {name: groups[name] for name in names}
    return {n: None if tps is None else as_partitions("groups", tps) for n, tps in wanted.items()}


# -- ListGroups

_FIRST_WITH_STATES = 4
_FIRST_WITH_TYPES = 5


@dataclass(frozen=True)
class GroupFilter:
    """Which groups to list: a group must match all fields. An empty field matches all groups."""

    states: Collection[GroupState] = ()
    types: Collection[GroupType] = ()
    protocol_types: Collection[str] = ()
    prefix: str = ""

    def passes(self, group: GroupListing) -> bool:
        """Return whether a group matches the filter.

        No broker filters by prefix or protocol type. Brokers before Kafka 3.8 do not filter by type
        either, and return no types: then `group.type` is UNKNOWN, and the group is classic.
        """
        return (
            group.group_id.startswith(self.prefix)
            and (not self.states or group.state in self.states)
            and (not self.types or group.type in (*self.types, GroupType.UNKNOWN))
            and (not self.protocol_types or group.protocol_type in self.protocol_types)
        )


async def _list_one(
    router: Router, node_id: int, wanted: GroupFilter, deadline: float
) -> list[GroupListing]:
    call = Call(wire.ListGroupsRequest, lambda version: _request(version, wanted))
    response = await router.send(node_id, call, deadline)
    # A broker that still loads its groups returns COORDINATOR_LOAD_IN_PROGRESS, which is retriable.
    raise_for(response.error_code, None, f"groups of node {node_id}")
    return [
        GroupListing(
            group_id=group.group_id,
            type=GroupType.of(group.group_type),
            state=GroupState.of(group.group_state),
            protocol_type=group.protocol_type,
            coordinator=node_id,
        )
        for group in response.groups
    ]


def _request(version: int, wanted: GroupFilter) -> wire.ListGroupsRequest:
    request = wire.ListGroupsRequest()
    if wanted.states and version < _FIRST_WITH_STATES:
        raise UnsupportedVersionError("ListGroups: groups by state need Kafka 2.6 (KIP-518)")
    if version >= _FIRST_WITH_STATES:
        request.states_filter = [state.value for state in wanted.states]
    if version >= _FIRST_WITH_TYPES:
        request.types_filter = [kind.value for kind in wanted.types]
    elif wanted.types and GroupType.CLASSIC not in wanted.types:
        raise UnsupportedVersionError("ListGroups: groups by type need Kafka 3.8 (KIP-848)")
    return request


# -- DeleteGroups, LeaveGroup

_FIRST_LEAVE_OF_SEVERAL = 3


def _deleted(result: DeletableGroupResult) -> KafkaError | None:
    if result.error_code == NonEmptyGroup.errno:
        return not_empty(result.group_id)
    return error_of(result.error_code, result.error_message, f"group {result.group_id!r}")
