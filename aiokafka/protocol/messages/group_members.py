"""Messages of group members, in the classic protocol and in the consumer protocol (KIP-848)."""

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
    Uuid,
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
    """Join a group. The coordinator responds when all members have joined or the rebalance timeout
    has passed."""

    group_id: Str
    session_timeout_ms: I32
    rebalance_timeout_ms: I32 = field("1+", default=-1, ignorable=True)
    member_id: Str
    group_instance_id: NStr = field("5+", default=None)  # KIP-345
    protocol_type: Str
    protocols: list[JoinGroupRequestProtocol]
    reason: NStr = field("8+", default=None, ignorable=True)  # KIP-800


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


class HeartbeatResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    error_code: I16 = 0


class HeartbeatRequest(Request[HeartbeatResponse], api_key=12, versions="0-4", flexible="4+"):
    """Keep the member's session alive; the response reports a rebalance by an error code."""

    group_id: Str
    generation_id: I32
    member_id: Str
    group_instance_id: NStr = field("3+", default=None)  # KIP-345


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
    """Remove one member from a group, or from version 3 on several members (KIP-345)."""

    group_id: Str
    member_id: Str = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default=[])


class TopicPartition(Struct):
    topic: Str
    partitions: list[I32]


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """The subscription and owned partitions of a member: the payload of its JoinGroup request."""

    topics: list[Str]
    user_data: NBytes = None
    owned_partitions: list[TopicPartition] = field("1+", default=[], ignorable=True)
    generation_id: I32 = field("2+", default=-1, ignorable=True)
    rack_id: NStr = field("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The assignment of a member: the payload of a SyncGroup response."""

    assigned_partitions: list[TopicPartition]
    user_data: NBytes = None


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[I32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ConsumerGroupHeartbeatResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    member_id: NStr = None
    member_epoch: I32
    heartbeat_interval_ms: I32
    assignment: Assignment | None = None


class ConsumerGroupHeartbeatRequest(
    Request[ConsumerGroupHeartbeatResponse], api_key=68, versions="0-1", flexible="0+"
):
    """Join, stay in, or leave a group. Most fields are set only if their value has changed."""

    group_id: Str
    member_id: Str  # chosen by the client (KIP-1082)
    member_epoch: I32  # 0: join, -1: leave, -2: a static member leaves temporarily
    instance_id: NStr = None
    rack_id: NStr = None
    rebalance_timeout_ms: I32 = -1
    subscribed_topic_names: list[Str] | None = None
    subscribed_topic_regex: NStr = field("1+", default=None)
    server_assignor: NStr = None
    topic_partitions: list[TopicPartitions] | None = None
