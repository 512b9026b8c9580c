"""Joining a group: the first step of a rebalance in the classic protocol."""

from aiokafka.protocol.schema import (
    I16,
    I32,
    Bool,
    Bytes,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    field,
)


class JoinGroupResponseMember(Struct):
    member_id: Str
    group_instance_id: NStr = field("5+", default=None, ignorable=True)
    metadata: Bytes


class JoinGroupResponse(Response):
    throttle_time_ms: I32 = field("2+", default=0, ignorable=True)
    error_code: I16 = 0
    generation_id: I32 = -1
    protocol_type: NStr = field("7+", default=None, ignorable=True)  # KIP-559
    protocol_name: NStr = field(nullable="7+")
    leader: Str
    skip_assignment: Bool = field("9+", default=False)  # KIP-814
    member_id: Str
    members: list[JoinGroupResponseMember]


class JoinGroupRequestProtocol(Struct):
    name: Str
    metadata: Bytes


class JoinGroupRequest(Request[JoinGroupResponse], api_key=11, versions="0-9", flexible="6+"):
    """Join a group; the broker responds when all members have joined."""

    group_id: Str
    session_timeout_ms: I32
    rebalance_timeout_ms: I32 = field("1+", default=-1, ignorable=True)
    member_id: Str
    group_instance_id: NStr = field("5+", default=None)  # KIP-345
    protocol_type: Str
    protocols: list[JoinGroupRequestProtocol]
    reason: NStr = field("8+", default=None, ignorable=True)  # KIP-800
