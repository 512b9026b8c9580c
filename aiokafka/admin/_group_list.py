"""Listing groups."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from aiokafka.admin._every_broker import of_every_broker
from aiokafka.admin._group_values import GroupListing
from aiokafka.admin._routing import Call, Router, raise_for
from aiokafka.admin.enums import GroupState, GroupType
from aiokafka.errors import AdminItemsError, UnsupportedVersionError
from aiokafka.protocol.messages import groups as wire

__all__ = ["GroupFilter", "list_groups"]

_FIRST_WITH_STATES = 4
_FIRST_WITH_TYPES = 5


@dataclass(frozen=True)
class GroupFilter:
    """Which groups to list; what is empty lets all pass."""

    states: Collection[GroupState] = ()
    types: Collection[GroupType] = ()
    protocol_types: Collection[str] = ()
    prefix: str = ""

    def passes(self, group: GroupListing) -> bool:
        """Say whether a group is wanted. Brokers filter by state and type only if they know them.

        An old broker's groups are of unknown type, which is classic.
        """
        return (
            group.group_id.startswith(self.prefix)
            and (not self.states or group.state in self.states)
            and (not self.types or group.type in (*self.types, GroupType.UNKNOWN))
            and (not self.protocol_types or group.protocol_type in self.protocol_types)
        )


async def list_groups(
    router: Router, wanted: GroupFilter, deadline: float
) -> dict[str, GroupListing]:
    """Return the groups of all brokers that pass. AdminItemsError has the errors of brokers that do
    not respond, by id, beside the groups of the others."""

    async def ask(node_id: int) -> list[GroupListing]:
        return await _list_one(router, node_id, wanted, deadline)

    found = await of_every_broker(router, ask, deadline)
    groups = {group.group_id: group for group in found.values if wanted.passes(group)}
    if found.errors:
        raise AdminItemsError(found.errors, groups)
    return groups


async def _list_one(
    router: Router, node_id: int, wanted: GroupFilter, deadline: float
) -> list[GroupListing]:
    call = Call(wire.ListGroupsRequest, lambda version: _request(version, wanted))
    response = await router.send(node_id, call, deadline)
    # A broker that has just started loads its groups first.
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
