"""The groups of a cluster, of every type, and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka.admin import _group_describe, _group_list, _group_offsets, _lag
from aiokafka.admin._arguments import as_enums, as_names, as_partitions
from aiokafka.admin._group_values import GroupDescription, GroupListing
from aiokafka.admin._lag_values import GroupLag
from aiokafka.admin._room import Room
from aiokafka.admin.enums import GroupState, GroupType
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
        if a broker cannot tell states or types apart. Groups that the user may not describe are
        left out by the brokers.
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
        wanted: dict[str, list[TopicPartition] | None]
        if isinstance(groups, Mapping):
            names = as_names("groups", groups)
            wanted = {name: _wanted(groups[name]) for name in names}
        else:
            wanted = dict.fromkeys(as_names("groups", groups))
        return await _group_offsets.fetch_offsets(
            self._router, wanted, require_stable, self._deadline(timeout_ms)
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


def _wanted(partitions: Iterable[TopicPartition] | None) -> list[TopicPartition] | None:
    return None if partitions is None else as_partitions("groups", partitions)
