"""Describing groups whose coordinator assigns: what consumer, share and streams groups share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiokafka.admin._group_values import GroupDescription, GroupMember
from aiokafka.admin._routing import Call, Router
from aiokafka.admin.enums import GroupState, GroupType, operations_of
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.schema import Request

__all__ = ["AssignedGroups"]


@dataclass(frozen=True)
class AssignedGroups:
    """One type of group: how it is asked for, and how its response is read."""

    kind: GroupType
    request: type[Request[Any]]
    """Takes `group_ids` and `include_authorized_operations`."""
    member: Callable[[Any], GroupMember]
    """Returns the value of a member in the response."""
    assignor: Callable[[Any], str] = lambda group: str(group.assignor_name)
    """Returns the assignor of a group in the response."""
    topology_epoch: Callable[[Any], int | None] = lambda group: None
    """Returns the epoch of a group's topology; only streams groups have one."""

    async def describe(
        self,
        router: Router,
        node_id: int,
        group_ids: list[str],
        with_operations: bool,
        deadline: float,
    ) -> dict[str, GroupDescription | KafkaError]:
        """Return those of the groups that are of this type; the others are not found."""

        def build(version: int) -> Request[Any]:
            request: Request[Any] = self.request(
                group_ids=group_ids, include_authorized_operations=with_operations
            )
            return request

        response = await router.send(node_id, Call(self.request, build), deadline)
        return {group.group_id: self._described(group, node_id) for group in response.groups}

    def _described(self, group: Any, node_id: int) -> GroupDescription | KafkaError:
        if group.error_code:
            reason = group.error_message or "cannot be described"
            return for_code(group.error_code)(f"group {group.group_id!r}: {reason}")
        return GroupDescription(
            group_id=group.group_id,
            type=self.kind,
            state=GroupState.of(group.group_state),
            protocol_type=self.kind.name.lower(),
            assignor=self.assignor(group),
            coordinator=node_id,
            members=tuple(self.member(member) for member in group.members),
            epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            topology_epoch=self.topology_epoch(group),
            authorized_operations=operations_of(group.authorized_operations),
        )
