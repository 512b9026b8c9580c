"""Joining a group, first round of the classic protocol."""

from aiokafka.protocol.schema import (
    I16,
    I32,
    Bool,
    Bytes,
    Message,
    NBytes,
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
    """Enter a group and wait until all its members have."""

    group_id: Str
    session_timeout_ms: I32
    rebalance_timeout_ms: I32 = field("1+", default=-1, ignorable=True)
    member_id: Str
    group_instance_id: NStr = field("5+", default=None)  # KIP-345
    protocol_type: Str
    protocols: list[JoinGroupRequestProtocol]
    reason: NStr = field("8+", default=None, ignorable=True)  # KIP-800


# -- Distributing the assignment, the second round of the classic protocol


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
    """Fetch the assignment; the leader brings the assignments of all."""

    group_id: Str
    generation_id: I32
    member_id: Str
    group_instance_id: NStr = field("3+", default=None)  # KIP-345
    protocol_type: NStr = field("5+", default=None, ignorable=True)  # KIP-559
    protocol_name: NStr = field("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]


# -- Staying in a group, classic protocol


class HeartbeatResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    error_code: I16 = 0


class HeartbeatRequest(Request[HeartbeatResponse], api_key=12, versions="0-4", flexible="4+"):
    """Tell the coordinator that the member lives; learn of a rebalance."""

    group_id: Str
    generation_id: I32
    member_id: Str
    group_instance_id: NStr = field("3+", default=None)  # KIP-345


# -- Leaving a group, classic protocol


class MemberResponse(Struct):
    member_id: Str
    group_instance_id: NStr
    error_code: I16 = 0


class LeaveGroupResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    error_code: I16 = 0
    members: list[MemberResponse] = field("3+", default=[])


class MemberIdentity(Struct):
    member_id: Str
    group_instance_id: NStr = None
    reason: NStr = field("5+", default=None, ignorable=True)  # KIP-800


class LeaveGroupRequest(Request[LeaveGroupResponse], api_key=13, versions="0-5", flexible="4+"):
    """Leave a group: one member, from version 3 on several (KIP-345)."""

    group_id: Str
    member_id: Str = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default=[])


# -- What members of a consumer group tell each other through the classic protocol


class TopicPartition(Struct):
    topic: Str
    partitions: list[I32]


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """What a member wants and has; the payload of its JoinGroup request."""

    topics: list[Str]
    user_data: NBytes = None
    owned_partitions: list[TopicPartition] = field("1+", default=[], ignorable=True)
    generation_id: I32 = field("2+", default=-1, ignorable=True)
    rack_id: NStr = field("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """What a member gets; the payload of a SyncGroup answer."""

    assigned_partitions: list[TopicPartition]
    user_data: NBytes = None
