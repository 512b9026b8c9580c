"""Import path of aiokafka, kept as a shim: the classic group protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokafka.protocol._tuples import Family, Request, versioned
from aiokafka.protocol.messages import classic_group

__all__ = ["HeartbeatRequest", "JoinGroupRequest", "LeaveGroupRequest", "SyncGroupRequest"]


class JoinGroupRequest(
    Request,
    family=Family(
        classic_group.JoinGroupRequest,
        "group session_timeout rebalance_timeout member_id group_instance_id protocol_type"
        " group_protocols(protocol_name protocol_metadata)",
        "throttle_time_ms error_code generation_id group_protocol leader_id member_id"
        " members(member_id group_instance_id member_metadata)",
        versions=(0, 1, 2, 5),
    ),
):
    """Join a group. Protocols are tuples of name and metadata; times are in milliseconds."""

    UNKNOWN_MEMBER_ID = ""

    def __init__(
        self,
        group: str,
        session_timeout: int,
        rebalance_timeout: int,
        member_id: str,
        group_instance_id: str | None,
        protocol_type: str,
        group_protocols: Iterable[tuple[str, bytes]],
    ) -> None:
        super().__init__(
            group=group,
            session_timeout=session_timeout,
            rebalance_timeout=rebalance_timeout,
            member_id=member_id,
            group_instance_id=group_instance_id,
            protocol_type=protocol_type,
            group_protocols=list(group_protocols),
        )


class SyncGroupRequest(
    Request,
    family=Family(
        classic_group.SyncGroupRequest,
        "group generation_id member_id group_instance_id"
        " group_assignment(member_id member_metadata)",
        "throttle_time_ms error_code member_assignment",
        versions=(0, 1, 3),
    ),
):
    """Fetch the assignment. The leader sends the assignments of all: tuples of member and bytes."""

    def __init__(
        self,
        group: str,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        group_assignment: Iterable[tuple[str, bytes]],
    ) -> None:
        super().__init__(
            group=group,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            group_assignment=list(group_assignment),
        )


class HeartbeatRequest(
    Request,
    family=Family(
        classic_group.HeartbeatRequest,
        "group generation_id member_id",
        "throttle_time_ms error_code",
        versions=(0, 1),
    ),
):
    """Tell the coordinator that the member is alive."""

    def __init__(self, group: str, generation_id: int, member_id: str) -> None:
        super().__init__(group=group, generation_id=generation_id, member_id=member_id)


class LeaveGroupRequest(
    Request,
    family=Family(
        classic_group.LeaveGroupRequest,
        "group member_id",
        "throttle_time_ms error_code",
        versions=(0, 1),
    ),
):
    """Leave a group."""

    def __init__(self, group: str, member_id: str) -> None:
        super().__init__(group=group, member_id=member_id)


def __getattr__(name: str) -> Any:
    return versioned(globals(), name)
