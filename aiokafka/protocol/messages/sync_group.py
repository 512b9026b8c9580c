"""Distributing the assignment: the second step of a rebalance in the classic protocol."""

from aiokafka.protocol.schema import I16, I32, Bytes, NStr, Request, Response, Str, Struct, field


class SyncGroupResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    error_code: I16 = 0
    protocol_type: NStr = field("5+", default=None, ignorable=True)
    protocol_name: NStr = field("5+", default=None, ignorable=True)
    assignment: Bytes


class SyncGroupRequestAssignment(Struct):
    member_id: Str
    assignment: Bytes


class SyncGroupRequest(Request[SyncGroupResponse], api_key=14, versions="0-5", flexible="4+"):
    """Request the member's assignment; the group leader sends the assignments of all members."""

    group_id: Str
    generation_id: I32
    member_id: Str
    group_instance_id: NStr = field("3+", default=None)  # KIP-345
    protocol_type: NStr = field("5+", default=None, ignorable=True)  # KIP-559
    protocol_name: NStr = field("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]
