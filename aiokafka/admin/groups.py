"""The groups of a cluster, of every type, and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka._partitions import as_partition
from aiokafka.admin import (
    _group_changes,
    _group_describe,
    _group_list,
    _group_offsets,
    _lag,
    _reset,
    _share_offsets,
)
from aiokafka.admin._arguments import as_enums, as_names, as_partitions, items_of
from aiokafka.admin._group_values import GroupDescription, GroupListing
from aiokafka.admin._lag_values import GroupLag
from aiokafka.admin._reset_values import OffsetReset, ResetRule
from aiokafka.admin._room import Room
from aiokafka.admin._share_offsets import ShareOffset
from aiokafka.admin.enums import GroupState, GroupType
from aiokafka.protocol.messages.leave_group import MemberIdentity
from aiokafka.structs import OffsetAndMetadata, TopicPartition

__all__ = ["Groups"]


class Groups(Room):
    """Calls about groups: `admin.groups`.

    A group is asked for at its coordinator, which is looked up again when it has moved. Several
    groups go in one request to each coordinator where the broker allows it.
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
            states: only groups in these states (Kafka 2.6); by default in any.
            types: only groups of these types (Kafka 3.8; older brokers have only classic groups).
            protocol_types: only groups whose members call themselves so: "consumer", "connect".
            prefix: only groups whose id begins with it.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises ValueError for a state or type that Kafka does not have, and UnsupportedVersionError
        if a broker cannot tell states or types apart. If some brokers do not respond in time,
        AdminItemsError has the error of each by its id, and the groups of the others as results.
        Groups that the user may not describe are left out by the brokers.
        """
        wanted = _group_list.GroupFilter(
            states=as_enums("states", states, GroupState),
            types=as_enums("types", types, GroupType),
            protocol_types=as_names("protocol_types", protocol_types),
            prefix=prefix,
        )
        return await _group_list.list_groups(self._router, wanted, self._deadline(timeout_ms))

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
            group_ids: names of the groups.
            include_authorized_operations: also ask what the user may do with them (KIP-430, Kafka
                2.3; from older brokers it stays None).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of a group, such as GroupIdNotFound or GroupAuthorizationFailedError:
        AdminItemsError if several groups were asked for.
        """
        names = as_names("group_ids", group_ids)
        return await _group_describe.describe_groups(
            self._router, names, include_authorized_operations, self._deadline(timeout_ms)
        )

    async def offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata | None]]:
        """Return the committed offsets of groups (Java: listConsumerGroupOffsets, KIP-709).

        Args:
            groups: names of the groups, or a dict with the partitions of each; None and names alone
                stand for all partitions that a group has offsets for (Kafka 0.10.2).
            require_stable: wait while a transaction that commits offsets of a group is open
                (KIP-447, Kafka 2.5); else the offsets before it are returned.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        A partition that was asked for and has no offset gets None. A group that does not exist has
        no offsets, which is not an error. Raises the error of a group, AdminItemsError if several
        were asked for.
        """
        return await _group_offsets.fetch_offsets(
            self._router, _by_group(groups), require_stable, self._deadline(timeout_ms)
        )

    async def lag(
        self, group_ids: Iterable[str], *, times: bool = True, timeout_ms: float | None = None
    ) -> dict[str, GroupLag]:
        """Return how far groups are behind, by partition: in offsets and in time.

        Args:
            group_ids: names of the groups.
            times: also read the timestamp of the first unread record of each partition, which takes
                a small fetch (up to 32 KiB, or one batch) for each that has any.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Partitions are those that the group has offsets for, and those assigned to members. One
        whose topic is gone, or that has no leader, says so in its `error` and is not waited for.
        Raises the error of a group, such as GroupIdNotFound: AdminItemsError if several groups were
        asked for.
        """
        names = as_names("group_ids", group_ids)
        return await _lag.lag_of_groups(self._router, names, times, self._deadline(timeout_ms))

    async def delete(self, group_ids: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Delete groups without members, with their offsets (Java: deleteConsumerGroups, KIP-229,
        Kafka 1.1).

        Args:
            group_ids: names of the groups.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of a group, such as NonEmptyGroup or GroupIdNotFound: AdminItemsError if
        several groups were asked for. A group whose response was lost may be reported as not found.
        """
        names = as_names("group_ids", group_ids)
        await _group_changes.delete_groups(self._router, names, self._deadline(timeout_ms))

    async def remove_members(
        self,
        group_id: str,
        *,
        instance_ids: Iterable[str] = (),
        member_ids: Iterable[str] = (),
        all_members: bool = False,
        reason: str = "",
        timeout_ms: float | None = None,
    ) -> tuple[str, ...]:
        """Remove members from a group before their sessions end (Java:
        removeMembersFromConsumerGroup, KIP-345, Kafka 2.4).

        Args:
            group_id: the name of the group.
            instance_ids: names of static members.
            member_ids: ids of members, as `describe` returns them.
            all_members: remove all that the group has now.
            reason: a text for the log of the broker (KIP-800).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The others get their partitions at once. A member that still runs joins again or fails with
        FencedInstanceId. Returns what was removed: the name of a static member, else its id. Raises
        UnknownMemberIdError for one that the group does not have, also if the response to a first
        attempt was lost; AdminItemsError if several were asked for.
        """
        named = as_names("instance_ids", instance_ids), as_names("member_ids", member_ids)
        deadline = self._deadline(timeout_ms)
        members = {
            **{name: MemberIdentity(member_id=name, reason=reason) for name in named[1]},
            **{name: _static(name, reason) for name in named[0]},
        }
        if all_members:
            found = await _group_describe.describe_groups(self._router, [group_id], False, deadline)
            for each in found[group_id].members:
                name = each.instance_id or each.member_id
                dynamic = MemberIdentity(member_id=name, reason=reason)
                members[name] = _static(name, reason) if each.instance_id else dynamic
        await _group_changes.remove_members(self._router, group_id, members, deadline)
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
            group_id: the name of the group, which is made if there is none.
            offsets: the offset of the next record to read, by partition.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Other partitions keep their offsets. The offsets are stored as they are: `reset_offsets`
        checks them. Raises NonEmptyGroup if the group has members, then nothing is changed; and the
        error of a partition, AdminItemsError if several were asked for.
        """
        wanted = {
            as_partition(tp): _committed(tp, value) for tp, value in items_of("offsets", offsets)
        }
        deadline = self._deadline(timeout_ms)
        await _group_changes.commit_offsets(self._router, group_id, wanted, deadline)

    async def delete_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Delete offsets of a group (Java: deleteConsumerGroupOffsets, KIP-496, Kafka 2.4).

        Args:
            group_id: the name of the group.
            partitions: whose offsets to delete; no member may be subscribed to their topics.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        A group without members ends with its last offset. Raises GroupSubscribedToTopic if members
        read a topic, and other errors of a partition: AdminItemsError if several were asked for;
        GroupIdNotFound, also if the response to a first attempt was lost and that ended the group.
        """
        wanted = as_partitions("partitions", partitions)
        deadline = self._deadline(timeout_ms)
        await _group_changes.delete_offsets(self._router, group_id, wanted, deadline)

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
            group_id: the name of the group, which is made if there is none.
            rule: where to begin, such as `ResetRule.earliest()`.
            partitions: only these; by default all that the group has offsets for, or that the
                group has which they are copied from.
            topics: all partitions of these topics, besides `partitions`.
            dry_run: change nothing; the group may have members.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        An offset outside of a partition becomes the nearest one inside. Returns the old and the new
        offset of each partition. Raises NonEmptyGroup if the group has members, and the error of a
        partition, such as NoOffsetForPartitionError: AdminItemsError if there are several. Nothing
        is changed if any new offset cannot be found out.
        """
        if not isinstance(rule, ResetRule):
            raise TypeError(f"rule: must be a ResetRule, not {rule!r}")
        chosen = _reset.Chosen(
            None if partitions is None else tuple(as_partitions("partitions", partitions)),
            None if topics is None else tuple(as_names("topics", topics)),
        )
        deadline = self._deadline(timeout_ms)
        return await _reset.reset_offsets(self._router, group_id, rule, chosen, dry_run, deadline)

    async def share_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        timeout_ms: float | None = None,
    ) -> dict[str, dict[TopicPartition, ShareOffset | None]]:
        """Return where share groups are (Java: listShareGroupOffsets, KIP-932, Kafka 4.1).

        Args:
            groups: names of the groups, or a dict with the partitions of each; None and names alone
                stand for all partitions that a group has.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of a group, such as GroupIdNotFound for one that is not there or no share
        group: AdminItemsError if several were asked for.
        """
        deadline = self._deadline(timeout_ms)
        return await _share_offsets.fetch_share_offsets(self._router, _by_group(groups), deadline)

    async def alter_share_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Set where a share group without members begins (Java: alterShareGroupOffsets, KIP-932,
        Kafka 4.1).

        Args:
            group_id: the name of the group.
            offsets: the first offset to share, by partition.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises NonEmptyGroup if the group has members, and the error of a partition: AdminItemsError
        if several were asked for.
        """
        wanted = {
            as_partition(tp): _committed(tp, value).offset
            for tp, value in items_of("offsets", offsets)
        }
        deadline = self._deadline(timeout_ms)
        await _share_offsets.alter_share_offsets(self._router, group_id, wanted, deadline)

    async def delete_share_offsets(
        self, group_id: str, topics: Iterable[str], *, timeout_ms: float | None = None
    ) -> None:
        """Let a share group without members forget topics (Java: deleteShareGroupOffsets, KIP-932,
        Kafka 4.1).

        Args:
            group_id: the name of the group.
            topics: the topics whose offsets it is to forget.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises NonEmptyGroup if the group has members, and the error of a topic: AdminItemsError if
        several were asked for.
        """
        names = as_names("topics", topics)
        deadline = self._deadline(timeout_ms)
        await _share_offsets.delete_share_offsets(self._router, group_id, names, deadline)


def _static(name: str, reason: str) -> MemberIdentity:
    return MemberIdentity(member_id="", group_instance_id=name, reason=reason)


def _committed(tp: TopicPartition, value: Any) -> OffsetAndMetadata:
    offset = value.offset if isinstance(value, OffsetAndMetadata) else value
    if not isinstance(offset, int) or offset < 0:
        raise ValueError(f"offsets: {tp}: {value!r}: must be an offset, from 0")
    return value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(offset)


def _by_group(
    groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
) -> dict[str, list[TopicPartition] | None]:
    names = as_names("groups", groups)
    if isinstance(groups, Mapping):
        return {name: _wanted(groups[name]) for name in names}
    return dict.fromkeys(names)


def _wanted(partitions: Iterable[TopicPartition] | None) -> list[TopicPartition] | None:
    return None if partitions is None else as_partitions("groups", partitions)
